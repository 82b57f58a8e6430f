"""programs cannot write to the folder for temporary files

TensorFlow takes the first folder that exists of TEST_TMPDIR, TMPDIR, TMP and /tmp, and no other if it cannot be
written: a container with a read-only root, a full disk, a quota, a limit of `ulimit -f`, the TMPDIR of another user.
XLA writes there what it gives to ptxas: jit_compile=True then ends with "couldn't get temp CUBIN file name" or "Unable
to create a temporary file". The driver and its helpers write there, too, so an error of the driver that has no other
explanation comes second: make room first, and try again.
"""

from __future__ import annotations

from shlex import quote

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.gpu_state import meaning, written
from gpudiag.causes.shared.steps import FirstFailed
from gpudiag.fix import Kind, check, export, run
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.facts import PathAttempt, TriedFacts
from gpudiag.model.report import Severity
from gpudiag.text import size

CAUSE = Cause(
    title="programs cannot put temporary files into {folder}: {error}",
    severity=Severity.WARNING,
    fix=(
        check("df -h /tmp", "if it is full, make room"),
        run('mkdir -p "$HOME/tmp" && export TMPDIR="$HOME/tmp"', kind=Kind.SET_VARIABLE),
    ),
    url="https://github.com/jax-ml/jax/issues/11190",
)
_FULL = ("ENOSPC", "EDQUOT")
_LEAST_BYTES = 16 << 20
"""A folder with less room counts as full."""
_OF_THE_DRIVER = tuple(Stage)[tuple(Stage).index(Stage.DRIVER) : tuple(Stage).index(Stage.FIRST_OP) + 1]


def find(tried: TriedFacts, broken: FirstFailed | None) -> Matches:
    folder = next(written(tried, "temporary files"), None)
    problem = None if folder is None else _problem(folder)
    if folder is None or problem is None:
        return
    home = next((attempt for attempt in written(tried, "home") if _problem(attempt) is None), None)
    stage = broken.stage if broken is not None and broken.stage in _OF_THE_DRIVER else None
    yield Match(
        evidence=(f"write to {folder.path}: {problem}",),
        confidence=Confidence.PROVED if stage is None else Confidence.LIKELY,
        figures={"folder": folder.path, "error": problem},
        fix=(
            check(f"df -h {quote(folder.path)}; df -i {quote(folder.path)}", "make room there")
            if folder.error in (None, *_FULL)
            else check("ulimit -f unlimited", "run it in the shell, or set it in the unit, that starts the program")
            if folder.error == "EFBIG"
            else None,
            run('mkdir -p "$HOME/tmp" && export TMPDIR="$HOME/tmp"', kind=Kind.SET_VARIABLE)
            if home
            else export("TMPDIR", "/dev/shm", "or use another folder that this user may write to"),  # noqa: S108
        ),
        stage=stage,
    )


def _problem(folder: PathAttempt) -> str | None:
    """Return why a folder cannot be written or has too little room; None if it is fine."""
    if folder.error is not None:
        return meaning(folder.error)
    if folder.free_bytes is not None and folder.free_bytes < _LEAST_BYTES:
        return f"it has {size(folder.free_bytes)} left"
    return None
