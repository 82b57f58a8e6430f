"""TensorFlow cannot be imported, because a file of it, or of a package that it needs, cannot be used as it is

A download or copy that was cut short, a full disk, a link into a cache that was cleaned, or an installation by root
with a strict umask leaves files that are there and do not serve. A library that is shorter than its headers say ends
Python with SIGBUS; a folder that this user may not enter makes a module "not found", or empty.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.files import repairs
from gpudiag.causes.shared.packages import INSTALLATION, FailedImport
from gpudiag.fix import install
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import FileFault, TensorflowFacts

CAUSE = Cause(
    title="TensorFlow cannot be imported: {problem}",
    fix=(install("--force-reinstall", "--no-deps", "--no-cache-dir", "tensorflow==2.21.0"),),
    url=INSTALLATION,
    needs_gpu=False,
)


def find(failed: FailedImport, installed: TensorflowFacts) -> Matches:
    if not installed.damaged:
        return
    shut = all(state.fault is FileFault.SHUT for state in installed.damaged)
    named = any(state.path in failed.error for state in installed.damaged)
    yield Match(
        evidence=(f"import tensorflow: {failed.error}", *(state.sentence for state in installed.damaged)),
        confidence=Confidence.PROVED if named else Confidence.LIKELY,
        figures={"problem": installed.damaged[0].sentence},
        fix=repairs(installed.damaged) or CAUSE.fix if not shut else repairs(installed.damaged),
        about=tuple(state.path for state in installed.damaged),
    )
