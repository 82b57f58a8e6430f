"""A report, or the summary of one, on a stream that others write to as well: one line, with a length and a checksum.

Login shells and hooks of a site print before it, connections break in it, and some engines mix standard error into it.
``gpudiag-report 1 BYTES SHA256 TEXT``: TEXT is the JSON of the report, compressed by zlib, in base64; BYTES is its
length and SHA256 its checksum before base64. ``gpudiag-summary 1 ...`` has the JSON of a
:class:`gpudiag.model.fleet.Summary` in the same way.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import zlib

from gpudiag.errors import GpudiagError

VERSION = 1
WORD = "gpudiag-report"
SUMMARY = "gpudiag-summary"
_BEGIN = {
    word: re.compile(word.encode() + rb" (\d{1,6}) (?:(\d{1,10}) ([0-9a-f]{64}) ([A-Za-z0-9+/=]*))?")
    for word in (WORD, SUMMARY)
}
_FRAME = re.compile(rb"gpudiag-(?:report|summary) \d{1,6} (?:\d|\s?$)")
_LARGEST = 64 << 20
"""The most bytes of a report, as :mod:`gpudiag.model.codec` has it."""


class CutShortError(GpudiagError):
    """A frame that ends early, or whose checksum is wrong."""


class OtherVersionError(GpudiagError):
    """A frame of a version that this gpudiag does not read."""


def framed(json: bytes, word: str = WORD) -> str:
    """Return the line for the JSON of a report, or of a summary if ``word`` is :data:`SUMMARY`, with its newline."""
    packed = zlib.compress(json, 9)
    digest = hashlib.sha256(packed).hexdigest()
    return f"{word} {VERSION} {len(packed)} {digest} {base64.b64encode(packed).decode()}\n"


def reports_in(output: bytes, word: str = WORD) -> list[bytes]:
    """Return the JSON of the report, or summary, that is framed in an output, or of the first two that differ.

    More are not unpacked: an output of some MiB can have many large ones.

    Raises :class:`CutShortError` or :class:`OtherVersionError` if there is none that is whole.
    """
    found: dict[bytes, None] = {}
    digests: set[bytes] = set()
    fault: GpudiagError | None = None
    for frame in _BEGIN[word].finditer(output):
        if frame[3] in digests:
            continue
        try:
            found[_content(frame)] = None
            digests.add(frame[3])
        except (CutShortError, OtherVersionError) as error:
            fault = error
        if len(found) > 1:
            break
    if fault is not None and not found:
        raise fault
    return list(found)


def first_frame(output: bytes) -> int | None:
    """Return where the first report or summary begins in an output, whole or not; None if there is none. A text that
    only names one has no length after its version."""
    found = _FRAME.search(output)
    return None if found is None else found.start()


def _content(frame: re.Match[bytes]) -> bytes:
    version, length, digest, text = frame.groups()
    if int(version) != VERSION:
        raise OtherVersionError(f"its report is framed by version {int(version)}; this gpudiag reads {VERSION}")
    try:
        packed = base64.b64decode(text or b"", validate=True)
    except binascii.Error:
        packed = b""
    if not length or len(packed) != int(length) or hashlib.sha256(packed).hexdigest().encode() != digest:
        raise CutShortError(f"its report has {len(text or b'')} characters, and more were announced")
    unpacker = zlib.decompressobj()
    try:
        report = unpacker.decompress(packed, _LARGEST)
    except zlib.error as error:
        raise CutShortError(f"its report cannot be unpacked: {error}") from None
    if not unpacker.eof:
        raise CutShortError(f"its report is larger than {_LARGEST >> 20} MiB, or cut short")
    return report
