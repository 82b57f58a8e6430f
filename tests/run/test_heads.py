"""What heads a report: a GPU that fails, by its error; a setting for which every probe broke, which is a failure."""

from __future__ import annotations

import pytest

from conftest import Gpudiag
from gpudiag.model import codec
from gpudiag.model.report import Broken, Verdict

pytestmark = pytest.mark.usefixtures("no_child_left")


def test_a_gpu_that_is_lost_under_way_is_named_with_its_error(gpudiag: Gpudiag) -> None:
    lost = gpudiag.simulated("2", ("device_lost_after=200@1",))
    done = gpudiag("check", "discovery.logical_devices", *lost, "--bisect", "300", "-q", "-o", "report.json")
    assert done.returncode == 1, done.stderr
    report = codec.load(gpudiag.folder / "report.json")
    head = report.diagnosis.causes[0]
    assert (head.cause_id, head.gpus) == ("gpu_fails", (report.gpus[1].pci_bus_id,))
    assert head.cause.startswith("GPU 1 fails: CUDA_ERROR_UNKNOWN")
    assert head.fix[0].change == {"CUDA_VISIBLE_DEVICES": report.gpus[0].uuid}
    assert "without it: GPUs listed: 1; a product and a convolution on each came out right" in head.evidence


def test_a_setting_for_which_every_probe_broke_is_a_failure(gpudiag: Gpudiag) -> None:
    arguments = ("check", "discovery.logical_devices", "placement.manual", *gpudiag.simulated("2"))
    done = gpudiag(*arguments, "-q", "-o", "report.json", XLA_FLAGS="--xla_no_such_flag", GPUDIAG_BISECT="60")
    report = codec.load(gpudiag.folder / "report.json")
    assert (done.returncode, report.verdict) == (1, Verdict.FAIL), done.stderr
    assert [cause.cause_id for cause in report.diagnosis.causes] == ["flags_refused"]
    broken = tuple(row for row in report.rows if isinstance(row.outcome, Broken))
    assert broken == report.explained
    assert {row.probe for row in broken} >= {"discovery.logical_devices", "placement.manual"}
    assert report.diagnosis.bisection is None
