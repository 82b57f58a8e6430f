"""The dynamic section of an ELF file, read without loading the file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import IO

from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile


@dataclass(frozen=True)
class Elf:
    """What the loader reads in a file before it maps it."""

    machine: tuple[int, str]
    """Class (32 or 64 bit) and processor; the loader passes over a file of another machine."""
    soname: str | None
    needed: tuple[str, ...]
    rpath: str
    runpath: str


def read(file: Path) -> Elf | None:
    """Return the dynamic section of ``file``, or None where it cannot be read or is no ELF file."""
    try:
        with file.open("rb") as stream:
            return _read(stream)
    except (OSError, ELFError, ConstructError, ValueError):
        return None


def _read(stream: IO[bytes]) -> Elf:
    parsed = ELFFile(stream)
    found: dict[str, list[str]] = {"DT_SONAME": [], "DT_NEEDED": [], "DT_RPATH": [], "DT_RUNPATH": []}
    # By segment, as the loader finds it: a stripped file has no sections.
    for segment in parsed.iter_segments():
        for tag in segment.iter_tags() if isinstance(segment, DynamicSegment) else ():
            if tag.entry.d_tag in found:
                found[tag.entry.d_tag].append(getattr(tag, tag.entry.d_tag.removeprefix("DT_").lower()))
    return Elf(
        machine=(parsed.elfclass, parsed["e_machine"]),
        soname=next(iter(found["DT_SONAME"]), None),
        needed=tuple(found["DT_NEEDED"]),
        rpath=next(iter(found["DT_RPATH"]), ""),
        runpath=next(iter(found["DT_RUNPATH"]), ""),
    )
