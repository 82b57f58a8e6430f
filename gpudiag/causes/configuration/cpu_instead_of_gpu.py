"""the program asked for a GPU, got the CPU, and went on

Soft placement is on in TensorFlow 2: an operation under tf.device('/GPU:0') runs on the CPU if there is no such GPU,
without a message. MirroredStrategy() without a GPU is one replica on the CPU. What users see is training that takes ten
times as long. Why there was no GPU is another cause, named before this one if it was found.
"""

from __future__ import annotations

from gpudiag.cause import Cause, LogAlone, Match, Matches, Program
from gpudiag.causes.shared.configuration import listed_here
from gpudiag.fix import ask, edit
from gpudiag.knowledge.log_lines import Log
from gpudiag.knowledge.messages.placement import (
    DEVICE_NOT_AVAILABLE,
    DEVICE_NOT_SATISFIED,
    MIRRORED_DEVICES,
    NON_GPU_REPLICAS,
)
from gpudiag.knowledge.placement import devices_of, has_gpu, parse_placements
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.report import Severity
from gpudiag.probes.discovery import trace

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=(
        edit(
            "assert tf.config.list_physical_devices('GPU'), 'TensorFlow lists no GPU'", "put it after import tensorflow"
        ),
        edit(
            "tf.config.set_soft_device_placement(False)", "makes an operation that cannot run on the GPU raise an error"
        ),
        ask("gpudiag check --require-gpus 1", "run it before the program: this step fails without a GPU"),
    ),
    url="https://www.tensorflow.org/guide/gpu#manual_device_placement",
    needs_gpu=False,
    symptom=True,
    unless={
        "program_without_gpu": "it says why there was no GPU",
    },
)
_WHY = ask("gpudiag check", "run it where the program ran: it says why TensorFlow lists no GPU there")
_HEAVY = ("BatchMatMulV2", "Conv2D", "Conv3D", "MatMul")
"""Operations that TensorFlow puts on a GPU wherever there is one."""


def find(program: Program, traced: trace.Reading | None, alone: LogAlone | None) -> Matches:
    without = (DEVICE_NOT_AVAILABLE, DEVICE_NOT_SATISFIED)
    found = [event for event in program.all(MIRRORED_DEVICES, *without) if "CPU" in event["devices"].upper()]
    found = [event for event in found if not has_gpu(event["devices"])]
    said = Log(event.line for event in program.events if event in found or event.message is NON_GPU_REPLICAS).said(
        MIRRORED_DEVICES, NON_GPU_REPLICAS, *without
    )
    placements = parse_placements(program.lines)
    ran = {op: devices for op in _HEAVY if (devices := devices_of(op, placements))}
    if not said and (not ran or any("CPU" not in device for devices in ran.values() for device in devices)):
        return
    yield Match(
        evidence=(
            *said,
            *(f"{op} ran on {', '.join(devices)}" for op, devices in ran.items()),
            *listed_here(traced),
        ),
        confidence=Confidence.PROVED if any(event.message in without for event in found) else Confidence.LIKELY,
        fix=(_WHY, *CAUSE.fix) if alone is not None else (),
    )
