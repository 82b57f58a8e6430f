"""One CPU split into three logical devices computes on each of them.

What it does
    Splits the CPU with `tf.config.set_logical_device_configuration`, multiplies matrices on CPU:0, CPU:1 and CPU:2, and
    adds the three products on CPU:0. It reads from the placement log where each operation ran, and compares the sum
    with the right one.
Why it matters
    Logical devices are how code for several devices is tested on one. This is the same code path of TensorFlow as for a
    GPU (see `logical.gpu_split`), and it needs no GPU.
What to do
    Call `tf.config.set_logical_device_configuration` before anything that initialises TensorFlow (a tensor, an
    operation, `list_logical_devices`, a distribution strategy).
"""

from __future__ import annotations

from gpudiag import fix, probe
from gpudiag.knowledge.placement import devices_of, short_device
from gpudiag.probe import Context, Findings, fail
from gpudiag.probes.common import MATRIX, is_square
from gpudiag.record import Record

PROBE = probe.Probe()


class Fault(probe.Faults):
    wrong_count = fail(
        "TensorFlow made {count} logical CPUs, {wanted} were asked for",
        means="TensorFlow made another number of logical CPUs than was asked for.",
        do=fix.edit("tf.config.set_logical_device_configuration(cpu, [...])", "the first call after the import"),
    )
    ran_elsewhere = fail(
        "{op} was put on {requested}, the placement log says {logged}",
        means="The placement log names another logical CPU than tf.device.",
        do=fix.edit("tf.config.set_soft_device_placement(False)", "switch soft placement off to get an error instead"),
    )
    wrong_result = fail(
        "the sum of the products of {count} logical CPUs is wrong",
        means="The sum is wrong, so data was lost between the devices.",
        do="Trust no result of this machine. Test its memory and processor, then reinstall TensorFlow.",
    )


WANTED = ("CPU:0", "CPU:1", "CPU:2")


class LogicalCpuOperation(Record):
    """An operation placed on a logical device."""

    op: str
    """The type of the operation."""
    requested: str
    """The requested device."""
    logged: tuple[str, ...]
    """The devices on which the log shows the operation."""


class Reading(probe.Reading):
    """The devices and results of the split CPU."""

    logical: tuple[str, ...]
    """The logical CPUs that TensorFlow made."""
    runs: tuple[LogicalCpuOperation, ...] = ()
    correct: bool = False
    """True if the sum equals the known one."""

    def figure(self) -> str:
        return f"1 CPU in {len(self.logical)}, sum {'right' if self.correct else 'wrong'}"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    tf.debugging.set_log_device_placement(True)
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration() for _ in WANTED])
    logical = tuple(short_device(device.name) for device in tf.config.list_logical_devices("CPU"))
    if logical != WANTED:
        return Reading(logical)
    tf.config.set_soft_device_placement(False)
    matrix = tf.constant(MATRIX)
    products, runs = [], []
    for factor, device in enumerate(WANTED, start=1):
        with ctx.placements() as log, tf.device(device):
            products.append(tf.matmul(matrix, matrix * float(factor)))
        runs.append(LogicalCpuOperation("MatMul", device, devices_of("MatMul", log.placements)))
    with ctx.placements() as log, tf.device(WANTED[0]):
        total = tf.add_n(products)
    runs.append(LogicalCpuOperation("AddN", WANTED[0], devices_of("AddN", log.placements)))
    return Reading(logical, tuple(runs), is_square(total, factor=1 + 2 + 3))


def judge(reading: Reading) -> Findings:
    if reading.logical != WANTED:
        yield Fault.wrong_count.found(count=len(reading.logical), wanted=len(WANTED))
        return
    for run in reading.runs:
        if run.logged != (run.requested,):
            logged = ", ".join(run.logged) or "nothing"
            yield Fault.ran_elsewhere.found(op=run.op, requested=run.requested, logged=logged)
    if not reading.correct:
        yield Fault.wrong_result.found(count=len(WANTED))
