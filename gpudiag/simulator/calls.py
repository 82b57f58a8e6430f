"""Lists the simulated functions that do something: a fault, such as an error or a delay, has an effect only in these.

The list is taken from the libraries themselves. Every name that TensorFlow's own libraries may look up is exported
(src/cuda_names.inc): simulated functions as strong symbols, all others as weak ones that answer "not supported". The
list is the same for all releases of TensorFlow, even for functions that only one of them calls.
"""

from __future__ import annotations

import difflib
import functools

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from gpudiag.simulator.errors import SimulatorMissing
from gpudiag.simulator.machine import CORE, library_directory

ANSWERED_BY_WEAK = ("nvml", "cupti")
"""Libraries for which "not supported" is an ordinary answer that programs ask for, so that another answer has an
effect."""


@functools.cache
def simulated_calls() -> frozenset[str]:
    """Return the names of all functions with which a fault can have an effect; empty if nothing was built."""
    try:
        path = library_directory() / CORE
    except SimulatorMissing:
        return frozenset()
    with path.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection), path
        return frozenset(
            symbol.name
            for symbol in table.iter_symbols()
            if symbol["st_info"]["type"] == "STT_FUNC"
            and symbol["st_shndx"] != "SHN_UNDEF"
            and (symbol["st_info"]["bind"] == "STB_GLOBAL" or symbol.name.lower().startswith(ANSWERED_BY_WEAK))
            and not symbol.name.startswith("gpudiag_")
        )


def nearest_call(name: str) -> str:
    """Return the called function most like ``name``; "" if ``name`` itself is called, or if nothing was built."""
    known = simulated_calls()
    if not known or name in known:
        return ""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)
    library = next(
        (prefix for prefix in ("cublas", "cudnn", "cufft", "cusolver", "cusparse", "nccl") if name.startswith(prefix)),
        "",
    )
    of_library = sorted(call for call in known if library and call.startswith(library))
    return (difflib.get_close_matches(name, of_library, n=1, cutoff=0.0) or close)[0]
