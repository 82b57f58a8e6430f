"""The last run and the last PASS are kept: a later run that fails says what changed, and --failed runs a part."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from conftest import Gpudiag
from examples.facts import example_with_gpus
from gpudiag import folders
from gpudiag.comparison import kept
from gpudiag.comparison.reports import ComparedReport
from gpudiag.errors import UsageError
from gpudiag.model import codec
from gpudiag.model.facts import DriverFacts, Unknown
from gpudiag.model.report import Report, Verdict, World
from reports import CAP_IGNORED, GPUS, passed, report, row

GOOD = report(row("memory.growth", passed(on=GPUS), *GPUS), gpus=GPUS)
DRIVER = DriverFacts("550.54", None, None, "12.4")
BAD = report(row("memory.growth", passed("", CAP_IGNORED), *GPUS), gpus=GPUS, facts=example_with_gpus(2, driver=DRIVER))
MACHINE = 'driver_version = "{driver}"\ncuda_version = "{cuda}"\n[[gpu]]\ncount = 2\n'


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "gpudiag"


def records(state: Path) -> list[Path]:
    return sorted(state.glob("last-pass-*"))


def said(found: Report) -> list[str]:
    return [] if found.since is None else [change.name for change in found.since.facts]


def test_a_pass_is_kept_and_a_failure_is_compared_with_it(state: Path) -> None:
    assert kept.with_changes(BAD).since is None
    assert records(state) == [], "a failure is no PASS"
    assert kept.with_changes(GOOD) == replace(GOOD, earlier={})
    (file,) = records(state)
    assert (file.name[:18], file.stat().st_mode & 0o777) == ("last-pass-example-", 0o600)
    failed = kept.with_changes(BAD)
    assert said(failed)[:1] == ["driver"]
    assert failed.verdict is Verdict.FAIL
    assert codec.decode(codec.encode(failed), "here").since == failed.since


def test_it_can_be_switched_off(state: Path) -> None:
    kept.with_changes(GOOD, keep=False)
    assert not state.exists()
    kept.with_changes(GOOD)
    assert kept.with_changes(BAD, keep=False).since is None


@pytest.mark.parametrize("field", ["hostname", "executable", "prefix"])
def test_another_machine_or_interpreter_has_its_own(field: str) -> None:
    kept.with_changes(GOOD)
    other = replace(BAD, facts=replace(BAD.facts, system=replace(BAD.facts.system, **{field: "other"})))
    assert kept.with_changes(other).since is None


def test_simulated_machines_have_their_own_by_specification() -> None:
    kept.with_changes(GOOD)
    simulated = replace(BAD, world=World(simulated=True, spec="2 --fault cuinit=802"))
    assert kept.with_changes(simulated).since is None
    kept.with_changes(replace(GOOD, world=World(simulated=True, spec="2")))
    assert said(kept.with_changes(simulated))[:1] == ["driver"]
    assert kept.with_changes(replace(simulated, world=World(simulated=True, spec="4"))).since is None


def test_a_machine_that_is_not_known_has_none(state: Path) -> None:
    unknown = replace(GOOD, facts=replace(GOOD.facts, system=Unknown("no answer")))
    assert kept.with_changes(unknown) == unknown
    assert not state.exists()


@pytest.mark.parametrize("content", ["{", '{"schema_version": 3}', ""])
def test_a_kept_file_that_cannot_be_read_costs_nothing(content: str, state: Path) -> None:
    kept.with_changes(GOOD)
    (file,) = records(state)
    file.write_text(content)
    assert kept.with_changes(BAD) == replace(BAD, earlier={})
    kept.with_changes(GOOD)
    assert said(kept.with_changes(BAD))[:1] == ["driver"]


def test_a_folder_that_cannot_be_written_is_a_note(state: Path) -> None:
    state.parent.write_text("a file where the folder would be")
    passing = kept.with_changes(GOOD)
    assert passing.verdict is Verdict.PASS
    assert "this run is not kept for later comparisons" in passing.notes[0]


def test_only_the_newest_files_stay(state: Path) -> None:
    kept.with_changes(GOOD)
    (newest,) = records(state)
    for number in range(kept.MOST_FILES + 5):
        (state / f"last-pass-host-{number:012x}.json").write_text("")
        os.utime(state / f"last-pass-host-{number:012x}.json", (number, number))
    (state / "last-pass-mine.json").write_text("")  # not a name that gpudiag gives
    os.utime(state / "last-pass-mine.json", (0, 0))
    kept.with_changes(GOOD)
    assert len(records(state)) == kept.MOST_FILES + 1
    assert newest.exists()
    assert not (state / "last-pass-host-000000000005.json").exists()
    (state / folders.MARK).unlink()
    more = [state / f"last-pass-host-{number:012x}.json" for number in range(100, 110)]
    for file in more:
        file.write_text("")
        os.utime(file, (0, 0))
    kept.with_changes(GOOD)
    assert all(file.exists() for file in more), "the folder is not known to be gpudiag's own"


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def link(file: Path) -> None:
    precious = file.with_name(f"precious-{file.name}")
    file.rename(precious)
    file.symlink_to(precious.name)


def open_to_everybody(file: Path) -> None:
    file.parent.chmod(0o777)


@pytest.mark.parametrize(
    ("alter", "reason"),
    [
        (pipe, "it is not a plain file"),
        (link, "it is not a plain file"),
        (lambda file: file.chmod(0o666), "everybody can write to it"),
        (open_to_everybody, "everybody can write to its folder"),
        (lambda file: os.chown(file, 65534, 65534), "it belongs to nobody"),
        (lambda file: os.chown(file.parent, 65534, 65534), "belongs to nobody"),
    ],
    ids=["pipe", "link", "open file", "open folder", "file of another user", "folder of another user"],
)
def test_what_another_user_may_have_put_there_is_neither_read_nor_written(
    alter: Callable[[Path], None], reason: str, state: Path
) -> None:
    """A pipe would also hold the run for ever."""
    kept.with_changes(GOOD)
    try:
        for file in [*records(state), *state.glob("last-run-*")]:
            alter(file)
    except PermissionError:
        pytest.skip("needs root, who can give a file to another user")
    before = [(path.name, path.lstat().st_mtime_ns) for path in sorted(state.iterdir())]
    failed, good = kept.with_changes(BAD), kept.with_changes(GOOD)
    assert failed.since is None
    assert all(reason in note for note in failed.notes)
    with pytest.raises(UsageError, match=r"Run 'gpudiag check'"):
        kept.last_run(World(simulated=False))
    assert good.verdict is Verdict.PASS
    assert good.notes[-1].startswith("this run is not kept for later comparisons: ")
    assert reason in good.notes[-1]
    assert [(path.name, path.lstat().st_mtime_ns) for path in sorted(state.iterdir())] == before


def test_a_relative_folder_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert kept.folder() == tmp_path / ".local" / "state" / "gpudiag"


def test_a_baseline_counts_whatever_the_verdict() -> None:
    found = kept.with_changes(GOOD, ComparedReport(BAD, "bad.json"))
    assert found.since is not None
    assert found.since.old.source == "bad.json"


def test_a_driver_upgrade_between_two_runs_is_named_by_the_second(gpudiag: Gpudiag) -> None:
    machine = gpudiag.simulated(MACHINE.format(driver="560.35.05", cuda="12.6"))
    first = gpudiag("check", "discovery.first_op", *machine, "-o", "first.json")
    assert first.returncode == 0, first.stdout + first.stderr
    gpudiag.simulated(MACHINE.format(driver="570.86.10", cuda="12.8"))
    failing = (*machine, "--fault", "cuinit=803")
    second = gpudiag("check", "discovery.first_op", *failing, TF_FORCE_GPU_ALLOW_GROWTH="true")
    assert second.returncode != 0
    head, _, rows = second.stdout.partition("\noutcome")
    assert "Since the last PASS (less than a minute ago), this has changed:" in head
    lines = [line.strip() for line in head.splitlines()]
    assert lines.index("driver 560.35.05 -> 570.86.10") < lines.index("TF_FORCE_GPU_ALLOW_GROWTH: new (true)")
    assert "Since" not in rows
    silent = gpudiag("check", "discovery.first_op", *failing, "--no-keep-last-pass")
    assert "Since" not in silent.stdout
    named = gpudiag("check", "discovery.first_op", *failing, "--no-keep-last-pass", "--baseline", "first.json")
    assert "Since first.json" in named.stdout
    assert "driver 560.35.05 -> 570.86.10" in named.stdout


def test_a_baseline_that_is_no_report_is_refused_before_anything_runs(gpudiag: Gpudiag, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    done = gpudiag("check", "host", "--baseline", "a.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "a.json: JSON, but not a gpudiag report" in done.stderr
