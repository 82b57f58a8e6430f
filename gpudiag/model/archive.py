"""Bundles: zip files with a report and what belongs to it. They are read here in memory; nothing is written to a
folder.

A bundle may come from anyone. Only its report is read, up to a bounded size. A suspicious file is refused as a whole:
one with paths that lead out of a folder, with links, or with more content than it declares.
"""

from __future__ import annotations

import io
import stat
import struct
import zipfile
import zlib

from gpudiag.errors import ReportError

MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
"""The first bytes of a zip file, and of an empty one."""
REPORT = "report.json"
MOST_FILES = 1000
MOST_BYTES = 256 << 20
"""Most bytes that all files of an archive may have together, unpacked."""

_END = struct.Struct("<4s4H2LH")
"""The end of central directory record (APPNOTE.TXT of PKWARE, 4.3.16)."""
_END_MAGIC = b"PK\x05\x06"
_LONGEST_COMMENT = 0xFFFF
_MOST_DIRECTORY = 1 << 20
_ENCRYPTED = 0x1


def report_in(content: bytes, origin: str, most: int) -> bytes:
    """Return the report of the bundle ``content``, JSON of at most ``most`` bytes.

    Raises :class:`ReportError`, which names ``origin`` and the fault.
    """
    _refuse_large_directory(content, origin)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as bundle:
            members = bundle.infolist()
            for member in members:
                if why := _wrong(member):
                    raise ReportError(f"{origin}: not a bundle of gpudiag: {member.filename[:200]!a} {why}.")
            if sum(member.file_size for member in members) > MOST_BYTES:
                raise ReportError(f"{origin}: not a bundle of gpudiag: it unpacks to more than {MOST_BYTES >> 20} MiB.")
            reports = [member for member in members if member.filename == REPORT]
            if len(reports) != 1:
                raise ReportError(f"{origin}: a zip file, but not a bundle of gpudiag: it has {len(reports)} {REPORT}.")
            if reports[0].file_size > most:
                raise ReportError(f"{origin}: not a bundle of gpudiag: its report is larger than {most >> 20} MiB.")
            with bundle.open(reports[0]) as file:
                return file.read(most)  # never more than the directory says
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError, NotImplementedError, struct.error) as error:
        raise ReportError(f"{origin}: a zip file that is damaged or cut short: {error}") from None


def _refuse_large_directory(content: bytes, origin: str) -> None:
    """Refuse a zip directory of many entries before it is read: each takes far more memory than bytes."""
    at = content.rfind(_END_MAGIC, max(0, len(content) - _END.size - _LONGEST_COMMENT))
    if at < 0 or len(content) - at < _END.size:
        raise ReportError(f"{origin}: a zip file that is damaged or cut short: its end is missing.")
    _, _, _, _, files, size, _, _ = _END.unpack_from(content, at)
    if files > MOST_FILES or size > _MOST_DIRECTORY:
        raise ReportError(f"{origin}: not a bundle of gpudiag: it has more than {MOST_FILES} files.")


def _wrong(member: zipfile.ZipInfo) -> str:
    """Return what is wrong with a file of a bundle, as the end of a sentence; "" if nothing is."""
    parts = member.filename.replace("\\", "/").split("/")
    if member.filename.startswith(("/", "\\")) or ".." in parts or ":" in parts[0] or "\0" in member.filename:
        return "is a path that leads out of a folder"
    mode = member.external_attr >> 16
    if stat.S_ISLNK(mode):
        return "is a link"
    if mode and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) and stat.S_IFMT(mode):
        return "is not a regular file"
    if member.flag_bits & _ENCRYPTED:
        return "is encrypted"
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is compressed in a way that gpudiag does not write"
    return ""
