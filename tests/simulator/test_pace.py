"""A simulated GPU with a pace: what it takes, how hot it gets, and what its faults do to that.

The tests measure, and other work on this machine only makes times longer: bounds are those of the simulation, or ratios
of the shortest times of one run.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpudiag.simulator import FaultError, Machine, SpecError, no_effect, parse_spec

from .on_machine import Inside, cards

MS = 1000

PROGRAM = """
import ctypes, json, sys, threading, time
import pynvml
cuda, core = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libgpudiag_cuda.so")
core.gpudiag_pace_begins.restype = ctypes.c_double
core.gpudiag_pace_ends.argtypes, core.gpudiag_pace_ends.restype = [ctypes.c_double], ctypes.c_bool
cuda.cuInit(0)
pynvml.nvmlInit()
context = ctypes.c_void_p()

def on(gpu):
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), gpu)
    cuda.cuCtxSetCurrent(context)

def card(gpu):
    return pynvml.nvmlDeviceGetHandleByIndex(gpu)

def work(times=1):
    "What a kernel does; returns whether each result is wrong."
    return [core.gpudiag_pace_ends(core.gpudiag_pace_begins()) for _ in range(times)]

def copies(size):
    there, here = ctypes.c_uint64(), ctypes.create_string_buffer(size)
    cuda.cuMemAlloc_v2(ctypes.byref(there), ctypes.c_size_t(size))
    return lambda: cuda.cuMemcpyHtoD_v2(there, here, ctypes.c_size_t(size))

def seconds(call):
    began = time.monotonic()
    call()
    return time.monotonic() - began

def shortest(call, times=12):
    return min(seconds(call) for _ in range(times))
"""


def start(machine: Machine, code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", f"{PROGRAM}\n{code}"], env=machine.environment(), stdout=subprocess.PIPE, text=True
    )


def answers(process: subprocess.Popen[str]) -> Any:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return json.loads(output)


def run(machine: Machine, code: str) -> Any:
    return answers(start(machine, code))


def test_a_slow_gpu_takes_its_factor_and_copies_as_the_other() -> None:
    with Machine(cards(2, kernel_us=20 * MS, copy_mb_s=100), ["slow_gpu=3@1"]) as machine:
        found = run(
            machine,
            "found = []\nfor gpu in 0, 1:\n    on(gpu)\n"
            "    found += [shortest(work), shortest(copies(2_000_000))]\nprint(json.dumps(found))",
        )
    quick, copied, slow, copied_by_slow = found
    assert quick >= 0.020
    assert slow / quick == pytest.approx(3, rel=0.15)
    assert copied_by_slow / copied == pytest.approx(1, rel=0.15)


def test_a_narrow_link_takes_its_share_and_nvml_knows_it() -> None:
    with Machine(cards(2, kernel_us=20 * MS, copy_mb_s=100), ["narrow_link=4@1"]) as machine:
        found = run(
            machine,
            "found = []\nfor gpu in 0, 1:\n    on(gpu)\n"
            "    found += [shortest(work), shortest(copies(1_000_000))]\n"
            "    found += [pynvml.nvmlDeviceGetCurrPcieLinkWidth(card(gpu)),\n"
            "              pynvml.nvmlDeviceGetPcieReplayCounter(card(gpu))]\nprint(json.dumps(found))",
        )
        assert machine.without_effect() == ()
    works, copied, width, _, works_on_narrow, narrow, narrow_width, replays = found
    assert copied >= 0.010
    assert narrow / copied == pytest.approx(4, rel=0.15)
    assert works_on_narrow / works == pytest.approx(1, rel=0.15)
    assert (width, narrow_width, replays) == (16, 4, 0)


def test_threads_and_processes_share_the_time_of_a_gpu() -> None:
    """Eight pieces of work by two threads or two processes take as long as eight by one; two GPUs need half of that."""
    threads = """
def both(gpus):
    def one(gpu):
        on(gpu)
        work(8)
    several = [threading.Thread(target=one, args=[gpu]) for gpu in gpus]
    for thread in several: thread.start()
    for thread in several: thread.join()
print(json.dumps([shortest(lambda: both(gpus), 3) for gpus in ([0], [0, 0], [0, 1])]))
"""
    process = "on(0); began = time.monotonic(); work(8); print(json.dumps([began, time.monotonic()]))"
    with Machine(cards(2, kernel_us=20 * MS)) as machine:
        alone, shared, apart = run(machine, threads)
        times = [answers(each) for each in [start(machine, process) for _ in range(2)]]
    assert alone >= 8 * 0.020
    assert shared >= 16 * 0.020
    assert apart < shared * 0.75
    assert max(end for _, end in times) - min(began for began, _ in times) >= 16 * 0.020


def test_heat_rises_with_its_time_constant_then_the_gpu_is_throttled() -> None:
    code = """
on(0)
def state():
    device = card(0)
    return [
        pynvml.nvmlDeviceGetTemperature(device, 0),
        pynvml.nvmlDeviceGetClockInfo(device, 1),
        pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(device),
        pynvml.nvmlDeviceGetPowerUsage(device),
        pynvml.nvmlDeviceGetUtilizationRates(device).gpu,
    ]
cold, quick = state(), shortest(work, 1)
began = time.monotonic()
work(15)
warm, took = state(), time.monotonic() - began
while (hot := state())[2] == 0 and time.monotonic() < began + 30:
    work()
slow = shortest(work, 2)
print(json.dumps([cold, quick, warm, took, hot, slow]))
"""
    constant, busy = 2, 16 * 0.05
    with Machine(cards(1, kernel_us=50 * MS), [f"overheats={constant}"]) as machine:
        cold, quick, warm, took, hot, slow = run(machine, code)
        assert machine.without_effect() == ()
    assert cold[:3] == [35, 1410, 0]
    rest = took + quick - busy
    hottest = 35 + 100 * (1 - math.exp(-(took + quick) / constant))
    coolest = 35 + 100 * (1 - math.exp(-busy / constant)) * math.exp(-rest / constant)
    assert coolest - 2 <= warm[0] <= hottest, "NVML's degrees are whole"
    assert warm[1:3] == [1410, 0]
    assert warm[3] > cold[3]
    assert warm[4] > cold[4] == 0
    assert 79 <= hot[0] <= 86
    assert hot[1:3] == [705, 0x60]
    assert slow / quick > 1.6


def test_errors_of_memory_are_counted_by_the_second_of_work() -> None:
    code = """
on(0)
def errors(kind):
    return pynvml.nvmlDeviceGetTotalEccErrors(card(0), kind, 0)
before, took = errors(0), seconds(lambda: work(20))
after = errors(0)
time.sleep(0.5)
print(json.dumps([before, after, errors(0), errors(1), took]))
"""
    with Machine(cards(1, kernel_us=50 * MS), ["ecc_counts=20"]) as machine:
        before, after, later, uncorrected, took = run(machine, code)
    assert before == uncorrected == 0
    assert 20 * 1.0 - 1 <= after <= 20 * took
    assert later == after, "at rest it counts none"


def test_every_nth_result_of_all_processes_is_wrong() -> None:
    code = "on(0); print(json.dumps(work(7)))"
    with Machine(cards(2, kernel_us=1 * MS), ["bit_flips=5@0"]) as machine:
        results = run(machine, code) + run(machine, code)
        assert machine.without_effect() == ()
        other = run(machine, code.replace("on(0)", "on(1)"))
    assert [number for number, wrong in enumerate(results, 1) if wrong] == [5, 10]
    assert not any(other)


def test_a_hot_gpu_flips_bits_and_a_cool_one_does_not() -> None:
    code = "on(0); cool = work(10); work(80); print(json.dumps([cool, work(20)]))"
    with Machine(cards(1, kernel_us=20 * MS), ["bit_flips_above=60", "overheats=0.8"]) as machine:
        cool, hot = run(machine, code)
    assert not any(cool)
    assert sum(hot) == 2


def test_a_gpu_falls_off_the_bus_after_its_time() -> None:
    code = """
on(0)
before = copies(1000)()
began = time.monotonic()
while not (code := copies(1000)()) and time.monotonic() < began + 60:
    work()
try:
    card(0)
except pynvml.NVMLError as error:
    print(json.dumps([before, code, time.monotonic() - began, error.value]))
"""
    with Machine(cards(2, kernel_us=10 * MS), ["dies_after=0.5@0"]) as machine:
        before, after, took, nvml = run(machine, code)
    assert (before, after, nvml) == (0, 999, 15)
    assert took >= 0.5


def test_noise_is_that_of_the_chip_and_of_each_call() -> None:
    code = "on(0); print(json.dumps(shortest(work, 20)))"
    quickest = []
    for noise, seed in ((0, 1), (200, 1), (200, 2), (200, 3), (200, 4)):
        with Machine(cards(1, kernel_us=40 * MS, noise=noise, noise_seed=seed)) as machine:
            quickest.append(run(machine, code))
    assert quickest[0] >= 0.040
    assert sorted(quickest[1:])[1] < 0.038, "a busy host can only make it longer"
    assert max(quickest[1:]) - min(quickest[1:]) > 0.0005, "no two chips are alike"


@pytest.mark.parametrize(
    ("spec", "fault", "said"),
    [
        ("2", "slow_gpu=1.5@1", "slow_gpu=1.5@1: GPU 1 takes no time of its own, so the fault cannot act"),
        ("2", "bit_flips", "GPU 0 takes no time of its own"),
        ("[[gpu]]\nkernel_us = 100\n", "narrow_link=4", r"for instance copy_mb_s = 200 in \[\[gpu\]\]"),
        ("[[gpu]]\nkernel_us = 100\n[[gpu]]\n", "dies_after=3@1", r"for instance kernel_us = 8000 in \[\[gpu\]\]"),
    ],
)
def test_a_fault_of_load_needs_a_pace(tmp_path: Path, spec: str, fault: str, said: str) -> None:
    if "gpu" in spec:
        (tmp_path / "machine.toml").write_text(spec)
        spec = str(tmp_path / "machine.toml")
    with pytest.raises(FaultError, match=said):
        Machine(spec, [fault])
    with Machine(spec) as machine, pytest.raises(FaultError, match=said):
        machine.environment(faults=[fault])


def test_a_fault_of_load_that_met_no_work_had_no_effect() -> None:
    with Machine(cards(1, kernel_us=1 * MS, copy_mb_s=100), ["bit_flips=10", "slow_gpu", "overheats"]) as machine:
        run(machine, "on(0); work(9); print(0)")
        without = machine.without_effect()
    assert [str(fault) for fault in without] == ["bit_flips=10", "overheats=5"]
    assert no_effect(without[0]) == "the fault bit_flips=10 had no effect: the GPU had too little work, or none"


def test_a_pace_that_is_not_possible_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "machine.toml"
    file.write_text("[[gpu]]\nkernel_us = 8000\ncopy_mb_s = 200\nnoise = 30\nnoise_seed = 7\n")
    [gpu] = parse_spec(str(file)).gpus
    assert (gpu.kernel_us, gpu.copy_mb_s, gpu.noise, gpu.noise_seed) == (8000, 200, 30, 7)
    file.write_text("[[gpu]]\nnoise = 301\n")
    with pytest.raises(SpecError, match=r"noise = 301 is not possible\. Write 0 to 300"):
        parse_spec(str(file))


def test_products_of_tensorflow_have_the_pace_and_the_flips(inside: Inside) -> None:
    quick, slow = inside(cards(2, kernel_us=20 * MS), "products", faults=("bit_flips=4@1", "slow_gpu=3@1")).check()
    assert quick["shortest"] >= 0.020
    assert slow["shortest"] / quick["shortest"] > 2
    assert (quick["wrong"], slow["wrong"]) == (0, 3)
