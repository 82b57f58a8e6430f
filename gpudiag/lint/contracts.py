"""Tables of the values that TensorFlow's API and the environment accept, with their types and units.

A contract judges one value and yields a :class:`Breach` for each part of it that is not accepted. Adding an argument,
a field of ConfigProto or a variable is a line in one of the tables at the end.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gpudiag.fix import Action, edit, edit_note
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.knowledge.variables import ACCEPTED, CLUSTER, SETTINGS
from gpudiag.lint.settings import GROWTH_FOR_EACH
from gpudiag.lint.values import Const, Items, Made, Table, Value, constants, devices
from gpudiag.model.report import Severity
from gpudiag.text import counted


@dataclass(frozen=True)
class Breach:
    """A value, or a part of one, that is not accepted."""

    why: str
    """What is accepted, and the effect of this value."""
    fix: tuple[Action, ...]
    literal: object = None
    """The constant in the program's text that is wrong, if it is one."""
    right: str = ""
    """The text that ``--fix`` writes in place of the literal."""
    severity: Severity | None = None
    """The severity of the breach; None: that of the rule."""
    cause: str = ""
    shown: str = ""
    """The value as the message shows it, if it differs from the value."""


Contract = Callable[[Value], Iterator[Breach]]


def _written(right: str | None, otherwise: str = "remove it, or write one that is read") -> tuple[Action, ...]:
    return (edit(repr(right), "write this value instead"),) if right else (edit_note(otherwise),)


def _one_of(words: tuple[str, ...], happens: str, fix: tuple[Action, ...] = (), **breach: Any) -> Contract:
    """Return the contract of a text that must be one of a few words; the last is "" if the empty text is accepted."""

    def judge(value: Value) -> Iterator[Breach]:
        text = value.value if isinstance(value, Const) else None
        if isinstance(text, str) and text not in words:
            near = _near(text, words)
            known = " and ".join(filter(None, words))
            yield Breach(f"only {known} are accepted; {happens}", fix or _written(near), text, near, **breach)

    return judge


def _keys(words: frozenset[str], happens: str, near: Callable[[str], str | None] | None = None) -> Contract:
    """Return the contract of a dictionary with known keys; ``near`` returns the key that a wrong one means."""

    def judge(value: Value) -> Iterator[Breach]:
        pairs = value.pairs if isinstance(value, Table) else []
        for key in (key.value for key, _ in pairs if isinstance(key, Const)):
            if isinstance(key, str) and key not in words:
                right = near(key) if near else _near(key, tuple(sorted(words)))
                if right or near is None:
                    why = f"{happens}{f', {right} is meant' if right else ''}"
                    yield Breach(why, _written(right, "remove it"), key, right or "", shown=f"the key {key!r}")

    return judge


def _near(text: str, words: tuple[str, ...]) -> str:
    """Return the accepted word that is most similar to a misspelled one, or ""."""
    found = difflib.get_close_matches(text.lower(), words, n=1, cutoff=0.75)
    return found[0] if found else ""


_MOST_MIB = 1_000_000
"""About 1 TiB in MiB, more than any GPU has."""
_NO_NUMBER = 1e18
"""The number above which a value is not a size of memory in any unit."""
_LEAST_MIB = 32
"""The fewest MiB with which a program can train or serve anything."""


def _mebibytes(value: Value) -> Iterator[Breach]:
    """Judge a memory limit in MiB; common mistakes are bytes, GiB and fractions."""
    for number in constants(value):
        try:
            limit = float(number) if isinstance(number, int | float | str) and not isinstance(number, bool) else 0
        except (ValueError, OverflowError):
            continue
        if not limit < _NO_NUMBER:
            continue
        shown = f"{limit:.0f}" if limit >= _MOST_MIB else f"{limit:g}"
        if limit >= _MOST_MIB:
            why = f"the unit is MiB, so this is {limit / (1 << 20):.0f} TiB, more than any GPU has, and limits nothing"
            mib = edit(str(max(int(limit) >> 20, 1)), "the same number of bytes in MiB")
            yield Breach(why, (mib,), cause="more_than_the_limit", shown=shown)
        elif 0 < limit <= 1:
            why = "the unit is MiB, not a part of the GPU's memory, and the first operation fails"
            yield Breach(why, (edit_note("write a number of MiB, such as 4096"),), shown=shown)
        elif 0 < limit <= _LEAST_MIB:
            why = "the unit is MiB, not GiB: the first large tensor is out of memory"
            yield Breach(why, (edit(f"{limit:g} * 1024", "the same number of GiB in MiB"),), shown=shown)
        if limit >= _MOST_MIB:
            return


def _fraction(value: Value) -> Iterator[Breach]:
    number = value.value if isinstance(value, Const) else 0
    if isinstance(number, int | float) and number >= 2:
        right = number / 100 if number <= 100 else 0.9
        why = f"it is a fraction, not a percentage: {number} times the GPU's memory is managed memory, which is slow"
        yield Breach(why, (edit(f"{right:g}", "write a fraction from 0 to 1"),))


def _limit_given(value: Value) -> Iterator[Breach]:
    """Judge the logical devices of a GPU: each needs a limit."""
    for part in value.items if isinstance(value, Items) else [value]:
        if isinstance(part, Made) and part.api == api.LOGICAL_DEVICE:
            limit = part.argument(0, "memory_limit")
            if limit is None or (isinstance(limit, Const) and limit.value is None):
                why = "a logical device of a GPU needs memory_limit: without it TensorFlow raises ValueError"
                code = edit("tf.config.LogicalDeviceConfiguration(memory_limit=4096)", "give a limit in MiB")
                yield Breach(why, (code,), severity=Severity.FAIL, shown="LogicalDeviceConfiguration()")
                return


_JOBS = ("chief", "worker", "ps", "evaluator", "master")
_PARTS = ("cluster", "task", "environment", "rpc_layer")


def _cluster(value: Value) -> Iterator[Breach]:
    """Judge TF_CONFIG: JSON with the keys ``cluster`` and ``task``, and the names of jobs."""
    if isinstance(value, Made) and value.name == "json.dumps" and value.args:
        config = _plain(value.args[0])
    elif isinstance(value, Const) and isinstance(value.value, str) and value.value:
        try:
            config = json.loads(value.value)
        except ValueError:
            why = "it is not JSON, so TensorFlow raises JSONDecodeError"
            code = edit(f"os.environ['{CLUSTER}'] = json.dumps({{{{'cluster': cluster, 'task': task}}}})")
            yield Breach(why, (code,), severity=Severity.FAIL, shown=f"the text of {CLUSTER}")
            return
    else:
        return
    if not isinstance(config, dict) or None in config:
        return
    for key in config:
        right = _near(str(key), _PARTS)
        if key not in _PARTS and right and right not in config:
            happens = "the strategy is of one worker" if right == "cluster" else "a strategy of several workers raises"
            why = f"the key is {right!r}; {key!r} is ignored, and {happens}"
            yield Breach(why, _written(right), key, right, shown=f"the key {key!r} of {CLUSTER}")
    cluster, task = config.get("cluster"), config.get("task")
    if not isinstance(cluster, dict) or None in cluster or not isinstance(task, dict):
        return
    for job in cluster:
        right = _near(str(job), _JOBS)
        if job not in _JOBS and right and right not in cluster:
            why = f"the job is called {right!r}: MultiWorkerMirroredStrategy raises ValueError for {job!r}"
            yield Breach(why, _written(right), job, right, shown=f"the job {job!r} of {CLUSTER}")
            return
    kind, index = task.get("type"), task.get("index")
    if isinstance(kind, str) and kind not in cluster and kind != "evaluator":
        yield Breach(
            f"the cluster has no such job: it has {', '.join(map(str, cluster))}",
            _written(_near(kind, tuple(map(str, cluster))), "name a job of the cluster"),
            kind,
            shown=f"the task type {kind!r} of {CLUSTER}",
        )
    hosts = cluster.get(kind)
    if isinstance(hosts, list) and isinstance(index, int) and index >= len(hosts):
        shown = f"the task index {index} of {CLUSTER}"
        why = f"{counted(len(hosts), 'task')} of {kind}, numbered from 0: the strategy raises ValueError"
        yield Breach(why, (edit_note(f"write an index from 0 to {len(hosts) - 1}"),), index, shown=shown)


def _plain(value: Value) -> Any:
    """Return a value as a Python object, with None for unknown parts."""
    if isinstance(value, Table):
        return {_plain(key): _plain(inner) for key, inner in value.pairs}
    if isinstance(value, Items):
        return [_plain(item) for item in value.items]
    return value.value if isinstance(value, Const) and not value.assumed else None


def _variable(name: str) -> Contract:
    """Return the contract of a variable that must be one of a few words."""
    accepted = ACCEPTED[name]
    cause = "growth_not_read" if name == "TF_FORCE_GPU_ALLOW_GROWTH" else ""

    def judge(value: Value) -> Iterator[Breach]:
        text = value.value if isinstance(value, Const) else None
        if isinstance(text, str) and not accepted.reads(text):
            right = accepted.meant_by(text)
            yield Breach(f"{accepted.read}; {accepted.otherwise}", _written(right), text, right or "", cause=cause)

    return judge


def _text(value: Value) -> Iterator[Breach]:
    """Judge the value assigned to an environment variable, which must be a text."""
    if isinstance(value, Const) and not isinstance(value.value, str | bytes) and not value.assumed:
        given = value.value
        right = str(given).lower() if isinstance(given, bool) else str(given)
        fix = (
            _written(right)
            if given is not None
            else (edit_note("delete the variable with os.environ.pop(name, None)"),)
        )
        why = "variables are texts, and os.environ raises TypeError"
        yield Breach(why, fix, given, "" if given is None else right, severity=Severity.FAIL)


_GRAPPLER = """
    layout_optimizer constant_folding shape_optimization remapping arithmetic_optimization dependency_optimization
    loop_optimization function_optimization debug_stripper disable_model_pruning scoped_allocator_optimization
    pin_to_host_optimization implementation_selector auto_mixed_precision use_plugin_optimizers disable_meta_optimizer
    auto_mixed_precision_onednn_bfloat16 auto_mixed_precision_mkl min_graph_nodes
"""
"""The options that tensorflow/python/eager/context.py of 2.21 reads."""


def _one_gpu(value: Value) -> Iterator[Breach]:
    """Judge what set_memory_growth is given: one physical GPU."""
    device = devices(value)
    given = f"the text {value.value!r}" if isinstance(value, Const) else ""
    if device and not device.one:
        given = "a list"
    elif device and device.listing.api == "config.list_logical_devices":
        given = "a logical device"
    elif device and device.kind == "CPU":
        given = "the CPU"
    elif device and device.kind is None and device.all:
        given = EVERY_DEVICE
    if given:
        why = "it takes one physical GPU, and raises ValueError"
        yield Breach(why, (GROWTH_FOR_EACH,), severity=Severity.FAIL, shown=f"{given}, given to set_memory_growth,")


EVERY_DEVICE = "every device, first of all the CPU"


def _policy(value: Value) -> Iterator[Breach]:
    """Judge the name of a policy for training."""
    if isinstance(value, Const) and value.value == "float16":
        fix = edit("tf.keras.mixed_precision.set_global_policy('mixed_float16')", "the weights stay float32")
        yield Breach("the weights are float16, too, and small updates are lost", (fix,), "float16", "mixed_float16")


ARGUMENTS: dict[str, tuple[int, str, Contract]] = {
    "keras.mixed_precision.set_global_policy": (0, "policy", _policy),
    api.GROWTH: (0, "device", _one_gpu),
    "config.optimizer.set_experimental_options": (
        0,
        "options",
        _keys(frozenset(_GRAPPLER.split()), "TensorFlow looks for the names that it knows and ignores the others"),
    ),
    "config.optimizer.set_jit": (
        0,
        "enabled",
        _one_of(("autoclustering", ""), "XLA stays off"),
    ),
    api.LOGICAL_DEVICE: (0, "memory_limit", _mebibytes),
    api.LOGICAL: (1, "logical_devices", _limit_given),
}
"""For each function, the contract of an argument, by position and name."""

FIELDS: dict[str, Contract] = {
    "allocator_type": _one_of(
        ("BFC", ""),
        "the first session on a GPU raises InternalError",
        (edit("os.environ['TF_GPU_ALLOCATOR'] = 'cuda_malloc_async'", "set it before import tensorflow"),),
        severity=Severity.FAIL,
    ),
    "per_process_gpu_memory_fraction": _fraction,
    "device_count": _keys(
        api.DEVICE_COUNT_KEYS,
        "TensorFlow compares the keys letter by letter with CPU and GPU and ignores the others",
        api.device_type,
    ),
    "memory_limit_mb": _mebibytes,
}
"""Contracts of the fields of ConfigProto and of the messages in it."""

VARIABLES: dict[str, tuple[Contract, ...]] = {
    **dict.fromkeys(SETTINGS, (_text,)),
    **{name: (_text, _variable(name)) for name in ACCEPTED},
    "TF_PER_DEVICE_MEMORY_LIMIT_MB": (_text, _mebibytes),
    CLUSTER: (_text, _cluster),
}
