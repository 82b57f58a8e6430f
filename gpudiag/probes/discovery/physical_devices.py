"""TensorFlow lists every GPU that NVML reports, and if it does not, its log says why.

What it does
    Calls `tf.config.list_physical_devices('GPU')` and compares the number of GPUs with those that NVML reports and
    `CUDA_VISIBLE_DEVICES` lets through. It reads from TensorFlow's log which library could not be opened, in the
    loader's own words, and what the CUDA driver answered. Then it joins, by PCI bus id and UUID and never by number,
    what NVML, the CUDA driver and TensorFlow call each GPU; TensorFlow's names are those of devices that it creates for
    this in a separate process.
Why it matters
    A list that is empty is all that a program sees of a missing library or a failing driver: TensorFlow goes on, on the
    CPU. The name of the library is in its log only with `TF_CPP_VMODULE=dso_loader=1`. NVML, CUDA and TensorFlow count
    separately: no number says which GPU of `nvidia-smi` is TensorFlow's `GPU:0`.
What to do
    Fix the cause at the top of the report; if none is named: `gpudiag explain discovery.trace`. Choose
    GPUs by UUID, as `nvidia-smi -L` prints them: `export CUDA_VISIBLE_DEVICES=GPU-...`.
"""

from __future__ import annotations

import signal
from functools import partial

from gpudiag import fix, probe
from gpudiag.knowledge import log_lines
from gpudiag.model.facts import Facts
from gpudiag.probe import SEE_THE_CAUSE, Context, Findings, Raised, fail
from gpudiag.probes.common import CUDNN_NEEDED, attempt_context, cudnn_serves, is_partitioned
from gpudiag.record import Record

PROBE = probe.Probe(needs=probe.Needs(gpus=1), scope=probe.Scope.ALL_GPUS, quick=True)


class Fault(probe.Faults):
    fewer_listed = fail(
        "TensorFlow lists {listed} of {given} GPUs; its log says: {text}",
        means="TensorFlow lists fewer GPUs than the probe was given; a line of its log says why.",
        do=SEE_THE_CAUSE,
    )
    listing_raised = fail(
        "tf.config.list_physical_devices('GPU') raised {raised}",
        means="tf.config.list_physical_devices('GPU') raised an error.",
        do=(fix.nvidia_smi("look for a GPU that is lost or failing"), probe.KERNEL_LOG),
    )
    cudnn_too_old = fail(
        "cuDNN {found} is loaded, TensorFlow needs {needed} or a later 9: convolutions and recurrent layers will fail",
        means="The loaded cuDNN is older than TensorFlow needs: convolutions and recurrent layers will fail.",
        do=fix.install("nvidia-cudnn-cu12>={needed},<10", note="and take an older cuDNN out of LD_LIBRARY_PATH"),
    )
    numbered_otherwise = fail(
        "GPU {index} ({pci_bus_id}) is number {found} to {who}, its place in CUDA_VISIBLE_DEVICES is {place}",
        means="A GPU has another number than its place in CUDA_VISIBLE_DEVICES.",
        do="Identify devices by PCI bus id, not by number: TensorFlow logs it in `Created device ... pci bus id`.",
    )
    uuid_differs = fail(
        "GPU {index} ({pci_bus_id}) is {nvml} to NVML and {cuda} to CUDA",
        means="NVML and CUDA report different UUIDs for one PCI bus id.",
        do=fix.note(
            "the driver's libraries do not belong together: reinstall the driver, or reboot after its update",
            kind=fix.Kind.REBOOT,
        ),
    )


_OPTIONAL = ("libnccl", "libcupti")
"""Libraries that TensorFlow opens only at their first use; without them GPUs are listed and work (measured, 2.21)."""

NAMING_S = 40
"""Time limit for asking TensorFlow for its names. A busy GPU can make it hang, which must not cost the whole reading.
"""


class JoinedDevice(Record):
    """The names of one GPU in NVML, CUDA and TensorFlow, joined by its PCI bus id."""

    index: int
    """NVML's number, as ``nvidia-smi`` prints it."""
    name: str
    pci_bus_id: str
    uuid: str
    """The UUID, according to NVML."""
    cuda_ordinal: int | None
    """The number in the CUDA driver, in this process; None if the driver does not show the GPU."""
    cuda_uuid: str
    """The UUID according to the CUDA driver, without the prefix ``GPU-`` or ``MIG-``; empty if it does not show the
    GPU."""
    tensorflow: str
    """The name in TensorFlow, such as ``GPU:0``; empty if TensorFlow does not tell it."""


class TensorFlowNames(Record):
    """TensorFlow's names of the GPUs, by PCI bus id."""

    by_pci_bus_id: dict[str, str]


class Reading(probe.Reading):
    """The GPUs that TensorFlow lists, and its log about them."""

    given: int
    """GPUs that NVML reports and this process may see."""
    listed: int
    """GPUs in ``tf.config.list_physical_devices('GPU')``."""
    raised: Raised | None
    unopened: dict[str, str]
    """Libraries that TensorFlow tried to open and could not, each with the loader's message."""
    errors: tuple[str, ...]
    """Error lines of TensorFlow's log, without their prefix."""
    cudnn: str | None = None
    """Version of the cuDNN that was loaded; None if there is none."""
    devices: tuple[JoinedDevice, ...] = ()
    """The given GPUs, in the order of ``CUDA_VISIBLE_DEVICES``."""
    unnamed: Raised | None = None
    """The error that asking TensorFlow for its names raised; ``discovery.logical_devices`` judges it."""

    def figure(self) -> str:
        return f"TensorFlow lists {self.listed} of {self.given}"

    def table(self) -> tuple[tuple[str, ...], ...]:
        if not self.devices:
            return ()
        rows = (
            (str(device.index), _or_dash(device.cuda_ordinal), device.tensorflow or "-", device.pci_bus_id, device.uuid)
            for device in self.devices
        )
        return (("NVML", "CUDA", "TF", "PCI bus id", "UUID"), *rows)


def _bare(uuid: str) -> str:
    return uuid.removeprefix("GPU-").removeprefix("MIG-").lower()


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)


def measure(ctx: Context) -> Reading:
    names: dict[str, str] = {}
    # Apart, because creating devices can crash or hang if listing them does not.
    unnamed = attempt_context(
        ctx, lambda: names.update(ctx.apart(partial(_names, ctx), TensorFlowNames, {}).by_pci_bus_id)
    )
    listed: list[object] = []
    with ctx.placements() as printed:
        raised = ctx.attempt(lambda: listed.extend(ctx.tf.config.list_physical_devices("GPU")))
    return Reading(
        given=len(ctx.gpus),
        listed=len(listed),
        raised=raised,
        unopened=log_lines.unopened(printed.lines),
        errors=tuple(line.text for line in log_lines.parse(printed.lines) if line.level == "E"),
        cudnn=ctx.cudnn_version(),
        devices=_joined(ctx, names),
        unnamed=unnamed,
    )


def _names(ctx: Context) -> TensorFlowNames:
    if hasattr(signal, "alarm"):
        signal.alarm(NAMING_S)
    return TensorFlowNames({pci_bus_id: name for name, pci_bus_id in ctx.pci_bus_ids().items()})


def _joined(ctx: Context, names: dict[str, str]) -> tuple[JoinedDevice, ...]:
    shown = {device.pci_bus_id: (ordinal, device.uuid) for ordinal, device in enumerate(ctx.cuda_devices())}
    devices = []
    for gpu in ctx.gpus:
        ordinal, uuid = shown.get(gpu.pci_bus_id, (None, ""))
        name = names.get(gpu.pci_bus_id, "")
        devices.append(JoinedDevice(gpu.index, gpu.name, gpu.pci_bus_id, gpu.uuid, ordinal, uuid, name))
    return tuple(devices)


def judge(reading: Reading, facts: Facts) -> Findings:
    if reading.raised is not None:
        yield Fault.listing_raised.found(raised=reading.raised.brief)
        return
    if reading.listed >= reading.given:
        if reading.cudnn is not None and not cudnn_serves(reading.cudnn):
            yield Fault.cudnn_too_old.found(found=reading.cudnn, needed=CUDNN_NEEDED)
        for place, device in enumerate(reading.devices):
            whole = not is_partitioned(facts, device.pci_bus_id)
            yield from _judge_names(place, device, named=reading.unnamed is None, whole=whole)
        return
    unopened = [
        f"{name} cannot be opened: {reason.removeprefix(f'{name}: ')}"
        for name, reason in reading.unopened.items()
        if not name.startswith(_OPTIONAL)
    ]
    said = "; ".join(dict.fromkeys((*unopened, *reading.errors))) or "nothing"
    yield Fault.fewer_listed.found(listed=reading.listed, given=reading.given, text=said)


def _judge_names(place: int, device: JoinedDevice, *, named: bool, whole: bool) -> Findings:
    figures: dict[str, int | str] = {"index": device.index, "pci_bus_id": device.pci_bus_id}
    if device.cuda_ordinal != place:
        found = "none" if device.cuda_ordinal is None else str(device.cuda_ordinal)
        yield Fault.numbered_otherwise.found(**figures, who="CUDA", found=found, place=place)
    # Of both without the prefix: a masked report gives the driver's UUID one.
    elif whole and _bare(device.cuda_uuid) != _bare(device.uuid):  # of a MIG instance CUDA gives its own UUID
        yield Fault.uuid_differs.found(**figures, nvml=device.uuid, cuda=device.cuda_uuid or "(not named)")
    if named and device.tensorflow != f"GPU:{place}":
        found = device.tensorflow.removeprefix("GPU:") or "none"
        yield Fault.numbered_otherwise.found(**figures, who="TensorFlow", found=found, place=place)
