"""operations that were to run on a GPU ran elsewhere

Soft placement is on in TensorFlow 2: if there is no such GPU, an operation under tf.device('/GPU:0') runs elsewhere,
without a warning. Only operations are counted for whose type TensorFlow has a GPU kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.traced import GUIDE, MOST
from gpudiag.fix import Action, ask, edit, note
from gpudiag.model.program import GpuUse, ProgramTrace, place
from gpudiag.model.report import Severity
from gpudiag.text import counted

CAUSE = Cause(
    title="{count} asked for {asked} and ran on {device}",
    severity=Severity.WARNING,
    fix=(
        ask("gpudiag why"),
        edit("tf.config.set_soft_device_placement(False)", "an operation that cannot run there raises"),
    ),
    url=f"{GUIDE}#manual_device_placement",
    needs_gpu=False,
    unless={
        "replicas_without_own_gpu": "the replicas ask for GPUs that there are not",
    },
)


def find(program: ProgramTrace) -> Matches:
    fell = [placement for placement in program.placed if placement.why == "asked"]
    if not fell:
        return
    lines: Counter[str] = Counter()
    for placement in fell:
        inside = f" in {placement.function}" if placement.function else ""
        lines[
            f"{place(placement.line)}: {placement.op}{inside} asked for {placement.asked}, ran on {placement.device}"
        ] += placement.count
    pid = max(fell, key=lambda placement: placement.count).process
    own = [process for process in program.processes if process.pid == pid] or program.processes
    made = sorted({device.name for process in own for device in process.devices})
    asked = ", ".join(dict.fromkeys(placement.asked for placement in fell))
    ran = ", ".join(dict.fromkeys(placement.device for placement in fell))
    gpus = [name for name in made if name.startswith("GPU")]
    first = _first([use for use in program.gpus if use.process == pid] or program.gpus, gpus)
    yield Match(
        evidence=(
            *(f"{line} ({count} times)" if count > 1 else line for line, count in lines.most_common(MOST)),
            f"TensorFlow made {', '.join(made)}",
        ),
        figures={
            "count": counted(sum(placement.count for placement in fell), "operation", ","),
            "asked": asked,
            "device": ran,
        },
        fix=(first, CAUSE.fix[1]),
    )


def _first(uses: Iterable[GpuUse], gpus: list[str]) -> Action:
    """Return the first action, which depends on whether there are GPUs, and on who hides them."""
    hidden = next((use for use in uses if use.is_hidden), None)
    if gpus and hidden is not None:
        these = ", ".join(gpus)
        return note(f"ask for {these}: visible GPUs are numbered from 0, and GPU {hidden.gpu} is {hidden.unused}")
    if gpus:
        return note(f"TensorFlow has {', '.join(gpus)} here: ask for one of these")
    if hidden is not None:
        return note(f"take out what hides every GPU: GPU {hidden.gpu} is {hidden.unused}")
    return ask("gpudiag why", "no GPU is listed")
