"""Probes with a second process, end to end: whatever either does, there is a row, and nothing is left of them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import gpudiag as package
from conftest import Gpudiag
from gpudiag.model import codec
from gpudiag.model.reading import SavedReading
from gpudiag.model.report import Broken, Interrupted, Judged, NoReading, Row
from gpudiag.run.context import ChildContext
from gpudiag.run.rendezvous import Meeting
from processes import pairs

pytestmark = [
    pytest.mark.usefixtures("no_child_left"),
    pytest.mark.skipif(
        any("editable" in type(finder).__module__ for finder in sys.meta_path),
        reason="an editable installation is found before the copy of the package that these tests make",
    ),
]

DEADLINE_S = 3.0
PROBE = '''"""A pair of processes.

What it does
    Meets.
Why it matters
    It is a test.
What to do
    Nothing.
"""

from gpudiag.probe import Probe
from processes.pairs import PAIRS, Fault, Reading, judge

PROBE = Probe(deadline_s={deadline_s})
measure, peer = PAIRS[{name!r}]
'''


@pytest.fixture
def paired(gpudiag: Gpudiag) -> Gpudiag:
    """Put a copy of gpudiag, made of links, before the real one; its area ``visibility`` is the pairs."""
    modules = gpudiag.folder / "modules"
    _link(Path(package.__file__).parent, modules / "gpudiag", but="probes")
    _link(Path(package.__file__).parent / "probes", modules / "gpudiag" / "probes", but="visibility")
    area = modules / "gpudiag" / "probes" / "visibility"
    area.mkdir()
    (area / "__init__.py").touch()
    for name in pairs.PAIRS:
        (area / f"{name}.py").write_text(PROBE.format(name=name, deadline_s=DEADLINE_S))
    gpudiag.path.insert(0, str(modules))
    return gpudiag


def _link(folder: Path, to: Path, but: str) -> None:
    to.mkdir(parents=True)
    for path in folder.iterdir():
        if path.name not in {but, "__pycache__"}:
            (to / path.name).symlink_to(path)


def rows(gpudiag: Gpudiag, *arguments: str) -> dict[str, Row]:
    done = gpudiag("check", *arguments, "--format", "json", "-q")
    assert list(gpudiag.temporary.iterdir()) == [], "messages were left behind"
    # A probe that breaks brings the trace of discovery along; here the pairs alone are looked at.
    of_pairs = (row for row in codec.decode(done.stdout, done.stderr).rows if row.probe.startswith("visibility."))
    return {row.probe.partition(".")[2]: row for row in of_pairs}


# Spawned, a child is let twice the timeout: its interpreter has to start.
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("fork",), id="fork"),
        pytest.param(("spawn", "--timeout", str(DEADLINE_S)), id="spawn", marks=pytest.mark.slow),
    ],
)
def test_whatever_the_two_do_there_is_a_row(arguments: tuple[str, ...], paired: Gpudiag) -> None:
    found = rows(paired, "visibility", "--jobs", "20", "--isolation", *arguments)
    assert set(found) == set(pairs.PAIRS)

    met = found["both_meet"]
    assert isinstance(met.outcome, Judged), met
    assert isinstance(met.reading, SavedReading)
    assert met.reading["told"] not in {None, met.reading["own"]}

    # The other process waits for it and would go on waiting.
    assert isinstance(found["probe_ends_early"].outcome, Judged)

    broken = {
        "peer_raises": (NoReading.EXCEPTION, "its second process: ValueError: nothing works"),
        "peer_dies": (NoReading.SIGNAL, "its second process: killed by SIGSEGV"),
        "peer_hangs": (NoReading.TIMEOUT, "no result within"),
        "peer_ends_early": (NoReading.EXCEPTION, "the other process ended before it came to the meeting 'first'"),
        "peer_tells_what_is_no_json": (NoReading.EXCEPTION, "its second process: TypeError"),
        "probe_raises": (NoReading.EXCEPTION, "ValueError: nothing works"),
        "probe_dies": (NoReading.SIGNAL, "killed by SIGSEGV"),
        "probe_hangs": (NoReading.TIMEOUT, "no result within"),
    }
    assert "the last words" in found["peer_dies"].log
    for name, (cause, detail) in broken.items():
        outcome = found[name].outcome
        assert isinstance(outcome, Broken), found[name]
        assert outcome.cause is cause, name
        assert detail in outcome.detail, name
        if cause is not NoReading.TIMEOUT and arguments == ("fork",):
            assert found[name].duration_s < DEADLINE_S, f"{name}: the other one was waited for"


def test_both_run_where_only_one_child_may(paired: Gpudiag) -> None:
    found = rows(paired, "visibility.both_meet", "visibility.probe_ends_early", "-j", "1", "--isolation", "spawn")
    assert [type(row.outcome) for row in found.values()] == [Judged, Judged]


@pytest.mark.parametrize("pair", ["peer_hangs", "probe_hangs"])
def test_a_signal_ends_both(pair: str, paired: Gpudiag, wait_until: Callable[[Callable[[], bool]], None]) -> None:
    process = paired.start("check", f"visibility.{pair}", "--isolation", "spawn", "-q", "-o", "partial.json")
    with process:
        wait_until(lambda: bool(list(paired.temporary.glob("*/first.p*"))))  # one of them is at its meeting
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    (row,) = codec.load(paired.folder / "partial.json").rows
    assert row.outcome == Interrupted("stopped by SIGTERM")
    assert list(paired.temporary.iterdir()) == []


def test_what_is_told_is_what_the_other_hears(tmp_path: Path) -> None:
    told = {"text": "漢字\n", "numbers": [1, -2.5, 1 << 60], "nothing": None}
    probe, peer = Meeting(tmp_path, "probe", "peer"), Meeting(tmp_path, "peer", "probe")
    (tmp_path / "a.peer").write_text("0")
    assert probe.meet("a", told) == 0
    assert peer.meet("a") == told


def test_a_probe_without_a_second_process_cannot_meet() -> None:
    with pytest.raises(RuntimeError, match="needs a function peer"):
        _ = ChildContext(()).peer
