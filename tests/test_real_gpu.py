"""``gpudiag check`` on real GPUs: ``pytest -m real_gpu`` on a machine that has one and nothing else on it."""

from __future__ import annotations

import pytest

from conftest import Gpudiag
from gpudiag.model import codec
from gpudiag.model.report import Broken, Report, Severity, Verdict

pytestmark = [pytest.mark.real_gpu, pytest.mark.usefixtures("no_child_left")]


def check(gpudiag: Gpudiag, *arguments: str) -> Report:
    done = gpudiag("check", "--require-gpus", "1", "--format", "json", *arguments)
    return codec.decode(done.stdout, done.stderr)


@pytest.mark.parametrize("isolation", ["fork", "spawn"])
def test_every_gpu_is_verified_and_nothing_fails(isolation: str, gpudiag: Gpudiag) -> None:
    report = check(gpudiag, "--isolation", isolation)
    assert not report.world.simulated
    assert not any(gpu.name.startswith("Simulated ") for gpu in report.gpus)
    assert [row for row in report.rows if isinstance(row.outcome, Broken)] == []
    assert [finding for row in report.rows for finding in row.findings if finding.severity is not Severity.NOTE] == []
    assert (report.verdict, report.exit_code) == (Verdict.PASS, 0)


def test_what_a_check_took_of_a_gpu_is_given_back(gpudiag: Gpudiag) -> None:
    def used() -> list[int]:
        return [device.memory_used_bytes for device in check(gpudiag, "host").facts.nvml_devices]

    before = used()
    check(gpudiag, "memory", "logical", "visibility")
    assert all(abs(after - earlier) < 64 << 20 for earlier, after in zip(before, used(), strict=True))
