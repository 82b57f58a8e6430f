"""Fixtures of the simulator's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from warm import Warm

from .on_machine import ForkServer, Inside


@pytest.fixture(scope="session")
def server(warm: Warm | None) -> Iterator[ForkServer]:
    server = ForkServer(warm)
    yield server
    server.close()


@pytest.fixture
def inside(server: ForkServer) -> Inside:
    return Inside(server)
