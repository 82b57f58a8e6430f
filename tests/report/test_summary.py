"""The screen: the answer is at its end, nothing is said twice, and every command stands whole on its line."""

from __future__ import annotations

import io
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from corpus import RECORDED
from gpudiag.errors import ReportError
from gpudiag.model import codec
from gpudiag.model.diagnosis import Diagnosis, RootCause
from gpudiag.model.report import Broken, Finding, NoReading, Report, Severity, Skipped, Verdict, World
from gpudiag.report import render, words
from gpudiag.report.formats.summary import HEIGHT, SEPARATOR
from gpudiag.text import one_line, put
from reports import CAP_IGNORED, GPUS, MISSPELT, passed, report, row, sample

SAVED = Path(__file__).parents[2] / "reports"
WIDTHS = (20, 33, 40, 60, 80, 120, 200, 300)


def _saved() -> dict[str, Report]:
    loaded = {}
    for path in sorted((*RECORDED.glob("*.json"), *SAVED.glob("*.json"))):
        try:
            loaded[path.stem] = codec.load(path)
        except ReportError:  # a table of measurements
            continue
    return loaded


REPORTS = _saved() | {"sample": sample()}


def screen(shown: Report, width: int = 80, *, verbose: bool = False) -> list[str]:
    return render(shown, "summary", width=width, color=False, verbose=verbose).splitlines()


def first_cause(shown: Report) -> RootCause | None:
    return min(shown.diagnosis.causes, key=lambda cause: not words.is_failure(shown, cause), default=None)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_screen_but_what_is_copied(width: int) -> None:
    for name, shown in REPORTS.items():
        causes = (*shown.diagnosis.causes, *shown.diagnosis.folded)
        actions = [action for cause in causes for action in cause.fix]
        actions += [action for row_ in shown.rows for finding in row_.findings for action in finding.fix]
        copied = {one_line(action.command) for action in actions} | {cause.url for cause in causes}
        copied |= {words.next_of(shown).command}
        wide = [line for line in screen(shown, width) if cell_len(line) > width]
        assert [line for line in wide if not any(text and line.endswith(text) for text in copied)] == [], name


def test_no_line_stands_twice() -> None:
    for name, shown in REPORTS.items():
        of_logs = "             | "
        lines = Counter(line for line in screen(shown, 1000) if line and not line.startswith(of_logs))
        assert [line for line, times in lines.items() if times > 1] == [], name


@pytest.mark.parametrize("width", WIDTHS)
def test_each_command_of_the_first_cause_stands_whole_on_its_line(width: int) -> None:
    for name, shown in REPORTS.items():
        if cause := first_cause(shown):
            lines = screen(shown, width)
            cut = any(line.startswith("  more") for line in lines)
            for action in cause.fix if not cut else cause.fix[:1]:
                if action.command:
                    assert [line for line in lines if line[10:] == one_line(action.command)], name


def test_the_last_line_is_that_of_the_counts() -> None:
    for name, shown in REPORTS.items():
        for verbose in (False, True):
            *_, last = screen(shown, 200, verbose=verbose)
            assert last.startswith(f"{words.verdict(shown)}{SEPARATOR}"), name
            assert last.endswith(f"{SEPARATOR}exit {shown.exit_code}"), name


def test_a_pass_fits_on_a_small_terminal() -> None:
    passes = [shown for shown in REPORTS.values() if shown.verdict is Verdict.PASS and not shown.diagnosis.causes]
    assert len(passes) > 3
    assert max(len(screen(shown)) for shown in passes) <= HEIGHT


def test_the_fix_of_the_first_cause_stands_on_the_last_screen() -> None:
    checked = 0
    for name, shown in REPORTS.items():
        if cause := first_cause(shown):
            first = cause.fix[0]
            end, lines = "", screen(shown)
            while lines and sum(-(-cell_len(line) // 80) or 1 for line in (end + lines[-1]).splitlines()) <= HEIGHT:
                end = f"{lines.pop()}\n{end}"
            end = " ".join(end.split())
            assert one_line(first.command or first.clause) in end, name
            checked += 1
    assert checked > 100


def test_the_cause_is_named_once_and_what_it_explains_has_no_advice() -> None:
    text = " ".join(" ".join(screen(REPORTS["02-pip-install-tensorflow-without-and-cuda"], 300)).split())
    assert text.count("for the same reason") == 1
    assert "->" not in text
    assert text.count("(proved, runtime_missing)") == 1


def test_findings_of_one_reason_are_grouped() -> None:
    faults = [Finding("differs", Severity.FAIL, f"product {number} is wrong", CAP_IGNORED.fix) for number in range(10)]
    shown = report(
        row("libraries.cublas", passed("0 of 10 right on 2 GPUs", *faults), *GPUS),
        row("libraries.cufft", passed("", MISSPELT), GPUS[0]),
        row("libraries.cufft", passed("", MISSPELT), GPUS[1]),
        gpus=GPUS,
    )
    text = " ".join(" ".join(screen(shown)).split())
    assert "FAIL cublas: 0 of 10 right on 2 GPUs: product 0 is wrong (and 9 more)" in text
    assert text.count("Unset TF_FORCE_GPU_ALLOW_GROWTH") == 1
    assert "warning cufft (GPU 0) and cufft (GPU 1): TF_FORCE" in text
    assert text.count("Did you mean") == 1


def test_a_gpu_on_which_a_check_failed_is_not_counted_as_verified() -> None:
    wrong = Finding("wrong_result", Severity.FAIL, "a matrix product is wrong")
    shown = report(
        row("placement.log", passed(on=GPUS), *GPUS),
        row("placement.manual", passed("", wrong, on=GPUS[:1]), *GPUS),
        gpus=GPUS,
    )
    assert SEPARATOR.join(("1 passed, 1 failed", "1 of 2 GPUs verified")) in screen(shown)[-1]


def test_a_check_that_failed_on_one_of_two_gpus_does_not_take_the_other() -> None:
    wrong = Finding("differs", Severity.FAIL, "a product is wrong", figures={"device": "GPU:1"})
    apart = Finding("gpu_differs", Severity.FAIL, "no kernel runs on one of them")
    for finding, verified in ((wrong, 1), (apart, 2)):
        rows = row("placement.log", passed(on=GPUS), *GPUS), row("libraries.cublas", passed("", finding), *GPUS)
        assert f"{verified} of 2 GPUs verified" in screen(report(*rows, gpus=GPUS))[-1]


def test_what_fails_on_a_gpu_that_a_cause_makes_unfit_fails_for_that_reason() -> None:
    wrong = Finding("differs", Severity.FAIL, "a product is wrong", CAP_IGNORED.fix, figures={"device": "GPU:1"})
    shown = report(row("libraries.cublas", passed("", wrong, on=GPUS[:1]), *GPUS), gpus=GPUS)
    (cause,) = REPORTS["diagnosis-library"].diagnosis.causes
    bad = msgspec.structs.replace(cause, cause="GPU 1 computes wrong", unfit=True, gpus=(GPUS[1].pci_bus_id,))
    text = "\n".join(screen(msgspec.structs.replace(shown, diagnosis=Diagnosis(causes=(bad,)))))
    assert CAP_IGNORED.fix[0].note not in text
    assert CAP_IGNORED.fix[0].note in "\n".join(screen(shown, 200))


def test_a_broken_row_that_nothing_explains_shows_its_log() -> None:
    broken = row("placement.log", Broken(NoReading.SIGNAL, "SIGSEGV"), log=("one", "two", "three", "four"))
    lines = [line.strip() for line in screen(report(broken))]
    assert "BROKEN   log: signal: SIGSEGV" in lines
    assert [line for line in lines if line.startswith("| ")] == ["| two", "| three", "| four"]


def test_with_verbose_the_whole_table_stands_above_the_answer() -> None:
    shown = REPORTS["diagnosis-library"]
    lines = screen(shown, verbose=True)
    rows = [number for number, line in enumerate(lines) if line.startswith(("pass  ", "FAIL  "))]
    answer = next(number for number, line in enumerate(lines) if line.startswith("GPU not used because"))
    assert len(rows) == len(shown.rows)
    assert max(rows) < answer
    assert lines[-1] == screen(shown)[-1]


def test_a_terminal_without_unicode_gets_signs_of_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii"))
    put("\n".join(screen(REPORTS["healthy"])), "summary")
    assert written.getvalue().decode().splitlines()[-1].startswith("PASS - 16 passed - 2 of 2 GPUs verified - ")


def test_many_actions_leave_the_first_one_on_the_screen() -> None:
    shown = REPORTS["diagnosis-library"]
    (cause,) = shown.diagnosis.causes
    actions = tuple(cause.fix[0].replaced(command=f"pip install package{number}") for number in range(40))
    many = msgspec.structs.replace(cause, fix=actions, evidence=tuple(f"line {number} " * 90 for number in range(9)))
    diagnosis = msgspec.structs.replace(shown.diagnosis, causes=(many,))
    lines = screen(msgspec.structs.replace(shown, diagnosis=diagnosis))
    assert "  fix     pip install package0" in lines[-HEIGHT:]
    assert "  more    -v shows the rest" in lines
    assert "          and 7 more: -v shows all" in lines


def test_the_machine_has_two_lines_and_the_counts_have_one() -> None:
    many = replace(
        REPORTS["healthy"],
        world=World(simulated=True, spec="8x80GiB:H100,4x16GiB:T4 --fault slow_call=cuMemAlloc_v2:3"),
        gpus=tuple(replace(GPUS[0], name=f"Simulated NVIDIA H{number} 80GB HBM3") for number in range(12)),
        skip=("memory", "libraries.*", "distribution"),
    )
    lines = screen(many)
    assert lines[1].startswith("12 GPUs of 12 models · SIMULATED · ")
    assert lines[1].endswith(" UTC")
    assert lines[-2] == "left out by --skip: memory, libraries.*, distribution"
    assert lines[-1].startswith("PASS · 16 passed · ")
    rows = [row(f"memory.p{number}", passed()) for number in range(8)]
    rows += [row(f"memory.q{number}", Broken(NoReading.SIGNAL, "SIGSEGV")) for number in range(10)]
    rows += [row(f"memory.r{number}", Skipped("no GPU")) for number in range(70)]
    rows += [row(f"memory.s{number}", passed("", MISSPELT)) for number in range(30)]
    *_, above, last = screen(report(*rows, gpus=GPUS))
    assert above == "8 passed, 30 warned, 10 broken, 70 skipped"
    assert last.startswith("BROKEN · 8 of 118 passed · 0 of 2 GPUs verified · ")
    assert len(last) <= 80


@pytest.mark.parametrize(
    ("given", "again"),
    [
        ("--level quick --format frame --quiet", "--level quick --quiet"),
        ("--format=frame --log app.log", ""),
        ("--format json --log=app.log host", "--format json host"),
    ],
)
def test_what_was_for_this_run_alone_is_not_typed_again(given: str, again: str) -> None:
    shown = report(row("a.b", passed("", CAP_IGNORED)), gpus=GPUS)
    shown = replace(shown, command=("gpudiag", "check", *given.split()), earlier=())
    assert words.next_of(shown).command == " ".join(["gpudiag check", *again.split(), "--failed"])
