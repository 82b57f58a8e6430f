"""Errors whose text is meant for a person: what is wrong, and what to do about it."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable


class GpudiagError(Exception):
    """Base of every error that gpudiag raises on purpose.

    The command line prints ``str(error)`` and exits with status 2; a traceback is shown only under ``--debug``.
    """


class UsageError(GpudiagError):
    """An argument, an environment variable or a configuration key that cannot be used."""


class ReportError(GpudiagError):
    """A saved report that cannot be read: not there, truncated, foreign, or of another schema version."""


class ReportVersionError(ReportError):
    """A saved report of a schema version that this gpudiag does not read."""


class Disturbed(GpudiagError):  # noqa: N818  # a cause, not an error of this program
    """A measurement that another process changed while it was made; it says nothing about TensorFlow."""


class NoContext(GpudiagError):  # noqa: N818  # a cause, not an error of this program
    """No CUDA context could be made on a GPU, so nothing was measured; ``discovery.logical_devices`` says why."""


class NoMemory(GpudiagError):  # noqa: N818  # a cause, not an error of this program
    """A GPU's memory ran out where the probe did not mean it to."""


class NotSimulated(GpudiagError):  # noqa: N818  # a cause, not an error of this program
    """A simulated GPU cannot do what a probe asked of it; it says nothing about the machine."""


class OperationFailed(GpudiagError):  # noqa: N818  # what was measured, not an error of this program
    """An operation on a GPU that must work raised an error of the GPU or its libraries."""


class OutputError(GpudiagError):
    """A report that could not be written, although its file could be before the run."""


class CatalogueError(GpudiagError):
    """A probe file that does not have the form the catalogue asks for."""


_SHORTAGES = {
    errno.EAGAIN: "no more processes may be started: raise ulimit -u, or the pids.max of the cgroup (docker run "
    "--pids-limit)",
    errno.EMFILE: "too many files are open: raise ulimit -n",
    errno.ENFILE: "too many files are open on this machine: raise fs.file-max",
    errno.ENOMEM: "no memory is left: end other programs, or raise the limit (ulimit -v, the memory of the cgroup)",
    errno.ENOSPC: "the file system is full: make room there, or set TMPDIR to a folder that has some",
    errno.EDQUOT: "the quota is used up: make room, or set TMPDIR to another folder",
    errno.EROFS: "the file system is read-only: set TMPDIR to a folder that can be written to",
    errno.EFBIG: "files may not become that large: raise ulimit -f",
    errno.E2BIG: "the variables and arguments are larger than this system allows: unset what is large in 'env'",
}


def shortage(error: OSError) -> str:
    """Return what the operating system had too little of: its own words, and the limit that is behind the error."""
    where = f"{error.filename}: " if error.filename else ""
    name = errno.errorcode.get(error.errno or 0, "")
    text = f"{where}{error.strerror or error}{f' ({name})' if name else ''}"
    return f"{text}: {_SHORTAGES[error.errno]}" if error.errno in _SHORTAGES else text


def no_memory() -> str:
    """Return the shortage behind a MemoryError of Python."""
    return _SHORTAGES[errno.ENOMEM]


def nearest(name: str, known: Iterable[str], most: int = 3) -> str:
    """Return a sentence that names the entries of ``known`` nearest to ``name``, or all of a short list.

    Upper and lower case count as the same letter, and the dashes of options not at all.
    """
    names = sorted(known)
    folded = {known_name.lower().lstrip("-"): known_name for known_name in names}
    wanted = name.lower().lstrip("-")
    close = [folded[match] for match in difflib.get_close_matches(wanted, folded, n=most, cutoff=0.5)]
    if close:
        return f"Did you mean {' or '.join(repr(match) for match in close)}?"
    return f"Known: {', '.join(names)}." if len(names) <= 30 else ""


def sentences(*parts: str) -> str:
    """Return the parts of a message that are not empty, as one line."""
    return " ".join(filter(None, parts))
