"""Fixtures of the simulator's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpudiag.simulator import SimulatorMissing, library_directory

from .on_machine import ForkServer, Inside


@pytest.fixture(scope="session", autouse=True)
def libraries() -> None:
    try:
        library_directory()
    except SimulatorMissing as missing:
        pytest.exit(f"the simulator's tests need its libraries: {missing}", returncode=3)


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture
def inside(server: ForkServer) -> Inside:
    return Inside(server)
