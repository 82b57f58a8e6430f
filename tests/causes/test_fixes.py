"""The fix of a machine is followed on it, and its cause is gone after that."""

from __future__ import annotations

import fixing
import pytest
import staged

from conftest import Gpudiag
from corpus import Item, items

FOLLOWED = {109, 121, 135}
"""A package installed again, a file renamed, a variable taken away."""
TITLES = {"tensorflow-cpu alone", "compute mode prohibited"}


MACHINES = [
    *(pytest.param(item, id=str(item)) for item in items() if item.number in FOLLOWED),
    *(pytest.param(item, id=str(item), marks=pytest.mark.slow) for item in items() if item.title in TITLES),
]


@pytest.mark.usefixtures("no_child_left")
@pytest.mark.parametrize("item", MACHINES)
def test_the_cause_is_gone_after_the_fix(item: Item, gpudiag: Gpudiag) -> None:
    first = staged.check(item, gpudiag, staged.stage(item, gpudiag)).diagnosis.causes[0]
    assert first.rule == item.rule
    followed = fixing.follow(first.fix, item, gpudiag)
    assert followed.done
    assert "" not in followed.left.values(), "say in KINDS what it is"
    arguments = staged.check_arguments(followed.item, gpudiag, before=item)
    after = staged.check(followed.item, gpudiag, arguments).diagnosis
    assert first.rule not in {one.rule for one in (*after.causes, *after.folded)}, (followed.done, after.causes)
