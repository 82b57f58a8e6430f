"""How long a process under load may run, and when it hangs: by the files in its folder, at times that tests choose."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudiag.probe import Slice
from gpudiag.run.load import Company, LoadOrder
from gpudiag.run.load_watch import LoadWatch

SECONDS = 60.0


def started(folder: Path, seconds: float = SECONDS) -> tuple[Company, LoadWatch]:
    """Return the only process of a probe, whose load has begun, and the watch of it, which was last looked at at 0."""
    company = Company(str(folder), 0, 1, seconds)
    company.start()
    watch = LoadWatch(LoadOrder(folder, 0, 1, seconds), 0.0)
    watch.look(0.0)
    return company, watch


def silent_until_hang(watch: LoadWatch, most: int) -> int:
    """Look once a second until the process hangs; return for how many seconds."""
    for second in range(1, most):
        watch.look(float(second))
        if watch.hang_s():
            return second
    return most


@pytest.mark.parametrize(("planned", "expected"), [(5.0, 36), (SECONDS, 36), (8 * 3600.0, 361)])
def test_a_process_hangs_if_no_slice_ends_for_35_s_or_for_three_slices_of_a_long_load(
    tmp_path: Path, planned: float, expected: int
) -> None:
    _, watch = started(tmp_path, planned)
    assert silent_until_hang(watch, 1000) == expected


def test_each_slice_is_a_sign_of_life(tmp_path: Path) -> None:
    company, watch = started(tmp_path)
    for second in range(1, 200):
        if second % 30 == 0:
            company.note(Slice(float(second), 0.5, "memory", 1e9))
        watch.look(float(second))
        assert not watch.hang_s()


def test_a_pause_of_gpudiag_itself_counts_as_a_second(tmp_path: Path) -> None:
    _, watch = started(tmp_path)
    for now in (1.0, 1000.0, 2000.0):
        watch.look(now)
        assert not watch.hang_s()


def test_the_time_of_a_load_is_granted_once_when_it_begins(tmp_path: Path) -> None:
    order = LoadOrder(tmp_path, 0, 1, SECONDS)
    watch = LoadWatch(order, 0.0)
    assert watch.look(10.0) == 0.0, "it prepares, within its deadline"
    (tmp_path / "waits.0").touch()
    assert watch.look(25.0) == 15.0, "it waits for the others"
    (tmp_path / "waits.0").unlink()
    Company(str(tmp_path), 0, 1, SECONDS).start()
    assert [watch.look(26.0), watch.look(27.0)] == [SECONDS, 0.0]
