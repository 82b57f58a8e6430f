"""cuSOLVER factors and solves on every GPU as the CPU does.

What it does
    Computes a Cholesky, QR and singular value decomposition, eigenvalues, an inverse, a determinant and the
    solution of linear equations, in float32 and float64, and compares them with the CPU's, without the signs that a
    decomposition leaves open. It does so in a separate process, because TensorFlow ends a process in which cuSOLVER
    cannot start.
Why it matters
    Gaussian processes, whitening, orthogonal initialisers and second-order optimisers need it. A program whose
    first decomposition comes after hours of training ends with SIGABRT there, and cannot catch it.
What to do
    If it cannot start, leave memory to it: `export TF_FORCE_GPU_ALLOW_GROWTH=true`. If it is of another CUDA
    release than TensorFlow was built for: `pip install --force-reinstall nvidia-cusolver-cu12`, and `unset
    LD_LIBRARY_PATH`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpudiag import probe
from gpudiag.probe import Context, Findings, fail
from gpudiag.probes import comparison
from gpudiag.probes.comparison import Computation, compare, normal

PROBE = probe.Probe(needs=comparison.NEEDS, scope=probe.Scope.ALL_GPUS, sampled=True)


class Fault(comparison.LibraryFaults):
    crashed = fail(
        "the process in which cuSOLVER computed was {error}",
        means="TensorFlow ends the process in which cuSOLVER cannot start. The log says what it could not do.",
        do=probe.SEE_THE_CAUSE,
    )


class Reading(comparison.LibraryReading):
    """The factorizations and solutions on each GPU."""

    crashed: str = ""
    """How the process ended, if it gave no result."""

    def figure(self) -> str:
        return f"its process was {self.crashed}" if self.crashed else super().figure()


MOST = {"float32": 1e-3, "float64": 1e-9}
"""The allowed error: it grows with the condition of the matrix, which is below 10 here, and with each step."""


def measure(ctx: Context) -> Reading:
    assert ctx.tf  # imported before the process is copied
    try:
        return ctx.apart(lambda: compare(ctx, Reading, _computations(ctx.tf)), Reading, {})
    except RuntimeError as error:
        return Reading(made={}, checks=(), crashed=str(error).removeprefix("in a process apart: "))


def _computations(tf: Any) -> Iterator[Computation]:
    linalg, root = tf.linalg, normal(12, 12)
    definite = root @ root.T / 12
    definite[range(12), range(12)] += 1
    of_definite = {
        "Cholesky": linalg.cholesky,
        "eigenvalues": linalg.eigvalsh,
        "inverse": linalg.inv,
        "determinant": lambda matrix: linalg.det(matrix)[None],
        "singular values": lambda matrix: linalg.svd(matrix, compute_uv=False),
        "singular vectors": lambda matrix: tf.abs(linalg.svd(matrix)[1]),
        "QR": lambda matrix: tf.abs(tf.concat(linalg.qr(matrix), 1)),
    }
    for kind, most in MOST.items():
        for name, compute in of_definite.items():
            yield Computation(f"{name}, {kind}", compute, (definite,), kind, most)
        yield Computation(f"solution, {kind}", linalg.solve, (definite, normal(12, 3)), kind, most)


def judge(reading: Reading) -> Findings:
    if reading.crashed:
        yield Fault.crashed.found(error=reading.crashed)
    yield from reading.judged("cuSOLVER")
