"""a probe fails with an error that no other cause explains

No cause of the catalogue fits what this machine shows. This is the first error of the first probe that failed, with its
meaning if it is one that NVIDIA's driver or libraries document.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.cause import Cause, Gpus, Match, Matches, Rows
from gpudiag.causes.shared.last_resort import CODES, FIRST, LOOK
from gpudiag.causes.shared.steps import FirstFailed
from gpudiag.fix import ask, kernel_log
from gpudiag.knowledge.codes import code_in, meaning_of
from gpudiag.knowledge.log_lines import is_error, text
from gpudiag.knowledge.message import Event
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.report import Broken, Row, Severity
from gpudiag.text import listed

CAUSE = Cause(
    title="{probe} fails{where}: {error}{meaning}",
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
    row, event = next(((row, event) for row in failed if (event := _code(row)) is not None), (failed[0], None))
    said = next(_texts(row), row.status)
    names = [f"GPU {gpu.index}" for gpu in gpus if gpu.uuid in row.devices]
    meaning = "" if event is None else meaning_of(event)
    lines = () if event is None or text(event.line) in said else (text(event.line),)
    yield Match(
        evidence=(f"{row.probe}: {said}", *lines),
        confidence=Confidence.LIKELY if event is not None else Confidence.POSSIBLE,
        figures={
            "probe": row.probe,
            "where": f" on {listed(names)}" if names else "",
            "error": said if event is None else event.text,
            "meaning": f": {meaning}" if meaning else "",
        },
        stage=broken.stage if broken is not None else _STAGES.get(row.area, Stage.FIRST_OP),
    )


def _texts(row: Row) -> Iterator[str]:
    """Yield the failure of a row in words, then the errors of its log."""
    yield from (finding.message for finding in row.findings if finding.severity is Severity.FAIL)
    if isinstance(row.outcome, Broken):
        yield f"{row.outcome.cause.value}: {row.outcome.detail}"
    yield from (line for line in row.log if is_error(line))


def _code(row: Row) -> Event | None:
    """Return the first error of NVIDIA's driver or libraries that a row names."""
    return next(filter(None, map(code_in, _texts(row))), None)
