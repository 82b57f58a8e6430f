"""The machine a run lives on: this one, or a simulated one that lasts as long as the run."""

from __future__ import annotations

import ctypes
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from gpudiag import simulator
from gpudiag.model import World
from gpudiag.plaintext import printable


def options(spec: str | None, faults: tuple[str, ...], stack: ExitStack) -> dict[str, Any]:
    """Return the options of a run on a simulated machine, which lasts as long as ``stack``; none without a ``spec``.

    A process that 'gpudiag simulate' started lives on one already: its GPUs are simulated, whoever asks.
    """
    outer = os.environ.get(simulator.MACHINE_VARIABLE)
    if spec is None:
        if outer is None:
            return {}
        return {
            "world": World(simulated=True, spec="of the calling process"),
            "root": Path(outer) / "root",
            "locks": Path(outer),
        }
    simulator.require_cuda_wheel()
    machine = stack.enter_context(simulator.Machine(spec, faults))
    words = [spec, *(f"--fault {fault}" for fault in machine.faults)]
    return {
        "world": World(simulated=True, spec=printable(" ".join(words))),
        "environment": machine.environment(),
        "root": machine.root,
        "locks": machine.directory,
    }


def map_libraries(machine: Path) -> None:
    """Map the libraries of a simulated machine into this process, which the loader does not look for there any more.

    ``LD_LIBRARY_PATH`` is read when a process starts; later the loader takes a library of the same name that is mapped
    already. One that the machine lacks cannot be had this way: then another would be found, and that is refused.
    """
    for library in sorted((machine / "lib").glob("*.so*")):
        try:
            ctypes.CDLL(str(library))
        except OSError as error:
            raise simulator.SimulatorError(
                f"{library.name}, which the simulated machine lacks, cannot be hidden from a process that runs "
                "already. Start it on the machine: gpudiag simulate SPEC -- pytest ..."
            ) from error
