"""Examples of causes: limits of control groups and of ulimit that were reached, and others that were not."""

from __future__ import annotations

from msgspec.structs import replace

from examples import Example
from examples.facts import example
from examples.machines import DOCKER
from gpudiag.cause import Evidence
from gpudiag.model.facts import ContainerFacts, Limit
from gpudiag.model.report import Broken, NoReading, Row

_PIDS = Limit("pids.max", 40, "/sys/fs/cgroup/pids/pids.max", 12, 9, 5)
_MEMORY = Limit("memory.max", 1 << 30, "/sys/fs/cgroup/memory.max", 64 << 20, 2, 2)
_PROCESSES = Limit("Max processes", 60, "/proc/self/limits")
_ADDRESSES = Limit("Max address space", 1 << 30, "/proc/self/limits", is_hard=True, since="process 33 (bash)")
_FILES = Limit("Max open files", 1024, "/proc/self/limits")
_BEFORE_THE_RUN = replace(_PIDS, during_run=0)
_NO_THREAD = "Check failed: ret == 0 (11 vs. 0) Thread tf_numa_-1_Eigen creation via pthread_create() failed."
_KILLED = "import tensorflow: killed by SIGKILL, its last line: oneDNN custom operations are on."
_NO_FILE = "OSError: [Errno 24] Too many open files: '/data/1.tfrecord'"


def _broken(
    *limits: Limit, detail: str = "killed by SIGABRT", log: str = "", inside: ContainerFacts = DOCKER
) -> Evidence:
    """Return a machine with these limits, on which the first operation broke."""
    row = Row("discovery.first_op", (), Broken(NoReading.SIGNAL, detail), 0.0, log=(log,) if log else ())
    return Evidence(replace(example(), container=replace(inside, limits=limits)), rows=(row,))


_FILTERED = replace(DOCKER, has_filter=True)
_UNIT = replace(ContainerFacts(None, (), False, None), sandbox="systemd", sandbox_name="train.service")
EXAMPLES: dict[str, tuple[Example, ...]] = {
    "limit_reached": (
        Example("threads, as in https://github.com/jax-ml/jax/issues/24631", _broken(_PIDS, log=_NO_THREAD)),
        Example("threads, in a unit", _broken(_PIDS, log=_NO_THREAD, inside=_UNIT)),
        Example("threads, in the words of Python", _broken(_PIDS, detail="RuntimeError: can't start new thread")),
        Example("memory", _broken(_MEMORY, detail=_KILLED)),
        Example("threads of this user", _broken(_PROCESSES, log=_NO_THREAD)),
        Example("open files", _broken(_FILES, detail=_NO_FILE)),
        Example("threads of this user, and nearly as many run", _broken(replace(_PROCESSES, used=50), log=_NO_THREAD)),
        Example(
            "threads, refused by a filter",
            _broken(replace(_PROCESSES, value=96_365, used=900), detail="RuntimeError: can't start new thread"),
            fires=False,
        ),
        Example("fewer addresses than an import takes, whatever breaks", _broken(_ADDRESSES, _PROCESSES)),
        Example("enough addresses", _broken(replace(_ADDRESSES, value=8 << 30)), fires=False),
        Example("another death", _broken(_PIDS, _MEMORY, _PROCESSES, _FILES), fires=False),
        Example("killed by another", _broken(replace(_MEMORY, during_run=0), detail=_KILLED), fires=False),
        Example("reached before, and a death of another kind", _broken(_BEFORE_THE_RUN), fires=False),
        Example("no limit", _broken(log=_NO_THREAD), fires=False),
        Example("low, and nothing broke", Evidence(_broken(_PIDS, _MEMORY).facts), fires=False),
    ),
    "threads_refused": (
        Example(
            "clone3, in Python's words",
            _broken(detail="", log="RuntimeError: can't start new thread", inside=_FILTERED),
        ),
        Example("without a filter", _broken(log="RuntimeError: can't start new thread"), fires=False),
        Example("EAGAIN", _broken(log=_NO_THREAD, inside=_FILTERED), fires=False),
    ),
}
