"""`CUDA_VISIBLE_DEVICES` shows TensorFlow the GPUs that its value names, whatever form the value has.

What it does
    Sets the variable, in a separate process for each value, to one index, to several in reverse, to UUIDs in reverse,
    to `-1`, to nothing, and to a list with an index that does not exist. Each time it lets TensorFlow list its GPUs and
    asks the CUDA driver for their PCI bus ids. Indices are read in PCI order (`CUDA_DEVICE_ORDER=PCI_BUS_ID`).
Why it matters
    The variable decides which GPUs a program can see at all, and in which order, and nothing is reported when it is
    misread: the list ends in silence at the first entry that is not valid, and `-1` and nothing hide every GPU.
What to do
    `export CUDA_VISIBLE_DEVICES=GPU-...,GPU-...` with UUIDs as `nvidia-smi -L` prints them: no order changes those. To
    use no GPU: `export CUDA_VISIBLE_DEVICES=-1`. To use all: `unset CUDA_VISIBLE_DEVICES`.
"""

from __future__ import annotations

from functools import partial

from gpudiag import fix, probe
from gpudiag.probe import Context, Findings, fail, warn
from gpudiag.record import Record

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1),
    scope=probe.Scope.ALL_GPUS,
    # NVML's indices are CUDA's in this order alone; whether it is in force is judged by discovery.device_order.
    env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
)


class Fault(probe.GpuFaults):
    wrong_gpus = fail(
        "CUDA_VISIBLE_DEVICES='{value}' shows {shown}, it names {expected}",
        means="CUDA_VISIBLE_DEVICES shows other GPUs than it names.",
        do=fix.export(
            "CUDA_VISIBLE_DEVICES", "GPU-...", "choose GPUs by UUID, which no order changes; nvidia-smi -L lists them"
        ),
    )
    not_hidden = fail(
        "CUDA_VISIBLE_DEVICES='{value}' should hide every GPU and shows {shown}",
        means="CUDA_VISIBLE_DEVICES should hide every GPU and shows some.",
        do=fix.edit("tf.config.set_visible_devices([], 'GPU')", "hide them in the program"),
    )
    list_not_cut = warn(
        "CUDA_VISIBLE_DEVICES='{value}' has an invalid entry, and the entries after it still count: it shows {shown}",
        means="CUDA_VISIBLE_DEVICES has an invalid entry, and the entries after it still count.",
        do="List only GPUs that exist; other drivers end the list at the first invalid entry.",
    )
    tensorflow_differs = fail(
        "GPUs under CUDA_VISIBLE_DEVICES='{value}': TensorFlow lists {listed}, the CUDA driver shows {shown}",
        means="Under one CUDA_VISIBLE_DEVICES TensorFlow lists other GPUs than the CUDA driver shows.",
        do="See TensorFlow's log: it leaves out GPUs with few multiprocessors (TF_MIN_GPU_MULTIPROCESSOR_COUNT).",
    )


class VisibleGpus(Record):
    """The GPUs that a process can see."""

    listed: int
    """GPUs in ``tf.config.list_physical_devices('GPU')``."""
    pci_bus_ids: tuple[str, ...]
    """PCI bus ids of the GPUs that the CUDA driver shows, in the order of its numbers."""


class MaskValue(Record):
    """One value of the variable, and the GPUs that it showed."""

    value: str
    expected: tuple[str, ...]
    """PCI bus ids of the GPUs that the value names, in its order."""
    shown: VisibleGpus


class Reading(probe.Reading):
    """The GPUs that each value showed."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given, in the order of ``CUDA_VISIBLE_DEVICES``."""
    values: dict[str, MaskValue]
    """The values, by form: ``UUIDs``, ``one index``, ``indices`` (if there are two GPUs), ``-1``, ``empty``,
    ``invalid``."""

    def figure(self) -> str:
        obeyed = sum(value.shown.pci_bus_ids == value.expected for value in self.values.values())
        return f"{obeyed} of {len(self.values)} values obeyed"


def measure(ctx: Context) -> Reading:
    values = {
        form: MaskValue(value, expected, ctx.apart(partial(_look, ctx), VisibleGpus, {"CUDA_VISIBLE_DEVICES": value}))
        for form, (value, expected) in _forms(ctx).items()
    }
    return Reading(ctx.given, values)


def _forms(ctx: Context) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return a value for each form with the PCI bus ids of the GPUs it names; only given GPUs are named."""
    index, back = str(ctx.gpus[0].index), ctx.gpus[::-1]
    first, everything = ctx.given[:1], ctx.given[::-1]
    rest = "".join(f",{gpu.index}" for gpu in ctx.gpus[1:])
    forms: dict[str, tuple[str, tuple[str, ...]]] = {
        "UUIDs": (",".join(gpu.uuid for gpu in back), everything),
        "one index": (index, first),
        "indices": (",".join(str(gpu.index) for gpu in back), everything),
        "-1": ("-1", ()),
        "empty": ("", ()),
        "invalid": (f"{index},999{rest}", first),  # no machine has so many
    }
    return forms if len(ctx.gpus) > 1 else {form: forms[form] for form in forms if form != "indices"}


def _look(ctx: Context) -> VisibleGpus:
    listed = len(ctx.tf.config.list_physical_devices("GPU"))
    return VisibleGpus(listed, tuple(device.pci_bus_id for device in ctx.cuda_devices()))


def judge(reading: Reading) -> Findings:
    named = reading.values["UUIDs"].shown
    if min(named.listed, len(named.pci_bus_ids)) < len(reading.given):
        yield Fault.gpu_not_seen.found(seen=named.listed, given=len(reading.given))
        return
    for form, value in reading.values.items():
        shown = ", ".join(value.shown.pci_bus_ids) or "none"
        if value.shown.pci_bus_ids == value.expected:
            if value.shown.listed != len(value.expected):
                yield Fault.tensorflow_differs.found(value=value.value, listed=value.shown.listed, shown=shown)
        elif not value.expected:
            yield Fault.not_hidden.found(value=value.value, shown=shown)
        elif form == "invalid" and value.shown.pci_bus_ids[: len(value.expected)] == value.expected:
            yield Fault.list_not_cut.found(value=value.value, shown=shown)
        else:
            yield Fault.wrong_gpus.found(value=value.value, shown=shown, expected=", ".join(value.expected))
