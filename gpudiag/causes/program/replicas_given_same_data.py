"""a strategy gives all replicas the same data: the GPUs repeat each other's work

Strategy.run passes a plain tensor to each replica as it is: only what a distributed dataset yields is divided. Each GPU
computes the whole batch again, a step takes as long as on one GPU, and sums over the replicas are too large.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import edit
from gpudiag.model.program import ProgramTrace, place
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{strategy} gives all {replicas} replicas the same data: the GPUs repeat each other's work",
    severity=Severity.WARNING,
    fix=(edit("for batch in strategy.experimental_distribute_dataset(dataset):", "each replica gets its part"),),
    url="https://www.tensorflow.org/tutorials/distribute/custom_training",
    needs_gpu=False,
)


def find(program: ProgramTrace) -> Matches:
    for strategy in program.replicas:
        unused = [
            setting
            for setting in program.settings
            if setting.what == "a distributed dataset" and setting.process == strategy.process
        ]
        for line, caller, shape in strategy.same[:1]:
            yield Match(
                evidence=(
                    f"{place(line)}: run is given a tensor of shape {shape}, and nothing that is distributed",
                    *([f"called at {place(caller)}"] if caller != line else []),
                    *(
                        f"{place(setting.line)}: a distributed dataset, over which nothing iterates"
                        for setting in unused
                    ),
                ),
                figures={"strategy": strategy.strategy, "replicas": len(strategy.devices)},
                fix=(
                    edit("for batch in distributed_dataset:", f"the dataset of {place(unused[0].line)}")
                    if unused
                    else CAUSE.fix[0],
                ),
            )
