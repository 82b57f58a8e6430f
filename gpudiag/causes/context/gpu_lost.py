"""a GPU does not answer any more: it, its power or its connection has failed

A GPU that has fallen off the bus, or has an error that its memory cannot correct, is still counted. NVML says "GPU is
lost" or "Unknown Error", listing devices raises an exception, creating them ends in CUDA_ERROR_UNKNOWN, and one such
GPU keeps TensorFlow from all the others. The kernel log has an Xid that names the fault: 79 fallen off the bus, 48,
63, 64, 94 and 95 memory errors, 62 and 119 its firmware.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpudiag.cause import Cause, Fix, Match, Matches, Program
from gpudiag.causes.shared.devices import ChosenGpus
from gpudiag.causes.shared.gpu_state import AFTER_SLEEP, KernelLog, KernelReason, addresses
from gpudiag.causes.shared.last_resort import code_in_row
from gpudiag.causes.shared.steps import FirstFailed, devices_log
from gpudiag.causes.shared.variables import Errors
from gpudiag.fix import Action, Kind, Role, check, note, reset_gpu
from gpudiag.knowledge.log_lines import Log, text
from gpudiag.knowledge.message import Message
from gpudiag.knowledge.messages.way import CUDA_UNKNOWN, GPU_FAILED
from gpudiag.knowledge.messages.xid import RECOVERIES, XIDS
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.facts import Facts, Unknown
from gpudiag.model.missing import lost_gpus
from gpudiag.model.visibility import gpus_in_scope

CAUSE = Cause(
    title="{who}: {what}",
    unfit=True,
    fix=(
        check("sudo dmesg | grep -i xid", "shows which fault it is"),
        note("there is no other GPU to choose here"),
        reset_gpu("0", "or reboot: if its hardware or firmware has failed", role=Role.ALTERNATIVE),
        note("if a reset does not help: switch the machine off and on, then look at power and slot", kind=Kind.REBOOT),
    ),
    url="https://docs.nvidia.com/deploy/xid-errors/index.html",
    unless={
        "cuinit_says_unknown": "CUDA fails before any GPU is asked",
        "uvm_missing": "CUDA fails for want of nvidia_uvm; the GPU is there",
        "library_without_devices": "the container was given no device file; the GPU is there",
    },
    views=("host.driver.nvml_failed",),
)
_LOST = ("lost", "Unknown Error", "reset", "fallen")
_BEFORE_ANY_GPU = (Stage.DRIVER, Stage.NVML, Stage.DEVICE_COUNT)
_WHERE_IT_SHOWS = (Stage.DRIVER, Stage.NVML, Stage.DEVICE_COUNT, Stage.DEVICE_FILTER, Stage.CONTEXT, Stage.FIRST_OP)


def find(gpus: ChosenGpus, errors: Errors, program: Program, broken: FirstFailed | None, kernel: KernelLog) -> Matches:
    lost = {index: why for index, why in lost_gpus(gpus.facts).items() if any(words in why for words in _LOST)}
    failed = [finding.message for finding in gpus.rows.found("discovery.logical_devices", "product_failed")]
    raised = [error.text for error in errors if error.stage is not Stage.PACKAGE] + failed
    said = Log((*raised, *map(text, devices_log(gpus.rows)), *program.lines))
    words = list(dict.fromkeys(event.line for event in said.all(GPU_FAILED, CUDA_UNKNOWN)))
    broken_at = None if broken is None else broken.stage
    failing = gpus.failing if (raised or gpus.ended_under_load) and not lost else []
    lost_addresses = [gpu.pci_bus_id for gpu in gpus.gpus if gpu.index in lost]
    # Asked about no GPU, the log answers for any: a line about a GPU that is hidden here says nothing of these.
    here = addresses(gpus.gpus) or addresses(gpus_in_scope(gpus.facts)) or _on_bus(gpus.facts)
    reason = kernel.reason(lost_addresses or addresses(failing) or here)
    if reason is not None and not reason.is_likely:
        reason = None
    counted = isinstance(gpus.facts.nvml, Unknown) or bool(gpus.facts.nvml_devices)  # else the driver started none
    stopped = counted and broken_at in _BEFORE_ANY_GPU and reason is not None and bool(reason.gpus)
    if not lost and not words and not stopped and not (reason and _failed_on(reason, gpus)):
        return
    named = bool(lost) or said.first(GPU_FAILED) is not None
    slept = () if named or reason else kernel.slept
    if broken_at is Stage.DRIVER and not (named or reason or program.first(CUDA_UNKNOWN)):
        return  # no GPU was asked: nothing shows that one of them fails
    if reason and not lost and not failing:
        failing = [gpu for gpu in gpus.gpus if gpu.pci_bus_id in reason.gpus]
    indices: list[int | str] = [*lost, *(gpu.index for gpu in failing)]
    if reason and not indices:
        indices = [device.index for device in gpus.facts.nvml_devices if device.pci_bus_id in reason.gpus]
    unusable = [gpu for gpu in gpus.gpus if str(gpu.index) in map(str, indices)]
    other = gpus.without(unusable) if indices and gpus.gpus else None
    at = f"GPU {', '.join(reason.gpus)}" if reason and reason.gpus else "a GPU"
    who = f"GPU {' and '.join(map(str, indices))}" if indices else at
    is_likely = bool(named or reason or slept)
    does = "does not answer" if lost else "fails when it is used"
    stated = None if gpus.gpus else _stated(program, XIDS)
    required = None if gpus.gpus else _stated(program, RECOVERIES)
    otherwise: Fix = (CAUSE.fix[0], other, gpus.reset(indices), CAUSE.fix[3])
    if named and not lost and not gpus.gpus:  # a log alone: no GPU can be chosen, and dmesg is what it may be
        otherwise = (CAUSE.fix[3], CAUSE.fix[0])
    yield Match(
        evidence=(
            *(f"NVML: GPU {index}: {why}" for index, why in lost.items()),
            *(
                f"NVML: GPU {gpu.index}: {device.state.uncorrected_errors} errors of its memory that were not corrected"
                for gpu, device in gpus.by_nvml
                if device.state.uncorrected_errors and (gpu in failing or gpu.index in lost)
            ),
            *words[:1],
            *(reason.lines if reason else kernel.last("Xid", "fallen off the bus", "RmInitAdapter", gpus=here)),
            *slept,
        ),
        confidence=Confidence.PROVED if lost else Confidence.LIKELY if is_likely else Confidence.POSSIBLE,
        figures={
            "who": f"the kernel's log names a fault of {who}" if reason and not lost else f"{who} {does}",
            "what": _what(reason or stated, words if named else None, has_slept=bool(slept)),
        },
        fix=_fix(reason or required or stated, other, AFTER_SLEEP if slept else otherwise),
        tried=None if slept else other,
        gpus=addresses(failing),
        stage=broken_at if broken_at in _WHERE_IT_SHOWS else Stage.CONFIGURATION,
    )


def _stated(program: Program, messages: Iterable[Message]) -> KernelReason | None:
    """Return what the program's own log has of the kernel's messages."""
    event = program.first(*messages)
    return KernelReason(event, (event.line,), Confidence.LIKELY) if event else None


def _on_bus(facts: Facts) -> tuple[str, ...]:
    return () if isinstance(facts.device_nodes, Unknown) else facts.device_nodes.pci_gpus


def _failed_on(reason: KernelReason, gpus: ChosenGpus) -> bool:
    """Return whether a probe met an error of NVIDIA's driver or libraries on a GPU that the kernel's line names."""
    named = {gpu.uuid for gpu in gpus.gpus if gpu.pci_bus_id in reason.gpus}
    return any(named & {*row.devices} and code_in_row(row) is not None for row in gpus.rows)


_OF_MEMORY = "its memory has errors that cannot be corrected (ECC)"


def _what(reason: KernelReason | None, words: Sequence[str] | None, *, has_slept: bool) -> str:
    """Return what has failed; ``words`` are those that name a GPU which failed, None if none do."""
    if reason is not None:
        return reason.meaning
    if words is not None:
        of_memory = any("ECC" in line for line in words)
        return _OF_MEMORY if of_memory else "it, its power or its connection has failed"
    if has_slept:
        return "this machine was suspended, which the module nvidia_uvm often does not survive"
    return "CUDA has no name for the error, and a GPU, power or connection that has failed is the first suspect"


def _fix(reason: KernelReason | None, other: Action | None, otherwise: Fix) -> Fix:
    """Return the fix that the kernel's line asks for, if there is one; another GPU that can be used comes first."""
    if reason is None:
        return otherwise
    return (other, *reason.fix) if other is not None and other.change else (*reason.fix, other)
