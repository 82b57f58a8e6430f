"""Fixtures of the plugin's tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conftest import Gpudiag
from gpudiag import simulator
from suites import Suite


@pytest.fixture
def suite(gpudiag: Gpudiag) -> Suite:
    return Suite(gpudiag)


@pytest.fixture
def simulated() -> None:
    """Skip where GPUs cannot be simulated."""
    try:
        simulator.library_directory()
        simulator.require_cuda_wheel()
    except simulator.SimulatorError as missing:
        pytest.skip(str(missing))


@pytest.fixture
def machine(simulated: None, request: pytest.FixtureRequest) -> Callable[[str], simulator.Machine]:
    """Make simulated machines that last as long as the test."""

    def make(spec: str) -> simulator.Machine:
        made = simulator.Machine(spec)
        made.__enter__()
        request.addfinalizer(lambda: made.__exit__(None, None, None))
        return made

    return make
