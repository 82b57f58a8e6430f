"""A library that LD_LIBRARY_PATH puts first, damaged or too old, is named, and without it the GPU is seen to work."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import Gpudiag
from gpudiag.model import codec
from gpudiag.model.diagnosis import Diagnosis, Stage

pytestmark = [pytest.mark.usefixtures("no_child_left"), pytest.mark.slow]  # what is named is shown by its examples
FIRST = 'LD_LIBRARY_PATH="$PWD/stray:$LD_LIBRARY_PATH" exec "$@"'
"""On a simulated machine its libraries come first; what is to come before them is put there inside."""


CUDNN_9_1 = """
#include <stddef.h>
size_t cudnnGetVersion(void) { return 90100; }
int cudnnGetProperty(int which, int *value) { *value = which == 0 ? 9 : which == 1 ? 1 : 0; return 0; }
"""


def diagnosed(gpudiag: Gpudiag) -> Diagnosis:
    """Return the diagnosis of a machine on which the folder ``stray`` comes first."""
    check = gpudiag.command("check", "host", "discovery.trace", "-q", "-o", "report.json")
    gpudiag("simulate", "2", "--", "sh", "-c", FIRST, "sh", *check, flags=())
    return codec.load(gpudiag.folder / "report.json").diagnosis


@pytest.fixture
def stray(gpudiag: Gpudiag) -> Path:
    gpudiag.simulated("2")
    folder = gpudiag.folder / "stray"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("library", ["libcuda.so.1", "libcudnn.so.9"])
def test_a_damaged_one_is_taken_away(library: str, stray: Path, gpudiag: Gpudiag) -> None:
    (stray / library).write_text("junk")
    found = diagnosed(gpudiag)
    cause = found.causes[0]
    assert (cause.cause_id, cause.stage, cause.confidence.value) == ("damaged_library_first", found.broken_at, "proved")
    assert f"puts {stray / library}, which cannot be opened, before the good " in cause.cause
    assert any(line.endswith("file too short") for line in cause.evidence)
    assert cause.fix[0].note == f"without {stray}"
    assert cause.trial is not None
    assert cause.trial.outcome == "works"


def test_an_old_cudnn_is_taken_away_though_gpus_are_listed(stray: Path, gpudiag: Gpudiag) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler (cc or gcc) to make an old cuDNN")
    (stray / "cudnn.c").write_text(CUDNN_9_1)
    flags = ["-shared", "-fPIC", "-Wl,-soname,libcudnn.so.9", "-o", "libcudnn.so.9"]
    subprocess.run([compiler, *flags, "cudnn.c"], cwd=stray, check=True, timeout=60)
    found = diagnosed(gpudiag)
    cause = found.causes[0]
    assert (cause.cause_id, cause.stage, found.broken_at) == ("cudnn_too_old", Stage.FIRST_OP, None)
    assert cause.fix[0].note == f"without {stray}"
    assert cause.trial is not None
    assert cause.trial.outcome == "works"
