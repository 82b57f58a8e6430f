"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import math
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import click
from click.core import ParameterSource

from gpudiag.cli import candidates
from gpudiag.cli.candidates import Word
from gpudiag.cli.help import GroupedOption
from gpudiag.errors import UsageError
from gpudiag.option import option
from gpudiag.report import FORMATS, FRAME, LABEL
from gpudiag.text import printable

if TYPE_CHECKING:
    from gpudiag.model.expectations import Expectations
    from gpudiag.model.report import Report

DEBUG = "--debug"

_Command = TypeVar("_Command", bound=Callable[..., Any])


_UNITS = {"s": 1, "m": 60, "h": 3600}


class Seconds(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2, and not subscriptable before
    """A positive, finite number of seconds, or of minutes or hours with its unit (``5m``); with ``or_none`` also 0,
    which switches something off."""

    name = "seconds"

    def __init__(self, *, or_none: bool = False) -> None:
        self._or_none = or_none

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            unit = str(value)[-1:]
            seconds = float(str(value)[:-1]) * _UNITS[unit] if unit in _UNITS else float(value)
        except (TypeError, ValueError, OverflowError):
            seconds = math.nan
        if not (math.isfinite(seconds) and (seconds > 0 or (self._or_none and seconds == 0))):
            least = "0 (off) or above" if self._or_none else "above 0"
            self.fail(f"{value!r} is not a number of seconds {least}, such as 30, 2.5 or 5m.", param, ctx)
        return seconds


class ProbePattern(Word):
    """An area, a probe or a glob that matches a probe."""

    name = "pattern"

    def __init__(self) -> None:
        super().__init__(candidates.probes)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from gpudiag.probes import listing

        listing.chosen([value])
        return str(value)


class ReportFile(click.Path):
    """A file for a report, in the format of its suffix."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        from gpudiag.report import format_of
        from gpudiag.report.files import is_termination_message

        if value == "":
            self.fail("the name of the file is empty.", param, ctx)
        path = Path(os.fsdecode(value))
        if "\0" in str(path):
            self.fail("the name of the file holds a NUL character.", param, ctx)
        if not is_termination_message(path):
            format_of(path)
        return path


def variable(name: str) -> dict[str, Any]:
    """Return the arguments that let ``GPUDIAG_<NAME>`` set an option and ``--help`` show it."""
    return {"envvar": f"GPUDIAG_{name}", "show_envvar": True}


debug_option = click.option(
    DEBUG, is_flag=True, expose_value=False, help="Show a traceback if something fails.", **variable("DEBUG")
)


def config_option(
    configure: Callable[[click.Context, Path | None], None], help_: str
) -> Callable[[_Command], _Command]:
    """Return ``--config``; ``configure`` takes the defaults of the command from the file before options are read."""
    return click.option(
        "--config",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        is_eager=True,
        expose_value=False,
        callback=lambda context, _, path: None if context.resilient_parsing else configure(context, path),
        help=help_,
        cls=GroupedOption,
        group="Configuration",
        **variable("CONFIG"),
    )


@dataclass(frozen=True)
class Rendering:
    """The format of a report, and the files it goes to."""

    TITLE: ClassVar[str] = "Output"

    format: str = option(
        f"Format of the report on standard output: {', '.join(FORMATS)}; {LABEL} for scripts; {FRAME} for 'gpudiag "
        "fleet'.",
        default="summary",
        choices=(*FORMATS, LABEL, FRAME),
        metavar="NAME",
    )
    output: tuple[Path, ...] = option(
        "Write the report to a file as well; format by suffix: .txt .json .html .md .xml .prom. May be repeated.",
        default=(),
        flags=("-o",),
        type=ReportFile(),
    )
    mask: bool = option(
        "Keep only words that gpudiag knows: no names, paths, UUIDs; for reports that are shared.", default=False
    )
    verbose: bool = option("Say more: where operations ran.", default=False, flags=("-v",))


FAULT_HELP = "Inject a fault into the simulated machine. May be repeated; see 'gpudiag simulate --list-faults'."


@dataclass(frozen=True)
class Simulation:
    """The simulated machine that a command works on, if one is requested."""

    TITLE: ClassVar[str] = "Simulation"

    simulate: str | None = option(
        "Run on simulated GPUs, such as 2, 4x16GiB, 2x80GiB:H100,1x16GiB:T4, or machine.toml.",
        metavar="SPEC",
        type=Word(candidates.machines),
    )
    fault: tuple[str, ...] = option(FAULT_HELP, default=(), metavar="NAME[=VALUE]", type=Word(candidates.faults))

    def refuse_lone_fault(self) -> None:
        """Raise :class:`UsageError` for a fault without a simulated machine."""
        if self.fault and not self.simulate:
            raise UsageError("--fault needs --simulate: faults are injected into simulated machines only.")


@dataclass(frozen=True)
class Environment:
    """The environment of Python that a command examines."""

    TITLE: ClassVar[str] = "What is examined"

    python: str | None = option(
        "Examine the environment of this Python: the path of an interpreter, a folder that has bin/python, or the name "
        "of an environment of conda. [default: that of gpudiag, or the active one if only that has TensorFlow]",
        metavar="ENVIRONMENT",
    )


@dataclass(frozen=True)
class ProgressOption:
    """The progress messages of a command."""

    TITLE: ClassVar[str] = "Output"

    quiet: bool = option("No progress on standard error.", default=False, flags=("-q",))


EXIT_SCHEME = "--exit-scheme"
NAGIOS = "nagios"


@dataclass(frozen=True)
class Judging:
    """The options for judging a report, and for its reader."""

    TITLE: ClassVar[str] = "Verdict and exit status"

    expect: Path | None = option(
        "Expectations of the machine (TOML); one that is not met is a failure. See 'gpudiag docs expectations'.",
        metavar="FILE",
    )
    exit_scheme: str = option(
        "nagios: exit with 0 OK, 1 WARNING, 2 CRITICAL or 3 UNKNOWN, and print the line of a plugin first.",
        default="gpudiag",
        choices=("gpudiag", NAGIOS),
    )


def command_line() -> tuple[str, ...]:
    """Return the words of this command; on a simulated machine with those that start a command there."""
    from gpudiag.simulator import COMMAND_VARIABLE

    within = shlex.split(os.environ.get(COMMAND_VARIABLE, ""))
    return (*map(printable, within), "gpudiag", *map(printable, sys.argv[1:]))


def as_plugin(context: click.Context, judging: Judging, rendering: Rendering) -> tuple[bool, Rendering]:
    """Return whether the exit status is that of a Nagios plugin, and use its format if no other was given."""
    given = context.get_parameter_source("format") is not ParameterSource.DEFAULT
    plugin = judging.exit_scheme == NAGIOS
    return plugin, replace(rendering, format=NAGIOS) if plugin and not given else rendering


def exit_status(report: Report, *, plugin: bool) -> int:
    """Return the exit status of a report for a shell or for Nagios."""
    if not plugin:
        return report.exit_code
    from gpudiag.report.formats import nagios

    return nagios.status(report)


def expectations(file: Path | None, configuration: Path | None = None) -> Expectations | None:
    """Return the expectations in ``file``, or else in the table ``expect`` of the configuration file; None if there are
    none.

    Raises :class:`gpudiag.errors.UsageError`.
    """
    source = file or configuration
    if source is None:
        return None
    from gpudiag.expectations.file import load

    return load(source, named=file is not None)


def today() -> date:
    """Return the current day in UTC, like all times of a report; waivers expire by it."""
    return datetime.now(timezone.utc).date()
