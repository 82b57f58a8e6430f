"""cuInit fails because a library is loaded before the driver and intercepts its calls

Libraries that share a GPU out among containers (HAMi, vCUDA and others of their kind) put themselves before
libcuda.so.1, by LD_PRELOAD or by /etc/ld.so.preload. One that is of another driver, that cannot reach its manager or
its shared memory, or whose container was given no share, lets cuInit fail although the driver itself works.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Variables
from gpudiag.causes.shared.steps import CuInitFailed
from gpudiag.fix import check, unset
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import DriverFacts

CAUSE = Cause(
    title="cuInit fails because {files} is loaded before the driver and intercepts its calls",
    fix=(
        unset("LD_PRELOAD"),
        check("cat /etc/ld.so.preload", "remove its line to see whether the driver works without it"),
    ),
    url="https://man7.org/linux/man-pages/man8/ld.so.8.html",
    views=("host.driver.calls_interposed",),
)


def find(driver: DriverFacts, error: CuInitFailed, variables: Variables) -> Matches:
    if driver.interposed:
        by_variable = "LD_PRELOAD" in variables
        yield Match(
            evidence=(
                *(f"a function of the driver comes from {file}" for file in driver.interposed),
                f"cuInit: {error}",
            ),
            confidence=Confidence.LIKELY,
            figures={"files": " and ".join(driver.interposed)},
            fix=CAUSE.fix if by_variable else CAUSE.fix[1:],
            tried=CAUSE.fix[0] if by_variable else None,
        )
