"""The compatibility report of ``scripts/tf_matrix.py``: joining, comparing and rendering, without its environments."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

import tf_matrix
from examples.facts import example_with_gpus
from gpudiag.model.facts import TensorflowFacts
from gpudiag.model.report import Broken, Judged, NoReading, Report, Row, Skipped
from reports import GPUS, HOSTILE, MISSPELT, OVERRIDDEN, passed, report, row
from tf_matrix import Cell, Column, Found, Matrix, differences, join, markdown

FIRST, SECOND = GPUS


def under(release: str, *rows: Row) -> Report:
    """Return a report of two GPUs under a TensorFlow."""
    facts = example_with_gpus(2)
    assert isinstance(facts.tensorflow, TensorflowFacts)
    installed = replace(facts.tensorflow.distributions[0], version=release)
    return report(
        *rows, gpus=GPUS, facts=replace(facts, tensorflow=replace(facts.tensorflow, distributions=(installed,)))
    )


def growth(first: Judged | Skipped | Broken, second: Judged | Skipped | Broken) -> tuple[Row, Row]:
    return row("memory.growth", first, FIRST, s=0.2), row("memory.growth", second, SECOND, s=0.3)


def two_versions() -> dict[str, Report | str]:
    """Return reports that differ in ``memory.growth`` on GPU 1 and in ``placement.log``, and in nothing that counts."""
    alike = passed("grew from 2 to 130 MiB", on=(FIRST,))
    return {
        "2.18": under(
            "2.18.1",
            row("host.tensorflow", passed("tensorflow 2.18.1, CUDA 12.5.1")),
            row("placement.log", Skipped("needs TensorFlow >=2.19, 2.18.1 is installed")),
            *growth(alike, alike),
            row("memory.other", passed("1 MiB after 0.31 s"), *GPUS, s=4),
        ),
        "2.21": under(
            "2.21.0",
            row("host.tensorflow", passed("tensorflow 2.21.0, CUDA 12.5.1")),
            row("placement.log", passed("6 of 6")),
            *growth(alike, passed("took it | all", OVERRIDDEN, MISSPELT, on=(SECOND,))),
            row("memory.other", passed("1 MiB after 12 s"), *GPUS, s=9),
        ),
    }


def test_the_matrix_has_a_line_for_each_probe_and_device_and_a_cell_for_each_version() -> None:
    matrix = join(two_versions())
    assert [(line.probe, line.device, list(line.cells)) for line in matrix.lines] == [
        ("host.tensorflow", "host", ["2.18", "2.21"]),
        ("placement.log", "CPU", ["2.18", "2.21"]),
        ("memory.growth", "GPU 0", ["2.18", "2.21"]),
        ("memory.growth", "GPU 1", ["2.18", "2.21"]),
        ("memory.other", "GPU 0-1", ["2.18", "2.21"]),
    ]
    assert matrix.columns == (
        Column("2.18", "2.18.1", "3.11.7", "12.5.1", "9"),
        Column("2.21", "2.21.0", "3.11.7", "12.5.1", "9"),
    )
    cell = matrix.lines[3].cells["2.21"]
    assert (cell.outcome, cell.figure, cell.brief) == ("warning", "took it | all", "overridden, misspelt")
    assert [finding.severity for finding in cell.found] == ["note", "warning"]


def test_json_holds_the_whole_matrix() -> None:
    matrix = join({**two_versions(), "2.20": "pip: no wheel"})
    assert msgspec.json.decode(msgspec.json.encode(matrix), type=Matrix) == matrix


def test_the_page_shows_what_differs_and_joins_what_does_not() -> None:
    text = markdown(join(two_versions()))
    assert "Simulated GPUs (2x16GiB)" in text
    assert "TensorFlow 2.18.1<br>Python 3.11.7<br>CUDA 12.5.1, cuDNN 9" in text
    rows = [[cell.strip() for cell in line.split(" | ")] for line in text.splitlines() if line.startswith("| ")]
    table = {(cells[0].strip("| "), cells[1]): [cell.rstrip(" |") for cell in cells[2:]] for cells in rows[1:]}
    assert table == {
        ("`host.tensorflow`", "host"): ["pass", "pass"],
        ("**`placement.log`**", "CPU"): [
            "skipped: needs TensorFlow \\>=2.19, 2.18.1 is installed",
            "pass: 6 of 6",
        ],
        ("`memory.growth`", "GPU 0"): ["pass", "pass"],
        ("**`memory.growth`**", "GPU 1"): ["pass: grew from 2 to 130 MiB", "warning: overridden, misspelt"],
        ("`memory.other`", "GPU 0-1"): ["pass", "pass"],
    }
    details = text.partition("## Differences")[2]
    assert "`memory.growth` on GPU 1:" in details
    assert "- 2.21.0: warning (took it \\| all); note overridden: growth is forced by a variable; warning" in details
    assert "memory.other" not in details


def test_devices_that_behave_alike_under_every_version_share_a_line_of_the_page() -> None:
    noted = passed("grew", OVERRIDDEN)
    text = markdown(
        join({"2.20": under("2.20.0", *growth(noted, noted)), "2.21": under("2.21.0", *growth(noted, noted))})
    )
    assert text.count("`memory.growth`") == 1
    assert "GPU 0, GPU 1" in text
    assert "note: overridden" in text, "what is no pass says why, also where the versions agree"
    assert "None: every probe behaves alike" in text


def test_versions_that_behave_alike_are_told_together() -> None:
    log = {"2.19": "6 of 6", "2.20": "6 of 6", "2.21": "5 of 6"}
    text = markdown(join({name: under(f"{name}.0", row("placement.log", passed(it))) for name, it in log.items()}))
    assert "- 2.19.0, 2.20.0: pass (6 of 6)\n- 2.21.0: pass (5 of 6)" in text


def test_a_version_that_could_not_be_measured_is_a_column_with_the_reason() -> None:
    reports = {**two_versions(), "2.22": "pip install: exit status 1: ERROR: No matching distribution found"}
    matrix = join(reports)
    assert matrix.columns[2] == Column("2.22", broken=str(reports["2.22"]))
    text = markdown(matrix)
    assert "TensorFlow 2.22<br>not measured" in text
    assert "- 2.22: pip install: exit status 1: ERROR: No matching distribution found" in text
    assert "no row" not in text
    assert "`host.tensorflow` on" not in text.partition("## Differences")[2], "a column without cells differs in none"


def test_one_version_alone_is_not_said_to_agree_with_others() -> None:
    reports: dict[str, Report | str] = {"2.21": two_versions()["2.21"], "2.22": "no wheel"}
    assert "Not known: fewer than two versions were measured." in markdown(join(reports))


def test_a_broken_probe_says_what_broke_it() -> None:
    reports = two_versions()
    reports["2.21"] = under("2.21.0", row("placement.log", Broken(NoReading.SIGNAL, "SIGSEGV")))
    text = markdown(join(reports))
    assert "broken: signal: SIGSEGV" in text
    assert "no row" in text, "of probes that are in one report alone"


def test_texts_of_other_programs_leave_the_table_whole() -> None:
    hostile = Cell("fail", "", (Found("fail", HOSTILE, HOSTILE),))
    assert len(hostile.brief) <= tf_matrix.LONGEST_IN_TABLE
    text = markdown(join({"2.21": under("2.21.0", row("placement.log", Skipped(HOSTILE)))}))
    (line,) = [line for line in text.splitlines() if "placement.log" in line]
    assert line.replace("\\|", "").count("|") == 4


# ---- Comparing ----


def test_what_is_measured_again_is_as_committed() -> None:
    assert list(differences(join(two_versions()), join(two_versions()))) == []


def test_durations_and_patch_releases_do_not_count() -> None:
    again = two_versions()
    again["2.21"] = under(
        "2.21.3",
        row("host.tensorflow", passed("tensorflow 2.21.3, CUDA 12.5.1"), s=3),
        row("placement.log", passed("6 of 6"), s=1),
        *growth(passed("grew from 2 to 130 MiB"), passed("took it | all", MISSPELT, OVERRIDDEN)),
        row("memory.other", passed("1 MiB after 250 ms"), *GPUS),
    )
    assert list(differences(join(two_versions()), join(again))) == []


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (passed("5 of 6"), "pass (5 of 6)"),
        (passed("6 of 6", OVERRIDDEN), "note (6 of 6); note overridden: growth is forced by a variable"),
        (Skipped("no GPU"), "skipped (no GPU)"),
        (Broken(NoReading.TIMEOUT, "60 s"), "broken (timeout: 60 s)"),
        (None, "no row"),
    ],
)
def test_a_cell_that_differs_is_told(outcome: Judged | Skipped | Broken | None, told: str) -> None:
    was = join({"2.21": under("2.21.0", row("placement.log", passed("6 of 6")))})
    now = join({"2.21": under("2.21.0", *([] if outcome is None else [row("placement.log", outcome)]))})
    assert list(differences(was, now)) == [f"2.21: placement.log: committed: pass (6 of 6); now: {told}"]
    assert list(differences(now, was)) == [f"2.21: placement.log: committed: {told}; now: pass (6 of 6)"]


def test_only_the_versions_measured_now_are_compared() -> None:
    reports = two_versions()
    assert list(differences(join(reports), join({"2.21": reports["2.21"]}))) == []
    assert list(differences(join({"2.21": reports["2.21"]}), join(reports))) == ["2.18: not in the committed report"]


def test_a_version_that_is_broken_now_differs() -> None:
    reports = two_versions()
    now = join({**reports, "2.21": "no wheel"})
    assert list(differences(join(reports), now)) == ["2.21: committed: measured; now: no wheel"]
    assert list(differences(now, now)) == []


# ---- Exit status ----


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, Report | str]:
    """What the environments would give; change it as a test goes on."""
    reports = two_versions()
    monkeypatch.setattr(tf_matrix, "measured", lambda versions, *_: {version: reports[version] for version in versions})
    return reports


def test_writing_and_then_checking(
    measured: dict[str, Report | str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["-o", str(tmp_path), "--versions", "2.18", "2.21"]
    assert tf_matrix.main(arguments) == 0
    assert {file.name for file in tmp_path.iterdir()} == {"tensorflow-matrix.json", "tensorflow-matrix.md"}
    assert tf_matrix.main([*arguments, "--check"]) == 0
    measured["2.21"] = under("2.21.0")
    assert tf_matrix.main([*arguments[:3], "2.18", "--check"]) == 0, "the other version is not asked"
    capsys.readouterr()
    assert tf_matrix.main([*arguments, "--check"]) == 1
    assert "2.21: memory.growth GPU 1: committed: warning" in capsys.readouterr().out
    measured["2.21"] = "no wheel"
    assert tf_matrix.main(arguments) == 1
    assert tf_matrix.main([*arguments, "--check"]) == 1, "as committed, but nothing was measured"


@pytest.mark.parametrize("arguments", [["--check"], ["--versions", "latest"]])
def test_wrong_usage(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        tf_matrix.main([*arguments, "-o", str(tmp_path)])
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_an_environment_that_cannot_be_made_is_no_traceback(tmp_path: Path) -> None:
    reports = tf_matrix.measured(["2.21"], tmp_path, str(tmp_path / "no-python"))
    assert reports == {"2.21": "no-python -m venv: No such file or directory"}
