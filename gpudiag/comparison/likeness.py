"""Decides whether values of two reports are equal, apart from noise and from masked parts."""

from __future__ import annotations

import re

from gpudiag.model.fact_names import TEMPORARY, without_temporary
from gpudiag.model.facts import SLOW_S

_PLACEHOLDER = re.compile(
    r"<[^<>\s]{1,40}(?: out)?>|\b(?:GPU|MIG)-(?:uuid-[a-z]{1,3}|\d{1,3})(?![\w-])|(?<![^:\s'\"=])~(?=[/:]|$)"
)
"""The placeholder that ``--mask`` puts in place of a name, a path or a UUID; it was ``GPU-1`` for a UUID once."""
_NEARLY = 64
"""Relative difference up to which sizes are equal: a kernel reserves a little more or less memory."""


def is_same(old: object, new: object, *, unit: str = "") -> bool:
    """Return whether two values are equal as far as can be known; ``unit`` is ``bytes`` or ``seconds``."""
    if old == new:
        return True
    if isinstance(old, str) and isinstance(new, str):
        old, new = without_temporary(old), without_temporary(new)
        return old == new or _fits(old, new) or _fits(new, old)
    if unit == "seconds" and isinstance(old, float) and isinstance(new, float):
        return max(old, new) < SLOW_S or max(old, new) < 2 * min(old, new)
    if unit == "bytes" and isinstance(old, int) and isinstance(new, int):
        return old >> 20 == new >> 20 or abs(old - new) * _NEARLY <= max(old, new)
    return False


def is_loose(text: str) -> bool:
    """Return whether a text can be equal to a different one, because a part is a placeholder or differs in each run."""
    return bool(_PLACEHOLDER.search(text) or TEMPORARY.search(text))


def _fits(masked: str, text: str) -> bool:
    """Return whether ``text`` can be the original of ``masked``, with any text for each placeholder."""
    first, *rest = _PLACEHOLDER.split(masked)
    if not rest or not text.startswith(first):
        return False
    position = len(first)
    *between, last = rest
    for part in between:
        at = text.find(part, position)
        if at < 0:
            return False
        position = at + len(part)
    return text.endswith(last) and len(text) - len(last) >= position
