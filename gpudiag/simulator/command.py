"""Run any command on a simulated machine: the work of `gpudiag simulate SPEC -- COMMAND...`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from gpudiag import foreground
from gpudiag.simulator.faults import Fault, no_effect
from gpudiag.simulator.machine import COMMAND_VARIABLE, Machine
from gpudiag.simulator.spec import MachineSpec
from gpudiag.simulator.tensorflow_build import cpu_only_tensorflow
from gpudiag.text import say


def run(
    command: Sequence[str],
    spec: str | MachineSpec,
    faults: Iterable[str | Fault] = (),
    environment: Mapping[str, str] | None = None,
    *,
    within: Sequence[str] = (),
) -> int:
    """Run `command` on the machine and return its exit code (128 + n for signal n).

    `within`: the words after `gpudiag simulate` with which the command line starts such a command again. SimulatorError
    is raised before anything runs.
    """
    with Machine(spec, faults) as machine:
        code = run_on(machine.summary, machine.environment(environment), command, within)
        for fault in machine.without_effect():
            say(f"gpudiag: {no_effect(fault)}")
        return code


def run_on(summary: str, environment: Mapping[str, str], command: Sequence[str], within: Sequence[str] = ()) -> int:
    """Run ``command`` in the environment of a simulated machine, which ``summary`` describes; return its exit code.

    ``within`` is that of :func:`run`.
    """
    if within:
        environment = {**environment, COMMAND_VARIABLE: shlex.join(("gpudiag", "simulate", *within, "--"))}
    mask = environment.get("CUDA_VISIBLE_DEVICES")
    masked = "" if mask is None else f", masked by CUDA_VISIBLE_DEVICES={mask!r}"
    say(f"gpudiag: {summary}{masked}")
    warning = cpu_only_tensorflow()
    if warning:
        say(f"gpudiag: {warning}")
    return foreground.run(command, environment).status
