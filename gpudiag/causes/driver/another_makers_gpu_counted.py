"""the program counts the GPUs of other makers too, but CUDA and TensorFlow count only NVIDIA's

Windows's Task Manager, desktops and system monitors number all display adapters, and often show the integrated GPU as 0
and NVIDIA's as 1. CUDA_VISIBLE_DEVICES and TensorFlow's /GPU:0 count NVIDIA's GPUs alone. TensorFlow never uses an
integrated GPU of Intel or AMD: if that one seems busy, it draws the screen, and TensorFlow runs on the CPU.
"""

from __future__ import annotations

from typing import Any

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.devices import MASK
from gpudiag.fix import edit, export
from gpudiag.knowledge.messages.placement import DEVICE_NOT_SATISFIED, DEVICE_UNKNOWN
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.facts import Facts, Unknown
from gpudiag.model.visibility import apply_mask
from gpudiag.text import counted

CAUSE = Cause(
    title="{asked} counts the GPUs of {makers} too, but CUDA and TensorFlow count only NVIDIA's, from 0 to {last}",
    fix=(
        export("CUDA_VISIBLE_DEVICES", "0"),
        edit(
            "tf.config.experimental.get_device_details(tf.config.list_physical_devices('GPU')[0])",
            "shows the GPU's name",
        ),
    ),
    url="https://www.tensorflow.org/guide/gpu",
    views=("host.environment.all_hidden",),
)


def find(facts: Facts, program: Program) -> Matches:
    nodes, devices = facts.device_nodes, facts.nvml_devices
    if isinstance(nodes, Unknown) or not devices or not nodes.other_gpus:
        return
    mask = facts.variables.get(MASK)
    taken = range(len(devices), len(devices) + len(nodes.other_gpus))
    makers = " and ".join(sorted(set(nodes.other_gpus.values())))
    others = tuple(f"PCI bus: {maker} GPU {pci}" for pci, maker in nodes.other_gpus.items())
    number = counted(len(devices), "GPU")
    figures: dict[str, Any] = {"makers": makers, "gpus": len(devices), "last": len(devices) - 1}
    if mask is not None and mask.strip().isdecimal() and int(mask) in taken and not apply_mask(mask, devices).devices:
        last = export(MASK, str(len(devices) - 1))
        yield Match(
            evidence=(f"{MASK}={mask}", *others, f"NVML reports {number}, which CUDA counts from 0"),
            figures={**figures, "asked": f"{MASK}={mask}"},
            fix=(last, CAUSE.fix[1]),
            tried=last,
        )
    elif mask is None:
        for asked in program.all(DEVICE_UNKNOWN, DEVICE_NOT_SATISFIED):
            index = asked["number"]
            if int(index) in taken:
                yield Match(
                    evidence=(
                        asked.text,
                        *others,
                        f"NVML reports {number}, which TensorFlow counts from 0",
                    ),
                    confidence=Confidence.LIKELY,
                    figures={**figures, "asked": f"/GPU:{index}"},
                    fix=(edit(f"with tf.device('/GPU:{len(devices) - 1}'):"), CAUSE.fix[1]),
                    stage=Stage.CONFIGURATION,
                )
                return
