"""CSV for spreadsheets and scripts: a row for every node that was asked for."""

from __future__ import annotations

import csv
import io

from gpudiag.model.fleet import FleetReport
from gpudiag.text import one_line

SUFFIX = ".csv"
COLUMNS = ("node", "rack", "verdict", "reason", "cause", "text", "attempts", "simulated")
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Spreadsheets compute a cell that begins so; those with Japanese settings, wide signs as well
(https://owasp.org/www-community/attacks/CSV_Injection)."""


def render(report: FleetReport, **_: object) -> str:
    """Return the rows in the order in which the nodes were asked for; an apostrophe is put before what a spreadsheet
    would compute."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in report.rows:
        reason = row.reason.value if row.reason is not None else ""
        cause = "" if row.reason is not None else row.label
        cells = (row.node, report.racks.get(row.node, ""), row.verdict.value, reason, cause, row.text)
        writer.writerow(map(_harmless, (*cells, ", ".join(row.attempts), "simulated" if row.simulated else "")))
    return written.getvalue()


def _harmless(text: str) -> str:
    cell = one_line(text)
    return f"'{cell}" if cell.startswith(_FORMULA) else cell
