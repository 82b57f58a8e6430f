"""Several models put on GPUs by name fit as planned, and none of them takes memory of a GPU that is another's.

What it does
    Plans one model of 64 MiB more than there are GPUs, in turn: the first GPU gets two. Each GPU has a memory limit
    that holds its models and 32 MiB more. A model is its variables and a matrix product, all put on a GPU by name. NVML
    tells after each model which GPU's memory rose; when all are loaded, the result of each is checked, and the PCI bus
    id of the GPU that computed it. At most eight GPUs are used.
Why it matters
    Ensembles, and servers of models, are planned by hand: so many on this GPU, so many on that. One variable on the
    wrong GPU, where all memory is planned for, ends the program weeks later.
What a failure means
    `did_not_fit`: a model could not be loaded or computed within the limit planned for it.
    `elsewhere`: loading a model raised the memory of another GPU, or not that of its own.
    `over_plan`: a GPU gave more memory than was planned for its models.
    `gpu_not_seen`, `other_gpu`, `wrong_result`: TensorFlow does not use the GPUs that it was given, or not correctly.
What to do
    Make and call a model under `with tf.device("/GPU:1"):`, and `tf.config.set_soft_device_placement(False)` so that a
    mistake is an error. Plan weights, gradients, optimizer slots and activations, and 20 % more.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import created_devices, short_device
from gpudiag.probe import Case, Context, Judgement, Kind, Needs, Raised, Scope
from gpudiag.probes.common import (
    GPU_NOT_SEEN,
    MATRIX,
    MIB,
    OTHER_GPU,
    SLACK_BYTES,
    WRONG_RESULT,
    Kernel,
    is_square,
    judge_kernel,
    refuse_disturbance,
    taken,
    without_allocation_retry,
)
from gpudiag.record import Record

MODEL_BYTES = 64 * MIB
SPARE_BYTES = 32 * MIB
NOISE_BYTES = 16 * MIB
"""What may change on a GPU while a model is loaded on another; the kernels were loaded before."""
MOST_GPUS = 8

PROBE = probe.Probe(
    needs=Needs(gpus=1, free_bytes=2 * MODEL_BYTES + SPARE_BYTES),
    scope=Scope.ALL_GPUS,
    exclusive=True,
    # Growth, so that each model shows by NVML: forced, because only so logical devices have it. Other allocators know
    # no limit.
    env={"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_GPU_ALLOCATOR": None, "TF_PER_DEVICE_MEMORY_LIMIT_MB": None},
)

DID_NOT_FIT = Kind(
    "did_not_fit",
    Severity.FAIL,
    "model {number} of {model_mib:.0f} MiB could not be used on {device}, planned with {limit_mib:.0f} MiB: {error}",
    "Look in nvidia-smi for what else fills this GPU, and plan fewer models on it.",
)
ELSEWHERE = Kind(
    "elsewhere",
    Severity.FAIL,
    "model {number} of {model_mib:.0f} MiB on {device} raised the memory of {pci_bus_id} by {rose_mib:.0f} MiB and "
    "that of {other} by {other_mib:.0f} MiB",
    "Look where it went: run nvidia-smi while the program runs, and choose GPUs by UUID in CUDA_VISIBLE_DEVICES.",
)
OVER_PLAN = Kind(
    "over_plan",
    Severity.FAIL,
    "the models on {pci_bus_id} took {taken_mib:.0f} MiB, planned were {limit_mib:.0f} MiB",
    "Do not rely on limits here; give each model a process and a GPU of its own: export CUDA_VISIBLE_DEVICES=GPU-...",
)


class Model(Record):
    """One model, loaded and computed."""

    device: str
    """Where it was put, such as ``GPU:0``."""
    rose: dict[str, int]
    """By how many bytes the memory of each GPU (PCI bus id) rose when it was loaded."""
    failed: Raised | None = None
    """What loading or computing it raised."""
    kernel: Kernel | None = None
    """Its result once all were loaded; None where that failed."""


class Reading(probe.Reading):
    """Where the models went."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given, in the order of ``CUDA_VISIBLE_DEVICES``."""
    seen: int
    """GPUs that TensorFlow lists."""
    models: tuple[Model, ...] = ()
    """In the order of loading; empty where TensorFlow lists too few GPUs."""

    def figure(self) -> str:
        if not self.models:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        gpus = len(_plan(self.given)) - 1
        return f"{len(self.models)} models of {MODEL_BYTES / MIB:.0f} MiB on {gpus} GPU{'s' if gpus > 1 else ''}"


def _plan(given: tuple[str, ...]) -> tuple[int, ...]:
    """Return the number of the GPU that each model is planned on."""
    gpus = min(len(given), MOST_GPUS)
    return tuple(model % gpus for model in range(gpus + 1))


def _limit(plan: tuple[int, ...], number: int) -> int:
    return plan.count(number) * MODEL_BYTES + SPARE_BYTES


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    without_allocation_retry(ctx)
    physical = tf.config.list_physical_devices("GPU")
    if len(physical) < len(given):
        return Reading(given, len(physical))
    plan = _plan(given)
    gpus = ctx.gpus[: len(plan) - 1]
    tf.config.set_visible_devices(physical[: len(gpus)], "GPU")
    for number, device in enumerate(physical[: len(gpus)]):
        limit = tf.config.LogicalDeviceConfiguration(memory_limit=_limit(plan, number) // MIB)
        tf.config.set_logical_device_configuration(device, [limit])
    tf.config.set_soft_device_placement(False)
    with ctx.placements() as log:
        tf.config.list_logical_devices("GPU")
    for number in range(len(gpus)):
        with tf.device(f"GPU:{number}"):
            warm: list[Any] = []  # CUDA loads kernels at first use
            _load(tf, 1, MIB, warm)
            _answer(tf, 1, warm, [])
    loaded = []
    for model, number in enumerate(plan, start=1):
        weights: list[Any] = []
        before = [ctx.memory(gpu) for gpu in gpus]
        with tf.device(f"GPU:{number}"):
            failed = ctx.attempt(partial(_load, tf, model, MODEL_BYTES, weights))
        after = [ctx.memory(gpu) for gpu in gpus]
        for earlier, later in zip(before, after, strict=True):
            refuse_disturbance(earlier, later)
        loaded.append((failed, dict(zip(given, map(taken, before, after), strict=False)), weights))
    bus_ids = created_devices(log.lines)
    models = []
    for model, (number, (unloaded, rose, weights)) in enumerate(zip(plan, loaded, strict=True), start=1):
        device = f"GPU:{number}"
        answers: list[tuple[str, bool]] = []
        with tf.device(device):
            failed = unloaded or ctx.attempt(partial(_answer, tf, model, weights, answers))
        kernels = [Kernel(ran_on, bus_ids.get(ran_on, ""), correct) for ran_on, correct in answers]
        models.append(Model(device, rose, failed, kernels[0] if kernels else None))
    return Reading(given, len(physical), tuple(models))


def _load(tf: Any, model: int, size: int, weights: list[Any]) -> None:
    """Add the variables of a ``model`` to ``weights``: one that is multiplied with, and one that only has its size."""
    weights.append(tf.Variable(float(model) * tf.constant(MATRIX)))
    # Not filled: on a simulated GPU, whose memory is the host's, that would take most of this probe's time.
    weights.append(tf.Variable(tf.raw_ops.Empty(shape=[size // 4], dtype=tf.float32)))


def _answer(tf: Any, model: int, weights: list[Any], answers: list[tuple[str, bool]]) -> None:
    """Add to ``answers`` the device that multiplied with ``weights``, and whether it did so correctly."""
    product = tf.matmul(tf.constant(MATRIX), weights[0])
    answers.append((short_device(product.device), is_square(product, factor=float(model))))


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    if reading.seen < len(reading.given):
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    plan, model_mib = _plan(reading.given), MODEL_BYTES / MIB
    for number, (model, planned) in enumerate(zip(reading.models, plan, strict=True), start=1):
        pci_bus_id = reading.given[planned]
        if model.failed or model.kernel is None:
            yield DID_NOT_FIT.found(
                number=number,
                model_mib=model_mib,
                device=model.device,
                limit_mib=_limit(plan, planned) / MIB,
                error=model.failed.brief if model.failed else "no result",
            )
            continue
        rose = model.rose[pci_bus_id]
        others = {bus_id: risen for bus_id, risen in model.rose.items() if bus_id != pci_bus_id}
        other = max(others, key=lambda bus_id: others[bus_id], default="")
        if rose < MODEL_BYTES - NOISE_BYTES or others.get(other, 0) > NOISE_BYTES:
            yield ELSEWHERE.found(
                number=number,
                model_mib=model_mib,
                device=model.device,
                pci_bus_id=pci_bus_id,
                rose_mib=rose / MIB,
                other=other or "no other GPU",
                other_mib=others.get(other, 0) / MIB,
            )
        yield from judge_kernel(model.kernel, pci_bus_id)
    for planned in sorted(set(plan)):
        pci_bus_id = reading.given[planned]
        total = sum(model.rose[pci_bus_id] for model in reading.models)
        if total > _limit(plan, planned) + SLACK_BYTES:
            yield OVER_PLAN.found(pci_bus_id=pci_bus_id, taken_mib=total / MIB, limit_mib=_limit(plan, planned) / MIB)


_FIRST, _SECOND = "0000:3b:00.0", "0000:af:00.0"
_OOM = Raised("ResourceExhaustedError", "OOM when allocating tensor with shape[16777216] and type float")


def _model(
    number: int,
    first_mib: int,
    second_mib: int,
    *,
    failed: Raised | None = None,
    pci_bus_id: str = "",
    correct: bool = True,
) -> Model:
    kernel = Kernel(f"GPU:{number}", pci_bus_id or (_FIRST, _SECOND)[number], correct)
    return Model(
        f"GPU:{number}", {_FIRST: first_mib * MIB, _SECOND: second_mib * MIB}, failed, None if failed else kernel
    )


def _case(
    name: str,
    *expect: str,
    second: Model = _model(1, 0, 64),  # noqa: B008  # immutable
    third: Model = _model(0, 94, 0),  # noqa: B008  # immutable
    verified: tuple[str, ...] = (_FIRST, _SECOND),
) -> Case:
    return Case(name, expect, Reading((_FIRST, _SECOND), 2, (_model(0, 64, 0), second, third)), verified=verified)


CASES = (
    _case("as planned"),
    Case("one GPU", (), Reading((_FIRST,), 1, (_model(0, 64, 0), _model(0, 94, 0))), verified=(_FIRST,)),
    _case("on the other GPU", ELSEWHERE.name, second=_model(1, 64, 0)),
    _case("on both GPUs", ELSEWHERE.name, second=_model(1, 64, 64)),
    _case("not there", ELSEWHERE.name, second=_model(1, 0, 0)),
    _case("did not fit", DID_NOT_FIT.name, third=_model(0, 0, 0, failed=_OOM)),
    _case("more than planned", OVER_PLAN.name, third=_model(0, 900, 0)),
    _case("another GPU", OTHER_GPU.name, second=_model(1, 0, 64, pci_bus_id=_FIRST), verified=(_FIRST,)),
    _case("a wrong product", WRONG_RESULT.name, second=_model(1, 0, 64, correct=False), verified=(_FIRST,)),
    Case("TensorFlow without GPU", (GPU_NOT_SEEN.name,), Reading((_FIRST,), 0)),
)
