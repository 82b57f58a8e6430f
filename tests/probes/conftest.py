"""Fixture: TensorFlow, imported once for all tests of probes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from far_side import Children, children


@pytest.fixture(scope="session")
def tensorflow() -> Iterator[Children]:
    with children() as started:
        yield started
