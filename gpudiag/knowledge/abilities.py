"""What TensorFlow can do on a GPU: for each ability the probe that verifies it, if there is one.

A test asks TensorFlow for the kernel of each operation that is named here, and looks for its words in the probes.
"""

from __future__ import annotations

from gpudiag.record import Record


class Ability(Record):
    """Something that TensorFlow can do on a GPU."""

    what: str
    probe: str = ""
    """The probe that verifies it; empty if none runs it."""
    operation: str = ""
    """The TensorFlow operation, if the ability is a single one."""
    type: str = ""
    """The type of the operation's tensors, as ``tf.DType`` names it; empty for any."""
    words: tuple[str, ...] = ()
    """Words; the source of a probe that runs the ability has at least one of them."""


MEMORY = "memory.capacity"
"""The probe that fills the memory of a GPU; all others together use only a little of it."""

ABILITIES = (
    Ability("memory", MEMORY),
    Ability("XLA", "libraries.xla"),
    Ability("NCCL", "libraries.nccl"),
    Ability("convolutions in float64", "", "Conv2D", "float64", ("convolution, float64",)),
    Ability("convolutions in bfloat16", "", "Conv2D", "bfloat16", ("convolution, bfloat16",)),
    Ability("depthwise convolutions", "", "DepthwiseConv2dNative", "", ("depthwise", "Depthwise")),
    Ability("GRU layers", "", "CudnnRNNV3", "", ("GRU",)),
    Ability("products of complex matrices", "", "MatMul", "complex64", ("product, complex",)),
    Ability("linear equations of complex numbers", "", "Cholesky", "complex64", ("Cholesky, complex",)),
    Ability("Fourier transforms of complex128 in 2D and 3D", "", "FFT2D", "", ("2D, complex128", "3D, complex128")),
    Ability("CTC loss", "", "CTCLossV2", "", ("ctc_loss", "CTC")),
    Ability("images: resizing, cropping, boxes", "", "ResizeBilinear", "", ("resize", "crop", "max_suppression")),
    Ability("tables of embeddings", "", "ResourceGather", "", ("embedding", "Embedding")),
    Ability("profiles of kernels (CUPTI)", "", words=("tf.profiler", "profiler.start")),
    Ability(
        "several processes or computers that train together",
        "",
        words=("MultiWorkerMirroredStrategy(", 'environ["TF_CONFIG"]'),
    ),
    Ability("heat, power and clocks under load", "load.gpus"),
)
