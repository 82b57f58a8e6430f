"""Fleets for tests: answers of nodes, and the reports that are merged from them."""

from __future__ import annotations

from typing import Any

import msgspec

from gpudiag.fix import note, run
from gpudiag.fleet.merge import merged
from gpudiag.fleet.sources import Source
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.fleet import (
    ActionSum,
    ActionText,
    Answer,
    CauseSummary,
    Drift,
    FactChange,
    FigureChange,
    FleetReport,
    NearFact,
    NodeChange,
    NoReport,
    Outlier,
    Separation,
    Summary,
)
from gpudiag.model.report import Verdict
from gpudiag.model.together import Blame, Together

HOSTILE = '\x1b[31mred\x1b]0;title\x07<script>alert(1)</script> "quoted\\" `code` | *b* @team \u202eback\nnext line'
"""Text that a terminal, a browser, Markdown or Prometheus would obey."""
STARTED_AT = "2026-11-28T12:00:00+00:00"


def passed(node: str, **facts: str) -> Answer:
    return Answer(node, summary=_summary(Verdict.PASS, "", facts))


def failed(node: str, cause: str = "mask_hides_all", headline: str = "the mask hides all GPUs", **facts: str) -> Answer:
    causes = (CauseSummary(cause, headline, Confidence.PROVED),)
    return Answer(node, summary=msgspec.structs.replace(_summary(Verdict.FAIL, headline, facts), causes=causes))


def not_verified(node: str, **facts: str) -> Answer:
    return Answer(node, summary=_summary(Verdict.NOT_VERIFIED, "", facts))


def missing(node: str, reason: NoReport, last_line: str = "") -> Answer:
    return Answer(node, 1, reason, last_line)


def _summary(verdict: Verdict, headline: str, facts: dict[str, str]) -> Summary:
    return Summary("0.1.0", STARTED_AT, 9.5, "quick", verdict, headline, facts=facts)


def merged_fleet(*answers: Answer, racks: dict[str, str] | None = None, **options: Any) -> FleetReport:
    """Return the report that is merged from answers."""
    asked = tuple(dict.fromkeys(answer.node for answer in answers))
    return merged(Source(answers, asked, "run", "ssh", "8f2c1a04", racks or {}), **options)


def small_fleet() -> FleetReport:
    """Return a report that has everything a report of a fleet can have."""
    report = merged_fleet(
        *(passed(f"n{number}", driver="550.54") for number in (1, 2, 3)),
        *(failed(f"n{number}", driver="535.10") for number in (4, 6, 7)),
        failed("n8", "library_missing", "libcudnn.so.9 was not found"),
        not_verified("n9"),
        missing("n5", NoReport.TIMED_OUT, "[12/71] discovery.logical_devices"),
        missing("n10", NoReport.UNREACHABLE, "ssh: connect to host n10 port 22: Connection refused"),
        racks={f"n{number}": "r1" if number < 6 else "r2" for number in range(1, 11)},
    )
    return msgspec.structs.replace(report, **findings(), together=together())


def together(text: str = "") -> Together:
    """Return what is said of nodes that do not train together, with a text in each place."""
    blame = Blame(
        (f"n4{text}",),
        f"its port is taken{text}",
        (f"n1: Connection refused{text}",),
        (run(f"ss -ltnp{text}"), note(f"Another job has the port{text}.")),
    )
    return Together("FAIL", f"1 of 4 nodes keeps the others from it{text}", (), (blame,), notes=(f"no NCCL{text}",))


def findings() -> dict[str, Any]:
    """Return what a merge may find, as fields of a report."""
    return {
        "separations": (
            Separation(
                "mask_hides_all",
                (("driver", "535.10"),),
                *(3, 4, 3, 5, 0.001, 0.87),
                same=("image v7", "kernel 6.1"),
                near=(NearFact("rack", "r1", 2, 3),),
                same_labels=("driver_too_old",),
            ),
        ),
        "outliers": (
            Outlier("n2", 3, "NVIDIA H100 80GB HBM3", "float16 product", 412e12, 610e12, -9.1),
            Outlier("n3", 0, "NVIDIA H100 80GB HBM3", "PCIe lanes", 8.0, 16.0, -9.1, 48, ("memory",)),
            Outlier("n1", 1, "Simulated H100", "memory", 2e9, 4e9, -9.1, 48),
        ),
        "drift": (Drift("driver", "550.54", 3, (("535.10", "n[4,6-7]", 3),), "NVIDIA L40S", ("image",)),),
        "actions": (
            ActionSum(
                "set a variable",
                "scheduler",
                "n[4,6-7]",
                3,
                (ActionText("unset CUDA_VISIBLE_DEVICES", True, 3),),
            ),
            ActionSum("reboot", "host", "n8", 1, ()),
            ActionSum(
                "install",
                "here",
                "n[1-3]",
                3,
                (ActionText("pip install tensorflow", True, 2), ActionText("Ask for a wheel.", False, 1)),
            ),
        ),
        "against": "before",
        "changes": (
            NodeChange("PASS", "FAIL mask_hides_all", "n[4,6-7]", 3, True),
            NodeChange("FAIL library_missing", "PASS", "n1", 1, False),
        ),
        "fact_changes": (FactChange("driver", "545.23", "550.54", 3, 4, "n9", 1, ("kernel 6.1 -> 6.2",)),),
        "figure_changes": (
            FigureChange("NVIDIA H100 80GB HBM3", "float16 product", 612e12, 590e12, -0.036, 0.004, 64, True, True),
            FigureChange("Simulated H100", "memory", 4e9, 4.1e9, 0.02, 0.04, 8, False),
        ),
    }


def hostile_fleet() -> FleetReport:
    """Return a report whose names and texts are :data:`HOSTILE`, as those of files and of nodes can be."""

    def changed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: changed(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [changed(item) for item in value]
        return f"{value}{HOSTILE}" if isinstance(value, str) else value

    report = small_fleet()
    plain = msgspec.to_builtins(report)
    kept = ("counts", "made_at")
    hostile = {name: value if name in kept else changed(value) for name, value in plain.items()}
    hostile["racks"] = {f"{node}{HOSTILE}": rack for node, rack in hostile["racks"].items()}
    for name in ("groups", "rows"):
        for old, new in zip(plain[name], hostile[name], strict=True):
            new |= {key: old[key] for key in ("verdict", "reason") if key in old}
    del hostile["together"]
    return msgspec.structs.replace(msgspec.convert(hostile, FleetReport), together=together(HOSTILE))
