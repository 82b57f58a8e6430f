"""What a node's command wrote becomes an answer: its report, or the reason why there is none."""

from __future__ import annotations

import json
import signal

import msgspec
import pytest
from fleets import framed, healthy, unfit

from conftest import Gpudiag
from gpudiag.fleet.carrying import answer_of
from gpudiag.fleet.launcher import Done
from gpudiag.model import frame
from gpudiag.model.codec import encoded
from gpudiag.model.fleet import NoReport


def done(output: str | bytes = b"", errors: str = "", status: int | None = 0, *, timed_out: bool = False) -> Done:
    return Done(status, output.encode() if isinstance(output, str) else output, errors, 1.0, timed_out)


TRACEBACK = """Traceback (most recent call last):
  File "/usr/bin/gpudiag", line 5, in <module>
    from gpudiag.__main__ import main
{}
"""


@pytest.mark.parametrize(
    ("result", "reason", "text"),
    [
        (done(), NoReport.NO_ANSWER, "it ended with status 0"),
        (done(status=-9), NoReport.NO_ANSWER, "it was ended by SIGKILL"),
        (done(status=137), NoReport.NO_ANSWER, "it was ended by SIGKILL"),
        (done(status=None, errors="ssh: No such file or directory"), NoReport.NOT_STARTED, "No such file"),
        (done(status=124), NoReport.TIMED_OUT, "status 124"),
        (done(status=126, errors="timeout: gpudiag: Permission denied"), NoReport.NOT_STARTED, "Permission denied"),
        (done(status=127, errors="bash: gpudiag: Kommando nicht gefunden."), NoReport.NO_GPUDIAG, "nicht gefunden"),
        (done(status=1, errors="python3: No module named gpudiag"), NoReport.NO_GPUDIAG, "No module named"),
        (
            done(status=1, errors=TRACEBACK.format("ModuleNotFoundError: No module named 'click'")),
            NoReport.NO_GPUDIAG,
            "ModuleNotFoundError: No module named 'click'",
        ),
        (
            done(status=1, errors=TRACEBACK.format("SyntaxError: invalid syntax")),
            NoReport.NO_ANSWER,
            "SyntaxError: invalid syntax",
        ),
        (done("Welcome!\n"), NoReport.NOT_A_REPORT, "Welcome!"),
        (done(bytes(range(256)) * 100, status=1), NoReport.NOT_A_REPORT, ""),
        (done(framed(healthy())[:300]), NoReport.CUT_SHORT, "more were announced"),
        (done(framed(healthy())[:300], timed_out=True), NoReport.TIMED_OUT, ""),
        (done(framed(healthy()) + framed(unfit())), NoReport.DUPLICATE, "different reports"),
        (done(framed(healthy()).replace("report 1", "report 2")), NoReport.OTHER_VERSION, "version 2"),
        (done("x", "\x1b]0;title\x07\x1b[2J\x1b[31mred\r\n"), NoReport.NOT_A_REPORT, "red"),
    ],
)
def test_a_result_without_a_report_has_a_reason_and_its_last_line(result: Done, reason: NoReport, text: str) -> None:
    answer, report = answer_of("n1", 1, result)
    assert (answer.reason, report) == (reason, None)
    assert text in answer.last_line
    assert "\x1b" not in answer.last_line


def changed(**fields: object) -> str:
    """Return the frame of a report in which somebody has changed fields."""
    content = json.loads(encoded(healthy()))
    assert set(fields) <= set(content)
    return frame.framed(msgspec.json.encode({**content, **fields}))


def test_a_report_of_another_schema_is_no_verdict() -> None:
    answer, report = answer_of("n1", 1, done(changed(schema_version=99)))
    assert (answer.reason, report) == (NoReport.OTHER_VERSION, None)


@pytest.mark.parametrize("verdict", ["FAIL", "BROKEN", "GOOD", None, 1])
def test_a_report_whose_verdict_was_edited_is_no_report(verdict: object) -> None:
    answer, report = answer_of("n1", 1, done(changed(verdict=verdict)))
    assert (answer.reason, answer.summary, report) == (NoReport.NOT_A_REPORT, None, None)


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"{" * 100_000, b"\xff\xfe", b'{"verdict": "PASS"}'])
def test_a_frame_around_something_else_is_no_report(content: bytes) -> None:
    answer, _ = answer_of("n1", 1, done(frame.framed(content)))
    assert answer.reason in (NoReport.NOT_A_REPORT, NoReport.OTHER_VERSION)
    assert answer.summary is None


def test_a_report_that_is_complete_counts_whatever_became_of_its_command() -> None:
    for result in (done(framed(healthy()), status=255), done(framed(healthy()), timed_out=True)):
        answer, _ = answer_of("n1", 2, result)
        assert (answer.reason, answer.attempt) == (None, 2)


@pytest.mark.starts
@pytest.mark.parametrize("option", ["--format=framf", "--deadlinf=5", "--quieu"])
def test_this_gpudiag_says_of_an_option_that_it_lacks_what_the_rules_look_for(gpudiag: Gpudiag, option: str) -> None:
    """An older one lacks ``--format frame`` or ``--deadline``: its sentence is this one's about a misspelt option."""
    refused = gpudiag("check", option)
    spelt = {"framf": "frame", "--deadlinf": "--deadline", "--quieu": "--quiet"}
    errors = refused.stderr
    for wrong, right in spelt.items():
        errors = errors.replace(wrong, right, 1)
    assert answer_of("n1", 1, done("", errors, refused.returncode))[0].reason is NoReport.OTHER_VERSION


def test_a_misspelt_option_of_the_user_is_not_of_an_old_gpudiag() -> None:
    errors = "gpudiag: error: no option of 'gpudiag check' is called '--levle'. Did you mean '--level'?"
    assert answer_of("n1", 1, done("", errors, 2))[0].reason is NoReport.NOT_STARTED


@pytest.mark.starts
def test_of_an_error_in_several_lines_the_one_that_names_the_fault_is_kept(gpudiag: Gpudiag) -> None:
    refused = gpudiag("check", "--simulate", "h100")
    answer, _ = answer_of("n1", 1, done("", refused.stderr, refused.returncode))
    assert (answer.reason, answer.last_line) == (
        NoReport.NOT_STARTED,
        "gpudiag: error: a number of GPUs is missing",
    )


def test_signals_have_the_numbers_that_a_shell_adds_to_128() -> None:
    assert answer_of("n1", 1, done(status=128 + signal.SIGSEGV))[0].last_line == "it was ended by SIGSEGV"
