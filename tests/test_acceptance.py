"""scripts/acceptance.py: what stops it, what it keeps, and a short run with a simulated machine in the role of real."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

import acceptance
from acceptance import Acceptance, CannotRunError, differences, page, run_child, simulation_of
from examples.facts import example_with_gpus
from gpudiag.model import codec
from gpudiag.model.facts import NvmlFacts
from gpudiag.model.report import Gpu, Report, Skipped, World
from gpudiag.simulator.spec import read_toml
from reports import GPUS, MISSPELT, passed, report, row

SCRIPT = Path(acceptance.__file__)


def machine(**changes: object) -> Report:
    """Return the report of a machine of two GPUs; ``changes`` are of the second one, as NVML describes it."""
    facts = example_with_gpus(2)
    assert isinstance(facts.nvml, NvmlFacts)
    first, second = facts.nvml.devices
    devices = (first, replace(second, **changes))
    facts = replace(facts, nvml=replace(facts.nvml, devices=devices))
    gpus = tuple(Gpu.of(device, device.uuid) for device in devices)
    return report(row("host.gpus", passed("2 GPUs")), gpus=gpus, facts=facts)


def run(folder: Path, of: Report | None = None) -> Acceptance:
    folder.mkdir(exist_ok=True)
    return Acceptance(folder, time.monotonic() + 60, None, of or machine())


def test_each_card_is_simulated_as_nvml_describes_it(tmp_path: Path) -> None:
    other = machine(
        name="NVIDIA H200",
        memory_total_bytes=143771 << 20,
        memory_used_bytes=3 << 30,
        compute_capability="9.0",
        mig_mode="enabled",
        mig_uuids=("MIG-1", "MIG-2"),
    )
    (tmp_path / "machine.toml").write_text(simulation_of(other))
    simulated = read_toml(tmp_path / "machine.toml")
    assert isinstance(other.facts.nvml, NvmlFacts)
    assert simulated.driver_version == other.facts.nvml.driver_version
    assert [gpu.pci_bus_id for gpu in simulated.gpus] == [gpu.pci_bus_id for gpu in other.gpus]
    assert [gpu.memory >> 20 for gpu in simulated.gpus] == [gpu.memory_total_bytes >> 20 for gpu in other.gpus]
    second = simulated.gpus[1]
    assert (second.name, second.multiprocessors, second.mig, second.taken >> 30) == ("Simulated NVIDIA H200", 132, 2, 3)


def test_the_page_says_what_makes_a_number_doubtful(tmp_path: Path) -> None:
    other = machine(name="NVIDIA H200", memory_used_bytes=3 << 30, mig_mode="enabled", mig_uuids=("MIG-1",))
    text = page(run(tmp_path, other))
    assert "3072 MiB of GPU 1 were in use by others before the run" in text
    assert "GPU 1 has MIG on, with 1 instances." in text
    assert "The GPUs are of different models." in text


def test_a_folder_is_of_one_machine_and_one_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path).open()
    run(tmp_path).open()
    with pytest.raises(CannotRunError, match="holds the results of another machine"):
        run(tmp_path, machine(uuid="GPU-another")).open()
    monkeypatch.setattr(acceptance, "commit", lambda: "0123456789ab")
    with pytest.raises(CannotRunError, match=r"holds the results of another commit .*here: 0123456789ab"):
        run(tmp_path).open()


def test_a_file_that_was_cut_off_counts_as_not_there(tmp_path: Path) -> None:
    acceptances = run(tmp_path)
    acceptances.write("steps/times.json", {"ok": True, "said": "well"})
    assert acceptances.record("times") == {"ok": True, "said": "well"}
    (tmp_path / "steps" / "times.json").write_text('{"ok": tr')
    assert acceptances.record("times") == {}


def test_a_full_disk_is_one_sentence_and_the_rest_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path).open()
    kept = (tmp_path / "machine.json").read_text()
    (tmp_path / "machine.json.new").symlink_to("/dev/full")
    monkeypatch.setattr(acceptance, "look", machine)
    monkeypatch.setattr(sys, "argv", ["acceptance.py", str(tmp_path)])
    assert acceptance.main() == 2
    assert capsys.readouterr().err.startswith("acceptance: the disk is full. Free some space and run it again")
    assert (tmp_path / "machine.json").read_text() == kept


def test_a_step_that_hangs_is_ended_with_what_it_started(
    monkeypatch: pytest.MonkeyPatch, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    script = "trap '' TERM; sleep 300 & echo $!; wait; sleep 300"
    monkeypatch.setattr(acceptance, "GRACE_S", 0.5)
    ended = run_child(["sh", "-c", script], dict(os.environ), 1)
    assert ended.code is None
    assert ended.seconds < 20
    pid = int(ended.output.split()[0])
    ended_states = (None, psutil.STATUS_ZOMBIE)  # one that got SIGKILL takes a moment on a busy machine
    wait_until(
        lambda: {each.pid: each.info["status"] for each in psutil.process_iter(["status"])}.get(pid) in ended_states
    )


def test_a_step_that_prints_without_end_is_ended() -> None:
    ended = run_child(["yes"], dict(os.environ), 60)
    assert ended.code is None
    assert ended.seconds < 50
    assert len(ended.output) <= 1 << 20


def test_a_step_that_was_cut_off_runs_again_only_if_there_is_much_more_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = list[float]()

    def step(limit_s: float) -> dict[str, Any]:
        began.append(limit_s)
        return {"ok": False, "said": "", "seconds": 1}

    acceptances = run(tmp_path)
    monkeypatch.setattr(acceptances, "steps", lambda: iter([("real-fork", 1200, step)]))
    acceptances.write("steps/real-fork.json", {"ok": False, "said": "", "seconds": 1, "cut": True, "limit": 55})
    assert acceptances.run("") == 0
    assert began == []
    acceptances.end += 60
    assert acceptances.run("") == 0
    assert len(began) == 1
    acceptances.write("steps/real-fork.json", "{}")
    acceptances.end = time.monotonic() + 5
    assert acceptances.run("") == 1  # too little time to begin


def test_a_step_that_the_end_of_the_call_cut_off_is_left_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acceptances = run(tmp_path)

    def step(limit_s: float, seconds: float = 0, *, cut: bool = False) -> dict[str, Any]:
        acceptances.end -= seconds
        return {"ok": True, "said": "", "seconds": 1, "cut": cut}

    steps = [("first", 1200, partial(step, seconds=25)), ("second", 1200, partial(step, cut=True))]
    monkeypatch.setattr(acceptances, "steps", lambda: iter(steps))
    assert acceptances.run("") == 1
    acceptances.end = time.monotonic() + 60
    assert acceptances.run("") == 0  # with all of a call's time once more: what it gave stands


def test_what_is_worse_on_the_real_gpus_comes_first(tmp_path: Path) -> None:
    first, second = GPUS
    simulated = report(
        row("memory.growth", passed("1 MiB", on=(first,)), first),
        row("memory.growth", Skipped("no room"), second),
        row("placement.log", passed("6 of 6", MISSPELT)),
        gpus=GPUS,
        world=World(True, "simulated.toml"),
    )
    real = report(
        row("memory.growth", passed("1 MiB", MISSPELT, on=(first,)), first),
        row("memory.growth", passed("1 MiB", on=(second,)), second),
        row("placement.log", passed("6 of 6")),
        gpus=GPUS,
    )
    for name, side in (("simulated-fork", simulated), ("real-fork", real)):
        (tmp_path / f"{name}.json").write_text(codec.encode(side))
    lines = list(differences(run(tmp_path)))[2:]
    worse = [line.endswith("| worse |") for line in lines]
    assert worse == sorted(worse, reverse=True)
    assert worse[0]
    assert "outcome: memory.growth GPU 0 | pass | warning" in "\n".join(lines[:2])
    text = page(run(tmp_path))
    assert "| **memory.growth GPU 0** | warning, 0.0 s, 1 MiB | pass, 0.0 s, 1 MiB |" in text


def test_the_lines_that_fetch_name_every_folder_of_the_tests() -> None:
    text = acceptance.fetch_lines()
    assert all(str(Path(file).parent) in text for file in acceptance.TENSORFLOW_TESTS)


OF_TENSORFLOW = """
from tensorflow.python.framework import constant_op
from tensorflow.python.platform import test

class BiasTest(test.TestCase):
    def testOnGpu(self):
        self.assertIn("GPU:0", (constant_op.constant([1.0]) + 1.0).device)

if __name__ == "__main__":
    test.main()
"""
"""A file as those of TensorFlow's own tests."""


def start(folder: Path, *options: str, simulate: str = "1x80GiB:H100") -> subprocess.Popen[str]:
    command = (sys.executable, str(SCRIPT), str(folder), *options)
    gpus = (sys.executable, "-m", "gpudiag", "simulate", simulate, "--") if simulate else ()
    # As from a shell: a worker of pytest would share its GPU with others.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.Popen([*gpus, *command], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.starts
@pytest.mark.slow
def test_a_machine_without_a_gpu_is_one_clear_sentence(tmp_path: Path) -> None:
    with start(tmp_path, simulate="") as process:
        out, _ = process.communicate(timeout=300)
    assert process.returncode == 2
    assert out.count("\n") == 1
    assert out.startswith("acceptance: no NVIDIA GPU can be used here (NVML: ")


@pytest.mark.starts
@pytest.mark.slow
def test_a_short_run_goes_on_after_a_kill_and_names_nothing_of_the_machine(tmp_path: Path) -> None:
    sources = tmp_path.parent / "sources"
    file = next(file for file in acceptance.TENSORFLOW_TESTS if "bias_op" in file)
    (sources / file).parent.mkdir(parents=True)
    (sources / file).write_text(OF_TENSORFLOW)
    some = (
        "--only",
        "mask-minus-one|growth-value|real-gpu|tensorflow-bias",
        "--minutes",
        "10",
        "--sources",
        str(sources),
    )
    first = tmp_path / "steps" / "provoke-mask-minus-one.json"
    with start(tmp_path, *some) as process:
        end = time.monotonic() + 300
        while not first.exists() and time.monotonic() < end:
            time.sleep(0.2)
        time.sleep(1)  # in the middle of the next step
        processes = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        script = next(child for child in processes if child.cmdline()[1:2] == [str(SCRIPT)])
        started = script.children(recursive=True)
        script.kill()
        process.communicate(timeout=60)
    assert started
    assert psutil.wait_procs(started, timeout=60)[1] == []
    before = first.stat().st_mtime_ns
    assert not (tmp_path / "steps" / "provoke-growth-value.json").exists()
    with start(tmp_path, *some) as process:
        out, _ = process.communicate(timeout=500)
    assert process.returncode == 0, out
    assert first.stat().st_mtime_ns == before
    text = (tmp_path / "README.md").read_text()
    assert text.startswith("# Acceptance on SIMULATED GPUs")
    assert "| provoke-growth-value | yes | growth_not_read |" in text
    assert "| tensorflow-bias_op_test | yes | 1 of 1 pass |" in text
    assert "| real-gpu-tests | not run | not run: 3 tests found; these GPUs are simulated |" in text
    written = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    for name in (str(SCRIPT.parent.parent), str(tmp_path), str(Path.home()), socket.gethostname()):
        assert not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", written)
    assert not re.search(r"GPU-[0-9a-f]{8}-", written)
