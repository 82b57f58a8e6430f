"""Under load for as long as you say, data crosses every link between GPUs unchanged, and no GPU's links are slow.

What it does
    Copies between GPUs, one pair after the other, for a tenth of the time of `--for`, compares every copy on the GPU
    that gets it, and measures the rate of each pair in slices of about half a second. With more than 8 GPUs, each
    copies to those that are 1, 2, 4, 8 ... places before and after it. The best link of each GPU is compared with the
    best ones of the other GPUs, and each link with its way back.
Why it matters
    A link that is slow or sends packets again makes all GPUs of a training wait, and a path that corrupts data raises
    no error.
What to do
    `nvidia-smi topo -m` shows how the GPUs are connected, `nvidia-smi nvlink -e` the errors of NVLinks. If copies are
    wrong: boot with `iommu=pt`, and switch ACS off in the firmware.
"""

from __future__ import annotations

from typing import Any

from gpudiag import fix, probe
from gpudiag.model.facts import Facts
from gpudiag.probe import MIB, SEE_THE_CAUSE, Beside, Context, Findings, fail, warn
from gpudiag.probes.common import create_devices, pairs
from gpudiag.probes.under_load import Deficit, Rate, Work, anew, by_work, spend
from gpudiag.text import counted

PROBE = probe.Probe(
    needs=probe.Needs(gpus=2, free_bytes=512 * MIB), scope=probe.Scope.ALL_GPUS, exclusive=True, stress=0.1
)

_TOPOLOGY = fix.nvidia_smi("how the GPUs are connected", "topo -m")


class Fault(probe.ReplicaFaults):
    wrong = fail(
        "{work}: {wrong} in {results} copies",
        means="The path between two GPUs, or the memory of one of them, corrupts data, and no error was raised.",
        do=(fix.note("boot with iommu=pt and switch ACS off", kind=fix.Kind.CHANGE_DRIVER), _TOPOLOGY),
    )
    slow_gpu = warn(
        "the best link of {device} is {percent} % slower than those of {others}",
        means="All links of one GPU are slower than the best ones of the others.",
        do=_TOPOLOGY,
    )
    one_way = warn(
        "copies from {source} to {target} are {percent} % slower than back",
        means="A link is slow in one direction.",
        do=_TOPOLOGY,
    )
    ended = fail(
        "after {seconds} of {planned} s under load: {how}",
        means="A GPU, or the link between two, failed under load.",
        do=SEE_THE_CAUSE,
    )


class Reading(probe.LoadReading):
    """The slices of all links; the ``work`` of a slice names its link, such as ``copy GPU:0 to GPU:1``."""

    made: dict[str, str] = {}
    """PCI bus id of each device (``GPU:0``), from TensorFlow's ``Created device`` lines."""

    def figure(self) -> str:
        return f"{counted(len({part.work for part in self.slices}), 'link')}, {self.outcome_of('copies')}"


def measure(ctx: Context) -> Reading:
    import numpy

    tf = ctx.tf
    size = (1 if any(gpu.simulated for gpu in ctx.gpus) else 64) * MIB
    ctx.list_gpus()
    tf.config.set_soft_device_placement(False)
    made = create_devices(ctx)
    numbers = numpy.random.default_rng(1).integers(0, 256, size, dtype=numpy.uint8)
    there = {}
    for device in made:
        with tf.device(device):
            there[device] = tf.identity(numbers)

    def link(source: str, target: str) -> Work:
        def step() -> Any:
            with tf.device(target):
                return tf.math.count_nonzero(tf.not_equal(tf.identity(anew(tf, there[source])), there[target]))

        return Work(f"copy {source} to {target}", float(size), step, lambda: "", target)

    ctx.load.start()
    spend(ctx.load, [link(*pair) for pair in pairs(tuple(made))], ctx.load.seconds, alone=False)
    return Reading(made=made)


def judge(reading: Reading, facts: Facts, beside: Beside) -> Findings:
    del facts, beside
    rates: dict[tuple[str, str], Rate] = {}
    for work, slices in by_work(reading).items():
        if wrong := sum(part.wrong for part in slices):
            results = sum(part.results for part in slices)
            yield Fault.wrong.found(work=work, results=results, wrong=counted(wrong, "wrong element"))
        _, source, _, target = work.split()
        if (rate := Rate.of(slices)) is not None:
            rates[source, target] = rate
    for (source, target), rate in rates.items():
        back = rates.get((target, source))
        if back is not None and (behind := Deficit.of(rate, [back])).is_much:
            yield Fault.one_way.found(source=source, target=target, percent=round(100 * behind.value))
    best = {
        device: max((rate for pair, rate in rates.items() if device in pair), key=lambda rate: rate.value)
        for device in {device for pair in rates for device in pair}
    }
    for device, rate in sorted(best.items()):
        others = [other for name, other in best.items() if name != device]
        if len(others) > 1 and (behind := Deficit.of(rate, others)).is_much:
            percent = round(100 * behind.value)
            yield Fault.slow_gpu.found(device=device, percent=percent, others=counted(len(others), "other GPU"))
    if reading.failed is not None:
        seconds, planned = round(reading.measured_s, 1), round(reading.planned_s, 1)
        yield Fault.ended.found(seconds=seconds, planned=planned, how=reading.failed.detail)
