"""``--failed`` runs what has not passed since it failed, whatever ran in between."""

from __future__ import annotations

import re
import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from conftest import Gpudiag
from examples.facts import example_with_gpus
from gpudiag.comparison import failed, kept
from gpudiag.errors import UsageError
from gpudiag.model import codec
from gpudiag.model.facts import Facts
from gpudiag.model.report import SCHEMA_VERSION, Broken, Gpu, Judged, Limits, NoReading, Report, Row, Skipped, World
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.probes import listing
from gpudiag.report import render, words
from gpudiag.run.gaps import with_gaps
from reports import CAP_IGNORED, GPUS, MISSPELT, passed, report, row

PASSES = passed(on=GPUS)
FAILS = passed("", CAP_IGNORED)
WARNS = passed("", MISSPELT, on=GPUS)
LOST = Broken(NoReading.SIGNAL, "SIGSEGV")
NOT_REAL = Skipped("needs real GPUs, these are simulated")
HOST = tuple(name for name in listing.names() if name.startswith("host."))
DIAGNOSIS = {*HOST, "discovery.trace", "discovery.logical_devices", "libraries.cublas", "libraries.cudnn"}


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def ran(**outcomes: Judged | Broken | Skipped) -> Report:
    """Return the report of a run of these probes of the area ``memory``, as it is kept."""
    rows = [row(f"memory.{name}", outcome, *GPUS) for name, outcome in outcomes.items()]
    return kept.with_changes(report(*rows, gpus=GPUS))


def chosen(last: Report, *selected: str, strict: bool = False, also: tuple[str, ...] = ()) -> set[str]:
    selection = failed.select(last, listing.chosen(selected), Limits(strict=strict).failing, also)
    assert [name for name in listing.names() if name in selection.names] == [*selection.names], (
        "in the order of a report"
    )
    return {*selection.names} - DIAGNOSIS


def test_what_did_not_pass_stays_until_it_passes() -> None:
    ran(growth=FAILS, fraction=LOST, allocator=NOT_REAL, capacity=PASSES)
    partial = ran(growth=PASSES)
    assert partial.earlier == {"memory.fraction": "broken", "memory.allocator": "skipped"}
    assert (partial.exit_code, words.next_of(partial).command) == (0, "")
    assert "memory.fraction did not pass in an earlier run" in words.next_step(partial)
    assert chosen(partial) == {"memory.fraction", "memory.allocator"}
    assert ran(growth=PASSES, fraction=Skipped("GPU 0 is used by another process"), allocator=NOT_REAL).earlier == {
        "memory.fraction": "broken"
    }
    assert ran(growth=FAILS).earlier == {"memory.fraction": "broken"}
    assert chosen(ran(growth=FAILS)) == {"memory.growth", "memory.fraction"}
    done = ran(growth=PASSES, fraction=PASSES)
    assert done.earlier == {}
    assert words.next_step(done) == ""
    with pytest.raises(
        UsageError, match=r"nothing failed in the last run \(.* ago, PASS\)\. Without --failed all probes run"
    ):
        chosen(done)


def test_a_failure_on_one_gpu_stays_while_another_passes() -> None:
    facts = example_with_gpus(2)
    first, second = gpus_in_scope(facts)

    def runs(gpus: tuple[Gpu, ...], *rows: Row, facts: Facts = facts) -> Report:
        return kept.with_changes(report(*rows, gpus=gpus, facts=facts))

    both = (first, second)
    runs(
        both,
        row("memory.growth", PASSES, first),
        row("memory.growth", FAILS, second),
        row("memory.limit", FAILS, first),
        row("memory.limit", NOT_REAL, second),
        row("logical.gpu_split", FAILS, *both),
    )
    passes = [row(name, passed(on=(first,)), first) for name in ("memory.growth", "memory.limit", "logical.gpu_split")]
    for rows in (passes, passes[:1], passes):  # it stays, however many runs pass on the first
        partial = runs((first,), *rows)
        assert partial.exit_code == 0
        assert partial.earlier == {"memory.growth": "fail", "logical.gpu_split": "fail"}
        assert partial.earlier_gpus == dict.fromkeys(partial.earlier, (second.uuid,))
        said = (
            "memory.growth, logical.gpu_split did not pass in an earlier run, and not since on GPU 1, which is not in"
        )
        assert words.next_step(partial).startswith(said)
    assert codec.decode(codec.encode(partial), "test") == partial
    # The card was replaced: nothing of the old one can pass any more.
    assert runs((first,), *passes, facts=example_with_gpus(1)).earlier == {}


def test_a_selection_and_a_requirement_of_a_pass_are_honoured() -> None:
    last = ran(growth=FAILS, fraction=WARNS)
    assert chosen(last, "memory.growth") == {"memory.growth"}
    assert chosen(last, also=("logical.gpu_split",)) == {"memory.growth", "memory.fraction", "logical.gpu_split"}
    with pytest.raises(UsageError, match=r"no selected probe failed .* did not pass: memory\.growth, memory\.fraction"):
        chosen(last, "placement")
    warned = ran(growth=PASSES, fraction=WARNS)
    with pytest.raises(UsageError, match="nothing failed"):
        chosen(warned)
    assert chosen(warned, strict=True) == {"memory.fraction"}
    nothing_verified = kept.with_changes(report(row("host.driver", passed()), gpus=GPUS))
    assert chosen(nothing_verified) == set(), "the diagnosis alone verifies each GPU"


def test_a_probe_that_is_gone_is_named() -> None:
    last = replace(ran(growth=FAILS), earlier={"memory.removed": "fail"}, gpudiag_version="0.0.9")
    assert chosen(last) == {"memory.growth"}
    note = failed.select(last, listing.names(), (), ()).note
    assert note.startswith("--failed: 1 probe without a pass since the last run (")
    assert note.endswith("; memory.removed is not a probe of this gpudiag, but of 0.0.9")


def test_runs_that_end_at_the_same_time_lose_no_failure() -> None:
    probes = [name.partition(".")[2] for name in listing.names() if name.startswith("memory.")][:8]
    reports = [report(row(f"memory.{probe}", FAILS, *GPUS), gpus=GPUS) for probe in probes]
    with ThreadPoolExecutor(len(probes)) as runs:
        list(runs.map(kept.with_changes, reports))
    assert failed.not_passed(ran(**{probes[0]: FAILS})).keys() == {f"memory.{probe}" for probe in probes}


def test_without_a_last_run_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no last run .* is kept\. Run 'gpudiag check' without --failed\.$"):
        kept.last_run(World(simulated=False))
    file = kept.Identity.here(World(simulated=False)).file(kept.RUN)
    ran(growth=FAILS)  # of another host
    assert file.parent == tmp_path / "state" / "gpudiag"
    file.write_text('{"schema_version": 9, "gpudiag_version": "3.0"}')
    for read in (kept.newest_run, lambda: kept.last_run(World(simulated=False))):
        with pytest.raises(UsageError, match=r"cannot be read: .* wrote it \(3\.0\)\. Run 'gpudiag check', without"):
            read()


@pytest.mark.parametrize(
    ("command", "again"),
    [
        ("check", "check --failed"),
        ("check memory libraries", "check memory libraries --failed"),
        ("--debug check --failed -o a.json", "--debug check --failed -o a.json"),
        (
            "check --simulate 2 --fault cuinit=999 --timeout 9",
            "check --simulate 2 --fault cuinit=999 --timeout 9 --failed",
        ),
        ("check --log app.log --strict --log=b", "check --strict --failed"),
        ("check -- memory", "check --failed -- memory"),
        ("simulate 2 --fault cuinit -- gpudiag check -v", "simulate 2 --fault cuinit -- gpudiag check -v --failed"),
        ("simulate --attach lab -- gpudiag check -- host", "simulate --attach lab -- gpudiag check --failed -- host"),
        ("check|--expect|my file.toml", "check --expect 'my file.toml' --failed"),
    ],
)
def test_the_command_is_repeated_with_every_option(command: str, again: str) -> None:
    arguments = command.split("|") if "|" in command else command.split()
    shown = replace(report(row("memory.growth", FAILS)), command=("gpudiag", *arguments))
    assert words.next_of(replace(shown, earlier={})).command == f"gpudiag {again}"
    assert "--failed" not in words.next_of(shown).command.replace("--failed", "", command.count("--failed"))


def test_no_command_is_suggested_that_cannot_become_green() -> None:
    host = replace(report(row("host.driver", passed()), gpus=GPUS), command=("gpudiag", "check", "host"))
    assert words.next_of(host).command == "gpudiag check host discovery.logical_devices", "it was not kept"
    assert words.next_of(replace(host, earlier={})).command == "gpudiag check host --failed"
    left_out = words.next_of(replace(host, earlier={}, skip=("discovery",)))
    assert left_out == words.Next(
        "No probe verified a kernel on GPU 0, GPU 1: --skip leaves out discovery.logical_devices, which does that."
    )
    for odd in (("gpudiag", "simulate"), ("gpudiag", "simulate", "--"), ("pytest", "simulate")):
        assert words.next_of(replace(host, command=odd)).command == " ".join(odd), "of a damaged report"
    of_pytest = replace(report(row("host.driver", FAILS)), command=("pytest", "-k", "a b"))
    assert words.next_of(of_pytest).command == "pytest -k 'a b'"


def test_the_printed_command_ends_with_0_once_the_fault_is_gone(gpudiag: Gpudiag) -> None:
    fault = ("--fault", "library_missing=libcudnn.so.9")
    selected = ("check", "discovery.trace", "libraries.cudnn", "libraries.cufft", "-q", "--simulate", "2")
    broken = gpudiag(*selected, *fault, "--skip", "libraries.cufft")
    assert broken.returncode == 1, broken.stdout + broken.stderr
    assert "\nleft out by --skip: libraries.cufft\nFAIL · 2 failed · 0 of 2 GPUs verified · " in broken.stdout
    (command,) = re.findall(r"^  again +(.*)$", broken.stdout, re.MULTILINE)
    assert shlex.split(command) == ["gpudiag", *selected, *fault, "--skip", "libraries.cufft", "--failed"]

    lost = gpudiag("check", "--failed", "-q")
    assert (lost.returncode, lost.stdout) == (2, "")
    assert "The last run here was on simulated GPUs: add '--simulate 2'." in lost.stderr
    again = [word for word in shlex.split(command)[1:] if word not in fault]
    mended = gpudiag(*again, "-o", "mended.json")
    assert mended.returncode == 0, mended.stdout + mended.stderr
    saved = codec.load(gpudiag.folder / "mended.json")
    assert {row.probe for row in saved.rows} == DIAGNOSIS, "one of these verifies each GPU"
    assert any(gap.why == "left out by --skip" for gap in saved.not_verified or ())
    assert saved.notes[0].startswith(
        "--failed: 2 probes without a pass since the last run (less than a minute ago, FAIL)"
    )

    nothing = gpudiag(*again)
    assert (nothing.returncode, nothing.stdout) == (2, "")
    assert "nothing failed in the last run (less than a minute ago, PASS)" in nothing.stderr
    assert f'"schema_version": {SCHEMA_VERSION},' in (gpudiag.folder / "mended.json").read_text()
    shown = codec.decode(gpudiag("show", "--last", "--format", "json").stdout, "shown")
    assert (shown.command, shown.started_at) == (saved.command, saved.started_at)


def test_of_nothing_nothing_can_be_skipped(gpudiag: Gpudiag) -> None:
    for arguments, error in (
        (("host", "--skip", "host"), "--skip host leaves out every selected probe. See 'gpudiag list'."),
        (("--skip", "memroy"), "no probe or area matches 'memroy'. Did you mean 'memory'"),
    ):
        done = gpudiag("check", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert error in done.stderr
    done = gpudiag("show")
    assert (done.returncode, "name a saved report" in done.stderr) == (2, True)


@pytest.mark.parametrize("kind", ["summary", "table", "markdown", "junit", "github", "html", "nagios"])
def test_a_pass_says_what_was_left_out_and_what_has_not_passed(kind: str) -> None:
    shown = report(row("memory.growth", PASSES, *GPUS), gpus=GPUS)
    shown = with_gaps(replace(shown, skip=("libraries",), earlier={"memory.limit": "fail", "libraries.xla": "skipped"}))
    text = " ".join(render(shown, kind, width=80, color=False).split())
    assert "left out by --skip" in text
    assert "memory.limit did not pass in an earlier run, and not since" in text
    skipped = replace(shown, earlier={shown.rows[0].probe: "fail"}, rows=(replace(shown.rows[0], outcome=NOT_REAL),))
    assert words.next_step(skipped).endswith(f"in an earlier run, and not since; now skipped: {NOT_REAL.reason}.")
