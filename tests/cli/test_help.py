"""`--help`: commands and options in groups, and nothing of it cut."""

from __future__ import annotations

import re

import pytest
from click import Context, HelpFormatter, Option
from click.testing import CliRunner

from gpudiag.cli import cli, commands
from gpudiag.cli.help import OTHERS, Command, groups


def shown(name: str, width: int) -> str:
    """Return the help of a command, or of gpudiag itself, in ``width`` columns."""
    arguments = [*name.split(), "--help"]
    return CliRunner().invoke(cli, arguments, prog_name="gpudiag", terminal_width=width).stdout


@pytest.mark.parametrize("width", [40, 80, 300])
def test_help_fits_and_names_every_command_with_its_whole_first_sentence(width: int) -> None:
    text = shown("", width)
    assert max(map(len, text.splitlines())) <= max(width, 46), "a title is not wrapped"
    assert "..." not in text.replace("[ARGS]...", "")
    words = " ".join(text.split())
    for name, command in commands().items():
        assert f" {name} {command.get_short_help_str(1000)}" in words


@pytest.mark.parametrize("width", [40, 80, 300])
@pytest.mark.parametrize("name", commands())
def test_help_of_a_command_fits_and_has_every_option_once(name: str, width: int) -> None:
    text = shown(name, width)
    long = [line for line in text.splitlines() if len(line) > width]
    assert all(line.lstrip().startswith("-") for line in long), "only the name of an option is not wrapped"
    listed = text[text.index(":\n  -") :].splitlines()
    for parameter in commands()[name].params:
        if isinstance(parameter, Option):
            lines = [line for line in listed if re.match(rf"  (-\S+[ ,/]+)*{parameter.opts[-1]}(?!\S)", line)]
            assert len(lines) == (not parameter.hidden), parameter.opts


def test_the_options_of_a_check_are_in_groups_that_hold_what_belongs_together() -> None:
    groups_of_check = {
        title: {option.opts[-1] for option in options} for title, options in groups(commands()["check"].params).items()
    }
    assert next(iter(groups_of_check)) == "What runs, and how long"
    assert groups_of_check["Simulation"] == {"--simulate", "--fault"}
    assert {"--strict", "--require-gpus", "--expect", "--exit-scheme"} <= groups_of_check["Verdict and exit status"]
    assert {"--format", "--output", "--quiet"} <= groups_of_check["Output"]
    assert groups_of_check["Configuration"] == {"--config"}
    assert groups_of_check[OTHERS] == {"--debug"}


def test_a_group_of_two_records_is_one() -> None:
    command = commands()["check"]
    assert isinstance(command, Command)
    formatter = HelpFormatter(width=80)
    command.format_options(Context(command), formatter)
    titles = [line for line in formatter.getvalue().splitlines() if line and not line.startswith(" ")]
    assert len(titles) == len(set(titles)) > 4
