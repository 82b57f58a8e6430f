"""What a fork server prepares of TensorFlow's first operation: it is prepared, and no child can tell."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from far_side import Children
from gpudiag.run import first_use

MODULE = "run.test_first_use"


def value(children: Children, function: Any, *, fresh: bool = False) -> Any:
    """Return what a function of this file returns in a child."""
    ended = children.call(f"{MODULE}:{function.__name__}", {}, fresh=fresh)
    assert ended.value is not None, ended
    return json.loads(ended.value)


# What runs in a child


def prepares(_: dict[str, Any]) -> bytes:
    import tensorflow as tf
    from tensorflow.python.framework import tensor_util

    computed = []
    evaluate = tensor_util.try_evaluate_constant
    tensor_util.try_evaluate_constant = lambda tensor: computed.append(evaluate(tensor))
    first_use.compute()
    library = ctypes.CDLL(str(Path(tf.__file__).parent / "libtensorflow_cc.so.2"), mode=os.RTLD_NOLOAD)
    registers = hasattr(library, "_ZN10tensorflow13XlaOpRegistry26RegisterCompilationKernelsEv")
    first_use.register_kernels_of_xla()
    return msgspec.json.encode([[tensor.tolist() for tensor in computed], registers])


def begins(_: dict[str, Any]) -> bytes:
    import tensorflow as tf

    tf.compat.v1.disable_eager_execution()
    tf.compat.v1.enable_eager_execution(config=tf.compat.v1.ConfigProto())  # ValueError if there is a context
    tf.config.threading.set_inter_op_parallelism_threads(3)  # RuntimeError once anything has been begun
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    tf.random.set_seed(7)
    drawn = tf.random.normal([2]).numpy().tolist()
    with tf.Graph().as_default() as graph:
        tf.matmul(tf.ones([2, 2]), tf.ones([2, 2]))
    names = [operation.name for operation in graph.get_operations()]
    return msgspec.json.encode([drawn, names, len(tf.config.list_logical_devices("CPU"))])


# What is expected of it


def test_a_product_is_computed_and_the_kernels_of_xla_are_registered(tensorflow: Children) -> None:
    assert value(tensorflow, prepares) == [[[[2.0, 2.0], [2.0, 2.0]]], True]


def test_in_a_prepared_child_nothing_has_begun(tensorflow: Children) -> None:
    _, names, cpus = value(tensorflow, begins)
    assert names == ["ones", "ones_1", "MatMul"]
    assert cpus == 2


@pytest.mark.slow
def test_a_prepared_child_begins_as_a_new_process_does(tensorflow: Children) -> None:
    assert value(tensorflow, begins) == value(tensorflow, begins, fresh=True)
