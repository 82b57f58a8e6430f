"""`visible_device_list` maps GPUs to TensorFlow's device numbers in the order of the list.

What it does
    Opens a `tf.compat.v1.Session` whose list names the visible GPUs in reverse, so that the last becomes `GPU:0`. On
    each device it computes a matrix product and fills a tensor of 64 MiB. Which GPU is behind a device is taken from
    two sources: the PCI bus id in TensorFlow's `Created device` line, and the GPU whose memory rose by NVML.
Why it matters
    The list is how a program picks GPUs, and in which order, from within. A list that is ignored puts two programs on
    one GPU, and nothing tells them.
What a failure means
    `other_gpu`: TensorFlow says that a device is another GPU than the list asked for.
    `memory_elsewhere`: the tensor of a device took memory of another GPU, or of none.
    `one_gpu`: with a single GPU the order cannot be shown; that `GPU:0` is this GPU was verified.
    `gpu_not_seen`, `wrong_result`: TensorFlow does not use the GPUs that it was given, or not correctly.
What to do
    Set the list in the first session of the process. In TensorFlow 2 `tf.config.set_visible_devices` hides GPUs and
    does not reorder them; to reorder, `export CUDA_VISIBLE_DEVICES=1,0` before the start.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag import probe
from gpudiag.hostfacts import Facts
from gpudiag.model import Limits, Severity
from gpudiag.placement import created_devices, short_device
from gpudiag.probe import Case, Context, Judgement, Kind, Needs, Scope
from gpudiag.probes.common import (
    FILLED_BYTES,
    GPU_NOT_SEEN,
    MATRIX,
    MEMORY_ELSEWHERE,
    MIB,
    OTHER_GPU,
    WRONG_RESULT,
    Kernel,
    Work,
    is_square,
    judge_work,
    refuse_disturbance,
    taken,
)

PROBE = probe.Probe(
    needs=Needs(gpus=1, free_bytes=256 * MIB),
    scope=Scope.ALL_GPUS,
    exclusive=True,
    # The list is under test. Without growth the session would take nearly all memory of every GPU, and other allocators
    # give memory back before it can be measured.
    env={"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_GPU_ALLOCATOR": None},
)

ONE_GPU = Kind(
    "one_gpu",
    Severity.NOTE,
    "with one GPU the order of visible_device_list cannot be shown; GPU:0 is {pci_bus_id}",
    "{how}",
)


class Reading(probe.Reading):
    """Which GPU stood behind each device."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given, in the order of ``CUDA_VISIBLE_DEVICES``."""
    seen: int
    """GPUs that TensorFlow lists."""
    visible_device_list: str
    """What the session was asked for."""
    devices: tuple[Work, ...]
    """In the order of TensorFlow's numbers; empty where TensorFlow lists too few GPUs."""

    def figure(self) -> str:
        if not self.devices:
            return f"TensorFlow lists {self.seen} of {len(self.given)} GPUs"
        first = self.devices[0].kernel
        return f"{self.visible_device_list!r}: {first.device} is {first.pci_bus_id}"


def measure(ctx: Context) -> Reading:
    tf, v1 = ctx.tf, ctx.tf.compat.v1
    given = tuple(gpu.pci_bus_id for gpu in ctx.gpus)
    visible_device_list = ",".join(str(index) for index in reversed(range(len(given))))
    seen = len(tf.config.list_physical_devices("GPU"))
    if seen < len(given):
        return Reading(given, seen, visible_device_list, ())
    devices = []
    options = v1.GPUOptions(visible_device_list=visible_device_list)
    with tf.Graph().as_default():
        matrix, elements = v1.placeholder(tf.float32, [2, 2]), v1.placeholder(tf.int32, [1])
        with ctx.placements() as log:
            session = v1.Session(config=v1.ConfigProto(gpu_options=options))
        created = created_devices(log.lines)
        with session:
            for index in range(len(given)):
                with tf.device(f"/GPU:{index}"):
                    product = tf.matmul(matrix, matrix)
                    large = tf.fill(elements, 1.0)[0]
                device = short_device(product.device)
                correct = is_square(session.run(product, {matrix: MATRIX}))
                before = [ctx.memory(gpu) for gpu in ctx.gpus]
                session.run(large, {elements: [FILLED_BYTES // 4]})  # freed by now; TensorFlow's pool keeps the memory
                after = [ctx.memory(gpu) for gpu in ctx.gpus]
                for earlier, later in zip(before, after, strict=True):
                    refuse_disturbance(earlier, later)
                rose = dict(zip(given, map(taken, before, after), strict=True))
                devices.append(Work(Kernel(device, created.get(device, ""), correct), rose))
    return Reading(given, seen, visible_device_list, tuple(devices))


def judge(reading: Reading, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    if reading.seen < len(reading.given):
        yield GPU_NOT_SEEN.found(seen=reading.seen, given=len(reading.given))
        return
    if len(reading.given) == 1:
        whole = [device.uuid for device in facts.nvml_devices if not device.mig_uuids]
        both = f"Run it with two GPUs in scope: export CUDA_VISIBLE_DEVICES={','.join(whole[:2])}"
        how = both if len(whole) > 1 else "Nothing to mend: only a second GPU, not in MIG mode, can show it."
        yield ONE_GPU.found(pci_bus_id=reading.given[0], how=how)
    for device, expected in zip(reading.devices, reversed(reading.given), strict=True):
        yield from judge_work(device, expected)


_FIRST, _SECOND = "0000:3b:00.0", "0000:af:00.0"


def _device(number: int, pci_bus_id: str, rose_on: str = "", *, correct: bool = True) -> Work:
    rose = {bus_id: 64 * MIB if bus_id == (rose_on or pci_bus_id) else 0 for bus_id in (_FIRST, _SECOND)}
    return Work(Kernel(f"GPU:{number}", pci_bus_id, correct), rose)


def _case(name: str, *expect: str, devices: tuple[Work, ...], verified: tuple[str, ...]) -> Case:
    return Case(name, expect, Reading((_FIRST, _SECOND), 2, "1,0", devices), verified=verified)


CASES = (
    _case("reversed", devices=(_device(0, _SECOND), _device(1, _FIRST)), verified=(_SECOND, _FIRST)),
    _case(
        "the list was ignored",
        OTHER_GPU.name,
        OTHER_GPU.name,
        devices=(_device(0, _FIRST), _device(1, _SECOND)),
        verified=(),
    ),
    _case(
        "TensorFlow says one GPU and uses another",
        MEMORY_ELSEWHERE.name,
        devices=(_device(0, _SECOND, _FIRST), _device(1, _FIRST)),
        verified=(_FIRST,),
    ),
    _case(
        "a wrong product",
        WRONG_RESULT.name,
        devices=(_device(0, _SECOND, correct=False), _device(1, _FIRST)),
        verified=(_FIRST,),
    ),
    Case(
        "one GPU",
        (ONE_GPU.name,),
        Reading((_FIRST,), 1, "0", (Work(Kernel("GPU:0", _FIRST, True), {_FIRST: 64 * MIB}),)),
        verified=(_FIRST,),
    ),
    Case("TensorFlow lists one of two", (GPU_NOT_SEEN.name,), Reading((_FIRST, _SECOND), 1, "1,0", ())),
)
