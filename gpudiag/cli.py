"""The command line: arguments in, exit code out; no logic."""

from __future__ import annotations

import io
import math
import os
import shutil
import signal
import sys
import time
import traceback
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

import gpudiag
from gpudiag.errors import CatalogueError, GpudiagError, OutputError, UsageError, shortage
from gpudiag.plaintext import one_line, printable
from gpudiag.report import FORMATS
from gpudiag.speech import put, say

if TYPE_CHECKING:
    from gpudiag.model import Settings

DEBUG = "--debug"
MOST_COLUMNS = 1000
"""Whatever ``COLUMNS`` says."""


class Seconds(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2, and not subscriptable before
    """A positive, finite number of seconds."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(value)
        except (TypeError, ValueError, OverflowError):
            seconds = math.nan
        if not (math.isfinite(seconds) and seconds > 0):
            self.fail(f"{value!r} is not a number of seconds above 0, such as 30 or 2.5.", param, ctx)
        return seconds


class Pattern(click.ParamType):  # type: ignore[type-arg]
    """An area, a probe or a glob that matches a probe."""

    name = "pattern"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from gpudiag import catalogue

        catalogue.select([value])
        return str(value)


class ReportFile(click.Path):
    """A file for a report, in the format of its suffix."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        from gpudiag.report import format_of

        if value == "":
            self.fail("the name of the file is empty.", param, ctx)
        path = Path(os.fsdecode(value))
        if "\0" in str(path):
            self.fail("the name of the file holds a NUL character.", param, ctx)
        format_of(path)
        return path


def variable(name: str) -> dict[str, Any]:
    """Return the arguments that let ``GPUDIAG_<NAME>`` set an option and ``--help`` show it."""
    return {"envvar": f"GPUDIAG_{name}", "show_envvar": True}


debug_option = click.option(
    DEBUG, is_flag=True, expose_value=False, help="Show a traceback if something fails.", **variable("DEBUG")
)

format_options = [
    click.option(
        "--format",
        "format_",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="Format of the report on standard output.",
        **variable("FORMAT"),
    ),
    click.option(
        "-o",
        "--output",
        type=ReportFile(),
        multiple=True,
        help="Write the report to a file as well; format by suffix: .txt .json .md .xml. May be repeated.",
        **variable("OUTPUT"),
    ),
    click.option(
        "--mask",
        is_flag=True,
        help="Keep only words that gpudiag knows: no names, paths, UUIDs; for reports that are shared.",
        **variable("MASK"),
    ),
    click.option("-v", "--verbose", is_flag=True, help="Say more: where operations ran.", **variable("VERBOSE")),
]


def formatted(command: Any) -> Any:
    """Add the options that say how a report is rendered and where it goes."""
    for option in reversed(format_options):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(gpudiag.__version__, prog_name="gpudiag")
@debug_option
def cli() -> None:
    """Find out whether TensorFlow sees this machine's GPUs, and whether it honours how they are configured."""


fault_option = click.option(
    "--fault",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Inject a fault into the simulated machine. May be repeated; see 'gpudiag simulate --list-faults'.",
    **variable("FAULT"),
)


@cli.command()
@click.argument("select", nargs=-1, type=Pattern())
@click.option(
    "--simulate",
    metavar="SPEC",
    help="Run on simulated GPUs, such as 2, 4x16GiB, 2x80GiB:H100,1x16GiB:T4, or machine.toml.",
    **variable("SIMULATE"),
)
@fault_option
@click.option(
    "--level",
    type=click.Choice(("quick", "full")),
    help="quick: only probes that fill no memory and are safe beside running jobs. [default: full, but quick if "
    "other processes use a GPU and no SELECT is given]",
    **variable("LEVEL"),
)
@click.option(
    "--disturb",
    is_flag=True,
    help="Measure and fill memory on GPUs that other processes use, too.",
    **variable("DISTURB"),
)
@click.option(
    "--isolation",
    type=click.Choice(("fork", "spawn")),
    help="How each probe gets a process: forked from one that has imported TensorFlow, or a new interpreter. "
    "[default: fork on Linux, spawn elsewhere]",
    **variable("ISOLATION"),
)
@click.option(
    "--timeout", type=Seconds(), help="Seconds for each probe, and for the import of TensorFlow.", **variable("TIMEOUT")
)
@click.option("--deadline", type=Seconds(), help="Seconds for the whole run.", **variable("DEADLINE"))
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    help="Probes at the same time. [default: as processors and memory allow]",
    **variable("JOBS"),
)
@click.option(
    "--lock-wait",
    type=Seconds(),
    default=300.0,
    show_default=True,
    help="Seconds that a probe waits for a GPU which another run of gpudiag holds.",
    **variable("LOCK_WAIT"),
)
@click.option(
    "--require-gpus",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Fail if fewer than N GPUs are in scope.",
    **variable("REQUIRE_GPUS"),
)
@click.option("--allow-no-gpu", is_flag=True, help="Exit with 0 if the machine has no GPU.", **variable("ALLOW_NO_GPU"))
@click.option("--strict", is_flag=True, help="Count warnings as failures.", **variable("STRICT"))
@formatted
@click.option(
    "--log",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
    help="Output of your own program (- for standard input), which the diagnosis reads too.",
    **variable("LOG"),
)
@click.option("-q", "--quiet", is_flag=True, help="No progress on standard error.", **variable("QUIET"))
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    is_eager=True,
    expose_value=False,
    callback=lambda context, _, path: _configure(context, path),
    help="Configuration file, even if it belongs to another user. [default: the nearest gpudiag.toml, or "
    "pyproject.toml with [tool.gpudiag], upwards, that is yours or root's]",
    **variable("CONFIG"),
)
@debug_option
@click.pass_context
def check(
    context: click.Context,
    *,
    select: tuple[str, ...],
    simulate: str | None,
    fault: tuple[str, ...],
    level: str | None,
    disturb: bool,
    isolation: str | None,
    timeout: float | None,
    deadline: float | None,
    jobs: int | None,
    lock_wait: float,
    require_gpus: int,
    allow_no_gpu: bool,
    strict: bool,
    format_: str,
    output: tuple[Path, ...],
    mask: bool,
    verbose: bool,
    log: Path | None,
    quiet: bool,
) -> int:
    """Run the probes and report what they found.

    SELECT are areas (placement), probes (memory.growth) or globs ('*.list_*'); none means all. See 'gpudiag list'.

    Exit status: 0 passed, 1 something failed, 2 wrong usage, 3 gpudiag or a probe broke, 5 nothing was verified.
    """
    from gpudiag import catalogue, isolate, programlog, runner, world
    from gpudiag.model import Limits
    from gpudiag.progress import Progress
    from gpudiag.signals import Signals

    refusal = isolate.fork_refusal()
    if isolation == "fork" and refusal is not None:
        raise UsageError(refusal)
    asked_here = context.get_parameter_source("simulate") is ParameterSource.COMMANDLINE
    if require_gpus and simulate and not asked_here:
        raise UsageError(
            "--require-gpus asks for real GPUs, but the simulation comes from GPUDIAG_SIMULATE or a configuration "
            "file. Unset it, or write --simulate beside --require-gpus to count simulated GPUs."
        )
    if fault and not simulate:
        raise UsageError("--fault needs --simulate: faults are injected into simulated machines only.")
    entries = catalogue.select(select)
    if level == "quick" and not any(entry.probe.quick for entry in entries):
        raise UsageError(f"--level quick leaves nothing of {' '.join(select)}. See 'gpudiag list'.")
    if level is None and (select or disturb):
        level = "full"  # a user who names probes, or accepts disturbing, wants them all
    _reserve(output)
    settings, notes = _configuration(context)
    with ExitStack() as stack:
        signals = stack.enter_context(Signals())  # until the report is delivered
        lines: tuple[str, ...] = ()
        if log is not None:
            until = math.inf if deadline is None else time.monotonic() + deadline
            lines = programlog.read(log, lambda: signals.received is not None or time.monotonic() >= until)
            if deadline is not None:
                deadline = max(round(until - time.monotonic(), 1), 0.1)
        options = runner.Options(
            entries=entries,
            level=level,
            disturb=disturb,
            lines=lines,
            isolation=isolation or ("fork" if refusal is None else "spawn"),
            jobs=jobs,
            timeout_s=timeout,
            deadline_s=deadline,
            limits=Limits(
                require_gpus=require_gpus, count_simulated=asked_here, allow_no_gpu=allow_no_gpu, strict=strict
            ),
            lock_wait_s=lock_wait,
            settings=settings,
            notes=notes,
            command=("gpudiag", *map(printable, sys.argv[1:])),
            machine=world.machine(simulate, fault, stack),
        )
        with Progress(quiet=quiet, verbose=verbose) as progress:
            report = runner.run(options, progress, signals)
        _deliver(report, format_, output, mask=mask, verbose=verbose)
    return report.exit_code


@cli.command()
@click.argument("log", nargs=-1, type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True))
@click.option("--here", is_flag=True, help="The LOG is of this machine: look at the machine, too.", **variable("HERE"))
@click.option(
    "--simulate",
    metavar="SPEC",
    help="Without LOG or with --here: look at simulated GPUs, as 'gpudiag check --simulate' does.",
    **variable("SIMULATE"),
)
@fault_option
@formatted
@click.option("-q", "--quiet", is_flag=True, help="No progress on standard error.", **variable("QUIET"))
@debug_option
def why(
    *,
    log: tuple[Path, ...],
    here: bool,
    simulate: str | None,
    fault: tuple[str, ...],
    format_: str,
    output: tuple[Path, ...],
    mask: bool,
    verbose: bool,
    quiet: bool,
) -> int:
    """Say why no GPU is used, or why a program fails on it: the cause, what shows it, and the fix.

    LOG is what a program printed (- for standard input), on whatever machine: its lines are explained, and nothing of
    this machine is looked at. Without LOG it is this machine, without the table of probes: gpudiag check has that.

    Exit status: 0 nothing wrong was found, 1 a cause was found, 2 wrong usage, 3 gpudiag broke, 5 nothing could be
    said.
    """
    from gpudiag import catalogue, isolate, programlog, runner, world
    from gpudiag import why as reasons
    from gpudiag.progress import Progress
    from gpudiag.signals import Signals

    if fault and not simulate:
        raise UsageError("--fault needs --simulate: faults are injected into simulated machines only.")
    _reserve(output)
    command = ("gpudiag", *map(printable, sys.argv[1:]))
    with ExitStack() as stack:
        signals = stack.enter_context(Signals())
        lines = tuple(
            line for path in log for line in programlog.read(path, lambda: signals.received is not None, option="")
        )
        if signals.received is not None:
            return 128 + signals.received
        if log and not here:
            report = reasons.explained(lines, command)
        else:
            options = runner.Options(
                entries=catalogue.select(reasons.PROBES),
                level="full",
                lines=lines,
                isolation="fork" if isolate.fork_refusal() is None else "spawn",
                command=command,
                machine=world.machine(simulate, fault, stack),
            )
            with Progress(quiet=quiet, verbose=verbose) as progress:
                report = runner.run(options, progress, signals)
        _deliver(report, format_, output, mask=mask, verbose=verbose, head=True)
    return reasons.exit_code(report)


@cli.command(context_settings={"ignore_unknown_options": True})
@click.argument("spec", required=False)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@fault_option
@click.option("--list-faults", is_flag=True, help="List the faults that can be injected.")
@debug_option
def simulate(spec: str | None, command: tuple[str, ...], fault: tuple[str, ...], list_faults: bool) -> int:
    """Run COMMAND on a machine with simulated GPUs: gpudiag simulate 4x16GiB -- python train.py

    SPEC is a number of GPUs (2), with memory (4x16GiB) or a card (2x80GiB:H100,1x16GiB:T4), or a TOML file. The exit
    status is the command's.
    """
    from gpudiag import simulator

    if list_faults:
        put(f"{simulator.catalogue_text()}\n")
        return 0
    if not spec or not command:
        raise UsageError("a SPEC and a COMMAND are needed, such as: gpudiag simulate 2 -- python train.py")
    return simulator.run(command, spec, fault)


@cli.command()
@click.argument("report", type=click.Path(path_type=Path))
@formatted
@click.option(
    "--rejudge",
    is_flag=True,
    help="Judge its readings again, by the probes of this gpudiag.",
    **variable("REJUDGE"),
)
@debug_option
def show(*, report: Path, format_: str, output: tuple[Path, ...], mask: bool, verbose: bool, rejudge: bool) -> int:
    """Render a saved REPORT (JSON) again; needs neither TensorFlow nor a GPU. Exits with 0 if that worked."""
    from gpudiag import codec

    loaded = codec.load(report)
    if rejudge:
        from gpudiag import runner

        loaded = runner.rejudge_apart(loaded)
    _reserve(output)
    _deliver(loaded, format_, output, mask=mask, verbose=verbose)
    return 0


@cli.command(name="list")
@click.argument("select", nargs=-1)
@debug_option
def list_(select: tuple[str, ...]) -> int:
    """List the probes: name, what each needs, and what it shows."""
    from gpudiag import catalogue, describe

    put(describe.listing(catalogue.select(select), _width()))
    return 0


@cli.command()
@click.argument("name")
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    help="A saved report (JSON): show what the probe measured there, or what it says of the cause.",
    **variable("REPORT"),
)
@debug_option
def explain(*, name: str, report: Path | None) -> int:
    """Say what the probe NAME does, why it matters, what a failure means and what to do.

    NAME may also be a cause that the diagnosis found.
    """
    from gpudiag import catalogue, causes, codec, describe

    saved = None if report is None else codec.load(report)
    if "." not in name and (rule := causes.get(name)) is not None:
        put(describe.rule_explanation(rule, _width(), saved))
        return 0
    entry = catalogue.get(name, also=list(causes.names()))
    put(describe.explanation(entry, _width(), saved))
    return 0


@cli.command(name="docs", context_settings={"ignore_unknown_options": True})
@click.argument("topic", nargs=-1, type=click.UNPROCESSED)
@debug_option
def docs_(topic: tuple[str, ...]) -> int:
    """Read the manual: the list of its pages, or what it says about TOPIC.

    TOPIC is a page (start), a probe, a cause, an option (--log), or words: gpudiag docs memory growth. After the name
    of a page, words are looked for in that page: gpudiag docs deployment slurm. Filled for a terminal, with colour;
    Markdown otherwise.
    """
    from gpudiag import docs

    text = docs.answer(topic)
    if _on_terminal():
        from gpudiag.docs.terminal import rendered

        color = _in_color()
        put(rendered(text, _width(), color=color), color=color)
    else:
        put(text)
    return 0


@cli.command()
@debug_option
def schema() -> int:
    """Print the JSON Schema of a report."""
    from gpudiag import codec

    put(codec.schema_text(), "json")
    return 0


def main() -> NoReturn:
    """Run the command line, print errors as sentences, exit with its status."""
    sys.exit(_status())


def _status() -> int:
    """Run the command line and return its exit status."""
    try:
        status = int(cli.main(prog_name="gpudiag", standalone_mode=False) or 0)
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        say(shown.getvalue().rstrip("\n"))
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return 128 + signal.SIGINT
    except Exception as error:
        if DEBUG in sys.argv or _is_on(os.environ.get("GPUDIAG_DEBUG", "")):
            say(traceback.format_exc().rstrip("\n"))
        return _told(error)
    return status


def _is_on(value: str) -> bool:
    """Return what a variable that switches an option says, as click reads it."""
    try:
        return bool(value) and click.BOOL.convert(value, None, None)
    except click.BadParameter:
        return False


def _told(error: Exception) -> int:
    """Print an error for a person and return its exit status."""
    if isinstance(error, BrokenPipeError):  # the reader has gone, as in 'gpudiag list | head -1'
        _discard_output()
        return 1
    if isinstance(error, GpudiagError):
        say(f"gpudiag: error: {error}")
        return 3 if isinstance(error, CatalogueError | OutputError) else 2
    if isinstance(error, OSError):
        _discard_output()
        say(f"gpudiag: error: {shortage(error)}")
        return 3
    say(f"gpudiag: internal error: {type(error).__name__}: {error}")
    say("This is a bug in gpudiag. Run it again with --debug for the traceback.")
    return 3


def _discard_output() -> None:
    """Let go of what standard output still holds: Python would try to write it when it exits, and complain."""
    if sys.stdout is not None:
        with Path(os.devnull).open("wb") as null:
            os.dup2(null.fileno(), sys.stdout.fileno())


_FOUND = "gpudiag.configuration"


def _configure(context: click.Context, path: Path | None) -> None:
    """Take the defaults of the command from its configuration file, before its options are read."""
    from gpudiag import config

    for note in config.misspelt_variables(os.environ, [cli, *cli.commands.values()]):
        say(f"gpudiag: note: {note}")
    found = config.Found(path)
    if path is None:
        with suppress(FileNotFoundError):  # the working directory was deleted
            found = config.find(Path.cwd())
    for note in found.ignored:
        say(f"gpudiag: note: {note}")
    if found.file is not None:
        context.default_map = config.load(found.file, context.command.params, found=path is None)
    context.meta[_FOUND] = found


def _configuration(context: click.Context) -> tuple[Settings | None, tuple[str, ...]]:
    """Return what the configuration file has set for this run, and a note for each file that was ignored."""
    from gpudiag import config
    from gpudiag.model import Settings

    found: config.Found = context.meta[_FOUND]
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


def _reserve(output: tuple[Path, ...]) -> None:
    """Refuse, before anything runs, a file that cannot be written."""
    if output:
        from gpudiag.output import reserve

        reserve(output)


def _deliver(
    report: Any, format_: str, output: tuple[Path, ...], *, mask: bool, verbose: bool, head: bool = False
) -> None:
    """Write the report to every file and to standard output; what cannot be written costs none of the others."""
    from gpudiag import report as formats
    from gpudiag.output import write

    if mask:
        from gpudiag.masking import mask as masked

        report = masked(report)
    failures = []
    for path in output:
        try:
            text = formats.render(report, formats.format_of(path), width=80, color=False, verbose=verbose, head=head)
            write(path, text)
        except Exception as error:  # a fault of one renderer, too, must not cost the other files
            failures.append(str(error) if isinstance(error, OutputError) else f"{path}: {_fault(error)}")
    color = _in_color()
    try:
        text = formats.render(report, format_, width=_width(), color=color, verbose=verbose, head=head)
        put(text, format_, color=color and format_ == "table")
    except BrokenPipeError:  # nobody wants to read it, which is not a fault
        _discard_output()
    except OSError as error:
        _discard_output()
        failures.append(f"standard output: cannot be written: {error.strerror or error}.")
    except Exception as error:
        failures.append(f"standard output: {_fault(error)}")
    if failures:
        raise OutputError("\ngpudiag: error: ".join(failures))


def _fault(error: Exception) -> str:
    return one_line(f"cannot be written: {type(error).__name__}: {error!a}. This is a bug in gpudiag.")


def _width() -> int:
    """Return the columns of the terminal, or 80 if standard output is not one."""
    return min(shutil.get_terminal_size().columns, MOST_COLUMNS) if _on_terminal() else 80


def _on_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _in_color() -> bool:
    return _on_terminal() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
