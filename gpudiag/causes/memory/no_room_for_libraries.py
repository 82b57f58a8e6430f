"""a library of NVIDIA's could not start on the GPU, most likely because TensorFlow left no memory for it

cuBLAS and cuDNN take their own memory for their handles and workspaces, outside TensorFlow's pool. If the pool
of this or another process holds all, they answer CUBLAS_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_ALLOC_FAILED or
CUDNN_STATUS_INTERNAL_ERROR, which read like a broken installation. If the log also says that the cuDNN loaded is
older than the one TensorFlow was built with, that is the cause and not this.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program, Rows
from gpudiag.causes.shared.holding import Holders, instead
from gpudiag.causes.shared.memory import (
    GROW,
    GROW_BY_VARIABLE,
    MOST_IS_FREE,
    checked,
    devices_in_scope,
    free_share,
    holders,
    shared_otherwise,
    tight,
)
from gpudiag.fix import edit, note, nvidia_smi
from gpudiag.knowledge.log_lines import text
from gpudiag.knowledge.messages.code import CUDNN_OLDER, STRAY_ACCESS
from gpudiag.knowledge.messages.memory import DEVICE_FULL, NO_HANDLE, POOL_FULL
from gpudiag.knowledge.messages.way import CUDA_UNKNOWN, DEVICE_CREATED, GPU_FAILED
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts

CAUSE = Cause(
    fix=(
        GROW,
        GROW_BY_VARIABLE,
        note("or leave room:"),
        edit(
            "tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=...)])"
        ),
        nvidia_smi("shows what else holds the memory: end it"),
    ),
    url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
)
_OTHER_REASONS = (CUDNN_OLDER, STRAY_ACCESS, GPU_FAILED, CUDA_UNKNOWN)
"""Messages that name another reason why a library does not start."""


def find(facts: Facts, program: Program, rows: Rows) -> Matches:
    taken = tight(facts)
    # gpudiag's own probes leave room on a GPU that has some: memory is the reason only if it has none.
    here = checked(rows, NO_HANDLE)
    said = program.said(NO_HANDLE) or here
    if not said or (here and not taken) or shared_otherwise(program) or program.first(*_OTHER_REASONS):
        return
    if (free_share(program) or 0) > MOST_IS_FREE:
        return
    full = program.said(DEVICE_FULL, most=1) or program.said(POOL_FULL, most=1)
    totals = {device.pci_bus_id: device.memory_total_bytes for device in devices_in_scope(facts)}
    whole = tuple(
        text(made.line)
        for made in program.all(DEVICE_CREATED)
        if (int(made["mib"]) << 20) > 0.75 * totals.get(made["pci"].lower(), int(made["mib"]) << 21)
    )
    shown = (*full, *map(holders, taken), *whole[:1])
    held = Holders.of(facts, taken, instead(facts, taken, "or use another GPU")).fix() if taken else CAUSE.fix[4:]
    yield Match(
        evidence=(*said, *shown),
        confidence=Confidence.LIKELY if shown else Confidence.POSSIBLE,
        fix=(*CAUSE.fix[:4], *held),
    )
