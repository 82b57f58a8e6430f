"""Who refuses a device file: real files, namespaces and control groups, judged as those of a machine with a driver."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from examples.machines import NO_DEVICE, example_evidence, example_facts
from gpudiag.causes.shared.refusals import Refusals, Refuser
from gpudiag.model.facts import ContainerFacts, DeviceNodeFacts, NvmlFacts, SystemFacts, TriedFacts

pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("setpriv"),
    reason="only root makes device files and namespaces",
)
_FAMILIES = {
    "system": SystemFacts,
    "device_nodes": DeviceNodeFacts,
    "tried": TriedFacts,
    "container": ContainerFacts,
}
_GATHER = f"""
import importlib, json, msgspec
for name in {list(_FAMILIES)}:
    print(msgspec.json.encode(importlib.import_module("gpudiag.facts." + name).gather()).decode())
"""
_DEV = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /dev
for file in null:3 zero:5 random:8 urandom:9; do mknod -m 666 /dev/${file%:*} c 1 ${file#*:}; done
for file in nvidia0 nvidiactl nvidia-uvm; do mknod -m 666 /dev/$file c 1 3; done
"""
"""Device files that open: they have the number of /dev/null, as no driver of NVIDIA's is here."""
_STRANGER = "setpriv --reuid 1000 --regid 1000 --clear-groups"
_ROOTLESS = f"{_STRANGER} unshare -U --map-user=0 --map-group=0"


def refusals(setup: str, prefix: str = "") -> Refusals | None:
    """Return who refuses which file, after ``setup`` in a mount namespace of its own."""
    # The interpreter of an environment may lie in a folder that is closed to other users.
    python = shutil.which("python{}.{}".format(*sys.version_info), path="/usr/bin:/usr/local/bin") or sys.executable
    own = {"PYTHON": python, "GATHER": _GATHER, "PYTHONPATH": os.pathsep.join(sys.path), "HOME": "/"}
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", f'{_DEV}\n{setup}\nexec {prefix} "$PYTHON" -c "$GATHER"'],
        capture_output=True,
        text=True,
        env={**os.environ, **own},
        timeout=60,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"not possible here: {done.stderr.strip()[-200:]}")
    texts = zip(_FAMILIES.items(), done.stdout.splitlines(), strict=True)
    families = {name: msgspec.json.decode(text, type=kind) for (name, kind), text in texts}
    families["device_nodes"] = replace(families["device_nodes"], pci_gpus=("0000:01:00.0",))
    facts = example_facts(nvml=NvmlFacts("Unknown Error", None, None, ()), **families)
    return Refusals.of(example_evidence(facts, cuinit=NO_DEVICE))


@pytest.mark.parametrize(
    ("setup", "prefix", "by"),
    [
        ("chmod 660 /dev/nvidia*; chgrp 44 /dev/nvidia*", _STRANGER, Refuser.GROUP),
        ("chmod 600 /dev/nvidia*", _STRANGER, Refuser.PERMISSIONS),
        ("chmod 660 /dev/nvidia*; chgrp 44 /dev/nvidia*", _ROOTLESS, Refuser.USER_NAMESPACE),
        (
            "chown 65533:44 /dev/nvidia*; chmod 660 /dev/nvidia*",
            "setpriv --clear-groups --inh-caps=-all --bounding-set=-all",
            Refuser.CAPABILITY,
        ),
        ("mount -o remount,nodev /dev", "", Refuser.MOUNT),
        ("rm /dev/nvidiactl; mkdir /dev/nvidiactl", "", Refuser.FILE_TYPE),
        ("rm /dev/nvidiactl; touch /dev/nvidiactl", "", Refuser.FILE_TYPE),
        ("rm /dev/nvidiactl; ln -s /gone /dev/nvidiactl", "", Refuser.FILE_TYPE),
        ("rm /dev/nvidia-uvm; mknod -m 666 /dev/nvidia-uvm c 240 0", "", Refuser.NUMBER),
    ],
)
def test_who_refuses(setup: str, prefix: str, by: Refuser) -> None:
    found = refusals(setup, prefix)
    assert found is not None
    assert {refusal.by for refusal in found.every} == {by}
    evidence = " ".join(found.match(found.every, ()).evidence)
    assert all(refusal.node.path in evidence for refusal in found.every)


@pytest.mark.parametrize(
    ("setup", "prefix"),
    [
        ("", ""),
        ("", _ROOTLESS),
        ("chgrp 44 /dev/nvidia*; chmod 660 /dev/nvidia*", "setpriv --reuid 1000 --regid 1000 --groups 44"),
        ("mknod -m 666 /dev/nvidia1 c 240 1", ""),
    ],
    ids=["open", "owner without a number", "in the group", "another GPU"],
)
def test_odd_files_that_open(setup: str, prefix: str) -> None:
    assert refusals(setup, prefix) is None


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of devices that refuses number 240, if the kernel has version 1 of them."""
    folder = Path("/sys/fs/cgroup/devices") / f"gpudiag-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
        (folder / "devices.deny").write_text("c 240:* rwm")
    except OSError as error:
        pytest.skip(f"no control group of devices can be made here: {error}")
    yield folder
    folder.rmdir()


def test_a_device_control_group(group: Path) -> None:
    setup = f"rm /dev/nvidia-uvm; mknod -m 666 /dev/nvidia-uvm c 240 0; echo $$ > {group}/cgroup.procs"
    found = refusals(setup)
    assert found is not None
    assert [(refusal.by, refusal.error) for refusal in found.every] == [(Refuser.CONTROL_GROUP, "EPERM")]
