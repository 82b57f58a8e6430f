"""A rule that raises, crashes or never ends costs itself alone; a deadline and signals hold while it does."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import gpudiag as package
from conftest import DEADLINE_S, Gpudiag
from examples.facts import example
from gpudiag.cause import CatalogueCause, Cause, Evidence, Match
from gpudiag.fix import note
from gpudiag.model import codec
from gpudiag.model.diagnosis import Diagnosis, Failed, Stage
from gpudiag.model.facts import Facts
from gpudiag.model.report import Broken, Report, Verdict, conclude
from gpudiag.report import FORMATS, render
from gpudiag.run import diagnosis, judgement, rejudging
from reports import passed, report, row, sample

pytestmark = [pytest.mark.usefixtures("no_child_left"), pytest.mark.starts]

FILE = '''"""a cause

why
"""
from __future__ import annotations

import os, re, signal
from pathlib import Path
from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import note
from gpudiag.model.facts import Facts

CAUSE = Cause(fix=(note("a fix"),), url="https://a.b", needs_gpu=False)

def begun() -> None:
    (Path(os.environ["HOME"]) / "begun").touch()

def find(facts: Facts) -> Matches:
    {body}
    yield Match(("seen",))
'''
BODIES = {
    "in_re": """begun(); re.search("(a+)+$", "a" * 64 + "b")  # 2 ** 64 ways""",
    "in_python": "begun(); list(iter(int, 1))",
    "raising": """yield Match(("seen before it raised",)); raise LookupError("on purpose")""",
    "crashing": "os.kill(os.getpid(), signal.SIGSEGV)",
    "exiting": "os._exit(0)",
    "good": "",
}


class Altered(Gpudiag):
    """Runs in an environment of its own: an editable installation would be imported before any copy."""

    def command(self, *arguments: str, flags: tuple[str, ...] = ()) -> list[str]:
        return [str(self.folder / "venv" / "bin" / "python"), *self.interpreter(*arguments, flags=flags)[1:]]


def with_rules(tmp_path: Path, *names: str) -> Gpudiag:
    """Run a copy of the package that has these rules besides."""
    altered = Altered(tmp_path)
    venv.create(altered.folder / "venv", symlinks=True)
    source = Path(package.__file__).parent
    copy = altered.folder / "checkout" / source.name
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("lib", "src"))
    for name in (*names, "good"):
        (copy / "causes" / "configuration" / f"{name}.py").write_text(FILE.replace("{body}", BODIES[name]))
    altered.path.insert(0, str(copy.parent))
    altered.environment["HOME"] = str(altered.folder)
    return altered


def parsed(text: str) -> Report:
    return codec.decode(text, "standard output")


def failures(found: Report) -> dict[str, str]:
    return {failure.part: failure.why for failure in found.diagnosis.failed}


def test_what_fails_is_named_and_costs_no_other(tmp_path: Path) -> None:
    names = ("in_re", "in_python", "raising", "crashing", "exiting")
    altered = with_rules(tmp_path, *names)
    done = altered("check", "host", "--timeout", "2", "--format", "json", "-o", "r.txt")
    assert done.returncode == 3, done.stderr
    found = parsed(done.stdout)
    assert found.verdict is Verdict.BROKEN
    assert {row.status for row in found.rows} == {"pass"}
    assert len(found.rows) == 7
    assert failures(found) == {
        "in_re": "it took more than 2 s",
        "in_python": "it took more than 2 s",
        "raising": "it raised LookupError: LookupError('on purpose')",
        "crashing": "killed by SIGSEGV",
        "exiting": "exited with status 0 without a result",
    }
    assert [cause.cause_id for cause in found.diagnosis.causes] == ["good"]
    assert len(found.diagnosis.steps) == len(Stage) - 2  # the configuration and the program are no steps
    text = (altered.folder / "r.txt").read_text()
    assert "BROKEN: 7 passed; exit status 3" in text
    for name in names:
        assert name in text


def printed(process: subprocess.Popen[str]) -> str:
    """Return what the process printed, once it has ended."""
    try:
        out, _ = process.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return out


@pytest.mark.parametrize(
    ("rule", "number"),
    # Ctrl-C is tried of judging again, too.
    [("in_re", signal.SIGTERM), pytest.param("in_python", signal.SIGINT, marks=pytest.mark.slow)],
)
def test_a_signal_ends_a_rule_that_hangs(
    rule: str, number: int, tmp_path: Path, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    altered = with_rules(tmp_path, rule)
    with altered.start("check", "host", "--timeout", "50", "--format", "json") as process:
        wait_until((altered.folder / "begun").exists)
        process.send_signal(number)
        out = printed(process)
    assert process.returncode == 128 + number
    found = parsed(out)
    assert {row.status for row in found.rows} == {"pass"}
    assert (found.verdict, failures(found)) == (Verdict.NOT_VERIFIED, {})
    stopped = f"stopped by {signal.Signals(number).name}, at {rule}"
    assert f"{judgement.REST} was {stopped}: a cause may be missing" in found.notes


def test_a_deadline_holds_while_a_rule_hangs(tmp_path: Path) -> None:
    altered = with_rules(tmp_path, "in_re")
    for deadline_s in (5, 15, 45):  # on a busy machine the shortest passes before there is anything to diagnose
        done = altered("check", "host", "--deadline", str(deadline_s), "--format", "json")
        if (altered.folder / "begun").exists():
            break
    assert done.returncode == 3
    assert f"the deadline of {deadline_s} s" in failures(parsed(done.stdout))[judgement.REST]


def test_ctrl_c_ends_judging_again(tmp_path: Path, wait_until: Callable[[Callable[[], bool]], None]) -> None:
    altered = with_rules(tmp_path, "in_re")
    (altered.folder / "r.json").write_text(codec.encode(report(facts=example())))
    with altered.start("show", "r.json", "--rejudge") as process:
        wait_until((altered.folder / "begun").exists)
        process.send_signal(signal.SIGINT)
        printed(process)
    assert process.returncode == 130


def test_judging_again_apart_comes_to_the_same() -> None:
    for saved in (sample(), report(), codec.load(Path(__file__).parents[2] / "reports" / "simulated-2x16GiB.json")):
        assert rejudging.rejudge_apart(saved) == rejudging.rejudge(saved)


def test_a_row_whose_judging_hangs_is_broken(tmp_path: Path) -> None:
    altered = with_rules(tmp_path)
    package_ = altered.folder / "checkout" / "gpudiag"
    with (package_ / "probes" / "host" / "gpus.py").open("a") as probe:
        probe.write("\n\ndef figure(facts):\n    while True:\n        pass\n")
    work = package_ / "run" / "judgement.py"
    work.write_text(work.read_text().replace("PART_S = 10.0", "PART_S = 2.0"))
    names = ("host.driver", "host.gpus", "host.environment")
    (altered.folder / "r.json").write_text(codec.encode(report(*(row(name, passed()) for name in names))))
    done = altered("show", "r.json", "--rejudge", "--format", "json")
    assert done.returncode == 0, done.stderr
    found = parsed(done.stdout)
    assert found.verdict is Verdict.BROKEN
    assert [row.status for row in found.rows] == ["pass", "broken", "pass"]
    outcome = found.rows[1].outcome
    assert isinstance(outcome, Broken)
    assert outcome.detail == "judging it: it took more than 2 s"
    assert "good" in [cause.cause_id for cause in found.diagnosis.causes]


def failing(error: Callable[[Facts], object]) -> CatalogueCause:
    def find(facts: Facts) -> Any:
        error(facts)
        yield Match(("never",))

    declared = Cause(fix=(note("fix"),), url="https://a.b", needs_gpu=False)
    return CatalogueCause("fails", Stage.CONFIGURATION, "a cause", "why", declared, find)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (lambda _: 1 / 0, "ZeroDivisionError"),
        (lambda _: exec("raise SystemExit(0)"), "SystemExit"),
        (lambda _: "\ud800".encode(), "UnicodeEncodeError"),
    ],
    ids=["division", "exit", "encoding"],
)
def test_the_pure_diagnosis_names_a_rule_that_raises(
    error: Callable[[Facts], object], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {cause.id: cause for cause in (*diagnosis.rules(), failing(error))}
    monkeypatch.setattr(diagnosis, "rules", lambda: tuple(known.values()))
    monkeypatch.setattr(diagnosis, "get", known.get)
    found = diagnosis.diagnose(Evidence(example()))
    assert [failure.part for failure in found.failed] == ["fails"]
    assert found.failed[0].why.startswith(f"it raised {name}: ")


def test_what_failed_stands_in_every_format() -> None:
    broken = conclude(replace(report(), diagnosis=Diagnosis(failed=(Failed("a_rule", "it raised ValueError"),))))
    assert (broken.verdict, broken.exit_code) == (Verdict.BROKEN, 3)
    for format_ in FORMATS:
        text = render(broken, format_, width=200, color=False)
        assert "a_rule" in text.replace("\\", "")
        assert "it raised ValueError" in text
    assert json.loads(codec.encode(broken))["diagnosis"]["failed"][0]["part"] == "a_rule"
