"""cuInit fails because a library is loaded before the driver and intercepts its calls

Libraries that share a GPU out among containers (HAMi, vCUDA and others of their kind) put themselves before
libcuda.so.1, by LD_PRELOAD or by /etc/ld.so.preload. One that is of another driver, that cannot reach its manager or
its shared memory, or whose container was given no share, lets cuInit fail although the driver itself works.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.driver import preloads, take_out_preloads
from gpudiag.causes.shared.steps import CuInitFailed
from gpudiag.fix import unset
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import DriverFacts, Facts

CAUSE = Cause(
    title="cuInit fails because {files} is loaded before the driver and intercepts its calls",
    fix=(unset("LD_PRELOAD"),),
    url="https://man7.org/linux/man-pages/man8/ld.so.8.html",
    views=("host.driver.calls_interposed",),
)


def find(driver: DriverFacts, error: CuInitFailed, facts: Facts) -> Matches:
    if driver.interposed:
        fix = take_out_preloads(driver, facts)
        yield Match(
            evidence=(*preloads(driver), f"cuInit: {error}"),
            confidence=Confidence.LIKELY,
            figures={"files": " and ".join(driver.interposed)},
            fix=fix,
            tried=CAUSE.fix[0] if CAUSE.fix[0] in fix else None,
        )
