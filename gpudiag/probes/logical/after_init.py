"""After TensorFlow has initialised, changes of its devices and threads are refused, and nothing changes.

What it does
    Splits the CPU into two logical devices, makes a tensor (which initialises TensorFlow), and then tries to change the
    logical devices, the visible devices and the numbers of threads. It records what each attempt raised, and
    afterwards runs an operation on CPU:1 to see that the devices are still those of the beginning. A late change of
    memory growth, which a CPU lacks, is tried by `memory.growth`.
Why it matters
    A device configuration that comes too late must not pass silently: the program would run with another configuration
    than its source says. The first use of TensorFlow in a program decides; an import that makes a tensor is enough.
What to do
    Configure devices in the first lines after `import tensorflow`, before any tensor, operation, `tf.device`,
    `list_logical_devices`, `tf.data` pipeline or distribution strategy.
"""

from __future__ import annotations

from collections.abc import Callable

from gpudiag import probe
from gpudiag.knowledge.placement import devices_of, short_device
from gpudiag.probe import Context, Findings, Raised, fail, warn
from gpudiag.probes.common import MATRIX
from gpudiag.record import Record

PROBE = probe.Probe()


class Fault(probe.Faults):
    no_error = fail(
        "{call} was accepted after TensorFlow had initialised",
        means="The change was accepted after initialisation; whether it has an effect is not known.",
        do="Do not rely on an error: call it in the first lines after `import tensorflow`.",
    )
    other_error = warn(
        '{call}: {error} (expected RuntimeError "... cannot be modified after ...")',
        means="A change of the devices after TensorFlow had initialised raised another error than RuntimeError.",
        do="Do not match on the type or text of this error; report to gpudiag this release of TensorFlow.",
    )
    devices_changed = fail(
        "after the refused changes TensorFlow has {devices}, it began with {before}; MatMul on CPU:1 ran on {ran_on}",
        means="Changes that TensorFlow refused after it had initialised have changed its devices.",
        do="Configure devices once, in the first lines after `import tensorflow`.",
    )


BEFORE = ("CPU:0", "CPU:1")


class LateChange(Record):
    """A change of devices or threads, tried after initialisation."""

    call: str
    """The call as a program would write it."""
    raised: Raised | None


class Reading(probe.Reading):
    """The error of each attempt, and the devices afterwards."""

    attempts: tuple[LateChange, ...]
    devices: tuple[str, ...]
    """The logical CPUs after the attempts."""
    ran_on: tuple[str, ...]
    """The device that ran an operation placed on CPU:1 afterwards, by the placement log."""

    def figure(self) -> str:
        refused = sum(attempt.raised is not None for attempt in self.attempts)
        return f"{refused} of {len(self.attempts)} late changes refused"


def measure(ctx: Context) -> Reading:
    tf = ctx.tf
    tf.debugging.set_log_device_placement(True)
    (cpu,) = tf.config.list_physical_devices("CPU")
    logical = tf.config.LogicalDeviceConfiguration
    tf.config.set_logical_device_configuration(cpu, [logical()] * len(BEFORE))
    matrix = tf.constant(MATRIX)
    changes: dict[str, Callable[[], object]] = {
        "tf.config.set_logical_device_configuration": lambda: tf.config.set_logical_device_configuration(
            cpu, [logical()] * (len(BEFORE) + 1)
        ),
        "tf.config.set_visible_devices": lambda: tf.config.set_visible_devices([], "CPU"),
        "tf.config.threading.set_intra_op_parallelism_threads": lambda: (
            tf.config.threading.set_intra_op_parallelism_threads(3)
        ),
        "tf.config.threading.set_inter_op_parallelism_threads": lambda: (
            tf.config.threading.set_inter_op_parallelism_threads(3)
        ),
    }
    attempts = tuple(LateChange(call, ctx.attempt(change)) for call, change in changes.items())
    tf.config.set_soft_device_placement(False)
    with ctx.placements() as log, tf.device("/CPU:1"):
        tf.matmul(matrix, matrix)
    devices = tuple(short_device(device.name) for device in tf.config.list_logical_devices("CPU"))
    return Reading(attempts, devices, devices_of("MatMul", log.placements))


def judge(reading: Reading) -> Findings:
    for attempt in reading.attempts:
        raised = attempt.raised
        if raised is None:
            yield Fault.no_error.found(call=attempt.call)
        elif raised.type != "RuntimeError" or "cannot be modified after" not in raised.message:
            yield Fault.other_error.found(call=attempt.call, error=raised.brief)
    if reading.devices != BEFORE or reading.ran_on != ("CPU:1",):
        yield Fault.devices_changed.found(
            devices=", ".join(reading.devices), before=", ".join(BEFORE), ran_on=", ".join(reading.ran_on) or "nothing"
        )
