"""a probe fails with an error that no other cause explains

No cause of the catalogue fits what this machine shows. This is the first error of the first probe that failed, with its
meaning if it is one that NVIDIA's driver or libraries document.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Gpus, Match, Matches, Rows
from gpudiag.causes.shared.gpu_state import addresses
from gpudiag.causes.shared.last_resort import CODES, FIRST, LOOK, code_in_row, texts_of
from gpudiag.causes.shared.steps import FirstFailed
from gpudiag.fix import ask, kernel_log
from gpudiag.knowledge.codes import meaning_of
from gpudiag.knowledge.log_lines import text
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.report import Gpu, Judged, Row, Severity
from gpudiag.probes.comparison import last_announced
from gpudiag.text import counted, listed

CAUSE = Cause(
    title="{what}: {error}{meaning}",
    fix=(
        ask("gpudiag check -v {probe}", "runs the probe again, with its log"),
        FIRST,
        LOOK,
        kernel_log("shows what the kernel reports about the GPU"),
    ),
    url=CODES,
    last_resort=True,
    symptom=True,
)
_STAGES = {"host": Stage.CONFIGURATION, "memory": Stage.MEMORY}
"""The stage that a failed probe of an area breaks; the other areas compute on GPUs."""


def find(rows: Rows, gpus: Gpus, broken: FirstFailed | None) -> Matches:
    failed = [row for row in rows if row.status == "fail" or row.crash]
    if not failed:
        return
    row, event = next(((row, event) for row in failed if (event := code_in_row(row)) is not None), (failed[0], None))
    said = next(texts_of(row), row.status)
    failing = _failing(row, gpus)
    meaning = "" if event is None else meaning_of(event)
    lines = () if event is None or text(event.line) in said else (text(event.line),)
    names = listed([f"GPU {gpu.index}" for gpu in failing])
    right = [other for other in rows if {gpu.pci_bus_id for gpu in failing} & _verified(other)]
    on = f" on {names}" if failing else ""
    works = f"right on {names}: {counted(len(right), 'other probe')}" if failing and right else ""
    yield Match(
        evidence=(f"{row.probe}: {said}", *lines, *filter(None, [works])),
        confidence=Confidence.LIKELY if event is not None else Confidence.POSSIBLE,
        figures={
            "probe": row.probe,
            "what": f"{names} fails in {row.probe}" if len(failing) == 1 else f"{row.probe} fails{on}",
            "error": said if event is None else event.text,
            "meaning": f": {meaning}" if meaning else "",
        },
        stage=broken.stage if broken is not None else _STAGES.get(row.area, Stage.FIRST_OP),
        gpus=addresses(failing) if len(failing) == 1 else (),
    )


def _failing(row: Row, gpus: Gpus) -> list[Gpu]:
    """Return the GPUs of a row on which it failed: those that its findings name, or on which its process ended."""
    given = sorted((gpu for gpu in gpus if gpu.uuid in row.devices), key=lambda gpu: row.devices.index(gpu.uuid))
    failures = [finding for finding in row.findings if finding.severity is Severity.FAIL]
    named = {str(figure) for finding in failures for figure in finding.figures.values()}
    named |= {last_announced(row.log).rpartition(" on ")[2]}
    return [gpu for number, gpu in enumerate(given) if f"GPU:{number}" in named] or given


def _verified(row: Row) -> set[str]:
    return {*row.outcome.verified} if isinstance(row.outcome, Judged) else set()
