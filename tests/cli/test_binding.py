"""The fields of a record are the options of a command, and what was given comes as the record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from gpudiag.cli.binding import takes
from gpudiag.option import option


@dataclass(frozen=True)
class Wanted:
    level: str | None = option("How much.", choices=("quick", "full"))
    jobs: int = option("How many.", default=2, minimum=1, flags=("-j",))
    wait_s: float | None = option("How long.")
    search_s: float = option("How long to look.", default=60.0, minimum=0)
    strict: bool = option("Be strict.", default=False)
    keep: bool = option("Keep it.", default=True)
    names: tuple[str, ...] = option("Which.", default=(), metavar="NAME")
    file: Path | None = option("Read this.")
    secret: bool = option("For tests.", default=False, hidden=True)


@click.command()
@click.argument("first")
@takes("TEST_", wanted=Wanted)
@click.pass_context
def command(context: click.Context, *, first: str, wanted: Wanted) -> None:
    """Show what was given."""
    click.echo(f"{first} {wanted}")


def given(*arguments: str, **environ: str) -> str:
    done = CliRunner().invoke(command, ["x", *arguments], env=environ)
    return done.output.strip()


def test_without_options_there_are_the_defaults() -> None:
    assert given() == f"x {Wanted()}"


@pytest.mark.parametrize(
    ("arguments", "environ", "wanted"),
    [
        (["--level", "quick", "-j", "3"], {}, {"level": "quick", "jobs": 3}),
        (["--wait", "1.5", "--search", "0", "--strict", "--no-keep"], {}, {"wait_s": 1.5, "search_s": 0.0}),
        (["--names", "a", "--names", "b", "--secret"], {}, {"names": ("a", "b"), "secret": True}),
        ([], {"GPUDIAG_TEST_WAIT": "7", "GPUDIAG_TEST_KEEP": "false"}, {"wait_s": 7.0, "keep": False}),
        (["--file", __file__], {"GPUDIAG_TEST_SECRET": "true"}, {"file": Path(__file__)}),
    ],
)
def test_what_is_given_is_in_the_record(arguments: list[str], environ: dict[str, str], wanted: dict[str, Any]) -> None:
    if "--strict" in arguments:
        wanted |= {"strict": True, "keep": False}
    assert given(*arguments, **environ) == f"x {Wanted(**wanted)}"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--level", "all"], "'all' is not one of 'quick', 'full'"),
        (["-j", "0"], "0 is not in the range x>=1"),
        (["--wait", "0"], "'0' is not a number of seconds above 0"),
        (["--search", "-1"], "'-1' is not a number of seconds 0 (off) or above"),
        (["--file", "nowhere.toml"], "does not exist"),
    ],
)
def test_what_a_field_cannot_hold_is_refused(arguments: list[str], problem: str) -> None:
    assert problem in " ".join(given(*arguments).split())


def test_the_help_names_the_variable_the_default_and_no_hidden_option() -> None:
    text = " ".join(given("--help").split())
    assert "-j, --jobs INTEGER RANGE How many. [env var: GPUDIAG_TEST_JOBS; default: 2; x>=1]" in text
    assert "--keep / --no-keep Keep it. [env var: GPUDIAG_TEST_KEEP; default: keep]" in text
    assert "--wait SECONDS" in text
    assert "--secret" not in text
