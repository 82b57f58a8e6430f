"""The machine that a run uses: this one, or a simulated one that exists as long as the run."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from gpudiag import simulator
from gpudiag.model.report import World
from gpudiag.text import printable


@dataclass(frozen=True)
class ExaminedMachine:
    """The machine on which a run looks for GPUs; by default the one that it runs on."""

    world: World = field(default_factory=lambda: World(simulated=False))
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that a process needs in order to use this machine."""
    root: Path | None = None
    """Folder that replaces / when the kernel's files about GPUs are read; None: / itself."""
    locks: Path | None = None
    """Folder for the locks of GPUs; None: the folder that all runs of this user share."""
    without_effect: Callable[[], tuple[str, ...]] = tuple
    """Returns the faults of a simulated machine that no call has met so far."""


def start_machine(spec: str | None, faults: tuple[str, ...], stack: ExitStack) -> ExaminedMachine:
    """Return the simulated machine of ``spec``, which exists as long as ``stack``; without a ``spec`` this machine.

    A process that 'gpudiag simulate' started already runs on a simulated machine: all its GPUs are simulated.
    """
    outer = os.environ.get(simulator.MACHINE_VARIABLE)
    if spec is None:
        if outer is None:
            return ExaminedMachine()
        spec = "of the calling process"
        with contextlib.suppress(OSError):  # another version of gpudiag made the machine
            spec = os.fsdecode((Path(outer) / simulator.SPEC_FILE).read_bytes())
        world = World(simulated=True, spec=printable(spec))
        return ExaminedMachine(world, root=Path(outer) / "root", locks=Path(outer))
    simulator.require_cuda_wheel()
    made = stack.enter_context(simulator.Machine(spec, faults))
    world = World(simulated=True, spec=printable(made.words))
    return ExaminedMachine(
        world,
        made.environment(),
        made.root,
        made.directory,
        lambda: tuple(printable(simulator.no_effect(fault)) for fault in made.without_effect()),
    )


def map_libraries(machine: Path) -> None:
    """Map the libraries of a simulated machine into this process, whose loader no longer looks for them there.

    ``LD_LIBRARY_PATH`` is read when a process starts; later the loader takes a library of the same name that is already
    mapped. A library that the machine lacks cannot be hidden this way: another one would be found, so this is refused.
    """
    for library in sorted((machine / "lib").glob("*.so*")):
        try:
            ctypes.CDLL(str(library))
        except OSError as error:
            raise simulator.SimulatorError(
                f"the simulated machine lacks {library.name}, which cannot be hidden from a process that already runs. "
                "Start it on the machine: gpudiag simulate SPEC -- pytest ..."
            ) from error
