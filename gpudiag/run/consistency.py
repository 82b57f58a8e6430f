"""Makes the causes of one report consistent: none contradicts another, and none proposes harm without good evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from gpudiag import causes
from gpudiag.cause import Premise
from gpudiag.fix import Action, Kind, Role
from gpudiag.knowledge.log import recognised
from gpudiag.model.diagnosis import Confidence, RootCause, Stage

_CONFIDENCES = list(Confidence)
_STOPS_BEFORE_DEVICES = frozenset(
    {Stage.RUNTIME_LIBRARY, Stage.DRIVER_LIBRARY, Stage.DRIVER, Stage.DEVICE_COUNT, Stage.LIBRARIES}
)
_WITH_DEVICES = frozenset({Stage.MEMORY, Stage.FIRST_OP})
LEFT_OUT = "what could do harm is left out, since this is only possible, or less certain than another cause"


def premise(cause: RootCause) -> Premise:
    """Return what a cause presupposes: the premise in its file, or else the one that follows from the stage it
    breaks."""
    catalogue_cause = causes.get(cause.cause_id)
    if catalogue_cause is None:
        return Premise.NONE
    if catalogue_cause.declared.premise is not None:
        return catalogue_cause.declared.premise
    if cause.stage in _STOPS_BEFORE_DEVICES:
        return Premise.NO_GPU
    if catalogue_cause.declared.general:
        messages = [event.message for line in cause.evidence for event in recognised(line)]
        return Premise.GPU_IN_USE if any(message.needs_device for message in messages) else Premise.NONE
    return Premise.GPU_IN_USE if cause.stage in _WITH_DEVICES else Premise.NONE


def contradict(cause: RootCause, other: RootCause) -> bool:
    """Return whether one cause presupposes that TensorFlow used a GPU and the other that it used none."""
    return {premise(cause), premise(other)} == {Premise.GPU_IN_USE, Premise.NO_GPU}


def without_contradictions(shown: Iterable[RootCause]) -> list[RootCause]:
    """Return the causes in order; of two that contradict each other, only the more certain or else the first one
    stays, and none whose choice of drivers another one decides."""
    every = list(shown)
    ranked = [cause for cause in every if not any(_decides(other, cause) for other in every)]
    kept: list[RootCause] = []
    for cause in sorted(ranked, key=_doubt):
        if not any(contradict(cause, other) for other in kept):
            kept.append(cause)
    return [cause for cause in ranked if cause in kept]


def _decides(other: RootCause, cause: RootCause) -> bool:
    """Return whether a cause's later choice of a driver, behind its first, is the one that another cause asks for."""
    wanted = next((action.command for action in other.fix if action.kind is Kind.CHANGE_DRIVER), "")
    offered = [action.command for action in cause.fix if action.kind is Kind.CHANGE_DRIVER]
    return bool(wanted) and wanted in offered[1:] and other.stage is cause.stage and _doubt(other) <= _doubt(cause)


def with_safe_fix(cause: RootCause, shown: Sequence[RootCause]) -> RootCause:
    """Return the cause without harmful fixes, unless it is likely and no cause shown is likelier."""
    if cause.confidence is not Confidence.POSSIBLE and _doubt(cause) == min(map(_doubt, shown)):
        return cause
    safe = tuple(action for action in cause.fix if not action.kind.can_harm)
    if safe == cause.fix:
        return cause
    more = "" if causes.get(cause.cause_id) is None else f": gpudiag explain {cause.cause_id} has it"
    return replace(cause, fix=(*safe, Action(note=LEFT_OUT + more, role=Role.NOTE)))


def _doubt(cause: RootCause) -> int:
    return _CONFIDENCES.index(cause.confidence)
