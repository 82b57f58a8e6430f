"""`gpudiag simulate`: runs any command on simulated GPUs."""

from __future__ import annotations

import json
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

import click

from gpudiag.cli import candidates
from gpudiag.cli.candidates import Word
from gpudiag.cli.help import GroupedOption, ProgramCommand, ProgramWord
from gpudiag.cli.options import FAULT_HELP, debug_option, variable
from gpudiag.errors import UsageError
from gpudiag.text import put, say

if TYPE_CHECKING:
    from gpudiag.simulator.kept import KeptMachine


kept_option = partial(click.option, cls=GroupedOption, group="Machines that are kept")
fault_option = partial(click.option, cls=GroupedOption, group="Faults")


@click.command(cls=ProgramCommand, context_settings={"ignore_unknown_options": True})
@click.argument("spec", required=False, type=Word(candidates.machines))
@click.argument("command", nargs=-1, type=ProgramWord())
@kept_option("--keep", metavar="NAME", help="Make a machine that stays until it is stopped; COMMAND may be left out.")
@kept_option("--share", is_flag=True, help="With --keep: every user of this system may attach to the machine.")
@kept_option(
    "--attach",
    metavar="NAME",
    type=Word(candidates.kept_machines),
    help="Run COMMAND on the kept machine NAME, or OWNER/NAME. No SPEC.",
)
@kept_option("--list", "list_", is_flag=True, help="List the machines that are kept.")
@kept_option("--stop", metavar="NAME", type=Word(candidates.kept_machines), help="End the kept machine NAME.")
@kept_option(
    "--format", "list_format", type=click.Choice(["table", "json"]), help="With --list: the format; a table by default."
)
@fault_option(
    "--fault", multiple=True, metavar="NAME[=VALUE]", type=Word(candidates.faults), help=FAULT_HELP, **variable("FAULT")
)
@fault_option("--list-faults", is_flag=True, help="List the faults that can be injected.")
@debug_option
def simulate(
    *,
    spec: str | None,
    command: tuple[str, ...],
    keep: str | None,
    share: bool,
    attach: str | None,
    list_: bool,
    stop: str | None,
    list_format: str | None,
    fault: tuple[str, ...],
    list_faults: bool,
) -> int:
    """Run COMMAND on a machine with simulated GPUs.

    For example: gpudiag simulate 4x16GiB -- python train.py

    Without COMMAND it is your shell, with a marked prompt: 'exit' leaves it. nvidia-smi shows the simulated GPUs. SPEC
    is a number of GPUs (2), with memory (4x16GiB) or a card (2x80GiB:H100,1x16GiB:T4), or a TOML file. The exit status
    is the command's.

    For a machine that many commands use: gpudiag simulate --keep lab 2, then gpudiag simulate --attach lab -- COMMAND,
    and in the end gpudiag simulate --stop lab.
    """
    from gpudiag import simulator

    _refuse_several({"--keep": keep, "--attach": attach, "--list": list_, "--stop": stop, "--list-faults": list_faults})
    if share and keep is None:
        raise UsageError("--share belongs to --keep, such as: gpudiag simulate --keep lab --share 2")
    if list_format and not list_:
        raise UsageError("--format belongs to --list: gpudiag simulate --list --format json")
    if list_faults:
        put(f"{simulator.catalogue_text()}\n")
        return 0
    simulator.require_linux()
    from gpudiag.simulator import kept, shell
    from gpudiag.simulator.faults import fault_words

    words = (spec, *command) if spec is not None else ()
    if words and (list_ or stop is not None):
        raise UsageError(f"{'--list' if list_ else '--stop'} runs no command; remove {' '.join(words)!r}.")
    if list_:
        put(_listing(kept.machines(), list_format), list_format or "table")
        return 0
    if stop is not None:
        return _stop(stop)
    if attach is not None:
        machine = kept.find(attach)
        own = f"; for this command {', '.join(fault)}" if fault else ""
        environment = kept.attach(machine, faults=fault)
        with nullcontext(words) if words else shell.command() as run:
            within = ("--attach", machine.title, *fault_words(fault)) if words else ()
            return simulator.run_on(f"{machine.title}: {machine.state.summary}{own}", environment, run, within)
    if not spec:
        raise UsageError("a SPEC is needed, such as: gpudiag simulate 2 -- python train.py")
    if keep is None:
        with nullcontext(command) if command else shell.command() as run:
            return simulator.run(run, spec, fault, within=(spec, *fault_words(fault)) if command else ())
    machine = kept.keep(keep, spec, fault, shared=share)
    if command:
        within = ("--attach", machine.title)
        return simulator.run_on(f"{machine.title}: {machine.state.summary}", kept.attach(machine), command, within)
    say(f"gpudiag: {machine.title}: {machine.state.summary}; to use it: gpudiag simulate --attach {machine.title}")
    return 0


def _refuse_several(tasks: dict[str, object]) -> None:
    """Raise ``UsageError`` if two of these options were given."""
    tasks_given = [task for task, value in tasks.items() if value not in (None, False)]
    if len(tasks_given) > 1:
        raise UsageError(f"{tasks_given[0]} and {tasks_given[1]} cannot be used together: leave one out.")


def _stop(title: str) -> int:
    from gpudiag.simulator import kept

    machine = kept.find(title)
    left = kept.stop(machine)
    running = f"; these processes were on it and still run: {', '.join(map(str, left))}" if left else ""
    say(f"gpudiag: machine {machine.title} is stopped{running}")
    return 0


def _listing(machines: list[KeptMachine], format_: str | None) -> str:
    if format_ == "json":
        entries = [
            {
                "name": machine.title,
                "owner": machine.owner,
                "spec": machine.state.spec,
                "gpus": machine.state.gpus,
                "faults": machine.state.faults,
                "shared": machine.state.shared,
                "since": machine.state.since,
                "processes": machine.processes(),
                "folder": machine.folder,
            }
            for machine in machines
        ]
        return json.dumps({"machines": entries}, indent=2) + "\n"
    if not machines:
        return "No simulated machine is kept. To make one: gpudiag simulate --keep NAME 2\n"
    from tabulate import tabulate

    rows = [
        (
            machine.title,
            machine.state.summary,
            "everybody" if machine.state.shared else machine.owner,
            len(machine.processes()),
            machine.state.since,
        )
        for machine in machines
    ]
    return (
        tabulate(rows, ("machine", "what", "who may attach", "processes", "since"), "plain", disable_numparse=True)
        + "\n"
    )
