"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from datetime import date, datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from gpudiag.report import FORMATS

if TYPE_CHECKING:
    from gpudiag.model.expectations import Expectations

DEBUG = "--debug"

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Seconds(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2, and not subscriptable before
    """A positive, finite number of seconds; with ``or_none`` also 0, which switches something off."""

    name = "seconds"

    def __init__(self, *, or_none: bool = False) -> None:
        self._or_none = or_none

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(value)
        except (TypeError, ValueError, OverflowError):
            seconds = math.nan
        if not (math.isfinite(seconds) and (seconds > 0 or (self._or_none and seconds == 0))):
            least = "0 (off) or above" if self._or_none else "above 0"
            self.fail(f"{value!r} is not a number of seconds {least}, such as 30 or 2.5.", param, ctx)
        return seconds


class Pattern(click.ParamType):  # type: ignore[type-arg]
    """An area, a probe or a glob that matches a probe."""

    name = "pattern"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from gpudiag.probes import listing

        listing.chosen([value])
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


def config_option(
    configure: Callable[[click.Context, Path | None], None], help_: str
) -> Callable[[_Command], _Command]:
    """Return ``--config``; ``configure`` takes the defaults of the command from the file before options are read."""
    return click.option(
        "--config",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        is_eager=True,
        expose_value=False,
        callback=lambda context, _, path: configure(context, path),
        help=help_,
        **variable("CONFIG"),
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
        help="Write the report to a file as well; format by suffix: .txt .json .html .md .xml .prom. May be repeated.",
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


EXIT_SCHEME = "--exit-scheme"
NAGIOS = "nagios"
exit_scheme_option = click.option(
    EXIT_SCHEME,
    type=click.Choice(("gpudiag", NAGIOS)),
    default="gpudiag",
    show_default=True,
    help="nagios: exit with 0 OK, 1 WARNING, 2 CRITICAL or 3 UNKNOWN, and print the line of a plugin first.",
    **variable("EXIT_SCHEME"),
)


def as_plugin(context: click.Context, exit_scheme: str, format_: str) -> tuple[bool, str]:
    """Return whether the exit status is that of a plugin of Nagios, and the format: also that, if none was given."""
    given = context.get_parameter_source("format_") is not ParameterSource.DEFAULT
    plugin = exit_scheme == NAGIOS
    return plugin, format_ if given or not plugin else NAGIOS


expect_option = click.option(
    "--expect",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="What the machine is expected to be (TOML); what is not met is a failure. See 'gpudiag docs expectations'.",
    **variable("EXPECT"),
)


def expectations(file: Path | None, configuration: Path | None = None) -> Expectations | None:
    """Return what ``file`` expects, or without one the table ``expect`` of the configuration file; None if neither is.

    Raises :class:`gpudiag.errors.UsageError`.
    """
    source = file or configuration
    if source is None:
        return None
    from gpudiag.expectations.file import load

    return load(source, named=file is not None)


def today() -> date:
    """Return the day, UTC as all times of a report, by which waivers expire."""
    return datetime.now(timezone.utc).date()


fault_option = click.option(
    "--fault",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Inject a fault into the simulated machine. May be repeated; see 'gpudiag simulate --list-faults'.",
    **variable("FAULT"),
)


bisect_option = click.option(
    "--bisect",
    type=Seconds(or_none=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="If no GPU is used and why is not proved: how long to look for what in the environment is in the way. 0: off.",
    **variable("BISECT"),
)
catalogue_option = click.option("--no-catalogue", is_flag=True, hidden=True)  # for tests: the causes switched off
