"""Memory over time: what is kept of the samples, and that it costs a probe neither much time nor its result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gpudiag.hardware import nvml
from gpudiag.run import timelines
from gpudiag.run.timelines import MOST_SAMPLES, Timelines

USED = [0, 0, 7, 7, 7, 9]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let NVML say :data:`USED`, one after the other, of every GPU; return when it was asked."""
    times: list[float] = []

    @contextmanager
    def in_use(uuids: tuple[str, ...]) -> Iterator[Callable[[], tuple[int, ...]]]:
        def ask() -> tuple[int, ...]:
            times.append(time.monotonic())
            return (USED[min(len(times), len(USED)) - 1],) * len(uuids)

        yield ask

    monkeypatch.setattr(nvml, "in_use", in_use)
    monkeypatch.setattr(timelines, "EVERY_S", 0.001)
    return times


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 300
    while not condition() and time.monotonic() < until:
        time.sleep(0.001)


def test_only_changes_are_kept(asked: list[float]) -> None:
    memory = Timelines(("GPU-1", "GPU-2"))
    with memory.running():
        wait_for(lambda: len(asked) > len(USED))
    first, second = memory.taken()
    assert [used for _, used in first.samples] == [0, 7, 9]
    assert [used for _, used in second.samples] == [0, 7, 9]
    assert [at for at, _ in first.samples] == sorted(at for at, _ in first.samples)
    assert (first.gpu, second.gpu, first.looks) == ("GPU-1", "GPU-2", ())
    assert first.samples[-1][0] <= 1000 * first.seconds + 1


def test_what_the_probe_itself_asks_is_marked(asked: list[float]) -> None:
    memory = Timelines(("GPU-1",))
    memory.look("GPU-1", 1)  # before anything is measured
    with memory.running():
        memory.look("GPU-1", 5)
        memory.look("GPU-2", 5)  # of another process
    (line,) = memory.taken()
    assert len(line.looks) == 1
    assert 5 in [used for _, used in line.samples]


def test_nothing_is_asked_while_the_process_is_copied(asked: list[float]) -> None:
    memory = Timelines(("GPU-1",))
    with memory.running():
        wait_for(lambda: bool(asked))
        with memory.paused():
            before = len(asked)
            time.sleep(0.02)
            assert len(asked) == before
        wait_for(lambda: len(asked) > before)
        assert len(asked) > before


def test_a_slow_nvml_is_asked_less_often(asked: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def slow(uuids: tuple[str, ...]) -> Iterator[Callable[[], tuple[int, ...]]]:
        def ask() -> tuple[int, ...]:
            asked.append(time.monotonic())
            time.sleep(0.01)
            return (0,)

        yield ask

    monkeypatch.setattr(nvml, "in_use", slow)
    memory = Timelines(("GPU-1",))
    with memory.running():
        wait_for(lambda: len(asked) > 1)
    assert asked[1] - asked[0] >= 0.5, "it rests for fifty times as long as the question took"


def test_an_nvml_that_fails_costs_the_timeline_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def failing(uuids: tuple[str, ...]) -> Iterator[Callable[[], tuple[int, ...]]]:
        raise RuntimeError("GPU is lost")
        yield tuple

    monkeypatch.setattr(nvml, "in_use", failing)
    memory = Timelines(("GPU-1",))
    with memory.running():
        time.sleep(0.01)
    assert memory.taken() == ()


def test_a_long_timeline_stays_small() -> None:
    memory = Timelines(("GPU-1",))
    memory._began = time.monotonic()
    for used in range(10 * MOST_SAMPLES):
        memory.look("GPU-1", used)
    (line,) = memory.taken()
    assert MOST_SAMPLES / 2 <= len(line.samples) <= MOST_SAMPLES
    assert line.samples[0][1] == 0
    assert line.samples[-1][1] == 10 * MOST_SAMPLES - 1
    assert memory._every_s > timelines.EVERY_S
