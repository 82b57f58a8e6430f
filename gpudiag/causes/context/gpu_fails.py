"""a GPU fails even when it is used alone, and TensorFlow works without it

Each GPU was given to an interpreter of its own, in the same environment. One that fails there is at fault, and not the
environment or the others: its hardware, its power or connection, or its state in the driver. One such GPU keeps
TensorFlow from all others, because it makes its devices on all GPUs that it lists. CUDA's error says what to look for.
`--bisect 0` switches these tries off.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.devices import MASK, ChosenGpus
from gpudiag.causes.shared.gpu_state import KernelLog, addresses
from gpudiag.causes.shared.last_resort import CODES, code_in_row
from gpudiag.causes.shared.memory import ROOM_BYTES, free_bytes, gib
from gpudiag.fix import check, distinct, export, kernel_log, note, reset_gpu
from gpudiag.knowledge.codes import code_in, meaning_of
from gpudiag.knowledge.message import Event
from gpudiag.knowledge.messages.memory import DEVICE_FULL
from gpudiag.model.diagnosis import Bisection
from gpudiag.model.report import Gpu

CAUSE = Cause(
    title="{who}: {error}{meaning}",
    unfit=True,
    fix=(
        export(MASK, "{others}", "until it is repaired"),
        kernel_log("shows which fault it is: NVIDIA's table of Xid errors says what to do"),
        check("nvidia-smi -q -d ECC,ROW_REMAPPER -i {index}", "shows errors of its memory"),
        reset_gpu("{index}", "if no process uses it; or reboot"),
    ),
    url=CODES,
)


def find(bisection: Bisection, gpus: ChosenGpus, kernel: KernelLog) -> Matches:
    failing = {change.name: change for change in bisection.gpus}
    bad = [gpu for gpu in gpus.gpus if gpu.uuid in failing]
    if not bad:
        return
    it = "it" if len(failing) == 1 else "these"
    event = next(_errors(bisection, gpus), None)
    known = {"index": ",".join(str(gpu.index) for gpu in bad), "others": ",".join(_others(gpus, bad))}
    xid = kernel.xid
    yield Match(
        evidence=(
            *dict.fromkeys(change.origin for change in failing.values()),
            f"without {it}: {bisection.after}",
            f"as it is: {bisection.before}",
            *kernel.last("Xid", "fallen off the bus", "RmInitAdapter", gpus=addresses(bad)),
        ),
        figures={
            "who": f"{' and '.join(f'GPU {gpu.index}' for gpu in bad)} {'fails' if len(bad) == 1 else 'fail'}",
            "error": _code(event) if event else next(iter(failing.values())).origin.partition(": ")[2],
            "meaning": _meaning(event, gpus, bad) if event else "",
            **known,
        },
        fix=(
            *distinct(change.fix for change in failing.values() if change.fix is not None),
            note(xid) if xid else CAUSE.fix[1],
            *CAUSE.fix[2:],
        ),
        gpus=addresses(bad),
    )


def _errors(bisection: Bisection, gpus: ChosenGpus) -> Iterator[Event]:
    """Yield CUDA's errors: of the GPU alone, of all GPUs together, and of the probes."""
    for text in (*(change.origin for change in bisection.gpus), bisection.before):
        if event := code_in(text):
            yield event
    yield from (event for row in gpus.rows if (event := code_in_row(row)) is not None)


def _code(event: Event) -> str:
    return "CUDA_ERROR_OUT_OF_MEMORY" if event.message is DEVICE_FULL else event.text


def _meaning(event: Event, gpus: ChosenGpus, bad: list[Gpu]) -> str:
    """Return what an error means; that memory is lacking is refuted if NVML reports that it is free."""
    devices = [device for gpu, device in gpus.by_nvml if gpu in bad]
    if event.message is DEVICE_FULL and devices and all(free_bytes(device) > ROOM_BYTES for device in devices):
        return f", although {gib(free_bytes(devices[0]))} of its {gib(devices[0].memory_total_bytes)} are free"
    return f": {meaning_of(event)}"


def _others(gpus: ChosenGpus, bad: list[Gpu]) -> Iterator[str]:
    return (gpu.uuid for gpu in gpus.gpus if gpu not in bad)
