"""Sizes of memory, as people write them."""

from __future__ import annotations

import re

from gpudiag.simulator.errors import SpecError

MIB = 1 << 20
GIB = 1 << 30
TIB = 1 << 40

_SIZE = re.compile(r"(?P<number>-?\d+(?:\.\d+)?)\s*(?P<unit>[kmgt]i?b?|b)?\Z", re.IGNORECASE)
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def parse_size(text: str) -> int:
    """Parse a size into bytes. `16GiB` and `16G` are binary, as GPU memory always is; `512MiB`; a plain number is
    bytes."""
    match = _SIZE.match(text.strip())
    if not match:
        raise SpecError(f"{text!r} is not a size. Write 16GiB, 512MiB or a number of bytes.")
    unit = (match["unit"] or "").lower().rstrip("b").rstrip("i")
    size = int(float(match["number"]) * (1 << _SHIFTS[unit]))
    if not MIB <= size <= 4 * TIB:
        raise SpecError(f"{text} is not a possible memory size. Write 1MiB to 4TiB.")
    return size
