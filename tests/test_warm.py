"""What runs share is shared on every simulated machine, too: without that the suite takes three times as long."""

from __future__ import annotations

import os

from gpudiag.simulator import Machine
from warm import _READ_LATER, _changed, _starts, _without_machine, clean


def test_a_simulated_machine_changes_nothing_that_a_start_or_an_import_reads() -> None:
    own = clean(os.environ)
    with Machine("1", faults=["library_missing=libcudnn.so.9"]) as machine:
        environment = machine.environment(own)
    assert _starts(environment, own)
    changed = _changed(_without_machine(environment), own)
    assert all(_READ_LATER.fullmatch(name) for name in changed), changed
