"""Data copied to a GPU, back, and from one GPU to another arrives unchanged.

What it does
    Copies random bytes from ordinary and from pinned memory of the host to each GPU, back to pinned memory, which
    is what TensorFlow copies back to, and from every GPU to every other, and compares all of them. On real GPUs it
    copies 64 MiB and measures the bandwidth; on simulated ones 1 MiB, without measuring. With more than 8 GPUs, each
    copies to those that are 1, 2, 4, 8 ... places before and after it. With `--verbose` the row has a line for each
    source. Then 64 KiB go to each GPU, are changed there and come back, again and again, because some GPUs fail only
    now and then: 250 times, and more than 8 GPUs share 2,000 times.
Why it matters
    A path from GPU to GPU that an IOMMU or PCI access control (ACS) leads astray corrupts data without an error:
    training gives NaN or, worse, wrong numbers. Copies at a fraction of the slot's bandwidth make a GPU wait for its
    data.
What to do
    If copies between GPUs are wrong: boot with `iommu=pt`, switch ACS off in the firmware, and see `nvidia-smi topo
    -m`. If copies of one GPU are wrong: `nvidia-smi -q -d ECC` and `dmesg | grep Xid`. If pinned memory cannot be had:
    `ulimit -l`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, TypeVar

from gpudiag import fix, probe
from gpudiag.model.report import Figure, Gap
from gpudiag.probe import MIB, SEE_THE_CAUSE, Context, Findings, Raised, Verified, fail, mib
from gpudiag.probes.common import create_devices, in_time, pairs
from gpudiag.probes.comparison import announce
from gpudiag.record import Record
from gpudiag.text import counted

PROBE = probe.Probe(needs=probe.Needs(gpus=1, free_bytes=512 * MIB), scope=probe.Scope.ALL_GPUS)


class Fault(probe.ReplicaFaults):
    corrupted = fail(
        "of {size_bytes} copied from {source} to {target} {wrong} bytes are wrong",
        means="The path between the two, or the memory of one of them, corrupts data, and no error was raised.",
        do=(
            fix.note("if both are GPUs, boot with iommu=pt and switch ACS off", kind=fix.Kind.CHANGE_DRIVER),
            fix.nvidia_smi("how they are connected", "topo -m"),
            *probe.GPU_ERRORS,
        ),
    )
    sometimes_wrong = fail(
        "of {times} rounds to {device} and back {wrong} came back wrong",
        means="The GPU, its memory or its slot fails now and then, and no error was raised.",
        do=probe.GPU_ERRORS,
    )
    rounds_failed = fail(
        "after {times} rounds, going to {device} and back raised {error}",
        means="Data that was sent to a GPU and back again and again raised an error after some rounds.",
        do=SEE_THE_CAUSE,
    )
    copy_failed = fail(
        "copying {size_bytes} from {source} to {target} raised {error}",
        means="A copy to a GPU or from it raised an error.",
        do=SEE_THE_CAUSE,
    )


HOST, PINNED, GPU = "memory", "pinned memory", "GPU:"
TIMEOUT_S = 20
TRIES = 3
ROUNDS = 250
ROUNDS_OF_ALL = 2000
KEYS = 16
"""Keys that change the bytes in turn, so that the result of the previous round is wrong in the next one."""
ROUND_BYTES = 64 << 10
SAMPLED = "of more than 8 GPUs each copies to those 1, 2, 4, 8 ... places before and after it"


class DeviceCopy(Record):
    """A copy of a tensor from one device to another."""

    source: str
    """``memory`` or ``pinned memory`` of the host, or a device such as ``GPU:0``."""
    target: str
    size_bytes: int
    wrong: int = 0
    """Bytes that differ after the copy."""
    seconds: float | None = None
    """The shortest of three times; None if not measured."""
    raised: Raised | None = None

    @property
    def is_right(self) -> bool:
        return not (self.wrong or self.raised)

    @property
    def result(self) -> str:
        """The result of the copy, in a word."""
        return "raised" if self.raised else "wrong" if self.wrong else "right"

    @property
    def rate(self) -> float:
        """The speed of the copy in GB/s."""
        return self.size_bytes / (self.seconds or 1) / 1e9


class Rounds(Record):
    """Rounds in which data was sent to a GPU, changed there and brought back."""

    device: str
    times: int
    """The number of completed rounds."""
    wrong: int = 0
    """The number of rounds that brought back wrong data."""
    raised: Raised | None = None


class Reading(probe.GpuReading):
    """All copies and rounds."""

    made: dict[str, str]
    """PCI bus id of each device (``GPU:0``), from TensorFlow's ``Created device`` lines."""
    copies: tuple[DeviceCopy, ...]
    rounds: tuple[Rounds, ...] = ()
    """The rounds of each GPU; empty if a copy raised."""

    @property
    def pairs(self) -> int:
        """The number of ordered pairs of GPUs between which data was copied."""
        return sum(not {copy.source, copy.target} & {HOST, PINNED} for copy in self.copies)

    def figure(self) -> str:
        right = sum(copy.is_right for copy in self.copies)
        rates = [copy.rate for copy in self.copies if PINNED in (copy.source, copy.target) and copy.seconds]
        speed = f", {min(rates):.1f} GB/s at least with pinned memory" if rates else ""
        size = mib(self.copies[0].size_bytes) if self.copies else "0 MiB"
        among = f", {self.pairs} of {_all_pairs(len(self.made))} pairs" if len(self.made) > 1 else ""
        gpus = counted(len(self.made), "GPU")
        rounds = (
            f"; {min(transfer.times - transfer.wrong for transfer in self.rounds)} rounds right on each"
            if self.rounds
            else ""
        )
        return f"{right} of {len(self.copies)} copies of {size} right: to and from {gpus}{among}{speed}{rounds}"

    def table(self) -> tuple[tuple[str, ...], ...]:
        lines: dict[tuple[str, str], list[DeviceCopy]] = {}
        for copy in self.copies:
            lines.setdefault((copy.source, copy.result), []).append(copy)
        return (
            ("from", "to", "result", "bandwidth"),
            *(
                (source, _names([copy.target for copy in same]), result, _slowest(same))
                for (source, result), same in lines.items()
            ),
        )

    def gaps(self) -> tuple[Gap, ...]:
        planned = [*_copies_among(tuple(self.made))]
        if left := len(planned) - len(self.copies):
            return (Gap(f"{left} of {len(planned)} copies", "after an error TensorFlow's next call may never return"),)
        left = _all_pairs(len(self.made)) - self.pairs
        return (Gap(f"copies between {left} of {left + self.pairs} pairs of GPUs", SAMPLED),) if left else ()


def _all_pairs(gpus: int) -> int:
    return gpus * (gpus - 1)


def _names(targets: list[str]) -> str:
    """Return the names of devices in short form, such as ``pinned memory, GPU:0,2,3``."""
    hosts = [target for target in targets if not target.startswith(GPU)]
    numbers = [target.removeprefix(GPU) for target in targets if target.startswith(GPU)]
    return ", ".join([*hosts, *([GPU + ",".join(numbers)] if numbers else [])])


def _slowest(copies: list[DeviceCopy]) -> str:
    rates = [copy.rate for copy in copies if copy.seconds]
    return f"{min(rates):.1f} GB/s" if rates else ""


def measure(ctx: Context) -> Reading:
    import numpy

    tf, v1 = ctx.tf, ctx.tf.compat.v1
    # The memory of every tensor of the CPU that an operation makes is pinned then; that of a constant is numpy's.
    v1.disable_eager_execution()
    v1.enable_eager_execution(config=v1.ConfigProto(gpu_options=v1.GPUOptions(force_gpu_compatible=True)))
    real = not any(gpu.simulated for gpu in ctx.gpus)
    size = (64 if real else 1) * MIB
    ctx.list_gpus()
    tf.config.set_soft_device_placement(False)
    made = create_devices(ctx)
    numbers = numpy.random.default_rng(1).integers(0, 256, size, dtype=numpy.uint8)
    with tf.device("CPU:0"):
        there = {HOST: tf.constant(numbers), PINNED: tf.bitwise.bitwise_xor(numbers, numpy.uint8(0))}

    def anew(tensor: Any) -> Any:
        """Return a tensor of the same memory; a tensor that was copied to a device is not copied there again.

        TensorFlow keeps the copy: 16 MiB took 10 ms for the first time, and 0.1 ms after that.
        """
        with tf.device(tensor.backing_device):
            return tf.identity(tensor)

    def copy(source: str, target: str) -> DeviceCopy:
        found: list[Any] = []
        seconds: list[float] = []
        announce(f"copy from {source} to {target}", target if target.startswith(GPU) else source)

        def run() -> None:
            for _ in range(TRIES if real else 1):
                sent = anew(there[source])
                begun = time.perf_counter()
                with tf.device("CPU:0" if target == PINNED else target):
                    found[:] = [tf.identity(sent)]
                tf.test.experimental.sync_devices()
                seconds.append(time.perf_counter() - begun)
            with tf.device("CPU:0"):
                found.append(int(numpy.count_nonzero(found[0].numpy() != numbers)))

        raised = in_time(ctx, TIMEOUT_S, run)
        if raised is not None:
            return DeviceCopy(source, target, size, raised=raised)
        there.setdefault(target, found[0])
        return DeviceCopy(source, target, size, found[1], min(seconds) if real else None)

    def go_and_return(device: str) -> Rounds:
        some = numbers[:ROUND_BYTES]
        ended: list[bool] = []
        announce("copies there and back", device)

        def run() -> None:
            # Tensors, because to convert an array costs more than all else of a round.
            with tf.device("CPU:0"):
                sent = tf.constant(some)
            with tf.device(device):
                keys = [tf.constant(numpy.uint8(number)) for number in range(KEYS)]
            for number in range(min(ROUNDS, ROUNDS_OF_ALL // len(made))):
                with tf.device(device):
                    changed = tf.bitwise.bitwise_xor(tf.identity(anew(sent)), keys[number % KEYS])
                with tf.device("CPU:0"):
                    back = tf.identity(changed).numpy()
                ended.append(bool((back == some ^ numpy.uint8(number % KEYS)).all()))

        raised = in_time(ctx, TIMEOUT_S, run)
        return Rounds(device, len(ended), ended.count(False), raised)

    copies = tuple(_until_one_raises(copy(*pair) for pair in _copies_among(tuple(made))))
    if any(copy.raised for copy in copies):
        return Reading(made, copies)
    return Reading(made, copies, tuple(_until_one_raises(map(go_and_return, made))))


def _copies_among(devices: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the source and the target of each copy: between the host and each device, then between devices."""
    for device in devices:
        yield from ((HOST, device), (PINNED, device), (device, PINNED))
    yield from pairs(devices)


_Part = TypeVar("_Part", DeviceCopy, Rounds)


def _until_one_raises(parts: Iterator[_Part]) -> Iterator[_Part]:
    for part in parts:
        yield part
        if part.raised:  # TensorFlow's next call may never return
            return


def judge(reading: Reading) -> Findings:
    for copy in reading.copies:
        figures: dict[str, Figure] = {"source": copy.source, "target": copy.target, "size_bytes": copy.size_bytes}
        if copy.raised:
            yield Fault.copy_failed.found(**figures, error=copy.raised.brief)
        elif copy.wrong:
            yield Fault.corrupted.found(**figures, wrong=copy.wrong)
    for rounds in reading.rounds:
        if rounds.raised:
            yield Fault.rounds_failed.found(times=rounds.times, device=rounds.device, error=rounds.raised.brief)
        elif rounds.wrong:
            yield Fault.sometimes_wrong.found(times=rounds.times, device=rounds.device, wrong=rounds.wrong)
    right = all(copy.is_right for copy in reading.copies) and not any(
        transfer.wrong or transfer.raised for transfer in reading.rounds
    )
    for given, (device, found) in zip(reading.given, reading.made.items(), strict=False):
        if found != given:
            yield Fault.other_gpu.found(device=device, found=found or "(not named)", expected=given)
        elif right:
            yield Verified(given)
