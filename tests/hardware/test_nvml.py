"""gpudiag.hardware.nvml against a small libnvidia-ml.so.1 with the real ABI, compiled here, through the real pynvml."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import msgspec
import pytest

from gpudiag.hardware.nvml import _asked, normalise_pci
from gpudiag.model.facts import NvmlFacts
from gpudiag.probe import MemoryUse

SOURCE = Path(__file__).parent / "nvml_library.c"
GATHER = "from gpudiag.facts import gather_family; print(gather_family({'family': 'nvml'}).decode())"
MEMORY = (
    "import msgspec, sys; from gpudiag.hardware.nvml import memory; "
    "print(msgspec.json.encode(memory(sys.argv[1])).decode())"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a freshly compiled libnvidia-ml.so.1."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler (cc or gcc) to make a libnvidia-ml.so.1")
    folder = tmp_path_factory.mktemp("nvml")
    command = [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(folder / "libnvidia-ml.so.1"), str(SOURCE)]
    subprocess.run(command, check=True)
    return folder


def run(code: str, *arguments: str, folder: Path, **settings: int) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {name: str(value) for name, value in settings.items()}
    environ["LD_LIBRARY_PATH"] = str(folder)
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)


def gather(folder: Path, **settings: int) -> NvmlFacts:
    ended = run(GATHER, folder=folder, **settings)
    assert ended.returncode == 0, ended.stderr
    return msgspec.json.decode(ended.stdout, type=NvmlFacts)


def test_every_fact_of_a_gpu(library: Path) -> None:
    facts = gather(library, NVML_COUNT=2)
    assert (facts.error, facts.driver_version, facts.cuda_version) == (None, "535.104.05", "12.2")
    second = facts.devices[1]
    assert (second.index, second.name, second.uuid, second.pci_bus_id) == (1, "Card 1", "GPU-1", "0000:3c:00.0")
    assert (second.memory_total_bytes, second.memory_used_bytes) == (40 << 30, 1 << 30)
    assert (second.compute_capability, second.compute_mode) == ("8.9", "exclusive_process")
    assert (second.mig_mode, second.mig_uuids) == ("disabled", ())
    assert (1, None) in [(process.pid, process.used_bytes) for process in second.processes]
    assert 512 << 20 in [process.used_bytes for process in second.processes]


def test_no_gpu_is_no_error(library: Path) -> None:
    assert gather(library, NVML_COUNT=0) == NvmlFacts(None, "535.104.05", "12.2", ())


def test_instances_of_a_mig_gpu(library: Path) -> None:
    (device,) = gather(library, NVML_MIG=1).devices
    assert device.mig_mode == "enabled"
    assert device.mig_uuids == ("MIG-1000", "MIG-1003", "MIG-1006")


def test_what_the_driver_does_not_support_is_none(library: Path) -> None:
    facts = gather(library, NVML_BARE=1)
    (device,) = facts.devices
    assert (facts.error, facts.cuda_version) == (None, None)
    assert (device.compute_capability, device.compute_mode, device.mig_mode) == (None, None, None)
    assert (device.memory_total_bytes, device.processes) == (0, ())


def test_a_lost_gpu_is_named_and_hides_no_other(library: Path) -> None:
    facts = gather(library, NVML_COUNT=3, NVML_LOST=1)
    assert facts.error == "GPU 1: GPU is lost"
    assert [device.index for device in facts.devices] == [0, 2]


@pytest.mark.parametrize(
    ("code", "words"),
    [(9, "Driver Not Loaded"), (18, "RM has detected an NVML/RM version mismatch."), (77, "Words of this library")],
)
def test_a_failing_start_is_reported_in_the_words_of_nvml(library: Path, code: int, words: str) -> None:
    assert gather(library, NVML_INIT=code) == NvmlFacts(words, None, None, ())


def test_without_the_library(tmp_path: Path) -> None:
    broken = tmp_path / "libnvidia-ml.so.1"
    broken.write_bytes(b"")  # found first, and refused by the loader, also on a machine that has NVML
    if (found := gather(tmp_path)).error is None:
        pytest.skip(f"this machine's NVML was loaded instead: driver {found.driver_version}")
    assert found == NvmlFacts("NVML Shared Library Not Found", None, None, ())


def test_without_pynvml(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('no pynvml here')")
    ended = run(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {GATHER}", folder=tmp_path)
    assert msgspec.json.decode(ended.stdout, type=NvmlFacts) == NvmlFacts(
        "The Python package nvidia-ml-py cannot be imported: no pynvml here", None, None, ()
    )


def test_memory_of_the_device_and_of_this_process(library: Path) -> None:
    ended = run(MEMORY, "GPU-0", folder=library)
    assert msgspec.json.decode(ended.stdout, type=MemoryUse) == MemoryUse(1 << 30, 512 << 20)


def test_memory_of_this_process_that_nvml_does_not_tell(library: Path) -> None:
    ended = run(MEMORY, "GPU-0", folder=library, NVML_MIG=1)
    assert msgspec.json.decode(ended.stdout, type=MemoryUse) == MemoryUse(1 << 30, None)


def test_memory_of_an_unknown_gpu_raises(library: Path) -> None:
    ended = run(MEMORY, "GPU-7", folder=library)
    assert ended.returncode == 1
    assert "NVMLError_NotFound" in ended.stderr


def test_used_memory_is_none_if_nvml_does_not_say(library: Path, tmp_path: Path) -> None:
    ask = "import sys; from gpudiag.hardware.nvml import used_memory; print(used_memory(sys.argv[1]))"
    assert run(ask, "GPU-0", folder=library).stdout.strip() == str(1 << 30)
    assert run(ask, "GPU-7", folder=library).stdout.strip() == "None"
    (tmp_path / "libnvidia-ml.so.1").touch()  # no library
    assert run(ask, "GPU-0", folder=tmp_path).stdout.strip() == "None"


def test_pci_bus_ids_are_spelt_as_cuda_spells_them() -> None:
    assert normalise_pci("00000000:3B:00.0") == "0000:3b:00.0"
    assert normalise_pci(b"0000:0A:1F.1") == "0000:0a:1f.1"
    assert normalise_pci("00010000:01:00.0") == "10000:01:00.0"


@pytest.mark.parametrize("call", ["nvmlAbsent", "nvmlOther", "nvmlRefused"])
def test_an_nvidia_ml_py_of_another_version_costs_only_what_it_lacks(call: str) -> None:
    """Some calls have changed their arguments from one version to the next."""

    class RefusedError(Exception):
        pass

    def refused() -> None:
        raise RefusedError

    module = types.ModuleType("pynvml")
    vars(module).update(NVMLError=RefusedError, nvmlOther=lambda handle, more: (handle, more), nvmlRefused=refused)
    assert _asked(module, call, *(["handle"] if call == "nvmlOther" else [])) is None
    assert _asked(module, "nvmlOther", 1, 2) == (1, 2)
