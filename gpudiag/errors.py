"""Errors whose text is meant for a person: what is wrong, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class GpudiagError(Exception):
    """Base of every error that gpudiag raises on purpose.

    The command line prints ``str(error)`` and exits with status 2; a traceback is shown only under ``--debug``.
    """


class UsageError(GpudiagError):
    """An argument, an environment variable or a configuration key that cannot be used."""


class ReportError(GpudiagError):
    """A saved report that cannot be read: not there, truncated, foreign, or of another schema version."""


class Disturbed(GpudiagError):  # noqa: N818  # a cause, not an error of this program
    """A measurement that another process changed while it was made; it says nothing about TensorFlow."""


class NoContext(GpudiagError):  # noqa: N818  # a cause, not an error of this program
    """No CUDA context could be made on a GPU, so nothing was measured; ``discovery.logical_devices`` says why."""


class NoMemory(GpudiagError):  # noqa: N818  # a cause, not an error of this program
    """A GPU's memory ran out where the probe did not mean it to."""


class OutputError(GpudiagError):
    """A report that could not be written, although its file could be before the run."""


class CatalogueError(GpudiagError):
    """A probe file that does not have the form the catalogue asks for."""


def nearest(name: str, known: Iterable[str], most: int = 3) -> str:
    """Return a sentence that names the entries of ``known`` nearest to ``name``, or all of a short list.

    Upper and lower case count as the same letter.
    """
    names = sorted(known)
    folded = {known_name.lower(): known_name for known_name in names}
    close = [folded[match] for match in difflib.get_close_matches(name.lower(), folded, n=most, cutoff=0.5)]
    if close:
        return f"Did you mean {' or '.join(repr(match) for match in close)}?"
    return f"Known: {', '.join(names)}." if len(names) <= 30 else ""
