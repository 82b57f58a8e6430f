"""Texts about the catalogue: the list of probes, and the explanations of probes and causes."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gpudiag import catalogue, causes, fix
from gpudiag.catalogue import Entry, documentation
from gpudiag.cli.explanation import Explanation, Kind, wrapped
from gpudiag.model.diagnosis import Stage
from gpudiag.model.expectations import AREA
from gpudiag.model.reading import plain_reading
from gpudiag.model.report import Report
from gpudiag.probe import FindingKind, Needs
from gpudiag.probes import listing
from gpudiag.probes.listing import Listed
from gpudiag.text import counted, one_line, with_names

if TYPE_CHECKING:
    from gpudiag.cause import CatalogueCause  # and with it every message that is known
    from gpudiag.expectations.keys import Key
    from gpudiag.lint.rule import Known


def explanations() -> list[Explanation]:
    """Return the explanation of everything that has a name, in the order of its kinds; of each name one."""
    from gpudiag.causes import messages
    from gpudiag.expectations import keys
    from gpudiag.lint import rule as lint_rules

    of_lines = (cause for name, cause in messages.all_of_them().items() if name not in causes.names())
    return [
        *map(explained, catalogue.entries()),
        *map(
            explained_cause,
            (*causes.all_of_them(), *sorted(of_lines, key=lambda cause: ([*Stage].index(cause.stage), cause.id))),
        ),
        *map(explained_rule, lint_rules.known()),
        *map(explained_expectation, (*keys.KEYS, None)),
    ]


def find(name: str) -> Explanation | None:
    """Return the explanation of a name, also of a former one of a cause; None if nothing is called so."""
    if name in listing.names():
        return explained(catalogue.get(name))
    if name.partition(".")[0] == AREA:
        from gpudiag.expectations import keys

        all_keys = map(explained_expectation, (*keys.KEYS, None))
        return next((explanation for explanation in all_keys if explanation.name == name), None)
    if (cause := causes.get(name)) is not None:
        return explained_cause(cause)
    from gpudiag.lint import rule as lint_rules

    rule = lint_rules.get(name)
    return None if rule is None else explained_rule(rule)


def in_report(explanation: Explanation, report: Report, width: int) -> str:
    """Return what a saved report says of a probe or a cause; "" of what no report names."""
    if explanation.kind == Kind.PROBE:
        return f"\n{_measured(explanation.name, report, width)}"
    if explanation.kind in (Kind.CAUSE, Kind.MESSAGE):
        return "\n" + "\n\n".join(_found(explanation.name, report, width)) + "\n"
    return ""


def needs_text(needs: Needs) -> str:
    """Return a probe's needs in a few words, such as ``TensorFlow, 2 GPUs``."""
    tensorflow = [f"TensorFlow {needs.versions}".rstrip()] if needs.tensorflow else []
    kind = "real GPU" if needs.real_gpus else "GPU"
    gpus = [counted(needs.gpus, kind)] if needs.gpus else []
    free = [f"{needs.free_bytes >> 20} MiB free"] if needs.free_bytes else []
    return ", ".join(tensorflow + gpus + free) or "nothing"


def listed(patterns: Sequence[str] = ()) -> tuple[Listed, ...]:
    """Return the list entries of the probes that ``patterns`` choose, made from the probes themselves."""
    return tuple(
        Listed(entry.name, level(entry), needs_text(entry.probe.needs), entry.summary)
        for entry in catalogue.select(patterns)
    )


def level(entry: Entry) -> str:
    """Return the lowest level that runs the probe."""
    return "quick" if entry.probe.quick else "stress" if entry.probe.stress else "full"


def explained(entry: Entry) -> Explanation:
    """Return the documentation of a probe and the findings that it can make."""
    needs = needs_text(entry.probe.needs)
    lines = [f"{entry.name} (level {level(entry)}, needs {needs})", "", documentation(entry.module), ""]
    if kinds := _kinds(entry):
        lines += ["Findings", ""]
        for kind in kinds:
            lines.append(f"    {kind.name} ({kind.severity.value}): {kind.means or with_names(kind.message)}")
            lines += [f"        {fix.with_names(action).text}" for action in kind.fix]
    return Explanation(entry.name, Kind.PROBE.value, entry.area, entry.summary, "\n".join(lines).rstrip())


def _kinds(entry: Entry) -> tuple[FindingKind, ...]:
    """Return the possible findings of a probe; only rows of the host need the causes for that."""
    if entry.reading is not None:
        return entry.kinds
    from gpudiag.run import views

    return views.kinds(entry)


UNFIT = "While it is proved, the verdict is FAIL, whatever the probes verify"
SIGN = "This is a sign. If the report also has one of these causes, do what that cause says"


def explained_cause(rule: CatalogueCause) -> Explanation:
    """Return the general description of a cause, and its fix."""
    severity = rule.declared.severity.value
    where = f"shown in {rule.row}" if rule.declared.row_only else "found by the diagnosis"
    heading = f"{rule.id} (a cause {where}; stage: {rule.stage.value}; severity: {severity})"
    commands = [*(f"    {line}" for line in fix.manual(rule.declared.fix)), "", rule.url]
    causes_of_it = causes.explaining(rule)
    sign = f"{SIGN}: {', '.join(causes_of_it)}." if causes_of_it else ""
    unfit = f"{UNFIT}." if rule.declared.unfit else ""
    prose = "\n\n".join(filter(None, (heading, rule.general_cause, rule.why, unfit, sign, "What to do")))
    kind = Kind.CAUSE if rule.id in causes.names() else Kind.MESSAGE
    return Explanation(rule.id, kind.value, rule.stage.value, rule.general_cause, prose, "\n".join(commands))


def explained_rule(rule: Known) -> Explanation:
    """Return the description of a rule of the lint, with its examples."""
    heading = f"{rule.name} (a rule of 'gpudiag lint'; severity: {rule.declared.severity.value})"
    blocks = [
        f"{title}\n\n{textwrap.indent(example.rstrip(), '    ')}"
        for title, example in (("Bad", rule.bad), ("Good", rule.good))
    ]
    cause = rule.declared.cause
    blocks += [f"What it does on a machine: gpudiag explain {cause}"] if cause else []
    prose = "\n\n".join((heading, rule.general, *rule.why))
    return Explanation(rule.name, Kind.RULE.value, "", rule.general, prose, "\n\n".join((*blocks, rule.declared.url)))


def explained_expectation(key: Key | None) -> Explanation:
    """Return the description of a key of an expectations file; None: the entries that accept findings."""
    if key is None:
        name, what, usage, advice = f"{AREA}.accept", "which findings are accepted, why and until when", "", ""
    else:
        name, what = f"{AREA}.{key.name}", key.what
        usage = f"    {key.name} = {key.comparison.wanted}"
        advice = key.advice.format(key=key.name, file="the file", value=f"<{key.field}>")
    prose = "\n\n".join(filter(None, (f"{name}: {what}", usage, advice, "See: gpudiag docs expectations")))
    return Explanation(name, Kind.EXPECTATION.value, "", what, prose)


def _found(name: str, report: Report, width: int) -> Iterator[str]:
    """Yield the evidence and the fix of the cause in ``report``."""
    from gpudiag.report import words

    yield wrapped(f"Found {words.started(report)}, {words.simulation(report) or 'on real hardware'}", width)
    causes = [root_cause for root_cause in report.diagnosis.all_causes if root_cause.cause_id == name]
    if not causes:
        yield "    The report does not name this cause."
    for cause in causes:
        lines = (
            f"    {line.heading:<6}  {line.text}"
            if line.is_copied
            else textwrap.fill(
                f"    {line.heading:<6}  {line.text}",
                width,
                subsequent_indent=" " * 12,
                break_long_words=False,
                break_on_hyphens=False,
            )
            for line in words.cause(cause)
        )
        yield "\n".join(lines)


def _measured(name: str, report: Report, width: int) -> str:
    """Return the rows of the probe in ``report``: outcome, findings and reading of each."""
    from tabulate import tabulate

    from gpudiag.report import words

    where = words.simulation(report) or "on real hardware"
    parts = [wrapped(f"Measured {words.started(report)}, {where}", width)]
    rows = [row for row in report.rows if row.probe == name]
    if not rows:
        parts.append("    The report holds no row of this probe.")
    for row in rows:
        lines = [f"    {line}" for finding in row.findings for line in words.finding(finding).splitlines()]
        outcome = f"{report.device_label(row)}: {row.status}, {words.figure(row)}".removeprefix(": ")
        parts.append(wrapped("\n".join([outcome, *lines]), width))
        leaves = _leaves("", plain_reading(row.reading))
        if leaves:
            room = max(20, width - 6 - max(len(path) for path, _ in leaves))
            table = tabulate(leaves, tablefmt="plain", disable_numparse=True, maxcolwidths=[None, room])
            parts.append(textwrap.indent(table, "    "))
    return "\n\n".join(parts) + "\n"


def _leaves(path: str, value: object) -> list[tuple[str, str]]:
    """Return each single value inside a reading with its path, such as ``runs.0.device``."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else None
    if inner is None:
        return [] if value is None and not path else [(path, _amount(path, value))]
    return [leaf for key, item in inner for leaf in _leaves(f"{path}.{key}".lstrip("."), item)]


def _amount(path: str, value: object) -> str:
    """Return a value for a person; bytes are also given in MiB."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1 << 20:
        return f"{value} ({value / (1 << 20):.1f} MiB)" if "byte" in path else str(value)
    return one_line(json.dumps(value, ensure_ascii=False))
