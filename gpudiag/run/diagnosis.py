"""Why TensorFlow does not use the GPU: the trace of its way there, the causes, and known lines of logs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

import msgspec

from gpudiag import causes
from gpudiag.cause import TRACE, CatalogueCause, Evidence
from gpudiag.causes import messages
from gpudiag.causes.shared import steps
from gpudiag.causes.shared.without_gpu import is_without_gpu, of_no_gpu
from gpudiag.knowledge.log import recognised
from gpudiag.knowledge.log_lines import Log
from gpudiag.knowledge.message import Worth
from gpudiag.knowledge.messages.misleading import NO_CUDA_DRIVERS
from gpudiag.knowledge.relevance import not_needed
from gpudiag.knowledge.suspicion import suspicion
from gpudiag.model.diagnosis import Confidence, Diagnosis, Failed, RootCause, Stage, Step
from gpudiag.record import Record
from gpudiag.run import consistency

_ORDER = list(Stage)
_SURENESS = list(Confidence)
_OFF_THE_WAY = {Stage.CONFIGURATION, Stage.PROGRAM}

get = causes.get
rules = causes.all_of_them


def diagnose(evidence: Evidence) -> Diagnosis:
    """Return the trace of ``evidence`` and the causes, those of the first stage that failed first.

    The parts are independent: a part that raises is listed as failed, and the others still count.
    """
    return combine(evidence, {part: look(part, evidence) for part in parts(evidence)})


class PartResult(Record):
    """The result of one part of the diagnosis."""

    steps: tuple[Step, ...] = ()
    causes: tuple[RootCause, ...] = ()
    lines: tuple[str, ...] = ()
    overcome: tuple[str, ...] = ()
    """Lines of the log that look like a fault, and after which the program went on."""
    by_log: bool = False
    """True if the causes were found in a program's log, and not in the facts."""
    failed: str = ""
    """Why this part of the diagnosis broke; "" if it did not."""


_STEPS = "the trace"
_NAMED = "faults that lines of the log name"
_HARMLESS = "harmless lines of the log"
_MISLEADING = "misleading lines of the log"
_SUSPICIOUS = "lines of the log that no cause explains"


def parts(evidence: Evidence) -> tuple[str, ...]:
    """Return the names of the parts that make up the diagnosis: the causes that apply, the trace, the lines of logs."""
    return (_STEPS, *(rule.id for rule in _applicable(evidence)), _NAMED, _HARMLESS, _MISLEADING, _SUSPICIOUS)


def look(part: str, evidence: Evidence) -> PartResult:
    """Return the result of one of :func:`parts`; if the part raises, the result has the error."""
    try:
        if part == _STEPS:
            result = PartResult(steps=steps.trace(evidence))
        elif part == _NAMED:
            matches = messages.matches(evidence.program, evidence.origin)
            result = PartResult(causes=tuple(known.cause_of(match, evidence) for known, match in matches))
        elif part == _HARMLESS:
            log = evidence.program if evidence.lines else _of_trace(evidence).worrying
            without = of_no_gpu(evidence.program, evidence.origin) if evidence.lines else ()
            if evidence.lines != evidence.program.lines:
                without += not_needed(evidence.lines)
            result = PartResult(lines=(*log.named(Worth.HARMLESS), *without))
        elif part == _MISLEADING:
            log = evidence.program if evidence.lines else _of_trace(evidence)
            if evidence.lines and is_without_gpu(log, evidence.origin):
                log = Log(line for line in log.lines if NO_CUDA_DRIVERS.texts[0] not in line)
            result = PartResult(lines=log.named(Worth.MISLEADING))
        elif part == _SUSPICIOUS:
            no_gpu = is_without_gpu(evidence.program, evidence.origin)
            found = suspicion(evidence.program.lines, without_gpu=no_gpu)
            result = PartResult(lines=found.unexplained, overcome=found.overcome)
        else:
            known = get(part)
            assert known is not None, f"no cause is called {part}"
            result = PartResult(causes=tuple(known.causes(evidence)))
            if known.in_log is not None and not result.causes:
                result = PartResult(causes=tuple(known.in_log.causes(evidence)), by_log=True)
        msgspec.json.encode(result)  # a text that JSON cannot hold must not cost the whole report
    except (Exception, SystemExit) as error:
        return PartResult(failed=f"it raised {type(error).__name__}: {error!a}")
    return result


def _of_trace(evidence: Evidence) -> Log:
    """Return what TensorFlow printed when it was started as the user's own programs are."""
    return Log(line for row in evidence.rows if row.probe == TRACE for line in row.log)


def combine(evidence: Evidence, results: Mapping[str, PartResult]) -> Diagnosis:
    """Combine the results of all parts into the diagnosis; a missing part counts as failed."""
    trace = results[_STEPS].steps if _STEPS in results else ()
    broken_at = next((step.stage for step in trace if step.status == "failed"), None)
    matched = {name for name, result in results.items() if result.causes}
    rules = [rule for rule in _applicable(evidence) if rule.id in results and matched.isdisjoint(rule.declared.unless)]
    ranked = _without_weaker(rules, results, log_alone=evidence.is_log_alone)
    named = results[_NAMED].causes if _NAMED in results else ()
    ending = {message.name for message in messages.of_the_end(evidence.program) if evidence.is_log_alone}
    causes = _with_what_lines_name([match for match in ranked if not match[0].declared.last_resort], named, ending)
    if evidence.facts.without_gpu:  # which libraries are missing beside the GPU does not matter
        broken_at = next((cause.stage for cause in causes if cause.stage not in _OFF_THE_WAY), broken_at)
    first = [cause for cause in causes if broken_at is None or cause.stage is broken_at]
    first = _without_guesses(first, causes)
    if not first and broken_at is not None:  # a rule may see a fault that the trace sees later only
        first = [cause for cause in causes if _ORDER.index(cause.stage) < _ORDER.index(broken_at)]
    failed = any(row.status == "fail" or row.crash for row in evidence.rows)
    if not first and (broken_at is not None or evidence.is_log_alone or failed):
        last = _in_order(match for match in ranked if match[0].declared.last_resort)
        first = [cause for cause in last if broken_at is None or cause.stage is broken_at][:1]
    if decisive := [cause for cause in first if not ending.isdisjoint(cause.explains)]:
        first = decisive
    folded = [cause for cause in causes if cause not in first]
    first = consistency.without_contradictions(first)
    explained = [line for cause in causes for line in cause.evidence] if evidence.lines else []
    overcome = results[_SUSPICIOUS].overcome if _SUSPICIOUS in results and not (causes or first) else ()
    return Diagnosis(
        steps=trace,
        causes=tuple(consistency.with_safe_fix(cause, first) for cause in first),
        folded=tuple(consistency.with_safe_fix(cause, (cause,)) for cause in folded),
        harmless=(*_of_lines(_HARMLESS, results, explained), *overcome),
        misleading=_of_lines(_MISLEADING, results, explained),
        failed=tuple(Failed(part, result.failed) for part, result in results.items() if result.failed),
        origin=str(evidence.origin) if evidence.lines else "",
        # A trace shows the error that ended its program beside the exit status.
        unexplained=() if causes or first or evidence.traced else _of_lines(_SUSPICIOUS, results, ()),
    )


def _without_guesses(first: Sequence[RootCause], causes: Sequence[RootCause]) -> list[RootCause]:
    """Return the causes to show first: none that is only possible beside or before one that is proved.

    A fault on TensorFlow's way to a GPU stops everything after it, so one that is proved leaves nothing for a guess to
    explain until it is mended. A guess about other GPUs than the proved cause's is about another fault.
    """
    until = max((_ORDER.index(cause.stage) for cause in first), default=-1)
    proved = [
        cause
        for cause in causes
        if cause.confidence is Confidence.PROVED
        and cause.stage not in _OFF_THE_WAY
        and _ORDER.index(cause.stage) <= until
    ]
    kept = [
        cause
        for cause in first
        if cause.confidence is not Confidence.POSSIBLE
        or not any(not other.gpus or not cause.gpus or {*other.gpus} & {*cause.gpus} for other in proved)
    ]
    return kept or (proved if first else [])


def _of_lines(part: str, results: Mapping[str, PartResult], explained: Iterable[str]) -> tuple[str, ...]:
    """Return a part's findings about lines of the log, without lines that a cause already shows."""
    better = {event.message.meaning for line in explained for event in recognised(line) if event.message.meaning}
    lines = results[part].lines if part in results else ()
    return tuple(line for line in lines if not line.endswith(tuple(better)))


def _applicable(evidence: Evidence) -> list[CatalogueCause]:
    without = evidence.facts.without_gpu
    shown = [rule for rule in rules() if not rule.declared.row_only]
    return [rule for rule in shown if not (without and rule.declared.needs_gpu)]


def _without_weaker(
    rules: Sequence[CatalogueCause], results: Mapping[str, PartResult], *, log_alone: bool
) -> list[tuple[CatalogueCause, RootCause]]:
    """Return the causes of the rules without those that better evidence hides, for the same stage or an earlier one.

    A cause hides symptoms, and evidence from this machine's facts hides evidence from a log alone; for an unknown
    machine the log is the only evidence. A cause hides only causes that are at most as certain. Only stages of
    TensorFlow's way to a GPU count: a setting, or a mistake of the program, need not be the reason.
    """

    def weight(rule: CatalogueCause) -> int:
        """Return how good a rule's evidence is: 0 for a symptom, 1 for a log, 2 for facts."""
        if rule.declared.symptom:
            return 0
        return 1 if log_alone or results[rule.id].by_log or not rule.asks_for_facts else 2

    ranked = [(rule, cause) for rule in rules for cause in results[rule.id].causes]
    hiding = [
        (weight(rule), cause)
        for rule, cause in ranked
        if cause.stage not in _OFF_THE_WAY and not rule.declared.last_resort
    ]

    def is_hidden(rule: CatalogueCause, cause: RootCause) -> bool:
        return cause.stage not in _OFF_THE_WAY and any(
            weight(rule) < better
            and _ORDER.index(other.stage) <= _ORDER.index(cause.stage)
            and _SURENESS.index(other.confidence) <= _SURENESS.index(cause.confidence)
            for better, other in hiding
        )

    return [(rule, cause) for rule, cause in ranked if not is_hidden(rule, cause)]


def _with_what_lines_name(
    found: Sequence[tuple[CatalogueCause, RootCause]], named: Sequence[RootCause], ending: Set[str]
) -> list[RootCause]:
    """Return the causes in order; a cause named only by log lines is added if no other cause explains its lines.

    A symptom is added if nothing else was found, or if it has one of the messages of the ``ending``.
    """
    explained = {message for _, cause in found for message in cause.explains}
    table = messages.all_of_them()
    by_themselves = [
        (table[cause.cause_id], cause)
        for cause in named
        if explained.isdisjoint(cause.explains)
        and not (found and table[cause.cause_id].declared.symptom and ending.isdisjoint(cause.explains))
    ]
    return _in_order((*found, *by_themselves))


def _in_order(found: Iterable[tuple[CatalogueCause, RootCause]]) -> list[RootCause]:
    """Return the causes by stage and certainty, each symptom after its cause."""
    return [cause for _, cause in sorted(found, key=_rank)]


def _rank(found: tuple[CatalogueCause, RootCause]) -> tuple[int, bool, int]:
    rule, cause = found
    return _ORDER.index(cause.stage), rule.declared.symptom, _SURENESS.index(cause.confidence)
