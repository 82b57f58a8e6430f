"""`gpudiag check`: runs the probes and reports their findings."""

from __future__ import annotations

import math
import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import click
from click.core import ParameterSource

from gpudiag.cli.binding import takes
from gpudiag.cli.candidates import SavedReport
from gpudiag.cli.delivery import deliver, reserve, summarize
from gpudiag.cli.help import Command
from gpudiag.cli.options import (
    Environment,
    Judging,
    ProbePattern,
    ProgressOption,
    Rendering,
    Simulation,
    as_plugin,
    command_line,
    config_option,
    debug_option,
    exit_status,
    expectations,
    today,
)
from gpudiag.errors import UsageError
from gpudiag.option import option
from gpudiag.run.asked import Demands, RequestedRun, SearchOptions
from gpudiag.text import one_line, printable, say

if TYPE_CHECKING:
    from gpudiag.catalogue import Entry
    from gpudiag.model.expectations import Expectations
    from gpudiag.model.report import Report, Settings
    from gpudiag.run.machine import ExaminedMachine
    from gpudiag.run.options import Options
    from gpudiag.run.signals import Signals

_FOUND = "gpudiag.configuration"


def _configure(context: click.Context, path: Path | None) -> None:
    """Take the defaults of the command from its configuration file, before its options are read."""
    from gpudiag import cli
    from gpudiag.cli import config

    for note in config.misspelt_variables(os.environ, [cli.cli, *cli.commands().values()]):
        say(f"gpudiag: note: {note}")
    context.meta[_FOUND] = config.take_defaults(context, path, context.command.params)


@dataclass(frozen=True)
class Selecting:
    """Which of the selected probes run."""

    TITLE: ClassVar[str] = "What runs, and how long"

    skip: tuple[str, ...] = option(
        "Leave out an area, a probe or a glob, as of SELECT. May be repeated.",
        default=(),
        metavar="NAME",
        type=ProbePattern(),
    )
    failed: bool = option(
        "Run only what did not pass and has not passed since, whatever the level, and what the diagnosis needs.",
        default=False,
    )


@dataclass(frozen=True)
class Comparing:
    """Other inputs of the check, and what its report is compared with."""

    TITLE: ClassVar[str] = "Logs and earlier reports"

    log: Path | None = option(
        "Output of your own program (- for standard input), which the diagnosis reads too.",
        type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
    )
    baseline: Path | None = option(
        "Say what changed since this saved report (JSON), not since the last PASS.",
        metavar="REPORT",
        type=SavedReport(path_type=Path, exists=True, dir_okay=False),
    )
    keep_last_pass: bool = option(
        "Keep the last report for --failed and 'gpudiag show --last', and the last PASS to say what changed since.",
        default=True,
    )


@click.command(cls=Command)
@click.argument("select", nargs=-1, type=ProbePattern())
@takes(
    selecting=Selecting,
    asked=RequestedRun,
    search=SearchOptions,
    environment=Environment,
    simulation=Simulation,
    demands=Demands,
    judging=Judging,
    rendering=Rendering,
    comparing=Comparing,
    progress=ProgressOption,
)
@config_option(
    _configure,
    "Configuration file, even if it belongs to another user. [default: the nearest gpudiag.toml, or "
    "pyproject.toml with [tool.gpudiag], upwards, that is yours or root's]",
)
@debug_option
@click.pass_context
def check(
    context: click.Context,
    *,
    select: tuple[str, ...],
    environment: Environment,
    selecting: Selecting,
    simulation: Simulation,
    asked: RequestedRun,
    search: SearchOptions,
    demands: Demands,
    judging: Judging,
    rendering: Rendering,
    comparing: Comparing,
    progress: ProgressOption,
) -> int:
    """Run the probes and report what they found.

    SELECT are areas (placement), probes (memory.growth) or globs ('*.list_*'); none means all. See 'gpudiag list'.

    Exit status: 0 passed, 1 something failed, 2 wrong usage, 3 gpudiag or a probe broke, 5 not every GPU was verified.
    """
    from gpudiag.examined import examine
    from gpudiag.run.machine import start_machine
    from gpudiag.run.servers import begun
    from gpudiag.run.signals import Signals

    examined = examine(environment.python)
    asked = replace(asked, isolation=_isolation(asked.isolation))
    simulated_here = _refuse_contradictions(context, simulation, demands)
    plugin, rendering = as_plugin(context, judging, rendering)
    reserve(rendering.output)
    settings, notes = _configuration(context)
    with ExitStack() as stack:
        signals = stack.enter_context(Signals())  # until the report is delivered
        lines, of_log, left_s = _read_log(comparing.log, asked.deadline_s, signals)
        machine = start_machine(simulation.simulate, simulation.fault, stack)
        expected = expectations(judging.expect, context.meta[_FOUND].file)
        names, of_selection = _names(select, selecting, machine, demands, expected)
        if examined.impossible:
            say(f"gpudiag: {examined.notes[0]}")
            names = tuple(name for name in names if name.startswith("host."))
        tensorflow = asked.isolation == "fork" and any(not name.startswith("host.") for name in names)
        children = stack.enter_context(begun(machine, asked.timeout_s, tensorflow=tensorflow))

        # The rest is imported while a server imports TensorFlow, which takes longer.
        from gpudiag.cli import progress as shown
        from gpudiag.comparison import kept
        from gpudiag.comparison.reports import ComparedReport
        from gpudiag.model.report import Limits
        from gpudiag.run import runner

        # Who names probes wants them all; those that failed were chosen at the level of their run.
        level = "full" if selecting.failed else asked.level or ("full" if select or asked.disturb else None)
        entries = _entries(names, select, level, failed=selecting.failed)
        _refuse_wrong_times(context, asked, entries)
        if examined.impossible:
            entries = tuple(entry for entry in entries if "tensorflow" not in entry.probe.families)
        compared_with = None if comparing.baseline is None else ComparedReport.load(comparing.baseline)
        options = replace(
            _options(entries, replace(asked, level=level, deadline_s=left_s), search),
            lines=lines,
            limits=Limits(count_simulated=simulated_here, **vars(demands)),
            settings=settings,
            notes=(*examined.notes, *notes, *of_log, *of_selection),
            not_examined=f"{examined.impossible} is not examined" if examined.impossible else "",
            skip=selecting.skip,
            machine=machine,
        )
        with shown.Progress(quiet=progress.quiet, verbose=rendering.verbose) as observer:
            report = runner.run_on(children, options, observer, signals)
        report = kept.with_changes(_judged(report, expected), compared_with, keep=comparing.keep_last_pass)
        summarize(report, mask=rendering.mask)
        deliver(report, rendering, quiet=progress.quiet)
    return exit_status(report, plugin=plugin)


def _names(
    select: tuple[str, ...],
    selecting: Selecting,
    machine: ExaminedMachine,
    demands: Demands,
    expected: Expectations | None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the probes to run, and notes about the choice; raises ``UsageError`` if none is left."""
    from gpudiag.probes import listing

    names, note = listing.chosen(select), ""
    if selecting.failed:
        from gpudiag.comparison import failed, kept
        from gpudiag.model.report import Limits

        last = kept.last_run(machine.world)
        must_pass = () if expected is None else expected.must_pass or ()
        names, note = failed.select(last, names, Limits(**vars(demands)).failing, must_pass)
    remaining = tuple(name for name in names if not listing.matches(name, selecting.skip))
    if not remaining:
        raise UsageError(
            f"--skip {' --skip '.join(selecting.skip)} leaves out every selected probe. See 'gpudiag list'."
        )
    return remaining, (note,) if note else ()


def _options(entries: tuple[Entry, ...], asked: RequestedRun, search: SearchOptions) -> Options:
    """Return the options of the run from these options of the command."""
    from gpudiag.run.options import Options

    return Options(entries, **{**vars(search), **vars(asked)}, command=command_line())


def _judged(report: Report, expected: Expectations | None) -> Report:
    """Return the report, compared with the expectations of the machine."""
    if expected is None:
        return report
    from gpudiag.expectations.judging import judged

    return judged(report, expected, today())


def _refuse_contradictions(context: click.Context, simulation: Simulation, demands: Demands) -> bool:
    """Return whether the command line itself requests a simulation; raises ``UsageError`` for contradictory options."""
    here = context.get_parameter_source("simulate") is ParameterSource.COMMANDLINE
    if demands.require_gpus and simulation.simulate and not here:
        raise UsageError(
            "--require-gpus asks for real GPUs, but the simulation comes from GPUDIAG_SIMULATE or a configuration "
            "file. Unset it, or write --simulate beside --require-gpus to count simulated GPUs."
        )
    simulation.refuse_lone_fault()
    return here


def _read_log(
    log: Path | None, deadline_s: float | None, signals: Signals
) -> tuple[tuple[str, ...], tuple[str, ...], float | None]:
    """Return the lines of a program's log, notes about them, and the remaining time of the run."""
    if log is None:
        return (), (), deadline_s
    from gpudiag.cli import program_log

    until = math.inf if deadline_s is None else time.monotonic() + deadline_s
    lines, notes = program_log.read(log, lambda: signals.received is not None or time.monotonic() >= until)
    return lines, notes, None if deadline_s is None else max(round(until - time.monotonic(), 1), 0.1)


def _entries(names: tuple[str, ...], select: tuple[str, ...], level: str | None, *, failed: bool) -> tuple[Entry, ...]:
    """Return the probes with these names that run at this level; raises ``UsageError`` if there are none.

    Level full runs all that the user asks for. A pattern such as ``*`` does not ask for minutes of full load.
    """
    from gpudiag import catalogue
    from gpudiag.run.plan import of_level

    entries = tuple(map(catalogue.get, names))
    if level != "full" or not (select or failed):
        entries = of_level(entries, level or "full")
    elif not failed:
        areas = {pattern.partition(".")[0] for pattern in select}
        entries = tuple(entry for entry in entries if not entry.probe.stress or entry.name.partition(".")[0] in areas)
    if not entries:
        raise UsageError(f"--level {level} leaves nothing of {' '.join(select or names)}. See 'gpudiag list'.")
    return entries


def _refuse_wrong_times(context: click.Context, asked: RequestedRun, entries: tuple[Entry, ...]) -> None:
    """Raise ``UsageError`` if ``--for`` has no effect, or if ``--deadline`` would end the load early."""
    given = context.get_parameter_source("for") is ParameterSource.COMMANDLINE
    if not any(entry.probe.stress for entry in entries):
        if given:
            raise UsageError("--for has no effect: no selected probe loads the GPUs. Add --level stress.")
        return
    if asked.deadline_s is not None and asked.deadline_s <= asked.for_s:
        raise UsageError(
            f"--deadline {asked.deadline_s:g} would end the run before the GPUs were under load for {asked.for_s:g} s. "
            f"Give a --deadline of {asked.for_s + 60:g} or more, or a shorter --for."
        )


def _isolation(asked: str | None) -> str:
    """Return how each probe gets a process; raises ``UsageError`` if this system does not support the requested way."""
    from gpudiag import isolate

    refusal = isolate.fork_refusal()
    if asked == "fork" and refusal is not None:
        raise UsageError(refusal)
    return asked or ("fork" if refusal is None else "spawn")


def _configuration(context: click.Context) -> tuple[Settings | None, tuple[str, ...]]:
    """Return the settings of the configuration file for this run, and a note for each file that was ignored."""
    from gpudiag.cli import config
    from gpudiag.configuration import ConfigurationFile
    from gpudiag.model.report import Settings

    found: ConfigurationFile = context.meta[_FOUND]
    notes = tuple(map(printable, found.ignored))
    if found.file is None:
        return None, notes
    values = {
        config.key_of(parameter): printable(config.value_text(context.params[parameter.name]))
        for parameter in context.command.params
        if parameter.name and context.get_parameter_source(parameter.name) is ParameterSource.DEFAULT_MAP
    }
    settings = Settings(printable(str(found.file)), values)
    say(one_line(f"gpudiag: {settings.text}"))
    return settings, notes
