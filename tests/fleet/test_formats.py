"""CSV, Prometheus, Markdown and JSON of a fleet's report, read by a reader of each."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import jsonschema
import msgspec
import pytest
from merged_fleets import failed, hostile_fleet, merged_fleet, missing, passed, small_fleet
from prometheus_client.parser import text_string_to_metric_families

from gpudiag.errors import UsageError
from gpudiag.model import codec
from gpudiag.model.fleet import FleetReport, NoReport
from gpudiag.report.fleet import FORMATS, format_of, render
from gpudiag.report.fleet.formats import prometheus
from gpudiag.text import plain


def rows_of(report: FleetReport) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(render(report, "csv", width=80, color=False))))


def samples_of(report: FleetReport) -> dict[tuple[str, ...], float]:
    """Return the value of each series, by its name and the values of its labels."""
    text = render(report, "prometheus", width=80, color=False)
    return {
        (sample.name.removeprefix("gpudiag_fleet_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_each_format_has_a_suffix_of_its_own() -> None:
    assert set(FORMATS) == {"table", "json", "csv", "html", "markdown", "prometheus"}
    found = {name: format_of(Path(f"fleet{suffix}")) for name, suffix in _SUFFIXES.items()}
    assert found == {name: name for name in FORMATS}
    with pytest.raises(UsageError, match=r"\.txt, .*\.prom"):
        format_of(Path("fleet.pdf"))


_SUFFIXES = {
    "table": ".txt",
    "json": ".json",
    "csv": ".csv",
    "html": ".HTML",
    "markdown": ".md",
    "prometheus": ".prom",
}


@pytest.mark.parametrize("format_", FORMATS)
def test_nothing_that_a_terminal_obeys_gets_into_a_format(format_: str) -> None:
    text = render(hostile_fleet(), format_, width=80, color=False)
    assert plain(text) == text
    assert text.endswith("\n")


def test_csv_has_a_row_for_each_node() -> None:
    [flaky] = rows_of(merged_fleet(passed("n1"), failed("n1")))
    assert (flaky["verdict"], flaky["cause"], flaky["attempts"]) == ("FLAKY", "mask_hides_all", "PASS, FAIL")
    report = small_fleet()
    rows = rows_of(report)
    assert [row["node"] for row in rows] == [row.node for row in report.rows]
    by_node = {row["node"]: row for row in rows}
    assert by_node["n4"] == {
        "node": "n4",
        "rack": "r1",
        "verdict": "FAIL",
        "reason": "",
        "cause": "mask_hides_all",
        "text": "the mask hides all GPUs",
        "attempts": "",
        "simulated": "",
    }
    assert (by_node["n5"]["verdict"], by_node["n5"]["reason"], by_node["n5"]["cause"]) == ("NO REPORT", "timed out", "")


def test_csv_and_metrics_say_which_gpus_are_simulated() -> None:
    [of_simulated, of_real] = passed("n1"), passed("n2")
    assert of_simulated.summary is not None
    summary = msgspec.structs.replace(of_simulated.summary, simulated=True)
    report = merged_fleet(msgspec.structs.replace(of_simulated, summary=summary), of_real)
    assert [row["simulated"] for row in rows_of(report)] == ["simulated", ""]
    assert samples_of(report)["simulated_nodes",] == 1


@pytest.mark.parametrize("text", ['=cmd|"/c calc"!A0', "+1", "-2+3", "@SUM(A1)", "\t=1", " \x1b[0m=1", "\uff1d1"])
def test_csv_has_no_cell_that_a_spreadsheet_computes(text: str) -> None:
    [row] = rows_of(merged_fleet(missing("n1", NoReport.LOST, text), racks={"n1": text}))
    assert row["text"].startswith("'")
    assert row["rack"].startswith("'")


def test_csv_keeps_each_hostile_node_on_a_line() -> None:
    report = hostile_fleet()
    lines = render(report, "csv", width=80, color=False).splitlines()
    assert len(lines) == 1 + len(report.rows)
    assert len(rows_of(report)) == len(report.rows)


def test_metrics_count_nodes_by_verdict_cause_and_reason() -> None:
    samples = samples_of(small_fleet())
    assert samples["nodes", "FAIL"] == 4
    assert samples["nodes", "FLAKY"] == 0  # there, too, so that an alert can ask for it
    assert samples["cause_nodes", "FAIL", "mask_hides_all"] == 3
    assert samples["cause_nodes", "FAIL", "library_missing"] == 1
    assert samples["no_report_nodes", "timed out"] == 1
    assert samples["no_report_nodes", "lost"] == 0
    assert samples["drift_nodes", "driver"] == 3
    assert samples["actions", "set a variable", "scheduler"] == 3
    assert samples["outliers", "PCIe lanes"] == 1
    assert (samples["together", "FAIL"], samples["together", "PASS"]) == (1, 0)
    assert (samples["asked_nodes",], samples["exit_status",], samples["unmet_expectations",]) == (10, 1, 0)


def test_metrics_of_a_hostile_fleet_can_be_read() -> None:
    assert samples_of(hostile_fleet())["asked_nodes",] == 10


def test_the_number_of_series_is_bounded_and_no_node_is_lost() -> None:
    number = prometheus.MOST + 50
    samples = samples_of(merged_fleet(*(failed(f"n{node}", f"cause_{node}") for node in range(number))))
    causes = {labels: value for labels, value in samples.items() if labels[0] == "cause_nodes"}
    assert len(causes) == prometheus.MOST + 1
    assert causes["cause_nodes", "other", "other"] == 50
    assert not any("n7" in labels for labels in samples)  # no series is one node's


def test_json_fits_its_schema_and_can_be_read_again() -> None:
    schema = codec.schema("fleet")
    jsonschema.Draft202012Validator.check_schema(schema)
    for report in (small_fleet(), hostile_fleet(), merged_fleet()):
        content = render(report, "json", width=80, color=False)
        jsonschema.validate(json.loads(content), schema)
        assert msgspec.json.decode(content, type=FleetReport) == report
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**json.loads(content), "schema_version": 99}, schema)


def test_markdown_has_each_group_and_escapes_what_nodes_say() -> None:
    text = render(small_fleet(), "markdown", width=80, color=False)
    assert re.search(r"\| FAIL +\| +3 \| n\\\[4,6-7\\\] +\| mask_hides_all +\|", text)
    assert "3 of 3 have in common: driver 535.10" in text
    assert "- **n4: its port is taken**\n  - n1: Connection refused\n  - fix: ss -ltnp\n" in text
    hostile = render(hostile_fleet(), "markdown", width=80, color=False)
    outside_code = re.sub(r"`[^`\n]*`", "", hostile)
    assert "alert" in outside_code
    assert "`" not in outside_code.replace("\\`", "")
    assert "<script>" not in outside_code
    assert "@team" not in outside_code


def test_a_fleet_that_passed_has_no_empty_section() -> None:
    text = render(merged_fleet(passed("n1"), passed("n2")), "markdown", width=80, color=False)
    assert "##" not in text.replace("## Nodes", "")
