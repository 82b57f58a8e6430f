"""What an injected fault makes of TensorFlow, of the driver and of NVML."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Gpudiag
from gpudiag.model import codec
from gpudiag.simulator import FaultError, Machine, fault_environment, parse_fault
from gpudiag.simulator.calls import nearest_call
from gpudiag.simulator.faults import SONAMES

from .on_machine import TENSORFLOW, Inside, cards, run_python

LIST = "import tensorflow as tf; print(tf.config.list_physical_devices('GPU'))"

START = (
    "import ctypes, json, os, time\n"
    "cuda, nvml = ctypes.CDLL('libcuda.so.1'), ctypes.CDLL('libnvidia-ml.so.1')\n"
    "pointer, answers = ctypes.c_void_p(), []\n"
    "def context(ordinal=0):\n"
    "    code = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(pointer), ordinal)\n"
    "    return code or cuda.cuCtxSetCurrent(pointer)\n"
    "def allocate(size):\n"
    "    return cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))\n"
)


def drive(faults: list[str], code: str, gpus: int = 1, environment: dict[str, str] | None = None) -> list[object]:
    """`code` in a process that speaks to the driver and NVML alone; it fills `answers`."""
    with Machine(cards(gpus), faults) as machine:
        return run_driver(machine, code, environment)[0]


def run_driver(machine: Machine, code: str, environment: dict[str, str] | None = None) -> tuple[list[object], str]:
    """The answers of :func:`drive` on this machine, and what was said."""
    done = subprocess.run(
        [sys.executable, "-c", f"{START}{code}\nprint(json.dumps(answers))"],
        env={**machine.environment(), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: list[object] = json.loads(done.stdout)
    return answers, done.stderr


def test_allocations_fail_from_a_call_on() -> None:
    code = "cuda.cuInit(0), context()\nanswers += [allocate(1024) for _ in range(4)]"
    assert drive(["allocation_from=3"], code) == [0, 0, 2, 2]


def test_large_allocations_fail() -> None:
    code = "cuda.cuInit(0), context()\nanswers += [allocate(1 << 20), allocate((1 << 20) + 1)]"
    assert drive(["allocation_above=1MiB"], code) == [0, 2]


@pytest.mark.parametrize(
    ("faults", "code", "without_effect"),
    [
        (["call_fails=cuLaunchKernel:1"], "cuda.cuInit(0)", ["call_fails=cuLaunchKernel:1"]),
        (["allocation_from=3", "cuinit"], "cuda.cuInit(0)", ["allocation_from=3"]),
        (["allocation_from=3"], "cuda.cuInit(0), context()\nallocate(9), allocate(9), allocate(9)", []),
        (["call_fails=cuInit:100:2"], "cuda.cuInit(0)", ["call_fails=cuInit:100:2"]),
        (["context_creation@1"], "cuda.cuInit(0), context(0)", ["context_creation=46@1"]),
        (["library_missing=libcudnn.so.9", "driver_too_old"], "", []),
        (["library_missing=libnccl.so.2"], "", ["library_missing=libnccl.so.2"]),
        (["library_missing=libcupti.so.12"], "", ["library_missing=libcupti.so.12"]),
    ],
)
def test_a_fault_that_no_call_meets_is_known(faults: list[str], code: str, without_effect: list[str]) -> None:
    with Machine(cards(2), faults) as machine:
        assert run_driver(machine, code)[1] == ""
        assert [str(fault) for fault in machine.without_effect()] == without_effect


def test_a_fault_without_effect_is_named(gpudiag: Gpudiag) -> None:
    fault = "the fault call_fails=cuLaunchKernel:1 had no effect: nothing called cuLaunchKernel"
    faults = ("call_fails=cuLaunchKernel:1", "slow_call=nvmlInit_v2:0.01")
    done = gpudiag("check", "host", *gpudiag.simulated("1", faults), "--format", "json", "-q")
    assert codec.decode(done.stdout, done.stderr).notes == (fault,)
    options = [word for fault in faults for word in ("--fault", fault)]
    code = "import ctypes; ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2()"
    done = gpudiag("simulate", "1", *options, "--", sys.executable, "-c", code)
    assert [line for line in done.stderr.splitlines() if "had no effect" in line] == [f"gpudiag: {fault}"]


def test_fault_on_one_gpu() -> None:
    code = "cuda.cuInit(0)\nanswers += [context(0), context(1), context(0)]"
    assert drive(["context_creation=46@1"], code, gpus=2) == [0, 46, 0]


def test_fault_follows_the_gpu_not_its_ordinal() -> None:
    code = "cuda.cuInit(0)\nanswers += [context(0), context(1)]"
    reordered = drive(["context_creation@1"], code, gpus=2, environment={"CUDA_VISIBLE_DEVICES": "1,0"})
    assert reordered == [46, 0]


def test_lost_device() -> None:
    code = (
        "cuda.cuInit(0), nvml.nvmlInit_v2()\n"
        "answers += [context(), allocate(1), *(cuda.cuCtxSynchronize() for _ in range(3))]\n"
        "handle = ctypes.c_void_p()\n"
        "answers.append(nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)))\n"
    )
    assert drive(["device_lost_after=3"], code) == [0, 0, 0, 999, 999, 15]


def test_a_slow_call_does_its_work() -> None:
    """That it takes its time is shown by ``tests/hardware/test_waiting.py``, which sees a process wait in it."""
    assert drive(["slow_call=cuInit:0.3"], "answers.append(cuda.cuInit(0))") == [0]


def test_any_function_can_fail_from_a_call_on() -> None:
    code = "cuda.cuInit(0), context()\nanswers += [cuda.cuCtxSynchronize() for _ in range(3)]"
    assert drive(["call_fails=cuCtxSynchronize:700:2"], code) == [0, 700, 700]
    code = "solver = ctypes.CDLL('libcusolver.so.11')\nanswers.append(solver.cusolverDnSgetrf())"
    assert drive([], code) == [7], "not supported"


@pytest.mark.parametrize(
    ("function", "nearest"),
    [
        ("cudnnConvolutionForward", "cudnn"),
        ("cublasSgemm_v2", "cublas"),
        ("cufftExecC2C", "cufft"),
        ("ncclCommInitAll", "ncclCommInitRank"),
        ("cuMemAlloc", "cuMemAlloc_v2"),
        ("cudnnCreat", "cudnnCreate"),
    ],
)
@pytest.mark.parametrize("fault", ["call_fails={}:1", "slow_call={}:1"])
def test_a_fault_of_a_call_that_nothing_makes_is_refused(fault: str, function: str, nearest: str) -> None:
    with pytest.raises(
        FaultError, match=rf"nothing calls {function} on a simulated machine\. The nearest call is {nearest}"
    ):
        parse_fault(fault.format(function))


def test_every_call_that_a_check_makes_can_fail(gpudiag: Gpudiag, tmp_path: Path) -> None:
    """Measured: none that TensorFlow, gpudiag and its probes make is refused."""
    trace = tmp_path / "trace"
    arguments = ("check", "discovery", "libraries", "memory", *gpudiag.simulated("2x16GiB"), "-q")
    gpudiag(*arguments, GPUDIAG_SIM_TRACE=str(trace))
    made = {line.split()[2] for line in trace.read_text().splitlines()}
    assert {"cuInit", "cuMemAlloc_v2", "cudnnCreate", "nvmlInit_v2"} <= made
    # nvml.c: three helpers answer for several functions, under their own names.
    assert {name for name in made if nearest_call(name)} <= {"clock_of", "disabled", "none"}


def test_faults_of_one_process() -> None:
    code = "answers += [cuda.cuInit(0)]"
    assert drive([], code, environment=fault_environment(["cuinit=802"])) == [802]
    assert drive([], code) == [0]


def test_corrupted_copies_are_seen(inside: Inside) -> None:
    assert inside(1, "copied").check() == [1.0, 1.0]
    [low, high] = inside(cards(1), "copied", faults=("memory_corrupted",)).check()
    assert (low, high) != (1.0, 1.0)


@pytest.mark.parametrize("code", [802, 803, 999])
def test_failing_cuinit(inside: Inside, code: int) -> None:
    names = {
        802: "CUDA_ERROR_SYSTEM_NOT_READY: system not yet initialized",
        803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has unsupported display driver / cuda driver combination",
        999: "CUDA_ERROR_UNKNOWN: unknown error",
    }
    outcome = inside(1, "listing", faults=(f"cuinit={code}",))
    assert outcome.check() == []
    text = "failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: "
    assert text + names[code] in outcome.log


@pytest.mark.skipif(TENSORFLOW < (2, 21), reason="TensorFlow uses NVML from 2.21 on")
def test_failing_nvml_says_nothing(inside: Inside) -> None:
    for fault in ("nvml_init=18", "nvml_init=9"):
        outcome = inside(1, "listing", faults=(fault,))
        assert outcome.check() == []
        assert "nvml" not in outcome.log.lower()


def test_driver_too_old(inside: Inside) -> None:
    outcome = inside(1, "logical", faults=("driver_too_old",))
    _, text = outcome.check()
    assert "CUDA driver version is insufficient for CUDA runtime version" in text


def test_context_creation(inside: Inside) -> None:
    kind, text = inside(1, "logical", faults=("context_creation",)).check()
    assert kind == "RuntimeError"
    assert (
        "Bad StatusOr access: INTERNAL: CUDA error: : CUDA_ERROR_DEVICE_UNAVAILABLE: CUDA-capable "
        "device(s) is/are busy or unavailable" in text
    )


def test_prohibited_compute_mode(inside: Inside) -> None:
    _, text = inside(cards(1, compute_mode="prohibited"), "logical").check()
    assert "CUDA-capable device(s) is/are busy or unavailable" in text


def test_failing_allocation_floods_the_log(inside: Inside) -> None:
    outcome = inside(1, "first_allocation", faults=("allocation_from",), deadline=5)
    assert outcome.timed_out
    assert outcome.log.count("failed to allocate") > 1000


def test_failing_stream_creation_crashes(inside: Inside) -> None:
    outcome = inside(1, "logical", faults=("stream_creation",))
    if TENSORFLOW < (2, 19):
        assert outcome.code == -6
        assert "Check failed: stream != nullptr" in outcome.log
    else:
        assert outcome.code == -11
        text = "Failed to create stream: RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY"
        assert text in outcome.log


def test_failing_copy(inside: Inside) -> None:
    outcome = inside(1, "copied", faults=("call_fails=cuMemcpyHtoDAsync_v2:700",))
    assert outcome.error == "InternalError"
    assert "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered" in outcome.text


def test_lost_device_under_tensorflow(inside: Inside) -> None:
    outcome = inside(1, "many_ops", faults=("device_lost_after=600",))
    assert outcome.error == "InternalError"
    assert "CUDA_ERROR_UNKNOWN" in outcome.text


MISSING_IS_FATAL = sorted(set(SONAMES) - {"libnccl.so.2", "libcupti.so.12"})


@pytest.mark.parametrize(
    "soname",
    [
        "libcuda.so.1",
        pytest.param("libcudart.so.12", marks=pytest.mark.slow),
        pytest.param("libcublas.so.12", marks=pytest.mark.slow),
    ],
)
def test_missing_library(soname: str) -> None:
    with Machine(cards(1), [f"library_missing={soname}"]) as machine:
        done = run_python(machine, "-c", LIST, TF_CPP_MAX_VLOG_LEVEL="1", TF_CPP_VMODULE="")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["[]"]
    assert f"Could not load dynamic library '{soname}'" in done.stderr
    assert "cannot open shared object file: No such file or directory" in done.stderr


def test_each_missing_library_cannot_be_opened() -> None:
    code = (
        "import ctypes, sys\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n"
        "        ctypes.CDLL(name); print(name)\n"
        "    except OSError as error:\n"
        "        assert 'cannot open shared object file' in str(error), error\n"
    )
    for soname in SONAMES:
        with Machine(cards(1), [f"library_missing={soname}"]) as machine:
            done = run_python(machine, "-c", code, *SONAMES)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [name for name in SONAMES if name != soname]
