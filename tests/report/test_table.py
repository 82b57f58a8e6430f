"""The table: it fits, it is complete, and it says what to do."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len

from gpudiag.fix import Action, check, export, install, note, run
from gpudiag.knowledge.placement import Placement
from gpudiag.model.report import (
    Broken,
    Finding,
    Interrupted,
    Judged,
    Limits,
    NoReading,
    Report,
    Row,
    Severity,
    Skipped,
    World,
)
from gpudiag.report import render, words
from gpudiag.text import one_line, plain
from reports import GPUS, HOSTILE, MISSPELT, hostile, passed, report, row, sample

WIDTHS = (20, 33, 44, 60, 72, 80, 81, 120, 200)
REPORTS = {
    "sample": sample(),
    "simulated": sample(World(simulated=True, spec="2x16GiB")),
    "hostile": hostile(),
    "empty": report(),
}


def table(shown: Report, width: int = 80, *, color: bool = False, verbose: bool = False) -> str:
    return render(shown, "table", width=width, color=color, verbose=verbose)


def squeezed(text: str) -> str:
    """Return ``text`` without white space: wrapped words are whole again."""
    return "".join(text.split())


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", REPORTS)
def test_no_line_is_wider(name: str, width: int, verbose: bool) -> None:
    lines = table(REPORTS[name], width, verbose=verbose).splitlines()
    fixes = (action.command for row in REPORTS[name].rows for finding in row.findings for action in finding.fix)
    allowed = {one_line(command) for command in fixes if command}
    commands = [line for line in lines if line.strip().startswith("gpudiag check ")]
    whole = [line for line in lines if line in commands or line.strip().removeprefix("-> ") in allowed]
    assert max(cell_len(line) for line in lines if line not in whole) <= width
    assert len(commands) <= 1


@pytest.mark.parametrize("width", [20, 33, 40, 60, 80, 200])
@pytest.mark.parametrize(
    "fix",
    [
        (run("sudo nvidia-smi -pm 1 --id=0,1,2,3", "keeps what is long; or start the service that does the same"),),
        (export("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),),
        (export("A", "x y z", "chooses them"), check("nvidia-smi -L")),
        (note("See above."), check("gpudiag explain discovery.trace", "if it names none")),
        (note("first"), install("a b"), run("sudo reboot now", "then")),
        (note("nothing is typed: the words say it all, and there are many of them"),),
    ],
)
def test_no_command_is_broken_and_no_word_lost(fix: tuple[Action, ...], width: int) -> None:
    found = Finding("slow", Severity.WARNING, "it is slow", fix)
    lines = table(report(row("memory.growth", passed("", found))), width).splitlines()
    commands = [action.command for action in fix if action.command]
    for command in commands:
        assert [line for line in lines if command in line], lines
    below = lines[next(number for number, line in enumerate(lines) if "->" in line) :]
    assert squeezed(words.advice(found)).replace(",", "") in squeezed(" ".join(below)).replace(",", "")
    wide = [line for line in lines if cell_len(line) > width]
    assert all(line.strip().removeprefix("-> ") in commands for line in wide)
    assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", REPORTS)
def test_everything_is_there(name: str, width: int) -> None:
    shown = REPORTS[name]
    text = squeezed(table(shown, width))
    for shown_row in shown.rows:
        by_area = not isinstance(shown_row.outcome, Skipped | Interrupted)
        assert squeezed(one_line(shown_row.name if by_area else shown_row.probe)) in text
        assert squeezed(one_line(shown_row.area)) in text
        for finding in shown_row.findings:
            assert squeezed(plain(finding.message)) in text
            assert squeezed(f"->{plain(words.advice(finding))}") in text
        if isinstance(shown_row.outcome, Judged):
            assert squeezed(plain(shown_row.outcome.figure)) in text
        if isinstance(shown_row.outcome, Skipped | Interrupted):
            assert squeezed(words.figure(shown_row)) in text
        if isinstance(shown_row.outcome, Broken):
            assert squeezed(plain(f"{shown_row.outcome.cause.value}: {shown_row.outcome.detail}")) in text
    assert shown.verdict.value.replace(" ", "") in text
    assert f"exitstatus{shown.exit_code}" in text
    for gpu in shown.gpus:
        assert squeezed(plain(gpu.name)) in text


def test_escape_sequences_of_others_do_not_reach_the_terminal() -> None:
    assert re.findall(r"[^\n -~\xa0-\U0010ffff]", table(hostile())) == []
    assert "\x1b[31mred" not in table(hostile(), color=True)
    assert "red" in table(hostile(), color=True)


@pytest.mark.parametrize("name", REPORTS)
def test_colour_changes_nothing_else(name: str) -> None:
    plainly, coloured = table(REPORTS[name]), table(REPORTS[name], color=True)
    assert "\x1b" not in plainly
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plainly


def test_colour_follows_the_caller_and_not_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = table(sample(), color=True)
    for variable, value in {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "30", "FORCE_COLOR": "0"}.items():
        monkeypatch.setenv(variable, value)
    assert table(sample(), color=True) == expected


def test_one_line_for_each_probe_that_ran() -> None:
    shown = sample()
    for width, verbose in ((80, False), (80, True), (120, False)):
        lines = table(shown, width, verbose=verbose).splitlines()
        for shown_row in shown.rows:
            if not isinstance(shown_row.outcome, Skipped | Interrupted):
                device, duration = re.escape(shown.device_label(shown_row)), re.escape(f"{shown_row.duration_s:.2f} s")
                timed = f" +{duration}" if width > 80 or verbose else ""
                line = re.compile(
                    rf"{shown_row.status} +{re.escape(shown_row.name)} +{device}{timed}  +\S", re.IGNORECASE
                )
                assert len([found for found in lines if line.match(found)]) == 1, shown_row.probe


ALIKE = [row(f"area.probe{number}", passed("nothing seen", MISSPELT), GPUS[0]) for number in range(4)]


@pytest.mark.parametrize("format_", ["table", "markdown"])
def test_findings_that_several_probes_share_are_told_once_with_all_their_names(format_: str) -> None:
    shown = report(*ALIKE, row("area.other", passed("2 of 2")), gpus=GPUS)
    text = render(shown, format_, width=200, color=False, verbose=False)
    assert text.count("Did you mean") == 1
    for number in range(4):
        assert f"area.probe{number}" in text
    assert render(shown, format_, width=200, color=False, verbose=True).count("Did you mean") == 4


def test_of_few_probes_and_of_a_verbose_table_each_row_has_its_own_findings() -> None:
    assert table(report(*ALIKE[:2], gpus=GPUS)).count("Did you mean") == 2
    assert table(report(*ALIKE, gpus=GPUS), 80, verbose=True).count("nothing seen") == 4
    assert "4 probes found the same" in table(report(*ALIKE, gpus=GPUS))


def test_a_wide_terminal_cuts_no_figure() -> None:
    figure = "one figure of " + "many words and " * 8 + "one end"
    assert figure in table(report(row("placement.log", passed(figure))), 200)


def test_rows_of_an_area_stand_together() -> None:
    lines = table(report(row("host.a", passed()), row("memory.b", passed()), row("host.c", passed()))).splitlines()
    first, second, third = (lines.index(line) for probe in "acb" for line in lines if f"    {probe} " in line)
    assert lines[first - 1].strip() == "host"
    assert second == first + 1
    assert [line.strip() for line in lines[second + 1 : third]] == ["", "memory"]


def test_findings_stand_below_their_row_in_their_order() -> None:
    text = table(sample())
    parts = (" environment ", "warning: TF_FORCE", "-> Did you mean", "note: growth is forced", "-> Nothing")
    positions = [text.index(part) for part in parts]
    assert positions == sorted(positions)


def test_a_reason_to_skip_is_told_once() -> None:
    lines = table(sample()).splitlines()
    assert [line for line in lines if "needs 4 GPUs, 2 here" in line] == ["5 skipped: needs 4 GPUs, 2 here"]


def test_an_area_that_is_skipped_in_whole_is_named_once() -> None:
    skipped = [row(f"memory.{name}", Skipped("no GPU")) for name in ("growth", "limit", "fraction", "allocator")]
    assert "         all 4 of memory\n" in table(report(*skipped))
    assert "memory.growth, memory.limit, memory.fraction, memory.allocator" in table(report(*skipped), verbose=True)
    ran = row("memory.shared_gpu", passed("shared"), GPUS[0])
    for other in (ran, row("memory.shared_gpu", Skipped("needs 2 GPUs, 1 here"))):
        assert "memory.growth, memory.limit, memory.fraction, memory.allocator" in table(report(*skipped, other))
    assert "memory.growth, memory.limit, memory.fraction\n" in table(report(*skipped[:3]))


def test_a_skipped_row_says_which_gpus() -> None:
    assert "memory.growth GPU 1" in table(report(row("memory.growth", Skipped("stopped"), GPUS[1]), gpus=GPUS))


def test_a_broken_row_shows_the_end_of_its_log() -> None:
    log = tuple(f"line {number}" for number in range(40))
    shown = report(row("placement.log", Broken(NoReading.SIGNAL, "SIGSEGV"), log=log))
    briefly, fully = (re.findall(r"\| (line \d+)", table(shown, verbose=verbose)) for verbose in (False, True))
    assert briefly == ["line 37", "line 38", "line 39"]
    assert fully == list(log[-12:])


def test_the_log_of_a_row_that_ran_well_is_not_shown() -> None:
    assert "noise" not in table(report(row("placement.log", passed("fine"), log=("noise",))), verbose=True)


def test_where_operations_ran_is_told_on_request() -> None:
    placements = (
        Placement("_Arg", "CPU:0", "x"),
        Placement("MatMul", "GPU:0", count=2),
        Placement("MatMul", "GPU:0", "node"),
        Placement("AddV2", "CPU:0"),
        *(Placement(f"Op{number}", "CPU:0") for number in range(9)),
    )
    shown = report(Row("placement.log", (), passed(), 0.1, placements=placements))
    assert "MatMul" not in table(shown)
    assert "ran: MatMul x3 on GPU:0, AddV2 on CPU:0, Op0 on CPU:0" in table(shown, 200, verbose=True)
    assert "on CPU:0, and 3 more\n" in table(shown, 200, verbose=True)
    assert "_Arg" not in table(shown, 200, verbose=True)


def test_simulated_gpus_are_announced_before_anything_else() -> None:
    lines = table(sample(World(simulated=True, spec="2x16GiB"))).splitlines()
    assert lines[1] == "SIMULATED GPUs (2x16GiB): nothing here was measured on a real GPU"
    assert "SIMULATED" not in table(sample())


FAILED = Finding("fault", Severity.FAIL, "it is wrong", (note("mend it"),))


@pytest.mark.parametrize(
    ("shown", "ending"),
    [
        (
            report(row("memory.growth", Skipped("no GPU"))),
            "NOT VERIFIED: 1 skipped; exit status 5; 4.2 s\n"
            "No GPU is in scope, so nothing was verified. If you expect no GPU, add --allow-no-gpu.\n",
        ),
        (
            report(row("host.driver", passed()), limits=Limits(allow_no_gpu=True)),
            "NOT VERIFIED: 1 passed; exit status 0; 4.2 s\n"
            "No GPU is in scope, so nothing was verified; --allow-no-gpu accepts that.\n",
        ),
        (
            report(row("memory.growth", passed(on=GPUS[:1]), GPUS[0]), gpus=GPUS),
            "NOT VERIFIED: 1 passed; exit status 5; 4.2 s\n"
            "No probe verified a kernel on GPU 1, because none that does was selected. Run one, too: "
            "gpudiag check discovery.logical_devices\n",
        ),
        (
            report(row("host.gpus", passed("", FAILED)), row("memory.growth", Broken(NoReading.TIMEOUT, "60 s"))),
            "FAIL: 1 failed, 1 broken; exit status 1; 4.2 s\nFix what failed, then: gpudiag check\n",
        ),
        (
            report(row("host.environment", passed("", MISSPELT)), limits=Limits(strict=True)),
            "FAIL: 1 warned; exit status 1; 4.2 s\n"
            "Fix what failed (with --strict, warnings too), then: gpudiag check\n",
        ),
        (
            report(
                row("memory.growth", Broken(NoReading.TIMEOUT, "60 s")),
                row("memory.growth", Broken(NoReading.TIMEOUT, "")),
            ),
            "BROKEN: 2 broken; exit status 3; 4.2 s\nA broken probe gives no result. Run it again: gpudiag check -v\n",
        ),
        (
            report(row("memory.growth", passed(on=GPUS), *GPUS), gpus=GPUS),
            "PASS: 1 passed; exit status 0; 4.2 s\n",
        ),
        (
            report(row("memory.growth", passed(on=GPUS), *GPUS), gpus=GPUS, signal=15),
            "NOT VERIFIED: 1 passed; exit status 143; 4.2 s\n"
            "SIGTERM stopped the run before all probes had run. Run the rest: gpudiag check\n",
        ),
        (report(signal=200), "signal 200 stopped the run before all probes had run. Run the rest: gpudiag check\n"),
        (report(), "NOT VERIFIED: no probe ran; exit status 5; 4.2 s\n"),
    ],
)
def test_the_end_says_the_verdict_and_what_to_do(shown: Report, ending: str) -> None:
    assert ending in table(shown, 200)


def test_a_small_report_as_a_whole() -> None:
    shown = report(
        row(
            "host.driver",
            passed("no NVIDIA driver", Finding("n", Severity.NOTE, "libcuda.so.1 is not there", (note("Mend."),))),
        ),
        row("placement.soft_fallback", passed("/GPU:99 runs on CPU:0"), s=0.123),
        row("placement.log", passed("a figure that is longer than its column, which is wide"), s=12.0),
        row("memory.growth", Skipped("no GPU")),
        row("memory.fraction", Skipped("no GPU")),
    )
    assert (
        table(shown)
        == """\
gpudiag 0.1.0, 2026-01-31 12:00:00 UTC
TensorFlow  2.21.0, built for CUDA 12.5.1 and cuDNN 9
Python      3.11.7 on Debian GNU/Linux 12 (bookworm), x86_64
driver      none
GPUs        none

outcome  probe          device  measured
-------  -------------  ------  ----------------------------------------------
         host
note     driver         host    no NVIDIA driver
         note: libcuda.so.1 is not there
           -> Mend.

         placement
pass     soft_fallback  CPU     /GPU:99 runs on CPU:0
pass     log            CPU     a figure that is longer than its column, which
                                is wide

2 skipped: no GPU
         memory.growth, memory.fraction

NOT VERIFIED: 2 passed, 1 with notes, 2 skipped; exit status 5; 4.2 s
No GPU is in scope, so nothing was verified. If you expect no GPU, add
--allow-no-gpu.
"""
    )


def test_hostile_text_is_hostile() -> None:
    assert "\x1b" in HOSTILE
    assert "\x00" in HOSTILE


def test_a_table_of_a_row_is_shown_where_more_is_asked_for() -> None:
    cells = (("NVML", "CUDA"), ("0", "1"))
    made = report(row("discovery.physical_devices", Judged(figure="2 of 2", table=cells)))
    for format_ in ("table", "markdown"):
        assert "NVML" not in render(made, format_, width=80, color=False, verbose=False)
        shown = render(made, format_, width=80, color=False, verbose=True)
        assert re.search(r"NVML\W+CUDA.*\n.*0\W+1", shown, re.DOTALL)
