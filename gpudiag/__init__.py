"""GPU configuration diagnostics and test harness for TensorFlow.

PYTEST_DONT_REWRITE: pytest would otherwise warn anyone who imports gpudiag before it; gpudiag contains no assertions of
tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from gpudiag.tracing.part import Traced

__version__ = "0.1.0"


def trace() -> AbstractContextManager[Traced]:
    """Watch what this process does with its GPUs: ``with gpudiag.trace() as report: ...``; then ``print(report)``."""
    return _part().trace()  # type: ignore[no-any-return]


def keras_callback(output: str | None = None) -> object:
    """Return a callback for ``model.fit`` that traces the training and prints its report, or writes it to a file."""
    callback: object = _part().keras_callback(output)
    return callback


def _part() -> Any:
    # By name: every module imports this one, and none but these functions may import that.
    from importlib import import_module

    return import_module("gpudiag.tracing.part")
