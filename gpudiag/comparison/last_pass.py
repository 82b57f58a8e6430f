"""The last report with PASS of this machine and interpreter, kept to say what changed when a later run fails.

It is a report as any other, ``$XDG_STATE_HOME/gpudiag/last-pass-HOST-DIGEST.json``: the digest is of the host's name
and the interpreter, because one home folder may serve many hosts. Simulated machines have separate files, one for each
specification; the name of the file says ``simulated``, and no real machine is ever compared with one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gpudiag.comparison.reports import Known, compare
from gpudiag.errors import GpudiagError
from gpudiag.model import codec
from gpudiag.model.facts import Unknown
from gpudiag.model.report import Report, Verdict
from gpudiag.report import files as output

MOST_FILES = 50
"""In a container the host often has another name each time: the oldest files go."""
SOURCE = "the last PASS"
THIS = "this run"


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the XDG Base Directory Specification; a relative path there does not count."""
    state = Path(environ.get("XDG_STATE_HOME", ""))
    return (state if state.is_absolute() else Path("~/.local/state").expanduser()) / "gpudiag"


def file_of(report: Report) -> Path | None:
    """Return where the last PASS of the machine and interpreter of ``report`` is kept; None if they are not known."""
    system = report.facts.system
    if isinstance(system, Unknown):
        return None
    spec, _, _ = report.world.spec.partition(" --fault ")
    identity = (system.hostname, system.executable, system.prefix, spec if report.world.simulated else "")
    digest = hashlib.sha256("\0".join(identity).encode()).hexdigest()[:12]
    host = "simulated" if report.world.simulated else re.sub(r"[^\w.-]", "_", system.hostname)[:64]
    return folder() / f"last-pass-{host}-{digest}.json"


def with_changes(report: Report, baseline: Known | None = None, *, keep: bool = True) -> Report:
    """Return ``report`` with what changed since ``baseline``, or if it is not a PASS, since the last one.

    A PASS is kept, if ``keep``; what cannot be written is a note.
    """
    if baseline is not None:
        return msgspec.structs.replace(report, since=compare(baseline, Known(report, THIS)))
    if not keep:
        return report
    return _kept(report) if report.verdict is Verdict.PASS else since_last_pass(report)


def since_last_pass(report: Report) -> Report:
    """Return ``report`` with what changed since the last PASS, if one is kept that this gpudiag can read."""
    try:
        file = file_of(report)
        if file is None or not file.is_file():
            return report
        known = msgspec.structs.replace(Known.load(file), source=SOURCE)
    except (OSError, RuntimeError, GpudiagError):  # RuntimeError: there is no home folder
        return report
    return msgspec.structs.replace(report, since=compare(known, Known(report, THIS)))


def _kept(report: Report) -> Report:
    try:
        file = file_of(report)
        if file is not None:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            output.write(file, codec.encode(report))
            _remove_oldest(file.parent)
    except (OSError, RuntimeError, GpudiagError) as error:
        note = f"this PASS is not kept for later comparisons: {error}"
        return msgspec.structs.replace(report, notes=(*report.notes, note))
    return report


def _remove_oldest(state: Path) -> None:
    files = sorted(state.glob("last-pass-*.json"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in files[MOST_FILES:]:
        with contextlib.suppress(OSError):
            file.unlink()
