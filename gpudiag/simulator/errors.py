"""Errors that stop a simulated machine before it runs; each text is for people and contains the fix."""

from __future__ import annotations

from gpudiag.errors import UsageError


class SimulatorError(UsageError):
    """Base of all errors of the simulator; the command line ends with exit code 2."""


class SpecError(SimulatorError):
    """The specification is wrong."""


class FaultError(SimulatorError):
    """A fault is unknown, or its value is wrong, or it cannot be injected as asked."""


class SimulatorMissing(SimulatorError):  # noqa: N818  # the name states the fault
    """The simulated libraries were not built."""


class SimulatorBroken(SimulatorError):  # noqa: N818  # the name states the fault
    """The simulated libraries are there and cannot be opened."""


class CudaWheelMissing(SimulatorError):  # noqa: N818  # the name states the fault
    """TensorFlow is absent, a build without CUDA, or a release that simulated GPUs do not know."""


class RealDriverMapped(SimulatorError):  # noqa: N818  # the name states the fault
    """The process has mapped the real libcuda.so.1, or would map it."""


def with_caret(text: str, column: int, fault: str, fix: str) -> str:
    """The input with a caret under the fault, then what to write instead.

    >>> print(with_caret("0x16GiB", 0, "0 GPUs cannot be simulated", "Write 1 to 64 GPUs."))
    0 GPUs cannot be simulated
      0x16GiB
      ^
    Write 1 to 64 GPUs.
    """
    return f"{fault}\n  {text}\n  {' ' * column}^\n{fix}"
