"""Error codes of NVIDIA's driver and libraries and of the operating system, each with its meaning.

:func:`meanings` adds the meanings to every text that is shown, so that no report has a code without its meaning.
"""

from __future__ import annotations

import errno
import os
import re
from collections import defaultdict

from gpudiag.knowledge.log import recognised
from gpudiag.knowledge.message import Event
from gpudiag.knowledge.messages import cuda, nccl, nvml, statuses, xid
from gpudiag.knowledge.messages.programs_and_drivers import TWO_VERSIONS
from gpudiag.knowledge.messages.runtime import EVENT_FAILED

_FAMILIES = (cuda.FAMILY, nccl.FAMILY, nvml.FAMILY, statuses.FAMILY, xid.FAMILY)
_KINDS = [
    *(message for family in _FAMILIES for message in family.messages),
    *cuda.ELSEWHERE.values(),
    TWO_VERSIONS,
    EVENT_FAILED,
]
MESSAGES = frozenset(message for kind in _KINDS for message in (kind, *kind.codes.values()) if message.meaning)
"""Messages that stand for a single code and give its meaning."""
_CODE = re.compile(
    r"\b(?:(?:CUDA_ERROR|CUFFT|NVML_ERROR|(?:CUDNN|CUBLAS|CUSOLVER|CUSPARSE)_STATUS)_[A-Z0-9_]{1,80}"
    r"|(?:cudaError|NVMLError_|nccl)[A-Z]\w{1,80}|E[A-Z0-9]{2,15}|Xid(?: \([^()]{1,60}\):)? (?P<xid>\d{1,4}))\b"
)
_ERRNOS = {name: os.strerror(number) for number, name in errno.errorcode.items()}


def code_in(line: str) -> Event | None:
    """Return the first code in a line that has a meaning; None if there is none."""
    return next((event for event in recognised(line) if event.message in MESSAGES), None)


def meaning_of(event: Event) -> str:
    return event.message.meaning.format_map(defaultdict(str, event.fields))


def meanings(text: str) -> dict[str, str]:
    """Return the codes in a text, each with its meaning, except codes whose meaning the text already has."""
    found: dict[str, str] = {}
    flat = " ".join(text.split())
    for match in _CODE.finditer(flat):
        code = f"Xid {match['xid']}" if match["xid"] else match[0]
        if code not in found and (meaning := _meaning(code, match["xid"] or "")) and meaning not in flat:
            found[code] = meaning
    return found


def explained(text: str) -> str:
    """Return a text that stands alone, with the meanings of its codes."""
    return "; ".join([text, *(f"{code}: {meaning}" for code, meaning in meanings(text).items())])


def cut(text: str, most: int) -> str:
    """Return at most ``most`` characters of a text; the first code that it names is among them."""
    if len(text) <= most:
        return text
    code = next((match for match in _CODE.finditer(text) if _meaning(match[0], match["xid"] or "")), None)
    if code is None or code.end() < most:
        return f"{text[: most - 1]}…"
    return f"{text[: most - 3 - len(code[0])]} … {code[0]}"


def _meaning(code: str, xid_number: str) -> str:
    """Return what a code means; "" if it is not known."""
    if xid_number:
        message = xid.BY_NUMBER.get(xid_number)
        return message.meaning.format(code=xid_number).partition(": ")[2] if message else ""
    if code in _ERRNOS:
        return _ERRNOS[code]
    return meaning_of(event) if (event := code_in(code)) is not None else ""
