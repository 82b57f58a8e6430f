"""this process may not start threads

numpy's OpenBLAS starts a thread for each processor when it is imported, and if it cannot, it interrupts the process:
`import tensorflow` ends with KeyboardInterrupt, which nobody typed. A container runtime whose seccomp profile does not
know the call clone3 refuses it with "Operation not permitted" (Docker before 20.10.10 with a C library from 2.34 on);
"Resource temporarily unavailable" is a limit on the number of processes, of the user, the container or the systemd
unit.
"""

from __future__ import annotations

from gpudiag.cause import Cause, EveryLog, Match, Matches
from gpudiag.causes.shared.limits import in_words
from gpudiag.fix import Role, check, export, run_container, start
from gpudiag.knowledge.log_lines import text
from gpudiag.knowledge.messages.system import NO_MORE_THREADS, THREADS_REFUSED
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import ContainerFacts, Limit

CAUSE = Cause(
    title="this process may not start threads: {why}",
    fix=(
        run_container("--security-opt seccomp=unconfined", note="shows whether the profile is why"),
        start(
            "docker version; runc --version; ldd --version", "update Docker to 20.10.10 or later, runc to 1.0 or later"
        ),
    ),
    url="https://github.com/moby/moby/pull/42681",
    needs_gpu=False,
    unless={"limit_reached": "it names the limit"},
)
_LIMIT = (
    check(
        "ulimit -u; cat /sys/fs/cgroup/pids.max",
        "raise the limit that is small: docker run --pids-limit, TasksMax= of a unit",
    ),
    export("OPENBLAS_NUM_THREADS", "1", "fewer threads; TensorFlow starts some, too", role=Role.ALTERNATIVE),
)


def find(log: EveryLog, inside: ContainerFacts | None) -> Matches:
    refused = log.first(THREADS_REFUSED, NO_MORE_THREADS)
    if refused is None:
        return
    limited = "temporarily" in refused.line or "(11 vs. 0)" in refused.line  # EAGAIN
    if refused.message is THREADS_REFUSED:
        why = "a limit of processes is reached" if limited else "the system call for it is refused"
        yield Match(evidence=(text(refused.line),), figures={"why": why}, fix=_LIMIT if limited else ())
    elif inside is not None and inside.has_filter and not limited:
        # Python prints no errno. No limit that is seen here was reached (limit_reached would name it), so it may be
        # EPERM, a filter's answer; a limit outside of the container is not seen.
        yield Match(
            evidence=(text(refused.line), "/proc/self/status: Seccomp: 2", *map(in_words, _of_threads(inside))),
            confidence=Confidence.POSSIBLE,
            figures={"why": "a filter of system calls (seccomp) refuses it, or a limit not seen here"},
        )


def _of_threads(inside: ContainerFacts) -> list[Limit]:
    return [limit for limit in inside.limits if limit.name in ("Max processes", "pids.max")]
