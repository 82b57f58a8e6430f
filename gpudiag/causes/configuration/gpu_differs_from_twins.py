"""a GPU differs from the others of its model in this machine: in its link, clocks, power, memory or speed

GPUs of one model in one machine should do the same. What is measured on each is compared: NVLinks, the PCI Express link
and copies over it, the power limit, clocks, corrected memory errors, ECC, the modes that an administrator sets, and the
time to a result. Training on all of them is as fast as the slowest. Differences that have an honest reason, such as an
idle GPU's clocks or the slots of a mainboard, are not reported.
"""

from __future__ import annotations

from itertools import groupby

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.gpu_state import KernelLog
from gpudiag.causes.shared.twins import Difference, Twins, fix_of
from gpudiag.fix import distinct, nvidia_smi
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.report import Severity
from gpudiag.text import counted

CAUSE = Cause(
    title="{gpu} differs from {count} of its model: {own}; the others: {others}",
    severity=Severity.WARNING,
    fix=(nvidia_smi("compare the GPUs", "-q -d PERFORMANCE,POWER,CLOCK,ECC"),),
    url="https://docs.nvidia.com/deploy/nvidia-smi/index.html",
)


def find(twins: Twins, kernel: KernelLog) -> Matches:
    odd = sorted(twins.differences(), key=_index)
    for index, of_gpu in groupby(odd, key=_index):
        several = list(of_gpu)
        first = several[0]
        address = first.twin.device.pci_bus_id
        yield Match(
            evidence=(
                *(
                    f"GPU {index} ({address}): {difference.own}; {difference.count} of its model: {difference.others}"
                    for difference in several
                ),
                *kernel.last(address.rpartition(".")[0]),
            ),
            confidence=Confidence.LIKELY,
            figures={
                "gpu": f"GPU {index}",
                "count": counted(first.count, "other"),
                "own": first.own,
                "others": first.others,
            },
            fix=distinct(action for difference in several for action in fix_of(difference)),
            gpus=(address,),
        )


def _index(difference: Difference) -> int:
    return difference.twin.device.index
