"""`gpudiag simulate`: any command on simulated GPUs."""

from __future__ import annotations

import os

import click

from gpudiag.cli.options import debug_option, fault_option
from gpudiag.errors import UsageError
from gpudiag.text import put


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("spec", required=False)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@fault_option
@click.option("--list-faults", is_flag=True, help="List the faults that can be injected.")
@debug_option
def simulate(spec: str | None, command: tuple[str, ...], fault: tuple[str, ...], list_faults: bool) -> int:
    """Run COMMAND on a machine with simulated GPUs.

    For example: gpudiag simulate 4x16GiB -- python train.py

    Without COMMAND it is a shell. nvidia-smi shows the simulated GPUs. SPEC is a number of GPUs (2), with memory
    (4x16GiB) or a card (2x80GiB:H100,1x16GiB:T4), or a TOML file. The exit status is the command's.
    """
    from gpudiag import simulator

    if list_faults:
        put(f"{simulator.catalogue_text()}\n")
        return 0
    if not spec:
        raise UsageError("a SPEC is needed, such as: gpudiag simulate 2 -- python train.py")
    return simulator.run(command or (os.environ.get("SHELL") or "/bin/sh",), spec, fault)
