"""The dynamic section of an ELF file and the functions that it exports, read without loading the file."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from elftools.common.exceptions import ELFError
from elftools.common.utils import struct_parse
from elftools.construct import ConstructError
from elftools.elf.constants import P_FLAGS
from elftools.elf.dynamic import Dynamic
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection


@dataclass(frozen=True)
class Elf:
    """The parts of an ELF file that the loader reads before it maps the file."""

    machine: tuple[int, str]
    """Class (32 or 64 bit) and processor; the loader passes over a file of another machine."""
    soname: str | None
    needed: tuple[str, ...]
    rpath: str
    runpath: str


def read(file: Path) -> Elf | None:
    """Return the dynamic section of ``file``, or None if it cannot be read or is not an ELF file."""
    try:
        with file.open("rb") as stream:
            return _read(stream)
    except (OSError, ELFError, ConstructError, ValueError, AssertionError):
        return None


def machine_of_python() -> tuple[int, str] | None:
    """Return the ELF class and machine of this interpreter: libraries of others cannot be loaded into it."""
    own = read(Path(sys.executable)) if sys.executable else None
    return own.machine if own else None


def _read(stream: IO[bytes]) -> Elf:
    parsed = ELFFile(stream)
    values: dict[str, list[str]] = {"DT_SONAME": [], "DT_NEEDED": [], "DT_RPATH": [], "DT_RUNPATH": []}
    for dynamic in _dynamic(parsed):
        for tag in dynamic.iter_tags():
            if tag.entry.d_tag in values:
                values[tag.entry.d_tag].append(getattr(tag, tag.entry.d_tag.removeprefix("DT_").lower()))
    return Elf(
        machine=(parsed.elfclass, parsed["e_machine"]),
        soname=next(iter(values["DT_SONAME"]), None),
        needed=tuple(values["DT_NEEDED"]),
        rpath=next(iter(values["DT_RPATH"]), ""),
        runpath=next(iter(values["DT_RUNPATH"]), ""),
    )


def _dynamic(parsed: ELFFile) -> Iterator[Dynamic]:
    """Yield the dynamic segments, found as the loader finds them: a stripped file has no sections.

    ``ELFFile.iter_segments`` reads every section on the way, hash tables included: 30 ms for a library of CUDA, not 3.
    """
    for number in range(parsed.num_segments()):
        header = struct_parse(
            parsed.structs.Elf_Phdr, parsed.stream, parsed["e_phoff"] + number * parsed["e_phentsize"]
        )
        if header["p_type"] == "PT_DYNAMIC":
            yield Dynamic(parsed.stream, parsed, None, header["p_offset"], header["p_filesz"] == 0)


@functools.cache
def functions(file: Path) -> tuple[tuple[int, int, str], ...]:
    """Return the functions that ``file`` exports, each with start, end and name; none if it cannot be read.

    This needs sections, which NVIDIA's libraries have.
    """
    try:
        with file.open("rb") as stream:
            return tuple(_functions(ELFFile(stream)))
    except (OSError, ELFError, ConstructError, ValueError, AssertionError):
        return ()


def _functions(parsed: ELFFile) -> Iterator[tuple[int, int, str]]:
    code = [segment for segment in parsed.iter_segments("PT_LOAD") if segment["p_flags"] & P_FLAGS.PF_X]
    symbols = parsed.get_section_by_name(".dynsym")
    for symbol in symbols.iter_symbols() if isinstance(symbols, SymbolTableSection) else ():
        begin, size = symbol["st_value"], symbol["st_size"]
        for segment in code if size and symbol["st_info"]["type"] == "STT_FUNC" else ():
            if segment["p_vaddr"] <= begin < segment["p_vaddr"] + segment["p_filesz"]:
                at = begin - segment["p_vaddr"] + segment["p_offset"]
                yield at, at + size, symbol.name
