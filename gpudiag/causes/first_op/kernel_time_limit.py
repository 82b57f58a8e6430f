"""a kernel ran longer than a GPU with a display allows, and the driver ended it

On a GPU that draws a screen no kernel may run for more than some seconds, so that the screen does not stand still. The
driver ends one that does: CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated", and every further call
of the process fails. A GPU without a display has no such limit.
"""

from __future__ import annotations

from gpudiag.cause import Cause, EveryLog, Match, Matches
from gpudiag.causes.shared.gpu_state import GpusInScope, addresses, named
from gpudiag.fix import Kind, edit_note, export, note
from gpudiag.knowledge.messages.cuda import BY_NUMBER
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import CallFacts

CAUSE = Cause(
    title="a kernel ran longer than {gpu} allows, {why}, and the driver ended it",
    fix=(
        export("CUDA_VISIBLE_DEVICES", "{others}", "uses the GPUs that have no display"),
        edit_note("use a smaller batch, so that each kernel is shorter"),
        note(
            'under Xorg: write Option "Interactive" "0" into the section Device of /etc/X11/xorg.conf, which takes the '
            "limit away, and log in again; or start the machine without a desktop",
            kind=Kind.CONFIGURE,
        ),
    ),
    url="https://nvidia.custhelp.com/app/answers/detail/a_id/3029/",
)
_TIMED_OUT = BY_NUMBER["702"]


def find(log: EveryLog, gpus: GpusInScope, calls: CallFacts | None) -> Matches:
    said = log.said(_TIMED_OUT, most=1)
    bounded = calls.time_limited if calls is not None else ()
    drawing = tuple(gpu for gpu in gpus if gpu.state.display is True or gpu.pci_bus_id in bounded)
    if not said or not drawing:
        return
    has_display = any(gpu.state.display for gpu in drawing)
    others = [gpu.uuid for gpu in gpus if gpu.state.display is False and gpu not in drawing]
    yield Match(
        evidence=(
            *said,
            *([f"NVML: {named(drawing)}: display active"] if has_display else []),
            *(["CUDA: kernels on it have a time limit"] if any(gpu.pci_bus_id in bounded for gpu in drawing) else []),
        ),
        confidence=Confidence.LIKELY,
        figures={
            "gpu": named(drawing),
            "why": "which has a display" if has_display else "whose kernels have a time limit",
            "others": ",".join(others),
        },
        fix=(CAUSE.fix[0] if others else None, *CAUSE.fix[1:]),
        gpus=addresses(drawing),
    )
