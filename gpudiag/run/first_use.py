"""Prepares in a fork server, once, what TensorFlow would prepare at its first operation in each child.

No device is created or searched for. If this TensorFlow works differently, a function does nothing and the children
prepare it themselves.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path


def register_kernels_of_xla() -> None:
    """Let TensorFlow make the registrations that the first graph of each child would make.

    They take 7 ms, and TensorFlow builds its table of kernels again: pages that a child would have to copy. The first
    device and operation of a child on a simulated GPU took 10,950 page faults and 89 ms of processor time without this,
    and 6,605 and 66 ms with it (2.21.0).
    """
    with contextlib.suppress(OSError, AttributeError):
        import tensorflow

        path = Path(tensorflow.__file__).parent / "libtensorflow_cc.so.2"
        library = ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD)
        register = library._ZN10tensorflow13XlaOpRegistry26RegisterCompilationKernelsEv
        register.restype = None
        register()


def compute() -> None:
    """Run one matrix product before forking, so that no child needs to prepare what every first operation needs.

    oneDNN writes the machine code of its products at the first one, and TensorFlow arranges its kernels: 50 of the
    118 ms of processor time, and 1,790 of the 7,540 page faults, of a child that makes its devices, an operation and a
    ``tf.function`` (2.21.0). As it makes a graph, TensorFlow itself computes what is constant there, in the calling
    thread.
    """
    with contextlib.suppress(Exception):
        import tensorflow as tf
        from tensorflow.python.eager import context
        from tensorflow.python.framework import ops, tensor_util

        before = context._context  # None, unless the user's start-up files have begun to use TensorFlow
        try:
            with tf.Graph().as_default() as graph:
                ones = tf.fill([2, 2], 1.0)
                tensor_util.try_evaluate_constant(tf.matmul(ones, ones))
            ops.dismantle_graph(graph)  # a graph is a cycle, and the server collects none
        finally:
            context._context = before  # if there is one, enable_eager_execution() raises
