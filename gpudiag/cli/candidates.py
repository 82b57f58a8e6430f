"""The words that a shell completes arguments to; each function imports as little as it can."""

from __future__ import annotations

import os
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Candidates = Iterable[tuple[str, str]]
"""Words, each with a line about it."""


class Word(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2, and not subscriptable before
    """A word that is checked where it is used; ``candidates`` takes its beginning."""

    name = "word"

    def __init__(self, candidates: Callable[[str], Candidates]) -> None:
        self._candidates = candidates

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
        return items(self._candidates(incomplete), incomplete)


class SavedReport(click.Path):
    """A saved report: completed to the reports and folders in that place, or to any file if there is no report."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
        return items(reports(incomplete), incomplete) or super().shell_complete(ctx, param, incomplete)


def items(candidates: Candidates, incomplete: str) -> list[CompletionItem[Any]]:
    """Return the candidates that begin with the word."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(word, help=line or None) for word, line in candidates if word.startswith(incomplete)]


def probes(incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield the areas, and after a first letter the probes."""
    from gpudiag.probes import AREAS, listing

    yield from ((area, f"all probes of {area}") for area in AREAS)
    if incomplete:
        yield from ((probe.name, probe.summary) for probe in listing.listed() or ())


def explained(incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield the groups and kinds of what can be explained, and after a first letter each name."""
    from gpudiag.cli import explainable, explanation

    explanations = explanation.read()
    if not explanations:  # a checkout, which takes longer
        from gpudiag.cli import describe

        explanations = describe.explanations()
    yield from ((topic, "") for topic in explainable.topics(explanations))
    if incomplete:
        yield from ((explanation.name, explanation.summary) for explanation in explanations)


def rules(_: str) -> Iterator[tuple[str, str]]:
    """Yield the rules of the lint."""
    from gpudiag.lint import rules

    return ((rule.name, "") for rule in pkgutil.iter_modules(rules.__path__))


def faults(incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield the faults, with ``=`` if they take a value, and alone if they need none; after ``=`` a value."""
    from gpudiag.simulator import CATALOGUE

    for kind in CATALOGUE.values():
        if not kind.value or kind.default:
            yield kind.name, kind.summary
        if kind.value and "=" not in incomplete:
            yield f"{kind.name}=", kind.summary
        elif kind.default:
            yield f"{kind.name}={kind.default}", kind.summary


def machines(incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield numbers of GPUs, with memory and with the cards that can be simulated, and files of machines."""
    from gpudiag.simulator import PRESETS

    number, is_followed, _ = incomplete.rpartition(":")
    number = number if is_followed else re.match(r"\d*", incomplete)[0] or "1"  # type: ignore[index]
    if not is_followed:
        yield from ((f"{count}", "GPUs of 16 GiB") for count in (1, 2, 4, 8))
        yield f"{number}x16GiB", "GPUs of that memory"
    yield from ((f"{number}:{name}", preset.name) for name, preset in PRESETS.items() if incomplete)
    yield from ((name, "a machine") for name in _files(incomplete, (".toml",)))


def kept_machines(_: str) -> Iterator[tuple[str, str]]:
    """Yield the simulated machines that are kept."""
    from gpudiag.simulator import kept

    return ((machine.title, machine.state.summary) for machine in kept.machines())


def topics(incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield the pages and files of the manual, and after a first letter the probes, each of which has a section."""
    from gpudiag import docs

    yield from ((name, "") for name in (*docs.pages(), *docs.files()) if name != docs.INDEX)
    if incomplete:
        yield from probes(incomplete)


def reports(incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield saved reports, and beside them folders; none if there is no report."""
    files = list(_files(incomplete, (".json", ".zip")))
    return ((name, "") for name in (files and [*files, *_files(incomplete, ())]))


def _files(incomplete: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    """Yield the files with these suffixes, or the folders, whose names begin so and need no quotes in any shell."""
    folder, _, beginning = incomplete.rpartition("/")
    prefix = incomplete.removesuffix(beginning)
    try:
        entries = sorted(os.scandir(Path(folder or prefix or ".").expanduser()), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if re.fullmatch(r"\w[\w.+-]*", entry.name) and entry.name.startswith(beginning):
            if suffixes and entry.name.endswith(suffixes):
                yield f"{prefix}{entry.name}"
            elif not suffixes and entry.is_dir():
                yield f"{prefix}{entry.name}/"
