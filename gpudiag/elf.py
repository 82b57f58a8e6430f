"""The dynamic section of an ELF file, read without loading the file.

A reader of our own: five tags of one table are wanted, of files of a gigabyte, in a process that must start fast.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRTAB, _SONAME, _RPATH, _RUNPATH = 1, 5, 14, 15, 29
_CHUNK = 4096


@dataclass(frozen=True)
class Elf:
    """What the loader reads in a file before it maps it."""

    machine: tuple[int, int]
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
    except (OSError, struct.error, ValueError):
        return None


def _read(stream: IO[bytes]) -> Elf:
    identity = stream.read(16)
    if identity[:4] != b"\x7fELF":
        raise ValueError("no ELF file")
    order, wide = "<" if identity[5] == 1 else ">", identity[4] == 2
    header = struct.Struct(order + ("HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH"))
    _, processor, _, _, table, _, _, _, size, count, *_ = header.unpack(stream.read(header.size))
    segment = struct.Struct(order + ("IIQQQQQQ" if wide else "IIIIIIII"))
    stream.seek(table)
    segments = [segment.unpack_from(stream.read(size)) for _ in range(count)]
    if not wide:  # the flags stand last there
        segments = [(kind, flags, *rest) for kind, *rest, flags, _ in segments]
    loads = [(address, offset, length) for kind, _, offset, address, _, length, *_ in segments if kind == _LOAD]
    dynamic = next((one for one in segments if one[0] == _DYNAMIC), None)
    entries: list[tuple[int, int]] = []
    if dynamic is not None:
        stream.seek(dynamic[2])
        content = stream.read(dynamic[5])
        if len(content) < dynamic[5]:
            raise ValueError("the file is cut short")
        pair = struct.Struct(order + ("qQ" if wide else "iI"))
        entries = list(pair.iter_unpack(content[: len(content) // pair.size * pair.size]))
    strings = next((value for tag, value in entries if tag == _STRTAB), 0)
    start = next(
        (strings - address + offset for address, offset, length in loads if 0 <= strings - address < length), 0
    )

    def texts(wanted: int) -> Iterator[str]:
        return (_text(stream, start + value) for tag, value in entries if tag == wanted)

    return Elf(
        machine=(identity[4], processor),
        soname=next(texts(_SONAME), None),
        needed=tuple(texts(_NEEDED)),
        rpath=next(texts(_RPATH), ""),
        runpath=next(texts(_RUNPATH), ""),
    )


def _text(stream: IO[bytes], offset: int) -> str:
    stream.seek(offset)
    text = b""
    while b"\0" not in text:
        chunk = stream.read(_CHUNK)
        if not chunk:
            raise ValueError("a text without an end")
        text += chunk
    return text.partition(b"\0")[0].decode("utf-8", "backslashreplace")
