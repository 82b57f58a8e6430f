"""a GPU does not answer any more: it, its power or its connection has failed

A GPU that has fallen off the bus, or has an error that its memory cannot correct, is still counted. NVML says "GPU is
lost" or "Unknown Error", listing devices raises an exception, creating them ends in CUDA_ERROR_UNKNOWN, and one such
GPU keeps TensorFlow from all the others. The kernel log has an Xid that names the fault: 79 fallen off the bus, 48,
63, 64, 94 and 95 memory errors, 62 and 119 its firmware.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.devices import ChosenGpus
from gpudiag.causes.shared.gpu_state import KernelLog, addresses
from gpudiag.causes.shared.steps import FirstFailed, devices_log
from gpudiag.causes.shared.variables import Errors
from gpudiag.fix import Kind, Role, check, note, reset_gpu
from gpudiag.knowledge.log_lines import Log, text
from gpudiag.knowledge.messages.way import CUDA_UNKNOWN, GPU_FAILED
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.missing import lost_gpus

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
_LOST = re.compile("lost|Unknown Error|reset|fallen")
_WHERE_IT_SHOWS = (Stage.DRIVER, Stage.NVML, Stage.DEVICE_COUNT, Stage.DEVICE_FILTER, Stage.CONTEXT, Stage.FIRST_OP)


def find(gpus: ChosenGpus, errors: Errors, program: Program, broken: FirstFailed | None, kernel: KernelLog) -> Matches:
    lost = {index: why for index, why in lost_gpus(gpus.facts).items() if _LOST.search(why)}
    failed = [finding.message for finding in gpus.rows.found("discovery.logical_devices", "product_failed")]
    raised = [error.text for error in errors if error.stage is not Stage.PACKAGE] + failed
    said = Log((*raised, *map(text, devices_log(gpus.rows)), *program.lines))
    words = list(dict.fromkeys(event.line for event in said.all(GPU_FAILED, CUDA_UNKNOWN)))
    if not lost and not words:
        return
    broken_at = None if broken is None else broken.stage
    failing = gpus.failing if raised and not lost else []
    indices: list[int | str] = [*lost, *(gpu.index for gpu in failing)]
    unusable = [gpu for gpu in gpus.gpus if str(gpu.index) in map(str, indices)]
    other = gpus.without(unusable) if indices else None
    does = "does not answer" if lost else "fails when it is used"
    named = bool(lost) or said.first(GPU_FAILED) is not None
    reason = kernel.reason([gpu.pci_bus_id for gpu in unusable])
    certain = reason is not None and reason.confidence is Confidence.LIKELY
    yield Match(
        evidence=(
            *(f"NVML: GPU {index}: {why}" for index, why in lost.items()),
            *words[:1],
            *kernel.last("Xid", "fallen off the bus", "RmInitAdapter"),
        ),
        confidence=Confidence.PROVED if lost else Confidence.LIKELY if named else Confidence.POSSIBLE,
        figures={
            "who": f"GPU {' and '.join(map(str, indices))} {does}" if indices else f"a GPU {does}",
            "what": "it, its power or its connection has failed"
            if named
            else "CUDA has no name for the error, and a GPU, power or connection that has failed is the first suspect",
        },
        fix=(
            note(reason.meaning) if certain and reason else CAUSE.fix[0],
            other,
            *(reason.fix if certain and reason else (gpus.reset(indices), CAUSE.fix[3])),
        ),
        tried=other,
        gpus=addresses(failing),
        stage=broken_at if broken_at in _WHERE_IT_SHOWS else Stage.CONFIGURATION,
    )
