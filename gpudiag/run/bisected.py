"""Merges the result of bisecting the environment with the causes of the diagnosis. Pure."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from gpudiag import causes
from gpudiag.cause import Evidence
from gpudiag.model.diagnosis import Bisection, Confidence, Diagnosis, RootCause, Stage

ENVIRONMENT, ONE_GPU = "environment_in_the_way", "gpu_fails"
"""The causes that a bisection proves: a part of the environment, or a GPU that fails alone."""


def with_bisection(diagnosis: Diagnosis, bisection: Bisection | None, evidence: Evidence) -> Diagnosis:
    """Return ``diagnosis`` with what the bisection proved.

    A cause of the catalogue about a part that bisection found to matter explains it best: it gets the proof and the
    line. A cause about another part is wrong, because TensorFlow works here with that part unchanged. If a GPU fails
    alone, a cause that says why is better than the proof, which has only its error.
    """
    diagnosis = msgspec.structs.replace(diagnosis, bisection=bisection)
    if bisection is None or not bisection.changes or bisection.is_too_wide:
        return diagnosis
    catalogue_cause = causes.get(ONE_GPU if bisection.gpus else ENVIRONMENT)
    assert catalogue_cause is not None
    proof = next(catalogue_cause.causes(replace(evidence, bisection=bisection)), None)
    if proof is None:  # a GPU that is not in scope: the report was edited
        return diagnosis
    proof = msgspec.structs.replace(proof, stage=diagnosis.broken_at or proof.stage)
    is_better = _says_why if bisection.gpus else _is_about
    same = [cause for cause in diagnosis.causes if is_better(cause, bisection)]
    later = tuple(cause for cause in diagnosis.folded if cause.stage is Stage.CONFIGURATION)
    first = _proved(same[0], proof) if same else proof
    return msgspec.structs.replace(diagnosis, causes=(first,), folded=later)


def _is_about(cause: RootCause, bisection: Bisection) -> bool:
    """Return whether a cause is about every part that bisection found to matter."""
    return {change.name.rstrip("/") for change in bisection.changes} <= {*cause.about}


def _says_why(cause: RootCause, _: Bisection) -> bool:
    """Return whether a cause is more than a symptom or a guess."""
    catalogue_cause = causes.get(cause.cause_id)
    is_symptom = catalogue_cause is None or catalogue_cause.declared.symptom or catalogue_cause.declared.last_resort
    return cause.confidence is not Confidence.POSSIBLE and not is_symptom


def _proved(cause: RootCause, proof: RootCause) -> RootCause:
    """Return the cause with its proof: the lines that were tried come first, then the cause's own."""
    tried = tuple(action for action in proof.fix if action.change is not None) if proof.gpus else proof.fix
    own = tuple(action for action in cause.fix if not any(map(action.does_the_same, tried)))
    return msgspec.structs.replace(
        cause,
        confidence=proof.confidence,
        evidence=tuple(dict.fromkeys((*cause.evidence, *proof.evidence))),
        fix=(*tried, *own),
        trial=None,
        gpus=proof.gpus or cause.gpus,
    )
