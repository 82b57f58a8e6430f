"""Metrics and the line of a plugin: valid for those who read them, complete, and right about every verdict."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from gpudiag import report as formats
from gpudiag.cli import cli
from gpudiag.expectations import file, judging
from gpudiag.model import codec
from gpudiag.model.diagnosis import Diagnosis, Failed
from gpudiag.model.health import HealthCounters
from gpudiag.model.report import Limits, Report, Verdict
from gpudiag.report.formats import nagios
from gpudiag.report.formats.nagios import Status
from gpudiag.report.formats.prometheus import METRICS
from reports import CAP_IGNORED, GPUS, MISSPELT, hostile, passed, report, row, sample

REPORTS = Path(__file__).parents[2] / "reports"
SAVED = sorted(path for path in REPORTS.glob("*.json") if b'"schema_version"' in path.read_bytes()[:100])
Value = dict[tuple[str, frozenset[tuple[str, str]]], float]


def metrics(of: Report) -> Value:
    """Return the samples, as Prometheus' own parser reads them."""
    text = formats.render(of, "prometheus", width=80, color=False)
    found: Value = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge"
        assert family.documentation
        for point in family.samples:
            key = (point.name, frozenset(point.labels.items()))
            assert key not in found, "a series must not occur twice"
            found[key] = point.value
    return found


def value(found: Value, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


@pytest.mark.parametrize("saved", SAVED, ids=lambda file: file.stem)
def test_every_saved_report_is_valid_metrics(saved: Path) -> None:
    of = codec.load(saved)
    found = metrics(of)
    assert value(found, "gpudiag_exit_status") == of.exit_code
    assert {name for name, _ in found} <= {metric.name for metric in METRICS}


def test_metrics_say_what_was_left_out() -> None:
    found = metrics(msgspec.structs.replace(sample(), skip=("xla", "libraries.*", "xla")))
    assert value(found, "gpudiag_left_out_info", pattern="xla") == 1
    assert value(found, "gpudiag_left_out_info", pattern="libraries.*") == 1


def test_metrics_say_what_the_report_says() -> None:
    of = codec.load(REPORTS / "simulated-2x16GiB.json")
    found = metrics(of)
    assert [value(found, "gpudiag_verdict", verdict=verdict.value) for verdict in Verdict] == [1, 0, 0, 0]
    assert value(found, "gpudiag_rows", outcome="pass") == len(of.rows) - 1
    assert value(found, "gpudiag_rows", outcome="skipped") == 1
    assert value(found, "gpudiag_gpus_verified") == 2
    assert value(found, "gpudiag_gpu_memory_total_bytes", gpu="1", uuid="GPU-uuid-b") == 16 << 30
    assert value(found, "gpudiag_probe_outcome", probe="memory.growth", device="GPU 0", outcome="pass") == 1
    failed = metrics(sample())
    assert value(failed, "gpudiag_verdict", verdict="FAIL") == 1
    assert value(failed, "gpudiag_probe_outcome", probe="memory.fraction", device="GPU 0", outcome="fail") == 1


def test_the_time_is_that_of_the_end() -> None:
    # date -u -d '2026-01-31T12:00:00Z' +%s: 1769860800
    assert value(metrics(report()), "gpudiag_run_end_timestamp_seconds") == 1769860804.25


def accepted() -> Report:
    waiver = {"finding": "host.environment.misspelt", "reason": "known", "until": date(2026, 12, 31)}
    of = report(row("host.environment", passed("", MISSPELT)), row("memory.growth", passed(on=GPUS)), gpus=GPUS)
    return judging.judged(of, file.read({"gpus": 3, "accept": [waiver]}, "e"), date(2026, 2, 1))


def test_the_parser_reads_every_metric() -> None:
    incomplete = msgspec.structs.replace(report(), diagnosis=Diagnosis(failed=(Failed("nvml", "timed out"),)))
    partial = msgspec.structs.replace(report(), skip=("memory",))
    recorded = (Path(__file__).parents[1] / "recorded" / "load" / "faulty.json").read_text()
    loaded = codec.decode(recorded.replace("Simulated GPU", "NVIDIA GPU"), "recorded")  # real GPUs have rates
    counted = HealthCounters(corrected_errors=0), HealthCounters(corrected_errors=3)
    rose = msgspec.structs.replace(loaded.health[0], before=counted[0], after=counted[1])
    loaded = msgspec.structs.replace(loaded, health=(rose, *loaded.health[1:]))
    reports = (*map(codec.load, SAVED), accepted(), incomplete, partial, loaded)
    assert {name for of in reports for name, _ in metrics(of)} == {metric.name for metric in METRICS}


def test_expectations_and_what_is_accepted_are_metrics() -> None:
    found = metrics(accepted())
    assert value(found, "gpudiag_expectation_met", expectation="gpus") == 0
    assert value(found, "gpudiag_expectation_met", expectation="accept") == 1
    # date -u -d '2027-01-01' +%s: 1798761600
    name = "gpudiag_acceptance_end_timestamp_seconds"
    assert value(found, name, finding="host.environment.misspelt") == 1798761600


def test_hostile_texts_are_labels_and_nothing_else() -> None:
    names = {name for name, _ in metrics(hostile())}
    assert names <= {metric.name for metric in METRICS}


def test_names_follow_openmetrics() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"gpudiag(_[a-z]+)+", metric.name)
        assert not metric.name.endswith(("_total", "_count", "_sum", "_bucket")), "these are of counters and histograms"
        assert {"seconds": "_seconds", "bytes": "_bytes"}.get(metric.help.rpartition(" in ")[2], "") in metric.name


CLEAN = report(row("memory.growth", passed(on=GPUS)), gpus=GPUS)
WARNED = report(row("memory.growth", passed("", MISSPELT, on=GPUS)), gpus=GPUS)


@pytest.mark.parametrize(
    ("of", "status"),
    [
        (CLEAN, Status.OK),
        (WARNED, Status.WARNING),
        (report(*WARNED.rows, gpus=GPUS, limits=Limits(strict=True)), Status.CRITICAL),
        (report(row("memory.growth", passed("", CAP_IGNORED, on=GPUS)), gpus=GPUS), Status.CRITICAL),
        (codec.load(REPORTS / "diagnosis-mask.json"), Status.CRITICAL),
        (report(), Status.UNKNOWN),
        (report(*CLEAN.rows, gpus=GPUS, signal=15), Status.UNKNOWN),
        (msgspec.structs.replace(sample(), verdict=Verdict.BROKEN), Status.UNKNOWN),
        (codec.load(REPORTS / "cpu-only.json"), Status.UNKNOWN),
    ],
)
def test_the_first_line_is_that_of_a_plugin(of: Report, status: Status) -> None:
    assert nagios.status(of) is status
    first, *rest = formats.render(of, "nagios", width=80, color=True, verbose=True).splitlines()
    text, _, data = first.partition(" | ")
    assert text.startswith(f"GPUDIAG {status.name} - {of.verdict.value}: ")
    for part in data.split():
        assert re.fullmatch(r"\w+=\d+(\.\d+)?s?(;[\d:]*){0,4}", part), part
    assert not [line for line in rest if "|" in line], "it would begin more performance data"


def test_the_line_cannot_be_broken_by_what_a_program_wrote() -> None:
    shown = formats.render(hostile(), "nagios", width=80, color=False)
    assert shown.count("|") == 1
    assert "\x1b" not in shown


def test_show_is_a_plugin_too(tmp_path: Path) -> None:
    runner = CliRunner()
    saved = str(REPORTS / "cpu-only.json")
    done = runner.invoke(cli, ["show", saved, "--exit-scheme", "nagios"], standalone_mode=False)
    assert (done.return_value, done.stdout[:17]) == (3, "GPUDIAG UNKNOWN -")
    done = runner.invoke(cli, ["show", saved, "--exit-scheme", "nagios", "--format", "json"], standalone_mode=False)
    assert (done.return_value, done.stdout[:1]) == (3, "{")
    (tmp_path / "e.toml").write_text("gpus = 1\n")
    arguments = ["show", saved, "--exit-scheme", "nagios", "--expect", str(tmp_path / "e.toml")]
    assert runner.invoke(cli, arguments, standalone_mode=False).return_value == 2
