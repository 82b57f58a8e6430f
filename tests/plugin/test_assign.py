"""Devices of workers: the caller's mask, uniqueness, shares, rounds."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from gpudiag.hardware.locks import GpuLocks
from gpudiag.model.report import Gpu
from gpudiag.pytest_plugin import gpus
from gpudiag.pytest_plugin.assign import Plan, Worker
from gpudiag.pytest_plugin.gpus import Device, VisibleDevices
from gpudiag.simulator import Machine
from suites import Suite

pytestmark = [
    pytest.mark.usefixtures("simulated", "no_child_left"),
    pytest.mark.skipif(sys.platform != "linux", reason="GPUs are simulated on Linux"),
]

RECORDING = """
    import os, pathlib, time
    import pytest

    here = pathlib.Path(__file__).parent
    given = [os.environ.get(name, "") for name in ("CUDA_VISIBLE_DEVICES", "TF_PER_DEVICE_MEMORY_LIMIT_MB")]
    # When a conftest file is imported: nothing of the suite runs earlier.
    (here / f"{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}.given").write_text(" ".join(given))

    @pytest.fixture(autouse=True)
    def _recorded(record_property):
        record_property("mask", os.environ.get("CUDA_VISIBLE_DEVICES", "not set"))
"""
NOTHING = """
    import pytest

    @pytest.mark.parametrize("number", range(4))
    def test_nothing(number):
        pass
"""
WIDE = """
    import os
    import pytest

    @pytest.mark.parametrize("number", range(6))
    @pytest.mark.xdist_group("a group")
    def test_narrow(number):
        assert len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")) == 1

    @pytest.mark.gpudiag_isolated
    @pytest.mark.xdist_group("a group")
    def test_isolated():
        assert os.getpid() != int(os.environ["OF_WORKER"])
        assert len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")) == 1

    class TestWide:
        @pytest.mark.gpudiag_gpus(count=2)
        @pytest.mark.parametrize("number", range(2))
        def test_wide(self, number):
            assert len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")) == 2

        @pytest.mark.gpudiag_gpus(count=2)
        @pytest.mark.gpudiag_isolated
        def test_wide_isolated(self):
            assert os.getpid() != int(os.environ["OF_WORKER"])
            assert len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")) == 2
"""


OWNING = """
    import fcntl, os, pathlib

    here = pathlib.Path(__file__).parent

    def note(what):
        log = os.open(here / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.write(log, f"{what} {os.environ['CUDA_VISIBLE_DEVICES']} {os.environ['PYTEST_XDIST_WORKER']}\\n".encode())
        os.close(log)

    if "PYTEST_XDIST_WORKER" in os.environ:
        # Locked until this process ends: two living workers on one device cannot both have it.
        held = open(here / f"{os.environ['CUDA_VISIBLE_DEVICES']}.own", "w")
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note("taken")
            raise
        note("started")
"""
CRASHING = """
    import os, random, signal, time
    import pytest
    from conftest import note

    @pytest.mark.parametrize("number", range({tests}))
    def test_crashes(number):
        time.sleep(random.random() / 50)
        if random.random() < 0.5:
            note("died")
            os.kill(os.getpid(), signal.SIGKILL)
"""
XDIST_DEFECT = "OSError: cannot send (already closed?)"
"""How a session of xdist 3.8 ends where it sends tests to a worker that has just crashed."""


def given(suite: Suite) -> list[str]:
    """Return what each worker found in its environment, in the order of their names."""
    return [path.read_text() for path in sorted(suite.folder.glob("*.given")) if path.stem != "alone"]


def on(machine: Machine) -> dict[str, str]:
    return {name: machine.environment()[name] for name in ("LD_LIBRARY_PATH", "GPUDIAG_SIM_MACHINE")}


MIG = "[[gpu]]\nmig = 3\n"


@pytest.mark.parametrize(
    ("machine_spec", "mask", "given_masks"),
    [
        ("1x8GiB", "1", ["1"]),  # there is no such GPU, and the worker sees none
        ("2x8GiB", "1", ["{1}", "{1}"]),
        ("2x8GiB", "1,0", ["{1}", "{0}"]),
        ("2x8GiB", "{1}", ["{1}"]),
        ("2x8GiB", "-1", ["-1"]),
        ("2x8GiB", "", [""]),
        ("4x8GiB", "3,{1},-1,0", ["{3}", "{1}", "{3}"]),
        (MIG, "{mig2}", ["{mig2}"]),
        (MIG, None, ["{mig0}", "{mig1}"]),
    ],
)
def test_workers_are_given_devices_of_the_callers_mask_and_no_others(
    machine_spec: str, mask: str | None, given_masks: list[str], suite: Suite, machine: Callable[[str], Machine]
) -> None:
    here = machine(machine_spec)
    uuids = [gpu.uuid for gpu in here.spec.gpus]
    mig = {f"mig{number}": uuid for gpu in here.spec.gpus for number, uuid in enumerate(gpu.mig_uuids)}
    variables = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask.format(*uuids, **mig)}
    suite.write("conftest.py", RECORDING)
    suite.write("test_nothing.py", NOTHING)
    done = suite("-n", str(len(given_masks)), "--gpudiag-assign=share", **on(here), **variables)
    assert done.status == 0, done
    masks = [line.split(" ")[0] for line in given(suite)]
    assert sorted(masks) == sorted(mask.format(*uuids, **mig) for mask in given_masks)


def test_an_index_that_may_be_a_card_the_caller_hid_is_refused(suite: Suite, machine: Callable[[str], Machine]) -> None:
    """CUDA counts the fastest card first, NVML by PCI address: the UUID that an index stands for is not known."""
    here = machine("1x16GiB:T4,1x80GiB:H100")
    suite.write("test_nothing.py", NOTHING)
    done = suite("-n", "2", "--gpudiag-assign=share", **on(here), CUDA_VISIBLE_DEVICES="0")
    assert done.status == pytest.ExitCode.USAGE_ERROR
    assert "CUDA_VISIBLE_DEVICES='0' chooses among unequal GPUs by index" in done.err, done
    ordered = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert suite("-n", "2", "--gpudiag-assign=share", **on(here), CUDA_VISIBLE_DEVICES="0", **ordered).status == 0


def test_without_workers_the_session_has_every_device_in_the_callers_order(
    suite: Suite, machine: Callable[[str], Machine]
) -> None:
    here = machine("3x8GiB")
    suite.write("conftest.py", RECORDING)
    suite.write("test_nothing.py", NOTHING)
    done = suite("-p", "no:xdist", "--gpudiag-assign=device", CUDA_VISIBLE_DEVICES="2,0", **on(here))
    assert done.status == 0, done
    uuids = [gpu.uuid for gpu in here.spec.gpus]
    assert set(done.property("mask")) == {f"{uuids[2]},{uuids[0]}"}


def test_eight_workers_share_two_gpus_evenly_and_with_a_limit(suite: Suite) -> None:
    suite.write("conftest.py", RECORDING)
    suite.write("test_nothing.py", NOTHING)
    done = suite("-n", "8", "--gpudiag-simulate=2x8GiB")
    assert done.status == 0, done
    assert "8 workers share 2 GPUs, 1448 MiB of memory each" in done.out
    assert sorted(Counter(given(suite)).values()) == [4, 4]
    assert {line.split(" ")[1] for line in given(suite)} == {"1448"}  # (8192 - 4 x 600) / 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-n", "3", "--gpudiag-assign=device"), "there are 3 workers and 2 devices. Use -n 2"),
        (("-n", "4", "--gpudiag-memory=6GiB"), "2 workers with 6 GiB each"),
        (("-n", "32"), "with 32 workers on 2 GPUs, each gets only"),
    ],
)
def test_more_workers_than_fit_are_refused(arguments: tuple[str, ...], words: str, suite: Suite) -> None:
    suite.write("test_nothing.py", NOTHING)
    done = suite(*arguments, "--gpudiag-simulate=2x8GiB")
    assert done.status == pytest.ExitCode.USAGE_ERROR
    assert words in done.err, done
    assert "Traceback" not in str(done)


@pytest.mark.parametrize(
    ("arguments", "workers"),
    [(("--gpudiag-simulate=1x8GiB",), 1), (("--gpudiag-simulate=1x8GiB", "--gpudiag-memory=3GiB"), 2)],
)
def test_auto_follows_devices_and_memory(arguments: tuple[str, ...], workers: int, suite: Suite) -> None:
    suite.write("test_nothing.py", NOTHING)
    done = suite("-n", "auto", *arguments)
    processors = len(os.sched_getaffinity(0))
    assert f"created: {min(workers, processors)}/" in done.out, done


def test_auto_is_left_to_xdist_where_the_plugin_is_not_asked(suite: Suite) -> None:
    suite.write("test_nothing.py", NOTHING)
    done = suite("-n", "auto", PYTEST_XDIST_AUTO_NUM_WORKERS="3")
    assert "created: 3/3" in done.out, done


@pytest.mark.parametrize("dist", ["load", "loadscope", "loadgroup", "worksteal"])
def test_tests_that_need_two_gpus_get_two_when_all_others_have_run(
    dist: str, suite: Suite, machine: Callable[[str], Machine], plain: None
) -> None:
    suite.write("conftest.py", "import os\nos.environ.setdefault('OF_WORKER', str(os.getpid()))\n")
    suite.write("test_wide.py", WIDE)
    done = suite("-n", "2", "--dist", dist, "--gpudiag-assign=share", "-v", **on(machine("2x8GiB")))
    assert done.status == 0, done
    assert Counter(done.outcomes().values()) == {"passed": 10}
    order = [line for line in done.out.splitlines() if "PASSED" in line]
    assert len(order) == 10
    assert all("test_wide.py::TestWide" in line for line in order[-3:])


def test_a_test_that_needs_more_than_a_share_gets_a_whole_gpu(suite: Suite) -> None:
    suite.write(
        "test_memory.py",
        """
        import os
        import pytest

        def test_shared():
            assert os.environ["TF_PER_DEVICE_MEMORY_LIMIT_MB"]

        @pytest.mark.gpudiag_gpus(memory="8GiB")
        def test_whole():
            assert "TF_PER_DEVICE_MEMORY_LIMIT_MB" not in os.environ

        @pytest.mark.gpudiag_gpus(memory="12GiB")
        def test_on_the_larger(record_property):
            record_property("mask", os.environ["CUDA_VISIBLE_DEVICES"])
        """,
    )
    done = suite("-n", "4", "--gpudiag-simulate=1x8GiB,1x16GiB")
    assert done.status == 0, done
    assert done.outcomes() == {"test_shared": "passed", "test_whole": "passed", "test_on_the_larger": "passed"}
    assert re.findall(r"^.* worker \[.*", done.out, re.MULTILINE) == ["1 worker [2 items]"], done
    assert done.tests["test_on_the_larger"].properties["gpudiag_device"] == "GPU 1"


def test_two_sessions_on_one_machine_do_not_take_the_same_device(
    suite: Suite, machine: Callable[[str], Machine], wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    here = machine("2x8GiB")
    suite.write(
        "test_both.py",
        """
        import os, pathlib, time

        def test_waits_for_the_other():
            own = pathlib.Path(os.environ["RECORD"])
            own.write_text(os.environ["CUDA_VISIBLE_DEVICES"])
            until = time.monotonic() + 300
            while not (own.parent / "go").exists():
                assert time.monotonic() < until
                time.sleep(0.02)
        """,
    )
    records = [suite.folder / name for name in ("one", "two")]
    sessions = [suite.start("-n", "1", "--gpudiag-assign=device", RECORD=str(record), **on(here)) for record in records]
    wait_until(lambda: all(record.exists() and record.read_text() for record in records))
    assert sorted(record.read_text() for record in records) == sorted(gpu.uuid for gpu in here.spec.gpus)

    checks = GpuLocks(here.directory)
    gpus = tuple(Gpu(number, "", gpu.uuid, "", 0) for number, gpu in enumerate(here.spec.gpus))
    assert not checks.take(gpus[:1], exclusive=False), "gpudiag check respects what a session holds"

    third = suite(
        "-n", "1", "--gpudiag-assign=device", "--gpudiag-wait=0.5", RECORD=str(suite.folder / "last"), **on(here)
    )
    assert third.status == pytest.ExitCode.USAGE_ERROR
    assert "1 of 2 GPUs are needed, but for 0.5 s other runs" in third.err

    sessions[0].send_signal(signal.SIGKILL)  # its worker goes with it, and the device is free
    sessions[0].communicate(timeout=30)
    (suite.folder / "go").touch()
    done = suite(
        "-n", "1", "--gpudiag-assign=device", "--gpudiag-wait=30", RECORD=str(suite.folder / "last"), **on(here)
    )
    assert done.status == 0, done
    out, err = sessions[1].communicate(timeout=60)
    assert sessions[1].returncode == 0, out + err


CRASHES = os.environ.get("GPUDIAG_TEST_CRASHES")
"""How many workers of pytest-xdist crash on each machine: 12 in all where it is not set.

For the whole race: GPUDIAG_TEST_CRASHES=200 pytest tests/plugin/test_assign.py -k replaced -s
"""


@pytest.mark.parametrize(("gpus", "crashes"), [(1, 2), (2, 4), (4, 6)])
def test_a_replaced_worker_has_a_device_of_its_own(gpus: int, crashes: int, suite: Suite) -> None:
    crashes = crashes if CRASHES is None else int(CRASHES)
    suite.write("conftest.py", OWNING)
    suite.write("test_crashes.py", CRASHING.format(tests=min(3 * crashes, 100)))
    log, sessions, defects = suite.folder / "log", 0, 0
    began = time.monotonic()
    while (died := _count(log, "died")) < crashes:
        sessions += 1
        assert sessions <= 2 + crashes // 2, f"{died} of {crashes} workers have crashed, {defects} sessions are lost"
        done = suite("-n", str(gpus), f"--gpudiag-simulate={gpus}x8GiB", "--max-worker-restart=1000", "-q")
        assert _count(log, "taken") == 0, log.read_text()
        assert "BlockingIOError" not in str(done)
        if XDIST_DEFECT in done.out and done.status == pytest.ExitCode.INTERNAL_ERROR:
            defects += 1
            continue
        outcomes = Counter(done.outcomes().values())
        assert outcomes["error"] == _count(log, "died") - died, done
        assert outcomes.total() == min(3 * crashes, 100), done
    started = [line.split() for line in log.read_text().splitlines() if line.startswith("started")]
    assert len({uuid for _, uuid, _ in started}) == gpus
    took = f"{sessions} sessions ({defects} ended by xdist's own error), {time.monotonic() - began:.0f} s"
    print(f"{gpus} GPU(s): {died} crashes, {len(started)} workers, {took}: no device twice")


def _count(log: Path, what: str) -> int:
    return sum(line.startswith(what) for line in log.read_text().splitlines()) if log.exists() else 0


def test_a_worker_that_crashes_in_a_later_round_is_replaced_in_it(
    suite: Suite, machine: Callable[[str], Machine], plain: None
) -> None:
    suite.write(
        "test_wide.py",
        """
        import os, signal
        import pytest

        def test_narrow(): ...

        @pytest.mark.gpudiag_gpus(count=2)
        @pytest.mark.parametrize("number", range(3))
        def test_wide(number):
            assert len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")) == 2
            if number == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    done = suite("-n", "2", "--gpudiag-assign=share", **on(machine("2x8GiB")))
    wide = {"test_wide[0]": "passed", "test_wide[1]": "error", "test_wide[2]": "passed"}
    assert done.outcomes() == {"test_narrow": "passed", **wide}, done


def test_a_slot_is_held_by_one_process_over_two_hundred_crashes(tmp_path: Path) -> None:
    """The race alone: processes that take a slot as a worker does, and are killed at random moments."""
    deaths, workers = 200, 8
    devices = tuple(Device(f"GPU-{number}", number, "A GPU", 8 << 30, 8 << 30, (8, 0)) for number in range(workers))
    Plan(devices, "", tuple(VisibleDevices((device,)) for device in devices)).write(tmp_path)
    random.seed(20261121)
    delays = [random.random() / 5 for _ in range(deaths)]
    alive: set[int] = set()
    ended: Counter[int] = Counter()
    while delays or alive:
        while delays and len(alive) < workers:
            alive.add(_start_worker(tmp_path, delays.pop()))
        pid, status = os.wait()
        if pid in alive:
            alive.discard(pid)
            ended[os.waitstatus_to_exitcode(status)] += 1
    assert ended == {-signal.SIGKILL: deaths}
    taken = Counter((tmp_path / "taken").read_text().split())
    assert sum(taken.values()) == deaths
    assert len(taken) > 1, "several were alive at a time"


def _start_worker(folder: Path, delay_s: float) -> int:
    """Fork a process that takes a slot, checks that nobody else has its device, and is killed; return its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        worker = Worker(folder)
        worker.take_slot()
        uuid = worker.place.devices[0].uuid
        own = os.open(folder / f"{uuid}.own", os.O_CREAT | os.O_RDWR)
        fcntl.flock(own, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where somebody has it
        taken = os.open(folder / "taken", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.write(taken, f"{uuid}\n".encode())
        time.sleep(delay_s)
        os.kill(os.getpid(), signal.SIGKILL)
    finally:
        os._exit(1)


def test_a_run_says_what_it_gave_to_whom_and_leaves_nothing_behind(suite: Suite) -> None:
    suite.write("test_nothing.py", NOTHING)
    done = suite("-n", "2", "--gpudiag-simulate=2x8GiB")
    assert done.status == 0, done
    assert "gpudiag: SIMULATED GPUs; 2 x Simulated GPU, 8 GiB; driver 560.35.05; tensorflow " in done.out
    assert "gpudiag: 2 workers, each with a separate GPU" in done.out
    assert [path.name for path in suite.gpudiag.temporary.iterdir() if path.name.startswith("gpudiag")] == []


def test_an_assignment_survives_json(tmp_path: Path) -> None:
    plan = Plan((Device("GPU-0", 0, "A GPU", 8, 7, None),), "no GPU", (VisibleDevices((), 5, shared=True),))
    plan.write(tmp_path)
    assert Plan.read(tmp_path) == plan
    assert json.loads((tmp_path / "plan.json").read_text())["round"] == 0


def test_a_worker_elsewhere_is_refused(suite: Suite) -> None:
    suite.write("test_nothing.py", NOTHING)
    done = suite("--dist=load", "--tx=socket=127.0.0.1:9", "--gpudiag-simulate=2x8GiB")
    assert done.status == pytest.ExitCode.USAGE_ERROR
    assert "only workers on this machine can be given its GPUs" in done.err


@pytest.mark.parametrize("option", ["--markers", "--fixtures-per-test", "--setup-plan"])
def test_no_gpu_is_waited_for_where_no_test_runs(
    option: str, suite: Suite, machine: Callable[[str], Machine], plain: None
) -> None:
    here = machine("1x8GiB")
    others = GpuLocks(here.directory)
    assert others.take((Gpu(0, "", here.spec.gpus[0].uuid, "", 0),), exclusive=False)
    suite.write("test_nothing.py", "def test_nothing(): raise SystemExit")
    done = suite(option, "--gpudiag-assign=share", "--gpudiag-wait=3600", **on(here))
    others.close()
    assert done.status == 0, done


@pytest.mark.parametrize("arguments", [(), ("-n1",)], ids=["alone", "xdist"])
def test_a_lock_that_cannot_be_used_is_a_note(
    arguments: tuple[str, ...], suite: Suite, machine: Callable[[str], Machine], plain: None
) -> None:
    """Anybody may have put something else in its place."""
    here = machine("1x8GiB")
    (here.directory / f"gpudiag-{here.spec.gpus[0].uuid}.lock").mkdir()
    suite.write("test_nothing.py", NOTHING)
    done = suite("--gpudiag-assign=share", *arguments, **on(here))
    assert done.status == 0, done
    assert "gpudiag: GPU 0 is not locked against other runs of gpudiag: " in done.out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_a_killed_session_leaves_is_removed_by_the_next(
    number: signal.Signals, suite: Suite, plain: None, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    suite.write(
        "test_waits.py",
        """
        import pathlib, time
        import pytest

        @pytest.mark.gpudiag_isolated
        def test_waits():
            if not pathlib.Path("began").exists():
                pathlib.Path("began").touch()
                time.sleep(60)
        """,
    )

    def left() -> list[str]:
        return [path.name for path in suite.gpudiag.temporary.iterdir() if path.name.startswith("gpudiag-")]

    with suite.start("--gpudiag-assign=share") as session:
        wait_until((suite.folder / "began").exists)
        session.send_signal(number)
        session.communicate(timeout=30)
    wait_until(lambda: all(name.startswith("gpudiag-pytest-") for name in left()))
    assert suite("--gpudiag-assign=share").status == 0
    assert left() == []


def test_gpus_that_cannot_be_asked_for_are_not_called_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> NoReturn:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", refused)
    found = gpus.ask()
    assert (found.nvml, found.devices) == (None, ())
    assert found.lack.startswith("GPUs not known: gpudiag could not start a process: ")
    assert "(EAGAIN)" in found.lack
