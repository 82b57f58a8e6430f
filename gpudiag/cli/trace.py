"""`gpudiag trace`: reports how a program uses its GPUs, and which of its settings take effect."""

from __future__ import annotations

import sys
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from typing import ClassVar

import click
from click.core import ParameterSource

from gpudiag.cli import candidates
from gpudiag.cli.binding import takes
from gpudiag.cli.candidates import Word
from gpudiag.cli.delivery import deliver, reserve
from gpudiag.cli.help import ProgramCommand, ProgramWord
from gpudiag.cli.options import Environment, Rendering, Simulation, command_line, debug_option
from gpudiag.errors import UsageError
from gpudiag.option import option
from gpudiag.report import FORMATS


@dataclass(frozen=True)
class Tracing(Simulation):
    """The machine on which a program runs, and its time limit."""

    TITLE: ClassVar[str] = "The run of the program"

    simulate: str | None = option(
        "Run it on simulated GPUs, such as 2x8GiB, as 'gpudiag simulate' does.",
        metavar="SPEC",
        type=Word(candidates.machines),
    )
    for_s: float | None = option(
        "If it still runs after this time, end it (SIGTERM, later SIGKILL), and report.", metavar="SECONDS"
    )
    exit_with: str = option(
        "Exit with the status of the report, or with that of the program.",
        default="report",
        choices=("report", "program"),
    )


@dataclass(frozen=True)
class TraceRendering(Rendering):
    """The format of the report on a program, and the files it goes to."""

    format: str = option(
        "Format of the report on standard error; standard output is the program's.", default="summary", choices=FORMATS
    )


@click.command(cls=ProgramCommand, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("command", nargs=-1, type=ProgramWord())
@takes(tracing=Tracing, environment=Environment, rendering=TraceRendering)
@debug_option
@click.pass_context
def trace(
    context: click.Context,
    *,
    command: tuple[str, ...],
    environment: Environment,
    tracing: Tracing,
    rendering: Rendering,
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
    from gpudiag.examined import choose, examine
    from gpudiag.run.machine import start_machine
    from gpudiag.tracing import command as program
    from gpudiag.tracing import report as reports

    if command[:1] == ("--",):
        command = command[1:]
    if not command:
        raise UsageError("a COMMAND is needed, such as: gpudiag trace -- python train.py")
    tracing.refuse_lone_fault()
    needs_python = program.completed(command) != command
    if not needs_python and context.get_parameter_source("python") is ParameterSource.COMMANDLINE:
        raise UsageError(f"--python has no effect: {command[0]} itself says which Python runs. Leave one of them out.")
    if tracing.simulate:
        examine(environment.python)
    python, _ = choose(environment.python) if needs_python else (None, "")
    reserve(rendering.output)
    with ExitStack() as stack:
        machine = start_machine(tracing.simulate, tracing.fault, stack)
        ran = program.run(
            command,
            reports.environment(machine),
            tracing.for_s,
            simulated=machine.world.simulated,
            python=sys.executable if python is None else python.path,
        )
        if ran.trace is None:
            return ran.status
        status = ran.status if tracing.exit_with == "program" else None
        report = reports.made(ran.trace, command_line(), machine, status)
        # Standard output is the program's.
        stack.enter_context(redirect_stdout(sys.stderr))
        deliver(report, rendering)
    return report.exit_code
