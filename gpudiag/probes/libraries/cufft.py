"""cuFFT transforms on every GPU, in one, two and three dimensions, as the CPU does.

What it does
    Transforms complex and real numbers forward and back, in float32 and float64, in one, two and three dimensions,
    also of a length that is not a power of two, and compares the results with the CPU's.
Why it matters
    Signal and speech models (`tf.signal.stft`, mel spectrograms) need cuFFT. It is opened with the other libraries
    and works only from the first transform on: a machine can train image models for months with a cuFFT that cannot
    start.
What to do
    If it cannot start, leave memory to it: `export TF_FORCE_GPU_ALLOW_GROWTH=true`. If it is of another CUDA
    release than TensorFlow was built for: `pip install --force-reinstall nvidia-cufft-cu12`, and `unset
    LD_LIBRARY_PATH`.
"""

from __future__ import annotations

from typing import Any

from gpudiag import probe
from gpudiag.probe import Context, Findings
from gpudiag.probes import comparison
from gpudiag.probes.comparison import DOUBLE, Computation, compare, normal

PROBE = probe.Probe(needs=comparison.NEEDS, scope=probe.Scope.ALL_GPUS, sampled=True)


class Fault(comparison.LibraryFaults):
    pass


class Reading(comparison.LibraryReading):
    """The transforms on each GPU."""


def measure(ctx: Context) -> Reading:
    signal = ctx.tf.signal
    line, box = (normal(60), normal(60, seed=1)), (normal(4, 6, 8), normal(4, 6, 8, seed=1))

    def of_complex(transform: Any) -> Any:
        return lambda real, imaginary: transform(ctx.tf.complex(real, imaginary))

    return compare(
        ctx,
        Reading,
        (
            Computation("1D, complex64", of_complex(signal.fft), line),
            Computation("1D, complex128", of_complex(signal.fft), line, "float64", DOUBLE),
            Computation("1D back, complex64", of_complex(signal.ifft), line),
            Computation("1D, real", signal.rfft, line[:1]),
            Computation("1D back, real", of_complex(signal.irfft), line),
            Computation("2D, complex64", of_complex(signal.fft2d), box),
            Computation("3D, complex64", of_complex(signal.fft3d), box),
        ),
    )


def judge(reading: Reading) -> Findings:
    yield from reading.judged("cuFFT")
