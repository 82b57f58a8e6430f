"""Assigns devices to workers: chosen from the caller's mask, locked, and shared if there are more workers than devices.

The process that started the session (xdist's controller, or the only one) holds the locks of the devices, which
``gpudiag check`` and other sessions respect. It writes the devices of each worker, a *slot*, into a folder. A worker
locks a slot for as long as it lives, so that the replacement of a crashed worker finds the slot free. All locks are the
kernel's and end with their process; and a worker ends with the process that started it.

Tests that need more than a slot run in a later round: after all workers have ended, new ones start with the slots that
these tests need.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpudiag import folders
from gpudiag.hardware import lending
from gpudiag.pytest_plugin import settings
from gpudiag.pytest_plugin.gpus import (
    FOUND,
    PLACE,
    Device,
    SessionGpus,
    VisibleDevices,
    ask,
    for_one_process,
    size_text,
)
from gpudiag.pytest_plugin.settings import RUN_VARIABLE, SESSION_VARIABLE, PluginSettings

if TYPE_CHECKING:
    from gpudiag.hardware.locks import GpuLocks
    from gpudiag.model.report import Gpu
    from gpudiag.run.machine import ExaminedMachine

CONTEXT_BYTES = 600 << 20
"""GPU memory that a process takes beside its tensors, for the driver and the libraries (up to about 600 MiB on
H100)."""
LEAST_BYTES = 256 << 20
"""The smallest share that a worker is given if none was requested."""
SLOT_WAIT_S = 60.0
"""How long a worker waits for the slot of an ended worker, whose old process may still exist."""
POLL_S = 0.05


@dataclass(frozen=True, order=True)
class Need:
    """The GPUs that a test needs."""

    count: int = 1
    memory_bytes: int = 0
    """Bytes of memory on each GPU; 0: any amount."""
    capability: tuple[int, int] = (0, 0)
    """The least compute capability; (0, 0): any."""

    def of(self, devices: tuple[Device, ...], limit_bytes: int | None = None) -> tuple[Device, ...]:
        """Return the ``devices`` that satisfy this need when each is used up to ``limit_bytes``; for several, no MIG
        instance."""
        memory = [device.total_bytes if limit_bytes is None else limit_bytes for device in devices]
        return tuple(
            device
            for device, size in zip(devices, memory, strict=True)
            if size >= self.memory_bytes
            and (device.capability or (0, 0)) >= self.capability
            and not (device.is_instance and self.count > 1)
        )

    def covers(self, other: Need) -> bool:
        """Return whether devices that satisfy this need also satisfy ``other``, which needs the same number of GPUs."""
        less = other.memory_bytes <= self.memory_bytes and other.capability <= self.capability
        return self.count == other.count and less

    def __str__(self) -> str:
        from gpudiag.text import counted

        parts = [counted(self.count, "GPU")]
        if self.memory_bytes:
            parts.append(f"with {size_text(self.memory_bytes)}")
        if self.capability != (0, 0):
            parts.append(f"of compute capability {self.capability[0]}.{self.capability[1]}")
        return " ".join(parts)


@dataclass(frozen=True)
class Plan:
    """What a worker knows about the session; a worker reads this and does not ask NVML."""

    devices: tuple[Device, ...]
    """All devices that the session may use."""
    lack: str
    """Why there are no devices."""
    slots: tuple[VisibleDevices, ...] = ()
    """The devices of each worker's slot; empty if workers are given nothing."""
    round: int = 0
    needs: tuple[Need, ...] = ()
    """The needs of this round's tests; empty in the first round, which runs all tests that its slots satisfy."""

    def write(self, folder: Path) -> None:
        folders.write(folder / "plan.json", json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> Plan:
        content = json.loads((folder / "plan.json").read_text())
        return cls(
            devices=tuple(map(_device, content["devices"])),
            lack=content["lack"],
            slots=tuple(
                VisibleDevices(tuple(map(_device, slot["devices"])), slot["limit_bytes"], slot["shared"])
                for slot in content["slots"]
            ),
            round=content["round"],
            needs=tuple(map(as_need, content["needs"])),
        )


def _device(content: dict[str, Any]) -> Device:
    capability = content["capability"]
    return Device(**{**content, "capability": None if capability is None else tuple(capability)})


def as_need(content: dict[str, Any]) -> Need:
    """Return a need that was saved as JSON."""
    return Need(**{**content, "capability": tuple(content["capability"])})


class Worker:
    """The lock that a worker of xdist holds on its slot."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan = Plan.read(folder)
        self.place = VisibleDevices(for_one_process(self.plan.devices))
        self._lock: object = None

    def take_slot(self) -> None:
        """Lock a slot and use it; raises ``UsageError`` if none becomes free."""
        from filelock import FileLock, Timeout

        until = time.monotonic() + SLOT_WAIT_S
        while True:
            for number, place in enumerate(self.plan.slots):
                lock = FileLock(self.folder / f"{self.plan.round}-{number}.lock")
                with contextlib.suppress(Timeout):
                    lock.acquire(blocking=False)
                    self._lock, self.place = lock, place
                    os.environ.update(place.environment, **_lent(self.folder, place))
                    return
            if time.monotonic() >= until:
                raise pytest.UsageError(
                    f"gpudiag: no GPU became free within {SLOT_WAIT_S:g} s: a process that an ended worker left behind "
                    "still holds one."
                )
            time.sleep(POLL_S)


class AssigningSession:
    """A session, in the process that started it."""

    def __init__(self, config: pytest.Config, own: PluginSettings) -> None:
        self.config = config
        self.settings = own
        self.stack = ExitStack()
        own_folder = lending.session_folder()
        self.stack.callback(own_folder.close)
        self.folder = own_folder.path
        self.caller = dict(os.environ)
        """The environment before the plugin changed it."""
        self.machine: ExaminedMachine
        self.plan = Plan((), "")
        self.found: SessionGpus
        self._locks: GpuLocks
        self._held: tuple[Gpu, ...] = ()
        self.tests = 0
        """The number of tests of all rounds, as far as known."""

    def begin(self, *, workers: bool) -> None:
        """Enter the session's machine, find its GPUs, and give them to this process if it has no workers."""
        from gpudiag.hardware.locks import GpuLocks
        from gpudiag.run.machine import map_libraries, start_machine

        own = self.settings
        if own.require_gpus and own.simulate is not None and not own.simulate_asked:
            raise pytest.UsageError(
                "gpudiag: --gpudiag-require-gpus asks for real GPUs, but the simulation comes from a variable or a "
                "configuration file. Unset it, or write --gpudiag-simulate on the command line to count simulated GPUs."
            )
        self.machine = start_machine(own.simulate, (), self.stack)
        if own.simulate is not None:
            self.change(self.machine.environment)
            if not workers:
                assert self.machine.locks is not None
                map_libraries(self.machine.locks)
        self.found = ask()
        self.config.stash[FOUND] = self.found
        self._locks = GpuLocks(self.machine.locks)
        self.stack.callback(self._locks.close)
        self.plan = Plan(self._within_reach(), self.found.lack)
        if own.assigns:
            self._refuse_ambiguous_mask()
        self.change({SESSION_VARIABLE: self.folder.name})
        if workers:
            self.change({RUN_VARIABLE: str(self.folder)})
        elif own.assigns and self.plan.devices:
            devices = self._reserve(1, len(for_one_process(self.plan.devices)), Need())
            devices = for_one_process(devices)
            place = _slots(devices, 1, own, Need(count=len(devices)))[0]
            self.change({**place.environment, **_lent(self.folder, place)})
            self.config.stash[PLACE] = place

    def _within_reach(self) -> tuple[Device, ...]:
        """Return the devices that the session may reserve, without those that an outer session holds for others.

        A session started by a test uses the devices lent to the test's process, whatever mask the test sets.
        """
        devices, loan = self.found.devices, lending.loan(self._locks.folder)
        beyond = frozenset[str]() if loan is None else loan.held - loan.lent
        if self.settings.assigns and devices and loan is not None and all(device.uuid in beyond for device in devices):
            raise loan.refusal(devices[0].uuid)
        return tuple(device for device in devices if device.uuid not in beyond)

    def _refuse_ambiguous_mask(self) -> None:
        """Refuse a mask whose indices are ambiguous: devices are assigned by UUID, so a wrong one might be a GPU
        that the caller hid."""
        from gpudiag.model.visibility import indices_are_ambiguous

        devices = () if self.found.nvml is None else self.found.nvml.devices
        hides = len({device.index for device in self.plan.devices}) < len(devices)
        if hides and indices_are_ambiguous({**os.environ}, devices):
            raise pytest.UsageError(
                f"gpudiag: CUDA_VISIBLE_DEVICES={self.found.mask!r} chooses among unequal GPUs by index, and CUDA may "
                "count them in another order than NVML. Set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by UUID."
            )

    def change(self, variables: Mapping[str, str]) -> None:
        """Set environment variables until the session ends."""
        before = {name: os.environ.get(name) for name in variables}
        self.stack.callback(_set, before)
        os.environ.update(variables)

    def prepare(self, workers: int) -> None:
        """Reserve devices for the workers and write each worker's slot."""
        if self.settings.assigns and self.plan.devices:
            own = self.settings.assign == "device"
            devices = self._reserve(workers if own else 1, workers, Need())
            slots = _slots(devices, workers, self.settings, Need())
            self.plan = Plan(self.plan.devices, self.plan.lack, slots)
        self.plan.write(self.folder)

    def later(self) -> dict[Need, int]:
        """Return the needs of the tests that were left for later, and the number of these tests."""
        try:
            content = json.loads((self.folder / "later.json").read_text())
        except FileNotFoundError:
            return {}
        return {as_need(need): number for need, number in content}

    def rounds(self) -> list[list[Need]]:
        """Return the needs of each later round: the largest need for a number of GPUs, with the needs that it
        covers."""
        rounds: list[list[Need]] = []
        for need in sorted(self.later(), reverse=True):
            covering = next((round_ for round_ in rounds if round_[0].covers(need)), None)
            if covering is None:
                rounds.append([need])
            else:
                covering.append(need)
        return rounds

    def prepare_round(self, number: int, needs: list[Need], most: int) -> int:
        """Reserve devices for the tests with these needs; return how many workers can run at the same time."""
        need = needs[0]
        devices = self._reserve(need.count, need.count * most, need)
        workers = min(most, len(devices) // need.count)
        slots = _slots(devices, workers, PluginSettings(check=True), need)
        self.plan = Plan(self.plan.devices, self.plan.lack, slots, number, tuple(needs))
        self.plan.write(self.folder)
        return workers

    @property
    def notes(self) -> tuple[str, ...]:
        """Problems with the locks of the devices."""
        return tuple(self._locks.unlocked.values())

    def free(self) -> tuple[Device, ...]:
        """Return the devices that no other session holds at this moment."""
        return tuple(device for device in self.plan.devices if self._take((device,), keep=False))

    def _reserve(self, least: int, most: int, need: Need) -> tuple[Device, ...]:
        """Hold at most ``most`` suitable devices and no others; wait until other sessions free ``least``."""
        from gpudiag.text import counted

        devices = need.of(self.plan.devices)
        if least > len(devices):
            raise pytest.UsageError(
                f"gpudiag: --gpudiag-assign=device needs a device for each worker: there are {least} workers and "
                f"{counted(len(devices), 'device')}. Use -n {len(devices)}, or --gpudiag-assign=share."
            )
        # All at once, and none while waiting: two sessions that each hold what the other needs would wait for ever.
        self._release()
        until = time.monotonic() + self.settings.wait_s
        while True:
            taken: list[Device] = []
            for device in devices:
                if len(taken) < most and self._take((device,)):
                    taken.append(device)
            if len(taken) >= least:
                lending.hold(self.folder, (device.uuid for device in taken), self._locks.folder)
                return tuple(taken)
            self._release()
            if time.monotonic() >= until:
                raise pytest.UsageError(
                    f"gpudiag: {least} of {len(devices)} GPUs are needed, but for {self.settings.wait_s:g} s other "
                    "runs of pytest or gpudiag held too many. Run it again later, or wait longer (--gpudiag-wait)."
                )
            time.sleep(POLL_S)

    def _take(self, devices: tuple[Device, ...], *, keep: bool = True) -> bool:
        from gpudiag.model.report import Gpu

        gpus = tuple(Gpu(device.index, device.name, device.uuid, "", device.total_bytes) for device in devices)
        locks_taken = self._locks.take(gpus, exclusive=False)
        if locks_taken and keep:
            self._held += gpus
        elif locks_taken:
            self._locks.release(gpus)
        return locks_taken

    def _release(self) -> None:
        self._locks.release(self._held)
        self._held = ()


RUN = pytest.StashKey[AssigningSession]()
WORKER = pytest.StashKey[Worker]()

_NO_TEST_RUNS = (
    "help",
    "version",
    "markers",
    "cacheshow",
    "showfixtures",
    "show_fixtures_per_test",
    "collectonly",
    "setupplan",
)
"""Options of pytest with which it runs no test and sets up no fixture, so that no GPU is needed."""


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Assign devices before any conftest file or test module is imported, since that may be the first to ask
    TensorFlow for GPUs."""
    folder = os.environ.get(RUN_VARIABLE)
    if folder is not None and "PYTEST_XDIST_WORKER" in os.environ:
        del os.environ[RUN_VARIABLE]  # a session started by a test is none of ours
        _begin_worker(early_config, Path(folder))
        return
    options = early_config.known_args_namespace
    own = settings.of(early_config)
    if own.on and not any(getattr(options, name, False) for name in _NO_TEST_RUNS):
        with _as_usage_errors():
            run = early_config.stash[RUN] = AssigningSession(early_config, own)
            early_config.add_cleanup(run.stack.close)
            run.begin(workers=_has_workers(options))


def _begin_worker(config: pytest.Config, folder: Path) -> None:
    if sys.platform == "linux":
        from gpudiag.isolate import linux

        linux.die_with_parent(os.getppid())  # the process that holds the locks of its devices
    worker = Worker(folder)
    if worker.plan.slots:
        worker.take_slot()
    config.stash[WORKER] = worker
    config.stash[PLACE] = worker.place


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Reserve the workers' devices; the number of workers is known by now."""
    run = session.config.stash.get(RUN, None)
    if run is not None and _is_controller(session.config):
        specs = _specs(session.config)
        if run.settings.assigns and (foreign := [spec for spec in specs if not spec.startswith("popen")]):
            raise pytest.UsageError(
                f"gpudiag: --tx {foreign[0]}: only workers on this machine can be given its GPUs; use "
                "--gpudiag-assign=none."
            )
        with _as_usage_errors():
            run.prepare(len(specs))
        session.config.pluginmanager.register(_Total(session, run))


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Choose the workers of ``-n auto``: as many as devices and memory allow; xdist decides if the plugin gives no
    devices."""
    run = config.stash.get(RUN, None)
    if run is None or not run.settings.assigns or os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None
    devices = run.free() or run.plan.devices
    if not devices:
        return None
    import psutil

    bytes_per_worker = run.settings.memory_bytes
    if bytes_per_worker is None or run.settings.assign == "device":
        places = len(devices)
    else:
        places = sum(device.free_bytes // (bytes_per_worker + CONTEXT_BYTES) for device in devices)
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(places, processors, psutil.virtual_memory().available >> 30))  # 1 GiB for each TensorFlow


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Run the rounds of tests that need more than a worker's slot, after all other tests."""
    result = yield
    run = session.config.stash.get(RUN, None)
    if run is not None and _is_controller(session.config):
        dsession: Any = session.config.pluginmanager.getplugin("dsession")
        most = len(_specs(session.config))
        tests = run.later()
        for number, needs in enumerate(run.rounds(), start=1):
            if dsession._summary_report is None:  # "maximum crashed workers reached"
                _run_round(run, dsession, number, needs, min(most, sum(tests[need] for need in needs)))
    return result


def _run_round(run: AssigningSession, dsession: Any, number: int, needs: list[Need], most: int) -> None:
    """Let xdist start over with other workers: it has one set of them per session, and no hook for another."""
    _end_line(run.config)
    manager = dsession.nodemanager
    manager.teardown_nodes()  # a process that has finished its tests still holds its GPU's memory until it has ended
    with _as_usage_errors():
        workers = run.prepare_round(number, needs, most)
    specs = [copy.copy(manager.specs[0]) for _ in range(workers)]
    run.config.option.tx = ["popen"] * workers  # by this xdist counts how many must have collected
    dsession.shuttingdown = False
    if (terminal := getattr(dsession, "trdist", None)) is not None:
        terminal._status.clear()  # it counts the workers of this round, not those that have ended
    for spec in specs:
        spec.id = None
        manager.group.allocate_id(spec)
        dsession._active_nodes.add(manager.setup_node(spec, dsession.queue.put))
    dsession.pytest_runtestloop()


def _end_line(config: pytest.Config) -> None:
    """End the line of pytest's progress, so that what xdist says of the next workers begins a line."""
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    writer: Any = getattr(reporter, "_tw", None)  # of pytest and of reporters made from it
    if getattr(writer, "width_of_current_line", 0):
        writer.line()
        reporter.currentfspath = None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    run = node.config.stash.get(RUN, None)
    if run is not None and not run.plan.needs:
        run.tests = len(ids) + sum(run.later().values())


class _Total:
    """Corrects pytest's progress, which would otherwise take the tests of one round for all tests."""

    def __init__(self, session: pytest.Session, run: AssigningSession) -> None:
        self._session, self._run = session, run

    def pytest_runtest_logstart(self) -> None:
        self._session.testscollected = max(self._session.testscollected, self._run.tests)


def _is_controller(config: pytest.Config) -> bool:
    return config.pluginmanager.hasplugin("dsession")


def _specs(config: pytest.Config) -> list[str]:
    from xdist import workermanage

    parse: Any = getattr(workermanage, "parse_tx_spec_config", None) or workermanage.parse_spec_config  # before 3.7
    return list(parse(config))


def _has_workers(given: Any) -> bool:
    """Return whether the options make xdist start workers."""
    if getattr(given, "usepdb", False):
        return False
    spread = getattr(given, "dist", "no") != "no" or getattr(given, "distload", False)
    return bool(getattr(given, "numprocesses", None) or (spread and getattr(given, "tx", None)))


def _slots(devices: tuple[Device, ...], workers: int, own: PluginSettings, need: Need) -> tuple[VisibleDevices, ...]:
    """Divide ``devices`` among ``workers``; raises ``UsageError`` if there is too little."""
    from gpudiag.text import counted

    if workers * need.count <= len(devices):
        groups = [devices[need.count * number : need.count * (number + 1)] for number in range(workers)]
        if own.memory_bytes is not None:
            for device in (device for group in groups for device in group):
                _refuse_too_little(device, 1, own.memory_bytes)
        return tuple(VisibleDevices(group, own.memory_bytes) for group in groups)
    users = dict.fromkeys(devices, 0)
    order = []
    for _ in range(workers):  # each to where most is left for it
        most = max(devices, key=lambda device: (device.free_bytes / (users[device] + 1), -users[device]))
        users[most] += 1
        order.append(most)
    if own.memory_bytes is not None:
        for device, number in users.items():
            _refuse_too_little(device, number, own.memory_bytes)
    shares = {device: _share(device, number) for device, number in users.items() if number}
    if own.memory_bytes is None and (small := [device for device in shares if 0 < shares[device] < LEAST_BYTES]):
        raise pytest.UsageError(
            f"gpudiag: with {workers} workers on {counted(len(devices), 'GPU')}, each gets only "
            f"{size_text(max(0, shares[small[0]]))} of {small[0].label} ({size_text(small[0].free_bytes)} free): use "
            "fewer workers."
        )
    return tuple(
        VisibleDevices((device,), own.memory_bytes or shares[device] or None, shared=users[device] > 1)
        for device in order
    )


def _lent(folder: Path, place: VisibleDevices) -> dict[str, str]:
    """Return the variable that lets processes started from here use its devices."""
    name = os.environ.get("PYTEST_XDIST_WORKER", "alone")
    return lending.lend(folder, name, (device.uuid for device in place.devices)) if place.devices else {}


def _share(device: Device, users: int) -> int:
    """Return the memory for the tensors of each of ``users`` processes, in whole MiB; 0 if unknown."""
    if not device.free_bytes:
        return 0
    return max(1, (device.free_bytes // users - CONTEXT_BYTES) >> 20) << 20


def _refuse_too_little(device: Device, users: int, asked: int) -> None:
    from gpudiag.text import counted

    if device.free_bytes and users * (asked + CONTEXT_BYTES) > device.free_bytes:
        raise pytest.UsageError(
            f"gpudiag: {device.label} has {size_text(device.free_bytes)} free, too little for "
            f"{counted(users, 'worker')} with {size_text(asked)} each and {size_text(CONTEXT_BYTES)} each for the "
            "driver: use fewer workers or less memory (--gpudiag-memory)."
        )


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextlib.contextmanager
def _as_usage_errors() -> Generator[None, None, None]:
    """Report usage errors without a traceback."""
    from gpudiag.errors import GpudiagError

    try:
        yield
    except (GpudiagError, OSError) as error:  # the latter of folders and locks
        raise pytest.UsageError(f"gpudiag: {error}") from None
