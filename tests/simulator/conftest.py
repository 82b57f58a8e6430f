"""Fixtures of the simulator's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .on_machine import ForkServer, Inside


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture
def inside(server: ForkServer) -> Inside:
    return Inside(server)
