"""`gpudiag why`: reports only the cause, for this machine or for a log."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import click
from click.core import ParameterSource

from gpudiag.cli import candidates
from gpudiag.cli.binding import takes
from gpudiag.cli.candidates import Word
from gpudiag.cli.delivery import deliver, reserve
from gpudiag.cli.help import Command
from gpudiag.cli.options import Environment, ProgressOption, Rendering, Simulation, command_line, debug_option
from gpudiag.errors import UsageError
from gpudiag.option import option
from gpudiag.run.asked import SearchOptions


@dataclass(frozen=True)
class LogOrigin(Simulation):
    """The machine that a log is from, or that is examined."""

    TITLE: ClassVar[str] = "The machine"

    here: bool = option("The LOG comes from this machine: examine the machine, too.", default=False)
    simulate: str | None = option(
        "Without LOG or with --here: look at simulated GPUs, as 'gpudiag check --simulate' does.",
        metavar="SPEC",
        type=Word(candidates.machines),
    )


@click.command(cls=Command)
@click.argument("log", nargs=-1, type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True))
@takes(place=LogOrigin, environment=Environment, search=SearchOptions, rendering=Rendering, progress=ProgressOption)
@debug_option
@click.pass_context
def why(
    context: click.Context,
    *,
    log: tuple[Path, ...],
    environment: Environment,
    place: LogOrigin,
    search: SearchOptions,
    rendering: Rendering,
    progress: ProgressOption,
) -> int:
    """Say why no GPU is used, or why a program fails on one.

    LOG is what a program printed (- for standard input), on any machine: its lines are explained, and this machine is
    not examined. What is piped in is the log, too: python train.py 2>&1 | gpudiag why. Without a log this machine is
    examined, and the report has no table of probes: gpudiag check has that.

    Exit status: 0 nothing wrong was found, 1 a cause was found, 2 wrong usage, 3 gpudiag broke, 5 nothing could be
    said.
    """
    from gpudiag import catalogue, isolate
    from gpudiag.cli import program_log
    from gpudiag.cli import progress as shown
    from gpudiag.comparison import kept
    from gpudiag.examined import Examined, examine
    from gpudiag.model.report import why_exit_code
    from gpudiag.run import why as reasons
    from gpudiag.run.machine import start_machine
    from gpudiag.run.signals import Signals

    place.refuse_lone_fault()
    examined = Examined() if log and not place.here else examine(environment.python)
    simulated_here = not place.here and context.get_parameter_source("simulate") is ParameterSource.COMMANDLINE
    reserve(rendering.output)
    command = command_line()
    with ExitStack() as stack:
        signals = stack.enter_context(Signals())

        def stopped() -> bool:
            return signals.received is not None

        texts = [program_log.read(path, stopped, option="") for path in log]
        if not log and not simulated_here and program_log.is_piped():
            texts = [program_log.read_piped(stopped, quiet=progress.quiet)]
        lines = tuple(line for text in texts for line in text.lines)
        notes = tuple(note for text in texts for note in text.notes)
        if signals.received is not None:  # a pipe may never end: what came until then is explained
            if all(text.is_empty for text in texts):
                return 128 + signals.received
            notes += (f"reading ended at {signal.Signals(signals.received).name}: what came after it was not read",)
        if texts and (not place.here or signals.received is not None):
            report = reasons.explained(lines, command, notes)
        else:
            if examined.impossible:
                raise UsageError(*examined.notes)
            from gpudiag.run import runner
            from gpudiag.run.options import Options

            options = Options(
                entries=catalogue.select(reasons.PROBES),
                level="full",
                lines=lines,
                isolation="fork" if isolate.fork_refusal() is None else "spawn",
                command=command,
                notes=examined.notes,
                machine=start_machine(place.simulate, place.fault, stack),
                **vars(search),
            )
            with shown.Progress(quiet=progress.quiet, verbose=rendering.verbose) as observer:
                report = runner.run(options, observer, signals)
            if why_exit_code(report):
                report = kept.since_last_pass(report)
        deliver(report, rendering, head=True, quiet=progress.quiet)
    return why_exit_code(report) if signals.received is None else 128 + signals.received
