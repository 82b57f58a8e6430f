"""GPUs that work and are not used as the program meant: what it does with TensorFlow's settings, and variables."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any

from gpudiag.diagnosis.rule import TRACE, Evidence, Match, Rule, RuleCase
from gpudiag.hostfacts import EnvironmentFacts, Facts, Unknown, example, example_with_gpus
from gpudiag.knowledge.log import (
    CONFIGURED_TOO_LATE,
    CUINIT_CALL_FAILED,
    DEVICE_CREATED,
    DEVICE_NOT_AVAILABLE,
    DEVICE_NOT_SATISFIED,
    GPU_NOT_COUNTED,
    GPU_TYPE_DISABLED,
    GROWTH_NOT_PARSED,
    LIBRARIES_MISSING,
    MIRRORED_DEVICES,
    NO_CUDA_DRIVERS,
    NO_MEMORY_POOLS,
    NO_SUCH_ELEMENT,
    NON_GPU_REPLICAS,
    SETTINGS_EXCLUDED,
)
from gpudiag.log import Line, Log, statements, text
from gpudiag.model import Broken, Cause, Finding, Judged, Row, Severity, Stage, Sure
from gpudiag.placement import devices_of, parse_placements
from gpudiag.variables import WITHHELD

_GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
_ALLOCATOR = "TF_GPU_ALLOCATOR"
_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"

# --- settings that come too late -------------------------------------------------------------------------------------

_SETTER = re.compile(
    r"(?<!context\(\))\.(?:set_(?:visible_devices|memory_growth|\w+_parallelism_threads)|"
    r"set_(?:logical|virtual)_device_configuration)\("
)
_INSTEAD = {
    "Physical devices": f"export {_GROWTH}=true  # or, with no change to the program",
    "Visible devices": "export CUDA_VISIBLE_DEVICES={gpu}  # or, with no change to the program",
    "Intra op parallelism": "export TF_NUM_INTRAOP_THREADS=N  # or, with no change to the program",
    "Inter op parallelism": "export TF_NUM_INTEROP_THREADS=N  # or, with no change to the program",
}


def _configured_too_late(evidence: Evidence) -> Iterator[Match]:
    for found, error, statement in statements(evidence.program, CONFIGURED_TOO_LATE, _SETTER):
        what = found["what"]
        instead = _INSTEAD.get(what, "# in a notebook: restart the kernel, and run that cell first")
        if "{gpu}" in instead:
            instead = instead.format(gpu=evidence.gpus[0].uuid) if evidence.gpus else ""
        before = evidence.program.said(DEVICE_CREATED, most=1)
        yield Match(
            evidence=tuple(filter(None, (statement, error, *(f"before it: {line}" for line in before)))),
            figures={"what": what.lower(), "instead": instead},
        )
        return


# --- settings that exclude one another -------------------------------------------------------------------------------

_EXCLUSIVE = {
    "Cannot set memory growth on device when virtual devices configured": (
        "memory growth",
        "logical devices",
        "# remove set_memory_growth: the limits of the logical devices bound the program already",
        f"export {_GROWTH}=true  # or, to have both: leave it out all the same",
    ),
    "It's invalid to set per_process_gpu_memory_fraction when virtual_devices is set": (
        "per_process_gpu_memory_fraction",
        "virtual_devices",
        "# remove per_process_gpu_memory_fraction: memory_limit_mb bounds each device already",
        "# or remove virtual_devices, and keep the fraction",
    ),
}


def _exclusive_settings(evidence: Evidence) -> Iterator[Match]:
    for found, error, statement in statements(evidence.program, SETTINGS_EXCLUDED, _SETTER):
        one, other, remove, both = _EXCLUSIVE[found.text]
        yield Match(
            evidence=tuple(filter(None, (statement, error))),
            figures={"one": one, "other": other, "remove": remove, "both": both},
        )
        return


# --- a list without GPUs ---------------------------------------------------------------------------------------------

_OF_GPUS = re.compile(r"(?i)(?:gpu|device)\w{0,60}(?:\([^()]{0,200}\))?\[")


def _element_of_no_gpus(evidence: Evidence) -> Iterator[Match]:
    for _, error, statement in statements(evidence.program, NO_SUCH_ELEMENT, _OF_GPUS):
        if statement:
            yield Match(
                evidence=(statement, error, *_listed_here(evidence)),
                sure=Sure.LIKELY if _listed(evidence) else Sure.PROVED,
            )
            return


def _listed(evidence: Evidence) -> int:
    return 0 if evidence.trace is None else evidence.trace.listed


def _listed_here(evidence: Evidence) -> tuple[str, ...]:
    """Say where the program must have run elsewhere than this check."""
    if evidence.trace is None:
        return ()
    if not evidence.trace.listed:
        return ("here TensorFlow lists no GPU either",)
    return (f"here TensorFlow lists {evidence.trace.listed}: the program ran with other variables, or elsewhere",)


# --- the CPU instead of the GPU --------------------------------------------------------------------------------------

_HEAVY = ("BatchMatMulV2", "Conv2D", "Conv3D", "MatMul")
"""Operations that TensorFlow puts on a GPU wherever there is one."""


def _cpu_instead(evidence: Evidence) -> Iterator[Match]:
    without = (DEVICE_NOT_AVAILABLE, DEVICE_NOT_SATISFIED)
    found = [event for event in evidence.program.all(MIRRORED_DEVICES, *without) if "CPU" in event["devices"].upper()]
    found = [event for event in found if "GPU" not in event["devices"].upper()]
    said = Log(
        event.line for event in evidence.program.events if event in found or event.message is NON_GPU_REPLICAS
    ).said(MIRRORED_DEVICES, NON_GPU_REPLICAS, *without)
    placements = parse_placements(evidence.lines)
    ran = {op: devices for op in _HEAVY if (devices := devices_of(op, placements))}
    if not said and (not ran or any("CPU" not in device for devices in ran.values() for device in devices)):
        return
    yield Match(
        evidence=(
            *said,
            *(f"{op} ran on {', '.join(devices)}" for op, devices in ran.items()),
            *_listed_here(evidence),
        ),
        sure=Sure.PROVED if any(event.message in without for event in found) else Sure.LIKELY,
    )


# --- another machine than this ---------------------------------------------------------------------------------------

_WITHOUT_GPU = (NO_CUDA_DRIVERS, CUINIT_CALL_FAILED, LIBRARIES_MISSING, GPU_NOT_COUNTED, GPU_TYPE_DISABLED)


def _ran_elsewhere(evidence: Evidence) -> Iterator[Match]:
    said = evidence.program.said(*_WITHOUT_GPU)
    if said and _listed(evidence):
        yield Match(evidence=(*said, *_listed_here(evidence)), sure=Sure.LIKELY)


# --- variables -------------------------------------------------------------------------------------------------------

_FALSE = ("0", "false", "no", "off")


def _growth_not_read(evidence: Evidence) -> Iterator[Match]:
    found = evidence.found("host.environment", "growth_value")
    said = evidence.program.first(GROWTH_NOT_PARSED)
    if found:
        value = evidence.facts.variables.get(_GROWTH, "")
    elif said:
        value = said["value"]
    else:
        return
    meant = "false" if value.strip().lower() in _FALSE else "true"
    yield Match(
        evidence=(f"{_GROWTH}={value!r}{'' if found else ' in the program'}", *([text(said.line)] if said else [])),
        figures={"value": value, "meant": meant},
        change={_GROWTH: meant} if found else None,
    )


_ALLOCATORS = ("cuda_malloc_async", "cuda_malloc", "memory_guard")


def _allocator_not_known(evidence: Evidence) -> Iterator[Match]:
    if not evidence.found("host.environment", "allocator_value"):
        return
    value = evidence.facts.variables.get(_ALLOCATOR, "")
    near = difflib.get_close_matches(value.strip().lower().replace("-", "_"), _ALLOCATORS, n=1)
    yield Match(
        evidence=(f"{_ALLOCATOR}={value!r}", f"known: {', '.join(_ALLOCATORS)}"),
        figures={
            "value": value,
            "correct": f"export {_ALLOCATOR}={near[0]}" if near else f"unset {_ALLOCATOR}",
        },
        change={_ALLOCATOR: near[0] if near else None},
    )


def _allocator_not_supported(evidence: Evidence) -> Iterator[Match]:
    said = evidence.unprovoked.said(NO_MEMORY_POOLS, most=1)
    if not said:
        return
    here = evidence.facts.variables.get(_ALLOCATOR)
    driver = evidence.facts.driver
    version = "" if isinstance(driver, Unknown) or not driver.cuda_version else f"CUDA up to {driver.cuda_version}"
    known = [f"{_ALLOCATOR}={here!r}"] if here else [f"{_ALLOCATOR} is not set here: the program sets it"]
    if version:
        known.append(f"driver: {version}; the allocator needs 11.2")
    yield Match(evidence=(*said, *known), change={_ALLOCATOR: None} if here else None)


def _reason_hidden(evidence: Evidence) -> Iterator[Match]:
    value = evidence.facts.variables.get(_LOG_LEVEL, "")
    if evidence.trace is None or evidence.trace.listed or not value.strip().isdecimal():
        return
    hidden = "IWE"[: int(value)]
    said = Log(f"{line.file}: {line.text}" for line in evidence.trace.lines if line.level in hidden)
    reasons = said.said(*_WITHOUT_GPU)
    if reasons:
        yield Match(
            evidence=(f"{_LOG_LEVEL}={value}", *(f"hidden: {line}" for line in reasons)),
            figures={"value": value},
        )


def _misspelt(evidence: Evidence) -> Iterator[Match]:
    for found in evidence.found("host.environment", "misspelt"):
        name, value = found.figures["name"], str(found.figures["value"])
        said = f"{name} is set" if value == WITHHELD else f"{name}={value!r}"
        yield Match(evidence=(said,), figures=found.figures)


# --- examples --------------------------------------------------------------------------------------------------------


def _log(*log: str, facts: Facts | None = None, listed: int | None = 1, said: tuple[Line, ...] = ()) -> Evidence:
    """Return a machine on which TensorFlow lists so many GPUs, and the log of a program."""
    rows = () if listed is None else (_trace_row(listed, said),)
    return Evidence(facts or example_with_gpus(1), rows=rows, lines=log)


def _trace_row(listed: int, said: tuple[Line, ...] = ()) -> Row:
    reading: dict[str, Any] = {
        "listed": listed,
        "raised": None,
        "opened": [],
        "unopened": {},
        "lines": [{"level": line.level, "file": line.file, "text": line.text} for line in said],
    }
    return Row(TRACE, (), Judged(), 0.0, reading)


def _found(kind: str, figures: dict[str, str] | None = None, **variables: str) -> Evidence:
    """Return a machine on whose environment host.environment made a finding."""
    finding = Finding(kind, Severity.WARNING, "", "", dict(figures or {}))
    return Evidence(
        example_with_gpus(1, environment=EnvironmentFacts(variables)),
        rows=(Row("host.environment", (), Judged((finding,) if kind else ()), 0.0),),
    )


_TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/home/someone/train.py", line 4, in <module>',
    "    tf.config.experimental.set_memory_growth(gpus[0], True)",
    '  File "/venv/site-packages/tensorflow/python/framework/config.py", line 766, in set_memory_growth',
    "    context.context().set_memory_growth(device, enable)",
)
_LATE = "RuntimeError: Physical devices cannot be modified after being initialized"
_GROWTH_AND_LIMIT = "ValueError: Cannot set memory growth on device when virtual devices configured"
_EMPTY = "IndexError: list index out of range"
_CUINIT = Line("E", "cuda_platform.cc", "failed call to cuInit: INTERNAL: CUDA error: no device")
_DLOPEN = Line("W", "gpu_device.cc", "Cannot dlopen some GPU libraries. Skipping registering GPU devices...")
_MIRRORED = "INFO:tensorflow:Using MirroredStrategy with devices ('/job:localhost/replica:0/task:0/device:%s:0',)"
_EXECUTED = "I0 1 7 execute.cc:7] Executing op MatMul in device /job:localhost/replica:0/task:0/device:%s:0"
_UNREAD = (
    "E0000 00:00:1.2 7 gpu_bfc_allocator.cc:53] The TF_FORCE_GPU_ALLOW_GROWTH environment variable is set but could "
    'not be parsed: "True". Valid values are "true" or "false". Using original config value of false.'
)
_ABORTED = (
    "F0000 00:00:1.2 7 gpu_cudamallocasync_allocator.cc:168] TF_GPU_ALLOCATOR=cuda_malloc_async isn't currently "
    "supported on GPU id 0: Possible causes: device not supported (request SM60+), driver too old"
)


def _aborted(*log: str, **variables: str) -> Evidence:
    row = Row("discovery.logical_devices", (), Broken(Cause.SIGNAL, "killed by SIGABRT"), 0.0, log=log)
    return Evidence(example_with_gpus(1, environment=EnvironmentFacts(variables)), rows=(row,))


def _provoked(*log: str) -> Evidence:
    return Evidence(example_with_gpus(1), rows=(Row("memory.allocator", (), Judged(), 0.0, log=log),))


def _level(value: str, *said: Line, listed: int = 0) -> Evidence:
    return _log(facts=example_with_gpus(1, environment=EnvironmentFacts({_LOG_LEVEL: value})), listed=listed, said=said)


RULES = (
    Rule(
        id="configured_too_late",
        stage=Stage.CONFIGURATION,
        cause="the program configures {what} after TensorFlow has made its devices",
        why="""
        Which GPUs are visible, memory growth, logical devices and the numbers of threads are read once, when
        TensorFlow makes its devices, and a later change raises RuntimeError. An operation or a tensor makes them, but
        so do tf.config.list_logical_devices, get_memory_info, `with tf.device`, Dataset.range, MirroredStrategy() and
        tf.test.is_gpu_available(); list_physical_devices and get_visible_devices do not. Often it is not the program
        itself but a module that it imports and that builds a model, or a cell of the notebook that ran before.
        """,
        fix=(
            "# put the line directly after import tensorflow, before other imports that build models",
            "# to find what comes first, move the next line up until it holds:",
            "from tensorflow.python.eager import context; assert context.context()._context_handle is None",
            "{instead}",
        ),
        url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
        find=_configured_too_late,
        needs_gpu=False,
        cases=(
            RuleCase("growth", _log(*_TRACEBACK, _LATE)),
            RuleCase("growth, as pytest prints it", _log(f">   {_TRACEBACK[2].strip()}", f"E   {_LATE}")),
            RuleCase("visible devices", _log(_LATE.replace("Physical", "Visible"))),
            RuleCase("logical devices", _log(_LATE.replace("Physical", "Virtual"))),
            RuleCase("threads", _log("RuntimeError: Intra op parallelism cannot be modified after initialization.")),
            RuleCase("the line came first", _log(*_TRACEBACK[1:3]), fires=False),
        ),
    ),
    Rule(
        id="settings_exclude_each_other",
        stage=Stage.CONFIGURATION,
        cause="the program sets both {one} and {other}, and TensorFlow takes one of them only",
        why="""
        Memory growth belongs to a whole GPU, logical devices divide it, and TensorFlow refuses the one after the
        other. In the other order, growth before the limits, it says nothing, and growth is off. The v1 options
        per_process_gpu_memory_fraction and virtual_devices exclude each other in the same way, and that is said only
        when the session is made on a machine with a GPU.
        """,
        fix=("{remove}", "{both}"),
        url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
        find=_exclusive_settings,
        needs_gpu=False,
        cases=(
            RuleCase("growth after a limit", _log(*_TRACEBACK, _GROWTH_AND_LIMIT)),
            RuleCase("fraction and virtual devices", _log(f"InvalidArgumentError: {list(_EXCLUSIVE)[1]}.")),
            RuleCase("growth too late", _log(*_TRACEBACK, _LATE), fires=False),
        ),
    ),
    Rule(
        id="element_of_no_gpus",
        stage=Stage.CONFIGURATION,
        cause="the program takes an element of a list of GPUs that is empty or shorter than it assumes",
        why="""
        tf.config.list_physical_devices('GPU') gives an empty list where TensorFlow can use no GPU; it raises nothing.
        `gpus[0]` then ends in IndexError, which says nothing about the reason. The reason is named before this cause,
        or TensorFlow's own lines above the traceback hint at it.
        """,
        fix=(
            "if not (gpus := tf.config.list_physical_devices('GPU')): "
            "raise SystemExit('TensorFlow lists no GPU; gpudiag check says why')",
        ),
        url="https://www.tensorflow.org/api_docs/python/tf/config/list_physical_devices",
        find=_element_of_no_gpus,
        needs_gpu=False,
        symptom=True,
        cases=(
            RuleCase("gpus[0]", _log(*_TRACEBACK[:3], _EMPTY, listed=0)),
            RuleCase("of the call itself", _log("    gpu = tf.config.list_physical_devices('GPU')[0]", _EMPTY)),
            RuleCase("without a GPU", _log(*_TRACEBACK[:3], _EMPTY, facts=example(), listed=0)),
            RuleCase("another list", _log(_TRACEBACK[0], "    x = rows[0]", _EMPTY, listed=0), fires=False),
            RuleCase("another error", _log(*_TRACEBACK, _LATE, listed=0), fires=False),
        ),
    ),
    Rule(
        id="cpu_instead_of_gpu",
        stage=Stage.CONFIGURATION,
        cause="the program asked for a GPU, got the CPU, and went on",
        why="""
        Soft placement is on in TensorFlow 2: an operation under tf.device('/GPU:0') runs on the CPU where there is no
        such GPU, and nothing is said. MirroredStrategy() without a GPU is one replica on the CPU. What users see is
        training that takes ten times as long. Why there was no GPU is another cause, named before this one where it
        was found.
        """,
        fix=(
            "assert tf.config.list_physical_devices('GPU'), 'TensorFlow lists no GPU'  # after import tensorflow",
            "tf.config.set_soft_device_placement(False)  # an operation that cannot run on the GPU raises",
            "gpudiag check --require-gpus 1  # before the program, as a step that fails without a GPU",
        ),
        url="https://www.tensorflow.org/guide/gpu#manual_device_placement",
        find=_cpu_instead,
        needs_gpu=False,
        symptom=True,
        cases=(
            RuleCase("strategy on the CPU", _log(_MIRRORED % "CPU", listed=0)),
            RuleCase("explicit device", _log("assigned to /device:GPU:0 but available devices are [ /device:CPU:0 ]")),
            RuleCase("products on the CPU", _log(_EXECUTED % "CPU")),
            RuleCase("strategy on the GPU", _log(_MIRRORED % "GPU"), fires=False),
            RuleCase(
                "products on both",
                _log(_EXECUTED % "CPU", _EXECUTED % "GPU"),
                fires=False,
            ),
            RuleCase(
                "too high an index",
                _log("assigned to /device:GPU:7 but available devices are [ /device:CPU:0, /device:GPU:0 ]"),
                fires=False,
            ),
        ),
    ),
    Rule(
        id="program_ran_elsewhere",
        stage=Stage.CONFIGURATION,
        cause="the program that wrote the log could not use a GPU; started from here, TensorFlow can",
        why="""
        A log is of the process that wrote it: of another container, virtual environment, job or service, with other
        variables, or of another day. A program can also hide the GPU from itself, with os.environ before its first
        use of TensorFlow.
        """,
        fix=(
            "# run gpudiag where and as the program runs, in its container, job or service, by its interpreter:",
            "python -m gpudiag check",
            "# look for os.environ['CUDA_VISIBLE_DEVICES'] and TF_ENABLED_DEVICE_TYPES in the program and its start",
        ),
        url="https://www.tensorflow.org/guide/gpu#setup",
        find=_ran_elsewhere,
        cases=(
            RuleCase("no device there", _log(f"E cuda_platform.cc:52] {_CUINIT.text}")),
            RuleCase("libraries missing there", _log(f"W gpu_device.cc:9] {_DLOPEN.text}")),
            RuleCase("no device here either", _log(f"E cuda_platform.cc:52] {_CUINIT.text}", listed=0), fires=False),
            RuleCase("not known here", _log(f"E cuda_platform.cc:52] {_CUINIT.text}", listed=None), fires=False),
            RuleCase("a GPU in both", _log("Created device /device:GPU:0 with 9000 MB memory"), fires=False),
        ),
    ),
    Rule(
        id="growth_not_read",
        stage=Stage.CONFIGURATION,
        cause="TF_FORCE_GPU_ALLOW_GROWTH={value!r} has no effect: TensorFlow reads only true and false, in lower case",
        why="""
        TensorFlow compares the value letter by letter. True, 1, yes and the empty value are ignored with one line of
        its log, and all memory of each GPU is taken as without the variable. Documents of other projects say True.
        """,
        fix=("export TF_FORCE_GPU_ALLOW_GROWTH={meant}",),
        url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
        find=_growth_not_read,
        cases=(
            RuleCase("True", _found("growth_value", TF_FORCE_GPU_ALLOW_GROWTH="True")),
            RuleCase("0", _found("growth_value", TF_FORCE_GPU_ALLOW_GROWTH="0")),
            RuleCase("in the program", _log(_UNREAD)),
            RuleCase("true", _found("", TF_FORCE_GPU_ALLOW_GROWTH="true"), fires=False),
        ),
    ),
    Rule(
        id="allocator_not_known",
        stage=Stage.CONFIGURATION,
        cause="TF_GPU_ALLOCATOR={value!r} has no effect: no allocator has that name",
        why="""
        TensorFlow compares the value letter by letter with cuda_malloc_async, cuda_malloc and memory_guard, and uses
        its own allocator for any other, without a line.
        """,
        fix=("{correct}",),
        url="https://www.tensorflow.org/guide/gpu_performance_analysis",
        find=_allocator_not_known,
        cases=(
            RuleCase("case", _found("allocator_value", TF_GPU_ALLOCATOR="cuda_malloc_Async")),
            RuleCase("a word", _found("allocator_value", TF_GPU_ALLOCATOR="best")),
            RuleCase("correct", _found("", TF_GPU_ALLOCATOR="cuda_malloc_async"), fires=False),
        ),
    ),
    Rule(
        id="allocator_not_supported",
        stage=Stage.CONTEXT,
        cause="TF_GPU_ALLOCATOR=cuda_malloc_async ends the process: this GPU, driver or system has no memory pools",
        why="""
        The allocator uses the memory pools of CUDA 11.2 and later. Where the GPU, the driver, a hypervisor (vGPU) or
        the operating system (WSL, containers with an old driver) does not support them, TensorFlow does not fall
        back: it writes a fatal line and aborts when it makes its devices.
        """,
        fix=("unset TF_GPU_ALLOCATOR", "# take os.environ['TF_GPU_ALLOCATOR'] out of the program, where it is there"),
        url="https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__MALLOC__ASYNC.html",
        find=_allocator_not_supported,
        cases=(
            RuleCase("in the check", _aborted(_ABORTED, TF_GPU_ALLOCATOR="cuda_malloc_async")),
            RuleCase("in the program", _log(_ABORTED)),
            RuleCase("provoked by a probe", _provoked(_ABORTED), fires=False),
            RuleCase("supported", _aborted("Using CUDA malloc Async allocator for GPU: 0"), fires=False),
        ),
    ),
    Rule(
        id="log_level_hides_reason",
        stage=Stage.CONFIGURATION,
        cause="TF_CPP_MIN_LOG_LEVEL={value} hides the lines in which TensorFlow says why it uses no GPU",
        why="""
        1 hides information, 2 warnings too (the one about libraries that cannot be opened), 3 errors too (that cuInit
        failed). The value is copied from tutorial to tutorial; the list of GPUs is then empty, and nothing is said.
        gpudiag's own probes run without it.
        """,
        fix=("unset TF_CPP_MIN_LOG_LEVEL", "export TF_CPP_VMODULE=dso_loader=1  # for the names of libraries"),
        url="https://www.tensorflow.org/guide/gpu#setup",
        find=_reason_hidden,
        cases=(
            RuleCase("3, cuInit failed", _level("3", _CUINIT)),
            RuleCase("2, libraries missing", _level("2", _DLOPEN)),
            RuleCase("2, cuInit failed", _level("2", _CUINIT), fires=False),
            RuleCase("0, cuInit failed", _level("0", _CUINIT), fires=False),
            RuleCase("3, nothing was said", _level("3"), fires=False),
            RuleCase("3, a GPU is listed", _level("3", _CUINIT, listed=1), fires=False),
        ),
    ),
    Rule(
        id="variable_misspelt",
        stage=Stage.CONFIGURATION,
        cause="nothing reads the variable {name}; {known} is meant, probably",
        why="""
        TensorFlow, the CUDA driver and NVIDIA's libraries ask for the variables that they know, and nobody looks at
        the rest: a misspelt name is not an error anywhere.
        """,
        fix=("{cure}", "unset {name}"),
        url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
        find=_misspelt,
        needs_gpu=False,
        cases=(
            RuleCase(
                "two letters",
                _found(
                    "misspelt",
                    {
                        "name": "CUDA_VISIBLE_DEVCIES",
                        "value": "0",
                        "known": "CUDA_VISIBLE_DEVICES",
                        "cure": "export CUDA_VISIBLE_DEVICES=0",
                    },
                ),
            ),
            RuleCase("known", _found("", CUDA_VISIBLE_DEVICES="0"), fires=False),
        ),
    ),
)
