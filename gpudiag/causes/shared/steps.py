"""The trace: how each stage of TensorFlow's way to a GPU went on this machine.

The stages are those of TensorFlow 2.18-2.21 (``cuda_platform.cc``, ``gpu_device.cc``: GetValidDeviceIds): what it says
at each of them was measured, see ``discovery.trace``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpudiag.cause import TRACE, Evidence, Listing, Rows
from gpudiag.causes.shared.packages import ends_the_process
from gpudiag.knowledge.log_lines import Log, text
from gpudiag.knowledge.messages.memory import DEVICE_FULL, POOL_FULL
from gpudiag.knowledge.messages.misleading import NO_CUDA_DRIVERS
from gpudiag.knowledge.messages.way import CUINIT_FAILED, GPU_IGNORED, GPU_NOT_COUNTED
from gpudiag.knowledge.placement import created_devices
from gpudiag.model.diagnosis import Stage, Step, StepStatus
from gpudiag.model.facts import Unknown
from gpudiag.model.report import Broken, Interrupted, Judged, Row, Severity
from gpudiag.model.visibility import least_visible
from gpudiag.probes.host import tensorflow as host_tensorflow

RUNTIME = "libcudart.so.12"
DRIVER = "libcuda.so.1"
NVML = "libnvidia-ml.so.1"

OK, FAILED, NOT_REACHED, NOT_KNOWN = StepStatus

_OPTIONAL = ("libnccl", "libcupti")
"""Opened only when they are used; without them GPUs are listed and work (measured, 2.21)."""

Answer = tuple[StepStatus, str]


def trace(evidence: Evidence) -> tuple[Step, ...]:
    """Return a step for every stage; after the first that failed none is reached."""
    steps: list[Step] = []
    failed = False
    for stage, look in _LOOKS.items():
        status, words = (NOT_REACHED, "") if failed else look(evidence)
        failed = failed or status is FAILED
        steps.append(Step(stage, status, " ".join(words.split())))
    return tuple(steps)


class FirstFailed(Step):
    """The step of the trace that failed; none after it is reached."""

    @classmethod
    def of(cls, evidence: Evidence) -> FirstFailed | None:
        return next(
            (cls(step.stage, step.status, step.evidence) for step in trace(evidence) if step.status is FAILED),
            None,
        )


def cuinit_error(listing: Listing) -> str:
    """Return the driver's words if ``cuInit`` failed; "" if it did not, or nobody asked."""
    failed = listing.first(CUINIT_FAILED)
    return failed["error"] if failed is not None else ""


def hung(evidence: Evidence, *, of_gpus: bool) -> str:
    """Return which first call of the driver never came back, on a GPU or before any; "" if none is known."""
    calls = evidence.facts.calls
    known = () if isinstance(calls, Unknown) else [call for call in calls.hung if call.of_driver]
    found = [call for call in known if bool(call.gpu or call.probe) is of_gpus]
    return "; ".join(f"{call.name} did not return within {call.waited_s:.0f} s" for call in found)


class CuInitFailed(str):
    """The driver's words if ``cuInit`` failed."""

    __slots__ = ()

    @classmethod
    def of(cls, evidence: Evidence) -> CuInitFailed | None:
        return cls(cuinit_error(evidence.listing)) or None


def context_error(rows: Rows) -> str:
    """Return TensorFlow's words if it could not create its devices; "" if it could, or nobody asked."""
    status, words = _devices_row(rows, "creation_failed")
    return words if status is FAILED else ""


def _package(evidence: Evidence) -> Answer:
    facts = evidence.facts.tensorflow
    if isinstance(facts, Unknown):
        return NOT_KNOWN, facts.reason
    if facts.module_path is None:
        return FAILED, "no module tensorflow can be imported"
    if path := host_tensorflow.shadowing(facts):
        return (
            FAILED,
            f"{path} is imported as tensorflow, and is not TensorFlow ({host_tensorflow.hidden(facts)})",
        )
    for row in evidence.rows:
        if row.probe == TRACE and isinstance(row.outcome, Interrupted):
            return NOT_KNOWN, row.outcome.detail
        if row.probe == TRACE and isinstance(row.outcome, Broken):
            if row.crash is None:
                return NOT_KNOWN, row.outcome.detail
            if ends_the_process(evidence.facts, row.outcome.detail) is not None:
                return OK, facts.module_path
            return FAILED, f"import tensorflow: {row.outcome.cause.value}: {row.outcome.detail}"
    return OK, facts.module_path


def _build(evidence: Evidence) -> Answer:
    facts = evidence.facts.tensorflow
    build = None if isinstance(facts, Unknown) else facts.build
    if build is None:
        return NOT_KNOWN, "its build description cannot be read"
    if not build.cuda:
        return FAILED, "is_cuda_build is False"
    return OK, f"CUDA {build.cuda_version}, cuDNN {build.cudnn_version}"


def _library(name: str) -> Callable[[Evidence], Answer]:
    def look(evidence: Evidence) -> Answer:
        seen = evidence.trace
        if seen is None:
            return _crash(evidence, name)
        if name in seen.unopened:
            return FAILED, f"{name}: {seen.unopened[name]}"
        if name == RUNTIME and evidence.listing.first(NO_CUDA_DRIVERS):
            return FAILED, f'{RUNTIME} cannot be opened: "Could not find cuda drivers" means that'
        return (OK, name) if name in seen.opened else (NOT_KNOWN, f"{name} was not tried")

    return look


def _driver(evidence: Evidence) -> Answer:
    if never := hung(evidence, of_gpus=False):
        return FAILED, never
    if evidence.trace is None:
        return NOT_KNOWN, ""
    error = cuinit_error(evidence.listing)
    return (FAILED, error) if error else (OK, "")


def _nvml(evidence: Evidence) -> Answer:
    status, words = _library(NVML)(evidence)
    facts = evidence.facts.nvml
    listed = 0 if evidence.trace is None else evidence.trace.listed
    if status is OK and not listed and not isinstance(facts, Unknown) and facts.error and not facts.devices:
        return FAILED, facts.error
    if status is not OK and listed:
        return OK, f"{words}; this release of TensorFlow does without"  # measured: 2.18-2.20 never open it
    return status, words


def _device_count(evidence: Evidence) -> Answer:
    seen = evidence.trace
    if seen is None:
        return NOT_KNOWN, ""
    failed = evidence.listing.first(GPU_NOT_COUNTED)
    return (FAILED, failed.text) if failed is not None else (OK, "")


def _crash(evidence: Evidence, *names: str) -> Answer:
    """Return the library that ended the trace: opening it ends a process by that signal. No names: any."""
    words = " ".join(row.crash.detail for row in evidence.rows if row.probe == TRACE and row.crash is not None)
    library = ends_the_process(evidence.facts, words)
    if library is None or (names and library.soname not in names):
        return NOT_KNOWN, ""
    return FAILED, f"{library.path or library.soname} ends the process with {library.crash} when it is opened"


def _libraries(evidence: Evidence) -> Answer:
    seen = evidence.trace
    if seen is None:
        return _crash(evidence)
    missing = {name: why for name, why in seen.unopened.items() if not name.startswith((*_OPTIONAL, NVML, DRIVER))}
    if missing:
        return FAILED, "; ".join(f"{name}: {why}" for name, why in missing.items())
    return OK, ", ".join(seen.opened)


def _device_filter(evidence: Evidence) -> Answer:
    seen = evidence.trace
    if seen is None:
        return NOT_KNOWN, ""
    ignored = [event.text for event in evidence.listing.all(GPU_IGNORED)]
    if seen.raised is not None:
        return FAILED, seen.raised.brief
    given = least_visible(evidence.facts)
    if seen.listed == 0 or seen.listed < given:
        return FAILED, "; ".join([f"{seen.listed} of {given} GPUs in scope are listed", *ignored])
    return OK, "; ".join([f"{seen.listed} listed", *ignored])


def devices_log(rows: tuple[Row, ...]) -> tuple[str, ...]:
    """Return the log of the child that was to create TensorFlow's devices and use them, if it could not."""
    failed = [row for row in rows if row.probe == "discovery.logical_devices"]
    return tuple(line for row in failed if row.status in ("fail", "broken") for line in row.log)


def _devices_row(rows: Iterable[Row], *kinds: str) -> Answer:
    """Look whether ``discovery.logical_devices`` made a finding of one of these kinds."""
    for row in rows:
        if row.probe != "discovery.logical_devices":
            continue
        if isinstance(row.outcome, Broken):
            status = NOT_KNOWN if row.crash is None else FAILED
            return status, f"{row.outcome.cause.value}: {row.outcome.detail}"
        for found in row.findings:
            if found.kind in kinds:
                return FAILED, found.message
        if isinstance(row.outcome, Judged):
            return OK, row.outcome.figure
    return NOT_KNOWN, ""


_CREATED = ("creation_failed", "gpu_not_seen", "process_ended")


def _context(evidence: Evidence) -> Answer:
    if never := hung(evidence, of_gpus=True):
        return FAILED, never
    if _out_of_memory(evidence):
        return NOT_KNOWN, "no memory for one"
    rows = [row for row in evidence.rows if row.probe == "discovery.logical_devices"]
    # A process that ended after it had made every device was computing.
    created = any(len(created_devices(row.log)) >= len(row.devices) > 0 for row in rows)
    return _devices_row(rows, *_CREATED[: 2 if created else 3])


def _out_of_memory(evidence: Evidence) -> str:
    """Return TensorFlow's words where the devices could not be created or used for lack of memory, or ""."""
    status, words = _devices_row(evidence.rows, *_CREATED, "product_failed")
    log = [line for row in evidence.rows if row.probe == "discovery.logical_devices" for line in row.log]
    full = Log((words, *log)).first(DEVICE_FULL, POOL_FULL)
    return full.line if full is not None and status is FAILED else ""


def _memory(evidence: Evidence) -> Answer:
    if words := _out_of_memory(evidence):
        return FAILED, text(words)
    # Of discovery alone: probes of memory exceed limits on purpose, so what they log is not evidence.
    failed = [row for row in evidence.rows if row.area == "discovery" and row.status in ("fail", "broken")]
    exhausted = [row.probe for row in failed if any("RESOURCE_EXHAUSTED" in line for line in row.log)]
    if exhausted:
        return FAILED, f"{exhausted[0]}: out of device memory"
    return OK, ""


def _first_op(evidence: Evidence) -> Answer:
    """Look at the first product, and at what the libraries computed."""
    kinds = ("product_failed", "wrong_result", "other_gpu", "operation_failed", "process_ended")
    first = _devices_row(evidence.rows, *kinds)
    if first[0] is FAILED:
        return first
    of_libraries = (found for row in evidence.rows if row.area == "libraries" for found in row.findings)
    computed = (found for found in of_libraries if found.kind != "keras_not_imported")
    failed = next((found for found in computed if found.severity is Severity.FAIL), None)
    return first if failed is None else (FAILED, failed.message)


_LOOKS: dict[Stage, Callable[[Evidence], Answer]] = {
    Stage.PACKAGE: _package,
    Stage.BUILD: _build,
    Stage.RUNTIME_LIBRARY: _library(RUNTIME),
    Stage.DRIVER_LIBRARY: _library(DRIVER),
    Stage.DRIVER: _driver,
    Stage.NVML: _nvml,
    Stage.DEVICE_COUNT: _device_count,
    Stage.LIBRARIES: _libraries,
    Stage.DEVICE_FILTER: _device_filter,
    Stage.CONTEXT: _context,
    Stage.MEMORY: _memory,
    Stage.FIRST_OP: _first_op,
}
