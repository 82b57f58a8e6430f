"""this process has too small a limit of address space (ulimit -v): the driver reserves more for the GPUs

CUDA gives the memory of the host and of all GPUs one range of addresses, and reserves it when it starts. These are
addresses, not memory; a limit of addresses counts them all the same. The driver then answers "out of memory", although
nothing is used: cuInit fails, or the first context. Shells (`ulimit -v`), /etc/security/limits.conf, batch systems and
systemd units (LimitAS) set such limits.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Listing, Match, Matches, Rows
from gpudiag.causes.shared.limits import raised
from gpudiag.causes.shared.memory import gib, refused_with_room
from gpudiag.causes.shared.steps import cuinit_error
from gpudiag.fix import Kind, check, note
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.facts import ContainerFacts, Facts

CAUSE = Cause(
    title="this process is limited to {limit} of address space (ulimit -v), but the driver reserves more for the GPUs",
    fix=(
        check("ulimit -v unlimited", "run it in the shell or job that starts the program"),
        note(
            'raise the limit "as" in /etc/security/limits.conf, or LimitAS= of the systemd unit, if that is refused',
            kind=Kind.CONFIGURE,
        ),
    ),
    url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#unified-virtual-address-space",
    unless={
        "memory_held_by_others": "the context failed for lack of memory of the GPU",
    },
)
_LIMIT = "Max address space"


def find(container: ContainerFacts, facts: Facts, listing: Listing, rows: Rows) -> Matches:
    limit = container.address_space_bytes
    said = cuinit_error(listing)
    refused = (said,) if "OUT_OF_MEMORY" in said else refused_with_room(facts, rows)
    memory = sum(device.memory_total_bytes or 0 for device in facts.nvml_devices)
    if limit is None or not refused:
        return
    yield Match(
        evidence=(
            *refused,
            f"/proc/self/limits: Max address space {limit} bytes",
            f"memory of the GPUs by NVML: {gib(memory)}",
        ),
        confidence=Confidence.LIKELY if limit < memory else Confidence.POSSIBLE,
        figures={"limit": gib(limit)},
        fix=tuple(action for known in container.limits if known.name == _LIMIT for action in raised(known, facts)),
        about=(_LIMIT,),
        stage=Stage.DRIVER if said else Stage.MEMORY,
    )
