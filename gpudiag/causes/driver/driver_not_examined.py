"""the driver, NVML or the device files could not be examined

gpudiag asks the driver, NVML and the device files in separate processes with a deadline. If one of them does not
answer, the driver most often hangs, and TensorFlow would hang in the same call.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import kernel_log, nvidia_smi
from gpudiag.model.facts import Facts, Unknown

CAUSE = Cause(
    title="{family} could not be examined: {reason}",
    fix=(
        nvidia_smi("if it hangs too, the driver is stuck: look for Xid in dmesg, and reboot"),
        kernel_log(),
    ),
    url="https://docs.nvidia.com/deploy/xid-errors/index.html",
    finding="host.driver.not_gathered",
    row_only=True,
)


def find(facts: Facts) -> Matches:
    parts = {"the driver": facts.driver, "NVML": facts.nvml, "device files and the PCI bus": facts.device_nodes}
    for family, known in parts.items():
        if isinstance(known, Unknown):
            yield Match(evidence=(known.reason,), figures={"family": family, "reason": known.reason})
