"""the driver's libraries are in this container, but the GPU's device files are not

CUDA needs /dev/nvidiactl, /dev/nvidia-uvm and a /dev/nvidiaN for each GPU. If they are passed in one by one,
/dev/nvidia-uvm is often forgotten, because nvidia-smi works without it, while cuInit fails with an unknown error.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.containers import CONTROL, TOOLKIT, UNIFIED_MEMORY, InContainer
from gpudiag.causes.shared.steps import CuInitFailed
from gpudiag.fix import Action, Kind, Where, configure, note, run
from gpudiag.knowledge.sandboxes import BY_NAME
from gpudiag.model.facts import Unknown

CAUSE = Cause(
    title="the driver's libraries are in this container, but {lacking} is not",
    fix=(
        BY_NAME["docker"].give,
        note(
            "pass all of them if you do it by hand: --device /dev/nvidiactl --device /dev/nvidia-uvm "
            "--device /dev/nvidia0",
            kind=Kind.START_CONTAINER,
        ),
        run(
            "sudo nvidia-modprobe -u -c=0",
            "if the host lacks it, too; then start the container again",
            kind=Kind.RELOAD_DRIVER,
            where=Where.HOST,
        ),
    ),
    url=TOOLKIT,
    unless={
        "device_files_kept_by_control_group": "the files are there, and are refused",
    },
)

_BY_SPECIFICATION = ("podman", "containerd", "cri-o")
"""Container runtimes that pass in the devices that a CDI specification lists."""
_OF_ALL_OR_NONE = ("apptainer", "singularity", "charliecloud", "flatpak")
"""Sandboxes that pass in every device of the host, or none."""


def find(inside: InContainer, failed: CuInitFailed) -> Matches:
    # Where all of it is lacking, the container was given no GPU, and the library is the image's: another cause.
    if inside.libcuda is None or inside.given_none or "/dev/dxg" in inside.nodes:
        return
    if lacking := [path for path in (CONTROL, UNIFIED_MEMORY) if path not in inside.nodes]:
        yield Match(
            evidence=(
                inside.marks,
                f"{inside.libcuda} opens; cuInit: {failed}",
                f"devices: {' '.join(inside.nodes) or 'none'}",
            ),
            figures={"lacking": " and ".join(lacking)},
            fix=(
                *_fix(inside, lacking),
                configure(
                    "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
                    "run it after that: the specification lists the device files that exist now",
                    where=Where.HOST,
                )
                if inside.container.name in _BY_SPECIFICATION
                else None,
            ),
        )


def _fix(inside: InContainer, lacking: list[str]) -> tuple[Action, ...]:
    """Return what brings the devices in; on the host, if it is the host that lacks /dev/nvidia-uvm.

    Containers see the numbers of the host's drivers in /proc/devices, and some runtimes pass all of its devices in, or
    none.
    """
    nodes = inside.facts.device_nodes
    majors = {} if isinstance(nodes, Unknown) else nodes.majors
    start, by_hand, load = inside.start(), *CAUSE.fix[1:]
    all_or_none = inside.container.name in _OF_ALL_OR_NONE and "all" in (inside.container.flatpak_devices or "all")
    if lacking == [UNIFIED_MEMORY] and ("nvidia-uvm" not in majors if majors else all_or_none):
        return (load.replaced(note="then start the container again"),)
    by = (by_hand,) if inside.container.name not in _OF_ALL_OR_NONE else ()
    return (start, *by) if majors else (start, *by, load)
