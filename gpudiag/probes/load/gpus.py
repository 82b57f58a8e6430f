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
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gpudiag import fix, probe
from gpudiag.model.facts import Facts, NvmlDevice
from gpudiag.model.health import COPIED, SLOWED, GpuHealth
from gpudiag.model.report import SIMULATED, Finding, Gap
from gpudiag.probe import (
    MIB,
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
    LoadFaults,
    Work,
    anew,
    behind,
    blur,
    early_end,
    rates,
    slowing,
    spend,
    twins,
    typical,
    wrong_results,
)

PROBE = probe.Probe(
    needs=probe.Needs(gpus=1, free_bytes=512 * MIB), scope=probe.Scope.EACH_GPU, exclusive=True, stress=0.8
)


_LOOK = (
    fix.nvidia_smi("clocks, temperature and power under load, and why clocks are lowered", "-q -d PERFORMANCE"),
    probe.KERNEL_LOG,
)


class Fault(LoadFaults):
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


ALONE = 0.3
"""The part of the time in which each GPU has its turn alone, if there are several."""
STEP_S = 0.004
"""A step that takes as long as this is large enough: the host can queue the next one meanwhile."""
TRIES = 3
"""How often the product with which all later ones are compared is computed, until it agrees with the CPU's."""
SIDES = (128, 256, 512, 1024, 2048, 4096, 8192)
"""Sides of the matrices."""
BYTES_OF_SIDE = 49
"""Bytes that products and their comparison take, for each element of a matrix: 36 for three matrices of each of two
kinds in float32 and two in 16 bits, 13 for a product, what differs, and its count in int64."""
LARGEST_BLOCK = 256 * MIB
"""The most that is filled, moved and compared at a time."""
LARGEST_COPY = 64 * MIB
HOST_BYTES = 16 * MIB
"""The room for patterns where a GPU's memory is the host's: on simulated GPUs, and where NVML reports none."""


MOST_SLOWED = 0.05
"""The part of the time for which lowered clocks are no finding."""
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
    pool = _limit_memory(ctx)
    ctx.list_gpus()
    tf.config.set_soft_device_placement(False)
    tf.config.experimental.enable_op_determinism()  # so that a result can be compared bit by bit
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
        sides[name] = _side(prepare, sides_within(pool) if pool else SIDES)
    load = ctx.load
    # One GPU that is slower must do the same work, or the rates could not be compared.
    sides_of_all = load.meet("sides", sides)
    sides = {name: min(of_gpu[name] for of_gpu in sides_of_all) for name in sides}
    works = [prepare(sides[name]) for name, prepare in kinds.items()]
    room = pool if pool and real else HOST_BYTES
    copies = list(_copies(tf, sixteenth(room, LARGEST_COPY)))
    if room == pool:
        room -= tf.config.experimental.get_memory_info("GPU:0")["current"]
    count, block = blocks_within(room)
    works += [_memory(tf, count, block), *copies]
    load.start()
    for began_s, until_s, alone in _turns(load):
        load.rest(began_s)
        spend(ctx.load, works, until_s, alone=alone)
    return Reading(memory_bytes=count * block, sides=sides)


def _limit_memory(ctx: Context) -> int:
    """Let TensorFlow take no more of the GPU than :func:`bytes_to_take`, and return that; 0 if NVML does not report its
    memory.

    By default it takes nearly all that is free, and with growth alone its pool doubles until it has that. The memory of
    every tensor of the CPU that an operation makes is pinned.
    """
    (gpu,) = ctx.gpus
    total = gpu.memory_total_bytes
    used = ctx.used_memory(gpu)
    pool = bytes_to_take(total - used, display=ctx.state(gpu).display) if total and used is not None else 0
    v1 = ctx.tf.compat.v1
    options = v1.GPUOptions(
        force_gpu_compatible=True,
        allow_growth=not pool,
        per_process_gpu_memory_fraction=pool / total if total else 0.0,
    )
    v1.disable_eager_execution()
    v1.enable_eager_execution(config=v1.ConfigProto(gpu_options=options))
    return pool


def bytes_to_take(free: int, *, display: bool | None) -> int:
    """Return how many of the ``free`` bytes of a GPU TensorFlow may take besides its context."""
    left = probe.MEMORY_LEFT_TO_DISPLAY if display else probe.MEMORY_LEFT
    return max(MIB, int(free * (1 - left)) - probe.CONTEXT_BYTES)


def sides_within(pool: int) -> tuple[int, ...]:
    """Return the sides of matrices whose products fit into half of ``pool`` bytes; the smallest if none does."""
    return tuple(side for side in SIDES if BYTES_OF_SIDE * side**2 <= pool // 2) or SIDES[:1]


def blocks_within(room: int) -> tuple[int, int]:
    """Split ``room`` bytes into blocks to fill; return how many there are, and the bytes of each.

    There is room for eight more: for the numbers of the words, the expected block, the next one, and what a comparison
    needs (an int64 for each word, or for each element of a product).
    """
    block = sixteenth(room, LARGEST_BLOCK)
    return max(1, room // block - 8), block


def sixteenth(room: int, most: int) -> int:
    """Return a sixteenth of so many bytes in whole MiB, one at least, but no more than ``most``."""
    return max(MIB, min(most, room // 16 // MIB * MIB))


def _turns(load: probe.Load) -> Iterator[tuple[float, float, bool]]:
    """Yield the turns of this GPU: when each begins and ends, and whether the others rest."""
    own_s = ALONE * load.seconds / load.count if load.count > 1 else 0.0
    if own_s:
        yield load.number * own_s, (load.number + 1) * own_s, True
    yield load.count * own_s, load.seconds, False


def _side(prepare: Callable[[int], Work], sides: Sequence[int]) -> int:
    """Return the smallest of the sides with which a step takes :data:`STEP_S`, or else the last."""
    for side in sides:
        work = prepare(side)
        int(work.step())
        began = time.perf_counter()
        int(work.step())
        if time.perf_counter() - began >= STEP_S:
            break
    return side


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
        load.note(Slice(-seconds, seconds, name, amount / seconds, None, 1, 1, where, alone=True))

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


def _memory(tf: Any, count: int, block: int) -> Work:
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

    # Compared eight bytes at a time: to be counted, each element that is compared becomes an int64.
    numbers = numpy.frombuffer(numpy.random.default_rng(1).bytes(size), numpy.int64)
    with tf.device("CPU:0"):
        pinned = tf.bitwise.bitwise_xor(numbers, numpy.int64(0))
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
    yield from wrong_results(reading, Fault.wrong)
    own = {device.uuid: device for device in facts.nvml_devices if device.pci_bus_id in reading.given}
    seen = [health for health in beside.health if health.gpu in own]
    of_health = [found for health in seen for found in _of_health(health)]
    yield from of_health  # first: it may be the reason of a low rate
    slowed = any(found.kind == Fault.slowed.name for found in of_health)
    yield from _of_rates(reading, twins(reading, beside.others, facts), slowed=slowed)
    for health in seen:
        yield from _of_link(reading, own[health.gpu], health)
    yield from early_end(reading)
    if reading.slices and reading.ended is None:
        yield from map(Verified, reading.given)


def _of_rates(reading: Reading, of_model: tuple[LoadReading, ...], *, slowed: bool) -> Findings:
    """Compare the rates with those of the other GPUs of the model, and with those of the beginning.

    ``slowed``: NVML said that the clocks were lowered, which may have met one kind of work alone.
    """
    count = len(of_model)
    others = "the other GPU of its model" if count == 1 else f"the median of {count} other GPUs of its model"
    deficits = behind(reading, of_model)
    products = {work: deficit for work, deficit in deficits.items() if not work.startswith(COPIES)}
    whole = typical(products.values())
    if whole is not None and whole.counts:
        # Which of two is the odd one, nobody knows.
        kind = Fault.much_slower if whole.is_much and count > 1 else Fault.slower
        yield kind.found(percent=_percent(whole), others=others)
    elif not slowed:
        for work, deficit in products.items():
            if deficit.is_much:
                yield Fault.slow_work.found(work=work, percent=_percent(deficit), others=others)
    copies = typical(deficit for work, deficit in deficits.items() if work not in products)
    # A GPU at another socket is slower to reach, and rightly so.
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
    elif reading.slices and not of_model:
        yield Gap("rates", "no other GPU of its model is here, and there is no table of cards")


def _percent(deficit: Deficit) -> int:
    return round(100 * deficit.value)


def _of_health(health: GpuHealth) -> Iterator[Finding]:
    """Judge what NVML said of the GPU meanwhile."""
    working = [sample for sample in health.samples if sample.is_busy]
    for reason, words in SLOWED.items():
        slowed = [sample for sample in working if sample.throttled_by == reason]
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
    for work, rate in rates(reading).items():
        if work in COPIED and rate.value < LEAST_OF_LINK * allowed:
            yield Fault.under_link.found(
                work=work, rate=gigabytes(rate.value), allowed=gigabytes(allowed), link=_link(best)
            )


def _link(link: tuple[int, int]) -> str:
    return f"generation {link[0]} x{link[1]}"


def gigabytes(rate: float) -> str:
    return f"{rate / 1e9:.3g} GB/s"
