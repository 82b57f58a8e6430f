"""Codes with which NVIDIA's driver and libraries answer: a text is looked through for them, each with its meaning."""

from __future__ import annotations

from gpudiag.knowledge.log import recognised
from gpudiag.knowledge.message import Event
from gpudiag.knowledge.messages import cuda, nccl, nvml, statuses, xid
from gpudiag.knowledge.messages.programs_and_drivers import OLD_DRIVER, TWO_VERSIONS

_FAMILIES = (cuda.FAMILY, nccl.FAMILY, nvml.FAMILY, statuses.FAMILY, xid.FAMILY)
_KINDS = [
    *(message for family in _FAMILIES for message in family.messages),
    *cuda.ELSEWHERE.values(),
    OLD_DRIVER,
    TWO_VERSIONS,
]
MESSAGES = frozenset(message for kind in _KINDS for message in (kind, *kind.codes.values()) if message.meaning)
"""Messages that stand for a single code and give its meaning."""


def code_in(line: str) -> Event | None:
    """Return the first code in a line that has a meaning; None if there is none."""
    return next((event for event in recognised(line) if event.message in MESSAGES), None)
