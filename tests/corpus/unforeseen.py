"""Faults that no cause knew when they were staged: what is in the place of libraries, and entries of paths."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from conftest import Gpudiag
from corpus import Item
from gpudiag import simulator

_AARCH64 = b"\xb7\x00"
_MACHINE_AT = 18
"""Of an ELF file: where it says for which processor it is."""


def _in_the_place_of(library: str, folder: str, make: Callable[[Path], object]) -> Callable[[Gpudiag], None]:
    """Remove ``library`` from the machine, and make something of its name in a folder of the path."""

    def prepare(gpudiag: Gpudiag) -> None:
        gpudiag.with_simulator(lambda libraries: (libraries / library).unlink())
        place = gpudiag.folder / folder / library
        place.parent.mkdir(parents=True)
        make(place)
        gpudiag.environment["LD_LIBRARY_PATH"] = str(place.parent)

    return prepare


def _for_aarch64(place: Path) -> None:
    content = bytearray((simulator.library_directory() / place.name).read_bytes())
    content[_MACHINE_AT : _MACHINE_AT + 2] = _AARCH64
    place.write_bytes(content)


def _toolkit(written: str) -> Callable[[Gpudiag], None]:
    """Put the CUDA runtime into ``cuda/lib64`` of the home folder, and ``written`` into LD_LIBRARY_PATH."""

    def prepare(gpudiag: Gpudiag) -> None:
        gpudiag.with_simulator(lambda libraries: (libraries / "libcudart.so.12").unlink())
        home = gpudiag.folder / "home"
        (home / "cuda" / "lib64").mkdir(parents=True)
        library = simulator.library_directory() / "libcudart.so.12"
        (home / "cuda" / "lib64" / library.name).write_bytes(library.read_bytes())
        gpudiag.environment |= {"HOME": str(home), "LD_LIBRARY_PATH": written.format(home=home)}

    return prepare


def _item(number: int, title: str, rule: str, fix: str, prepare: Callable[[Gpudiag], None]) -> Item:
    return Item(number, title, rule, fix, machine="2", prepare=prepare)


ITEMS = (
    _item(
        81,
        "Docker made a folder in the place of a library",
        "library_missing",
        "out of LD_LIBRARY_PATH",
        _in_the_place_of("libcudnn.so.9", "mounted", Path.mkdir),
    ),
    _item(
        82,
        "a library is a link to nothing",
        "runtime_missing",
        "pip install",
        _in_the_place_of("libcudart.so.12", "conda/lib", lambda place: place.symlink_to("libcudart.so.12.4.127")),
    ),
    _item(
        83,
        "a library is for another processor",
        "library_missing",
        "pip install",
        _in_the_place_of("libcudnn.so.9", "sbsa/lib", _for_aarch64),
    ),
    _item(
        84,
        "LD_LIBRARY_PATH begins with ~, in quotes",
        "library_off_the_path",
        "home/cuda/lib64",
        _toolkit("~/cuda/lib64"),
    ),
    _item(
        85,
        "LD_LIBRARY_PATH has the quotes of a file for docker --env-file",
        "library_off_the_path",
        "home/cuda/lib64",
        _toolkit('"{home}/cuda/lib64"'),
    ),
    _item(
        86,
        "a variable in LD_LIBRARY_PATH lacks its $",
        "library_off_the_path",
        "home/cuda/lib64",
        _toolkit("HOME/cuda/lib64:/opt/none"),
    ),
    Item(
        87,
        "CUDA_VISIBLE_DEVICES has the quotes of a file for docker --env-file",
        "mask_hides_all",
        "export CUDA_VISIBLE_DEVICES=0",
        machine="2",
        variables={"CUDA_VISIBLE_DEVICES": '"0"'},
    ),
)
