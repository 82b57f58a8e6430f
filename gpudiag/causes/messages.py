"""Causes that a line of a program's log names by itself: one for each message of the table that has a fix.

Such a cause has the name of its message. It counts only if no file of the catalogue explains the line: the fault in a
line may itself follow from an earlier one, so the first fault that the log names comes first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from gpudiag.cause import CatalogueCause, Cause, Match, Matches, Program
from gpudiag.causes.shared import advice
from gpudiag.causes.shared.advice import FIRST_OF_ONE_NUMBER, LAST_OF_ONE_NUMBER
from gpudiag.causes.shared.without_gpu import is_without_gpu
from gpudiag.fix import Kind, distinct, fill_in
from gpudiag.knowledge.log import recognised
from gpudiag.knowledge.log_lines import fatal_line, text
from gpudiag.knowledge.message import Event, Message, Worth
from gpudiag.knowledge.messages import MESSAGES
from gpudiag.knowledge.messages.misleading import CUINIT_303, NO_CUDA_DRIVERS
from gpudiag.knowledge.messages.programs_and_drivers import MODULE_SILENT, NO_CUDA_DEVICE, NO_LIBCUDA
from gpudiag.knowledge.messages.runtime import NO_KERNEL_DRIVER
from gpudiag.knowledge.messages.system import FAMILY as SYSTEM
from gpudiag.knowledge.messages.way import DRIVER_LIBRARY_NOT_OPENED
from gpudiag.knowledge.messages.xid import RECOVERIES, XIDS
from gpudiag.knowledge.origin import Origin
from gpudiag.model.report import Figure

_OF_NO_DRIVER = (NO_CUDA_DRIVERS, NO_LIBCUDA, CUINIT_303, DRIVER_LIBRARY_NOT_OPENED, MODULE_SILENT, NO_KERNEL_DRIVER)
_MOST = 4
"""The most faults that are named; if a log has more, most of them follow from one."""


@cache
def all_of_them() -> dict[str, CatalogueCause]:
    """Return the cause of each message that has a fix, by its name."""
    by_code = (message for parent in MESSAGES for message in parent.codes.values())
    return {message.name: _known(message) for message in (*MESSAGES, *by_code) if message.fix}


def _known(message: Message) -> CatalogueCause:
    def find(program: Program, origin: Origin) -> Matches:
        return (match for known, match in matches(program, origin) if known.id == message.name)

    printed = " or ".join(f'"{text}"' for text in message.texts)
    return CatalogueCause(
        id=message.name,
        stage=message.stage,
        general_cause=message.in_general or message.meaning,
        why=f"A line of a log says so: {printed}." if printed else "",
        declared=Cause(
            title=message.meaning,
            fix=message.fix,
            url=message.url,
            general=True,
            needs_gpu=False,
            symptom=message.symptom,
        ),
        find=find,
    )


def matches(program: Program, origin: Origin) -> Iterator[tuple[CatalogueCause, Match]]:
    """Yield the causes that lines of the log name by themselves, each with its evidence, in the order of the lines."""
    events: list[Event] = []
    for event in _explained(program, origin):
        if not any(event.message.fix[0].does_the_same(other.message.fix[0]) for other in events):
            events.append(event)
    ending = of_the_end(program)
    named = [event for event in events if not event.message.symptom or event.message in ending]
    required = next((_match(event, origin).fix for event in events if event.message in RECOVERIES), ())
    if required and any(event.message in XIDS for event in named):  # the Xid says what failed, the driver what helps
        named = [event for event in named if event.message not in RECOVERIES]
    for event in (named or events)[:_MOST]:
        match = _match(event, origin)
        if required and event.message in XIDS:
            kept = (action for action in match.fix if action and action.kind not in (Kind.REBOOT, Kind.RESET_GPU))
            match = replace(match, fix=distinct((*filter(None, required), *kept)))
        yield all_of_them()[event.message.name], match


def of_the_end(program: Program) -> frozenset[Message]:
    """Return the operating system's reasons in the fatal line that ended the program: no earlier error explains it."""
    line = fatal_line(program.lines)
    messages = frozenset(event.message for event in recognised(line)) if line else frozenset[Message]()
    return messages & frozenset(SYSTEM.messages)


def _explained(program: Program, origin: Origin) -> Iterator[Event]:
    """Yield, of each line, the event that explains it best.

    A line that only looks like an error is skipped, and a misleading line counts as the fault that it follows from.
    """
    unneeded: tuple[Message, ...] = _OF_NO_DRIVER if is_without_gpu(program, origin) else ()
    unneeded += (NO_CUDA_DEVICE,) if origin.stated.has_no_gpu else ()
    of_lines: dict[str, list[Event]] = {}
    for event in program.events:
        of_lines.setdefault(event.line, []).append(event)
    for events in of_lines.values():
        worths = {event.message.worth for event in events}
        taken = Worth.MISLEADING if Worth.MISLEADING in worths else Worth.FAULT
        explained = [event for event in events if event.message.fix and event.message.worth is taken]
        if explained and Worth.HARMLESS not in worths and not any(event.message in unneeded for event in events):
            yield _best(explained)


def _best(events: list[Event]) -> Event:
    """Return the event that explains its line best: the operating system's reason, unless another event has it too."""
    reason = next((event for event in events if event.message.is_reason), None)
    others = [event for event in events if reason is None or reason.text in event.text]
    return min(others, key=advice.generality)


def _release(origin: Origin) -> str:
    """Return the version number that Keras shares with TensorFlow, or a placeholder."""
    has_one = origin.named and FIRST_OF_ONE_NUMBER <= origin.named <= LAST_OF_ONE_NUMBER
    return str(origin.named) if has_one else "X.Y"


def _match(event: Event, origin: Origin) -> Match:
    message = event.message
    figures: defaultdict[str, Figure] = defaultdict(str, event.fields, release_of_both=_release(origin), file="FILE")
    return Match(
        evidence=(text(event.line) if event.text in text(event.line) else event.text,),
        confidence=message.confidence,
        figures=figures,
        fix=advice.fitted((fill_in(action, figures) for action in message.fix), origin, message.stage),
        explains=recognised(event.line),
    )
