"""`gpudiag lint`: finds silent misuse of GPU settings in Python sources and notebooks."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import click

from gpudiag.cli import candidates
from gpudiag.cli.binding import takes
from gpudiag.cli.candidates import Word
from gpudiag.cli.help import Command
from gpudiag.cli.options import config_option, debug_option
from gpudiag.errors import UsageError
from gpudiag.option import option

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(MiB|GiB|MB|GB|M|G)", re.IGNORECASE)
_FORMATS = ("text", "github", "json", "sarif")


class MemorySize(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2, and not subscriptable before
    """An amount of memory; converted to bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not an amount of memory, such as 8GiB or 11000MiB.", param, ctx)
        return int(float(match[1]) * (1 << 20 if match[2].upper().startswith("M") else 1 << 30))


def _configure(context: click.Context, path: Path | None) -> None:
    """Take the defaults of the command from the table ``lint`` of its configuration file."""
    from gpudiag.cli import config

    parameters = [
        parameter
        for parameter in context.command.params
        if parameter.name not in ("paths", "list_rules", "fix", "diff")
    ]
    config.take_defaults(context, path, parameters, section="lint")


def _is_there(path: Path) -> bool:
    """Return whether a path exists or cannot be examined; the latter is reported as a problem of the file."""
    try:
        return path.exists() or path.is_symlink()
    except OSError:
        return True


@dataclass(frozen=True)
class Choice:
    """The rules and the files of a run."""

    TITLE: ClassVar[str] = "What is checked"

    select: tuple[str, ...] = option(
        "Check only this rule. May be repeated.", default=(), metavar="RULE", type=Word(candidates.rules)
    )
    ignore: tuple[str, ...] = option(
        "Skip this rule. May be repeated.", default=(), metavar="RULE", type=Word(candidates.rules)
    )
    exclude: tuple[str, ...] = option(
        "Files and folders to leave out, by name or by path below PATH. May be repeated.", default=(), metavar="GLOB"
    )
    gpu_memory: int | None = option(
        "Memory of the GPU that the programs are for, such as 8GiB: limits that exceed it are found.",
        type=MemorySize(),
        metavar="SIZE",
    )


@dataclass(frozen=True)
class Output:
    """What is made of the findings."""

    TITLE: ClassVar[str] = "Output"

    fix: bool = option("Write the fixes that are safe.", default=False)
    diff: bool = option("Show what --fix would write, and write nothing.", default=False)
    format: str = option("Format on standard output.", default="text", choices=_FORMATS)


@click.command(cls=Command)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path, allow_dash=True), metavar="[PATH]...")
@takes("LINT_", choice=Choice, output=Output)
@click.option("--list-rules", is_flag=True, help="List the rules and end.")
@config_option(
    _configure,
    "Configuration file; its table 'lint' is read. [default: as of 'gpudiag check']",
)
@debug_option
def lint(*, paths: tuple[Path, ...], choice: Choice, output: Output, list_rules: bool) -> int:
    """Find GPU settings in Python sources and notebooks that do not do what they seem to do.

    PATH is a file, a folder (its .py, .pyw and .ipynb files) or - for standard input; without one it is this folder.
    Nothing is executed, and TensorFlow is not imported. '# gpudiag: ignore[RULE]' on a line switches a rule off there.

    Exit status: 0 nothing was found, 1 something was found, 2 wrong usage, 3 gpudiag broke, 5 nothing was found, but
    not every file could be checked.
    """
    from gpudiag.cli.delivery import in_color, on_terminal, page, width
    from gpudiag.cli.file_counter import FileCounter
    from gpudiag.lint import check, fixes, rule
    from gpudiag.lint.formats import render
    from gpudiag.text import put, say

    rules = rule.chosen(choice.select, choice.ignore)
    if list_rules:
        from gpudiag.lint.listing import table

        page(table(rules, width()))
        return 0
    if output.fix and output.diff:
        raise UsageError("--fix writes and --diff only shows: leave one out.")
    missing = [str(path) for path in paths if str(path) != "-" and not _is_there(path)]
    if missing:
        raise UsageError(f"{missing[0]}: there is no such file or folder.")
    reads_input = any(str(path) == "-" for path in paths)
    if reads_input and (output.fix or output.diff):
        raise UsageError("--fix and --diff need files, not standard input.")
    stdin = sys.stdin.buffer.read() if reads_input else None
    with FileCounter() as counter:
        run = check.check(paths or (Path(),), rules, choice.exclude, stdin, choice.gpu_memory, on_progress=counter.show)
    done = []
    if output.fix or output.diff:
        for source, content, found in fixes.fixed(run.found):
            if output.diff:
                put(fixes.difference(source, content), "patch")
            elif problem := fixes.write(source, content):
                run.problems.append(problem)
            else:
                done += found
    if output.diff:
        return run.result().exit_code
    run.found = [finding for finding in run.found if finding not in done]
    result = run.result(fixed=len(done))
    if not run.files:
        say("gpudiag: note: no Python file and no notebook is there.")
    color = in_color() and output.format == "text"
    text = render(result, output.format, width=width(), color=color, terminal=on_terminal())
    put(text, "json" if output.format == "json" else "table", color=color)
    return result.exit_code
