"""Several models put on GPUs by name fit as planned, and none of them takes memory of another GPU.

What it does
    Plans one model of 64 MiB more than there are GPUs, in turn: the first GPU gets two. Each GPU has a memory limit
    that holds its models and 32 MiB more. A model is its variables and a matrix product, all put on a GPU by name. NVML
    reports after each model which GPU's memory rose; when all are loaded, the result of each is checked, and the PCI
    bus id of the GPU that computed it. At most eight GPUs are used.
Why it matters
    Ensembles, and servers of models, are planned by hand: so many on this GPU, so many on that. One variable on the
    wrong GPU, where all memory is planned for, ends the program weeks later.
What to do
    Make and call a model under `with tf.device("/GPU:1"):`, and `tf.config.set_soft_device_placement(False)` so that a
    mistake is an error. Plan weights, gradients, optimizer slots and activations, and 20 % more.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from gpudiag import fix, probe
from gpudiag.knowledge.variables import FORCE_GROWTH
from gpudiag.probe import MIB, SLACK_BYTES, Context, Findings, Kernel, Raised, fail, mib
from gpudiag.probes.common import MATRIX, create_devices, rises, without_allocation_retry
from gpudiag.record import Record

MODEL_BYTES = 64 * MIB
SPARE_BYTES = 32 * MIB
NOISE_BYTES = 16 * MIB
"""The change of a GPU's memory that is ignored while a model is loaded on another GPU; kernels were loaded before."""
MOST_GPUS = 8

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1, free_bytes=2 * MODEL_BYTES + SPARE_BYTES),
    scope=probe.Scope.ALL_GPUS,
    sampled=True,
    exclusive=True,
    # Growth, so that each model shows by NVML: forced, because only so logical devices have it.
    env={FORCE_GROWTH: "true"},
)


class Fault(probe.KernelFaults):
    did_not_fit = fail(
        "model {number} of {model_bytes} could not be used on {device}, planned with {limit_bytes}: {error}",
        means="A model could not be used on the GPU that it was planned for.",
        do=fix.nvidia_smi("look for what else fills this GPU, and plan fewer models on it"),
    )
    elsewhere = fail(
        "model {number} of {model_bytes} on {device} raised the memory of {pci_bus_id} by {rose_bytes} and "
        "that of {other} by {other_bytes}",
        means="Loading a model raised the memory of another GPU, or not that of its GPU.",
        do=(
            fix.nvidia_smi("run it beside the program, to see where the memory went"),
            fix.note("choose GPUs by UUID in CUDA_VISIBLE_DEVICES", kind=fix.Kind.SET_VARIABLE),
        ),
    )
    over_plan = fail(
        "the models on {pci_bus_id} took {taken_bytes}, planned were {limit_bytes}",
        means="The models on a GPU took more memory than planned.",
        do=fix.export(
            "CUDA_VISIBLE_DEVICES", "GPU-..", "do not rely on limits here; give each model its own process and GPU"
        ),
    )


class Model(Record):
    """A model that was loaded and computed."""

    device: str
    """The model's device, such as ``GPU:0``."""
    rose: dict[str, int]
    """The increase of memory in bytes on each GPU (PCI bus id) when the model was loaded."""
    failed: Raised | None = None
    """The error of loading or computing the model."""
    kernel: Kernel | None = None
    """The model's result once all models were loaded; None if it failed."""


class Reading(probe.GpuReading):
    """The devices and memory of all models."""

    models: tuple[Model, ...]
    """The models in the order of loading."""

    def figure(self) -> str:
        gpus = len(_plan(self.given)) - 1
        return f"{len(self.models)} models of {mib(MODEL_BYTES)} on {gpus} GPU{'s' if gpus > 1 else ''}"


def _plan(given: tuple[str, ...]) -> tuple[int, ...]:
    """Return the number of the GPU that each model is planned on."""
    gpus = min(len(given), MOST_GPUS)
    return tuple(model % gpus for model in range(gpus + 1))


def _limit(plan: tuple[int, ...], number: int) -> int:
    return plan.count(number) * MODEL_BYTES + SPARE_BYTES


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    without_allocation_retry(ctx)
    physical = ctx.list_gpus()
    plan = _plan(ctx.given)
    gpus = ctx.gpus[: len(plan) - 1]
    tf.config.set_visible_devices(physical[: len(gpus)], "GPU")
    for number, device in enumerate(physical[: len(gpus)]):
        limit = tf.config.LogicalDeviceConfiguration(memory_limit=_limit(plan, number) // MIB)
        tf.config.set_logical_device_configuration(device, [limit])
    tf.config.set_soft_device_placement(False)
    created = create_devices(ctx)
    for number in range(len(gpus)):
        with tf.device(f"GPU:{number}"):
            warm: list[Any] = []  # CUDA loads kernels at first use
            _load(ctx, 1, MIB, warm, [])
            _answer(ctx, 1, warm, created, [])
    loaded = []
    for model, number in enumerate(plan, start=1):
        weights: list[Any] = []
        refused: list[Raised | None] = []
        with tf.device(f"GPU:{number}"):
            rose = rises(ctx, partial(_load, ctx, model, MODEL_BYTES, weights, refused), gpus)
        loaded.append((refused[0], rose, weights))
    models = []
    for model, (number, (unloaded, rose, weights)) in enumerate(zip(plan, loaded, strict=True), start=1):
        device = f"GPU:{number}"
        answers: list[Kernel] = []
        with tf.device(device):
            failed = unloaded or ctx.attempt(partial(_answer, ctx, model, weights, created, answers))
        models.append(Model(device, rose, failed, answers[0] if answers else None))
    return Reading(tuple(models))


def _load(ctx: Context, model: int, size: int, weights: list[Any], refused: list[Raised | None]) -> None:
    """Add the variables of a ``model`` to ``weights``: one to multiply with, and one that only fills memory."""
    tf = ctx.tf

    def load() -> None:
        weights.append(tf.Variable(float(model) * tf.constant(MATRIX)))
        # Not filled: on a simulated GPU, whose memory is the host's, that would take most of this probe's time.
        weights.append(tf.Variable(tf.raw_ops.Empty(shape=[size // 4], dtype=tf.float32)))

    refused.append(ctx.attempt(load))


def _answer(ctx: Context, model: int, weights: list[Any], bus_ids: dict[str, str], answers: list[Kernel]) -> None:
    """Multiply with ``weights``, and add the product to ``answers``."""
    product = ctx.tf.matmul(ctx.tf.constant(MATRIX), weights[0])
    answers.append(ctx.verify(product, bus_ids, factor=float(model)))


def judge(reading: Reading) -> Findings:
    plan = _plan(reading.given)
    for number, (model, planned) in enumerate(zip(reading.models, plan, strict=True), start=1):
        pci_bus_id = reading.given[planned]
        if model.failed or model.kernel is None:
            yield Fault.did_not_fit.found(
                number=number,
                model_bytes=MODEL_BYTES,
                device=model.device,
                limit_bytes=_limit(plan, planned),
                error=model.failed.brief if model.failed else "no result",
            )
            continue
        rose = model.rose[pci_bus_id]
        others = {bus_id: risen for bus_id, risen in model.rose.items() if bus_id != pci_bus_id}
        other = max(others, key=lambda bus_id: others[bus_id], default="")
        if rose < MODEL_BYTES - NOISE_BYTES or others.get(other, 0) > NOISE_BYTES:
            yield Fault.elsewhere.found(
                number=number,
                model_bytes=MODEL_BYTES,
                device=model.device,
                pci_bus_id=pci_bus_id,
                rose_bytes=rose,
                other=other or "no other GPU",
                other_bytes=others.get(other, 0),
            )
        yield from model.kernel.verified_on(pci_bus_id)
    for planned in sorted(set(plan)):
        pci_bus_id = reading.given[planned]
        total = sum(model.rose[pci_bus_id] for model in reading.models)
        if total > _limit(plan, planned) + SLACK_BYTES:
            yield Fault.over_plan.found(pci_bus_id=pci_bus_id, taken_bytes=total, limit_bytes=_limit(plan, planned))
