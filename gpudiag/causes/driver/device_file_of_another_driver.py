"""device files cannot be opened: no driver on this machine has their device number

The kernel gives nvidia-uvm and others a number when the module is loaded, and it may be another one after a reboot or
an upgrade. A device file that was made before, written into an image, a container or the specification of one (CDI),
keeps the old number: open(2) fails with ENXIO or ENODEV, and cuInit with 999, "unknown error", while nvidia-smi, which
needs no nvidia-uvm, works.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.refusals import Refusal, Refusals, Refuser
from gpudiag.fix import Action, Kind, Where, check, configure, run

CAUSE = Cause(
    title="{files} cannot be opened: no driver on this machine has its device number",
    fix=(
        check("grep nvidia /proc/devices; ls -l /dev/nvidia*", "must show the same numbers in both"),
        run("sudo rm /dev/nvidia-uvm", kind=Kind.REMOVE),
        configure("sudo nvidia-modprobe -u -c 0", "creates it with the right number"),
    ),
    url="https://github.com/NVIDIA/nvidia-container-toolkit/issues/1934",
)


def find(files: Refusals) -> Matches:
    stale = files.by(Refuser.NUMBER)
    if not stale:
        return
    sandbox, names = files.sandbox, " ".join(refusal.node.path for refusal in stale)
    fix: tuple[Action, ...] = (run(f"sudo rm {names}", kind=Kind.REMOVE), CAUSE.fix[2])
    if sandbox is not None and sandbox.is_container:
        again = sandbox.give.replaced(note="a new container, because this one keeps its files")
        lists = configure("sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml", where=Where.HOST)
        fix = (lists, *files.actions((again,), stale))
    numbers = (line for refusal in stale if (line := _registered(files, refusal)))
    yield files.match(stale, (CAUSE.fix[0], *fix), *numbers)


def _registered(files: Refusals, refusal: Refusal) -> str:
    """Return the number of the file's driver in /proc/devices, as evidence."""
    number, own = files.expected(refusal.node), refusal.node.major
    if own is None:
        return ""
    if not files.nodes.majors:
        return "/proc/devices lists no driver of NVIDIA's"
    if number is None:
        return f"/proc/devices lists no driver for {refusal.node.path}: its module is not loaded"
    return f"/proc/devices gives its driver the number {number}, not {own}"
