"""Checks that run inside a process of a simulated machine, one a process (see fork_server.py).

Each returns what it saw, as JSON; the tests judge. Nothing here may query a device when imported.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
L = tf.config.LogicalDeviceConfiguration
MIB = 1 << 20


def caught(function: Callable[[], Any]) -> Any:
    """["Class", "text"] of what `function` raises, or its value."""
    try:
        return function()
    except Exception as error:
        return [type(error).__name__, str(error)]


def physical() -> list[Any]:
    return list(tf.config.list_physical_devices("GPU"))


def gpu_options(**options: Any) -> Any:
    experimental = options.pop("experimental", {})
    virtual = experimental.pop("virtual_devices", [])
    made = v1.GPUOptions(**options)
    for name, value in experimental.items():
        setattr(made.experimental, name, value)
    for entry in virtual:
        made.experimental.virtual_devices.add(**entry)
    return made


def devices_of(session: Any) -> dict[str, int]:
    return {
        device.name.split("/")[-1].removeprefix("device:"): device.memory_limit_bytes
        for device in session.list_devices()
        if device.device_type == "GPU"
    }


def sessions(configurations: Sequence[dict[str, Any]], run: bool = False) -> list[Any]:
    """One v1.Session after another in this process: its GPUs with their limits, or the error."""

    def make(options: Any, others: dict[str, Any]) -> dict[str, int]:
        config = v1.ConfigProto(gpu_options=options, **others)
        with tf.Graph().as_default():
            with tf.device("/GPU:0"):
                total = tf.reduce_sum(tf.ones((4, 4)))
            with v1.Session(config=config) as session:
                devices = devices_of(session)
                if run:
                    assert session.run(total) == 16
                return devices

    outcomes = []
    for configuration in configurations:
        others = dict(configuration)
        options = gpu_options(**others.pop("gpu_options", {}))
        outcomes.append(caught(partial(make, options, others)))
    return outcomes


def eager_options(run: bool = True, **options: Any) -> Any:
    """The eager context configured by a ConfigProto, as v1 code does."""
    v1.disable_eager_execution()

    def make() -> list[str]:
        v1.enable_eager_execution(config=v1.ConfigProto(gpu_options=gpu_options(**options)))
        return [device.name for device in tf.config.list_logical_devices("GPU")]

    return caught(make)


def used_by_nvml(index: int = 0) -> tuple[int, int]:
    """Used bytes of the GPU, and bytes of this process, from NVML."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    used = pynvml.nvmlDeviceGetMemoryInfo(handle).used
    mine = [
        process.usedGpuMemory
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        if process.pid == os.getpid()
    ]
    return int(used), int(sum(mine))


def listing() -> list[list[Any]]:
    """What list_physical_devices and get_device_details say."""
    return [[gpu.name, tf.config.experimental.get_device_details(gpu)] for gpu in physical()]


def logical() -> Any:
    """What TensorFlow makes of the visible GPUs by default."""
    return caught(lambda: [device.name for device in tf.config.list_logical_devices("GPU")])


def first_allocation(growth: bool | None = None, mib: int = 0, limits: Sequence[int] = ()) -> dict[str, Any]:
    """Bytes taken by the first op, then by a tensor of `mib` more."""
    gpu = physical()[0]
    if growth is not None:
        tf.config.experimental.set_memory_growth(gpu, growth)
    if limits:
        tf.config.set_logical_device_configuration(gpu, [L(memory_limit=m) for m in limits])
    with tf.device("/GPU:0"):
        kept = [tf.constant(1.0)]
        steps = [used_by_nvml()]
        if mib:
            kept.append(tf.zeros((mib, MIB // 4)))
            steps.append(used_by_nvml())
    info = tf.config.experimental.get_memory_info("GPU:0")
    return {"steps": steps, "info": info}


def out_of_memory(mib: int = 2048, limit: int | None = None, session: bool = False, **options: Any) -> Any:
    """Ask for more than there is."""
    if session:
        options.setdefault("experimental", {})["disallow_retry_on_allocation_failure"] = True
        with tf.Graph().as_default():
            with tf.device("/GPU:0"):
                total = tf.reduce_sum(tf.fill((v1.placeholder(tf.int32, ()), MIB // 4), 1.0))
            count = total.graph.get_operations()[0].outputs[0]
            with v1.Session(config=v1.ConfigProto(gpu_options=gpu_options(**options))) as it:
                return caught(lambda: float(it.run(total, {count: mib})))
    if limit:
        tf.config.set_logical_device_configuration(physical()[0], [L(memory_limit=limit)])
    with tf.device("/GPU:0"):
        return caught(lambda: str(tf.zeros((mib, MIB // 4)).shape))


def growth_rules() -> dict[str, Any]:
    """GR-06, GR-10, and what a memory limit needs."""
    gpu = physical()[0]
    found = {"no_limit": caught(lambda: tf.config.set_logical_device_configuration(gpu, [L()]))}
    tf.config.set_logical_device_configuration(gpu, [L(memory_limit=100)])
    found["growth_on_logical"] = caught(lambda: tf.config.experimental.set_memory_growth(gpu, True))
    tf.constant(1.0)
    found["limit_later"] = caught(lambda: tf.config.set_logical_device_configuration(gpu, [L(memory_limit=200)]))
    found["tuple_later"] = caught(lambda: tf.config.set_logical_device_configuration(gpu, (L(memory_limit=100),)))
    found["same_later"] = caught(lambda: tf.config.set_logical_device_configuration(gpu, [L(memory_limit=100)]))
    return found


def modified_later() -> dict[str, Any]:
    gpus = physical()
    tf.constant(1.0)
    return {
        "growth": caught(lambda: tf.config.experimental.set_memory_growth(gpus[0], True)),
        "visible": caught(lambda: tf.config.set_visible_devices(gpus[:1], "GPU")),
        "listed": len(physical()),
    }


def growth_lost() -> dict[str, Any]:
    """GR-03: growth and a logical split of the CPU."""
    gpu = physical()[0]
    tf.config.experimental.set_memory_growth(gpu, True)
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [L(), L()])
    with tf.device("/GPU:0"):
        tf.constant(1.0)
    return {"getter": tf.config.experimental.get_memory_growth(gpu), "used": used_by_nvml()[1]}


def growth_lost_by_split() -> dict[str, Any]:
    """GR-04: growth on two GPUs, logical devices on the first only."""
    gpus = physical()
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    tf.config.set_logical_device_configuration(gpus[0], [L(memory_limit=64)])
    with tf.device("/GPU:1"):
        tf.constant(1.0)
    return {"getter": tf.config.experimental.get_memory_growth(gpus[1]), "used": used_by_nvml(1)[1]}


def logical_split(split: Sequence[Sequence[int] | None]) -> Any:
    """`split`: memory limits for each physical GPU; physical PCI places of the logical devices."""
    for gpu, limits in zip(physical(), split, strict=False):
        if limits is not None:
            tf.config.set_logical_device_configuration(gpu, [L(memory_limit=m) for m in limits])
    return caught(lambda: [device.name for device in tf.config.list_logical_devices("GPU")])


def split_conflict() -> Any:
    """LD-12: virtual devices in the eager ConfigProto and in tf.config."""
    v1.disable_eager_execution()
    options = gpu_options(experimental={"virtual_devices": [{"memory_limit_mb": [64]}]})
    v1.enable_eager_execution(config=v1.ConfigProto(gpu_options=options))
    tf.config.set_logical_device_configuration(physical()[0], [L(memory_limit=64)])
    return caught(lambda: [device.name for device in tf.config.list_logical_devices("GPU")])


def visible(kept: Sequence[int], typed: bool = True) -> dict[str, Any]:
    gpus = physical()
    chosen = [gpus[number] for number in kept]
    if typed:
        tf.config.set_visible_devices(chosen, "GPU")
    else:
        tf.config.set_visible_devices(chosen)
    found = {"visible": [gpu.name for gpu in tf.config.get_visible_devices("GPU")]}
    found["logical"] = caught(lambda: [device.name for device in tf.config.list_logical_devices("GPU")])
    tf.config.set_soft_device_placement(False)

    def beyond() -> Any:
        with tf.device(f"/GPU:{len(kept)}"):
            return tf.identity(1.0).device

    found["beyond"] = caught(beyond)
    return found


def placement() -> dict[str, Any]:
    """SP-01 to SP-16 where a GPU is present."""
    found = {}
    with tf.device("/GPU:7"):
        found["soft_beyond"] = tf.identity(1.0).device
    tf.config.set_soft_device_placement(False)

    def hard_beyond() -> Any:
        with tf.device("/GPU:7"):
            return tf.identity(1.0).device

    def function_beyond(x: Any) -> Any:
        with tf.device("/GPU:7"):
            return x + 1.0

    def no_gpu_kernel() -> Any:
        with tf.device("/GPU:0"):
            return tf.strings.join(["a", "b"]).device

    found["hard_beyond"] = caught(hard_beyond)
    found["function_beyond"] = caught(lambda: tf.function(function_beyond)(tf.constant(1.0)).device)
    found["no_gpu_kernel"] = caught(no_gpu_kernel)
    return found


def device_policy() -> Any:
    tf.config.experimental.set_device_policy("explicit")
    with tf.device("/GPU:0"):
        x = tf.ones((2, 2))

    def conflict() -> Any:
        with tf.device("/GPU:1"):
            return tf.add(x, x).device

    return caught(conflict)


def placement_log() -> None:
    tf.debugging.set_log_device_placement(True)
    with tf.device("/GPU:1"):
        tf.matmul(tf.ones((2, 2)), tf.ones((2, 2)))


def by_hand() -> dict[str, Any]:
    """MAN-01, MAN-02: a part on each logical GPU, summed on the CPU; a copy between GPUs."""
    parts = []
    for device in tf.config.list_logical_devices("GPU"):
        with tf.device(device.name):
            parts.append(tf.matmul(tf.ones((3, 3)), tf.ones((3, 3))))
    with tf.device("/CPU:0"):
        total = tf.add_n([*parts, tf.zeros((3, 3))])
    with tf.device("/GPU:0"):
        copy = tf.identity(parts[-1])
    return {
        "parts": [part.device for part in parts],
        "total": [total.device, float(total[0, 0])],
        "copy": [copy.device, float(copy[0, 0])],
    }


def graph_placement() -> dict[str, Any]:
    """PL-04, PL-06: ops without a GPU kernel in a hard graph."""

    def no_kernel() -> Any:
        with tf.Graph().as_default(), tf.device("/GPU:0"):
            joined = tf.strings.join(["a", "b"])
            with v1.Session(config=v1.ConfigProto()) as session:
                return session.run(joined).decode()

    def colocated() -> Any:
        with tf.Graph().as_default():
            with tf.device("/GPU:0"):
                x = tf.add(1.0, 2.0)
            with tf.compat.v1.colocate_with(x):
                joined = tf.strings.join(["a", "b"])
            with v1.Session(config=v1.ConfigProto()) as session:
                return session.run(joined).decode()

    return {"no_kernel": caught(no_kernel), "colocated": caught(colocated)}


def early_listing(what: str) -> Any:
    """SC-04: is_gpu_available or list_local_devices before options are set."""
    if what == "is_gpu_available":
        tf.test.is_gpu_available()
        tf.config.experimental.set_memory_growth(physical()[0], True)
        with tf.device("/GPU:0"):
            tf.constant(1.0)
        return used_by_nvml()[1]
    from tensorflow.python.client import device_lib

    device_lib.list_local_devices()
    tf.config.set_logical_device_configuration(physical()[0], [L(memory_limit=100)])
    from tensorflow.python.client import device_lib

    tf.constant(1.0)
    return [d.memory_limit for d in device_lib.list_local_devices() if d.device_type == "GPU"]


def visible_late() -> list[Any]:
    """CVD-02, CVD-03: the variable set after the import, then after the first query."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    first = [tf.config.experimental.get_device_details(gpu)["device_name"] for gpu in physical()]
    os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
    return [first, len(physical())]


def memory_agrees() -> dict[str, Any]:
    """cuMemGetInfo against NVML and TensorFlow's own figure, while a tensor lives."""
    import ctypes

    tf.config.experimental.set_memory_growth(physical()[0], True)
    with tf.device("/GPU:0"):
        kept = tf.ones((256, MIB // 4))
    driver = ctypes.CDLL("libcuda.so.1")
    context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    assert driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    used, mine = used_by_nvml()
    return {
        "driver": total.value - free.value,
        "nvml": used,
        "process": mine,
        "tensorflow": tf.config.experimental.get_memory_info("GPU:0")["current"],
        "sum": float(tf.reduce_sum(kept)),
    }


# ---- numerics ----


def op_sweep() -> dict[str, Any]:
    """Forward and gradient of many ops: placed on the GPU, and equal to the CPU."""
    tf.config.set_soft_device_placement(False)
    random = np.random.default_rng(7)
    x = tf.constant(random.uniform(0.1, 0.9, (4, 6)).astype("f"))
    y = tf.constant(random.uniform(0.1, 0.9, (4, 6)).astype("f"))
    square = tf.constant((random.uniform(0, 1, (4, 4)) + 4 * np.eye(4)).astype("f"))
    image = tf.constant(random.normal(size=(2, 8, 8, 3)).astype("f"))
    volume = tf.constant(random.normal(size=(1, 4, 6, 6, 2)).astype("f"))
    sequence = tf.constant(random.normal(size=(2, 5, 3)).astype("f"))
    kernel = tf.constant(random.normal(size=(3, 3, 3, 4)).astype("f"))
    labels = tf.constant([0, 2, 1, 3])
    ids = tf.constant([0, 0, 1, 2])
    complex_x = tf.complex(x, y)
    ops = {
        "add": lambda: x + y,
        "sub": lambda: x - y,
        "mul": lambda: x * y,
        "div": lambda: x / y,
        "pow": lambda: x**y,
        "maximum": lambda: tf.maximum(x, y),
        "squared_difference": lambda: tf.math.squared_difference(x, y),
        "atan2": lambda: tf.math.atan2(x, y),
        "exp": lambda: tf.exp(x),
        "log": lambda: tf.math.log(x),
        "log1p": lambda: tf.math.log1p(x),
        "sqrt": lambda: tf.sqrt(x),
        "rsqrt": lambda: tf.math.rsqrt(x),
        "sin": lambda: tf.sin(x),
        "tan": lambda: tf.tan(x),
        "asinh": lambda: tf.asinh(x),
        "erf": lambda: tf.math.erf(x),
        "lgamma": lambda: tf.math.lgamma(x),
        "digamma": lambda: tf.math.digamma(x),
        "tanh": lambda: tf.tanh(x),
        "sigmoid": lambda: tf.sigmoid(x),
        "relu": lambda: tf.nn.relu(x - 0.5),
        "relu6": lambda: tf.nn.relu6(x * 8),
        "elu": lambda: tf.nn.elu(x - 0.5),
        "selu": lambda: tf.nn.selu(x - 0.5),
        "gelu": lambda: tf.nn.gelu(x),
        "softplus": lambda: tf.nn.softplus(x),
        "softsign": lambda: tf.nn.softsign(x),
        "leaky_relu": lambda: tf.nn.leaky_relu(x - 0.5),
        "softmax": lambda: tf.nn.softmax(x),
        "log_softmax": lambda: tf.nn.log_softmax(x),
        "cross_entropy": lambda: tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x),
        "sigmoid_cross_entropy": lambda: tf.nn.sigmoid_cross_entropy_with_logits(y, x),
        "l2_loss": lambda: tf.nn.l2_loss(x),
        "matmul": lambda: tf.matmul(x, y, transpose_b=True),
        "batch_matmul": lambda: tf.matmul(sequence, sequence, transpose_b=True),
        "einsum": lambda: tf.einsum("ij,kj->ik", x, y),
        "inverse": lambda: tf.linalg.inv(square),
        "cholesky": lambda: tf.linalg.cholesky(tf.matmul(square, square, transpose_b=True)),
        "solve": lambda: tf.linalg.solve(square, x),
        "triangular_solve": lambda: tf.linalg.triangular_solve(square, x),
        "determinant": lambda: tf.linalg.det(square),
        "band_part": lambda: tf.linalg.band_part(square, 1, 1),
        "diag": lambda: tf.linalg.diag(x),
        "reduce_sum": lambda: tf.reduce_sum(x, 1),
        "reduce_mean": lambda: tf.reduce_mean(x, 0),
        "reduce_max": lambda: tf.reduce_max(x, 1),
        "reduce_prod": lambda: tf.reduce_prod(x, 1),
        "reduce_logsumexp": lambda: tf.reduce_logsumexp(x, 1),
        "cumsum": lambda: tf.cumsum(x, 1),
        "cumprod": lambda: tf.math.cumprod(x, 1),
        "conv2d": lambda: tf.nn.conv2d(image, kernel, 1, "SAME"),
        "conv2d_strided": lambda: tf.nn.conv2d(image, kernel, 2, "VALID"),
        "depthwise_conv2d": lambda: tf.nn.depthwise_conv2d(image, kernel, [1, 1, 1, 1], "SAME"),
        "conv3d": lambda: tf.nn.conv3d(volume, tf.ones((2, 2, 2, 2, 3)), [1] * 5, "SAME"),
        "conv2d_transpose": lambda: tf.nn.conv2d_transpose(
            image, tf.transpose(kernel, [0, 1, 3, 2]), (2, 8, 8, 4), 1, "SAME"
        ),
        "max_pool": lambda: tf.nn.max_pool2d(image, 2, 2, "SAME"),
        "avg_pool": lambda: tf.nn.avg_pool2d(image, 2, 2, "SAME"),
        "batch_norm": lambda: v1.nn.fused_batch_norm(image, [1.0] * 3, [0.0] * 3)[0],
        "lrn": lambda: tf.nn.local_response_normalization(image),
        "bias_add": lambda: tf.nn.bias_add(image, [1.0, 2.0, 3.0]),
        "resize": lambda: tf.image.resize(image, (5, 5)),
        "crop_and_resize": lambda: tf.image.crop_and_resize(image, [[0.0, 0.0, 0.7, 0.7]], [1], (3, 3)),
        "space_to_depth": lambda: tf.nn.space_to_depth(image, 2),
        "mirror_pad": lambda: tf.pad(x, [[1, 1], [2, 2]], "REFLECT"),
        "pad": lambda: tf.pad(x, [[1, 1], [0, 2]]),
        "transpose": lambda: tf.transpose(x),
        "reshape": lambda: tf.reshape(x, (3, 8)),
        "concat": lambda: tf.concat([x, y], 1),
        "split": lambda: tf.split(x, 2, 1)[1],
        "stack": lambda: tf.stack([x, y]),
        "tile": lambda: tf.tile(x, (2, 1)),
        "slice": lambda: tf.slice(x, (1, 1), (2, 3)),
        "strided_slice": lambda: x[1:, ::2],
        "gather": lambda: tf.gather(x, [2, 0]),
        "gather_nd": lambda: tf.gather_nd(x, [[0, 1], [3, 2]]),
        "scatter_nd": lambda: tf.scatter_nd([[1], [3]], x[:2], (5, 6)),
        "tensor_scatter": lambda: tf.tensor_scatter_nd_add(x, [[1]], y[:1]),
        "where": lambda: tf.where(x > y, x, y),
        "clip": lambda: tf.clip_by_value(x, 0.3, 0.6),
        "reverse": lambda: tf.reverse(x, [1]),
        "roll": lambda: tf.roll(x, 1, 1),
        "top_k": lambda: tf.math.top_k(x, 3)[0],
        "one_hot": lambda: tf.one_hot(labels, 4),
        "argmax": lambda: tf.argmax(x, 1),
        "cast": lambda: tf.cast(x, tf.float16),
        "segment_sum": lambda: tf.math.segment_sum(x, ids),
        "unsorted_segment_max": lambda: tf.math.unsorted_segment_max(x, ids, 3),
        "sparse_dense": lambda: tf.sparse.sparse_dense_matmul(
            tf.sparse.SparseTensor([[0, 1], [2, 3]], [1.0, 2.0], (4, 4)), x
        ),
        "embedding": lambda: tf.nn.embedding_lookup(x, labels),
        "fft": lambda: tf.math.real(tf.signal.fft(complex_x)),
        "complex_abs": lambda: tf.abs(complex_x),
        "bitwise": lambda: tf.bitwise.bitwise_xor(labels, ids),
        "stateless_normal": lambda: tf.random.stateless_normal((3, 4), (1, 2)),
        "stateless_uniform": lambda: tf.random.stateless_uniform((3, 4), (5, 6)),
        "qr": lambda: tf.linalg.qr(square)[1],
        "svd": lambda: tf.linalg.svd(square, compute_uv=False),
        "eigh": lambda: tf.linalg.eigvalsh(tf.matmul(square, square, transpose_b=True)),
    }
    sources = {"x": x, "y": y, "square": square, "image": image, "volume": volume}
    sources |= {"sequence": sequence, "kernel": kernel}

    def measure(operation: Callable[[], Any], device: str) -> tuple[str, Any, dict[str, Any]]:
        with tf.device(device), tf.GradientTape() as tape:
            for source in sources.values():
                tape.watch(source)
            value = operation()
        gradients = {}
        if value.dtype.is_floating:
            with tf.device(device):
                found = tape.gradient(value, sources)
            for name, gradient in found.items():
                if gradient is not None:
                    gradients[name] = tf.convert_to_tensor(gradient).numpy()
        return value.device, value.numpy(), gradients

    failures = {}
    gradients = 0
    for name, operation in ops.items():
        try:
            device, on_gpu, gpu_gradients = measure(operation, "/GPU:0")
            _, on_cpu, cpu_gradients = measure(operation, "/CPU:0")
            assert device.endswith("GPU:0"), f"placed on {device}"
            np.testing.assert_allclose(on_gpu, on_cpu, rtol=1e-5, atol=1e-6)
            assert gpu_gradients.keys() == cpu_gradients.keys()
            gradients += len(gpu_gradients) > 0
            for source, gradient in gpu_gradients.items():
                np.testing.assert_allclose(gradient, cpu_gradients[source], rtol=1e-4, atol=1e-5)
        except Exception as error:
            failures[name] = f"{type(error).__name__}: {str(error)[:300]}"
    return {"ops": len(ops), "gradients": gradients, "failures": failures}


def cnn(keras: Any, jit_compile: bool | str) -> Any:
    layers = keras.layers
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            layers.Input((12, 12, 3)),
            layers.Conv2D(6, 3, activation="relu", padding="same"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Conv2D(8, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dropout(0.25, seed=5),
            layers.Dense(4),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, jit_compile=jit_compile)
    return model


def train(device: str, steps: int = 6, jit_compile: bool | str = "auto") -> dict[str, Any]:
    """A small CNN trained for some steps on one device with Keras' defaults: its losses."""
    import keras

    random = np.random.default_rng(11)
    images = random.normal(size=(8 * steps, 12, 12, 3)).astype("f")
    labels = random.integers(0, 4, 8 * steps)
    losses = []
    if device == "CPU":
        tf.config.set_visible_devices([], "GPU")
    else:
        tf.config.set_visible_devices(physical()[:1], "GPU")
    model = cnn(keras, jit_compile)

    keep = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: losses.append(float(logs["loss"])))
    model.fit(images, labels, batch_size=8, shuffle=False, verbose=0, callbacks=[keep])
    return {"losses": losses, "jit": model.jit_compile, "device": model.weights[0].value.device}


def mirrored(replicas: int) -> dict[str, Any]:
    """MirroredStrategy over all GPUs: gradients and values after steps, on the joined batch."""
    random = np.random.default_rng(2)
    images = random.normal(size=(16, 8, 8, 2)).astype("f")
    targets = random.normal(size=(16, 3)).astype("f")
    strategy = tf.distribute.MirroredStrategy() if replicas > 1 else tf.distribute.get_strategy()

    def model(kernel: Any, dense: Any, batch: Any) -> Any:
        hidden = tf.nn.relu(tf.nn.conv2d(batch, kernel, 1, "SAME"))
        return tf.matmul(tf.reduce_mean(hidden, [1, 2]), dense)

    with strategy.scope():
        kernel = tf.Variable(tf.constant(random.normal(size=(3, 3, 2, 4)).astype("f")))
        dense = tf.Variable(tf.constant(random.normal(size=(4, 3)).astype("f")))

    def step(batch: Any, wanted: Any) -> Any:
        def replica(batch: Any, wanted: Any) -> Any:
            with tf.GradientTape() as tape:
                error = model(kernel, dense, batch) - wanted
                loss = tf.reduce_sum(error**2) / 16.0
            gradients = tape.gradient(loss, [kernel, dense])
            context = tf.distribute.get_replica_context()
            for variable, gradient in zip([kernel, dense], gradients, strict=True):
                total = context.all_reduce("sum", gradient)
                variable.assign_sub(0.1 * total)
            return context.all_reduce("sum", loss)

        return strategy.run(replica, (batch, wanted))

    def distributed(values: Any) -> Any:
        share = len(values) // replicas
        if replicas == 1:
            return tf.constant(values)
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(values[context.replica_id_in_sync_group * share :][:share])
        )

    losses = []
    compiled = tf.function(step)
    for _ in range(3):
        outcome = compiled(distributed(images), distributed(targets))
        losses.append(float(strategy.experimental_local_results(outcome)[0]))
    copies = strategy.experimental_local_results(kernel)
    return {
        "replicas": strategy.num_replicas_in_sync,
        "devices": [copy.device.split("device:")[-1] for copy in copies],
        "losses": losses,
        "values": [np.asarray(copy).ravel().tolist() for copy in copies],
    }


def strategies() -> list[Any]:
    """DS-09, DS-10: the collectives that TensorFlow chooses."""
    split = [L(memory_limit=64), L(memory_limit=64)]
    tf.config.set_logical_device_configuration(physical()[0], split)
    logical = tf.distribute.MirroredStrategy()
    mixed = tf.distribute.MirroredStrategy(["/CPU:0", "/GPU:0"])
    default = type(logical.extended._get_cross_device_ops(tf.constant(1.0))).__name__
    other = type(mixed.extended._get_cross_device_ops(tf.constant(1.0))).__name__
    return [logical.num_replicas_in_sync, default, other]


def modes() -> list[float]:
    """Eager, tf.function and a v1 Session: the same number from the same GPU."""
    tf.config.set_soft_device_placement(False)
    x: Any = np.arange(12.0, dtype="f").reshape(3, 4)

    def function(values: Any) -> Any:
        with tf.device("/GPU:0"):
            total = tf.constant(0.0)
            for number in tf.range(3):
                total += tf.reduce_sum(values) * tf.cast(number, tf.float32)
            return total

    with tf.device("/GPU:0"):
        eager = float(tf.reduce_sum(x) * 3)
    with tf.Graph().as_default():
        with tf.device("/GPU:0"):
            node = tf.reduce_sum(tf.constant(x)) * 3
        with v1.Session(config=v1.ConfigProto()) as session:
            graph = float(session.run(node))
    return [eager, float(tf.function(function)(tf.constant(x))), graph]


def recurrent() -> dict[str, Any]:
    """Keras' LSTM and GRU choose cuDNN where there is a GPU; here they must fall back."""
    import keras

    found = {}
    for kind in ("LSTM", "GRU"):
        keras.utils.set_random_seed(1)
        layer = getattr(keras.layers, kind)(3)
        values = tf.constant(np.linspace(0, 1, 24).reshape(2, 4, 3).astype("f"))
        with tf.device("/GPU:0"):
            on_gpu = layer(values).numpy()
        with tf.device("/CPU:0"):
            on_cpu = layer(values).numpy()
        found[kind] = float(np.abs(on_gpu - on_cpu).max())
    inputs = keras.Input((4, 3))
    model = keras.Model(inputs, keras.layers.GRU(2)(keras.layers.LSTM(3, return_sequences=True)(inputs)))
    model.compile("adam", "mse")
    history = model.fit(np.ones((16, 4, 3)), np.ones((16, 2)), epochs=2, verbose=0)
    found["losses"] = history.history["loss"]
    return found


def not_simulated() -> dict[str, Any]:
    """What cannot run on a simulated GPU, and then what can."""

    def no_cpu_kernel() -> Any:
        with tf.device("/GPU:0"):
            return tf.raw_ops.CudnnRNNParamsSize(
                num_layers=1, num_units=2, input_size=3, T=tf.float32, S=tf.int32
            ).numpy()

    tf.config.set_soft_device_placement(False)
    given = caught(no_cpu_kernel)

    def later() -> float:
        with tf.device("/GPU:0"):
            return float(tf.reduce_sum(tf.ones(4)))

    return {"first": given, "later": caught(later)}


def launched(library: str) -> dict[str, Any]:
    """An op of another library that launches a CUDA kernel itself: eager, in a graph, in a session, and later ops."""
    launch = tf.load_op_library(library).gpudiag_test_launch
    tf.config.set_soft_device_placement(False)
    found = {}
    with tf.device("/GPU:0"):
        found["eager"] = caught(lambda: launch(tf.ones(4)).numpy().tolist())
        found["function"] = caught(lambda: tf.function(lambda: launch(tf.ones(4)) + 1.0)().numpy().tolist())
    with tf.Graph().as_default(), tf.device("/GPU:0"), v1.Session() as session:
        found["session"] = caught(lambda: session.run(launch(tf.ones(4)) + 1.0).tolist())

    def total() -> float:
        with tf.device("/GPU:0"):
            return float(tf.reduce_sum(tf.ones(4)))

    found["later"] = caught(total)
    kept = tf.ones(4)
    runtime = ctypes.CDLL("libcudart.so.12")
    runtime.cudaSetDevice(0)
    found["outside"] = runtime.cudaLaunchKernel(ctypes.c_void_p(1))
    found["stopped"] = caught(lambda: kept.numpy().tolist())
    return found


def first(values: Any) -> Any:
    """Channels first, of what has channels last; a list of four or five numbers, too."""
    if isinstance(values, list):
        return [values[0], values[-1], *values[1:-1]]
    return tf.constant(np.moveaxis(values.numpy(), -1, 1)) if values.shape.rank > 3 else values


def layers(channels_first: bool, dimensions: int, kind: str, reference: str) -> dict[str, Callable[[], Any]]:
    """Ops on tensors with channels, and gradients of them, by name; of numbers that `kind` has, as type `reference`."""
    random = np.random.default_rng(8)
    format_ = {(2, False): "NHWC", (2, True): "NCHW", (3, False): "NDHWC", (3, True): "NCDHW"}[
        dimensions, channels_first
    ]
    place: Callable[[Any], Any] = first if channels_first else lambda values: values

    def normal(*shape: int) -> Any:
        return tf.cast(tf.cast(random.normal(size=shape), kind), reference)

    with tf.device("/CPU:0"):
        image, kernel = place(normal(2, *(6, 8, 4)[:dimensions], 4)), normal(*(3,) * dimensions, 4, 5)
        scale, shift = tf.constant([1.0, 2.0, 3.0, 4.0]), tf.cast([0.5, 1.0, 1.5, 2.0], reference)
    ones, two = place([1] * (dimensions + 2)), place([1] + [2] * dimensions + [1])

    def with_gradients(function: Callable[..., Any], *inputs: Any) -> Callable[[], Any]:
        def compute() -> Any:
            with tf.GradientTape() as tape:
                moved = [tf.identity(tensor) for tensor in inputs]
                tape.watch(moved)
                result = function(*moved)
                loss = tf.reduce_sum(result**2) / 2
            return [result, *tape.gradient(loss, moved)]

        return compute

    def second(function: Callable[..., Any]) -> Callable[[], Any]:
        def compute() -> Any:
            with tf.GradientTape() as tape:
                moved = tf.identity(image)
                tape.watch(moved)
                [_, gradient] = with_gradients(function, moved)()
                loss = tf.reduce_sum(gradient**2)
            return tape.gradient(loss, moved)

        return compute

    def normalised(training: bool) -> Callable[[], Any]:
        mean, variance = (tf.zeros(0), tf.zeros(0)) if training else (tf.ones(4), tf.constant([1.0, 2.0, 3.0, 4.0]))

        def compute(values: Any, scale: Any) -> Any:
            return (
                tf.raw_ops.FusedBatchNormV3(
                    x=values,
                    scale=scale,
                    offset=scale,
                    mean=mean,
                    variance=variance,
                    is_training=training,
                    data_format=format_,
                ).y
                ** 2
            )  # the sum of the squares of what is normalised has no gradient

        return with_gradients(compute, image, scale)

    conv, pools = [
        (tf.nn.conv2d, (tf.nn.max_pool2d, tf.nn.avg_pool2d)),
        (tf.nn.conv3d, (tf.nn.max_pool3d, tf.nn.avg_pool3d)),
    ][dimensions - 2]
    found: dict[str, Callable[[], Any]] = {
        "bias": with_gradients(lambda x, b: tf.nn.bias_add(x, b, format_), image, shift)
    }
    for padding in ("SAME", "VALID"):
        for strides in (ones, two):
            name = f"{padding} {max(strides)}"
            found[f"convolution {name}"] = with_gradients(
                partial(conv, strides=strides, padding=padding, data_format=format_), image, kernel
            )
            for pool in pools if kind != "float64" else ():
                pooled = partial(pool, ksize=two, strides=strides, padding=padding, data_format=format_)
                found[f"{pool.__name__} {name}"] = with_gradients(pooled, image)
    if kind != "float64":
        found["training"], found["inference"] = normalised(True), normalised(False)
    if dimensions == 2:
        padded = [[0, 0], [1, 2], [0, 1], [0, 0]]
        wide = normal(3, 3, 4, 2)
        explicit = first(padded) if channels_first else padded
        found["depthwise"] = with_gradients(
            partial(tf.nn.depthwise_conv2d, strides=two, padding=explicit, data_format=format_), image, wide
        )
        found["explicit padding"] = with_gradients(
            partial(tf.nn.conv2d, strides=two, padding=explicit, data_format=format_), image, kernel
        )
        found["dilated"] = lambda: tf.nn.conv2d(image, kernel, ones, "SAME", format_, two)
    if dimensions == 2 and kind == "float32":
        outer = "CHANNELS_FIRST" if channels_first else "CHANNELS_LAST"
        found["of any rank"] = lambda: tf.raw_ops.Conv(
            input=image, filter=kernel, strides=two, padding="SAME", data_format=outer
        )
        found["grouped"] = lambda: tf.nn.conv2d(
            image, tf.gather(kernel, [0, 1], axis=2)[..., :4], ones, "SAME", format_
        )
        found["space"] = lambda: tf.nn.space_to_depth(image, 2, format_)
        found["depth"] = lambda: tf.nn.depth_to_space(image, 2, format_)
        found["second gradient"] = second(
            partial(pools[0], ksize=two, strides=two, padding="VALID", data_format=format_)
        )
    return found


def channels_first(dimensions: int, kind: str, graph: bool = False) -> dict[str, Any]:
    """By how much results on a GPU with channels first differ from the CPU's with channels last, as a part of the
    largest number; or what was raised."""
    tf.config.set_soft_device_placement(False)
    reference = "float32" if "16" in kind else kind
    on_gpu, on_cpu = layers(True, dimensions, kind, kind), layers(False, dimensions, kind, reference)

    def error(name: str) -> float:
        with tf.device("/GPU:0"):
            given = tf.function(on_gpu[name])() if graph else on_gpu[name]()
        with tf.device("/CPU:0"):
            wanted = on_cpu[name]()
        assert all(tensor.device.endswith("GPU:0") for tensor in tf.nest.flatten(given))
        return max(
            difference(tensor, other)
            for tensor, other in zip(tf.nest.flatten(given), tf.nest.flatten(wanted), strict=True)
        )

    return {name: caught(partial(error, name)) for name in on_gpu}


def difference(given: Any, wanted: Any) -> float:
    wanted = wanted if given.shape == wanted.shape else first(wanted)
    assert given.shape == wanted.shape, (given.shape, wanted.shape)
    given, wanted = (tf.cast(tensor, "float64").numpy() for tensor in (given, wanted))
    return float(np.abs(given - wanted).max(initial=0) / max(np.abs(wanted).max(initial=0), 1e-6))


def only_on_gpus() -> dict[str, Any]:
    """Whether kernels that TensorFlow has only for the GPU give what the CPU gives in another way."""
    tf.config.set_soft_device_placement(False)
    random = np.random.default_rng(3)
    values = random.integers(-128, 128, (2, 4, 6, 16)).astype("i1")
    options = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}

    def packed(array: Any) -> Any:
        batch, height, width, channels = array.shape
        moved = array.reshape(batch, height, width, channels // 4, 4).transpose(0, 3, 1, 2, 4)
        return tf.bitcast(tf.constant(moved), tf.qint8)

    def same(op: Callable[..., Any], on_gpu: dict[str, Any], on_cpu: dict[str, Any]) -> bool:
        with tf.device("/GPU:0"):
            given = tf.bitcast(op(input=packed(values), data_format="NCHW_VECT_C", **on_gpu), tf.int8).numpy()
        with tf.device("/CPU:0"):
            wanted = packed(op(input=tf.constant(values), **on_cpu).numpy())
        return bool(np.array_equal(given, tf.bitcast(wanted, tf.int8).numpy()))

    def second_gradient(counts_batch: bool) -> bool:
        image = tf.constant(random.normal(size=(2, 4, 6, 3)).astype("f"))
        gradient = random.normal(size=(2, 4, 6, 3)).astype("f")
        with tf.device("/CPU:0"):
            kept = {"include_batch_in_index": counts_batch, **options}
            positions = tf.raw_ops.MaxPoolWithArgmax(input=image, Targmax=tf.int64, **kept).argmax
        with tf.device("/GPU:0"):
            given = tf.raw_ops.MaxPoolGradGradWithArgmax(input=image, grad=gradient, argmax=positions, **kept)
        flat = [gradient.ravel()] * 2 if counts_batch else list(gradient.reshape(2, -1))
        wanted = np.stack([plane[where] for plane, where in zip(flat, positions.numpy(), strict=True)])
        return bool(np.array_equal(given.numpy(), wanted)) and given.device.endswith("GPU:0")

    def second_gradient_in_place(kind: str) -> bool:
        """In a graph the kernel may have its input's memory for its output, of the same shape."""
        image = random.normal(size=(1, 3, 3, 3, 1))
        ones = [1, 1, 1, 1, 1]

        @tf.function  # type: ignore[untyped-decorator]
        def compute(image: Any) -> Any:
            image, same = image + 1, image + 1
            return tf.raw_ops.MaxPool3DGradGrad(
                orig_input=image, orig_output=same, grad=same * 2, ksize=ones, strides=ones, padding="VALID"
            )

        with tf.device("/GPU:0"):
            given = compute(tf.cast(image, kind))
        return bool(np.allclose(tf.cast(given, "float64").numpy(), (image + 1) * 2, atol=0.02))

    def dilated(channels_first: bool, groups: int) -> bool:
        """A convolution with dilations is one with zeros between the numbers of the filter."""
        image, kernel = (
            random.normal(size=(1, 9, 9, 4)).astype("f"),
            random.normal(size=(3, 3, 4 // groups, 6)).astype("f"),
        )
        spread = np.zeros((5, 5, *kernel.shape[2:]), "f")
        spread[::2, ::2] = kernel

        def gradients(device: str, image: Any, kernel: Any, **options: Any) -> list[Any]:
            with tf.device(device), tf.GradientTape() as tape:
                inputs = [tf.constant(image), tf.constant(kernel)]
                tape.watch(inputs)
                loss = tf.reduce_sum(tf.nn.conv2d(*inputs, 1, "VALID", **options) ** 2)
            return [gradient.numpy() for gradient in tape.gradient(loss, inputs)]

        moved = np.moveaxis(image, -1, 1) if channels_first else image
        given = gradients("/GPU:0", moved, kernel, dilations=2, data_format="NCHW" if channels_first else "NHWC")
        parts = zip(np.split(image, groups, 3), np.split(spread, groups, 3), strict=True)
        each = [gradients("/CPU:0", part, own) for part, own in parts]
        wanted = [
            np.concatenate([pair[0] for pair in each], 3),
            np.concatenate([pair[1] for pair in each], 3)[::2, ::2],
        ]
        return all(
            np.allclose(
                result, other if result.shape == other.shape else np.moveaxis(other, -1, 1), rtol=1e-3, atol=1e-3
            )
            for result, other in zip(given, wanted, strict=True)
        )

    def dilated_filter(type_name: str, **options: Any) -> bool:
        """The gradient of a filter with dilations, in a type and with paddings that oneDNN does not compute."""
        image, out = random.normal(size=(1, 9, 9, 4)), random.normal(size=(1, 5, 5, 6))
        with tf.device("/GPU:0"):
            given = tf.raw_ops.Conv2DBackpropFilter(
                input=tf.cast(image, type_name),
                filter_sizes=[3, 3, 4, 6],
                out_backprop=tf.cast(out, type_name),
                strides=[1, 2, 2, 1],
                dilations=[1, 2, 2, 1],
                **options,
            )
        padded = np.pad(image, ((0, 0), (2, 2), (2, 2), (0, 0)))
        wanted = np.array(
            [
                [
                    np.einsum("bhwi,bhwo->io", padded[:, 2 * y : 2 * y + 9 : 2, 2 * x : 2 * x + 9 : 2], out)
                    for x in range(3)
                ]
                for y in range(3)
            ]
        )
        return bool(np.allclose(given.numpy(), wanted, atol=1e-3))

    def empty_batch(kind: str) -> list[int]:
        with tf.device("/GPU:0"):
            image, kernel = tf.zeros((0, 4, 5, 5), kind), tf.zeros((3, 3, 4, 6), kind)
            return list(tf.nn.conv2d(image, kernel, 1, "VALID", data_format="NCHW").shape)

    def fused(kind: str) -> list[str]:
        """Return the activations that are wrong, fused with a product as cuBLASLt and cuDNN do."""
        from tensorflow.python.eager import context, execute

        wrong = []
        left, right, bias = (random.normal(size=shape) for shape in ((6, 8), (8, 4), (4,)))
        for name, activation in {
            "GeluApproximate": partial(tf.nn.gelu, approximate=True),
            "GeluExact": tf.nn.gelu,
            "Tanh": tf.tanh,
            "Sigmoid": tf.sigmoid,
        }.items():
            for turned in (False, True):
                with tf.device("/GPU:0"):
                    inputs = [
                        tf.cast(matrix, kind)
                        for matrix in (left.T if turned else left, right.T if turned else right, bias)
                    ]
                    attributes = {"transpose_a": turned, "transpose_b": turned, "T": tf.as_dtype(kind).as_datatype_enum}
                    attributes |= {"num_args": 1, "fused_ops": [b"BiasAdd", name.encode()]}
                    pairs = tuple(word for pair in attributes.items() for word in pair)
                    (given,) = execute.execute(b"_FusedMatMul", 1, inputs, pairs, context.context())
                wanted = activation(tf.constant(left @ right + bias))
                close = np.allclose(tf.cast(given, "float64"), wanted, atol=1e-5 if kind == "float32" else 5e-2)
                if not close or not given.device.endswith("GPU:0"):
                    wrong.append(name)
        return wrong

    def too_large() -> Any:
        with tf.device("/GPU:0"):
            return tf.raw_ops.AvgPool(value=tf.ones((1, 1, 1, 1)), **{**options, "ksize": [1, 1 << 62, 1, 1]})

    first_of_all = {"ksize": [1, 1, 2, 2], "strides": [1, 1, 2, 2], "padding": "VALID"}
    return {
        "pool": caught(partial(same, tf.raw_ops.MaxPool, first_of_all, options)),
        "space": caught(partial(same, tf.raw_ops.SpaceToDepth, {"block_size": 2}, {"block_size": 2})),
        "depth": caught(partial(same, tf.raw_ops.DepthToSpace, {"block_size": 2}, {"block_size": 2})),
        "second gradient": caught(partial(second_gradient, False)),
        "second gradient of a batch": caught(partial(second_gradient, True)),
        "in place": [caught(partial(second_gradient_in_place, kind)) for kind in ("float32", "float16")],
        "dilated": [caught(partial(dilated, moved, groups)) for moved, groups in ((False, 1), (True, 1), (True, 2))],
        "dilated filter": [
            caught(partial(dilated_filter, type_name, padding=padding, **explicit))
            for type_name in ("float32", "float64")
            for padding, explicit in (("EXPLICIT", {"explicit_paddings": [0, 0, 2, 2, 2, 2, 0, 0]}),)
        ],
        "empty batch": [caught(partial(empty_batch, kind)) for kind in ("float32", "bfloat16")],
        "fused": [caught(partial(fused, kind)) for kind in ("float32", "float16")],
        "refused": caught(too_large),
    }


def fourier_transforms() -> dict[str, Any]:
    """By how much transforms over the last axes differ from numpy's, and what is refused."""
    import numpy as np

    random = np.random.default_rng(0)
    numbers = random.normal(size=(3, 4, 5, 6)) + 1j * random.normal(size=(3, 4, 5, 6))
    signal = tf.signal
    found: dict[str, Any] = {}

    def difference(given: Any, wanted: Any) -> Any:
        return float(np.abs(given.numpy() - wanted).max()) if given.shape == wanted.shape else list(given.shape)

    def one(name: str, axes: list[int], lengths: list[int] | None, type_name: str) -> Any:
        is_forward_of_real = name == "rfft"
        given = numbers.real if is_forward_of_real else numbers
        real = {"complex64": "float32", "complex128": "float64"}[type_name]
        with tf.device("/GPU:0"):
            tensor = tf.cast(given, real if is_forward_of_real else type_name)
            computed = getattr(signal, f"{name}nd")(tensor, lengths, axes)
        assert computed.device.endswith("GPU:0"), computed.device
        return difference(computed, getattr(np.fft, f"{name}n")(given, lengths, axes))

    for name in ("fft", "ifft", "rfft", "irfft"):
        for axes in ([-1], [-2, -1], [1, 2, 3]):
            # TensorFlow wants lengths: without them it takes those of all axes, and refuses them.
            own = [2 * (size - 1) if name == "irfft" and size == 6 else size for size in (4, 5, 6)][-len(axes) :]
            for lengths in (own, [3, 8, 4][-len(axes) :]):
                for type_name in ("complex64", "complex128"):
                    label = f"{name} {axes} {lengths} {type_name}"
                    found[label] = caught(partial(one, name, axes, lengths, type_name))
    found["other axes"] = caught(partial(one, "fft", [0, 1], [3, 4], "complex64"))
    return found


def types_of_gpus_alone() -> dict[str, Any]:
    """Operations in types for which TensorFlow has no kernel on the CPU, and tensors that move to the host."""
    import numpy as np
    from tensorflow.python.eager import context, execute

    random = np.random.default_rng(0)
    image = random.uniform(size=(2, 4, 4, 3))
    half = partial(tf.cast, dtype="float16")
    left, right = random.normal(size=(2, 3, 4)), random.normal(size=(2, 4, 5))
    small = random.integers(-9, 9, (2, 3, 4)).astype("int8")

    def near(given: Any, wanted: Any) -> Any:
        assert given.device.endswith("GPU:0"), given.device
        return bool(np.allclose(tf.cast(given, "float64").numpy(), wanted, atol=2e-2))

    def moved(op: str, tensor: Any) -> Any:
        (given,) = execute.execute(op.encode(), 1, [tensor], ("T", tensor.dtype.as_datatype_enum), context.context())
        return given

    def there_and_back() -> bool:
        host = moved("_CopyFromGpuToHost", tf.identity(image))
        return bool(near(moved("_CopyFromHostToGpu", host), image))

    computations = {
        "rint": lambda: near(tf.raw_ops.Rint(x=half(image * 9)), np.rint(np.float16(image * 9))),
        "contrast": lambda: near(
            tf.raw_ops.AdjustContrastv2(images=half(image), contrast_factor=2.0),
            (image - image.mean((1, 2), keepdims=True)) * 2 + image.mean((1, 2), keepdims=True),
        ),
        "product": lambda: near(tf.raw_ops.BatchMatMulV3(x=half(left), y=half(right), Tout=tf.float16), left @ right),
        "relu": lambda: near(
            tf.bitcast(tf.raw_ops.Relu(features=tf.bitcast(small, tf.qint8)), tf.int8), np.maximum(small, 0)
        ),
        "relu of three": lambda: tf.raw_ops.Relu(features=tf.bitcast(small[0, 0, :3], tf.qint8)).shape,
        "moved": there_and_back,
    }
    with tf.device("/GPU:0"):
        return {name: caught(compute) for name, compute in computations.items()}


def operations_of_xla() -> dict[str, Any]:
    """What operations of XLA give that are called by themselves, eagerly and in a function, and where."""
    import tensorflow as tf
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    def changed(whole: Any, at: Any) -> Any:
        update = gen_xla_ops.xla_dynamic_update_slice(whole, tf.ones([2]), at)
        return gen_xla_ops.xla_pad(update, 5.0, padding_low=[1], padding_high=[0], padding_interior=[0])

    with tf.device("/GPU:0"):
        whole, at = tf.zeros([4]), tf.constant([1])
        found = {"eager": changed(whole, at), "function": tf.function(changed)(whole, at)}
    return {name: [made.device[-5:], made.numpy().tolist()] for name, made in found.items()}


def asks_for_xla(by_itself: bool = False) -> dict[str, float]:
    """By how much the results of what asks for XLA on a GPU differ from the CPU's without it."""
    tf.config.set_soft_device_placement(False)
    if by_itself:
        tf.config.optimizer.set_jit(True)
    counter = tf.Variable(0.0)

    def compute(x: Any) -> Any:
        for _ in tf.range(3):
            x = tf.sin(tf.matmul(x, x)) * 2.0 + tf.reduce_mean(x)
        return x

    def stateful(x: Any) -> Any:
        counter.assign_add(1.0)
        return tf.nn.relu(x) * counter, tf.shape(x)

    def scoped(x: Any) -> Any:
        with tf.xla.experimental.jit_scope():
            return tf.reduce_sum(tf.exp(x) - 1.0, 0)

    values = np.random.default_rng(5).normal(size=(6, 6)).astype("f")
    compiled = {
        name: tf.function(function, jit_compile=True)
        for name, function in [("compute", compute), ("stateful", stateful)]
    }
    programs: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
        "compiled": (compiled["compute"], compute),
        "nested": (tf.function(lambda x: compiled["compute"](x) + 1.0), lambda x: compute(x) + 1.0),
        "stateful": (lambda x: compiled["stateful"](x)[0], tf.nn.relu),
        "clustered": (tf.function(compute), compute),
        "scoped": (tf.function(scoped), lambda x: tf.reduce_sum(tf.exp(x) - 1.0, 0)),
    }
    found = {}
    for name, (asking, plain) in programs.items():
        with tf.device("/GPU:0"):
            on_gpu = asking(tf.constant(values)).numpy()
        with tf.device("/CPU:0"):
            on_cpu = plain(tf.constant(values)).numpy()
        found[name] = float(np.abs(on_gpu - on_cpu).max())
    with tf.device("/GPU:0"):
        found["later"] = abs(float(tf.reduce_sum(tf.ones(4))) - 4.0)
    return found


def cudnn_recurrent(mode: str, kind: str) -> dict[str, Any]:
    """By how much cuDNN's recurrent op of a GPU and its gradients differ from the same written out, on the CPU."""
    tf.config.set_soft_device_placement(False)
    random = np.random.default_rng(4)
    steps, batch, units = 4, 3, 2
    gates = {"lstm": 4, "gru": 3}.get(mode, 1)

    def cell(x: Any, h: Any, c: Any, weights: Any, biases: Any) -> tuple[Any, Any]:
        (w, r), (b, d) = weights, biases
        given = [tf.matmul(x, weights, transpose_b=True) + bias for weights, bias in zip(w, b, strict=True)]
        own = [tf.matmul(h, weights, transpose_b=True) + bias for weights, bias in zip(r, d, strict=True)]
        if mode == "lstm":
            i, f, g, o = (product + other for product, other in zip(given, own, strict=True))
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
            return tf.sigmoid(o) * tf.tanh(c), c
        if mode == "gru":
            z = tf.sigmoid(given[1] + own[1])
            n = tf.tanh(given[2] + tf.sigmoid(given[0] + own[0]) * own[2])
            return (1 - z) * n + z * h, c
        return (tf.tanh if mode == "rnn_tanh" else tf.nn.relu)(given[0] + own[0]), c

    def written_out(values: Any, layers: int, directions: int, lengths: list[int]) -> list[Any]:
        x, h, c, parameters = values
        at, weights = 0, []

        def take(*shape: int) -> Any:
            nonlocal at
            at += int(np.prod(shape))
            return tf.reshape(parameters[at - int(np.prod(shape)) : at], shape)

        for layer in range(layers):
            for _ in range(directions):
                inputs = directions * units if layer else x.shape[-1]
                weights.append(
                    [[take(units, inputs) for _ in range(gates)], [take(units, units) for _ in range(gates)]]
                )
        biases = [[[take(units) for _ in range(gates)] for _ in range(2)] for _ in weights]
        assert at == parameters.shape[0]
        states, cells = [], []
        for layer in range(layers):
            outputs = []
            for direction in range(directions):
                place = layer * directions + direction
                state, memory, made = h[place], c[place], [None] * steps
                for step in reversed(range(steps)) if direction else range(steps):
                    runs = tf.cast([[float(step < length)] for length in lengths], kind)
                    new, new_memory = cell(x[step], state, memory, weights[place], biases[place])
                    state, memory = runs * new + (1 - runs) * state, runs * new_memory + (1 - runs) * memory
                    made[step] = runs * new
                outputs.append(tf.stack(made))
                states.append(state)
                cells.append(memory)
            x = tf.concat(outputs, -1)
        return [x, tf.stack(states), tf.stack(cells)]

    def error(layers: int, directions: int, version: int, time_major: bool = True) -> float:
        inputs = 3
        count = sum(
            directions * gates * units * ((directions * units if layer else inputs) + units + 2)
            for layer in range(layers)
        )
        lengths = [2, 4, 1] if version == 3 else [steps] * batch
        numbers = [
            (steps, batch, inputs),
            (layers * directions, batch, units),
            (layers * directions, batch, units),
            (count,),
        ]
        weights = [(steps, batch, directions * units), numbers[1], numbers[1]]
        values = [tf.constant(random.normal(size=shape), kind) for shape in numbers]
        loss_of = [tf.constant(random.normal(size=shape), kind) for shape in weights]

        def turned(value: Any) -> Any:
            return value if time_major or value.shape.rank < 3 else tf.transpose(value, [1, 0, 2])

        def on_gpu(x: Any, h: Any, c: Any, parameters: Any) -> list[Any]:
            common: dict[str, Any] = {
                "input": turned(x),
                "input_h": turned(h),
                "input_c": turned(c) if mode == "lstm" else tf.stop_gradient(turned(c)),
                "params": parameters,
                "rnn_mode": mode,
                "direction": "bidirectional" if directions == 2 else "unidirectional",
            }
            if version == 3:
                common |= {"sequence_lengths": lengths, "time_major": time_major}
            op = {1: tf.raw_ops.CudnnRNN, 2: tf.raw_ops.CudnnRNNV2, 3: tf.raw_ops.CudnnRNNV3}[version]
            made = op(**common)
            return [turned(made.output), turned(made.output_h), turned(made.output_c) if mode == "lstm" else c]

        def on_cpu(x: Any, h: Any, c: Any, parameters: Any) -> list[Any]:
            return written_out((x, h, c, parameters), layers, directions, lengths)

        def with_gradients(function: Callable[..., Any], device: str) -> list[Any]:
            with tf.device(device):
                moved = [tf.identity(tensor) for tensor in values]
                with tf.GradientTape() as tape:
                    tape.watch(moved)
                    made = function(*moved)
                    loss = tf.add_n(
                        [tf.reduce_sum(tensor * weight) for tensor, weight in zip(made, loss_of, strict=True)]
                    )
                found = tape.gradient(loss, moved)
            return [
                *made[: 3 if mode == "lstm" else 2],
                *(gradient for at, gradient in enumerate(found) if at != 2 or mode == "lstm"),
            ]

        pairs = zip(with_gradients(on_gpu, "/GPU:0"), with_gradients(on_cpu, "/CPU:0"), strict=True)
        return max(difference(result, other) for result, other in pairs)

    forms: dict[str, tuple[Any, ...]] = {
        "one layer": (1, 1, 1),
        "two": (2, 1, 2),
        "both ways": (2, 2, 2),
        "lengths": (2, 2, 3),
        "batch": (1, 2, 3, False),
    }
    return {name: caught(partial(error, *form)) for name, form in forms.items()}


def nccl(gpus: int) -> dict[str, Any]:
    """TensorFlow's NCCL operations over `gpus`: what each gives, and on which GPU."""
    from tensorflow.python.ops import nccl_ops

    with tf.Graph().as_default():
        given, found = [], {}
        for gpu in range(gpus):
            with tf.device(f"/GPU:{gpu}"):
                given.append(tf.constant([2.0, 3.0]) * (gpu + 1.0))
        reductions = {
            "sum": nccl_ops.all_sum,
            "prod": nccl_ops.all_prod,
            "max": nccl_ops.all_max,
            "min": nccl_ops.all_min,
        }
        for name, reduction in reductions.items():
            found[name] = reduction(given)
        with tf.device("/GPU:0"):
            reduced, sent = nccl_ops.reduce_sum(given), nccl_ops.broadcast(given[0])
            found["reduced"] = [tf.identity(reduced)]
        found["broadcast"] = []
        for gpu in range(gpus):
            with tf.device(f"/GPU:{gpu}"):
                found["broadcast"].append(sent + 1.0)
        halves = []
        for gpu in range(gpus):
            with tf.device(f"/GPU:{gpu}"):
                halves.append(tf.cast(given[gpu], tf.float16))
        found["half"] = nccl_ops.all_sum(halves)
        with v1.Session() as session:
            twice = [session.run(found) for _ in range(2)][1]
    return {name: [[float(value) for value in values] for values in tensors] for name, tensors in twice.items()} | {
        "devices": [tensor.device[-5:] for tensor in found["sum"]]
    }


def hold_memory(mib: int, ready: str, release: str) -> float:
    """Hold memory of GPU 0 until a file appears."""

    tf.config.experimental.set_memory_growth(physical()[0], True)
    with tf.device("/GPU:0"):
        kept = tf.ones((mib, MIB // 4))
    Path(ready).touch()
    while not Path(release).exists():
        time.sleep(0.02)
    return float(kept[0, 0])


def copied(mib: int = 1) -> list[float]:
    """A tensor sent to the GPU and back."""
    with tf.device("/GPU:0"):
        value = tf.identity(tf.constant(np.ones(mib * MIB // 4, "f")))
    return [float(value.numpy().min()), float(value.numpy().max())]


def resident() -> int:
    """Bytes of host memory that this process has touched."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def cost_of_starting() -> dict[str, float]:
    """Bytes of host memory that are touched until every GPU has computed once."""
    before = resident()
    computed = 0.0
    for number in range(len(tf.config.list_logical_devices("GPU"))):
        with tf.device(f"/GPU:{number}"):
            computed += float(tf.reduce_sum(tf.linalg.matmul([[1.0]], [[1.0]])))
    return {"computed": computed, "touched": resident() - before}


def host_memory_of_a_large_pool() -> dict[str, Any]:
    """Bytes of host memory touched by a GPU's first op; then tensors far into the pool."""
    tf.config.list_logical_devices("GPU")
    before = resident()
    with tf.device("/GPU:0"):
        scalar = tf.constant(1.0)
        touched = resident() - before
        kept = [tf.raw_ops.Empty(shape=(5 << 10, MIB // 4), dtype=tf.float32) for _ in range(3)]
        last = tf.ones((256,))
        total = float(tf.reduce_sum(last) + scalar)
    del kept
    return {"touched": touched, "pool": used_by_nvml()[1], "total": total}


def many_ops(count: int = 400) -> bool:
    with tf.device("/GPU:0"):
        value = tf.constant(1.0)
        for _ in range(count):
            value = tf.identity(value).gpu() if hasattr(value, "gpu") else tf.identity(value)
            value.numpy()
    return True


def through_libraries(ops: Sequence[str], gpu: int = 0) -> dict[str, Any]:
    """What operations give that a real GPU does through a library: the device, or the error."""
    tf.config.set_soft_device_placement(False)
    square, image = tf.eye(4) * 2, tf.ones((1, 4, 4, 2))
    programs: dict[str, Callable[[], Any]] = {
        "blas": lambda: tf.matmul(square, square),
        "conv": lambda: tf.nn.conv2d(image, tf.ones((3, 3, 2, 2)), 1, "SAME"),
        "norm": lambda: v1.nn.fused_batch_norm(image, tf.ones(2), tf.zeros(2))[0],
        "pool": lambda: tf.nn.max_pool2d(image, 2, 2, "VALID"),
        "fft": lambda: tf.signal.fft(tf.cast(square, tf.complex64)),
        "solver": lambda: tf.linalg.cholesky(square),
        "sparse": lambda: tf.linalg.tridiagonal_solve(tf.ones((3, 4)), tf.ones((4, 1))),
        "sum": lambda: square + square,
    }

    def on_gpu(program: Callable[[], Any]) -> str:
        with tf.device(f"/GPU:{gpu}"):
            return str(program().device)[-5:]

    return {name: caught(partial(on_gpu, programs[name])) for name in ops}


def strategy_sum() -> list[float]:
    """The sum that every replica of a MirroredStrategy has."""
    strategy = tf.distribute.MirroredStrategy()

    @tf.function  # type: ignore[untyped-decorator]
    def add() -> Any:
        return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.ones(2)))

    return [float(result.numpy()[0]) for result in strategy.experimental_local_results(add())]


def profiled(folder: str) -> list[dict[str, list[Any]]]:
    """Of two profiles, one after the other: each row of a GPU, with name, start and end of its events."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    @tf.function  # type: ignore[untyped-decorator]
    def step(x: Any) -> Any:
        with tf.device("/GPU:0"):
            product = tf.nn.relu(tf.matmul(x, x))
        with tf.device("/GPU:1"):
            return tf.reduce_sum(tf.exp(product))

    x = tf.ones((8, 8))
    step(x)
    profiles = []
    for number in ("first", "second"):
        tf.profiler.experimental.start(f"{folder}/{number}")
        step(x).numpy()
        tf.profiler.experimental.stop()
        step(x).numpy()  # nobody listens
        (file,) = Path(folder, number).rglob("*.xplane.pb")
        space = xplane_pb2.XSpace.FromString(file.read_bytes())
        profiles.append(
            {
                f"{plane.name} {line.name}": [
                    (plane.event_metadata[event.metadata_id].name, event.offset_ps, event.offset_ps + event.duration_ps)
                    for event in line.events
                ]
                for plane in space.planes
                for line in plane.lines
                if "GPU" in plane.name
            }
        )
    return profiles


def run_metadata() -> tuple[dict[str, list[str]], list[str]]:
    """The nodes of each row of GPUs in RunMetadata, and the processes of the timeline that is made of it."""
    import json

    from tensorflow.python.client import timeline

    with tf.Graph().as_default(), tf.device("/GPU:0"), v1.Session() as session:
        result = tf.matmul(tf.random.uniform((8, 8)), tf.random.uniform((8, 8)), name="product")
        metadata = v1.RunMetadata()
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        session.run(result, options=options, run_metadata=metadata)
    rows = {
        device.device: [node.node_name for node in device.node_stats]
        for device in metadata.step_stats.dev_stats
        if "stream" in device.device
    }
    trace = json.loads(timeline.Timeline(metadata.step_stats).generate_chrome_trace_format())
    return rows, [event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"]


def overwrite(address: int, content: bytes) -> None:
    """Write over a part of TensorFlow in this process."""
    page = address & ~4095
    readable_writable_executable = 7
    length = ctypes.c_size_t(address + len(content) - page)
    assert not ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), length, readable_writable_executable)
    ctypes.memmove(address, content, len(content))


def tensorflow_library(name: str) -> ctypes.CDLL:
    return ctypes.CDLL(f"{Path(tf.__file__).parent}/{name}")


def of_another_release(version: str) -> Any:
    """What TensorFlow lists and computes if its C API names this version."""
    kept = ctypes.create_string_buffer(version.encode())
    function = ctypes.cast(tensorflow_library("libtensorflow_cc.so.2").TF_Version, ctypes.c_void_p).value
    assert function
    move_to_rax, ret = b"\x48\xb8", b"\xc3"
    overwrite(function, move_to_rax + ctypes.addressof(kept).to_bytes(8, "little") + ret)
    return len(physical()), (tf.constant([2.0]) * 3).numpy().tolist()


def with_another_class(exchanged: Sequence[int]) -> list[str]:
    """What the forwarding says of TensorFlow, before and after two virtual functions of OpKernel change places."""
    kernels = ctypes.CDLL(f"{os.environ['GPUDIAG_SIM_MACHINE']}/lib/libgpudiag_kernels.so")
    kernels.gpudiag_forward_kernels.restype = ctypes.c_char_p
    framework = tensorflow_library("libtensorflow_framework.so.2")
    table = (ctypes.c_void_p * 9).in_dll(framework, "_ZTVN10tensorflow8OpKernelE")
    first, other = exchanged
    said = [kernels.gpudiag_forward_kernels()]
    before, after = table[first], table[other]
    assert before
    assert after
    for slot, function in (first, after), (other, before):
        overwrite(ctypes.addressof(table) + 8 * slot, function.to_bytes(8, "little"))
    said.append(kernels.gpudiag_forward_kernels())
    return [(text or b"").decode() for text in said]


def reduced_alone(types: Sequence[str]) -> dict[str, Any]:
    """What a collective reduction gives for a group of one GPU, by the type of its numbers."""

    def reduce(number: int, name: str) -> list[float]:
        given = tf.ones(2, name)
        reduced = tf.raw_ops.CollectiveReduceV2(
            input=given,
            group_size=1,
            group_key=1,
            instance_key=number,
            ordering_token=[],
            merge_op="Add",
            final_op="Id",
        )
        return [float(value) for value in reduced.numpy()]

    with tf.device("GPU:0"):
        return {name: caught(partial(reduce, number, name)) for number, name in enumerate(types)}


def products() -> list[dict[str, float]]:
    """Twelve equal products on each GPU: the shortest time in seconds, and how many differ from that of numpy."""

    def on(device: str) -> dict[str, float]:
        times, wrong = [], 0
        with tf.device(device):
            left = tf.reshape(tf.range(64, dtype=tf.float32), [8, 8])
            for _ in range(12):
                began = time.monotonic()
                product = tf.matmul(left, left).numpy()
                times.append(time.monotonic() - began)
                wrong += not np.array_equal(product, left.numpy() @ left.numpy())
        return {"shortest": min(times), "wrong": wrong}

    return [on(f"GPU:{number}") for number in range(len(physical()))]
