"""The Python interface: what ``import gpudiag`` offers for the main job, in a program or a notebook.

Whatever looks at the machine runs in a process of its own (:mod:`gpudiag.api.process`): the TensorFlow, the devices,
the signal handlers and the variables of the calling process stay as they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, TypeAlias

from gpudiag.api import process
from gpudiag.api.records import Comparison, Report
from gpudiag.comparison import reports
from gpudiag.comparison.reports import ComparedReport
from gpudiag.errors import UsageError
from gpudiag.model import codec

__all__ = ["Comparison", "Report", "check", "diff", "load", "why"]

PathName: TypeAlias = str | os.PathLike[str]
Names: TypeAlias = str | Iterable[str]
"""A name, or several."""
Machine: TypeAlias = int | PathName
"""Simulated GPUs: a number, a specification such as ``4x16GiB``, or the file of a machine."""
Progress: TypeAlias = Callable[[str], object]
"""Is called with each line of progress, such as ``print``."""


def check(
    select: Names = (),
    *,
    skip: Names = (),
    failed: bool = False,
    level: Literal["quick", "full", "stress"] | None = None,
    for_: float | str | None = None,
    disturb: bool = False,
    isolation: Literal["fork", "spawn"] | None = None,
    timeout: float | None = None,
    deadline: float | None = None,
    jobs: int | None = None,
    lock_wait: float | None = None,
    bisect: float | None = None,
    python: PathName | None = None,
    simulate: Machine | None = None,
    fault: Names = (),
    require_gpus: int | None = None,
    allow_no_gpu: bool = False,
    strict: bool = False,
    expect: PathName | None = None,
    log: PathName | None = None,
    baseline: PathName | None = None,
    keep_last_pass: bool = True,
    config: PathName | None = None,
    progress: Progress | None = None,
) -> Report:
    """Run the probes as ``gpudiag check`` does, and return the report; nothing is printed.

    ``select`` names areas, probes or globs; none means all. Each other argument is the option of the same name, which
    ``gpudiag check --help`` describes; ``for_`` is ``--for``, and ``log`` may also be the text of a log, see
    :func:`why`. ``progress`` is called with each line that the command would write to standard error:
    ``progress=print``.

    A verdict is no exception: see ``report.verdict``. Raises :class:`gpudiag.UsageError` for an argument that cannot be
    used, and :class:`gpudiag.GpudiagError` if the check could not run to its end. KeyboardInterrupt ends the check.
    """
    words, text = process.log_argument(log)
    return process.report(
        "check",
        {
            "skip": _several(skip),
            "failed": failed,
            "level": level,
            "for_": for_,
            "disturb": disturb,
            "isolation": isolation,
            "timeout": timeout,
            "deadline": deadline,
            "jobs": jobs,
            "lock_wait": lock_wait,
            "bisect": bisect,
            "python": python,
            "simulate": simulate,
            "fault": _several(fault),
            "require_gpus": require_gpus,
            "allow_no_gpu": allow_no_gpu,
            "strict": strict,
            "expect": expect,
            "log": words,
            "baseline": baseline,
            "no_keep_last_pass": not keep_last_pass,
            "config": config,
        },
        _several(select),
        text=text,
        progress=progress,
    )


def why(
    log: PathName | None = None,
    *,
    here: bool = False,
    simulate: Machine | None = None,
    fault: Names = (),
    python: PathName | None = None,
    bisect: float | None = None,
    progress: Progress | None = None,
) -> Report:
    """Say why no GPU is used, or why a program fails on one, as ``gpudiag why`` does: see ``report.causes``.

    ``log`` is what a program printed, on any machine: its text, or a file. A string of one line that names a file is
    that file. Without a log this machine is examined; with ``here`` the machine is, too. Raises as :func:`check`.
    """
    words, text = process.log_argument(log)
    options = {"here": here, "simulate": simulate, "fault": _several(fault), "python": python, "bisect": bisect}
    return process.report("why", options, () if words is None else (words,), text=text, progress=progress)


def load(path: PathName) -> Report:
    """Return a saved report: JSON, or a bundle. Raises :class:`gpudiag.ReportError` if it cannot be read."""
    return Report.of(codec.load(Path(path)))


def diff(old: Report | PathName, new: Report | PathName) -> Comparison:
    """Return what changed from one report to another, as ``gpudiag diff`` says; either may be a saved report.

    Raises :class:`gpudiag.ReportError` if one cannot be read.
    """
    return Comparison.of(reports.compare(_compared(old), _compared(new)))


def _compared(report: Report | PathName) -> ComparedReport:
    if isinstance(report, Report):
        return ComparedReport(report, " ".join(report.command))
    return ComparedReport.load(Path(report))


def _several(names: Names) -> tuple[str, ...]:
    if isinstance(names, str):
        return (names,)
    several = tuple(names)
    if wrong := [name for name in several if not isinstance(name, str)]:
        raise UsageError(f"{wrong[0]!r} is not a name: write a string, or a list of strings.")
    return several
