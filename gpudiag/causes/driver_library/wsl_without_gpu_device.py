"""this WSL has no /dev/dxg, and so no GPU: it is WSL 1, or its GPU support is off

Only WSL 2 gives a distribution access to the GPU, through /dev/dxg; WSL 1 never does. Under WSL 2 the file is missing
if .wslconfig has gpuSupport=false, or with a Windows older than 21H2.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.wsl import Wsl
from gpudiag.fix import Kind, ask, note, run
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="this WSL ({kernel}) has no /dev/dxg, and so no GPU: it is WSL 1, or its GPU support is off",
    fix=(
        ask("wsl --list --verbose", "run it in PowerShell: it shows this distribution's WSL version"),
        run("wsl --set-version NAME 2", "if the version is 1, run this in PowerShell with the distribution's name"),
        note("remove gpuSupport=false from %UserProfile%\\.wslconfig, then run wsl --shutdown", kind=Kind.REBOOT),
    ),
    url="https://learn.microsoft.com/windows/wsl/compare-versions",
)


def find(wsl: Wsl) -> Matches:
    if not wsl.has_device:
        yield wsl.match(Confidence.PROVED)
