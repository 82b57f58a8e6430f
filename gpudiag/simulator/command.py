"""Run any command on a simulated machine: the work of `gpudiag simulate SPEC -- COMMAND...`."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence

from gpudiag.simulator.faults import Fault, no_effect
from gpudiag.simulator.machine import Machine
from gpudiag.simulator.spec import MachineSpec
from gpudiag.simulator.tensorflow_build import cpu_only_tensorflow
from gpudiag.text import say

# What a terminal or a supervisor may send; the command decides what to make of it.
FORWARDED = {
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
}
_FROM_KERNEL = 0x80  # SI_KERNEL: sent by the terminal, to the command as well

NOT_EXECUTABLE, NOT_FOUND = 126, 127  # as shells say it


def run(
    command: Sequence[str],
    spec: str | MachineSpec,
    faults: Iterable[str | Fault] = (),
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run `command` on the machine and return its exit code (128 + n for signal n).

    SimulatorError is raised before anything runs.
    """
    with Machine(spec, faults) as machine:
        code = run_on(machine.summary, machine.environment(environment), command)
        for fault in machine.without_effect():
            say(f"gpudiag: {no_effect(fault)}")
        return code


def run_on(summary: str, environment: Mapping[str, str], command: Sequence[str]) -> int:
    """Run ``command`` in the environment of a simulated machine, which ``summary`` describes; return its exit code."""
    mask = environment.get("CUDA_VISIBLE_DEVICES")
    masked = "" if mask is None else f", masked by CUDA_VISIBLE_DEVICES={mask!r}"
    say(f"gpudiag: {summary}{masked}")
    warning = cpu_only_tensorflow()
    if warning:
        say(f"gpudiag: {warning}")
    waited_for = FORWARDED | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    try:
        try:
            process = subprocess.Popen(
                command,
                env=environment,
                # One system call, which takes no lock that a thread could hold across the fork.
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),  # noqa: PLW1509  # see above
            )
        except FileNotFoundError:
            say(f"gpudiag: {command[0]}: no such command")
            return NOT_FOUND
        except (PermissionError, OSError) as error:
            say(f"gpudiag: {command[0]}: {error.strerror}")
            return NOT_EXECUTABLE
        code = _wait(process, waited_for)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return 128 - code if code < 0 else code


def _wait(process: subprocess.Popen[bytes], waited_for: set[signal.Signals]) -> int:
    while process.poll() is None:
        received = signal.sigwaitinfo(waited_for)
        by_terminal = received.si_code == _FROM_KERNEL
        if received.si_signo != signal.SIGCHLD and not by_terminal:
            process.send_signal(received.si_signo)
    return process.returncode
