"""Lines of TensorFlow's log as records, and what they say of libraries; never by line number or time stamp."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpudiag.record import Record

# 2.21 writes as abseil does, "I0000 00:00:1795261972.775117   16176 gpu_device.cc:7] text"; 2.18-2.20 mostly in a
# form of their own, "2026-01-31 12:00:00.500000: I tensorflow/core/gpu_device.cc:7] text".
_LINE = re.compile(
    r"^(?:\d{4}-\d\d-\d\d \S+ )?(?P<level>[IWEF])(?:\d{4} \S+ +\d+)? (?:\S*/)?(?P<file>[\w.]+):\d+\] (?P<text>.*)"
)
_UNOPENED = re.compile(
    r"Could not load dynamic library '(?P<library>[^']+)'; dlerror: (?P<reason>.*?)(?:; LD_LIBRARY|$)"
)
_OPENED = re.compile(r"Successfully opened dynamic library (?P<library>\S+)")


_TELLING = re.compile(
    r"^(?:\d{4}-\d\d-\d\d \S+ )?[WEF](?:\d{4} \S+ +\d+)? \S*:\d+\] |Created device|CUDA|cuda|GPU|Error|ERROR|error:|"
    r"Exception|Traceback|^ *File \"|failed|Failed|fatal|[Oo]ut of memory|OOM|lib(?:cu|nv)\w{0,40}\.so"
)


def is_telling(line: str) -> bool:
    """Return whether a line, of any program, has a word that rules may rest on: of an error, of a GPU."""
    return _TELLING.search(line) is not None


class Line(Record):
    """A line of TensorFlow's log; number and time stamp are left out, they mean nothing."""

    level: str
    """``I``, ``W``, ``E`` or ``F``."""
    file: str
    """Such as ``gpu_device.cc``."""
    text: str


def parse(log: Iterable[str]) -> tuple[Line, ...]:
    """Return the lines of ``log`` that are TensorFlow's."""
    return tuple(Line(**found.groupdict()) for found in map(_LINE.match, log) if found)


def opened(log: Iterable[str]) -> tuple[str, ...]:
    """Return the libraries that TensorFlow opened, each once, in its order; at ``TF_CPP_VMODULE=dso_loader=1``."""
    return tuple(dict.fromkeys(found["library"] for found in map(_OPENED.search, log) if found))


def unopened(log: Iterable[str]) -> dict[str, str]:
    """Map each library that TensorFlow could not open to the loader's words; at ``TF_CPP_VMODULE=dso_loader=1``."""
    return {found["library"]: found["reason"] for found in map(_UNOPENED.search, log) if found}
