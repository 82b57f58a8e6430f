"""a call never returns: the driver hangs, and every program that uses a GPU hangs with it

A process that waits in the driver cannot be stopped by Ctrl-C, often not even by SIGKILL (state D), and each new one
waits, too. Most often a GPU has failed: it fell off the bus, waits for a reset, or its firmware (GSP) does not answer.
A file system of the driver's libraries that does not answer does the same. gpudiag gave the call time, in a separate
process, and then started no program that would wait for it again.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.devices import ChosenGpus
from gpudiag.causes.shared.gpu_state import KernelLog
from gpudiag.fix import Kind, check, reboot, run
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.facts import CallFacts

CAUSE = Cause(
    title="{call} never returns{where}: the driver hangs{why}, and every program that uses a GPU hangs with it",
    unfit=True,
    fix=(
        check("sudo dmesg | grep -i -e nvrm -e xid -e 'blocked for more'"),
        check("ps -eo pid,stat,wchan:32,args | grep ' D'", "shows processes that wait in the kernel"),
        run("sudo nvidia-smi --gpu-reset", "if no process uses the GPU", kind=Kind.RESET_GPU),
        reboot("if the reset hangs, too"),
    ),
    url="https://docs.nvidia.com/deploy/xid-errors/index.html",
    finding="host.driver.call_hangs",
    views=("host.driver.not_gathered",),
)


def find(calls: CallFacts, gpus: ChosenGpus, kernel: KernelLog) -> Matches:
    named = {gpu.uuid: f"GPU {gpu.index} ({gpu.uuid})" for gpu in gpus.gpus}
    hung = [call for call in calls.hung if call.of_driver]
    failing = [gpu for gpu in gpus.gpus if any(call.gpu == gpu.uuid for call in hung)]
    rest = gpus.without(failing, "until it is repaired")
    reason = kernel.reason()
    for call in hung[:1]:
        where = f" on {named.get(call.gpu, call.gpu)}" if call.gpu else ""
        others = [f"{other.name} took {other.seconds:.2f} s" for other in calls.calls if other.seconds is not None]
        met = f"{call.probe}: " if call.probe else ""
        yield Match(
            evidence=(
                f"{met}{call.name} did not return within {call.waited_s:.0f} s{where}",
                *([f"the process waits in {call.file}"] if call.file and call.file != call.name else []),
                *others,
                *(reason.lines if reason else ()),
            ),
            figures={"call": call.name, "where": where, "why": f" ({reason.meaning})" if reason else ""},
            fix=(
                *(reason.fix if reason and reason.confidence is Confidence.LIKELY else CAUSE.fix),
                rest if call.gpu and rest.change else None,
            ),
            stage=Stage.CONTEXT if call.gpu or call.probe else Stage.DRIVER,
        )
