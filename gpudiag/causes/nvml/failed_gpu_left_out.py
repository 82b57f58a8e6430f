"""CUDA_VISIBLE_DEVICES hides a GPU that does not work

The programs that see this value of CUDA_VISIBLE_DEVICES do not use that GPU, so it does not disturb them. Others may.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.signs import Signs
from gpudiag.fix import Kind, note
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="CUDA_VISIBLE_DEVICES hides a GPU that does not work; NVML reports: {error}",
    severity=Severity.NOTE,
    fix=(note("do nothing if the other GPUs are enough; a lost GPU needs a reset or a reboot", kind=Kind.REBOOT),),
    url="https://docs.nvidia.com/deploy/xid-errors/index.html",
    finding="host.driver.left_out",
    row_only=True,
)


def find(signs: Signs) -> Matches:
    if signs.left_out:
        yield Match(evidence=(f"NVML: {signs.nvml_fails}",), figures={"error": signs.nvml_fails})
