"""`gpudiag trace`: what a program does with its GPUs, and which of its settings hold."""

from __future__ import annotations

import sys
from contextlib import ExitStack, redirect_stdout
from pathlib import Path

import click

from gpudiag.cli.delivery import deliver, reserve
from gpudiag.cli.options import Seconds, debug_option, fault_option, formatted, variable
from gpudiag.errors import UsageError
from gpudiag.text import printable


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--simulate",
    metavar="SPEC",
    help="Run it on simulated GPUs, such as 2x8GiB, as 'gpudiag simulate' does.",
    **variable("SIMULATE"),
)
@fault_option
@click.option(
    "--for",
    "seconds",
    type=Seconds(),
    metavar="SECONDS",
    help="If it still runs after this time, end it (SIGTERM, later SIGKILL), and report.",
    **variable("FOR"),
)
@click.option(
    "--exit-with",
    type=click.Choice(("report", "program")),
    default="report",
    show_default=True,
    help="Whose exit status gpudiag has: that of the report or that of the program.",
    **variable("EXIT_WITH"),
)
@formatted
@debug_option
def trace(
    *,
    command: tuple[str, ...],
    simulate: str | None,
    fault: tuple[str, ...],
    seconds: float | None,
    exit_with: str,
    format_: str,
    output: tuple[Path, ...],
    mask: bool,
    verbose: bool,
) -> int:
    """Run COMMAND unchanged and report what it did with its GPUs: gpudiag trace -- python train.py

    COMMAND is any command that starts Python, a Python file, -m MODULE, or a notebook (.ipynb). Reported are the GPU
    options that it set and which of them hold, where its operations ran, memory, processes and strategies. The
    program's input and output are its own: the report is written to standard error, and to the files of -o.

    Exit status: 0 nothing was ignored, 1 a setting was ignored or an operation fell back to the CPU, 2 wrong usage,
    126 and 127 COMMAND could not be started.
    """
    if sys.platform != "linux":
        raise UsageError(f"gpudiag trace works on Linux only; this is {sys.platform}.")
    from gpudiag.run.machine import start_machine
    from gpudiag.tracing import command as program
    from gpudiag.tracing import report as reports

    if command[:1] == ("--",):
        command = command[1:]
    if not command:
        raise UsageError("a COMMAND is needed, such as: gpudiag trace -- python train.py")
    if fault and not simulate:
        raise UsageError("--fault needs --simulate: faults are injected into simulated machines only.")
    reserve(output)
    with ExitStack() as stack:
        machine = start_machine(simulate, fault, stack)
        ran = program.run(command, reports.environment(machine), seconds, simulated=machine.world.simulated)
        if ran.trace is None:
            return ran.status
        status = ran.status if exit_with == "program" else None
        report = reports.made(ran.trace, ("gpudiag", *map(printable, sys.argv[1:])), machine, status)
        # Standard output is the program's.
        stack.enter_context(redirect_stdout(sys.stderr))
        deliver(report, format_, output, mask=mask, verbose=verbose)
    return report.exit_code
