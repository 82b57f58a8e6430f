"""Merges the result of bisecting the environment with the causes of the diagnosis. Pure."""

from __future__ import annotations

import msgspec

from gpudiag import causes
from gpudiag.cause import Evidence
from gpudiag.model.diagnosis import Bisection, Diagnosis, RootCause, Stage
from gpudiag.model.facts import Facts

RULE = "environment_in_the_way"


def with_bisection(diagnosis: Diagnosis, bisection: Bisection | None, facts: Facts) -> Diagnosis:
    """Return ``diagnosis`` with what the bisection proved.

    A cause of the catalogue about a part that bisection found to matter explains it best: it gets the proof and the
    line. A cause about another part is wrong, because TensorFlow works here with that part unchanged.
    """
    diagnosis = msgspec.structs.replace(diagnosis, bisection=bisection)
    if bisection is None or not bisection.changes:
        return diagnosis
    catalogue_cause = causes.get(RULE)
    assert catalogue_cause is not None
    (proof,) = catalogue_cause.causes(Evidence(facts, bisection=bisection))
    proof = msgspec.structs.replace(proof, stage=diagnosis.broken_at or proof.stage)
    same = [cause for cause in diagnosis.causes if _is_about(cause, bisection)]
    later = tuple(cause for cause in diagnosis.folded if cause.stage is Stage.CONFIGURATION)
    first = _proved(same[0], proof) if same else proof
    return msgspec.structs.replace(diagnosis, causes=(first,), folded=later)


def _is_about(cause: RootCause, bisection: Bisection) -> bool:
    """Return whether a cause is about every part that bisection found to matter."""
    return {change.name.rstrip("/") for change in bisection.changes} <= {*cause.about}


def _proved(cause: RootCause, proof: RootCause) -> RootCause:
    """Return the cause with its proof: the lines that were tried come first, then the cause's own."""
    own = tuple(action for action in cause.fix if not any(map(action.does_the_same, proof.fix)))
    return msgspec.structs.replace(
        cause,
        confidence=proof.confidence,
        evidence=tuple(dict.fromkeys((*cause.evidence, *proof.evidence))),
        fix=(*proof.fix, *own),
        trial=None,
    )
