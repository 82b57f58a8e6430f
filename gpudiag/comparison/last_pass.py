"""Keeps the last report with PASS of this machine and interpreter, to show the changes when a later run fails.

It is a report as any other, ``$XDG_STATE_HOME/gpudiag/last-pass-HOST-DIGEST.json``: the digest is of the host's name
and the interpreter, because one home folder may serve many hosts. Simulated machines have separate files, one for each
specification; the name of the file says ``simulated``, and no real machine is ever compared with one.

A record is trusted, so it must be a plain file, and other users must not be able to write it or a folder above it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gpudiag import folders, trust
from gpudiag.comparison.reports import ComparedReport, compare
from gpudiag.errors import GpudiagError
from gpudiag.model import codec
from gpudiag.model.facts import Unknown
from gpudiag.model.report import Report, Verdict

_NAME = re.compile(r"last-pass-[\w.-]+-[0-9a-f]{12}\.json")
MOST_FILES = 50
"""The most records; the oldest are deleted, because a container often gets a new host name each time."""
SOURCE = "the last PASS"
THIS = "this run"


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the XDG Base Directory Specification; a relative path there does not count."""
    state = Path(environ.get("XDG_STATE_HOME", ""))
    return (state if state.is_absolute() else Path("~/.local/state").expanduser()) / "gpudiag"


def file_of(report: Report) -> Path | None:
    """Return the file for the last PASS of the report's machine and interpreter; None if these are unknown."""
    system = report.facts.system
    if isinstance(system, Unknown):
        return None
    spec, _, _ = report.world.spec.partition(" --fault ")
    identity = (system.hostname, system.executable, system.prefix, spec if report.world.simulated else "")
    digest = hashlib.sha256("\0".join(identity).encode()).hexdigest()[:12]
    host = "simulated" if report.world.simulated else re.sub(r"[^\w.-]", "_", system.hostname)[:64]
    return folder() / f"last-pass-{host}-{digest}.json"


def with_changes(report: Report, baseline: ComparedReport | None = None, *, keep: bool = True) -> Report:
    """Return ``report`` with the changes since ``baseline`` or, if the report is not a PASS, since the last PASS.

    With ``keep`` a PASS is saved; if that fails, the report gets a note.
    """
    if baseline is not None:
        return msgspec.structs.replace(report, since=compare(baseline, ComparedReport(report, THIS)))
    if not keep:
        return report
    return _kept(report) if report.verdict is Verdict.PASS else since_last_pass(report)


def since_last_pass(report: Report) -> Report:
    """Return ``report`` with the changes since the last PASS, if one is kept that this gpudiag can read."""
    try:
        file = file_of(report)
        if file is None or not os.path.lexists(file):
            return report
        if reason := _distrust(file):
            return _with_note(report, f"what changed since the last PASS is not known: {file} is not read: {reason}")
        baseline = msgspec.structs.replace(ComparedReport.load(file), source=SOURCE)
    except (OSError, RuntimeError, GpudiagError):  # RuntimeError: there is no home folder
        return report
    return msgspec.structs.replace(report, since=compare(baseline, ComparedReport(report, THIS)))


def _kept(report: Report) -> Report:
    try:
        file = file_of(report)
        if file is not None:
            _make_folder(file.parent)
            if reason := _distrust(file):
                return _with_note(report, f"this PASS is not kept for later comparisons: {file}: {reason}")
            folders.write(file, codec.encode(report), 0o600)
            _remove_oldest(file.parent)
    except (OSError, RuntimeError, GpudiagError) as error:
        return _with_note(report, f"this PASS is not kept for later comparisons: {error}")
    return report


def _make_folder(state: Path) -> None:
    """Create the folder of the records, with gpudiag's mark; an existing folder is used unchanged."""
    if not state.exists():
        state.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError), folders.new(state):
            """Another run may have created the folder meanwhile."""


def _distrust(record: Path) -> str:
    """Return why a record is neither read nor written: another user may have put it there, or it is not a plain
    file."""
    try:
        if not stat.S_ISREG(record.lstat().st_mode):
            return "it is not a plain file"
    except FileNotFoundError:
        pass
    return trust.distrust(record)


def _with_note(report: Report, note: str) -> Report:
    return msgspec.structs.replace(report, notes=(*report.notes, note))


def _remove_oldest(state: Path) -> None:
    """Remove all records but the newest, if gpudiag made the folder."""
    records = [file for file in state.iterdir() if _NAME.fullmatch(file.name)]
    for file in sorted(records, key=lambda file: file.lstat().st_mtime, reverse=True)[MOST_FILES:]:
        folders.remove(file)
