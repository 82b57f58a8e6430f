"""Memory truth: one ledger for all processes of a machine, given back by any death."""

from __future__ import annotations

import ctypes
import json
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpudiag.simulator import Machine, library_directory
from gpudiag.simulator.machine import CORE, TABLE_BYTES

from .on_machine import GIB, HERE, MIB, MODULES, Inside, cards, run_python

# A process that speaks to the driver alone: allocates what each line on stdin says, prints the code
# and the free bytes.
HOLDER = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_void_p()
free, total = ctypes.c_size_t(), ctypes.c_size_t()
codes = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)]
codes.append(cuda.cuCtxSetCurrent(context))
print(*codes, flush=True)
for line in sys.stdin:
    code = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(int(line)))
    cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    print(code, free.value, flush=True)
"""


class Holder:
    """A process that runs HOLDER, until the end of the `with` block or until it is killed."""

    def __init__(self, machine: Machine, **changes: str) -> None:
        environment = machine.environment()
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        environment.update(changes)
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        self.start = self.process.stdout.readline().split()

    def take(self, size: int) -> tuple[int, int]:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{size}\n")
        self.process.stdin.flush()
        code, free = self.process.stdout.readline().split()
        return int(code), int(free)

    def kill(self, reap: bool = True) -> None:
        self.process.send_signal(signal.SIGKILL)
        if reap:
            self.process.wait(10)
        else:
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline:
                if Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1][1] == "Z":
                    break

    def __enter__(self) -> Holder:
        return self

    def __exit__(self, *_: object) -> None:
        with self.process:  # closes the pipes and reaps it
            self.process.kill()


def test_hard_ceiling_for_all_processes_together() -> None:
    with (
        Machine(cards(1, memory=GIB, context_overhead=100 * MIB)) as machine,
        Holder(machine) as first,
        Holder(machine) as second,
    ):
        assert first.start == second.start == ["0", "0", "0"]
        assert first.take(500 * MIB) == (0, 324 * MIB)
        assert second.take(324 * MIB + 1) == (2, 324 * MIB)
        assert second.take(324 * MIB) == (0, 0)
        assert first.take(1) == (2, 0)
        with Holder(machine) as third:
            assert third.start == ["0", "2", "0"], "no memory for a context"


@pytest.mark.parametrize("reap", [True, False], ids=["reaped", "zombie"])
def test_a_killed_process_gives_its_memory_back(reap: bool) -> None:
    with Machine(cards(1, memory=GIB)) as machine, Holder(machine) as first, Holder(machine) as second:
        assert first.take(GIB) == (0, 0)
        assert second.take(MIB) == (2, 0)
        first.kill(reap)
        assert second.take(MIB) == (0, GIB - MIB)


@pytest.mark.parametrize(
    ("mode", "second"),
    [("default", "0"), ("exclusive_process", "46"), ("exclusive_thread", "46")],
)
def test_exclusive_compute_mode(mode: str, second: str) -> None:
    with Machine(cards(2, compute_mode=mode)) as machine, Holder(machine) as first, Holder(machine) as other:
        assert first.start == ["0", "0", "0"]
        assert other.start[:2] == ["0", second]
        with Holder(machine, CUDA_VISIBLE_DEVICES="1") as elsewhere:
            assert elsewhere.start == ["0", "0", "0"]
            first.kill()
            with Holder(machine) as late:
                assert late.start == ["0", "0", "0"]


def test_eight_processes_share_a_device() -> None:
    with Machine(cards(1, memory=GIB)) as machine, ExitStack() as stack:
        holders = [stack.enter_context(Holder(machine)) for _ in range(8)]
        codes = [holder.take(128 * MIB)[0] for holder in holders]
        assert codes == [0] * 8
        assert [holder.take(512)[0] for holder in holders] == [2] * 8
        assert processes(machine) == {holder.process.pid: 128 * MIB for holder in holders}
        holders[0].kill()
        assert len(processes(machine)) == 7


NVML = """
import json, pynvml
pynvml.nvmlInit()
found = []
for index in range(pynvml.nvmlDeviceGetCount()):
    device = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(device)
    found.append({
        "name": pynvml.nvmlDeviceGetName(device),
        "uuid": pynvml.nvmlDeviceGetUUID(device),
        "pci": pynvml.nvmlDeviceGetPciInfo(device).busId,
        "total": memory.total, "used": memory.used, "free": memory.free,
        "capability": pynvml.nvmlDeviceGetCudaComputeCapability(device),
        "mode": pynvml.nvmlDeviceGetComputeMode(device),
        "processes": {p.pid: p.usedGpuMemory
                      for p in pynvml.nvmlDeviceGetComputeRunningProcesses(device)},
    })
print(json.dumps({"devices": found, "driver": pynvml.nvmlSystemGetDriverVersion(),
                  "cuda": pynvml.nvmlSystemGetCudaDriverVersion()}))
"""


def nvml(machine: Machine, **environment: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", NVML],
        env={**machine.environment(), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def processes(machine: Machine) -> dict[int, int]:
    devices = nvml(machine)["devices"]
    assert isinstance(devices, list)
    return {int(pid): size for pid, size in devices[0]["processes"].items()}


def test_nvml_shows_the_specification() -> None:
    spec = "2x4GiB:H100,1:T4"
    with Machine(spec) as machine:
        # NVML ignores the mask and counts in PCI order.
        found = nvml(machine, CUDA_VISIBLE_DEVICES="2")
        devices = found["devices"]
        assert isinstance(devices, list)
        assert [d["name"] for d in devices] == [gpu.name for gpu in machine.spec.gpus]
        assert [d["uuid"] for d in devices] == [gpu.uuid for gpu in machine.spec.gpus]
        assert [d["total"] for d in devices] == [gpu.memory for gpu in machine.spec.gpus]
        assert [d["pci"] for d in devices] == [f"0000{gpu.pci_bus_id}".upper() for gpu in machine.spec.gpus]
        assert devices[2]["capability"] == [7, 5]
        assert found["driver"] == machine.spec.driver_version
        assert found["cuda"] == 12060
        assert [d["used"] for d in devices] == [0, 0, 0]


MIG = """
import json, pynvml
pynvml.nvmlInit()
whole = pynvml.nvmlDeviceGetHandleByIndex(0)
parts = [pynvml.nvmlDeviceGetMigDeviceHandleByIndex(whole, number) for number in range(2)]
print(json.dumps({
    "mode": pynvml.nvmlDeviceGetMigMode(whole),
    "uuids": [pynvml.nvmlDeviceGetUUID(part) for part in parts],
    "used": [pynvml.nvmlDeviceGetMemoryInfo(unit).used for unit in (*parts, whole)],
    "total": [pynvml.nvmlDeviceGetMemoryInfo(unit).total for unit in (*parts, whole)],
    "same": pynvml.nvmlDeviceGetUUID(
        pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(parts[1])
    ) == pynvml.nvmlDeviceGetUUID(whole),
}))
"""


def test_mig_instances_have_memory_of_their_own() -> None:
    with Machine(cards(1, mig=2)) as machine:
        uuids = list(machine.spec.gpus[0].mig_uuids)
        with Holder(machine, CUDA_VISIBLE_DEVICES=uuids[1]) as holder:
            assert holder.take(3 * GIB) == (0, GIB)
            done = run_python(machine, "-c", MIG)
    assert json.loads(done.stdout) == {
        "mode": [1, 1],
        "uuids": uuids,
        "used": [0, 3 * GIB, 3 * GIB],
        "total": [4 * GIB, 4 * GIB, 8 * GIB],
        "same": True,
    }


def test_memory_taken_by_a_foreign_process() -> None:
    with Machine(cards(1, taken=3 * GIB, taken_by=4242)) as machine:
        assert processes(machine) == {4242: 3 * GIB}
        with Holder(machine) as holder:
            assert holder.take(GIB) == (0, 4 * GIB)
            assert processes(machine) == {4242: 3 * GIB, holder.process.pid: GIB}


def test_tensorflow_driver_and_nvml_agree(inside: Inside) -> None:
    for overhead in (0, 400 * MIB):
        found = inside(cards(1, context_overhead=overhead), "memory_agrees").check()
        assert found["driver"] == found["nvml"] == found["process"]
        assert found["tensorflow"] >= 256 * MIB
        assert found["nvml"] - overhead >= found["tensorflow"]
        assert found["sum"] == 256 * MIB / 4


def test_two_tensorflow_processes_compete(inside: Inside, tmp_path: Path) -> None:
    ready, release = tmp_path / "ready", tmp_path / "release"
    with Machine(cards(1, memory=GIB)) as machine:
        environment = {**machine.environment(), "PYTHONPATH": f"{HERE}:{MODULES}"}
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        call = f"import inside; inside.hold_memory(500, {str(ready)!r}, {str(release)!r})"
        other = subprocess.Popen([sys.executable, "-c", call], env=environment)
        try:
            deadline = time.monotonic() + 300
            while not ready.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            assert ready.exists()
            held = processes(machine)
            assert list(held) == [other.pid]
            assert held[other.pid] >= 500 * MIB
            found = inside.on(machine, "first_allocation", growth=True)
            [[used, mine]] = found.check()["steps"]
            assert (used, mine) == (held[other.pid] + 2 * MIB, 2 * MIB)
        finally:
            other.kill()
            other.wait(10)
        assert processes(machine) == {}


def test_large_machines_cost_nothing_until_used(inside: Inside) -> None:
    found = inside("8x80GiB:H100", "cost_of_starting").check()
    assert found["computed"] == 8
    assert found["touched"] < 200 * MIB


def test_first_op_of_a_large_gpu_touches_little_host_memory(inside: Inside) -> None:
    """TensorFlow's own handles for this pool are 2.4 GiB, if they are not mapped lazily."""
    found = inside(cards(1, memory=80 * GIB), "host_memory_of_a_large_pool").check()
    assert found["pool"] > 76 * GIB
    assert found["touched"] < 200 * MIB
    assert found["total"] == 257.0


def test_a_forked_child_cannot_use_its_parents_driver() -> None:
    code = HOLDER.partition("for line")[0] + (
        "import os\n"
        "if not os.fork():\n"
        "    print(cuda.cuInit(0), cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))\n"
    )
    with Machine(cards(1)) as machine:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=machine.environment(),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.stdout.split() == ["0", "0", "0", "3", "3"]


def test_machines_in_parallel_do_not_disturb_one_another() -> None:
    with Machine(cards(1, memory=GIB)) as small, Machine(cards(1, memory=2 * GIB)) as other:
        with Holder(small) as first, Holder(other) as second:
            assert first.take(GIB) == (0, 0)
            assert second.take(GIB) == (0, GIB)
        directories = [small.directory, other.directory]
        assert directories[0] != directories[1]
    assert not any(directory.exists() for directory in directories)


def test_the_library_is_plain_c() -> None:
    """The core depends on the C library alone: it must load into any program."""
    from gpudiag.simulator import library_directory

    core = ctypes.CDLL(str(library_directory() / "libgpudiag_cuda.so"))
    assert core.gpudiag_simulated_stack() == 1


def test_the_table_has_its_room_when_the_machine_is_made() -> None:
    core = ctypes.CDLL(str(library_directory() / CORE))
    core.gpudiag_table_bytes.restype = ctypes.c_size_t
    assert core.gpudiag_table_bytes() == TABLE_BYTES, "machine.py"
    with Machine("1") as machine:
        table = (machine.directory / "memory").stat()
        assert (table.st_size, table.st_blocks * 512 >= TABLE_BYTES) == (TABLE_BYTES, True)


@pytest.mark.parametrize("kilobytes", [16, 1024])
def test_a_limit_of_files_that_the_table_does_not_fit_in_is_named(kilobytes: int) -> None:
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({kilobytes << 10}, {kilobytes << 10}))\n"
        "from gpudiag.simulator import Machine; Machine('1').__enter__()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "SimulatorError: cannot create the files of the simulated machine: " in done.stderr
    assert done.stderr.strip().endswith("raise ulimit -f.")


# Copies and memsets with a range of the process itself that no driver gave out: code, constants, nothing, a file.
WILD = """
import ctypes, mmap, os, tempfile
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_void_p()
cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context)
cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4096))
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
guard = libc.mmap(None, ctypes.c_size_t(8192), 0, 0x22, -1, ctypes.c_long(0))
with tempfile.TemporaryFile() as file:  # mapped beyond its end
    beyond = libc.mmap(None, ctypes.c_size_t(8192), 3, 1, file.fileno(), ctypes.c_long(0))
code = ctypes.cast(cuda.cuInit, ctypes.c_void_p).value
buffer = ctypes.create_string_buffer(4096)
size = ctypes.c_size_t(4096)
for place in (guard, beyond, code, 4096, address.value + (1 << 46)):
    print(
        cuda.cuMemcpyHtoD_v2(ctypes.c_void_p(place), buffer, size),
        cuda.cuMemcpyDtoH_v2(buffer, ctypes.c_void_p(place), size),
        cuda.cuMemcpyDtoD_v2(ctypes.c_void_p(place), address, size),
        cuda.cuMemsetD8_v2(ctypes.c_void_p(place), 0, size),
    )
print(cuda.cuMemcpyDtoH_v2(buffer, address, size), cuda.cuMemcpyHtoD_v2(address, buffer, size))
"""


def test_a_wild_range_is_an_error_and_no_crash() -> None:
    with Machine("1x1GiB") as machine:
        done = run_python(machine, "-c", WILD)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [*["1"] * 20, "0", "0"]
