"""nvidia-smi of a simulated machine: what programs and people read of it, as they call it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpudiag.simulator import Machine

TWO = """
[[gpu]]
preset = "A100-40"
mig = 2
[[gpu]]
preset = "T4"
taken = "3GiB"
taken_by = 4242
numa_node = 1
"""
LINKED = '[[gpu]]\npreset = "A100-40"\ncount = 2\nstate = {nvlinks = 12, nvlinks_active = 11}\n'


def smi(spec: str, *arguments: str, faults: tuple[str, ...] = (), timeout: float = 60) -> tuple[int, str]:
    """Return the exit status of ``nvidia-smi`` on a machine, found by PATH, and its output."""
    with Machine(spec, faults) as machine:
        environment = machine.environment()
        program = shutil.which("nvidia-smi", path=environment["PATH"])
        assert program == str(machine.directory / "bin/nvidia-smi")
        done = subprocess.run(
            [program, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
    return done.returncode, done.stdout


@pytest.fixture
def two(tmp_path: Path) -> str:
    """Return a machine of two cards, one of them in MIG mode and the other used by another process."""
    file = tmp_path / "machine.toml"
    file.write_text(TWO)
    return str(file)


def test_the_summary(two: str) -> None:
    status, text = smi(two)
    assert status == 0
    day, *lines = text.splitlines()
    assert re.fullmatch(r"\w{3} \w{3} [ \d]\d [\d:]{8} \d{4}", day.strip())
    assert {len(line) for line in lines} == {91}
    assert "Driver Version: 560.35.05" in text
    assert "CUDA Version: 12.6" in text
    assert re.search(r"\|   1  Simulated Tesla T4 {13}On  \|   00000000:02:00\.0 Off \|", text)
    assert re.search(r"\| N/A   N/A    P0 .*\| +3072MiB /  15360MiB \|      N/A     Default \|", text)
    assert re.search(r"\|    1   N/A  N/A             4242      C   \[Not Found\] +3072MiB \|", text)
    assert "No running processes found" not in text


def test_without_processes() -> None:
    assert "No running processes found" in smi("1")[1]


def test_the_list_has_mig_instances(two: str) -> None:
    status, text = smi(two, "-L")
    first, instance, other, last = text.splitlines()
    assert status == 0
    assert re.fullmatch(r"GPU 0: Simulated NVIDIA A100-SXM4-40GB \(UUID: GPU-[-0-9a-f]{36}\)", first)
    assert re.fullmatch(r"  MIG +Device  0: \(UUID: MIG-[-0-9a-f]{36}\)", instance)
    assert "Device  1:" in other
    assert last.startswith("GPU 1: Simulated Tesla T4 (UUID: GPU-")


def test_fields(two: str) -> None:
    names = "index,gpu_name,memory.total,memory.used,utilization.gpu,compute_cap,mig.mode.current,power.limit"
    assert smi(two, f"--query-gpu={names}", "--format=csv") == (
        0,
        "index, name, memory.total [MiB], memory.used [MiB], utilization.gpu [%], compute_cap, mig.mode.current, "
        "power.limit [W]\n"
        "0, Simulated NVIDIA A100-SXM4-40GB, 40960 MiB, 0 MiB, [N/A], 8.0, Enabled, 400.00 W\n"
        "1, Simulated Tesla T4, 15360 MiB, 3072 MiB, [N/A], 7.5, [N/A], 400.00 W\n",
    )
    plain = smi(two, "--query-gpu", "memory.free, count", "--format", "csv,noheader,nounits", "--id=1")
    assert plain == (0, "12288, 2\n")


def test_every_field_of_a_gpu_with_a_pace_is_answered(tmp_path: Path) -> None:
    status, names = smi("1", "--help-query-gpu")
    assert status == 0
    machine = tmp_path / "machine.toml"
    machine.write_text("[[gpu]]\nkernel_us = 1000\n")
    status, text = smi(str(machine), f"--query-gpu={','.join(names.split())}", "--format=csv,noheader")
    assert status == 0
    assert text.count(", ") == len(names.split()) - 1
    assert "[N/A]" not in text


def test_without_a_header_or_a_process_nothing_is_written() -> None:
    assert smi("1", "--query-compute-apps=pid", "--format=csv,noheader") == (0, "")


def test_processes_as_fields(two: str) -> None:
    status, text = smi(two, "--query-compute-apps=pid,name,used_memory,gpu_bus_id", "--format=csv")
    assert (status, text) == (
        0,
        "pid, process_name, used_gpu_memory [MiB], gpu_bus_id\n4242, [Not Found], 3072 MiB, 00000000:02:00.0\n",
    )


def test_everything(two: str) -> None:
    status, text = smi(two, "-q", "-i", "00000000:02:00.0")
    assert status == 0
    assert text.count("Product Name") == 1
    for line in (
        "Attached GPUs +: 2",
        "Used +: 3072 MiB",
        "Domain +: 0x0000",
        "Process ID +: 4242",
        "Max +: 16x",
        "Serial Number +: N/A",
    ):
        assert re.search(f"^ *{line}$", text, re.MULTILINE), line


def test_topology(two: str, tmp_path: Path) -> None:
    status, text = smi(two, "topo", "-m")
    assert status == 0
    assert text.splitlines()[:3] == [
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID",
        "GPU0\t X \tSYS\tN/A\t0\t\tN/A",
        "GPU1\tSYS\t X \tN/A\t1\t\tN/A",
    ]
    file = tmp_path / "linked.toml"
    file.write_text(LINKED)
    assert "NV11" in smi(str(file), "topo", "-m")[1]


@pytest.mark.parametrize(
    ("faults", "status", "words"),
    [
        (("nvml_init=18",), 18, "Failed to initialize NVML: Driver/library version mismatch"),
        (("nvml_init=9",), 9, "couldn't communicate with the NVIDIA driver"),
        (("nvml_missing",), 12, "couldn't find libnvidia-ml.so"),
        (("device_lost_after=1",), 15, "GPU is lost"),
    ],
)
def test_a_machine_that_is_broken(faults: tuple[str, ...], status: int, words: str) -> None:
    code, text = smi("1", faults=faults)
    assert (code, words in text) == (status, True), text


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("-i", "7"), 6, "no GPU has the index, UUID or PCI bus id '7'"),
        (("-pm", "1"), 2, "ERROR: Option -pm is not recognized. Please run 'nvidia-smi -h'.\n"),
        (("--query-gpu=index,temprature", "--format=csv"), 2, 'Field "temprature" is not a valid field to query.\n'),
        (("--query-gpu=index",), 2, "the format must be csv"),
        (("--query-gpu=index", "--format=xml"), 2, "the format must be csv"),
        (("topo", "-p2p", "r"), 2, "Option -p2p is not recognized"),
        (("topo",), 2, "only topo -m is simulated"),
        (("-m",), 2, "no option '-m' without the command topo"),
        (("dmon",), 2, "no command 'dmon'"),
        (("-f", "/no/such/folder/file"), 2, "cannot write to /no/such/folder/file"),
    ],
)
def test_what_it_does_not_know_is_an_error(arguments: tuple[str, ...], status: int, words: str) -> None:
    code, text = smi("1", *arguments)
    assert (code, words in text) == (status, True), text
    assert "Traceback" not in text


def test_again_and_again_the_header_comes_once() -> None:
    with Machine("1") as machine:
        command = ["nvidia-smi", "--query-gpu=index", "--format=csv", "-lms", "1"]
        with subprocess.Popen(command, env=machine.environment(), stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            lines = [running.stdout.readline() for _ in range(4)]
            running.terminate()
    assert lines == ["index\n", "0\n", "0\n", "0\n"]


def test_into_a_file(tmp_path: Path) -> None:
    assert smi("1", "-L", "-f", str(tmp_path / "list")) == (0, "")
    assert (tmp_path / "list").read_text().startswith("GPU 0: Simulated")


def test_a_machine_inside_another_has_its_own() -> None:
    with Machine("1") as outer, Machine("3") as inner:
        path = inner.environment(outer.environment())["PATH"]
        assert path.startswith(f"{inner.directory}/bin:")
        assert str(outer.directory) not in path


def test_without_a_command_it_is_a_shell() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpudiag", "simulate", "1"],
        input="nvidia-smi -L; exit 3\n",
        env={**os.environ, "SHELL": "/bin/sh"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.count("GPU 0: Simulated GPU")) == (3, 1)
