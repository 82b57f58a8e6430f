"""The company of a probe of level stress: processes that meet, one of them gone, and notes that outlive them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpudiag.probe import Slice
from gpudiag.run.load import Company, LoadOrder

PART = Slice(0.5, 0.5, "float32 product", 1e12, 0.01, 100)


def companies(folder: Path, count: int) -> list[Company]:
    return [Company(**LoadOrder(folder, number, count, 10.0).argument) for number in range(count)]


def test_all_are_told_what_each_told_and_have_one_time(tmp_path: Path) -> None:
    three = companies(tmp_path, 3)
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda one: one.meet("sides", one.number), three)) == [[0, 1, 2]] * 3
        list(pool.map(lambda one: one.start(), three))
    times = [one.now() for one in three]
    assert max(times) - min(times) < 0.1


def test_nobody_waits_for_one_that_is_gone(tmp_path: Path) -> None:
    first, second = companies(tmp_path, 2)
    with ThreadPoolExecutor(1) as pool:
        meeting = pool.submit(first.meet, "sides", "here")
        time.sleep(0.1)
        assert not meeting.done()
        LoadOrder(tmp_path, second.number, 2, 10.0).leave()
        assert meeting.result(timeout=30) == ["here"]


def test_one_that_left_after_it_came_is_heard(tmp_path: Path) -> None:
    first, second = companies(tmp_path, 2)
    with ThreadPoolExecutor(1) as pool:
        came = pool.submit(first.meet, "sides", 1)
        time.sleep(0.1)
        LoadOrder(tmp_path, 0, 2, 10.0).leave()
        assert second.meet("sides", 2) == [1, 2]
        assert came.result(timeout=30) == [1, 2]


def test_what_was_noted_is_there_without_a_line_that_was_cut_short(tmp_path: Path) -> None:
    order = LoadOrder(tmp_path, 0, 1, 10.0)
    (company,) = companies(tmp_path, 1)
    before = time.monotonic()
    company.start()
    company.note(PART)
    company.note(PART)
    with next(tmp_path.glob("notes*")).open("ab") as file:
        file.write(b'{"began_s": 1.0, "sec')
    noted = order.noted(before - 5)
    assert noted["slices"] == (PART, PART)
    assert noted["planned_s"] == 10.0
    assert 5 <= noted["load_began_s"] < 6


def test_one_that_never_began_has_noted_nothing(tmp_path: Path) -> None:
    assert LoadOrder(tmp_path, 0, 1, 10.0).noted(0.0)["slices"] == ()
