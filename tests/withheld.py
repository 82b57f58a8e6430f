"""Reports as they would be if everything that was run had gone well: does what is known of the machine forbid PASS?"""

from __future__ import annotations

from msgspec.structs import replace

from gpudiag.cause import Evidence
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.facts import Unknown
from gpudiag.model.report import SCHEMA_VERSION, Limits, Report, Row, Verdict, World, conclude
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.run import diagnosis
from reports import passed

VERIFIES = "memory.growth"


def concluded(evidence: Evidence) -> Report:
    """Return the report of a machine on which one probe ran and verified a kernel on every GPU in scope."""
    gpus = gpus_in_scope(evidence.facts)
    rows = (*evidence.rows, _verifies(evidence))
    return conclude(
        Report(
            schema_version=SCHEMA_VERSION,
            gpudiag_version="0.1.0",
            started_at="2026-01-31T12:00:00+00:00",
            duration_s=1.0,
            command=("gpudiag", "check"),
            isolation="fork",
            world=World(simulated=False),
            limits=Limits(),
            facts=evidence.facts,
            gpus=gpus,
            rows=rows,
            signal=None,
            lines=evidence.lines,
            diagnosis=diagnosis.diagnose(replace_rows(evidence, rows)),
        )
    )


def _verifies(evidence: Evidence) -> Row:
    gpus = gpus_in_scope(evidence.facts)
    return Row(VERIFIES, tuple(gpu.uuid for gpu in gpus), passed(on=gpus), 0.1)


def replace_rows(evidence: Evidence, rows: tuple[Row, ...]) -> Evidence:
    return Evidence(evidence.facts, gpus_in_scope(evidence.facts), rows, evidence.lines)


def green(report: Report) -> Report:
    """Return ``report`` with nothing wrong in its rows, as if what was found there had not been looked for."""
    rows = tuple(replace(row, outcome=passed()) for row in report.rows if row.probe != VERIFIES)
    return conclude(replace(report, rows=(*rows, report.rows[-1])))


def contradicts(report: Report) -> bool:
    """Return whether the report names a reason against a pass, and passes; written again, from the issue's words."""
    causes = (*report.diagnosis.causes, *report.diagnosis.folded)
    proved = any(cause.confidence is Confidence.PROVED and cause.stage is not Stage.CONFIGURATION for cause in causes)
    nvml = report.facts.nvml
    lost = (
        not isinstance(nvml, Unknown)
        and nvml.error is not None
        and "CUDA_VISIBLE_DEVICES" not in report.facts.variables
    )
    return report.verdict is Verdict.PASS and (proved or lost)


def with_any_one_probe(report: Report) -> list[Report]:
    """Return the reports that runs of each of the probes alone could have given, if all went well; and of none."""
    facts = Evidence(report.facts, report.gpus, (), report.lines)
    alone = [replace(report, rows=(row,)) for row in report.rows]
    return [concluded(facts), *(green(replace(variant, rows=(*variant.rows, _verifies(facts)))) for variant in alone)]
