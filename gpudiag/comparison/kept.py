"""Keeps the last report of this machine and interpreter, and the last one with PASS.

``gpudiag check --failed`` runs what did not pass in the last run, and a run that fails shows what changed since the
last PASS. Both are reports as any other, ``$XDG_STATE_HOME/gpudiag/last-run-HOST-DIGEST.json`` and ``last-pass-...``:
the digest is of the host's name and the interpreter, because one home folder may serve many hosts. Simulated machines
have separate files, one for each specification, whatever faults are injected; the name of the file says ``simulated``,
and no real machine is ever compared with one.

A record is trusted, so it must be a plain file, and other users must not be able to write it or a folder above it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpudiag import folders, trust
from gpudiag.comparison.failed import with_earlier
from gpudiag.comparison.reports import ComparedReport, compare
from gpudiag.errors import GpudiagError, UsageError
from gpudiag.model import codec
from gpudiag.model.facts import Unknown
from gpudiag.model.report import Report, Verdict, World
from gpudiag.text import printable

RUN, PASS = "last-run", "last-pass"
_NAME = re.compile(r"last-(?:run|pass)-[\w.-]+-[0-9a-f]{12}\.json")
MOST_FILES = 50
"""The most records of each kind; the oldest are deleted, because a container often gets a new host name each time."""
SOURCE = "the last PASS"
THIS = "this run"


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the XDG Base Directory Specification; a relative path there does not count."""
    state = Path(environ.get("XDG_STATE_HOME", ""))
    return (state if state.is_absolute() else Path("~/.local/state").expanduser()) / "gpudiag"


class Identity(NamedTuple):
    """What the runs have in common of which the last is kept."""

    hostname: str
    executable: str
    prefix: str
    spec: str | None
    """The simulated machine's specification; None for the real machine."""

    @classmethod
    def here(cls, world: World) -> Identity:
        """Return the identity of a run on ``world`` by this process."""
        return cls(printable(platform.node()), printable(sys.executable), printable(sys.prefix), _spec(world))

    @classmethod
    def of(cls, report: Report) -> Identity | None:
        """Return the identity of a report; None if its machine or interpreter is unknown."""
        system = report.facts.system
        if isinstance(system, Unknown):
            return None
        return cls(system.hostname, system.executable, system.prefix, _spec(report.world))

    def file(self, kind: str) -> Path:
        """Return the file for the last report of this kind, :data:`RUN` or :data:`PASS`."""
        digest = hashlib.sha256("\0".join([*self[:3], self.spec or ""]).encode()).hexdigest()[:12]
        host = "simulated" if self.spec is not None else re.sub(r"[^\w.-]", "_", self.hostname)[:64]
        return folder() / f"{kind}-{host}-{digest}.json"


def _spec(world: World) -> str | None:
    """Return the specification of a simulated machine without its faults; None for the real machine."""
    return world.spec.partition(" --fault ")[0] if world.simulated else None


def with_changes(report: Report, baseline: ComparedReport | None = None, *, keep: bool = True) -> Report:
    """Return ``report`` with the changes since ``baseline`` or, if the report is not a PASS, since the last PASS.

    With ``keep`` it is saved as the last run and, if it is a PASS, as the last PASS; if that fails, the report gets a
    note.
    """
    if baseline is not None:
        report = msgspec.structs.replace(report, since=compare(baseline, ComparedReport(report, THIS)))
    elif keep and report.verdict is not Verdict.PASS:
        report = since_last_pass(report)
    return _kept(report) if keep else report


def since_last_pass(report: Report) -> Report:
    """Return ``report`` with the changes since the last PASS, if one is kept that this gpudiag can read."""
    try:
        identity = Identity.of(report)
        if identity is None or not os.path.lexists(file := identity.file(PASS)):
            return report
        if reason := _distrust(file):
            return _with_note(report, f"what changed since the last PASS is not known: {file} is not read: {reason}")
        baseline = msgspec.structs.replace(ComparedReport.load(file), source=SOURCE)
    except (OSError, RuntimeError, GpudiagError):  # RuntimeError: there is no home folder
        return report
    return msgspec.structs.replace(report, since=compare(baseline, ComparedReport(report, THIS)))


def last_run(world: World) -> Report:
    """Return the last run of this machine and interpreter on ``world``.

    Raises :class:`gpudiag.errors.GpudiagError` with what to do if none is kept, or if it cannot be read.
    """
    with contextlib.suppress(RuntimeError):  # there is no home folder
        file = Identity.here(world).file(RUN)
        if os.path.lexists(file):
            return _load(file)
    spec = None
    with contextlib.suppress(GpudiagError):
        spec = _spec(newest_run().world)
    hint = f" The last run here was on simulated GPUs: add '--simulate {spec}'." if spec is not None else ""
    raise UsageError(
        f"no last run of this machine and interpreter is kept. Run 'gpudiag check' without --failed.{hint}"
    )


def newest_run() -> Report:
    """Return the last run by this interpreter on this host, be it on real or on simulated GPUs.

    Raises :class:`gpudiag.errors.GpudiagError` if none is kept, or if it cannot be read.
    """
    with contextlib.suppress(OSError, RuntimeError):  # there is no such folder, or no home folder
        for file in _newest_first(folder(), RUN):
            report = _load(file)
            if Identity.of(report) == Identity.here(report.world):
                return report
    raise UsageError("no run of this machine and interpreter is kept. Run 'gpudiag check' first.")


def _load(file: Path) -> Report:
    if reason := _distrust(file):
        raise UsageError(f"the last run is not read: {file}: {reason}. Run 'gpudiag check', without --failed.")
    try:
        return codec.load(file)
    except GpudiagError as error:
        raise UsageError(f"the last run cannot be read: {error} Run 'gpudiag check', without --failed.") from None


def _kept(report: Report) -> Report:
    """Return ``report`` as it is kept: with what did not pass in earlier runs and has not passed since."""
    try:
        identity = Identity.of(report)
        if identity is None:
            return report
        file = identity.file(RUN)
        _make_folder(file.parent)
        with _alone_in(file.parent):
            previous = None
            with contextlib.suppress(GpudiagError, FileNotFoundError):
                previous = codec.load(file) if not _distrust(file) else None
            kept = msgspec.structs.replace(report, earlier={}) if previous is None else with_earlier(report, previous)
            content = codec.encode(kept)
            records = (file, *([identity.file(PASS)] if report.verdict is Verdict.PASS else []))
            for record in records:
                if reason := _distrust(record):
                    return _with_note(report, f"this run is not kept for later comparisons: {record}: {reason}")
            for record in records:
                folders.write(record, content, 0o600)
        _remove_oldest(file.parent)
    except (OSError, RuntimeError, GpudiagError) as error:
        return _with_note(report, f"this run is not kept for later comparisons: {error}")
    return kept


@contextlib.contextmanager
def _alone_in(state: Path) -> Iterator[None]:
    """Wait until no other run replaces records, for a second at most: a file system may have no locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    descriptor = os.open(state, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for _ in range(20):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def _make_folder(state: Path) -> None:
    """Create the folder of the records, with gpudiag's mark; an existing folder is used unchanged."""
    if not state.exists():
        state.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with folders.new(state):
                """It stays empty but for its mark."""
        except OSError:
            if not state.exists():  # another run has not made it meanwhile
                raise


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
    """Remove all records of each kind but the newest, if gpudiag made the folder."""
    for kind in (RUN, PASS):
        for file in _newest_first(state, kind)[MOST_FILES:]:
            folders.remove(file)


def _newest_first(state: Path, kind: str) -> list[Path]:
    records = [file for file in state.iterdir() if file.name.startswith(kind) and _NAME.fullmatch(file.name)]
    return sorted(records, key=lambda file: file.lstat().st_mtime, reverse=True)
