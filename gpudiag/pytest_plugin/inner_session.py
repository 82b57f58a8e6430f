"""Runs an isolated test: a separate pytest session, for one test, in a separate process.

The process was forked from one that has imported TensorFlow and no test module. It reads the command line of the
session that started it, collects the one test again, and reports what happens as it happens, so that a crash loses
nothing that was reported before.

Every plugin of the outer session is loaded here too, because some affect the test itself (fixtures, event loops,
timeouts, seeds). Three rules keep plugins from doing the outer session's work twice: options have the values of the
outer session; the test runs once, by pytest's own protocol, and only the outer session may repeat it; and the hooks
that report a result are called for pytest alone.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import pickle
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpudiag.pytest_plugin import isolated
from gpudiag.pytest_plugin.gpus import PLACE, VisibleDevices
from gpudiag.pytest_plugin.settings import SETTINGS, PluginSettings

ORDER, EVENTS, RESULT, SOCKET, LOG = "order", "events", "result", "socket", "log"
"""Files in the folder of an isolated test."""

_OPTIONS: dict[str, object] = {
    # xdist: this session runs its test itself.
    "numprocesses": None,
    "maxprocesses": None,
    "dist": "no",
    "distload": False,
    "tx": [],
    "looponfail": False,
    # Nobody sits at a terminal.
    "usepdb": False,
    "trace": False,
    # Files that the session outside writes, and would find truncated.
    "xmlpath": None,
    "report_log": None,
    "htmlpath": None,
    "allure_report_dir": None,
    "pastebin": None,
    # pytest-retry repeats a phase when its report is made; other plugins that repeat tests do it by a protocol.
    "retries": None,
    # The choice among tests has been made.
    "lf": False,
    "failedfirst": False,
    "newfirst": False,
    "cacheclear": False,
    "stepwise": False,
    "stepwise_skip": False,
    "maxfail": 0,
}
"""Options that would repeat work of the outer session, including those of plugins that may be installed."""

_OBEYED_OUTSIDE = ("dependency", "flaky")
"""Markers that repeat a test or look at the results of other tests; only the outer session knows these."""

_TELLING = (
    "pytest_report_header",
    "pytest_report_collectionfinish",
    "pytest_runtest_logstart",
    "pytest_runtest_logreport",
    "pytest_runtest_logfinish",
    "pytest_terminal_summary",
)
"""Hooks that only report the result of a test or of the session."""
_ENDING = "pytest_sessionfinish"
"""End-of-session hooks: those of installed plugins are left to the outer session, those of conftest files run, as
they may clean up."""

_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Helper processes of Python, which end at its exit; an isolated test leaves without that exit."""


@dataclass(frozen=True)
class TestRequest:
    """The outer session's order: which test to run, and how."""

    arguments: tuple[str, ...]
    """The command line of the inner session."""
    directory: str
    """The folder in which the inner session was started."""
    argv: tuple[str, ...]
    test: tuple[str, ...]
    """The test's file and its names there; see :func:`test_key`."""
    basetemp: str | None
    """Folder for ``tmp_path``; None: a temporary one."""
    workerinput: dict[str, Any] | None
    """The data that pytest-xdist sent to the worker; None outside of a worker."""
    settings: PluginSettings
    place: VisibleDevices | None
    """The GPUs that the test was given; None if nothing was decided."""
    options: Mapping[str, bytes]
    """The values of all options in the outer session, where plugins may have changed them; each pickled."""
    coverage: Coverage | None = None
    """The coverage that pytest-cov measures in the outer session; None if none."""
    call: bytes | None = None
    """A pickled function, its arguments and its keyword arguments, to be called in place of the test."""


@dataclass(frozen=True)
class Coverage:
    """The sources to measure, and the file beside which to save the data: pytest-cov combines all such files."""

    source: list[str] | None
    branch: bool | None
    config_file: str | bool
    data_file: str
    by_test: bool
    """Whether coverage is recorded by test (``--cov-context=test``)."""

    def start(self) -> Any:
        """Start measuring; return the running measurement."""
        import coverage

        measuring = coverage.Coverage(
            self.data_file, data_suffix=True, source=self.source, branch=self.branch, config_file=self.config_file
        )
        for kind in ("no_data", "unimported_source", "preimported_source"):  # the session outside reports all this
            setattr(measuring, f"_warn_{kind}", False)
        measuring.start()
        return measuring


def test_key(item: pytest.Item) -> tuple[str, ...]:
    """Return a name of a test that is equal in every session: plugins append to node ids (``@group`` of xdist's
    loadgroup)."""
    chain = item.listchain()
    file = max(number for number, node in enumerate(chain) if isinstance(node, pytest.File))
    return (str(item.path), *(node.name for node in chain[file + 1 :]))


def preload() -> Callable[[], str | None] | None:
    """Import the modules that all isolated tests need; return the guard of TensorFlow's fork server, if TensorFlow
    is installed."""
    if importlib.util.find_spec("tensorflow") is None:
        return None
    from gpudiag.run import worker
    from gpudiag.simulator import MACHINE_VARIABLE

    return worker.preload_simulated() if MACHINE_VARIABLE in os.environ else worker.preload()


def run(argument: dict[str, Any]) -> bytes:
    """Run the session that the order in ``argument["folder"]`` asks for; return the processes that it left running,
    as JSON."""
    folder = Path(argument["folder"])
    order: TestRequest = pickle.loads((folder / ORDER).read_bytes())  # noqa: S301  # by the session that started this one
    os.chdir(order.directory)
    sys.argv[:] = order.argv
    with (folder / EVENTS).open("ab", buffering=0) as events:
        process = os.getpid()

        def tell(event: dict[str, Any]) -> None:
            if os.getpid() == process:  # not a fork that the test made, and that came back from it
                events.write(pickle.dumps(event))

        session = _Session(order, folder, tell)
        pytest.main([*order.arguments], plugins=[session])
        if os.getpid() != process:
            return b"null"
        session.close()
    import msgspec

    return msgspec.json.encode(_end_descendants())


def _end_descendants() -> list[str]:
    """Kill the processes that the test has left running, and return their descriptions."""
    import psutil

    left = psutil.Process().children(recursive=True)
    named = []
    for process in left:
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if process.status() != psutil.STATUS_ZOMBIE and not any(
                helper in word for helper in _HELPERS for word in words
            ):
                named.append(f"{' '.join(words) or process.name()} (process {process.pid})")
            process.kill()
    psutil.wait_procs(left, timeout=1)
    return named


class _Session:
    """A plugin that narrows a session to one test, and reports its result to the outer session."""

    def __init__(self, order: TestRequest, folder: Path, tell: Callable[[dict[str, Any]], object]) -> None:
        self._order = order
        self._folder = folder
        self._tell = tell
        self._stdout = sys.stdout
        self._handed_over = False
        self._raised: bytes | None = None
        self._measuring: Any = None if order.coverage is None else order.coverage.start()

    def close(self) -> None:
        """Save the coverage data where pytest-cov looks for it."""
        if self._measuring is not None:
            self._measuring.stop()
            self._measuring.save()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_load_initial_conftests(self, early_config: pytest.Config) -> Generator[None, object, object]:
        early_config.stash[isolated.FAR_SIDE] = True
        early_config.stash[SETTINGS] = (
            PluginSettings()
        )  # to check the machine and to hand it out is for the session outside
        result = yield
        early_config.stash[SETTINGS] = self._order.settings
        if self._order.place is not None:
            early_config.stash[PLACE] = self._order.place
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> Generator[None, object, object]:
        settled = {name: value for name, text in self._order.options.items() if (value := _unpickled(text)) is not None}
        for name, value in {**settled, **_OPTIONS}.items():
            if hasattr(config.option, name):
                setattr(config.option, name, value)
        config.option.basetemp = self._order.basetemp
        config.option.log_file = str(self._folder / LOG)  # for the session outside to append to its own
        if "[" not in self._order.test[0]:  # pytest takes it for the beginning of a parameter: then all is collected
            config.args[:] = ["::".join(self._order.test)]
        if self._order.workerinput is not None:
            config.workerinput = self._order.workerinput  # type: ignore[attr-defined]  # of pytest-xdist
            config.workeroutput = {}  # type: ignore[attr-defined]
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  # what pytest's terminal reporter writes to
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        sys.stdout = self._stdout

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, object, object]:
        wanted = [item for item in items if test_key(item) == self._order.test]
        result = yield
        items[:] = wanted[:1]  # whatever others deselect: the choice among tests has been made
        for node in items[0].listchain() if items else ():
            node.own_markers[:] = [mark for mark in node.own_markers if mark.name not in _OBEYED_OUTSIDE]
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        _narrow(session.config.pluginmanager)
        if self._order.call is None or session.testsfailed or not session.items:
            return None
        self._tell({"began": "call"})
        (self._folder / RESULT).write_bytes(_result(self._order.call))
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._begin(item, "setup")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        self._begin(item, "call")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        self._begin(item, "teardown")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, object, object]:
        self._raised = None if call.excinfo is None else _pickled(call.excinfo.value)
        return (yield)

    @pytest.hookimpl(trylast=True)  # pytest fails a test for its subtests when its terminal reporter has the report
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        content = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._tell({"report": content, "raised": self._raised})

    def pytest_configure(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._tell({"refused": report.longreprtext})

    def pytest_internalerror(self, excrepr: object) -> None:
        self._tell({"refused": str(excrepr)})

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        if isinstance(excinfo.value, pytest.exit.Exception):
            self._tell({"exit": (excinfo.value.msg, excinfo.value.returncode)})

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, when: str) -> None:
        if when == "runtest":  # those of configuration and collection are known outside
            kind = warning_message.category
            self._tell(
                {
                    "warning": str(warning_message.message),
                    "category": (kind.__module__, kind.__qualname__),
                    "file": warning_message.filename,
                    "line": warning_message.lineno,
                }
            )

    def _begin(self, item: pytest.Item, phase: str) -> None:
        self._tell({"began": phase})
        if self._order.coverage is not None and self._order.coverage.by_test:
            self._measuring.switch_context(f"{item.nodeid}|{'run' if phase == 'call' else phase}")
        if not self._handed_over:
            self._handed_over = True
            self._hand_over_output()

    def _hand_over_output(self) -> None:
        """Send the outer session the files of captured output: they hold the last output of a crashed test.

        The descriptors stay in the socket, so that neither process waits for the other.
        """
        if sys.platform == "linux":
            from gpudiag.isolate import linux

            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as outside:
                with linux.short_path(self._folder / SOCKET) as address:
                    outside.connect(address)
                socket.send_fds(outside, [b"1,2"], [1, 2])


class _Protocol:
    """Runs a test by pytest's own protocol, before other plugins are asked: once, in this process."""

    def __init__(self, plugins: pytest.PytestPluginManager) -> None:
        self._runner: Any = plugins.get_plugin("runner")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> object:
        return self._runner.pytest_runtest_protocol(item=item, nextitem=nextitem)


def _narrow(plugins: pytest.PytestPluginManager) -> None:
    """Disable the tasks that belong to the outer session; all plugins are loaded by now."""
    plugins.register(_Protocol(plugins))
    others = {
        plugin for plugin in plugins.get_plugins() if _package(plugin) not in ("_pytest", __name__.partition(".")[0])
    }
    installed = others - set(plugins._conftest_plugins)
    for name in _TELLING:
        setattr(plugins.hook, name, plugins.subset_hook_caller(name, others))
    setattr(plugins.hook, _ENDING, plugins.subset_hook_caller(_ENDING, installed))


def _package(plugin: object) -> str:
    """Return the name of the package of a plugin, which is a module or an object."""
    return str(getattr(plugin, "__module__", None) or getattr(plugin, "__name__", "")).partition(".")[0]


class _Pickler(pickle.Pickler):
    """Knows what pytest raises to skip or to fail: these classes say that they are built into Python, and are not."""

    def reducer_override(self, thing: object) -> Any:
        for name in ("skip", "fail", "xfail"):
            if type(thing) is getattr(pytest, name).Exception:
                return isolated.outcome, (name, str(thing))
        return NotImplemented


def _pickled(error: BaseException) -> bytes | None:
    """Return a pickled exception; None if it could not be unpickled, as with many exceptions."""
    with contextlib.suppress(Exception):
        file = io.BytesIO()
        _Pickler(file).dump(error)
        pickle.loads(file.getvalue())  # noqa: S301  # written here
        return file.getvalue()
    return None


def _unpickled(content: bytes) -> Any:
    """Return a value pickled by the outer session; None if it cannot be unpickled here."""
    with contextlib.suppress(Exception):
        return pickle.loads(content)  # noqa: S301  # by the session that started this one
    return None


def _result(call: bytes) -> bytes:
    """Call the pickled function; return its result or its exception, pickled."""
    try:
        function, arguments, keywords = pickle.loads(call)  # noqa: S301  # by the session that started this one
        return pickle.dumps({"value": function(*arguments, **keywords)})
    except BaseException as error:  # also what skips or fails a test
        return pickle.dumps({"raised": _pickled(error), "traceback": traceback.format_exc()})
