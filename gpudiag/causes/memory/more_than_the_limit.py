"""the program holds more GPU memory than it lets TensorFlow take: a part is outside TensorFlow's limit

memory_limit and per_process_gpu_memory_fraction bound TensorFlow's pool of tensors. The CUDA context, the code of
kernels, and what cuBLAS and cuDNN take are outside it: some hundred MiB for each process and GPU, which nvidia-smi
counts. Limits that add up to the whole memory do not leave room for it.
"""

from __future__ import annotations

from collections import defaultdict

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.memory import devices_in_scope
from gpudiag.fix import edit_note
from gpudiag.knowledge.messages.way import DEVICE_CREATED
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts

CAUSE = Cause(
    title="the program limits TensorFlow to {limit} MiB and holds {used} MiB: {over} MiB are outside the limit",
    fix=(edit_note("count {over} MiB beside each limit: memory of the GPU / programs - {over} MiB"),),
    url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
)


def find(facts: Facts, program: Program) -> Matches:
    made: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for found in program.all(DEVICE_CREATED):
        if found["thread"]:
            made[found["pci"].lower(), found["thread"]][found["number"]] = int(found["mib"]) << 20
    for device in devices_in_scope(facts):
        for process in device.processes:
            limit = sum(made.get((device.pci_bus_id, str(process.pid)), {}).values())
            if not 0 < limit < min(process.used_bytes or 0, device.memory_total_bytes / 2):
                continue
            over = (process.used_bytes or 0) - limit
            yield Match(
                evidence=(
                    *program.said(DEVICE_CREATED),
                    f"GPU {device.index}: process {process.pid} holds {(process.used_bytes or 0) >> 20} MiB",
                ),
                confidence=Confidence.LIKELY,
                figures={"limit": limit >> 20, "used": (process.used_bytes or 0) >> 20, "over": over >> 20},
            )
            return
