"""How long the first calls of the driver take, and what a run does on a machine where they are slow or never return."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from conftest import Gpudiag
from examples import found
from examples.facts import example_gpu, example_with_gpus
from gpudiag.cause import Evidence
from gpudiag.facts import calls
from gpudiag.model import codec
from gpudiag.model.diagnosis import Stage
from gpudiag.model.facts import CallFacts, Facts, GpuState, NvmlFacts, TimedCall, Unknown
from gpudiag.model.report import Broken, Judged, Report, Skipped, Verdict
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.probes.host import gpus
from gpudiag.run import plan
from gpudiag.simulator import Machine
from reports import fix_lines

pytestmark = pytest.mark.usefixtures("no_child_left")

GATHER = "import msgspec; from gpudiag.facts import calls; print(msgspec.json.encode(calls.gather()).decode())"


def test_each_first_call_is_measured() -> None:
    with Machine("2", ["slow_call=cuInit:0.4"]) as machine:
        done = subprocess.run(
            [sys.executable, "-c", GATHER], env=machine.environment(), capture_output=True, text=True, check=True
        )
    found = msgspec.json.decode(done.stdout, type=CallFacts)
    assert [call.name for call in found.calls] == [
        "dlopen(libcuda.so.1)",
        "cuInit",
        "cuDeviceGetCount",
        "dlopen(libnvidia-ml.so.1)",
        "nvmlInit",
    ]
    assert 0.4 <= found.driver_s < 10
    assert (found.hung, found.driver_hangs) == ((), False)
    assert calls.of_a_child(done.stderr) == found, "what was noted on the way says the same"


_DRIVER = """
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = attribute == 17 && device == 1; return 0; }
int cuDeviceGetPCIBusId(char *text, int size, int device) {
    for (int i = 0; i < 13; i++) text[i] = "0000:0A:00.0"[i];
    return 0;
}
"""


def test_the_gpus_on_which_the_driver_ends_a_long_kernel_are_known(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler (cc or gcc)")
    (tmp_path / "driver.c").write_text(_DRIVER)
    library = ["-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(tmp_path / "driver.c")]
    subprocess.run([compiler, *library], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", GATHER], env=environment, stdout=subprocess.PIPE, check=True)
    found = msgspec.json.decode(done.stdout, type=CallFacts)
    assert found.time_limited == ("0000:0a:00.0",)
    gpu = msgspec.structs.replace(example_gpu(), pci_bus_id="0000:0a:00.0")
    facts = example_with_gpus(1, nvml=NvmlFacts(None, "560.35.05", "12.6", (gpu,)), calls=found)
    assert gpus.figure(facts).endswith("; the driver limits how long a kernel may run on GPU 0")


def test_of_a_child_that_was_ended_the_call_is_known_that_it_was_in() -> None:
    found = calls.of_a_child("junk\ngpudiag call: a\ngpudiag call: a 0.25\ngpudiag call: cuInit\n", waited_s=40.04)
    assert found.calls == (TimedCall("a", 0.25), TimedCall("cuInit", None, waited_s=40.0))
    assert found.driver_hangs
    assert not calls.of_a_child("gpudiag call: cuInit\n", "GPU-0").driver_hangs, "that is of one GPU alone"
    assert calls.of_a_child("").calls == ()


def test_where_there_is_no_driver_nothing_is_slow(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            GATHER.replace(
                "calls.gather",
                f"(setattr(calls, 'DRIVER', '{tmp_path}/x'), setattr(calls, 'NVML', '{tmp_path}/y')) and calls.gather",
            ),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert '"cuInit"' not in done.stdout


@pytest.mark.parametrize(
    ("facts", "level"),
    [
        (CallFacts((TimedCall("cuInit", 25.0),)), "quick"),
        (CallFacts((TimedCall("cuInit", 5.0), TimedCall("nvmlInit", 20.0))), "quick"),
        (CallFacts((TimedCall("cuInit", 5.0), TimedCall("nvmlInit", 4.0))), "full"),
        (Unknown("not asked"), "full"),
    ],
)
def test_with_a_slow_driver_few_processes_are_started(facts: CallFacts | Unknown, level: str) -> None:
    machine: Facts = example_with_gpus(1, calls=facts)
    chosen = plan.chosen_level(None, gpus_in_scope(machine), machine)
    assert chosen.name == level
    assert ("waits 25 s for the driver" in chosen.reason) == (level == "quick")
    assert plan.chosen_level("full", gpus_in_scope(machine), machine).name == "full"


def checked(gpudiag: Gpudiag, fault: str, *arguments: str) -> Report:
    done = gpudiag("check", "host", *arguments, *gpudiag.simulated("2", (fault,)), "--format", "json", "-q")
    return codec.decode(done.stdout, done.stderr)


def test_a_driver_that_never_answers_costs_once(gpudiag: Gpudiag) -> None:
    report = checked(gpudiag, "slow_call=cuInit:1000", "discovery", "memory", "--timeout", "3")
    (cause,) = report.diagnosis.causes
    assert (cause.cause_id, cause.confidence.value, cause.stage) == ("driver_call_hangs", "proved", Stage.DRIVER)
    assert cause.cause.startswith("cuInit never returns")
    others = [row.outcome for row in report.rows if row.area != "host"]
    assert all(
        isinstance(outcome, Skipped) and "cuInit did not return within 3 s" in outcome.reason for outcome in others
    )
    assert report.verdict is Verdict.FAIL


def test_a_gpu_that_hangs_costs_once(gpudiag: Gpudiag) -> None:
    fault = "slow_call=cuDevicePrimaryCtxRetain:1000@1"
    report = checked(gpudiag, fault, "memory.growth", "memory.limit", "memory.fraction", "--timeout", "12")
    second = report.gpus[1].uuid
    (cause,) = report.diagnosis.causes
    assert (cause.cause_id, cause.stage) == ("driver_call_hangs", Stage.CONTEXT)
    assert cause.cause.startswith(f"cuDevicePrimaryCtxRetain never returns on GPU 1 ({second})")
    (driver,) = [row.outcome for row in report.rows if row.probe == "host.driver"]
    assert isinstance(driver, Judged)
    assert [finding.kind for finding in driver.findings] == ["call_hangs"]
    assert report.verdict is Verdict.FAIL
    rows = [row for row in report.rows if row.area == "memory"]
    hung = [row.outcome for row in rows if second in row.devices]
    assert sum(isinstance(outcome, Broken) for outcome in hung) <= 2, "those that ran at the same time"
    assert any(isinstance(outcome, Skipped) and "GPU 1 hangs" in outcome.reason for outcome in hung)
    assert all(isinstance(row.outcome, Judged) for row in rows if second not in row.devices)


@pytest.mark.parametrize("persistent", [True, False, None])
def test_persistence_mode_is_advised_unless_it_is_on(persistent: bool | None) -> None:
    machine = example_with_gpus(calls=CallFacts((TimedCall("cuInit", 25.0),)))
    assert isinstance(machine.nvml, NvmlFacts)
    devices = tuple(replace(device, state=GpuState(persistence=persistent)) for device in machine.nvml.devices)
    (cause,) = found("driver_call_slow", Evidence(replace(machine, nvml=replace(machine.nvml, devices=devices))))
    assert any("nvidia-smi -pm 1" in line for line in fix_lines(cause)) == (persistent is not True)
    assert any("dmesg" in line for line in fix_lines(cause))


@pytest.mark.slow
def test_a_call_of_nvml_that_never_returns_is_named_though_it_is_none_of_the_first(gpudiag: Gpudiag) -> None:
    report = checked(gpudiag, "slow_call=nvmlDeviceGetMemoryInfo:1000", "discovery")
    (cause,) = report.diagnosis.causes
    assert (cause.cause_id, cause.cause.startswith("nvmlDeviceGetMemoryInfo never returns")) == (
        "driver_call_hangs",
        True,
    )
