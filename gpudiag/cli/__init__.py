"""The command line: arguments in, exit code out; no logic."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Mapping
from typing import NoReturn

import click

from gpudiag.cli.delivery import discard_output, width
from gpudiag.cli.help import CommandGroup, refusal, write_rows
from gpudiag.cli.options import DEBUG, EXIT_SCHEME, NAGIOS, debug_option
from gpudiag.cli.version import print_version
from gpudiag.errors import (
    CatalogueError,
    GpudiagError,
    OutputError,
    no_memory,
    shortage,
)
from gpudiag.interpreter import said_of
from gpudiag.text import put, say

_GROUPS = {
    "Does TensorFlow use my GPUs, and if not, why": {"check": "check", "why": "why"},
    "What does my program do with them": {"trace": "trace", "lint": "lint"},
    "Are all machines of my cluster fit": {"fleet": "fleet"},
    "Work without a GPU": {"simulate": "simulate"},
    "Use saved reports": {
        "show": "show",
        "diff": "diff",
        "expect": "expect",
        "bundle": "bundle",
        "schema": "show:schema",
    },
    "Read about it": {"explain": "explain", "list": "explain:list_", "docs": "docs:docs_"},
}
"""The commands by what they are for; of each its module, and the function if it has another name."""
_HOMES = {name: home for homes in _GROUPS.values() for name, home in homes.items()}
_LONGEST_SENTENCE = 1000
"""Characters; click would cut longer ones."""
_WIDEST_HELP = 100
_COMPLETE = "_GPUDIAG_COMPLETE"
"""The variable by which a shell asks click for completions."""


class Commands(CommandGroup):
    """Imports a command's file only when the command is used, so that `gpudiag list` starts without `check`'s
    imports."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the manual's order."""
        return list(_HOMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or None if there is none of this name."""
        return command(cmd_name) if cmd_name in _HOMES else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands below the titles of their groups, with the first sentence about each."""
        for title, homes in _GROUPS.items():
            rows = [
                (name, found.get_short_help_str(_LONGEST_SENTENCE))
                for home in homes
                for name, found in _single(home).items()
            ]
            write_rows(formatter, title, rows)


def command(name: str) -> click.Command:
    """Return the command called ``name``."""
    module, _, attribute = _HOMES[name].partition(":")
    found: click.Command = getattr(importlib.import_module(f"gpudiag.cli.{module}"), attribute or module)
    return found


def commands() -> dict[str, click.Command]:
    """Return every command by its name, such as ``check`` or ``fleet check``."""
    return {name: found for home in _HOMES for name, found in _single(home).items()}


def _single(home: str) -> dict[str, click.Command]:
    """Return a command, or those of a group, by their names."""
    found = command(home)
    if isinstance(found, click.Group):
        return {f"{home} {name}": inner for name, inner in found.commands.items()}
    return {home: found}


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": _WIDEST_HELP})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=print_version,
    help="Show the version and exit.",
)
@debug_option
def cli() -> None:
    """Find out whether TensorFlow sees this machine's GPUs, and whether each way of configuring them takes effect."""


def main() -> NoReturn:
    """Run the command line, print errors as sentences, exit with its status."""
    sys.exit(_status())


def _status() -> int:
    """Run the command line and return its exit status; after an error, a monitoring system gets UNKNOWN."""
    status, raised = _ran()
    if raised and _is_plugin(sys.argv[1:], os.environ):
        from gpudiag.report.formats import nagios

        with contextlib.suppress(OSError):
            put(nagios.failed("there is no report; standard error says why"))
        return nagios.Status.UNKNOWN
    return status


def _is_plugin(arguments: list[str], environ: Mapping[str, str]) -> bool:
    """Return whether a status for Nagios is requested, even by arguments that could not be parsed."""
    given = [
        argument.partition("=")[2] or then
        for argument, then in zip(arguments, [*arguments[1:], ""], strict=False)
        if argument.partition("=")[0] == EXIT_SCHEME
    ]
    return (given[-1] if given else environ.get("GPUDIAG_EXIT_SCHEME")) == NAGIOS


def _ran() -> tuple[int, bool]:
    """Return the exit status, and whether an error ended the command."""
    if _COMPLETE in os.environ:
        importlib.import_module("gpudiag.cli.completion")
    try:
        status = int(
            cli.main(prog_name="gpudiag", standalone_mode=False, terminal_width=min(width(), _WIDEST_HELP)) or 0
        )
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.ClickException as error:
        say(error.format_message() if isinstance(error, _NO_ARGUMENTS) else f"gpudiag: error: {refusal(error)}")
        return error.exit_code, True
    except (KeyboardInterrupt, click.Abort):
        return 128 + signal.SIGINT, True
    except Exception as error:
        if _COMPLETE in os.environ:  # a message would be in the middle of the line that is typed
            return 1, False
        if DEBUG in sys.argv or _is_on(os.environ.get("GPUDIAG_DEBUG", "")):
            import traceback

            say(traceback.format_exc().rstrip("\n"))
        return _told(error), True
    return status, False


_NO_ARGUMENTS = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""The exception that carries the help of a command without arguments; click before 8.2 prints it and exits."""


def _is_on(value: str) -> bool:
    """Return whether a variable switches an option on, in click's notation."""
    try:
        return bool(value) and click.BOOL.convert(value, None, None)
    except click.BadParameter:
        return False


def _told(error: Exception) -> int:
    """Print an error for a person and return its exit status."""
    if isinstance(error, BrokenPipeError):  # the reader has gone, as in 'gpudiag list | head -1'
        discard_output()
        return 1
    if isinstance(error, GpudiagError):
        say(f"gpudiag: error: {error}")
        return 3 if isinstance(error, CatalogueError | OutputError) else 2
    if isinstance(error, OSError):
        discard_output()
        say(f"gpudiag: error: {shortage(error)}")
        return 3
    if isinstance(error, MemoryError):
        say(f"gpudiag: error: {no_memory()}")
        return 3
    if said := said_of(error):
        say(f"gpudiag: error: {said}")
        return 3
    say(f"gpudiag: internal error: {type(error).__name__}: {error}")
    say("This is a bug in gpudiag. Run it again with --debug for the traceback.")
    return 3
