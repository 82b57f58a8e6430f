"""a library is loaded into every program before the driver, and intercepts calls to the driver

Libraries that share a GPU out among containers (HAMi, vCUDA and others of their kind) and profilers put themselves
before libcuda.so.1 and libnvidia-ml.so.1, by LD_PRELOAD or by /etc/ld.so.preload, which no variable shows. Programs
then see the driver, its memory and its limits as that library presents them. The loader reads that file as the user:
one that a user may not read has no effect on the user's programs.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.driver import preloads, take_out_preloads
from gpudiag.causes.shared.gpu_state import meaning
from gpudiag.fix import Kind, note
from gpudiag.knowledge.variables import PRELOAD_FILE
from gpudiag.model.facts import DriverFacts, Facts
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{what}",
    severity=Severity.NOTE,
    fix=(note("do nothing if this is meant", kind=Kind.SET_VARIABLE),),
    url="https://man7.org/linux/man-pages/man8/ld.so.8.html",
    finding="host.driver.calls_interposed",
    row_only=True,
)


def find(driver: DriverFacts, facts: Facts) -> Matches:
    if files := " and ".join(driver.interposed):
        what = f"{files} is loaded into every program before the driver, and intercepts calls to the driver"
        fix = (*CAUSE.fix, *take_out_preloads(driver, facts))
        yield Match(evidence=tuple(preloads(driver)), figures={"what": what}, fix=fix)
    elif driver.preload_error:
        what = f"this user may not read {PRELOAD_FILE}: what it names is not loaded into this user's programs"
        look = note(f"if what it names is meant for every user: chmod a+r {PRELOAD_FILE}", kind=Kind.CONFIGURE)
        yield Match(evidence=(f"{PRELOAD_FILE}: {meaning(driver.preload_error)}",), figures={"what": what}, fix=(look,))
