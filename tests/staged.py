"""Runs ``gpudiag check`` on a machine of the corpus, as its user would."""

from __future__ import annotations

from conftest import Gpudiag
from corpus import Item
from gpudiag.model import codec
from gpudiag.model.report import Report

_FIRST = 'LD_LIBRARY_PATH="$PWD/{folder}:$LD_LIBRARY_PATH" exec "$@"'
"""On a simulated machine its libraries come first; what is to come before them is put there inside."""


def stage(item: Item, gpudiag: Gpudiag) -> list[str]:
    """Build the machine, and return the arguments of ``check`` on it."""
    arguments = gpudiag.simulated(item.machine or "", item.faults)
    if item.prepare is not None:
        item.prepare(gpudiag)
    return [*arguments, *(item.options or ("host", "discovery"))]


def check_arguments(item: Item, gpudiag: Gpudiag, before: Item) -> list[str]:
    """Return the arguments of ``check`` for the machine that ``before`` has become; what was prepared stays."""
    changed = (item.machine, item.faults) != (before.machine, before.faults)
    machine = gpudiag.simulated(item.machine or "", item.faults) if changed else _again(item)
    return [*machine, *(item.options or ("host", "discovery"))]


def _again(item: Item) -> list[str]:
    """Return the same machine, whose file may have been prepared further."""
    if not item.machine:
        return []
    machine = "machine.toml" if "\n" in item.machine else item.machine
    return ["--simulate", machine, *(word for fault in item.faults for word in ("--fault", fault))]


def check(item: Item, gpudiag: Gpudiag, arguments: list[str]) -> Report:
    """Return the report of ``check`` on the machine of ``item``."""
    if item.first:
        # In a new interpreter, because the loader reads the path when a process starts.
        kept = gpudiag.command("check", *arguments[2:], "-q", "-o", "report.json")
        script = ("sh", "-c", _FIRST.format(folder=item.first), "sh")
        gpudiag("simulate", arguments[1], "--", *script, *kept, flags=(), **item.variables)
        return codec.load(gpudiag.folder / "report.json")
    done = gpudiag("check", *arguments, "--format", "json", flags=(), **item.variables)
    assert done.returncode in {0, 1, 3, 5}, done.stderr
    return codec.decode(done.stdout, "standard output")
