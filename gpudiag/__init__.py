"""GPU configuration diagnostics and test harness for TensorFlow.

``gpudiag.check()``, ``why``, ``load`` and ``diff`` do what the commands of these names do, and return records; see
'gpudiag docs python'. ``gpudiag.trace()`` watches a part of a program.

PYTEST_DONT_REWRITE: pytest would otherwise warn anyone who imports gpudiag before it; gpudiag contains no assertions of
tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from gpudiag.api import Comparison, Report, check, diff, load, why
    from gpudiag.errors import GpudiagError, OutputError, ReportError, UsageError
    from gpudiag.model.report import Severity, Verdict
    from gpudiag.tracing.part import Traced

__version__ = "0.1.0"

_HOMES = {
    **dict.fromkeys(("Comparison", "Report", "check", "diff", "load", "why"), "gpudiag.api"),
    **dict.fromkeys(("GpudiagError", "OutputError", "ReportError", "UsageError"), "gpudiag.errors"),
    **dict.fromkeys(("Severity", "Verdict"), "gpudiag.model.report"),
}
"""Where each name is that is imported when it is used first: ``import gpudiag`` imports nothing else."""

__all__ = [
    "Comparison",
    "GpudiagError",
    "OutputError",
    "Report",
    "ReportError",
    "Severity",
    "UsageError",
    "Verdict",
    "check",
    "diff",
    "keras_callback",
    "load",
    "trace",
    "why",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_imported(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]


def trace() -> AbstractContextManager[Traced]:
    """Watch what this process does with its GPUs: ``with gpudiag.trace() as report: ...``; then ``print(report)``."""
    return _imported("gpudiag.tracing.part").trace()  # type: ignore[no-any-return]


def keras_callback(output: str | None = None) -> object:
    """Return a callback for ``model.fit`` that traces the training and prints its report, or writes it to a file."""
    callback: object = _imported("gpudiag.tracing.part").keras_callback(output)
    return callback


def _imported(module: str) -> Any:
    # By name: every module imports this one, and only these functions may import those.
    from importlib import import_module

    return import_module(module)
