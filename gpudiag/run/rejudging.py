"""Judges a saved report again by the current probes and causes."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gpudiag import catalogue
from gpudiag.cause import Evidence
from gpudiag.isolate import Bounds, ServerSpec, supervise
from gpudiag.model.report import Judged, Report, Row, conclude
from gpudiag.run import judgement
from gpudiag.run.accounts import account
from gpudiag.run.bisected import with_bisection
from gpudiag.run.explained import with_reasons
from gpudiag.run.gaps import with_gaps
from gpudiag.run.servers import PLAIN
from gpudiag.run.views import with_one_voice


def rejudge(report: Report, work: judgement.Work = judgement.here) -> Report:
    """Return ``report`` with every row that has a reading judged again by the current probes.

    A row keeps its outcome, with a note, if its reading lacks figures that its probe measures today.
    """
    saved = catalogue.decode_readings(report.rows)
    subject = judgement.JudgedSubject(
        report.facts, report.gpus, saved, report.lines, report.limits, report.program, report.health
    )
    rows = judgement.rows_again(subject, work)
    diagnosis = judgement.diagnosed(msgspec.structs.replace(subject, rows=rows), work)
    trials = {
        (cause.cause_id, str(cause.trial.change)): cause.trial for cause in report.diagnosis.causes if cause.trial
    }
    causes = tuple(
        msgspec.structs.replace(cause, trial=trials.get((cause.cause_id, str(cause.trial.change)), cause.trial))
        if cause.trial
        else cause
        for cause in diagnosis.causes
    )
    diagnosis = msgspec.structs.replace(diagnosis, causes=causes)
    evidence = Evidence(report.facts, report.gpus, rows, report.lines)
    diagnosis = with_bisection(diagnosis, report.diagnosis.bisection, evidence)
    accounts = account(evidence, diagnosis)
    rows = with_reasons(with_one_voice(rows, diagnosis, report.gpus), diagnosis, report.gpus)
    notes = tuple(dict.fromkeys((*report.notes, *_of_another_version(report, saved))))
    judged = msgspec.structs.replace(report, rows=rows, diagnosis=diagnosis, accounts=accounts, notes=notes)
    again = conclude(judged if report.not_verified is None else with_gaps(judged))
    # No row gives the exit status of a report on a program: it stays that of the trace.
    return again if report.program is None else msgspec.structs.replace(again, exit_code=report.exit_code)


def _of_another_version(report: Report, rows: tuple[Row, ...]) -> Iterator[str]:
    """Yield a note that names the probes whose readings come from another version."""
    entries_by_name = {entry.name: entry for entry in catalogue.entries()}
    kept = [
        row.probe
        for row in rows
        if isinstance(row.outcome, Judged)
        and row.probe in entries_by_name
        and judgement.is_of_another_version(row, entries_by_name[row.probe])
    ]
    if kept:
        yield (
            f"not judged again, because their readings are those of another version of these probes: "
            f"{', '.join(dict.fromkeys(kept))}; their outcome is that of gpudiag {report.gpudiag_version}"
        )


def rejudge_apart(report: Report) -> Report:
    """Do as :func:`rejudge` in a child process, because judging a crafted report can take for ever."""
    with supervise({PLAIN: ServerSpec()}, Bounds()) as children:
        return rejudge(report, judgement.Apart(children, PLAIN))
