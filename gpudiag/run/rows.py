"""Makes the row of a probe from its child's measurement, from how the child ended, or from why none was started."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gpudiag.knowledge import log_lines
from gpudiag.knowledge.codes import code_in
from gpudiag.knowledge.placement import parse_placements
from gpudiag.model.facts import Facts, Unknown
from gpudiag.model.report import AnyOutcome, Broken, Gpu, Interrupted, Limits, NoReading, Row, Skipped
from gpudiag.probe import CONTEXT_BYTES, EndedReading, GpuReading, LoadReading, Measurement, Scope
from gpudiag.probes.comparison import last_announced
from gpudiag.run import judgement
from gpudiag.run.gpu_watch import is_hang
from gpudiag.run.options import Options
from gpudiag.run.plan import (
    CHILD_BYTES,
    Task,
    bytes_needed,
    lack_of_figures,
    lack_of_gpus,
    lack_of_known_memory,
    lack_of_linux,
    lack_of_memory,
    lack_of_peace,
    lack_of_real_gpus,
    lack_of_version,
    uuids_of,
)
from gpudiag.run.probe_run import EndedProbe

KEPT_LINES = 40
KEPT_OTHERS = 20
"""Lines of a log that are kept besides its last ones: this many errors, and this many lines with known messages."""
KEPT_CHARACTERS = 500
_MOST_CUT = 3
"""Last lines of a flood that may be cut, or be gpudiag's own."""


def not_started(task: Task, outcome: AnyOutcome) -> Row:
    """Return the row of a task for which no child was started."""
    return Row(task.entry.name, uuids_of(task), outcome, 0.0)


def row_without_child(task: Task, facts: Facts, gpus: tuple[Gpu, ...], options: Options) -> Row | None:
    """Return the row of a task that is skipped or that judges only facts; None if a child must measure."""
    entry = task.entry
    if entry.reading is None:
        return judgement.judged(not_started(task, Skipped("")), entry, facts, options.limits)
    lack = lack_of_linux() or _lack_of_tensorflow(task, facts)
    if not lack and (len(task.gpus) < entry.probe.needs.gpus or (entry.probe.scope is not Scope.HOST and not gpus)):
        lack = lack_of_gpus(entry.probe.needs.gpus, facts, gpus)
    lack = lack or _lack_on_gpus(task, facts, disturb=options.disturb)
    return not_started(task, Skipped(lack)) if lack else None


def _lack_of_tensorflow(task: Task, facts: Facts) -> str:
    """Return why TensorFlow cannot be asked; "" if it can be, or if the probe does not need it."""
    if not task.entry.probe.needs.tensorflow:
        return ""
    if not isinstance(facts.calls, Unknown) and facts.calls.driver_hangs:
        hung = facts.calls.hung[0]
        return f"the driver hangs: {hung.name} did not return within {hung.waited_s:.0f} s"
    if not isinstance(facts.tensorflow, Unknown) and facts.tensorflow.module_path is None:
        return "TensorFlow is not installed"
    return ""


def _lack_on_gpus(task: Task, facts: Facts, *, disturb: bool) -> str:
    """Return what a probe lacks on its GPUs; "" if it lacks nothing."""
    probe = task.entry.probe
    return (
        lack_of_real_gpus(probe.needs.real_gpus, task.gpus)
        or lack_of_version(probe.needs.versions, facts)
        or (lack_of_figures(task.gpus, facts) if probe.exclusive else "")
        or lack_of_memory(bytes_needed(task.entry), task.gpus, facts)
        or lack_of_known_memory(probe.needs.known_memory, task.gpus)
        or (lack_of_peace(task.gpus, facts) if probe.exclusive and not disturb else "")
    )


def row_of_run(task: Task, ended: EndedProbe, run_began: float, facts: Facts, limits: Limits) -> Row:
    """Return the row of a probe whose processes have ended; ``run_began`` is a time of ``time.monotonic()``."""
    result = ended.result
    lines = [*result.stdout.splitlines(), *result.stderr.splitlines()]
    row = Row(
        probe=task.entry.name,
        devices=uuids_of(task),
        outcome=Skipped(""),
        duration_s=round(result.duration_s, 3),
        began_s=round(max(0.0, time.monotonic() - run_began - result.duration_s), 3),
        placements=parse_placements(lines),
        log=log_lines.of_a_child(lines, KEPT_LINES, KEPT_OTHERS, KEPT_CHARACTERS),
    )
    noted = {} if ended.load is None else ended.load.noted(run_began)
    if result.value is not None:
        row = _with_measurement(row, task, result.value, noted)
        return row if row.reading is None else judgement.judged(row, task.entry, facts, limits)
    assert result.cause is not None
    if noted.get("slices"):  # what was measured until then counts
        kind = task.entry.reading
        assert kind is not None
        given, end = tuple(gpu.pci_bus_id for gpu in task.gpus), Broken(result.cause, result.detail)
        row = msgspec.structs.replace(row, reading=kind(given=given, seen=len(given), ended=end, **noted))
        return judgement.judged(row, task.entry, facts, limits)
    if result.cause is NoReading.INTERRUPTED:
        return msgspec.structs.replace(row, outcome=Interrupted(result.detail))
    if reason := _skipped_because(task, ended, result.cause, facts):
        return msgspec.structs.replace(row, outcome=Skipped(reason))
    if (reading := _reading_of_end(task, ended, lines)) is None:
        return msgspec.structs.replace(row, outcome=Broken(result.cause, result.detail))
    return judgement.judged(msgspec.structs.replace(row, reading=reading), task.entry, facts, limits)


def _with_measurement(row: Row, task: Task, value: bytes, noted: Mapping[str, Any]) -> Row:
    """Return ``row`` with the child's measurement decoded, and what it has ``noted``; broken if it is malformed."""
    assert task.entry.reading is not None
    try:
        measurement = msgspec.json.decode(value, type=Measurement)
        kind = task.entry.reading if measurement.complete else GpuReading
        reading = msgspec.json.decode(measurement.reading, type=kind)
    except msgspec.ValidationError as error:
        return msgspec.structs.replace(row, outcome=Broken(NoReading.BAD_RESULT, f"its reading is malformed: {error}"))
    if isinstance(reading, LoadReading):
        reading = msgspec.structs.replace(reading, **noted)
    return msgspec.structs.replace(row, reading=reading, timelines=measurement.timelines)


def _skipped_because(task: Task, ended: EndedProbe, cause: NoReading, facts: Facts) -> str:
    """Return why a probe that measured nothing is skipped; "" if it is not skipped."""
    if cause is NoReading.NOT_SIMULATED:
        return ended.result.detail
    if cause is NoReading.NO_MEMORY and (lack := lack_of_memory(CONTEXT_BYTES + CHILD_BYTES, task.gpus, facts)):
        return lack
    if ended.stuck is not None:
        return "" if ended.stuck.is_own else ended.stuck.why
    if is_hang(ended.result) and (slow := ended.slow_call) is not None:
        return f"{slow.name} takes {slow.seconds:.0f} s, each time: {ended.result.detail}"
    return ""


def _reading_of_end(task: Task, ended: EndedProbe, lines: Iterable[str]) -> EndedReading | None:
    """Return a reading if the way a probe ended shows a fault of its GPUs: an operation that failed or never returned;
    else None."""
    if not task.gpus:
        return None
    lines, raised, end = tuple(lines), "", ""
    if issubclass(task.entry.reading or object, GpuReading):
        raised = _what_hangs(ended, last_announced(lines))
    hung = bool(raised)
    if ended.result.cause is NoReading.OPERATION_FAILED and not hung:
        raised = ended.result.detail
    if ended.result.cause is NoReading.SIGNAL and not hung:
        raised, end = _last_error_of_gpu(lines), ended.result.detail
    if ended.result.cause is NoReading.OUTPUT_FLOOD and not hung:
        raised, end = _error_without_end(lines), ended.result.detail
    if not raised:
        return None
    pci_bus_ids = tuple(gpu.pci_bus_id for gpu in task.gpus)
    return EndedReading(given=pci_bus_ids, seen=len(pci_bus_ids), operation_raised=raised, hung=hung, process_end=end)


def _last_error_of_gpu(lines: Sequence[str]) -> str:
    """Return TensorFlow's last error if it comes from the driver or a library; otherwise ""."""
    errors = [line for line in lines if log_lines.is_error(line)]
    return log_lines.text(errors[-1]) if errors and code_in(errors[-1]) else ""


def _error_without_end(lines: Sequence[str]) -> str:
    """Return the first line with the error of the driver or a library that a flood repeats; "" if it repeats none."""
    last = next(filter(None, map(code_in, reversed(lines[-_MOST_CUT:]))), None)
    first = next((event for event in map(code_in, lines) if last and event and event.message is last.message), None)
    return log_lines.text(first.line) if first else ""


def _what_hangs(ended: EndedProbe, announced: str) -> str:
    """Return which of the ``announced`` computations never returned; "" if unknown."""
    hung = announced if is_hang(ended.result) else ""
    if ended.stuck is not None:
        return f"{hung}: {ended.stuck.why}" if hung else ended.stuck.why
    return f"{hung} did not return within {ended.result.duration_s:.0f} s" if hung else ""
