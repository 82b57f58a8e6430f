"""A damaged library that LD_LIBRARY_PATH puts first is named, with the good one after it; without it the GPU works."""

from __future__ import annotations

import pytest

from conftest import Gpudiag
from gpudiag import codec

pytestmark = pytest.mark.usefixtures("no_child_left")
FIRST = 'LD_LIBRARY_PATH="$PWD/stray:$LD_LIBRARY_PATH" exec "$@"'
"""On a simulated machine its libraries come first; what is to come before them is put there inside."""


@pytest.mark.parametrize("library", ["libcuda.so.1", "libcudnn.so.9"])
def test_it_is_taken_away(library: str, gpudiag: Gpudiag) -> None:
    gpudiag.simulated("2")
    (gpudiag.folder / "stray").mkdir()
    stray = gpudiag.folder / "stray" / library
    stray.write_text("junk")
    check = gpudiag.command("check", "host", "discovery.trace", "-q", "-o", "report.json")
    gpudiag("simulate", "2", "--", "sh", "-c", FIRST, "sh", *check, flags=())
    diagnosis = codec.load(gpudiag.folder / "report.json").diagnosis
    cause = diagnosis.causes[0]
    assert (cause.rule, cause.stage, cause.sure.value) == ("damaged_library_first", diagnosis.broken_at, "proved")
    assert f"puts {stray}, which cannot be opened, before the good " in cause.cause
    assert any(line.endswith("file too short") for line in cause.evidence)
    assert cause.fix[0].endswith(f"# without {stray.parent}")
    assert cause.trial is not None
    assert cause.trial.outcome == "works"
