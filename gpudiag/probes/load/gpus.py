"""Under load for as long as you say, every GPU computes right, and none is slower than its twins.

What it does
    Loads each GPU alone, one after the other, then all at once, for the time of `--for`: products in float32, TF32,
    float16 and bfloat16, convolutions, patterns in nearly all free memory that are written, moved and read back, and
    copies from and to pinned memory of the host. Every result is compared on the GPU, bit by bit, with the first one,
    and that with the CPU. It measures the rates of each GPU in slices of about half a second, and compares GPUs of one
    model with each other and the end of the time with its beginning. A tenth of the free memory stays free, and three
    tenths where a display is on. On simulated GPUs the rates say nothing of a real GPU.
Why it matters
    A GPU that computes right for a tenth of a second can be throttled for heat, sit in a narrow slot, flip bits when
    it is warm, or fall off the bus after a minute. Training on many GPUs is as fast as the slowest one.
What to do
    Look at the finding's figures, then at `nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER,ECC` under the same load, and
    at `sudo dmesg | grep -i -e nvrm -e xid`. `gpudiag check --level stress --for 10m` shows what a minute does not.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

from gpudiag import fix, probe
from gpudiag.model.facts import Facts, NvmlDevice
from gpudiag.model.health import GpuHealth, HealthSample
from gpudiag.model.report import SIMULATED, Finding, Gap
from gpudiag.probe import (
    MIB,
    SEE_THE_CAUSE,
    Beside,
    Context,
    Findings,
    LoadReading,
    Slice,
    Verified,
    fail,
    mib,
    note,
    warn,
)
from gpudiag.probes.comparison import BFLOAT16, HALF, SINGLE, TF32, announce
from gpudiag.probes.under_load import (
    COPIES,
    FLOOR,
    Deficit,
    Rate,
    Work,
    anew,
    behind,
    blur,
    by_work,
    slowing,
    spend,
    typical,
)
from gpudiag.text import counted

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1, free_bytes=512 * MIB), scope=probe.Scope.EACH_GPU, exclusive=True, stress=0.8
)


_LOOK = (
    fix.nvidia_smi("clocks, temperature and power under load, and why clocks are lowered", "-q -d PERFORMANCE"),
    probe.KERNEL_LOG,
)


class Fault(probe.GpuFaults):
    wrong = fail(
        "{work}: {wrong} in {results} results; the first {where}",
        means="The GPU computed, stored or copied something wrong, without an error.",
        do=probe.trust_no("result of this GPU"),
    )
    slower = warn(
        "{percent} % slower than {others}",
        means="The GPU is slower than others of its model, by more than healthy ones differ.",
        do=_LOOK,
    )
    much_slower = fail(
        "{percent} % slower than {others}",
        means="The GPU is much slower than others of its model.",
        do=_LOOK,
    )
    slow_work = warn(
        "{work}: {percent} % slower than {others}",
        means="One kind of work is much slower on the GPU than on others of its model.",
        do=_LOOK,
    )
    slow_copies = warn(
        "copies between it and the host are {percent} % slower than those of {others}",
        means="The link of the GPU is much slower than that of others of its model.",
        do=fix.nvidia_smi("its link: generation and width", "-q"),
    )
    narrow = warn(
        "its link to the host is PCI Express {now} under load, and could be {most}",
        means="The link of the GPU has fewer lanes, or a lower generation, than the GPU and its slot can have.",
        do=fix.nvidia_smi("its link: generation and width", "-q"),
    )
    half_link = note(
        "its link to the host is PCI Express {now} under load, and could be {most}",
        means="The link has half of its lanes, as in many computers with two GPUs.",
        do=fix.nvidia_smi("its link: generation and width", "-q"),
    )
    under_link = warn(
        "{work}: {rate}, less than half of the {allowed} of its link (PCI Express {link})",
        means="Copies reach less than half of what the link of the GPU can move.",
        do=fix.nvidia_smi("how the GPUs and the processors are connected", "topo -m"),
    )
    slower_with_time = warn(
        "{percent} % slower in the last third of the time than in the first",
        means="The GPU became slower under load.",
        do=_LOOK,
    )
    slowed = warn(
        "its clocks were lowered in {share} % of the time under load{down_to}: {reason}",
        means="The GPU or the driver lowered the clocks under load.",
        do=_LOOK,
    )
    counted = warn(
        "{count} {what} under load",
        means="The GPU counted errors that were corrected.",
        do=probe.GPU_ERRORS,
    )
    uncorrected = fail(
        "{count} {what} under load",
        means="The GPU counted errors of its memory that were not corrected.",
        do=probe.GPU_ERRORS,
    )
    ended = fail(
        "after {seconds} of {planned} s under load: {how}",
        means="The GPU or its libraries failed under load.",
        do=SEE_THE_CAUSE,
    )


ALONE = 0.3
"""The part of the time in which each GPU has its turn alone, if there are several."""
STEP_S = 0.004
"""A step that takes as long as this is large enough: the host can queue the next one meanwhile."""
TRIES = 3
"""How often the first product is made, with which all others are compared, until it is that of the CPU."""
SIDES = (128, 256, 512, 1024, 2048, 4096, 8192)
"""Sides of the matrices."""
SIMULATED_BYTES = 8 * MIB
"""Memory that is filled on a simulated GPU: it is the host's."""


BUSY_PERCENT = 20
"""A GPU that computes less is between two kinds of work, or at rest."""
MOST_SLOWED = 0.05
"""The part of the time for which lowered clocks are no finding."""
SLOWED = {
    "hot": "too hot (the hardware's limit)",
    "warm": "too hot (the driver's limit)",
    "power_brake": "the power supply asks for it",
    "hardware": "the hardware asks for it",
}
"""Reasons that no healthy GPU has under load, the first that holds before the others. A cap of the power is one that
many have."""
COUNTERS = {
    "corrected_errors": "errors of its memory that were corrected",
    "uncorrected_errors": "errors of its memory that could not be corrected",
    "remapped_rows": "rows of its memory replaced",
    "pcie_replays": "packets sent again on its PCI Express link",
    "nvlink_errors": "errors of its NVLinks",
}


LANE_BYTES = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""Bytes in a second that a lane of PCI Express moves in one direction, by generation (PCI-SIG)."""
LEAST_OF_LINK = 0.5
"""Copies of pinned memory reach 75 to 90 % of what the link moves; if they reach less than this part, something else
is in the way."""
COPIED = ("copy to the GPU", "copy to the host and back")


class Reading(probe.LoadReading):
    """The slices of one GPU."""

    memory_bytes: int = 0
    """Memory that the patterns filled."""
    sides: dict[str, int] = {}
    """Side of the matrices or images of each kind of work."""

    def figure(self) -> str:
        return f"{self.measured_s:.0f} s under load, {self.outcome_of('results')}; {mib(self.memory_bytes)} filled"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    real = not any(gpu.simulated for gpu in ctx.gpus)
    v1 = tf.compat.v1
    # The memory of every tensor of the CPU that an operation makes is pinned then.
    v1.disable_eager_execution()
    v1.enable_eager_execution(config=v1.ConfigProto(gpu_options=v1.GPUOptions(force_gpu_compatible=True)))
    ctx.list_gpus()
    tf.config.set_soft_device_placement(False)
    tf.config.experimental.enable_op_determinism()  # so that a result can be compared bit by bit
    (gpu,) = ctx.gpus
    free = gpu.memory_total_bytes - ctx.memory(gpu).used_bytes
    filled = bytes_to_fill(free, display=ctx.state(gpu).display) if real else 0
    ctx.make_gpus()
    kinds: dict[str, Callable[[int], Work]] = {
        "float32 product": lambda side: _product(tf, ctx.load, side, tf.float32, SINGLE, tf32=False),
        "TF32 product": lambda side: _product(tf, ctx.load, side, tf.float32, TF32, tf32=True),
        "float16 product": lambda side: _product(tf, ctx.load, side, tf.float16, HALF),
        "bfloat16 product": lambda side: _product(tf, ctx.load, side, tf.bfloat16, BFLOAT16),
        "float16 convolution": lambda side: _convolution(tf, side),
    }
    sides = {}
    for name, prepare in kinds.items():
        announce(name, "GPU:0")
        sides[name] = _side(prepare)
    load = ctx.load
    # One GPU that is slower must do the same work, or the rates could not be compared.
    told = load.meet("sides", sides)
    sides = {name: min(one[name] for one in told) for name in sides}
    works = [prepare(sides[name]) for name, prepare in kinds.items()]
    works += [
        _memory(tf, filled or SIMULATED_BYTES, 256 * MIB if real else MIB),
        *_copies(tf, (64 if real else 1) * MIB),
    ]
    load.start()
    for began_s, until_s, alone in _turns(load):
        load.rest(began_s)
        spend(ctx.load, works, until_s, alone=alone)
    return Reading(memory_bytes=filled or SIMULATED_BYTES, sides=sides)


def bytes_to_fill(free: int, *, display: bool | None) -> int:
    """Return how many of the ``free`` bytes of a GPU are filled."""
    left = probe.MEMORY_LEFT_TO_DISPLAY if display else probe.MEMORY_LEFT
    return max(0, int(free * (1 - left) - 2 * probe.FILLED_BYTES))


def _turns(load: probe.Load) -> Iterator[tuple[float, float, bool]]:
    """Yield the turns of this GPU: when each begins and ends, and whether the others rest."""
    own_s = ALONE * load.seconds / load.count if load.count > 1 else 0.0
    if own_s:
        yield load.number * own_s, (load.number + 1) * own_s, True
    yield load.count * own_s, load.seconds, False


def _side(prepare: Callable[[int], Work]) -> int:
    """Return the smallest side with which a step takes :data:`STEP_S`, or the largest that there is."""
    for side in SIDES:
        work = prepare(side)
        int(work.step())
        began = time.perf_counter()
        int(work.step())
        if time.perf_counter() - began >= STEP_S:
            return side
    return SIDES[-1]


def _product(tf: Any, load: probe.Load, side: int, kind: Any, most: float, *, tf32: bool = False) -> Work:
    import numpy

    def multiply() -> Any:
        tf.config.experimental.enable_tensor_float_32_execution(tf32)
        with tf.device("GPU:0"):
            return tf.matmul(left, right)

    with tf.device("GPU:0"):
        left, right = (
            tf.cast(tf.random.stateless_normal([side, side], seed=[side, number]), kind) for number in (1, 2)
        )
    name, amount = f"{'TF32' if tf32 else kind.name} product", 2.0 * side**3
    rows = tf.cast(left[:4], tf.float64).numpy() @ tf.cast(right, tf.float64).numpy()
    for _ in range(TRIES):
        began = time.perf_counter()
        first = multiply()
        error = numpy.abs(tf.cast(first[:4], tf.float64).numpy() - rows).max() / numpy.abs(rows).max()
        if error <= most:
            break
        seconds = time.perf_counter() - began
        where = f"differs from the CPU's by {error:.3g} of its largest value"
        load.note(Slice(0.0, seconds, name, amount / seconds, None, 1, 1, where, alone=True))

    def step() -> Any:
        product = multiply()
        with tf.device("GPU:0"):
            return tf.math.count_nonzero(tf.not_equal(product, first))

    return Work(name, amount, step, lambda: f"in a product of {side} x {side}")


def _convolution(tf: Any, side: int) -> Work:
    channels = max(8, min(256, side // 8))
    images = max(16, min(64, side // 8))
    with tf.device("GPU:0"):
        x = tf.cast(tf.random.stateless_normal([4, images, images, channels], seed=[side, 3]), tf.float16)
        weights = tf.cast(tf.random.stateless_normal([3, 3, channels, channels], seed=[side, 4]) / 16, tf.float16)
        first = tf.nn.conv2d(x, weights, 1, "SAME")

    def step() -> Any:
        with tf.device("GPU:0"):
            return tf.math.count_nonzero(tf.not_equal(tf.nn.conv2d(x, weights, 1, "SAME"), first))

    return Work("float16 convolution", 2.0 * 4 * images**2 * channels**2 * 9, step, lambda: "in a convolution")


def _memory(tf: Any, filled: int, block: int) -> Work:
    count = max(1, filled // block - 3)  # besides them: the numbers of the words, the expected block, the next one
    words = block // 4
    last: list[Any] = [0, None, None]
    with tf.device("GPU:0"):
        # On a GPU, too, range and not_equal have int32 in the host's memory (their kernels are registered so).
        number = tf.bitwise.bitwise_xor(tf.range(words, dtype=tf.int32), tf.constant(0, tf.int32))
        blocks = [number for _ in range(count)]
        keys = [0] * count
    turn = itertools.cycle(range(count))
    patterns = itertools.cycle((0x55555555, -1, 0x33333333, 0x0F0F0F0F, 0))

    def step() -> Any:
        at = next(turn)
        key = next(patterns) ^ at
        with tf.device("GPU:0"):
            # Read, changed, and written elsewhere: into what the block before has left.
            blocks[at] = tf.bitwise.bitwise_xor(blocks[at], tf.constant(keys[at] ^ key, tf.int32))
            expected = tf.bitwise.bitwise_xor(number, tf.constant(key, tf.int32))
            keys[at] = key
            differs = tf.cast(tf.bitwise.bitwise_xor(blocks[at], expected), tf.bool)
            last[:] = [at, differs, (blocks[at], expected)]
            return tf.math.count_nonzero(differs)

    def where() -> str:
        at, differs, (found, expected) = last
        word = int(tf.where(differs)[0][0]) if bool(tf.reduce_any(differs)) else 0
        with tf.device("GPU:0"):
            blocks[at] = tf.identity(expected)  # the next result is right or wrong by itself
        return (
            f"in block {at} of {count} at byte {4 * word}: {int(found[word]) & 0xFFFFFFFF:#010x} instead of "
            f"{int(expected[word]) & 0xFFFFFFFF:#010x}"
        )

    return Work("memory", 3.0 * block, step, where)


def _copies(tf: Any, size: int) -> Iterator[Work]:
    import numpy

    numbers = numpy.random.default_rng(1).integers(0, 256, size, dtype=numpy.uint8)
    with tf.device("CPU:0"):
        pinned = tf.bitwise.bitwise_xor(numbers, numpy.uint8(0))
    with tf.device("GPU:0"):
        there = tf.identity(pinned)

    def to_gpu() -> Any:
        with tf.device("GPU:0"):
            return tf.math.count_nonzero(tf.not_equal(tf.identity(anew(tf, pinned)), there))

    def back() -> Any:
        with tf.device("CPU:0"):
            here = tf.identity(anew(tf, there))
        with tf.device("GPU:0"):
            return tf.math.count_nonzero(tf.not_equal(tf.identity(here), there))

    to_gpu_name, back_name = COPIED
    yield Work(to_gpu_name, float(size), to_gpu, lambda: f"in a copy of {size >> 20} MiB to the GPU")
    yield Work(back_name, 2.0 * size, back, lambda: f"in a copy of {size >> 20} MiB to the host and back")


def judge(reading: Reading, facts: Facts, beside: Beside) -> Findings:
    yield from _of_results(reading)
    own = {device.uuid: device for device in facts.nvml_devices if device.pci_bus_id in reading.given}
    seen = [health for health in beside.health if health.gpu in own]
    of_health = [found for health in seen for found in _of_health(health)]
    yield from of_health  # first: it may be the reason of a low rate
    slowed = any(found.kind == Fault.slowed.name for found in of_health)
    yield from _of_rates(reading, _twins(reading, facts, beside), slowed=slowed)
    for health in seen:
        yield from _of_link(reading, own[health.gpu], health)
    if reading.failed is not None:
        seconds, planned = round(reading.measured_s, 1), round(reading.planned_s, 1)
        yield Fault.ended.found(seconds=seconds, planned=planned, how=reading.failed.detail)
    elif reading.slices and reading.ended is None:
        yield from map(Verified, reading.given)


def _of_results(reading: Reading) -> Findings:
    kinds: dict[str, list[Slice]] = {}
    for part in reading.slices:
        kinds.setdefault(part.work, []).append(part)
    for work, parts in kinds.items():
        if wrong := sum(part.wrong for part in parts):
            where = next(part.where for part in parts if part.wrong)
            results = sum(part.results for part in parts)
            yield Fault.wrong.found(work=work, results=results, wrong=counted(wrong, "wrong element"), where=where)


def _twins(reading: Reading, facts: Facts, beside: Beside) -> list[LoadReading]:
    """Return the readings of the other GPUs of the same model; MIG instances have none, as they need not be alike."""
    models = {device.pci_bus_id: device.name for device in facts.nvml_devices if not device.mig_uuids}
    own = [models.get(pci) for pci in reading.given]
    return [other for other in beside.others if None not in own and [models.get(pci) for pci in other.given] == own]


def _of_rates(reading: Reading, twins: list[LoadReading], *, slowed: bool) -> Findings:
    """Compare the rates with those of the other GPUs of the model, and with those of the beginning.

    ``slowed``: NVML said that the clocks were lowered, which may have met one kind of work alone.
    """
    others = "the other GPU of its model" if len(twins) == 1 else f"the median of {len(twins)} other GPUs of its model"
    deficits = behind(reading, twins)
    products = {work: deficit for work, deficit in deficits.items() if not work.startswith(COPIES)}
    whole = typical(products.values())
    if whole is not None and whole.counts:
        # Which of two is the odd one, nobody knows.
        kind = Fault.much_slower if whole.is_much and len(twins) > 1 else Fault.slower
        yield kind.found(percent=_percent(whole), others=others)
    elif not slowed:
        for work, deficit in products.items():
            if deficit.is_much:
                yield Fault.slow_work.found(work=work, percent=_percent(deficit), others=others)
    copies = typical(deficit for work, deficit in deficits.items() if work not in products)
    # GPUs at another socket's memory are slower to reach, and as they should be.
    if copies is not None and copies.is_much:
        yield Fault.slow_copies.found(percent=_percent(copies), others=others)
    fell = slowing(reading)
    if fell is not None and fell.counts:
        yield Fault.slower_with_time.found(percent=_percent(fell))
    if (hidden := blur(reading)) > FLOOR:
        least = 10 * math.ceil(10 * (hidden + FLOOR))
        yield Gap(
            f"rates that differ by less than {least} %",
            "the host was busy: processes waited for a processor",
        )
    elif reading.slices and not twins:
        yield Gap("rates", "no other GPU of its model is here, and there is no table of cards")


def _percent(deficit: Deficit) -> int:
    return round(100 * deficit.value)


def _of_health(health: GpuHealth) -> Iterator[Finding]:
    """Judge what NVML said of the GPU meanwhile."""
    working = [
        sample for sample in health.samples if sample.busy_percent is None or sample.busy_percent >= BUSY_PERCENT
    ]
    for reason, words in SLOWED.items():
        slowed = [sample for sample in working if _why_slowed(sample) == reason]
        if len(slowed) > MOST_SLOWED * len(working):
            clocks = [sample.clock_mhz for sample in slowed if sample.clock_mhz]
            degrees = [sample.temperature for sample in slowed if sample.temperature is not None]
            yield Fault.slowed.found(
                share=round(100 * len(slowed) / len(working)),
                down_to=(f", down to {min(clocks)} MHz" if clocks else "")
                + (f" at up to {max(degrees)} degrees" if degrees else ""),
                reason=words,
            )
    rose = health.rose()
    for counter, words in COUNTERS.items():
        if counter in rose:
            kind = Fault.uncorrected if counter in ("uncorrected_errors", "remapped_rows") else Fault.counted
            yield kind.found(count=rose[counter], what=words)


def _why_slowed(sample: HealthSample) -> str:
    """Return the first of :data:`SLOWED` that holds; the hardware says ``hardware`` with each of its reasons."""
    return next((reason for reason in SLOWED if reason in (sample.slowed_by or ())), "")


def _of_link(reading: Reading, device: NvmlDevice, health: GpuHealth) -> Findings:
    """Judge the link to the host by what it should be, and the copies by what it is."""
    state = device.state
    links = [(it.pcie_generation, it.pcie_width) for it in health.samples if it.pcie_generation and it.pcie_width]
    if not links or state.virtualization not in ("none", None):  # the hypervisor shows what it likes
        return
    best = max(links)  # at rest the generation falls
    most = (state.pcie_generation_max or best[0], state.pcie_width_max or best[1])
    if best != most:
        # Boards with two GPUs often give each of them half of the lanes.
        kind = Fault.half_link if best[0] == most[0] and 2 * best[1] >= most[1] else Fault.narrow
        yield kind.found(now=_link(best), most=_link(most))
    if device.name.startswith(SIMULATED):
        return
    allowed = best[1] * LANE_BYTES.get(best[0], 0.0)
    for work, slices in by_work(reading).items():
        rate = Rate.of(slices)
        if work in COPIED and rate is not None and allowed and rate.value < LEAST_OF_LINK * allowed:
            yield Fault.under_link.found(
                work=work, rate=gigabytes(rate.value), allowed=gigabytes(allowed), link=_link(best)
            )


def _link(link: tuple[int, int]) -> str:
    return f"generation {link[0]} x{link[1]}"


def gigabytes(rate: float) -> str:
    return f"{rate / 1e9:.3g} GB/s"
