"""{call} never returns{where}: the driver hangs, and every program that uses a GPU hangs with it

A process that waits in the driver cannot be stopped by Ctrl-C, often not even by SIGKILL (state D), and each new one
waits, too. Most often a GPU has failed: it fell off the bus, waits for a reset, or its firmware (GSP) does not answer.
A file system of the driver's libraries that does not answer does the same. gpudiag gave the call time, in a separate
process, and then started no program that would wait for it again.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.devices import ChosenGpus
from gpudiag.fix import Kind, check, reboot, run
from gpudiag.model.diagnosis import Stage
from gpudiag.model.facts import CallFacts

CAUSE = Cause(
    unfit=True,
    fix=(
        check("sudo dmesg | grep -i -e nvrm -e xid -e 'blocked for more'"),
        check("ps -eo pid,stat,wchan:32,args | grep ' D'", "processes that wait in the kernel"),
        run("sudo nvidia-smi --gpu-reset", "if no process uses the GPU", kind=Kind.RESET_GPU),
        reboot("if that hangs, too"),
    ),
    url="https://docs.nvidia.com/deploy/xid-errors/index.html",
    finding="host.driver.call_hangs",
    views=("host.driver.not_gathered",),
)


def find(calls: CallFacts, gpus: ChosenGpus) -> Matches:
    named = {gpu.uuid: f"GPU {gpu.index} ({gpu.uuid})" for gpu in gpus.gpus}
    hung = [one for one in calls.hung if one.of_driver]
    failing = [gpu for gpu in gpus.gpus if any(one.gpu == gpu.uuid for one in hung)]
    rest = gpus.without(failing, "until it is repaired")
    for one in hung[:1]:
        where = f" on {named.get(one.gpu, one.gpu)}" if one.gpu else ""
        others = [f"{other.name} took {other.seconds:.2f} s" for other in calls.calls if other.seconds is not None]
        met = f"{one.probe}: " if one.probe else ""
        yield Match(
            evidence=(
                f"{met}{one.name} did not return within {one.waited_s:.0f} s{where}",
                *([f"the process waits in {one.file}"] if one.file and one.file != one.name else []),
                *others,
            ),
            figures={"call": one.name, "where": where},
            fix=(*CAUSE.fix, rest if one.gpu and rest.change else None),
            stage=Stage.CONTEXT if one.gpu or one.probe else Stage.DRIVER,
        )
