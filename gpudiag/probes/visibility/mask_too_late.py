"""`CUDA_VISIBLE_DEVICES` can be set until the first device query, also after the import, and has no effect later.

What it does
    In one process it sets `os.environ['CUDA_VISIBLE_DEVICES']` after `import tensorflow` and before anything has asked
    for devices; in another after `tf.config.list_physical_devices('GPU')`. The value names the last GPU alone, or with
    one GPU none (`-1`). It compares what TensorFlow lists and, by PCI bus id and memory, which GPU does the work.
Why it matters
    The driver reads the variable once, when it is initialised. Set too late it changes nothing and nothing says so: the
    program goes on with every GPU, and takes memory on those that it was not meant to use.
What to do
    Set it before the program starts: `CUDA_VISIBLE_DEVICES=1 python train.py`. In Python, set it in the first lines,
    before `import tensorflow`. Once devices have been listed, only `tf.config.set_visible_devices(gpus[1], 'GPU')`
    helps, and only until the first one is used.
"""

from __future__ import annotations

import os
from functools import partial

from gpudiag import fix, probe
from gpudiag.knowledge.variables import FORCE_GROWTH
from gpudiag.probe import Context, Findings, Work, fail, warn
from gpudiag.probes.common import create_devices, work
from gpudiag.record import Record
from gpudiag.text import counted

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1),
    scope=probe.Scope.ALL_GPUS,
    exclusive=True,
    # Without growth the first tensor would take nearly all memory.
    env={FORCE_GROWTH: "true"},
)


class Fault(probe.WorkFaults):
    early_ignored = fail(
        "set after the import and before the first device query, CUDA_VISIBLE_DEVICES shows {shown}, "
        "it names {expected}",
        means="Set after the import and before the first device query, CUDA_VISIBLE_DEVICES has no effect.",
        do=(
            fix.run(
                "CUDA_VISIBLE_DEVICES=1 python train.py",
                "sets it before the program starts",
                kind=fix.Kind.SET_VARIABLE,
            ),
            fix.note("look into sitecustomize.py and *.pth files: something initialises CUDA during the import"),
        ),
    )
    late_obeyed = warn(
        "set after the first device query, CUDA_VISIBLE_DEVICES took effect: {effect}",
        means="Set after the first device query, CUDA_VISIBLE_DEVICES took effect.",
        do="Do not rely on it: set the variable before `import tensorflow`.",
    )


class Early(Record):
    """The GPUs that a process saw which set the variable in time."""

    listed: int
    """GPUs in ``tf.config.list_physical_devices('GPU')``."""
    pci_bus_ids: tuple[str, ...]
    """PCI bus ids of the GPUs that the CUDA driver shows."""


class Late(Record):
    """The GPUs that a process saw which set the variable after it had listed them."""

    before: int
    """How many GPUs were listed before the mask was changed."""
    after: int
    """How many GPUs were listed after the mask was changed."""
    done: Work | None
    """The work on ``GPU:0``; None if fewer GPUs were listed after the change."""


class Reading(probe.GpuReading):
    """The GPUs that TensorFlow listed with a mask set in time, and with one set too late."""

    early: Early
    late: Late

    def figure(self) -> str:
        return f"{counted(self.early.listed, 'GPU')} if set in time, {self.late.after} too late"


def measure(ctx: Context) -> Reading:
    value = ctx.gpus[-1].uuid if len(ctx.gpus) > 1 else "-1"
    early = ctx.apart(partial(_early, ctx, value), Early, {})
    return Reading(early, _late(ctx, value))


def _early(ctx: Context, value: str) -> Early:
    config = ctx.tf.config
    os.environ["CUDA_VISIBLE_DEVICES"] = value
    listed = len(config.list_physical_devices("GPU"))
    return Early(listed, tuple(device.pci_bus_id for device in ctx.cuda_devices()))


def _late(ctx: Context, value: str) -> Late:
    config = ctx.tf.config
    before = len(ctx.list_gpus())
    os.environ["CUDA_VISIBLE_DEVICES"] = value
    after = len(config.list_physical_devices("GPU"))
    if after < before:
        return Late(before, after, None)
    config.set_soft_device_placement(False)
    return Late(before, after, work(ctx, "/GPU:0", create_devices(ctx)))


def judge(reading: Reading) -> Findings:
    given, early, late = reading.given, reading.early, reading.late
    chosen = given[-1:] if len(given) > 1 else ()
    if early.pci_bus_ids != chosen or early.listed != len(chosen):
        shown = ", ".join(early.pci_bus_ids) or f"{early.listed} GPUs"
        yield Fault.early_ignored.found(shown=shown, expected=", ".join(chosen) or "none")
    if late.done is None:
        yield Fault.late_obeyed.found(effect=f"TensorFlow lists {late.after} of {len(given)} GPUs")
    elif (late.done.kernel.pci_bus_id,) == chosen:
        yield Fault.late_obeyed.found(effect=f"GPU:0 is {late.done.kernel.pci_bus_id}")
    else:
        yield from late.done.verified_on(given[0])
