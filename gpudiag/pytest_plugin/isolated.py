"""``@pytest.mark.gpudiag_isolated``: a test in a fresh process, reported as if it had run here.

pytest's own protocol runs for such a test, but the item is hollow: its setup runs the whole test in another process
(:mod:`gpudiag.pytest_plugin.inner_session`), and the reports of its phases are replaced by those from there. If that
process died, the phase of its death raises ``ChildProcessError`` (``TimeoutError`` if it was killed because it
took too long), so that ``xfail`` and plugins that look at failures work as usual.

The process is forked from one that has imported TensorFlow and no test module; never from this one, because a copy of a
process that has used TensorFlow hangs. So the test's module is imported again there, and fixtures of every scope are
set up there, for this one test.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import math
import os
import pickle
import socket
import stat
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, Protocol, TypeVar

import pytest

from gpudiag import folders
from gpudiag.hardware import lending
from gpudiag.pytest_plugin import settings
from gpudiag.pytest_plugin.gpus import PLACE
from gpudiag.pytest_plugin.settings import PluginSettings

if TYPE_CHECKING:
    from gpudiag.isolate import Job, JobResult
    from gpudiag.pytest_plugin.inner_session import Coverage, TestRequest

LINES = (
    "gpudiag_isolated(timeout=60): runs the test in a fresh process, where TensorFlow is not configured yet; a crash "
    "or a hang fails only this test",
)

MARKER = "gpudiag_isolated"
TIMEOUT_S = 60.0
_TICK_S = 0.1

FAR_SIDE = pytest.StashKey[bool]()
"""Stash key of a session that runs one isolated test: it isolates nothing again."""
_CHUNK = 1 << 20
_COVERAGE = ("COV_CORE_", "COVERAGE_PROCESS_")
"""Variables that start coverage in a new interpreter; the fork server of isolated tests must not have them."""
_STREAMS = ("stdout", "stderr")
_SOCKET = socket.socket
"""The socket class before any test: a plugin such as pytest-socket may replace it by one that refuses to be made."""

Value = TypeVar("Value")
Arguments = ParamSpec("Arguments")


class RunIsolated(Protocol):
    """The type of the fixture ``gpudiag_run_isolated``."""

    def __call__(
        self, function: Callable[..., Value], /, *args: object, timeout: float = ..., **kwargs: object
    ) -> Value:
        """Call ``function`` in a fresh process; return its result, or raise its exception."""


@pytest.fixture
def gpudiag_run_isolated(request: pytest.FixtureRequest) -> RunIsolated:
    """Call a function in a fresh process, where TensorFlow is imported but not configured: ``run(function, *args)``.

    The function must be at the top level of a module (such as the test's), because it is imported again there. Its
    result or exception comes back by pickle, and its output is printed here. Raises ``ChildProcessError`` if the
    process died or left others behind, ``TimeoutError`` if it took longer than ``timeout`` seconds (60).
    """
    return caller(request)


def caller(request: pytest.FixtureRequest, env: Mapping[str, str | None] | None = None) -> RunIsolated:
    """Return a caller of functions in fresh processes; with ``env``, in new interpreters with these variables."""

    def run(function: Callable[..., Value], /, *args: Any, timeout: float = TIMEOUT_S, **kwargs: Any) -> Value:
        __tracebackhide__ = True
        try:
            call = pickle.dumps((function, args, kwargs))
        except Exception as error:
            raise TypeError(
                f"{function!r} cannot be sent to another process: {error}. Give a function at the top level of a "
                "module, and arguments that can be pickled."
            ) from None
        order = _order(request.node, call)
        if env is None:
            outcome = _processes(request.config).run(order, timeout)
        else:
            order = replace(order, settings=PluginSettings(), place=None)  # another machine
            outcome = _processes(request.config).run(order, timeout, env, fresh=True)
        outcome.print()
        if outcome.died is not None:
            raise outcome.died
        if outcome.result is None:
            raise ChildProcessError(outcome.why_nothing)
        if outcome.left:
            raise ChildProcessError(outcome.left_text)
        if "value" in outcome.result:
            value: Value = outcome.result["value"]
            return value
        raised = _exception(outcome.result["raised"])
        if raised is None:
            raise RuntimeError(f"in a separate process:\n{outcome.result['traceback']}")
        raise raised from _Remote(outcome.result["traceback"])

    return run


def pytest_sessionstart(session: pytest.Session) -> None:
    """Save the environment: tests change it, but isolated tests get the original one."""
    session.config.stash[_BEGINNING] = dict(os.environ)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the processes that isolated tests were forked from."""
    if _PROCESSES in config.stash:
        config.stash[_PROCESSES].close()
        del config.stash[_PROCESSES]


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Refuse a marker with unknown arguments."""
    made = yield
    for item in made if isinstance(made, list) else ():
        if isinstance(item, pytest.Item) and (marker := item.get_closest_marker(MARKER)) is not None:
            try:
                _timeout_s(marker)
            except ValueError as error:
                raise collector.CollectError(f"{item.nodeid}: @pytest.mark.{MARKER}: {error}") from None
    return made


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Make an isolated test hollow: its setup runs the whole test in another process."""
    marker = item.get_closest_marker(MARKER)
    if marker is not None and not is_far_side(item.config):
        try:
            isolated = _Isolated(item, _timeout_s(marker))
        except ValueError as error:  # of a marker that a conftest file added
            refusal = f"@pytest.mark.{MARKER}: {error}"
            item.setup = functools.partial(pytest.fail, refusal, pytrace=False)  # type: ignore[method-assign]
        else:
            item.stash[_ISOLATED] = isolated
            for name in ("setup", "runtest", "teardown"):
                setattr(item, name, getattr(isolated, name))
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Replace the report of the hollow item by the one from the other process."""
    report = yield
    isolated = item.stash.get(_ISOLATED, None)
    return report if isolated is None else isolated.report(report, call)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item) -> bool | None:
    """Leave pytest-timeout's clock to the session in the other process, which knows the test's progress."""
    return True if _ISOLATED in item.stash else None


class _Isolated:
    """One isolated test, as this process sees it; plugins may run it more than once."""

    def __init__(self, item: pytest.Item, timeout_s: float) -> None:
        self._item = item
        self._timeout_s = timeout_s
        self._outcome = _Outcome()
        self._raised: BaseException | None = None
        """The exception raised in this process because the other one sent no report."""
        self._told: BaseException | None = None
        """The exception of the other process, raised again in this process."""
        self._took_s = 0.0
        """Seconds for the whole test, including time outside of its phases."""

    def setup(self) -> None:
        """Run the whole test in the other process."""
        item = self._item
        self._raised = self._told = None
        began = time.perf_counter()
        self._outcome = outcome = _processes(item.config).run(_order(item), self._timeout_s)
        self._took_s = time.perf_counter() - began
        for report in itertools.chain(*outcome.reports.values()):
            item.user_properties.extend(entry for entry in report.user_properties if entry not in item.user_properties)
        if outcome.died is None:
            outcome.print()
        else:
            for stream, text in outcome.output.items():
                if text:
                    item.add_report_section(outcome.missing or "teardown", stream, text)
        for warning in outcome.warnings:
            told = {"warning_message": warning, "when": "runtest", "nodeid": item.nodeid, "location": None}
            item.ihook.pytest_warning_recorded.call_historic(kwargs=told)
        if outcome.log and (plugin := item.config.pluginmanager.get_plugin("logging-plugin")) is not None:
            plugin.log_file_handler.stream.write(outcome.log)
        if outcome.exit is not None:
            pytest.exit(*outcome.exit)
        self._look_at("setup")

    def runtest(self) -> None:
        """Raise an error if the test's process died in the call phase."""
        self._look_at("call")

    def teardown(self) -> None:
        """Raise an error if the test's process died in teardown or later, or left processes behind."""
        if self._raised is not None:
            return
        self._look_at("teardown")
        if self._outcome.died is not None:
            self._raise(self._outcome.died)
        if self._outcome.left:
            self._raise(ChildProcessError(self._outcome.left_text))

    def _look_at(self, phase: str) -> None:
        """Raise the exception of ``phase`` in the other process, or an error if the phase should have a report and has
        none.

        The other process also sends the report, but plugins look at the exception, for example to repeat the test. pdb
        gets none, because this process has nothing to inspect.
        """
        if self._outcome.missing == phase:
            self._raise(self._outcome.died or ChildProcessError(self._outcome.why_nothing))
        self._told = self._outcome.raised.get(phase)
        if self._told is not None and not self._item.config.option.usepdb:
            raise self._told

    def _raise(self, error: OSError) -> NoReturn:
        self._raised = error
        raise error

    def report(self, report: pytest.TestReport, call: pytest.CallInfo[None]) -> pytest.TestReport:
        """Return the report of a phase: that of the other process, unless the phase raised here."""
        there = self._outcome.reports.get(str(report.when))
        if there and (call.excinfo is None or call.excinfo.value is self._told):
            *others, last = there
            for other in others:  # subtests
                self._item.ihook.pytest_runtest_logreport(report=self._as_here(other))
            return self._as_here(last)
        if call.excinfo is not None and call.excinfo.value is self._raised and report.longrepr is not None:
            report.longrepr = call.excinfo.getrepr(style="value")  # without the lines of this file
            phases = itertools.chain(*self._outcome.reports.values())
            report.duration = max(0.0, self._took_s - sum(phase.duration for phase in phases))
        return report

    def _as_here(self, report: pytest.TestReport) -> pytest.TestReport:
        """Turn a report from the other process into one of this item."""
        report.nodeid, report.location = self._item.nodeid, self._item.location
        report.user_properties = list(self._item.user_properties)
        return report


@dataclass
class _Outcome:
    """The result of a session in another process."""

    reports: dict[str, list[pytest.TestReport]] = field(default_factory=dict)
    """The reports by phase; several if a test has subtests."""
    raised: dict[str, BaseException] = field(default_factory=dict)
    """The exceptions by phase, without those that could not be unpickled in this process."""
    missing: str | None = None
    """The first phase that should have a report and has none."""
    died: OSError | None = None
    why_nothing: str = ""
    """The error message if a phase is missing although the process did not die."""
    left: tuple[str, ...] = ()
    """Processes that were still running when it ended."""
    output: dict[str, str] = field(default_factory=dict)
    """Output that escaped pytest's capture and, if the process died, the captured output."""
    log: str = ""
    """The lines for ``--log-file``."""
    warnings: list[warnings.WarningMessage] = field(default_factory=list)
    exit: tuple[str, int | None] | None = None
    """The arguments of ``pytest.exit``, if it was called."""
    result: dict[str, Any] | None = None
    """The return value or the exception of a function."""

    @property
    def left_text(self) -> str:
        from gpudiag.text import counted

        return f"left {counted(len(self.left), 'process')} running, now killed: {'; '.join(self.left)}"

    def print(self) -> None:
        """Write the output of the other process."""
        for stream, text in self.output.items():
            getattr(sys, stream).write(text)


def _with_sockets(method: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
    """Let ``method`` use sockets even if tests may not."""

    @functools.wraps(method)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
        put_there = socket.socket
        socket.socket = _SOCKET  # type: ignore[misc]
        try:
            return method(*args, **kwargs)
        finally:
            socket.socket = put_there  # type: ignore[misc]

    return call


class _Processes:
    """The fresh processes of a session: one supervisor, and one process from which all are forked."""

    @_with_sockets
    def __init__(self, environment: Mapping[str, str], report: Callable[..., pytest.TestReport]) -> None:
        from gpudiag.isolate import Bounds, ServerSpec, supervise
        from gpudiag.pytest_plugin import inner_session

        self._report = report
        # A test may print much, and may kill the process that it was forked from.
        self._bounds = Bounds(output_bytes=64 << 20, kept_bytes=8 << 10, restarts=1000)
        added = {name: None for name in os.environ if name not in environment}
        preload = f"{inner_session.__name__}:{inner_session.preload.__name__}"
        what = f"import {'pytest' if importlib.util.find_spec('tensorflow') is None else 'tensorflow'}"
        self._coverage = {name: text for name, text in environment.items() if name.startswith(_COVERAGE)}
        env = {**environment, **added, **dict.fromkeys(self._coverage)}
        servers = {_ORIGIN: ServerSpec(preload, what, env), _PLAIN: ServerSpec(env=env)}
        self._folder = lending.session_folder()
        self._children = supervise(servers, self._bounds)
        self._count = 0

    def close(self) -> None:
        """End every process."""
        self._children.__exit__(None, None, None)
        self._folder.close()

    @_with_sockets
    def run(
        self, order: TestRequest, timeout_s: float, env: Mapping[str, str | None] = {}, *, fresh: bool = False
    ) -> _Outcome:
        """Run a session in a fresh process, or a new interpreter, for at most ``timeout_s`` seconds."""
        from gpudiag.isolate import Job
        from gpudiag.pytest_plugin import inner_session

        self._count += 1
        folder = self._folder.path / str(self._count)
        folder.mkdir()
        try:
            (folder / inner_session.ORDER).write_bytes(pickle.dumps(order))
            target = f"{inner_session.__name__}:{inner_session.run.__name__}"
            server = _PLAIN if fresh else _ORIGIN
            env = env if fresh else {**self._coverage, **env}
            job = Job(str(self._count), target, {"folder": str(folder)}, timeout_s, server, fresh, env)
            with _Captured(folder / inner_session.SOCKET) as captured:
                ended = self._ended(job, captured)
                texts = {} if ended.cause is None else captured.texts(self._bounds.kept_bytes)
            return self._outcome(ended, folder, texts)
        finally:
            folders.remove(folder)

    def _ended(self, job: Job, captured: _Captured) -> JobResult:
        """Run ``job`` until it has ended."""
        from gpudiag.model.report import NoReading

        self._children.start(job)
        try:
            while True:
                for ended in self._children.wait(_TICK_S):
                    if ended.key == job.key:
                        return ended
                if captured.size > self._bounds.output_bytes:
                    flood = f"wrote more than {self._bounds.output_bytes >> 20} MiB to stdout and stderr"
                    self._children.kill(job.key, NoReading.OUTPUT_FLOOD, flood)
        except BaseException:  # Ctrl-C, or the alarm of pytest-timeout
            self._children.kill(job.key, NoReading.INTERRUPTED, "interrupted")
            raise

    def _outcome(self, ended: JobResult, folder: Path, captured: Mapping[str, str]) -> _Outcome:
        import msgspec

        from gpudiag.model.report import NoReading
        from gpudiag.pytest_plugin import inner_session

        written = {"stdout": ended.stdout, "stderr": ended.stderr}
        outcome = _Outcome(output={name: captured.get(name, "") + text for name, text in written.items()})
        refused = ""
        for event in _pickled(folder / inner_session.EVENTS):
            if "report" in event:
                report = self._report(data=event["report"])
                outcome.reports.setdefault(report.when, []).append(report)
                if (error := _exception(event["raised"])) is not None:
                    outcome.raised[report.when] = error
                else:  # the phase passed, whatever became of its subtests
                    outcome.raised.pop(report.when, None)
            elif "warning" in event:
                outcome.warnings.append(_warning(**event))
            refused = refused or event.get("refused", "")
            outcome.exit = outcome.exit or event.get("exit")
        with contextlib.suppress(OSError):
            outcome.log = (folder / inner_session.LOG).read_text(encoding="utf-8", errors="replace")
        outcome.result = next(_pickled(folder / inner_session.RESULT), None)
        if ended.cause is not None:
            kind = TimeoutError if ended.cause in (NoReading.TIMEOUT, NoReading.BUSY) else ChildProcessError
            outcome.died = kind(ended.detail)
        setup = outcome.reports.get("setup")
        needed = ("setup", *(("call",) if setup and setup[-1].passed else ()), "teardown")
        outcome.missing = next((phase for phase in needed if phase not in outcome.reports), None)
        output = refused or "\n".join(text.strip() for text in outcome.output.values() if text.strip())
        outcome.why_nothing = "\n".join(filter(None, ("it did not run to its end in its separate process", output)))
        left = () if ended.value is None else msgspec.json.decode(ended.value, type=tuple[str, ...])
        outcome.left = (*left, *["a process in a separate session"] * ended.left)
        return outcome


class _Captured:
    """The files in which pytest captures the output of the test in the other process.

    The other process sends them when its test begins; here they outlive that process.
    """

    def __init__(self, path: Path) -> None:
        self._socket: socket.socket | None = None
        self._fds: list[int] = []
        if sys.platform == "linux":
            from gpudiag.isolate import linux

            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
            with contextlib.suppress(OSError), linux.short_path(path) as address:  # no /proc
                self._socket.bind(address)

    def __enter__(self) -> _Captured:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._fds:
            os.close(fd)
        if self._socket is not None:
            self._socket.close()

    @property
    def size(self) -> int:
        """Bytes in the files now; pytest empties them after each phase."""
        return sum(os.fstat(fd).st_size for fd in self._files())

    def texts(self, kept_bytes: int) -> dict[str, str]:
        """Return the contents of the files by stream, shortened to beginning and end if long."""
        from gpudiag.isolate.job import Captured

        texts = {}
        for stream, fd in zip(_STREAMS, self._files(), strict=False):
            kept = Captured(kept_bytes)
            for offset in range(0, os.fstat(fd).st_size, _CHUNK):
                kept.feed(os.pread(fd, _CHUNK, offset))
            texts[stream] = kept.text()
        return texts

    def _files(self) -> list[int]:
        """Return the file descriptors of stdout and stderr; none if pytest does not capture into files."""
        if self._socket is not None and not self._fds:
            with contextlib.suppress(OSError):  # nothing was handed over yet
                _, self._fds, _, _ = socket.recv_fds(self._socket, 16, len(_STREAMS))
        return self._fds if all(stat.S_ISREG(os.fstat(fd).st_mode) for fd in self._fds) else []


class _Remote(Exception):  # noqa: N818  # not an error, but the place that one came from
    """The traceback of another process, set as the cause of the exception that came from it."""


_ISOLATED = pytest.StashKey[_Isolated]()
_BEGINNING = pytest.StashKey[Mapping[str, str]]()
_PROCESSES = pytest.StashKey[_Processes]()
_ORIGIN, _PLAIN = "tensorflow", "plain"


def _processes(config: pytest.Config) -> _Processes:
    if _PROCESSES not in config.stash:
        report = functools.partial(config.hook.pytest_report_from_serializable, config=config)
        config.stash[_PROCESSES] = _Processes(config.stash[_BEGINNING], report)
    return config.stash[_PROCESSES]


def _order(item: pytest.Item, call: bytes | None = None) -> TestRequest:
    from gpudiag.pytest_plugin.inner_session import TestRequest, test_key

    config = item.config
    arguments = [os.fspath(argument) for argument in config.invocation_params.args]
    if config.pluginmanager.has_plugin("pytest_cov"):
        arguments.append("--no-cov")  # it would erase what is measured here
    factory = getattr(config, "_tmp_path_factory", None)  # there is no other way to it; pytest-xdist takes this one too
    return TestRequest(
        arguments=tuple(arguments),
        directory=str(config.invocation_params.dir),
        argv=tuple(sys.argv),
        test=test_key(item),
        basetemp=None if factory is None else str(factory.mktemp("isolated")),
        workerinput=getattr(config, "workerinput", None),
        settings=settings.of(config),
        place=config.stash.get(PLACE, None),
        options=_options(config),
        coverage=_coverage(config),
        call=call,
    )


def _options(config: pytest.Config) -> dict[str, bytes]:
    """Return the values of options, pickled; an option that cannot be pickled keeps its command-line value."""
    pickled = {}
    for name, value in vars(config.option).items():
        with contextlib.suppress(Exception):
            pickled[name] = pickle.dumps(value)
    return pickled


def _coverage(config: pytest.Config) -> Coverage | None:
    """Return the coverage that pytest-cov measures here; None if none."""
    from gpudiag.pytest_plugin.inner_session import Coverage

    controller = getattr(config.pluginmanager.get_plugin("_cov"), "cov_controller", None)
    if controller is None:
        return None
    return Coverage(
        source=controller.cov_source,
        branch=controller.cov_branch,
        config_file=controller.cov_config,
        data_file=str(Path(controller.topdir) / controller.cov.config.data_file),
        by_test=config.option.cov_context == "test",
    )


def is_far_side(config: pytest.Config) -> bool:
    """Return whether this session runs one isolated test."""
    return FAR_SIDE in config.stash


def outcome(name: str, reason: str) -> BaseException:
    """Return the exceptions that ``pytest.skip`` and similar functions raise."""
    error: BaseException = getattr(pytest, name).Exception(reason)
    return error


def _exception(pickled: bytes | None) -> BaseException | None:
    """Return the exception that another process raised; None if it cannot be read."""
    if pickled is None:
        return None
    with contextlib.suppress(Exception):
        error = pickle.loads(pickled)  # noqa: S301  # by a process that this one started
        return error if isinstance(error, BaseException) else None
    return None


def _timeout_s(marker: pytest.Mark) -> float:
    """Return the seconds that a marker allows; raises ``ValueError`` for unknown arguments."""
    if marker.args or marker.kwargs.keys() - {"timeout"}:
        arguments = ", ".join(
            [*map(repr, marker.args), *(f"{name}={value!r}" for name, value in marker.kwargs.items())]
        )
        raise ValueError(f"takes no argument but timeout, such as timeout=60, but was given {arguments}")
    timeout = marker.kwargs.get("timeout", TIMEOUT_S)
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise ValueError(f"timeout={timeout!r} is not a number of seconds above 0, such as timeout=60")
    return float(timeout)


def _pickled(path: Path) -> Iterator[Any]:
    """Yield the complete pickled objects in a file."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        while True:
            try:
                yield pickle.load(file)  # noqa: S301  # written by a process that this one started
            except (EOFError, pickle.UnpicklingError):
                return


def _warning(warning: str, category: tuple[str, str], file: str, line: int) -> warnings.WarningMessage:
    """Turn a warning of another process into one of this process."""
    module, name = category
    known = getattr(sys.modules.get(module), name, None)
    kind = known if isinstance(known, type) and issubclass(known, Warning) else UserWarning
    return warnings.WarningMessage(warning, kind, file, line)
