"""Environment variables with which TensorFlow looks for no GPU, cannot be imported, or cannot make its devices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import to_builtins

from gpudiag.diagnosis.rule import TRACE, Evidence, Match, Rule, RuleCase
from gpudiag.diagnosis.steps import context_error
from gpudiag.hostfacts import EnvironmentFacts, example_with_gpus
from gpudiag.knowledge.log import GPU_TYPE_DISABLED, NO_CPU_FACTORY, NO_PLUGGABLE_LIBRARY, THREAD_MODE_INVALID
from gpudiag.log import Line, Log, text
from gpudiag.model import Broken, Cause, Finding, Judged, Row, Severity, Stage, Sure
from gpudiag.probe import Raised
from gpudiag.probes.discovery import trace
from gpudiag.variables import SETTINGS, WITHHELD

_TYPES = "TF_ENABLED_DEVICE_TYPES"


def _gpu_type_disabled(evidence: Evidence) -> Iterator[Match]:
    value = evidence.facts.variables.get(_TYPES, "")
    enabled = value.split(",")  # as TensorFlow does: letter by letter, blanks included
    seen = evidence.trace
    if value and "GPU" not in enabled and seen is not None and not seen.listed:
        said = tuple(one.line for one in evidence.listing.all(GPU_TYPE_DISABLED))
        what = "has no entry GPU, and TensorFlow looks for none"
        yield _types(value, (f"{_TYPES}={value}", *said), what, Stage.DEVICE_FILTER)
    elif broken := next((one for one in _errors(evidence) if value and Log((one.text,)).first(NO_CPU_FACTORY)), None):
        what = "has no entry CPU, without which TensorFlow makes no device at all"
        yield _types(value, (f"{_TYPES}={value}", broken.text), what, broken.stage)
    elif said := evidence.program.said(GPU_TYPE_DISABLED, most=1):
        yield Match(
            said,
            figures={
                "what": f"of the program that wrote the log has no entry GPU{'' if value else '; it is not set here'}",
                "do": f"# take {_TYPES} out of the program, and out of the environment that starts it",
            },
            stage=Stage.CONFIGURATION,
        )


def _types(value: str, seen: tuple[str, ...], what: str, stage: Stage) -> Match:
    return Match(
        seen, figures={"what": f"is {value!r}: it {what}", "do": f"unset {_TYPES}"}, change={_TYPES: None}, stage=stage
    )


class _Error(NamedTuple):
    stage: Stage
    text: str


def _errors(evidence: Evidence) -> Iterator[_Error]:
    """Yield what ended the import, the listing or the creation of devices."""
    for row in evidence.rows:
        if row.probe == TRACE and (crash := row.crash) is not None and crash.cause is Cause.EXCEPTION:
            yield _Error(Stage.PACKAGE, crash.detail)
    if evidence.trace is not None and evidence.trace.raised is not None:
        yield _Error(Stage.DEVICE_FILTER, evidence.trace.raised.brief)
    if words := context_error(evidence):
        yield _Error(Stage.CONTEXT, words)


_KNOWN = {
    "TF_GPU_THREAD_MODE": (
        THREAD_MODE_INVALID,
        "export TF_GPU_THREAD_MODE=global  # or gpu_private or gpu_shared: it reads no other value",
    ),
    "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": (
        NO_PLUGGABLE_LIBRARY,
        "# or give it the folder, or the library, of a plug-in for this release of TensorFlow",
    ),
}
"""Variables of which TensorFlow's error is known, and what to do instead."""
_OF_OTHERS = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "PYTHONPATH", "TF_XLA_FLAGS", "XLA_FLAGS", _TYPES)
"""Those that another rule understands."""
_SAYS_LITTLE = re.compile(r"true|false|none|auto|[\d.:,-]*|.{0,2}", re.IGNORECASE)
"""A value that may stand in an error by chance."""


def _variable_refused(evidence: Evidence) -> Iterator[Match]:
    variables = evidence.facts.variables
    told = set()
    for stage, error in _errors(evidence):
        for name, value in variables.items():
            known, instead = _KNOWN.get(name, (None, ""))
            found = Log((error,)).first(known) if known is not None else None
            exact = found is not None and found["value"] == value
            if name in told or not (exact or _stands_in(name, value, error)):
                continue
            told.add(name)
            yield Match(
                evidence=(f"{name}={value}", text(error)),
                sure=Sure.PROVED if exact else Sure.POSSIBLE,
                figures={
                    "name": name,
                    "value": value,
                    "what": "TensorFlow cannot use it" if exact else "the error that TensorFlow ends in has it",
                    "do": f"unset {name}",
                    "instead": instead,
                },
                change={name: None},
                stage=stage,
            )
    for name, (message, instead) in _KNOWN.items():
        if name not in told and (said := evidence.program.first(message)):
            yield Match(
                evidence=(text(said.line),),
                figures={
                    "name": name,
                    "value": said["value"],
                    "what": "TensorFlow could not use it in the program",
                    "do": f"# take {name} out of the program, and out of the environment that starts it",
                    "instead": instead,
                },
                stage=Stage.CONFIGURATION,
            )


def _stands_in(name: str, value: str, error: str) -> bool:
    """Return True where the error names the variable, or holds its value whole: that may be chance."""
    if name in _OF_OTHERS:
        return False
    if re.search(rf"\b{re.escape(name)}\b", error):
        return True
    if value == WITHHELD or _SAYS_LITTLE.fullmatch(value):
        return False
    # A path of CONTEXT, such as CONDA_PREFIX, is a part of every path below it.
    after = r"(?![\w-]|\.\w)" if name in SETTINGS else r"(?![\w/-]|\.\w)"
    return re.search(rf"(?<![\w./-]){re.escape(value)}{after}", error) is not None


# Cases.

_BY_TYPES = Line("I", "device_factory.cc", f"Device factory 'GPU' disabled by {_TYPES} environment variable.")
_MODE = "InvalidArgumentError: Invalid gpu_thread_mode: gpu_privat"
_PLUGGABLE = (
    "import tensorflow raised FileNotFoundError: [Errno 2] The file or folder to load pluggable device libraries from "
    "does not exist.: '/opt/plug-ins'"
)


def _set(*rows: Row, log: tuple[str, ...] = (), **variables: str) -> Evidence:
    return Evidence(example_with_gpus(1, environment=EnvironmentFacts(variables)), rows=rows, lines=log)


def _listing(listed: int, *said: Line, raised: Raised | None = None) -> Row:
    return Row(TRACE, (), Judged(), 0.0, to_builtins(trace.Reading(listed, raised, (), {}, said)))


def _import(detail: str) -> Row:
    return Row(TRACE, (), Broken(Cause.EXCEPTION, detail), 0.0)


def _creation(detail: str) -> Row:
    finding = Finding("creation_failed", Severity.FAIL, f"TensorFlow cannot create its devices: {detail}", "", {})
    return Row("discovery.logical_devices", (), Judged((finding,)), 0.0)


RULES = (
    Rule(
        id="gpu_type_disabled",
        stage=Stage.DEVICE_FILTER,
        cause=_TYPES + " {what}",
        why="""
        The variable lists the types of devices that TensorFlow makes, separated by commas, in capitals and without
        blanks: 'CPU,gpu' and 'CPU, GPU' have no GPU. The list of GPUs is empty then, no library of CUDA is opened, and
        the line "Device factory 'GPU' disabled" is of a level that most logs do not show. Without CPU no device can be
        made. Some programs set it to keep a worker off the GPU.
        """,
        fix=("{do}", f"export {_TYPES}=CPU,GPU  # instead"),
        url="https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/common_runtime/device_factory.cc",
        find=_gpu_type_disabled,
        needs_gpu=False,
        cases=(
            RuleCase("CPU alone", _set(_listing(0, _BY_TYPES), TF_ENABLED_DEVICE_TYPES="CPU")),
            RuleCase("a blank", _set(_listing(0), TF_ENABLED_DEVICE_TYPES="CPU, GPU")),
            RuleCase(
                "GPU alone",
                _set(
                    _listing(0, raised=Raised("NotFoundError", "CPU Factory not registered.")),
                    TF_ENABLED_DEVICE_TYPES="GPU",
                ),
            ),
            RuleCase("in the program", _set(log=(f"I device_factory.cc:9] {_BY_TYPES.text}",))),
            RuleCase("both types", _set(_listing(0), TF_ENABLED_DEVICE_TYPES="CPU,GPU"), fires=False),
            RuleCase("empty", _set(_listing(0), TF_ENABLED_DEVICE_TYPES=""), fires=False),
            RuleCase("not set", _set(_listing(0)), fires=False),
            RuleCase("a GPU is listed", _set(_listing(1), TF_ENABLED_DEVICE_TYPES="CPU"), fires=False),
        ),
    ),
    Rule(
        id="variable_refused",
        stage=Stage.CONTEXT,
        cause="{name}={value!r}: {what}",
        why="""
        Some values that TensorFlow cannot use are not ignored but end the import or the creation of devices:
        TF_GPU_THREAD_MODE reads global, gpu_private and gpu_shared alone, and TF_PLUGGABLE_DEVICE_LIBRARY_PATH must
        exist. The error has the value, and rarely the variable's name. Where it is not an error that is known, but
        the value stands in it, this is possible: trying it without the variable shows it.
        """,
        fix=("{do}", "{instead}"),
        url="https://www.tensorflow.org/guide/gpu#setup",
        find=_variable_refused,
        needs_gpu=False,
        cases=(
            RuleCase("thread mode", _set(_creation(_MODE), TF_GPU_THREAD_MODE="gpu_privat")),
            RuleCase("plug-in", _set(_import(_PLUGGABLE), TF_PLUGGABLE_DEVICE_LIBRARY_PATH="/opt/plug-ins")),
            RuleCase(
                "a file in it",
                _set(
                    _import("NotFoundError: /opt/plug-ins/a.so: undefined symbol: x"),
                    TF_PLUGGABLE_DEVICE_LIBRARY_PATH="/opt/plug-ins",
                ),
            ),
            RuleCase("a value", _set(_import("ValueError: Unable to import backend : thano"), KERAS_BACKEND="thano")),
            RuleCase("a name", _set(_creation("ValueError: cannot parse TF_MY_LIMIT"), TF_MY_LIMIT=WITHHELD)),
            RuleCase("in the program", _set(log=(f"W gpu_device.cc:651] {_MODE.partition(': ')[2]}",))),
            RuleCase("the devices are made", _set(TF_GPU_THREAD_MODE="gpu_privat"), fires=False),
            RuleCase("another error", _set(_creation("InternalError: x"), TF_GPU_THREAD_MODE="global"), fires=False),
            RuleCase("a digit", _set(_import("exited with 1"), TF_NUM_INTEROP_THREADS="1"), fires=False),
            RuleCase(
                "a part of a path",
                _set(_import("ImportError: /opt/env/lib/a.so"), CONDA_PREFIX="/opt/env"),
                fires=False,
            ),
            RuleCase("a part of a word", _set(_import("no globals"), TF_GPU_THREAD_MODE="global"), fires=False),
        ),
    ),
)
