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
from gpudiag.knowledge.variables import FORCE_GROWTH
from gpudiag.model.facts import Facts
from gpudiag.probe import MIB, Beside, Context, Findings, fail, warn
from gpudiag.probes.common import create_devices, pairs
from gpudiag.probes.under_load import Deficit, LoadFaults, Work, anew, early_end, rates, spend, wrong_results
from gpudiag.text import counted

PROBE = probe.Probe(
    needs=probe.Needs(gpus=2, free_bytes=512 * MIB),
    scope=probe.Scope.ALL_GPUS,
    exclusive=True,
    stress=0.1,
    env={FORCE_GROWTH: "true"},  # by default TensorFlow takes nearly all memory that is free
)

_TOPOLOGY = fix.nvidia_smi("how the GPUs are connected", "topo -m")


class Fault(LoadFaults, probe.ReplicaFaults):
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
    # Compared eight bytes at a time: to be counted, each element that is compared becomes an int64.
    numbers = numpy.frombuffer(numpy.random.default_rng(1).bytes(size), numpy.int64)
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
    yield from wrong_results(reading, Fault.wrong)
    by_ends = {tuple(work.split()[1::2]): rate for work, rate in rates(reading).items()}
    for (source, target), rate in by_ends.items():
        back = by_ends.get((target, source))
        if back is not None and (behind := Deficit.of(rate, [back])).is_much:
            yield Fault.one_way.found(source=source, target=target, percent=round(100 * behind.value))
    best = {
        device: max((rate for ends, rate in by_ends.items() if device in ends), key=lambda rate: rate.value)
        for device in {device for ends in by_ends for device in ends}
    }
    for device, rate in sorted(best.items()):
        others = [other for name, other in best.items() if name != device]
        if len(others) > 1 and (behind := Deficit.of(rate, others)).is_much:
            percent = round(100 * behind.value)
            yield Fault.slow_gpu.found(device=device, percent=percent, others=counted(len(others), "other GPU"))
    yield from early_end(reading)
