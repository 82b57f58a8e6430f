"""cuSPARSE solves and multiplies sparse matrices on every GPU as the CPU does.

What it does
    Solves tridiagonal equations, and multiplies a sparse matrix in compressed rows (CSR) with a dense and with a
    sparse one, in float32 and float64. It compares the results with the CPU's.
Why it matters
    Graph networks, splines and finite differences need it. Like cuFFT it is opened with the other libraries, and
    its first use shows whether it works.
What to do
    If it cannot start, leave memory to it: `export TF_FORCE_GPU_ALLOW_GROWTH=true`. If it is of another CUDA
    release than TensorFlow was built for: `pip install --force-reinstall nvidia-cusparse-cu12
    nvidia-nvjitlink-cu12` (it needs the second one, of the same release), and `unset LD_LIBRARY_PATH`.
"""

from __future__ import annotations

from typing import Any

from gpudiag import probe
from gpudiag.probe import Context, Findings
from gpudiag.probes import comparison
from gpudiag.probes.comparison import Computation, compare, normal

PROBE = probe.Probe(needs=comparison.NEEDS, scope=probe.Scope.ALL_GPUS, sampled=True)


class Fault(comparison.LibraryFaults):
    pass


class Reading(comparison.LibraryReading):
    """The sparse products and solutions on each GPU."""


MOST = {"float32": 1e-3, "float64": 1e-9}
"""The allowed error: it grows with the condition of the matrix."""


def measure(ctx: Context) -> Reading:
    tf, ops = ctx.tf, ctx.tf.raw_ops

    def sparse(matrix: Any) -> Any:
        indices = tf.where(tf.abs(matrix) > 1)
        return ops.SparseTensorToCSRSparseMatrix(
            indices=indices, values=tf.gather_nd(matrix, indices), dense_shape=tf.shape(matrix, tf.int64)
        )

    def times_dense(matrix: Any, dense: Any) -> Any:
        return ops.SparseMatrixMatMul(a=sparse(matrix), b=dense)

    def times_sparse(matrix: Any, other: Any) -> Any:
        product = ops.SparseMatrixSparseMatMul(a=sparse(matrix), b=sparse(other), type=matrix.dtype)
        return ops.CSRSparseMatrixToDense(sparse_input=product, type=matrix.dtype)

    diagonals = normal(3, 16)
    diagonals[1] += 6
    pair = normal(16, 16), normal(16, 16, seed=1)
    return compare(
        ctx,
        Reading,
        (
            Computation(f"{name}, {kind}", compute, inputs, kind, most)
            for kind, most in MOST.items()
            for name, compute, inputs in (
                ("tridiagonal equations", tf.linalg.tridiagonal_solve, (diagonals, normal(16, 2))),
                ("sparse and dense", times_dense, pair),
                ("sparse and sparse", times_sparse, pair),
            )
        ),
    )


def judge(reading: Reading) -> Findings:
    yield from reading.judged("cuSPARSE")
