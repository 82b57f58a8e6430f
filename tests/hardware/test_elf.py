"""The dynamic section of ELF files."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

from gpudiag import simulator
from gpudiag.hardware import elf


@pytest.fixture
def library() -> Path:
    return simulator.library_directory() / "libcudart.so.12"


def test_a_library(library: Path) -> None:
    found = elf.read(library)
    assert found is not None
    assert (found.soname, found.runpath, found.rpath) == ("libcudart.so.12", "$ORIGIN", "")
    assert "libgpudiag_cuda.so" in found.needed
    own = elf.read(Path(sys.executable).resolve())
    assert own is not None
    assert own.machine == found.machine


@pytest.mark.parametrize("kept", [0, 3, 16, 40, 64, 200, 1000])
def test_a_file_cut_short_is_none(library: Path, tmp_path: Path, kept: int) -> None:
    file = tmp_path / "cut.so"
    file.write_bytes(library.read_bytes()[:kept])
    assert elf.read(file) is None


def test_what_is_no_elf_file(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("INPUT ( libcudart.so.12 )")
    assert elf.read(tmp_path / "script") is None
    assert elf.read(tmp_path) is None
    assert elf.read(tmp_path / "absent") is None


def test_a_32_bit_big_endian_file(tmp_path: Path) -> None:
    strings = b"\0libz.so.1\0/opt/lib\0"
    dynamic = struct.pack(">iIiIiIiI", 5, 0x1000, 1, 1, 15, 11, 0, 0)
    header_size, segment_size = 52, 32
    at = header_size + 2 * segment_size
    header = b"\x7fELF\x01\x02\x01" + bytes(9)
    header += struct.pack(">HHIIIIIHHHHHH", 3, 8, 1, 0, header_size, 0, 0, header_size, segment_size, 2, 0, 0, 0)
    load = struct.pack(">IIIIIIII", 1, at, 0x1000, 0, len(strings), len(strings), 4, 4)
    table = struct.pack(">IIIIIIII", 2, at + len(strings), 0, 0, len(dynamic), len(dynamic), 4, 4)
    (tmp_path / "mips.so").write_bytes(header + load + table + strings + dynamic)
    assert elf.read(tmp_path / "mips.so") == elf.Elf((32, "EM_MIPS"), None, ("libz.so.1",), "/opt/lib", "")
