"""Examples of causes: machines on which a cause is found, and others, nearly the same, on which it is not.

A file is of one matter, as in ``gpudiag.causes.shared``; its ``EXAMPLES`` maps the name of a cause to its own, and a
cause that logs name, too, has others in ``logs.py``.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from functools import cache

from gpudiag.cause import Evidence
from gpudiag.model.diagnosis import RootCause
from gpudiag.run import diagnosis


@dataclass(frozen=True)
class Example:
    """Evidence, and whether the cause is found in it."""

    name: str
    evidence: Evidence
    fires: bool = True


@cache
def examples() -> dict[str, tuple[Example, ...]]:
    """Return the examples of every cause, by its name."""
    of_all: dict[str, tuple[Example, ...]] = {}
    for matter in pkgutil.iter_modules(__path__):
        for cause, several in getattr(importlib.import_module(f"{__name__}.{matter.name}"), "EXAMPLES", {}).items():
            of_all[cause] = (*of_all.get(cause, ()), *several)
    return of_all


def evidence(cause: str, name: str) -> Evidence:
    """Return the evidence of one example."""
    return next(example.evidence for example in examples()[cause] if example.name == name)


def found(cause: str, evidence: Evidence) -> list[RootCause]:
    """Return what ``cause`` finds in ``evidence``: nothing where another is found that says more."""
    known = diagnosis.get(cause)
    assert known is not None
    if known.declared.symptom or known.in_log is not None or not known.asks_for_facts:  # better evidence hides it
        named = diagnosis.diagnose(evidence)
        return [root_cause for root_cause in (*named.causes, *named.folded) if root_cause.cause_id == cause]
    others = (other for name in known.declared.unless if (other := diagnosis.get(name)) is not None)
    return [] if any(list(stronger.causes(evidence)) for stronger in others) else list(known.causes(evidence))
