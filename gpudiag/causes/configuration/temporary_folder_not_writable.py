"""no file can be created in {folder}, which TensorFlow uses for temporary files: {error}

TensorFlow takes the first folder that exists of TEST_TMPDIR, TMPDIR, TMP and /tmp, and no other if it cannot be
written: a container with a read-only root, a full disk, a quota, the TMPDIR of another user. XLA writes there what it
gives to ptxas: jit_compile=True then ends with "couldn't get temp CUBIN file name" or "Unable to create a temporary
file".
"""

from __future__ import annotations

from shlex import quote

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.gpu_state import meaning, written
from gpudiag.model.facts import TriedFacts
from gpudiag.model.report import Severity

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=("df -h /tmp  # full: make room", 'mkdir -p "$HOME/tmp" && export TMPDIR="$HOME/tmp"'),
    url="https://github.com/jax-ml/jax/issues/11190",
)
_FULL = ("ENOSPC", "EDQUOT")


def find(tried: TriedFacts) -> Matches:
    failed = next((one for one in written(tried, "temporary files") if one.error), None)
    if failed is None:
        return
    home = next((one for one in written(tried, "home") if one.error is None), None)
    yield Match(
        evidence=(f"write to {failed.path}: {meaning(failed.error)}",),
        figures={"folder": failed.path, "error": meaning(failed.error)},
        fix=(
            f"df -h {quote(failed.path)}; df -i {quote(failed.path)}  # make room there"
            if failed.error in _FULL
            else "",
            'mkdir -p "$HOME/tmp" && export TMPDIR="$HOME/tmp"'
            if home
            else "export TMPDIR=/dev/shm  # or another folder that this user may write to",
        ),
    )
