"""Tries TensorFlow on a GPU, in a child process: one matrix product and one convolution."""

from __future__ import annotations

from typing import Any

import msgspec

from gpudiag.knowledge.placement import short_device
from gpudiag.probes.common import CUDNN_NEEDED, MATRIX, cudnn_serves, is_square


class OnGpu(msgspec.Struct):
    """The result of an operation on the first GPU that TensorFlow lists."""

    listed: bool
    device: str = ""
    """The GPU's name, if the results computed on it were right."""
    failed: str = ""
    """The error that the operation raised, or the result that was wrong."""


def run_on_gpu(argument: dict[str, Any]) -> bytes:
    """Compute a matrix product and a convolution on the first GPU that TensorFlow lists; return :class:`OnGpu`."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return msgspec.json.encode(OnGpu(listed=False))
    name = tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU:0")
    failed = _failure(tf)
    return msgspec.json.encode(OnGpu(listed=True, failed=failed) if failed else OnGpu(listed=True, device=name))


def _failure(tf: Any) -> str:
    """Return what fails on the first GPU; "" if nothing does."""
    from gpudiag.run.context import cudnn_version

    tf.config.set_soft_device_placement(False)
    try:
        with tf.device("/GPU:0"):
            product = tf.matmul(MATRIX, MATRIX)
            sums = tf.nn.conv2d(tf.ones([1, 2, 2, 1]), tf.ones([2, 2, 1, 1]), 1, "VALID")  # cuDNN is for these alone
        where = short_device(product.device)
        if where != "GPU:0" or not is_square(product) or float(sums[0, 0, 0, 0]) != 4.0:
            return f"an operation came out wrong, on {where}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    cudnn = cudnn_version()
    if cudnn is not None and not cudnn_serves(cudnn):
        return f"cuDNN {cudnn} is loaded, and {CUDNN_NEEDED} is needed"
    return ""
