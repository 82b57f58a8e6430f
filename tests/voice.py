"""Two commands for one thing in a report: a finding says one, a cause another."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

from gpudiag import catalogue
from gpudiag.cause import Evidence
from gpudiag.model.diagnosis import Diagnosis
from gpudiag.model.report import Limits, Row
from gpudiag.report import words
from gpudiag.run import diagnosis, views
from gpudiag.run.views import with_one_voice
from reports import fix_line, fix_lines

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
    """Return each command of a finding of the host, or of a cause, that another cause gives in another way."""
    told: dict[str, set[str]] = {}
    of_causes: list[tuple[str, str, set[str]]] = []
    for cause in (*diagnosis.causes, *diagnosis.folded):
        own: dict[str, set[str]] = {}
        for line in fix_lines(cause):
            for about, command in commands(line):
                own.setdefault(about, set()).add(command)
        for about, several in own.items():
            told.setdefault(about, set()).update(several)
            of_causes.append((cause.cause_id, about, several))
    of_two = [
        f"{name} says {sorted(first)}, {other} says {sorted(second)}"
        for (name, about, first), (other, same, second) in itertools.combinations(of_causes, 2)
        if about == same and name != other and first.isdisjoint(second)
    ]
    return of_two + [
        f"{row.probe}.{finding.kind}: {command}, not one of {sorted(told[about])}"
        for row in rows
        for finding in row.findings
        for about, command in commands(words.advice(finding))
        if row.area == "host" and about in told and command not in told[about]
    ]


ANOTHER_QUESTION = {
    (
        "host.driver.calls_interposed",
        "library_and_module_differ",
    ): "a library that divides GPUs is meant to be there",
    ("host.driver.calls_interposed", "out_of_memory_with_room"): "a list that this user may not read has no effect",
    ("host.driver.gpus_not_told", "tensorflow_shadowed"): "which TensorFlow is imported, not what describes the GPUs",
    ("host.driver.held", "cuinit_fails"): "another GPU is kept for something else",
    ("host.environment.log_hidden", "cuinit_fails"): "what the log leaves out, not why the call failed",
}
"""Findings that keep their own command beside a cause, and why the two are not about one fault."""
_COULD_NOT_LOOK = ("not_gathered", "not_known")
"""Findings that gpudiag could not look: what it is to do is not what the machine's user is to do."""


def second_answers(rows: Iterable[Row], diagnosis: Diagnosis) -> list[str]:
    """Return each finding of the host that has its own command in a report whose causes give none of that command.

    A finding takes the command of the cause that explains it. If one does not, either the cause does not say that it
    explains the finding (``views=``), or the two answer different questions.
    """
    causes = (*diagnosis.causes, *diagnosis.folded)
    said = [action for cause in causes for action in cause.fix]
    return [
        f"{row.probe}.{finding.kind} says {words.advice(finding)!r}; {cause.cause_id} says {fix_line(cause.fix[0])!r}"
        for row in rows
        for finding in row.findings
        if row.area == "host"
        and finding.kind not in _COULD_NOT_LOOK
        and not any(action in said for action in finding.fix)
        if not finding.cause
        for cause in causes
        if cause.cause_id != "probe_fails"  # it only looks
        if (f"{row.probe}.{finding.kind}", cause.cause_id) not in ANOTHER_QUESTION
    ]


def checked(evidence: Evidence) -> tuple[tuple[Row, ...], Diagnosis]:
    """Return the rows and the diagnosis of a check of this machine, all probes of the host run."""
    others = [row for row in evidence.rows if row.area != "host"]
    host = [Row(entry.name, (), views.judge(entry, None, evidence.facts, Limits()), 0.0) for entry in HOST]
    rows = (*host, *others)
    found = diagnosis.diagnose(Evidence(evidence.facts, evidence.gpus, rows, evidence.lines))
    return with_one_voice(rows, found), found
