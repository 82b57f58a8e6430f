"""Texts that all formats share."""

from __future__ import annotations

import shlex
import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from gpudiag.fix import shown
from gpudiag.model.diagnosis import (
    Bisection,
    BisectionOutcome,
    Confidence,
    Diagnosis,
    RootCause,
    Stage,
    StepStatus,
    TrialOutcome,
)
from gpudiag.model.facts import Facts, Unknown
from gpudiag.model.missing import missing_gpus
from gpudiag.model.report import (
    STATUSES,
    Broken,
    Finding,
    Gap,
    Gpu,
    Interrupted,
    Judged,
    NoReading,
    Report,
    Row,
    Severity,
    Skipped,
    Verdict,
    is_affected,
    why_exit_code,
)
from gpudiag.place import Place
from gpudiag.probes import listing
from gpudiag.report import accounts, program
from gpudiag.text import capitalised, counted, listed, one_line, plain

NO_CAUSE = "No cause was found: TensorFlow lists its GPUs here"
GAPS = 110
"""The most characters about unverified parts in a terminal."""
MOST_PLACEMENTS = 8
LEAST_ALIKE = 3
"""At least this many rows with the same findings are reported together: if TensorFlow lists no GPU, nearly all have
it."""
MOST_NAMED = 4
"""The most probes or patterns that a sentence names."""
KEPT_LOG_LINES = 3
KEPT_LOG_LINES_VERBOSE = 12

PLUMBING = frozenset({"_Arg", "_Retval", "_DeviceArg", "_DeviceRetval"})
"""Operations that TensorFlow's placer logs for the arguments and results of a function; they compute nothing."""

_COUNTED = {"pass": "passed", "note": "with notes", "warning": "warned", "fail": "failed"}


def label(report: Report, row: Row) -> str:
    """Return the probe's name and the GPUs that it was given, if any: one name for each row."""
    return " ".join([one_line(row.probe), *([report.device_label(row)] if row.devices else [])])


def figure(row: Row) -> str:
    """Return a row's key figure: the measured value, the reason for skipping it or the error that broke it."""
    outcome = row.outcome
    if isinstance(outcome, Judged):
        return one_line(outcome.figure)
    if isinstance(outcome, Skipped):
        return one_line(outcome.reason)
    if isinstance(outcome, Interrupted):
        return one_line(outcome.detail)
    return one_line(f"{outcome.cause.value}: {outcome.detail}")


def seconds(row: Row) -> str:
    return f"{row.duration_s:.2f} s"


def finding(found: Finding) -> str:
    """Return a finding on two lines: the message, and the fix if it has one."""
    text = f"{found.severity.value} {found.kind}: {one_line(found.message)}"
    return f"{text}\n  -> {advice(found)}" if advice(found) else text


def advice(found: Finding) -> str:
    """Return the fix of a finding on one line; for an accepted finding who accepted it, and why."""
    return one_line("".join(text for text, _ in pieces(found)))


def pieces(found: Finding) -> Iterator[tuple[str, bool]]:
    """Yield the pieces of a finding's fix, each with whether it is a command, which is copied as one piece."""
    if found.accepted is not None:
        accepted = found.accepted
        yield f"Accepted until {accepted.until} by {accepted.source}: {accepted.reason}", False
        return
    if found.cause:
        yield f"See the cause {found.cause}{': ' if found.fix else ''}", False
    for number, action in enumerate(found.fix):
        if number:
            yield " " if found.fix[number - 1].is_sentence else "; ", False
        if action.command:
            yield one_line(action.command), True
        if action.clause and not (found.cause and action.command):
            note = one_line(action.clause)
            yield f" ({note})" if action.command else note, False


def advice_lines(report: Report, found: Finding) -> list[Line]:
    """Return the fix of a finding as lines, commands apart from what is said about them; without the commands that a
    cause has."""
    if found.accepted is not None:
        return [Line("note", advice(found))]
    of_causes = (action for cause in report.diagnosis.causes for action in cause.fix)
    lines = []
    for item in shown(found.fix, without=of_causes):
        lines.append(Line(item.heading, item.text, bool(item.action.command)))
        lines += [Line("", item.clause)] if item.clause else []
    return lines


def reason_for(report: Report, row: Row, found: Finding | None = None) -> RootCause | None:
    """Return the cause of the diagnosis that explains a finding, or a broken row; None if none does.

    A finding without a fix of its own is one for which the diagnosis knows more: if no operation could run on a GPU,
    its first cause explains it on the GPUs that it affects. A proved cause that makes a GPU unfit explains what fails
    on that GPU, or between it and another.
    """
    named = found.cause if found is not None else row.outcome.explained_by if isinstance(row.outcome, Broken) else ""
    if named or found is None:
        causes = report.diagnosis.all_causes
        return next((cause for cause in causes if cause.cause_id == named), None)
    where = report.gpus_of(row, found)
    if found.severity is Severity.FAIL and where:
        for unfit in report.unfit:
            if not where.isdisjoint(map(str.lower, unfit.gpus)):
                return unfit
    if found.fix or report.diagnosis.broken_at in (None, Stage.FIRST_OP) or not report.diagnosis.causes:
        return None
    first = report.diagnosis.causes[0]
    return first if is_affected(row, first, report.gpus) else None


def alike(rows: Iterable[Row]) -> list[list[Row]]:
    """Return groups of at least :data:`LEAST_ALIKE` rows that have the same findings or broke the same way."""
    shared: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if isinstance(row.outcome, Broken):
            shared.setdefault((figure(row),), []).append(row)
        elif row.findings:
            shared.setdefault(tuple(map(finding, row.findings)), []).append(row)
    return [same for same in shared.values() if len(same) >= LEAST_ALIKE]


def found_alike(rows: list[Row]) -> str:
    """Return the heading of a group of rows: ``37 probes broke in the same way: signal: SIGSEGV``."""
    if isinstance(rows[0].outcome, Broken):
        return f"{len(rows)} probes broke in the same way: {figure(rows[0])}"
    return f"{len(rows)} probes found the same"


def evidence(row: Row) -> str:
    """Return where operations ran, such as ``MatMul x3 on GPU:0, AddV2 on CPU:0``; "" if nothing was logged."""
    ran = Counter[tuple[str, str]]()
    for placement in row.placements:
        if placement.op not in PLUMBING:
            ran[placement.op, placement.device] += placement.count
    parts = [f"{op}{f' x{count}' if count > 1 else ''} on {device}" for (op, device), count in ran.items()]
    if len(parts) > MOST_PLACEMENTS:
        parts[MOST_PLACEMENTS:] = [f"and {len(parts) - MOST_PLACEMENTS} more"]
    return one_line(", ".join(parts))


def table(row: Row, *, verbose: bool) -> tuple[tuple[str, ...], ...]:
    """Return the table of a judged row, the headers first; empty if it has none."""
    return row.outcome.table if verbose and isinstance(row.outcome, Judged) else ()


def log_lines(row: Row, *, verbose: bool) -> tuple[str, ...]:
    """Return the last lines of a broken row's log."""
    if not isinstance(row.outcome, Broken):
        return ()
    lines = [line.rstrip() for text in row.log for line in plain(text).splitlines() if line.strip()]
    return tuple(lines[-(KEPT_LOG_LINES_VERBOSE if verbose else KEPT_LOG_LINES) :])


def started(report: Report) -> str:
    """Return the start time of the run, to the second."""
    return f"{report.started_at[:19].replace('T', ' ')} UTC"


def made_by(report: Report) -> str:
    """Return the gpudiag that made the report, and the time, which is left out for a log alone."""
    made = f"gpudiag {report.gpudiag_version}"
    return made if report.is_log_alone else f"{made}, {started(report)}"


def machine(report: Report) -> tuple[tuple[str, str], ...]:
    """Return the machine of the report, as pairs of a heading and its text."""
    facts = report.facts
    if report.program is not None:
        return tuple((heading, one_line(text)) for heading, text in program.head(report.program))
    if report.is_log_alone:
        return (
            ("log", f"{counted(len(report.lines), 'line')}; this machine was not examined"),
            ("of", one_line(report.diagnosis.origin) or "a program that does not say which TensorFlow it used"),
            *(("note", one_line(note)) for note in report.notes),
        )
    pairs = [*of_facts(facts, report.gpus), *accounts.of_each(report), *_about_the_run(report)]
    return tuple((heading, one_line(text)) for heading, text in pairs)


def machine_in_brief(report: Report, *, is_short: bool = False) -> list[str]:
    """Return the machine as parts of a line: gpudiag, TensorFlow, the driver, the GPUs, the time.

    ``is_short``: without what makes a line long, such as the names of several models and the specification of a
    simulation.
    """
    facts = report.facts
    gpus = Counter(_gpu_in_brief(gpu) for gpu in report.gpus)
    spec = "" if is_short else f" ({report.world.spec})"
    cards = [f"{number} x {name}" for name, number in gpus.items()] or [
        _no_gpus_in_brief(facts, with_mask=not is_short)
    ]
    if is_short:
        several = f"{len(report.gpus)} GPUs of {len(cards)} models"
        cards = [several if len(cards) > 1 else cards[0].replace(" Simulated ", " ")]
    driver = _driver_version(facts)
    return [
        f"gpudiag {report.gpudiag_version}",
        f"TensorFlow {_tensorflow(facts, in_brief=True)}",
        f"driver {driver}" if driver else "no NVIDIA driver",
        *cards,
        *([f"SIMULATED{spec}"] if report.world.simulated else []),
        f"{started(report)[:-7]} UTC",
    ]


def _no_gpus_in_brief(facts: Facts, *, with_mask: bool) -> str:
    if facts.nvml_devices and not with_mask:
        return "no GPU: CUDA_VISIBLE_DEVICES hides them"
    if facts.nvml_devices:
        return f"no GPU: {_no_gpus(facts).removeprefix('none: ')}"
    return "no GPU" if facts.without_gpu else "NVML lists no GPU"


def _gpu_in_brief(gpu: Gpu) -> str:
    return f"{gpu.name} {gpu.memory_total_bytes / (1 << 30):.0f} GiB" if gpu.memory_total_bytes else gpu.name


def about_the_run(report: Report) -> list[tuple[str, str]]:
    """Return what must be known about a run beside its machine, as pairs of a heading and its text: GPUs that it left
    out, its level, its settings, and notes."""
    pairs = [*accounts.of_each(report, in_scope=not report.diagnosis.causes)]
    return [(heading, one_line(text)) for heading, text in (*pairs, *_about_the_run(report))]


def _about_the_run(report: Report) -> Iterator[tuple[str, str]]:
    if report.level.name != "full":
        why = f": {report.level.reason}; --level full --disturb runs every probe" if report.level.reason else ""
        yield "level", f"{report.level.name}{why}"
    if report.settings is not None:
        yield "settings", report.settings.text.removeprefix("settings ")
    if report.expected is not None:
        yield "expected", f"what {report.expected.source} says"
    yield from (("note", text) for text in report.notes)


def of_facts(facts: Facts, gpus: tuple[Gpu, ...]) -> list[tuple[str, str]]:
    """Return TensorFlow, Python, the driver and the GPUs in scope, as pairs of a heading and its text."""
    in_scope = [(f"GPU {gpu.index}", _gpu(gpu)) for gpu in gpus] or [("GPUs", _no_gpus(facts))]
    pairs = [("TensorFlow", _tensorflow(facts)), ("Python", _python(facts)), ("driver", _driver(facts)), *in_scope]
    return [(heading, one_line(text)) for heading, text in pairs]


def simulation(report: Report) -> str:
    """Return the banner of a report on simulated GPUs; "" on a real machine."""
    if not report.world.simulated:
        return ""
    return one_line(f"SIMULATED GPUs ({report.world.spec}): nothing here was measured on a real GPU")


def headline(report: Report) -> str:
    """Return the heading of the diagnosis; "" if the diagnosis is empty."""
    diagnosis = report.diagnosis
    if report.program is not None:
        return one_line(program.headline(report.program, report))
    if report.is_log_alone and not diagnosis.failed:
        return one_line(_headline_of_a_log(diagnosis))
    if diagnosis.broken_at is None:
        if report.unfit:
            return one_line(f"Not fit for use: {report.unfit[0].cause}")
        if diagnosis.causes:
            used = any(isinstance(row.outcome, Judged) and row.outcome.verified for row in report.rows)
            return "The GPU is used, with configuration problems" if used else "Configuration problems"
        if diagnosis.failed:
            return "Part of the diagnosis broke: a cause may be missing"
        return "The log shows no fault" if report.lines and (diagnosis.harmless or diagnosis.misleading) else ""
    fails = diagnosis.broken_at is Stage.FIRST_OP  # its devices were made
    if diagnosis.causes:
        begins = opening(report, diagnosis.causes[0])
        return one_line(f"{begins}{diagnosis.causes[0].cause}" if begins else capitalised(diagnosis.causes[0].cause))
    if report.facts.without_gpu:
        nodes, tensorflow = report.facts.device_nodes, report.facts.tensorflow
        amd = not isinstance(nodes, Unknown) and "AMD" in nodes.other_gpus.values()
        if amd and not isinstance(tensorflow, Unknown) and tensorflow.build is not None and tensorflow.build.cuda:
            return "No NVIDIA GPU in this machine: TensorFlow for CUDA does not use AMD's, tensorflow-rocm does"
        return f"No NVIDIA GPU in this machine: {Place.of(report.facts).way_to_a_gpu or 'nothing to fix'}"
    step = next(step for step in diagnosis.steps if step.status is StepStatus.FAILED)
    begins = "Operations on the GPU fail" if fails else "GPU not used"
    return one_line(f"{begins}, for an unknown reason: {step.stage.value} failed: {step.evidence}")


def opening(report: Report, first: RootCause) -> str:
    """Return the words with which the line of the first cause begins; "" if it stands alone."""
    diagnosis = report.diagnosis
    if report.program is not None:
        return ""
    if report.is_log_alone:
        return f"{_BEGINS[first.confidence]} "
    if diagnosis.broken_at is None:
        return "Not fit for use: " if first in report.unfit else ""
    if diagnosis.broken_at is Stage.FIRST_OP:
        return f"Operations on the GPU fail{_WHY[first.confidence].replace(' because', ':')} "
    return f"GPU not used{_WHY[first.confidence]} "


_WHY = {
    Confidence.PROVED: " because",
    Confidence.LIKELY: ", probably because",
    Confidence.POSSIBLE: ", possibly because",
}


_BEGINS = {
    Confidence.PROVED: "The log shows why:",
    Confidence.LIKELY: "The log shows what is likely why:",
    Confidence.POSSIBLE: "The log does not say why; one possible cause:",
}


_DECIDES = (
    "the cause is often outside the log: write the output of pip list, nvidia-smi and nvcc --version to machine.txt, "
    "then gpudiag why app.log machine.txt"
)


def _headline_of_a_log(diagnosis: Diagnosis) -> str:
    if diagnosis.causes:
        return f"{_BEGINS[diagnosis.causes[0].confidence]} {diagnosis.causes[0].cause}"
    if diagnosis.unexplained:
        return "No cause is known for this log. The lines that look most like a fault:"
    if diagnosis.harmless or diagnosis.misleading:
        return "The log shows no fault: the lines that look like one are explained below"
    return "The log shows no fault: no error line, no traceback, no exit status of a failure"


def others(diagnosis: Diagnosis, *, of_logs: bool = True) -> list[Line]:
    """Return the rest of the diagnosis: the other causes, each with its first action unless a cause above has the same,
    and (``of_logs``) lines of logs."""
    lines = []
    actions = [action for root_cause in diagnosis.causes for action in root_cause.fix]
    for root_cause in diagnosis.folded:
        lines.append(Line("then", f"{root_cause.cause} ({root_cause.cause_id})"))
        first, *_ = root_cause.fix
        if first not in actions:
            actions.append(first)
            lines.append(Line("", first.command or first.text, bool(first.command)))
    lines += [Line("line", text) for text in diagnosis.unexplained]
    if diagnosis.unexplained:
        lines.append(Line("add", _DECIDES))
    if of_logs:
        lines += [Line("means", text) for text in diagnosis.misleading]
        lines += [Line("harmless", text) for text in diagnosis.harmless]
    lines += [Line("broke", f"{failure.part}: {failure.why}") for failure in diagnosis.failed]
    lines += [Line("bisected", text) for text in _bisected(diagnosis.bisection)]
    return [line._replace(text=one_line(line.text)) for line in lines]


def _bisected(bisection: Bisection | None) -> list[str]:
    """Return the result of trying other environments, if no cause contains it."""
    if bisection is None or (bisection.changes and not bisection.is_too_wide):
        return []
    tried = f"{counted(bisection.tried, 'interpreter')} tried, {bisection.seconds:.0f} s"
    without = "without the variables of Python, CUDA and TensorFlow"
    said = {
        BisectionOutcome.NOT_THE_ENVIRONMENT: (
            f"TensorFlow also fails in a clean environment: no variable, path or start-up file is the cause ({tried})"
        ),
        BisectionOutcome.LIBRARY_FAILS: (
            f"the library fails {without}, too: no more was tried{f' ({tried})' if bisection.tried else ''}"
        ),
        BisectionOutcome.NOT_REPRODUCED: (
            f"TensorFlow works in a new interpreter in the same environment: {bisection.before}"
        ),
        BisectionOutcome.CUT_SHORT: (
            f"TensorFlow works without {', '.join(change.name for change in bisection.changes)}; "
            f"which of them matters is not known ({tried}); more time: --bisect 300"
        ),
        BisectionOutcome.OUT_OF_TIME: (
            f"no environment was found in which TensorFlow works ({tried}); more time: --bisect 300"
        ),
    }
    return [said.get(bisection.outcome, bisection.outcome.value), *(f"not tried: {text}" for text in bisection.untried)]


def steps(report: Report) -> str:
    """Return the stages up to the one that failed, such as ``package ok, CUDA build ok, runtime library FAILED``."""
    shown = [step for step in report.diagnosis.steps if step.status is not StepStatus.NOT_REACHED]
    return ", ".join(
        f"{step.stage.value} {step.status.value.upper() if step.status is StepStatus.FAILED else step.status.value}"
        for step in shown
    )


class Line(NamedTuple):
    """A line about a cause."""

    heading: str
    """Empty for what is said about the line before."""
    text: str
    is_copied: bool = False
    """True for a command and an address, which are never broken, so that they can be copied."""

    def __str__(self) -> str:
        return f"{self.heading}: {self.text}" if self.heading else f"  {self.text}"


_BEGINNINGS = frozenset(
    ("a", "an", "the", "this", "these", "no", "out", "little", "memory", "each", "every", "another")
)


def sentence(text: str) -> str:
    """Return a cause that stands alone with a capital, unless it begins with a name: of a library, file or variable."""
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first in _BEGINNINGS else text


def is_titled(report: Report, root_cause: RootCause) -> bool:
    """Return whether the headline of the report is this cause."""
    first = next(iter(report.diagnosis.causes), None)
    return root_cause is first and bool(opening(report, root_cause))


def cause(root_cause: RootCause, *, is_titled: bool = False) -> list[Line]:
    """Return the lines about a cause: the cause itself, unless the headline says it, then its evidence and fixes."""
    confidence = f"{root_cause.confidence.value}; {root_cause.cause_id}"
    pairs = [Line("cause", confidence if is_titled else f"{sentence(one_line(root_cause.cause))} ({confidence})")]
    pairs += [Line("seen", one_line(text)) for text in root_cause.evidence]
    trial = None if root_cause.trial is None or root_cause.trial.outcome is TrialOutcome.NOT_TRIED else root_cause.trial
    tried = (
        []
        if trial is None
        else [Line("tried", f"here: {trial.outcome.value}{f' ({trial.detail})' if trial.detail else ''}")]
    )
    for item in shown(root_cause.fix):
        pairs.append(Line(item.heading, item.text, bool(item.action.command)))
        pairs += [Line("", item.clause)] if item.clause else []
        if trial is not None and item.action.change == trial.change:
            pairs += [Line(line.heading, one_line(f"the command above, {line.text}")) for line in tried]
            tried = []
    pairs += [Line(line.heading, one_line(line.text)) for line in tried]  # an older report does not say which command
    return [*pairs, Line("see", root_cause.url, True)] if root_cause.url else pairs


def is_failure(report: Report, cause: RootCause) -> bool:
    """Return True for a cause that stops TensorFlow from using a GPU or makes one unfit; any other cause is a
    warning."""
    return report.diagnosis.broken_at is not None or cause in report.unfit


def summary(report: Report) -> str:
    """Return the text after the verdict: ``9 passed, 1 warned, 7 skipped; exit status 5; 3.2 s``."""
    counts = outcome_counts(report) if report.program is None else counted(len(report.diagnosis.causes), "finding")
    return f"{counts}; exit status {report.exit_code}; {report.duration_s:.1f} s"


def verdict(report: Report) -> str:
    """Return the verdict in a word; a report on a program has no verdict on GPUs."""
    return report.verdict.value if report.program is None else "program"


def outcome_counts(report: Report) -> str:
    """Return how many rows there are of each outcome, and what was left out: ``9 passed, 1 warned, 7 skipped``."""
    return "; ".join(filter(None, [counts(report.rows) or "no probe ran", _left_out(report)]))


def _left_out(report: Report) -> str:
    return one_line(f"left out by --skip: {_some(report.skip)}") if report.skip else ""


def _some(names: Sequence[str]) -> str:
    """Return the first names of many, and how many more there are."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"


def counts(rows: Iterable[Row]) -> str:
    """Return how many of these rows have each outcome; "" if there are none."""
    numbers = Counter(row.status for row in rows)
    return ", ".join(f"{numbers[status]} {_COUNTED.get(status, status)}" for status in STATUSES if numbers[status])


def counts_by_length(report: Report, *, head: bool) -> Iterator[tuple[str, str]]:
    """Yield the counts of the last line, the longest first, each behind what must then stand above it; ``head``: of
    ``gpudiag why``."""
    if head or report.program is not None:
        yield "", counted(len(report.diagnosis.causes), "cause" if report.program is None else "finding")
        return
    yield "", outcome_counts(report)
    yield _left_out(report), counts(report.rows) or "no probe ran"
    passed = sum(row.status == "pass" for row in report.rows)
    yield outcome_counts(report), f"{passed} of {len(report.rows)} passed"


def after_counts(report: Report, *, head: bool) -> list[str]:
    """Return what follows the counts in the last line: verified GPUs, seconds, exit status."""
    return [
        *filter(None, [accounts.verified(report) if report.program is None else ""]),
        f"{report.duration_s:.{0 if report.duration_s >= 10 else 1}f} s",
        f"exit {why_exit_code(report) if head else report.exit_code}",
    ]


def not_verified(report: Report) -> str:
    """Return the unverified parts in two lines of a terminal; "" if there are none."""
    gaps = report.not_verified or ()
    names = [one_line(f"{gap.what} ({gap.where})" if gap.where else gap.what) for gap in gaps]
    named = [name for name, end in zip(names, accumulate(len(name) + 2 for name in names), strict=True) if end <= GAPS]
    if more := len(names) - len(named):
        named.append(f"and {more} more, which -v names")
    return f"Not verified: {', '.join(named)}" if named else ""


def gap(gap_left: Gap) -> str:
    """Return an unverified part with the place and the reason."""
    where = f", {gap_left.where}" if gap_left.where else ""
    return one_line(f"{gap_left.what}{where}: {gap_left.why}" if gap_left.why else f"{gap_left.what}{where}")


class Next(NamedTuple):
    """The next step for the user: a sentence, and the command at its end, if it has one."""

    text: str
    command: str = ""

    @property
    def pieces(self) -> tuple[tuple[str, bool], ...]:
        """The pieces of the step, each with whether it is a command, which is copied as one piece."""
        return ((f"{self.text}: ", False), (self.command, True)) if self.command else ((self.text, False),)


def next_step(report: Report) -> str:
    """Return the next step in one sentence; "" after a pass, and for a program, whose findings contain it."""
    return "".join(piece for piece, _ in next_of(report).pieces)


def next_of(report: Report) -> Next:
    """Return the next step as a :class:`Next`."""
    if report.program is not None or report.is_log_alone:
        return Next("")
    if report.signal is not None:
        return _then(f"{_signal_name(report.signal)} stopped the run before all probes had run. Run the rest", report)
    match report.verdict:
        case Verdict.FAIL:
            failing = (finding for row in report.rows for finding in row.findings)
            if not report.explained and not any(finding.severity in report.limits.failing for finding in failing):
                return _then(f"Not fit for use: {_first_of_withheld(report)}, then", report)
            also = " (with --strict, warnings too)" if report.limits.strict else ""
            return _then(f"Fix what failed{also}, then", report)
        case Verdict.BROKEN:
            if any(isinstance(row.outcome, Broken) for row in report.rows):
                return _then("A broken probe gives no result. Run it again", report, "-v")
            parts = ", ".join(failure.part for failure in report.diagnosis.failed)
            return _then(f"Part of the diagnosis broke ({parts}): a cause may be missing. Run it again", report)
        case Verdict.NOT_VERIFIED:
            return _to_be_verified(report)
    return Next(one_line(_not_passed_since(report)))


def _not_passed_since(report: Report) -> str:
    """Return which probes failed in an earlier run and have not passed since, and what keeps them; "" if none did."""
    failed = [probe for probe, status in (report.earlier or {}).items() if status != "skipped"]
    if not failed:
        return ""
    uuids = {uuid for probe in failed for uuid in report.earlier_gpus.get(probe, ())}
    hidden = uuids - {gpu.uuid for gpu in report.gpus}
    gpus = [device.index for device in report.facts.nvml_devices if hidden & {device.uuid, *device.mig_uuids}]
    missing = f"{_some(failed)} did not pass in an earlier run, and not since"
    if gpus:
        where = listed([f"GPU {index}" for index in gpus])
        return f"{missing} on {where}, which {'is' if len(gpus) == 1 else 'are'} not in scope now."
    skipped = {row.probe: figure(row) for row in report.rows}
    if all(probe in skipped for probe in failed):
        return f"{missing}; now skipped: {skipped[failed[0]]}."
    return f"{missing}: run --failed without SELECT and --skip."


def _to_be_verified(report: Report) -> Next:
    """Return why a report is not verified, and how to change that."""
    if report.withheld and (report.gpus or missing_gpus(report.facts)):
        return _then(f"This machine cannot get a PASS: {_first_of_withheld(report)}, then", report)
    if busy := [row for row in report.rows if isinstance(row.outcome, Broken) and row.outcome.cause is NoReading.BUSY]:
        late = f"The machine was busy, and {counted(len(busy), 'probe')} got no result in time."
        return _then(f"{late} When it has time, or with a longer --timeout or --deadline", report)
    if report.unverified:
        gpus = ", ".join(f"GPU {gpu.index}" for gpu in report.unverified)
        unverified = f"No probe verified a kernel on {gpus}"
        if listing.matches(listing.VERIFYING, report.skip):
            return Next(f"{unverified}: --skip leaves out {listing.VERIFYING}, which does that.")
        if any(row.probe == listing.VERIFYING for row in report.rows):
            return _then(f"{unverified}: fix why probes were skipped, then", report)
        return _then(f"{unverified}, because none that does was selected. Run one, too", report)
    if report.exit_code == 0:
        return Next("No GPU is in scope, so nothing was verified; --allow-no-gpu accepts that.")
    if report.facts.nvml_devices:
        hides = "CUDA_VISIBLE_DEVICES hides every GPU"
        return _then(f"No GPU is in scope, so nothing was verified: {hides}. Unset it, then", report)
    if not report.facts.without_gpu:
        return _then("No GPU is in scope, but this machine may have one: see host.driver and host.environment", report)
    return Next("No GPU is in scope, so nothing was verified. If you expect no GPU, add --allow-no-gpu.")


def _then(text: str, report: Report, *options: str) -> Next:
    """Return a step that ends with the command that repeats the run."""
    command = _again(report, *options)
    return Next(one_line(text if command else f"{text.removesuffix(', then')}."), command)


def _again(report: Report, *options: str) -> str:
    """Return the command of the run as it was given, with ``options``.

    What repeats only a part, ``--failed``, is added if this run is kept for it; otherwise what verifies a GPU, if it
    was not selected. A log given with ``--log`` is left out: it was written before anything was fixed. So is
    ``--format frame``, which is for the collector of a fleet.
    """
    command = list(report.command or ("gpudiag", "check"))
    start = command.index("--") + 1 if command[:2] == ["gpudiag", "simulate"] and "--" in command else 0
    within, command = command[:start], command[start:]
    if command[:1] != ["gpudiag"] or next((word for word in command[1:] if not word.startswith("-")), "") != "check":
        return "" if report.lines else one_line(shlex.join([*within, *command]))  # a log given to `gpudiag why` is old
    more = [option for option in options if option not in command]
    if report.earlier is not None and not listing.matches(listing.VERIFYING, report.skip):
        more += ["--failed"] if "--failed" not in command else []
    elif report.unverified and not any(row.probe == listing.VERIFYING for row in report.rows):
        more.append(listing.VERIFYING)
    end = command.index("--") if "--" in command else len(command)
    command[end:end] = more
    return one_line(shlex.join([*within, *_without(_without(command, "--log"), "--format", "frame")]))


def _without(command: Iterable[str], option: str, value: str = "") -> Iterator[str]:
    """Yield the words of a command without an option, or without the option with this value."""
    words = iter(command)
    for word in words:
        if word == option:
            given = next(words, "")
            if value not in ("", given):
                yield from (word, given)
        elif not word.startswith(f"{option}={value}"):
            yield word


def _first_of_withheld(report: Report) -> str:
    """Return the first reason against a PASS, and its fix: reasons that make a GPU unfit come first."""
    reasons = [f"{cause.cause} ({cause.cause_id})" for cause in report.unfit]
    first, *more = dict.fromkeys((*reasons, *(report.withheld or ())))
    others = f" (and {len(more)} more)" if more else ""
    return one_line(f"{first}{others}. Fix that, or choose other GPUs with CUDA_VISIBLE_DEVICES")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _gpu(gpu: Gpu) -> str:
    memory = f"{gpu.memory_total_bytes / (1 << 30):.0f} GiB, " if gpu.memory_total_bytes else ""
    return f"{gpu.name}, {memory}PCI {gpu.pci_bus_id}"


def _no_gpus(facts: Facts) -> str:
    if isinstance(facts.nvml, Unknown):
        return f"not known: {facts.nvml.reason}"
    if facts.nvml.devices:
        return f"none: CUDA_VISIBLE_DEVICES={facts.variables.get('CUDA_VISIBLE_DEVICES', '')!r} hides them"
    return "none"


def _tensorflow(facts: Facts, *, in_brief: bool = False) -> str:
    tensorflow = facts.tensorflow
    if isinstance(tensorflow, Unknown):
        return f"not known: {tensorflow.reason}"
    if tensorflow.module_path is None:
        return "not installed"
    name = " and ".join(
        distribution.version if distribution.name == "tensorflow" else f"{distribution.version} ({distribution.name})"
        for distribution in tensorflow.distributions
    )
    build = tensorflow.build
    if build is None:
        built = ""
    elif build.cuda and in_brief:
        built = f", CUDA {build.cuda_version or '?'}"
    elif build.cuda:
        built = f", built for CUDA {build.cuda_version or '?'} and cuDNN {build.cudnn_version or '?'}"
    else:
        built = ", without CUDA" if in_brief else ", built without CUDA"
    return (name or "version not known") + built


def _python(facts: Facts) -> str:
    system = facts.system
    if isinstance(system, Unknown):
        return f"not known: {system.reason}"
    return f"{system.python} on {system.os}, {system.machine}"


def _driver(facts: Facts) -> str:
    driver = facts.driver
    if isinstance(driver, Unknown):
        return f"not known: {driver.reason}"
    version = _driver_version(facts)
    newest = f"CUDA up to {driver.cuda_version}" if driver.cuda_version else ""
    return ", ".join(filter(None, [version, newest])) or "none"


def _driver_version(facts: Facts) -> str:
    """Return the version of the driver, by its kernel module or NVML; "" if there is none."""
    if isinstance(facts.driver, Unknown):
        return f"not known: {facts.driver.reason}"
    return facts.driver.kernel_module or ("" if isinstance(facts.nvml, Unknown) else facts.nvml.driver_version or "")
