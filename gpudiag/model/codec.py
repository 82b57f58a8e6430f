"""Report to JSON and back: strict, versioned, and the JSON Schema generated from the types."""

from __future__ import annotations

import json
import stat
import threading
import zlib
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from gpudiag.errors import ReportError, ReportVersionError
from gpudiag.knowledge.codes import meanings
from gpudiag.model import archive, fleet, renamed, schema_1
from gpudiag.model.diagnosis import RootCause
from gpudiag.model.reading import SavedReading, decode_hook, schema_hook
from gpudiag.model.report import SCHEMA_VERSION, Broken, Report, Row, conclude, exit_code, verdict
from gpudiag.record import Record
from gpudiag.text import escaped, printable

_LARGEST = 64 << 20
"""The largest size in bytes of a report file; reports have tens of kilobytes, and few have a long log."""
_MOST_CONTAINERS = 1 << 20
_MOST_VALUES = 1 << 23
"""The most lists and objects, and the most values in all: in memory an empty list takes 30 times its size in a file."""
_DEEPEST = 100
"""The most levels of nested lists and objects; a reading has fewer than ten."""

_GZIP = b"\x1f\x8b"
_SIGNALS = range(1, 65)

_converting = threading.Lock()
"""Held while msgspec reads a report: two threads that read the first one at the same time end the process by SIGSEGV
(msgspec 0.22, Python 3.11)."""


def encode(report: Report) -> str:
    """Return ``report`` as indented JSON with a final newline."""
    codes = meanings(encoded(msgspec.structs.replace(report, codes={})).decode())
    return escaped(msgspec.json.format(encoded(msgspec.structs.replace(report, codes=codes)), indent=2).decode()) + "\n"


def encoded(value: Any) -> bytes:
    """Return a record as JSON; invalid UTF-8 in a text, such as a file name, is written as an escape."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_printable(msgspec.to_builtins(value)))


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(item) for item in value]
    return value


def decode(text: str | bytes, origin: str) -> Report:
    """Return the report that ``text`` holds.

    Raises :class:`ReportError`, which names ``origin`` and the fault: not JSON, not a report of gpudiag, another schema
    version, an unknown field, a wrong type (JSON has no NaN), an impossible value, or a verdict that its own rows do
    not confirm.
    """
    content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if _has_too_many_values(content):
        raise ReportError(f"{origin}: not a report of gpudiag: it holds too many values.")
    try:
        report = _with_names_of_today(_of_today(content) or _of_any_version(content, origin))
        _refuse_impossible(report)
    except msgspec.ValidationError as error:
        raise ReportError(f"{origin}: a report of gpudiag, but malformed: {error}") from None
    report = msgspec.structs.replace(report, codes={})
    derived = conclude(report)
    if report.program is not None:  # its exit status may be that of the program
        derived = msgspec.structs.replace(derived, exit_code=report.exit_code)
    if report.withheld is None:  # an older gpudiag judged by the rows alone
        by_rows = verdict(report)
        if (by_rows, exit_code(by_rows, report)) == (report.verdict, report.exit_code):
            return derived
    if (derived.verdict, derived.exit_code) != (report.verdict, report.exit_code):
        raise ReportError(
            f"{origin}: says {report.verdict.value} (exit {report.exit_code}), but its rows say "
            f"{derived.verdict.value} (exit {derived.exit_code}): the file was edited."
        )
    return msgspec.structs.replace(report, withheld=derived.withheld)


def _of_today(content: bytes) -> Report | None:
    """Return a report of the current schema; None for anything else, of which :func:`_of_any_version` says what it is.

    It is read straight into records, which takes half the time. Their depth is that of the types; only readings are
    free.
    """
    try:
        with _converting:
            report = msgspec.json.decode(content, type=Report, dec_hook=decode_hook)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    readings = [dict(row.reading) for row in report.rows if isinstance(row.reading, SavedReading)]
    return None if report.schema_version != SCHEMA_VERSION or _is_deep(readings) else report


def _of_any_version(content: bytes, origin: str) -> Report:
    """Return a report; raises :class:`ReportError`, or ``msgspec.ValidationError`` for one that is malformed."""
    try:
        plain = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReportError(f"{origin}: not JSON, or cut short: {error}") from None
    if not isinstance(plain, dict) or "schema_version" not in plain:
        raise ReportError(f"{origin}: JSON, but not a gpudiag report (no 'schema_version').")
    if _is_deep(plain):
        raise ReportError(f"{origin}: not a report of gpudiag: its values are nested more than {_DEEPEST} levels deep.")
    version = plain["schema_version"]
    if version == 1:
        plain = schema_1.upgraded(plain)
    elif version != SCHEMA_VERSION:
        raise ReportVersionError(
            f"{origin}: schema version {version!r}; this gpudiag reads versions 1 and {SCHEMA_VERSION}. "
            f"Read it with the gpudiag that wrote it ({plain.get('gpudiag_version', 'version not given')})."
        )
    with _converting:
        return msgspec.convert(plain, Report, dec_hook=decode_hook)


def _with_names_of_today(report: Report) -> Report:
    """Return ``report`` with its causes under their current names."""

    def name(cause_id: str) -> str:
        return renamed.CAUSES.get(cause_id, cause_id)

    def named(causes: tuple[RootCause, ...]) -> tuple[RootCause, ...]:
        return tuple(msgspec.structs.replace(cause, cause_id=name(cause.cause_id)) for cause in causes)

    def explained(row: Row) -> Row:
        if row.findings:
            findings = tuple(msgspec.structs.replace(finding, cause=name(finding.cause)) for finding in row.findings)
            return msgspec.structs.replace(row, outcome=msgspec.structs.replace(row.outcome, findings=findings))
        if not isinstance(row.outcome, Broken) or not row.outcome.explained_by:
            return row
        outcome = msgspec.structs.replace(row.outcome, explained_by=name(row.outcome.explained_by))
        return msgspec.structs.replace(row, outcome=outcome)

    found = report.diagnosis
    diagnosis = msgspec.structs.replace(found, causes=named(found.causes), folded=named(found.folded))
    return msgspec.structs.replace(report, diagnosis=diagnosis, rows=tuple(map(explained, report.rows)))


def load(path: Path) -> Report:
    """Return the report at ``path``: a report, as it is or compressed by gzip, or a bundle.

    Raises :class:`ReportError` if it cannot be read.
    """
    return decode(content_of(path), str(path))


def content_of(path: Path) -> bytes:
    """Return the JSON of what :func:`load` reads at ``path``; raises :class:`ReportError`."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ReportError(f"{path}: cannot be read: it is not a regular file.")
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise ReportError(f"{path}: not a report of gpudiag: it is larger than {_LARGEST >> 20} MiB.")
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror or error}.") from None
    if content.startswith(_GZIP):
        return _unpacked(content, path)
    return archive.report_in(content, str(path), _LARGEST) if content.startswith(archive.MAGIC) else content


def _unpacked(content: bytes, path: Path) -> bytes:
    """Return what is compressed by gzip, as the reports of a fleet are."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        plain = unpacker.decompress(content, _LARGEST)
    except zlib.error as error:
        raise ReportError(f"{path}: cannot be unpacked: {error}") from None
    if not unpacker.eof:
        raise ReportError(f"{path}: cut short, or larger than {_LARGEST >> 20} MiB when it is unpacked.")
    return plain


SCHEMAS: dict[str, tuple[type[Record], int]] = {
    "report": (Report, SCHEMA_VERSION),
    "fleet": (fleet.FleetReport, fleet.SCHEMA_VERSION),
}
"""The records that have a schema, and its version."""


def schema(kind: str = "report") -> dict[str, Any]:
    """Return the JSON Schema of a kind of :data:`SCHEMAS`, generated from the types."""
    record, version = SCHEMAS[kind]
    generated = msgspec.json.schema(record, schema_hook=schema_hook)
    generated["$defs"][record.__name__]["properties"]["schema_version"] = {"const": version}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **generated}


def schema_text(kind: str = "report") -> str:
    """Return the JSON Schema of a kind as indented JSON with a final newline."""
    return json.dumps(schema(kind), indent=2) + "\n"


def _has_too_many_values(content: bytes) -> bool:
    if len(content) <= _MOST_CONTAINERS:
        return False
    return content.count(b"[") + content.count(b"{") > _MOST_CONTAINERS or content.count(b",") > _MOST_VALUES


def _is_deep(value: Any) -> bool:
    """Return True if a value has more levels than recursive functions can handle safely."""
    level = [value]
    for _ in range(_DEEPEST + 1):
        # One loop for a whole level: a large report has a thousand lists and objects.
        level = [
            inner
            for item in level
            for inner in (item.values() if item.__class__ is dict else item)
            if inner.__class__ is dict or inner.__class__ is list
        ]
        if not level:
            return False
    return True


def _refuse_impossible(report: Report) -> None:
    """Raise ``msgspec.ValidationError`` for a value of the right type that no run can produce."""
    try:
        msgspec.convert(report.started_at, datetime)
    except msgspec.ValidationError:
        raise msgspec.ValidationError("`started_at` is not a time in ISO 8601 - at `$.started_at`") from None
    if report.duration_s < 0:
        raise msgspec.ValidationError("a negative duration - at `$.duration_s`")
    for index, row in enumerate(report.rows):
        if row.duration_s < 0:
            raise msgspec.ValidationError(f"a negative duration - at `$.rows[{index}].duration_s`")
    if report.signal is not None and report.signal not in _SIGNALS:
        raise msgspec.ValidationError(f"no signal has the number {report.signal} - at `$.signal`")
