"""Examples of causes: variables with which TensorFlow looks for no GPU, or cannot make its devices."""

from __future__ import annotations

from examples import Example
from examples.facts import example_with_gpus
from gpudiag.cause import TRACE, Evidence
from gpudiag.causes.shared.variables import TYPES
from gpudiag.knowledge.log_lines import Line
from gpudiag.knowledge.variables import WITHHELD
from gpudiag.model.facts import EnvironmentFacts
from gpudiag.model.report import Broken, Finding, Judged, NoReading, Row, Severity
from gpudiag.probe import Raised
from gpudiag.probes.discovery import trace

_BY_TYPES = Line("I", "device_factory.cc", f"Device factory 'GPU' disabled by {TYPES} environment variable.")
_MODE = "InvalidArgumentError: Invalid gpu_thread_mode: gpu_privat"
_PLUGGABLE = (
    "import tensorflow raised FileNotFoundError: [Errno 2] The file or folder to load pluggable device libraries from "
    "does not exist.: '/opt/plug-ins'"
)


def _set(*rows: Row, log: tuple[str, ...] = (), **variables: str) -> Evidence:
    return Evidence(example_with_gpus(1, environment=EnvironmentFacts(variables)), rows=rows, lines=log)


def _set_in_file(backend: str, *rows: Row) -> Evidence:
    environment = EnvironmentFacts({}, keras_backend=backend, keras_backend_from="/home/a/.keras/keras.json")
    return Evidence(example_with_gpus(1, environment=environment), rows=rows)


def _listing(listed: int, *said: Line, raised: Raised | None = None) -> Row:
    return Row(TRACE, (), Judged(), 0.0, trace.Reading(listed, raised, (), {}, said))


def _import(detail: str) -> Row:
    return Row(TRACE, (), Broken(NoReading.EXCEPTION, detail), 0.0)


def _creation(detail: str) -> Row:
    finding = Finding("creation_failed", Severity.FAIL, f"TensorFlow cannot create its devices: {detail}")
    return Row("discovery.logical_devices", (), Judged((finding,)), 0.0)


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "gpu_type_disabled": (
        Example("CPU alone", _set(_listing(0, _BY_TYPES), TF_ENABLED_DEVICE_TYPES="CPU")),
        Example("a blank", _set(_listing(0), TF_ENABLED_DEVICE_TYPES="CPU, GPU")),
        Example(
            "GPU alone",
            _set(
                _listing(0, raised=Raised("NotFoundError", "CPU Factory not registered.")),
                TF_ENABLED_DEVICE_TYPES="GPU",
            ),
        ),
        Example("in the program", _set(log=(f"I device_factory.cc:9] {_BY_TYPES.text}",))),
        Example("both types", _set(_listing(0), TF_ENABLED_DEVICE_TYPES="CPU,GPU"), fires=False),
        Example("empty", _set(_listing(0), TF_ENABLED_DEVICE_TYPES=""), fires=False),
        Example("not set", _set(_listing(0)), fires=False),
        Example("a GPU is listed", _set(_listing(1), TF_ENABLED_DEVICE_TYPES="CPU"), fires=False),
    ),
    "variable_refused": (
        Example("thread mode", _set(_creation(_MODE), TF_GPU_THREAD_MODE="gpu_privat")),
        Example("plug-in", _set(_import(_PLUGGABLE), TF_PLUGGABLE_DEVICE_LIBRARY_PATH="/opt/plug-ins")),
        Example(
            "a file in it",
            _set(
                _import("NotFoundError: /opt/plug-ins/a.so: undefined symbol: x"),
                TF_PLUGGABLE_DEVICE_LIBRARY_PATH="/opt/plug-ins",
            ),
        ),
        Example("a value", _set(_import("ValueError: Unable to import backend : thano"), KERAS_BACKEND="thano")),
        Example(
            "a backend in a file", _set_in_file("theano", _import("ValueError: Unable to import backend : theano"))
        ),
        Example("a backend in a log", _set(log=("ValueError: Unable to import backend : mxnet",))),
        Example(
            "another backend in a file",
            _set_in_file("jax", _import("ValueError: Unable to import backend : theano")),
            fires=False,
        ),
        Example("no backend is named", _set(_import("ValueError: set KERAS_BACKEND")), fires=False),
        Example(
            "the name of an environment",
            _set(_import("ModuleNotFoundError: No module named 'a' in tf"), CONDA_DEFAULT_ENV="tf"),
            fires=False,
        ),
        Example("a name", _set(_creation("ValueError: cannot parse TF_MY_LIMIT"), TF_MY_LIMIT=WITHHELD)),
        Example("in the program", _set(log=(f"W gpu_device.cc:651] {_MODE.partition(': ')[2]}",))),
        Example("the devices are made", _set(TF_GPU_THREAD_MODE="gpu_privat"), fires=False),
        Example("another error", _set(_creation("InternalError: x"), TF_GPU_THREAD_MODE="global"), fires=False),
        Example("a digit", _set(_import("exited with 1"), TF_NUM_INTEROP_THREADS="1"), fires=False),
        Example(
            "a part of a path",
            _set(_import("ImportError: /opt/env/lib/a.so"), CONDA_PREFIX="/opt/env"),
            fires=False,
        ),
        Example("a part of a word", _set(_import("no globals"), TF_GPU_THREAD_MODE="global"), fires=False),
    ),
}
