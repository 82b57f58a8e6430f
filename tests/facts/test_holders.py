"""Who holds memory of a GPU, by ``/proc``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from examples.facts import example_gpu
from gpudiag.facts.holders import with_holders
from gpudiag.hardware.processes import identify
from gpudiag.model.facts import GpuProcess, ProcessIdentity

STATUS = "Name:\tpython\nPPid:\t{parent}\nUid:\t0\t0\t0\t0\n"
STAT = "77 (a (strange) name) S 1 1 1 0 -1 4 1 1 1 1 1 1 1 1 20 0 1 0 360000 1 1\n"


def holder(
    root: Path, parent: int = 1, cgroup: str = "", command: str = "python\0train.py\0--key\0secret\0"
) -> ProcessIdentity:
    folder = root / "proc/77"
    folder.mkdir(parents=True, exist_ok=True)
    (root / "proc/stat").write_text("cpu 1\nbtime 1700000000\n")
    for name, text in {
        "status": STATUS.format(parent=parent),
        "stat": STAT,
        "cgroup": f"0::{cgroup}\n",
        "cmdline": command,
    }.items():
        (folder / name).write_text(text)
    device = replace(example_gpu(), processes=(GpuProcess(77, 1 << 30), GpuProcess(78, 1 << 30)))
    first, second = with_holders(device, root).processes
    assert second.holder == ProcessIdentity(state="X")  # NVML still lists a process that has ended
    assert first.holder is not None
    return first.holder


def test_what_is_said_of_a_process(tmp_path: Path) -> None:
    found = holder(tmp_path, cgroup="/user.slice/user-1000.slice/session-3.scope")
    assert found == ProcessIdentity("root", "python train.py ...", "2023-11-14 23:13 UTC", True, None, parent=1)


def test_the_framework_that_it_has_loaded(tmp_path: Path) -> None:
    maps = tmp_path / "proc/77/maps"
    maps.parent.mkdir(parents=True)
    maps.write_text("7f0000000000-7f0000001000 r-xp 00000000 08:01 42 /venv/lib/jaxlib/libjax_common.so\n")
    found = holder(tmp_path)
    assert found.uses == "JAX"
    assert "python train.py ..., which uses JAX" in found.words


@pytest.mark.parametrize(
    ("parent", "cgroup", "gone"),
    [
        (1, "/user.slice/session-3.scope", True),
        (1, "/system.slice/serve.service", False),
        (1, f"/system.slice/docker-{'ab' * 32}.scope", False),
        (50, "/", False),
    ],
)
def test_a_service_was_not_left_behind(tmp_path: Path, parent: int, cgroup: str, gone: bool) -> None:
    assert holder(tmp_path, parent, cgroup).parent_gone is gone


@pytest.mark.parametrize(
    ("cgroup", "job"),
    [
        (f"/system.slice/docker-{'ab' * 32}.scope", "container abababababab of Docker"),
        ("/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0", "job 4711 of Slurm"),
        ("/kubepods.slice/kubepods-pod1a2b3c4d_5e.slice/cri-containerd-0123456789ab.scope", "pod 1a2b3c4d"),
        ("/system.slice/triton.service", "service triton"),
        ("/user.slice/session-3.scope", None),
    ],
)
def test_the_job_it_belongs_to(tmp_path: Path, cgroup: str, job: str | None) -> None:
    assert holder(tmp_path, cgroup=cgroup).job == job


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("/opt/conda/bin/python3\0-m\0ipykernel_launcher\0-f\0kernel.json\0", "python3 -m ipykernel_launcher ..."),
        ("python\0-u\0/home/someone/train.py\0", "python train.py ..."),
        ("python\0-c\0password = 1\0", "python ..."),
        ("python\0", "python"),
        ("", "python"),
    ],
)
def test_arguments_are_not_kept(tmp_path: Path, command: str, shown: str) -> None:
    assert holder(tmp_path, command=command).command == shown


def test_if_nvml_lists_nobody_those_who_have_the_device_file_open_are_named(tmp_path: Path) -> None:
    holder(tmp_path, 50)
    device = replace(example_gpu(), memory_used_bytes=39 << 30)
    information = tmp_path / "proc/driver/nvidia/gpus" / device.pci_bus_id / "information"
    information.parent.mkdir(parents=True)
    information.write_text("Model: \t NVIDIA A100\nDevice Minor: \t 3\n")
    for file, target in (("0", "/dev/null"), ("7", "/dev/nvidia3")):
        (tmp_path / "proc/77/fd").mkdir(exist_ok=True)
        (tmp_path / "proc/77/fd" / file).symlink_to(target)
    (process,) = with_holders(device, tmp_path).opened_by
    assert process.pid == 77
    assert process.holder is not None
    assert process.holder.command == "python train.py ..."
    assert with_holders(replace(device, memory_used_bytes=0), tmp_path).opened_by == ()


def test_who_runs_in_the_same_job_of_a_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LSB_JOBID", "17")
    (tmp_path / "proc/77").mkdir(parents=True)
    (tmp_path / "proc/77/environ").write_bytes(b"HOME=/root\0LSB_JOBID=17\0")
    found = holder(tmp_path)
    assert (found.same_job, found.run) == ("LSB_JOBID=17", None)
    (tmp_path / "proc/77/environ").write_bytes(b"LSB_JOBID=18\0")
    assert holder(tmp_path).same_job is None


def test_the_name_that_a_process_has_given_itself(tmp_path: Path) -> None:
    holder(tmp_path)
    (tmp_path / "proc/77/status").write_text(STATUS.format(parent=1).replace("python", "gnome-shell"))
    assert identify(77, tmp_path).command == "gnome-shell (python train.py ...)"


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs util-linux")
def test_a_process_outside_of_this_pid_namespace_is_not_taken_for_another_of_its_number() -> None:
    """Process 1 of the new namespace is the shell of this test, which uses no GPU; 99999 is outside of it."""
    ask = (
        "from pathlib import Path; from msgspec.structs import replace; from examples.facts import example_gpu; "
        "from gpudiag.facts.holders import with_holders; from gpudiag.model.facts import GpuProcess; "
        "device = replace(example_gpu(), processes=(GpuProcess(1, 1 << 30), GpuProcess(99999, 1 << 30))); "
        "print([process.holder for process in with_holders(device, Path('/')).processes])"
    )
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", ask]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": "tests"}
    )
    if "unshare" in done.stderr:
        pytest.skip(done.stderr)
    assert done.stdout == "[None, None]\n", done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_process_that_proc_hides_is_of_another_user_and_not_gone() -> None:
    """Process 1 of the new namespace is root's shell."""
    ask = "import os; from gpudiag.hardware.processes import identify; os.setuid(65534); print(identify(1))"
    script = f"mount -o remount,hidepid=2 /proc && {sys.executable} -c '{ask}'; :"
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.stdout or "user='root'" in done.stdout:
        pytest.skip(done.stderr or "this kernel does not hide processes")
    assert "of_another_user=True" in done.stdout
    assert "state=None" in done.stdout
