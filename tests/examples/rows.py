"""Examples of causes that a row of the host shows, and nothing else: those of the row."""

from __future__ import annotations

from examples import Example
from examples.hosts import cases
from gpudiag import causes
from gpudiag.cause import CatalogueCause, Evidence
from gpudiag.model.visibility import gpus_in_scope

MOST = 2


def _examples(known: CatalogueCause) -> tuple[Example, ...]:
    """Return machines on which the row shows the cause, and others on which it has nothing to show."""
    row, _, kind = known.declared.finding.rpartition(".")
    found: dict[bool, list[Example]] = {True: [], False: []}
    for case in cases(row):
        evidence = Evidence(case.facts, gpus_in_scope(case.facts), limits=case.limits)
        found[kind in case.expect].append(Example(case.name, evidence, kind in case.expect))
    return (*found[True], *found[False][:MOST])


EXAMPLES = {cause.id: _examples(cause) for cause in causes.all_of_them() if cause.declared.row_only}
