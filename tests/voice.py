"""Two commands for one thing in a report: a finding says one, a cause another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpudiag import catalogue
from gpudiag.cause import Evidence
from gpudiag.model.diagnosis import Diagnosis
from gpudiag.model.report import Limits, Row
from gpudiag.run import diagnosis, views
from gpudiag.run.views import with_one_voice

HOST = [entry for entry in catalogue.entries() if entry.area == "host"]

_VARIABLE = re.compile(r"\b(?:export (?P<set>[A-Z_]+)=(?P<value>\S+)|unset (?P<unset>[A-Z_]+))")
_PIP = re.compile(r"\bpip install (?P<words>(?:(?:'[^']+'|[\w.\[\]<>=,~-]+)(?: |$|,|;))+)")


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield what a command of ``text`` is about (a variable, a package), and the command."""
    for found in _VARIABLE.finditer(text):
        yield found["set"] or found["unset"], found[0].rstrip(".,;")
    for found in _PIP.finditer(text):
        words = re.findall(r"'[^']+'|[\w.\[\]<>=,~-]+", found["words"])
        for word in (word.strip("',") for word in words if not word.startswith("-")):
            yield re.split(r"[\[<>=~]", word)[0], f"pip install {word}"


def contradictions(rows: Iterable[Row], diagnosis: Diagnosis) -> list[str]:
    """Return each command of a finding of the host that a cause gives in another way."""
    told: dict[str, set[str]] = {}
    for cause in (*diagnosis.causes, *diagnosis.folded):
        for line in cause.fix:
            for about, command in commands(line):
                told.setdefault(about, set()).add(command)
    return [
        f"{row.probe}.{one.kind}: {command}, not one of {sorted(told[about])}"
        for row in rows
        for one in row.findings
        for about, command in commands(one.advice)
        if row.area == "host" and about in told and command not in told[about]
    ]


def checked(evidence: Evidence) -> tuple[tuple[Row, ...], Diagnosis]:
    """Return the rows and the diagnosis of a check of this machine, all probes of the host run."""
    others = [one for one in evidence.rows if one.area != "host"]
    host = [Row(one.name, (), views.judge(one, None, evidence.facts, Limits()), 0.0) for one in HOST]
    rows = (*host, *others)
    found = diagnosis.diagnose(Evidence(evidence.facts, evidence.gpus, rows, evidence.lines))
    return with_one_voice(rows, found), found
