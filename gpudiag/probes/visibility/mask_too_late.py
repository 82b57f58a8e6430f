"""`CUDA_VISIBLE_DEVICES` can be set until the first device query, also after the import, and has no effect later.

What it does
    In one process it sets `os.environ['CUDA_VISIBLE_DEVICES']` after `import tensorflow` and before anything has asked
    for devices; in another after `tf.config.list_physical_devices('GPU')`. The value names the last GPU alone, or with
    one GPU none (`-1`). It compares what TensorFlow lists and, by PCI bus id and memory, which GPU does the work.
Why it matters
    The driver reads the variable once, when it is initialised. Set too late it changes nothing and nothing says so: the
    program goes on with every GPU, and takes memory on those that it was not meant to use.
What a failure means
    `early_ignored`: set before the first query it has no effect; something had initialised CUDA by then.
    `late_obeyed`: set after the first query it took effect.
    `gpu_not_seen`, `other_gpu`, `memory_elsewhere`, `wrong_result`: TensorFlow does not use the GPUs that it was given.
What to do
    Set it before the program starts: `CUDA_VISIBLE_DEVICES=1 python train.py`. In Python, set it in the first lines,
    before `import tensorflow`. Once devices have been listed, only `tf.config.set_visible_devices(gpus[1], 'GPU')`
    helps, and only until the first one is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import created_devices
from gpudiag.probe import Case, Context, Judgement, Kind, Needs, Scope
from gpudiag.probes.common import (
    GPU_NOT_SEEN,
    MEMORY_ELSEWHERE,
    MIB,
    OTHER_GPU,
    WRONG_RESULT,
    Kernel,
    Work,
    judge_work,
    work,
)
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=Needs(gpus=1),
    scope=Scope.ALL_GPUS,
    exclusive=True,
    # Without growth the first tensor would take nearly all memory, and other allocators give memory back before it can
    # be measured.
    env={"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_GPU_ALLOCATOR": None},
)

EARLY_IGNORED = Kind(
    "early_ignored",
    Severity.FAIL,
    "set after the import and before the first device query, CUDA_VISIBLE_DEVICES shows {shown}, it names {expected}",
    "Set it before the program starts: CUDA_VISIBLE_DEVICES=1 python train.py. Something initialises CUDA during the "
    "import; look into sitecustomize.py and *.pth files.",
)
LATE_OBEYED = Kind(
    "late_obeyed",
    Severity.WARNING,
    "set after the first device query, CUDA_VISIBLE_DEVICES took effect: {effect}",
    "Do not rely on it: set the variable before `import tensorflow`.",
)


class Early(Record):
    """What a process saw that set the variable in time."""

    listed: int
    """GPUs in ``tf.config.list_physical_devices('GPU')``."""
    pci_bus_ids: tuple[str, ...]
    """Of the GPUs that the CUDA driver shows."""


class Late(Record):
    """What a process saw that set the variable after it had listed the GPUs."""

    before: int
    """GPUs that were listed before."""
    after: int
    """And after."""
    done: Work | None
    """On ``GPU:0``; None where TensorFlow lists too few GPUs."""


class Reading(probe.Reading):
    """In time, and too late."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given, in the order of ``CUDA_VISIBLE_DEVICES``."""
    early: Early
    late: Late

    def figure(self) -> str:
        if self.late.done is None:
            return f"TensorFlow lists {self.late.before} of {len(self.given)} GPUs"
        return f"{self.early.listed} GPU(s) if set in time, {self.late.after} too late"


def measure(ctx: Context) -> Reading:
    value = ctx.gpus[-1].uuid if len(ctx.gpus) > 1 else "-1"
    early = ctx.apart(partial(_early, ctx, value), Early, {})
    return Reading(tuple(gpu.pci_bus_id for gpu in ctx.gpus), early, _late(ctx, value))


def _early(ctx: Context, value: str) -> Early:
    config = ctx.tf.config
    os.environ["CUDA_VISIBLE_DEVICES"] = value
    listed = len(config.list_physical_devices("GPU"))
    return Early(listed, tuple(device.pci_bus_id for device in ctx.cuda_devices()))


def _late(ctx: Context, value: str) -> Late:
    config = ctx.tf.config
    before = len(config.list_physical_devices("GPU"))
    os.environ["CUDA_VISIBLE_DEVICES"] = value
    after = len(config.list_physical_devices("GPU"))
    if min(before, after) < len(ctx.gpus):
        return Late(before, after, None)
    config.set_soft_device_placement(False)
    with ctx.placements() as log:
        config.list_logical_devices("GPU")
    return Late(before, after, work(ctx, "/GPU:0", created_devices(log.lines)))


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    given, early, late = reading.given, reading.early, reading.late
    if late.before < len(given):
        yield GPU_NOT_SEEN.found(seen=late.before, given=len(given))
        return
    chosen = given[-1:] if len(given) > 1 else ()
    if early.pci_bus_ids != chosen or early.listed != len(chosen):
        shown = ", ".join(early.pci_bus_ids) or f"{early.listed} GPUs"
        yield EARLY_IGNORED.found(shown=shown, expected=", ".join(chosen) or "none")
    if late.done is None:
        yield LATE_OBEYED.found(effect=f"TensorFlow lists {late.after} of {len(given)} GPUs")
    elif (late.done.kernel.pci_bus_id,) == chosen:
        yield LATE_OBEYED.found(effect=f"GPU:0 is {late.done.kernel.pci_bus_id}")
    else:
        yield from judge_work(late.done, given[0])


_FIRST, _SECOND = "0000:3b:00.0", "0000:af:00.0"


def _work(pci_bus_id: str = _FIRST, *, on: str = _FIRST, correct: bool = True) -> Work:
    rose = {bus_id: 64 * MIB if bus_id == on else 0 for bus_id in (_FIRST, _SECOND)}
    return Work(Kernel("GPU:0", pci_bus_id, correct), rose)


def _case(
    name: str,
    *expect: str,
    early: tuple[str, ...] = (_SECOND,),
    after: int = 2,
    done: Work | None = _work(),  # noqa: B008  # immutable
    verified: tuple[str, ...] = (),
) -> Case:
    reading = Reading((_FIRST, _SECOND), Early(len(early), early), Late(2, after, done))
    return Case(name, expect, reading, verified=verified)


CASES = (
    _case("in time and too late", verified=(_FIRST,)),
    Case(
        "one GPU, hidden in time",
        (),
        Reading((_FIRST,), Early(0, ()), Late(1, 1, Work(Kernel("GPU:0", _FIRST, True), {_FIRST: 64 * MIB}))),
        verified=(_FIRST,),
    ),
    _case("in time without effect", EARLY_IGNORED.name, early=(_FIRST, _SECOND), verified=(_FIRST,)),
    _case("another GPU in time", EARLY_IGNORED.name, early=(_FIRST,), verified=(_FIRST,)),
    _case("listed anew", LATE_OBEYED.name, after=1, done=None),
    _case("computed elsewhere", LATE_OBEYED.name, done=_work(_SECOND, on=_SECOND)),
    _case("memory elsewhere", MEMORY_ELSEWHERE.name, done=_work(on=_SECOND)),
    _case("another GPU", OTHER_GPU.name, done=_work("")),
    _case("a wrong product", WRONG_RESULT.name, done=_work(correct=False)),
    Case("one of two", (GPU_NOT_SEEN.name,), Reading((_FIRST, _SECOND), Early(1, (_SECOND,)), Late(1, 1, None))),
)
