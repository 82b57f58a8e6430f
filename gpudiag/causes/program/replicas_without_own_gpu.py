"""the replicas of a strategy do not have a GPU each

A strategy is not refused if the devices that it is given do not exist: by soft placement the replicas share a GPU, or
the CPU. Training goes on, each batch is computed in parts one after another, without a warning.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import ask, edit
from gpudiag.model.program import ProgramTrace, place
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="the {replicas} replicas of {strategy} do not have a GPU each",
    severity=Severity.WARNING,
    fix=(
        edit("tf.distribute.MirroredStrategy()", "uses every GPU that there is"),
        ask("gpudiag why", "if there are fewer than meant"),
    ),
    url="https://www.tensorflow.org/guide/distributed_training#mirroredstrategy",
    needs_gpu=False,
)


def find(program: ProgramTrace) -> Matches:
    for replica in program.replicas:
        absent = [
            device
            for device in replica.devices
            if device.startswith("GPU") and replica.made and device not in replica.made
        ]
        if absent or (len(set(replica.devices)) < len(replica.devices)):
            yield Match(
                evidence=(
                    f"{place(replica.line)}: {replica.strategy} on {', '.join(replica.devices)}",
                    f"TensorFlow made {', '.join(replica.made)}",
                ),
                figures={"strategy": replica.strategy, "replicas": len(replica.devices)},
            )
            return
