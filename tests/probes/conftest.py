"""Fixture: TensorFlow, imported once for all tests of probes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from far_side import Children, children
from warm import Warm


@pytest.fixture(scope="session")
def tensorflow(warm: Warm | None) -> Iterator[Children]:
    with children(warm) as started:
        yield started
