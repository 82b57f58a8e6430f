"""Fixtures of the plugin's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Gpudiag
from gpudiag import simulator
from suites import Suite


@pytest.fixture
def suite(gpudiag: Gpudiag) -> Suite:
    return Suite(gpudiag)


@pytest.fixture
def plain(gpudiag: Gpudiag) -> None:
    """Do without TensorFlow, whose import takes seconds, where nothing depends on it."""
    gpudiag.without("tensorflow")


@pytest.fixture
def simulated() -> None:
    """Fail where GPUs cannot be simulated."""
    simulator.require_cuda_wheel()


@pytest.fixture
def machine(simulated: None, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], simulator.Machine]:
    """Make simulated machines that last as long as the test, from specifications or TOML (with a line break)."""

    def make(spec: str) -> simulator.Machine:
        if "\n" in spec:
            (tmp_path / "machine.toml").write_text(spec)
            spec = str(tmp_path / "machine.toml")
        made = simulator.Machine(spec)
        made.__enter__()
        request.addfinalizer(lambda: made.__exit__(None, None, None))
        return made

    return make
