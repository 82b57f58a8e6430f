"""Windows' CUDA driver library was found in this WSL distribution, but it fails

The library in /usr/lib/wsl/lib belongs to Windows's driver. It fails after an update of that driver until WSL is
started again, if driver, Windows and WSL are of very different age, or if the GPU is switched off or failing in
Windows.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches, Variables
from gpudiag.causes.shared.wsl import URL, Wsl
from gpudiag.fix import Kind, note, run
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.visibility import apply_mask

CAUSE = Cause(
    fix=(
        run("wsl --update; wsl --shutdown", "in PowerShell", kind=Kind.REBOOT),
        note(
            "then, if it still fails, install the newest driver from https://www.nvidia.com/drivers in Windows",
            kind=Kind.CHANGE_DRIVER,
        ),
    ),
    url=URL,
)


def find(wsl: Wsl, variables: Variables) -> Matches:
    mask = variables.get("CUDA_VISIBLE_DEVICES")
    if wsl.has_folder and wsl.uses_folder and (mask is None or apply_mask(mask, wsl.nvml.devices).devices):
        yield wsl.match(Confidence.LIKELY)
