"""What TensorFlow prepares at its first operation, prepared in a fork server: once, and not by each child again.

No device is made or looked for. Each function goes on if this TensorFlow does it in another way: then its children do
what they would have done.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path
from typing import Any

_TRIED = "2.21."
"""Releases in which what has no public name was called: in another one it may be laid out in another way."""


def register_kernels_of_xla() -> None:
    """Let TensorFlow make the registrations that the first graph of each child would make.

    They take 7 ms, and TensorFlow builds its table of kernels again: pages that a child would have to copy. The first
    device and operation of a child on a simulated GPU took 10,950 page faults and 89 ms of processor time without this,
    and 6,605 and 66 ms with it (2.21.0).
    """
    with contextlib.suppress(OSError, AttributeError):
        register = _library()._ZN10tensorflow13XlaOpRegistry26RegisterCompilationKernelsEv
        register.restype = None
        register()


def compute() -> None:
    """Let TensorFlow compute a matrix product now, so that no child needs to prepare what any first operation needs.

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


def ask_for_kernels_of_onednn() -> None:
    """Let TensorFlow find out now for which common operations oneDNN has kernels, as the first graph of a child would.

    For each operation and type TensorFlow walks through all its kernels, 1 to 2 ms, and this thread keeps the answer:
    27 of the 110 ms of processor time of a child that makes its devices, an operation and a ``tf.function`` (2.21.0).
    A ``TF_Operation`` of the C API is a node of the graph.
    """
    with contextlib.suppress(Exception):
        import tensorflow as tf

        if not tf.__version__.startswith(_TRIED):
            return
        library = _library()
        rewriting = ctypes.create_string_buffer(1 << 20)  # a std::string for each operation: about 5 KiB
        begin = library._ZN10tensorflow20MklLayoutRewritePassC2Ev
        ask = library._ZNK10tensorflow20MklLayoutRewritePass19CheckForNodeRewriteEPKNS_4NodeE
        for name in ("TF_NewGraph", "TF_NewStatus", "TF_NewImportGraphDefOptions", "TF_NewBufferFromString"):
            getattr(library, name).restype = ctypes.c_void_p
        library.TF_GraphOperationByName.restype = ctypes.c_void_p
        begin(rewriting)
        operations = _common_operations()
        text = operations.SerializeToString()
        graph = ctypes.c_void_p(library.TF_NewGraph())
        status = ctypes.c_void_p(library.TF_NewStatus())
        options = ctypes.c_void_p(library.TF_NewImportGraphDefOptions())
        buffer = ctypes.c_void_p(library.TF_NewBufferFromString(text, ctypes.c_size_t(len(text))))
        library.TF_GraphImportGraphDef(graph, buffer, options, status)
        if library.TF_GetCode(status) == 0:
            for node in operations.node:
                ask(rewriting, ctypes.c_void_p(library.TF_GraphOperationByName(graph, node.name.encode())))
        library.TF_DeleteBuffer(buffer)
        library.TF_DeleteImportGraphDefOptions(options)
        library.TF_DeleteStatus(status)
        library.TF_DeleteGraph(graph)


def _common_operations() -> Any:
    """Return a ``GraphDef`` of what TensorFlow puts into the graph of any function, and of the commonest operations."""
    from tensorflow.core.framework import graph_pb2, types_pb2

    inputs = {"_Arg": 0, "_DeviceArg": 0, "_Retval": 1, "_DeviceRetval": 1, "_Send": 1, "Identity": 1, "AddV2": 2}
    graph = graph_pb2.GraphDef()
    for kind in (types_pb2.DT_FLOAT, types_pb2.DT_INT32):
        for operation, count in (*inputs.items(), ("MatMul", 2)):
            name = operation.removeprefix("_")
            node = graph.node.add(name=f"{name}{kind}", op=operation, input=[f"Arg{kind}"] * count)
            node.attr["T"].type = kind
            if name.endswith(("Arg", "Retval")):
                node.attr["index"].i = 0
            if name == "Send":
                node.attr["send_device_incarnation"].i = 0
                for text in ("tensor_name", "send_device", "recv_device"):
                    node.attr[text].s = b""
    return graph


def _library() -> ctypes.CDLL:
    import tensorflow

    return ctypes.CDLL(str(Path(tensorflow.__file__).parent / "libtensorflow_cc.so.2"), mode=os.RTLD_NOLOAD)
