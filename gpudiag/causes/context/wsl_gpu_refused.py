"""CUDA starts in WSL but gets no context on the GPU: the driver, WSL and Windows do not fit together

In WSL the GPU belongs to Windows's driver, which knows no exclusive compute mode and cannot be reset from there. If it
lists the GPU and then says "busy or unavailable" or "unknown error", one of the three is much older or newer, is a
faulty preview, or Windows has lost the GPU.
"""

from __future__ import annotations

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.causes.shared.wsl import URL
from gpudiag.fix import Kind, note, run
from gpudiag.knowledge.messages.way import CUDA_UNKNOWN, DEVICE_BUSY
from gpudiag.knowledge.origin import Origin
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    fix=(
        run("wsl --update; wsl --shutdown", "in PowerShell", kind=Kind.REBOOT),
        note(
            "then, in Windows: its newest update, and the newest driver from https://www.nvidia.com/drivers",
            kind=Kind.CHANGE_DRIVER,
        ),
        note("use the next or the previous build if Windows is a preview (Insider)", kind=Kind.INSTALL),
    ),
    url=URL,
)


def find(program: LogAlone, origin: Origin) -> Matches:
    if origin.wsl and (said := program.said(DEVICE_BUSY, CUDA_UNKNOWN)):
        yield Match(said, Confidence.LIKELY)
