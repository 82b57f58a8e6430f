"""a library is loaded into every program before the driver, and intercepts calls to the driver

Libraries that share a GPU out among containers (HAMi, vCUDA and others of their kind) and profilers put themselves
before libcuda.so.1 and libnvidia-ml.so.1, by LD_PRELOAD or by /etc/ld.so.preload, which no variable shows. Programs
then see the driver, its memory and its limits as that library presents them.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import Kind, note
from gpudiag.model.facts import DriverFacts
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{files} is loaded into every program before the driver, and intercepts calls to the driver",
    severity=Severity.NOTE,
    fix=(
        note(
            "do nothing if this is meant; otherwise unset LD_PRELOAD, or remove the library from /etc/ld.so.preload",
            kind=Kind.SET_VARIABLE,
        ),
    ),
    url="https://man7.org/linux/man-pages/man8/ld.so.8.html",
    finding="host.driver.calls_interposed",
    row_only=True,
)


def find(driver: DriverFacts) -> Matches:
    if driver.interposed:
        yield Match(
            evidence=tuple(f"a function of the driver comes from {file}" for file in driver.interposed),
            figures={"files": " and ".join(driver.interposed)},
        )
