"""Asks the loader itself which library files it takes: its rules have cases that a scan of folders misses.

With ``LD_TRACE_LOADED_OBJECTS`` the loader prints the libraries of a file without running its code, as for ldd(1). The
file is made here, in memory: it needs the libraries by the names that TensorFlow opens, and has the ``DT_RUNPATH`` of
TensorFlow's opener, so that the loader searches as for ``dlopen`` from there, with glibc-hwcaps, ``/etc/ld.so.preload``
and its cache.
"""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import InterpSegment

_DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_RPATH, _DT_RUNPATH = 1, 4, 5, 6, 10, 11, 15, 29
_ADDRESS = 0x1000
_FOUND = re.compile(r"^[ \t]*(\S+) => (\S.*?)(?: \(0x[0-9a-f]+\))?$", re.MULTILINE)
_TIMEOUT_S = 5


def asked(
    names: Sequence[str], runpath: Sequence[str], inherited: bool = False, environ: Mapping[str, str] = os.environ
) -> dict[str, Path | None]:
    """Return the file that the loader takes for each of ``names``, None if it finds none; {} if it cannot be asked.

    With ``inherited`` the folders count as a ``DT_RPATH``, which comes before ``LD_LIBRARY_PATH``.
    """
    loader, machine = _interpreter(Path(sys.executable))
    if loader is None or not hasattr(os, "memfd_create"):
        return {}
    file = os.memfd_create("gpudiag")
    try:
        os.write(file, _shared_object(names, runpath, machine, _DT_RPATH if inherited else _DT_RUNPATH))
        ended = subprocess.run(
            [loader, f"/proc/self/fd/{file}"],
            pass_fds=(file,),
            env={**environ, "LD_TRACE_LOADED_OBJECTS": "1"},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    finally:
        os.close(file)
    # "not found" does not end the list; anything else does, as a damaged file: then the rules are what is known.
    paths = dict(_FOUND.findall(ended.stdout)) if ended.returncode == 0 else {}
    return {name: None if paths[name] == "not found" else Path(paths[name]) for name in names if name in paths}


def _interpreter(program: Path) -> tuple[str | None, int]:
    """Return the loader that ``program`` names, and its processor; None for a program without a 64-bit loader."""
    try:
        with program.open("rb") as stream:
            start = stream.read(20)
            if start[4:6] != b"\2\1":  # 64 bit, little endian
                return None, 0
            named = (segment for segment in ELFFile(stream).iter_segments() if isinstance(segment, InterpSegment))
            return next((segment.get_interp_name() for segment in named), None), int.from_bytes(start[18:20], "little")
    except (OSError, ELFError):
        return None, 0


def _shared_object(names: Sequence[str], folders: Sequence[str], machine: int, tag: int) -> bytes:
    """Return a 64-bit shared object that needs ``names``, has ``folders`` in its search path, and no code."""
    strings = b"\0"

    def offset(text: str) -> int:
        nonlocal strings
        strings += os.fsencode(text) + b"\0"
        return len(strings) - len(os.fsencode(text)) - 1

    entries = [(_DT_NEEDED, offset(name)) for name in names]
    if folders:
        entries.append((tag, offset(":".join(folders))))
    header, segment = 64, 56
    symbols = header + 2 * segment  # one symbol, the empty one
    table = symbols + 24  # DT_HASH: one bucket, one chain, both empty
    text = table + 16
    dynamic = -(-(text + len(strings)) // 8) * 8
    entries += [
        (_DT_HASH, _ADDRESS + table),
        (_DT_STRTAB, _ADDRESS + text),
        (_DT_SYMTAB, _ADDRESS + symbols),
        (_DT_STRSZ, len(strings)),
        (_DT_SYMENT, 24),
        (0, 0),
    ]
    end = dynamic + 16 * len(entries)
    body = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, machine, 1, 0, header, 0, 0, header, segment, 2, 0, 0, 0
    )
    # PT_LOAD, readable and writable: the loader relocates the dynamic section in place.
    body += struct.pack("<IIQQQQQQ", 1, 6, 0, _ADDRESS, _ADDRESS, end, end, 0x1000)
    size = end - dynamic
    body += struct.pack("<IIQQQQQQ", 2, 6, dynamic, _ADDRESS + dynamic, _ADDRESS + dynamic, size, size, 8)
    body += bytes(24) + struct.pack("<IIII", 1, 1, 0, 0) + strings
    return body.ljust(dynamic, b"\0") + b"".join(struct.pack("<QQ", *entry) for entry in entries)
