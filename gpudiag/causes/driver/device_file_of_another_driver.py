"""device files cannot be opened: no driver on this machine has their device number

The kernel gives nvidia-uvm and others a number when the module is loaded, and it may be another one after a reboot or
an upgrade. A device file that was made before, written into an image, a container or the specification of one (CDI),
keeps the old number: open(2) fails with ENXIO or ENODEV, and cuInit with 999, "unknown error", while nvidia-smi, which
needs no nvidia-uvm, works.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.gpu_state import NoneListed, meaning
from gpudiag.causes.shared.machine import container
from gpudiag.fix import Kind, Where, check, configure, run, start
from gpudiag.model.facts import Facts, TriedFacts

CAUSE = Cause(
    title="{files} cannot be opened: no driver on this machine has its device number",
    fix=(
        check("grep nvidia /proc/devices; ls -l /dev/nvidia*", "must show the same numbers in both"),
        run("sudo rm /dev/nvidia-uvm", kind=Kind.REMOVE),
        configure("sudo nvidia-modprobe -u -c 0", "creates it with the right number"),
    ),
    url="https://github.com/NVIDIA/nvidia-container-toolkit/issues/1934",
)
_NO_DRIVER = ("ENXIO", "ENODEV")


def find(facts: Facts, tried: TriedFacts, none: NoneListed) -> Matches:
    stale = [attempt for attempt in tried.opened if attempt.error in _NO_DRIVER]
    if not stale:
        return
    inside = container(facts)
    files = " ".join(attempt.path for attempt in stale)
    yield Match(
        evidence=tuple(f"open {attempt.path}: {meaning(attempt.error)}" for attempt in stale),
        figures={"files": files},
        fix=(
            CAUSE.fix[0],
            configure("sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml", where=Where.HOST)
            if inside
            else run(f"sudo rm {files}", kind=Kind.REMOVE),
            start("docker run --gpus all ...", "start a new container, because this one keeps its files")
            if inside
            else configure("sudo nvidia-modprobe -u -c 0", "creates it with the right number"),
        ),
        stage=none.stage,
    )
