"""What sabotages have in common: the places in TensorFlow, and below it, at which they take hold."""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MIB = 1 << 20
SECOND_GPU = "GPU:1"


def module(name: str) -> Any:
    return importlib.import_module(name)


def context() -> Any:
    """Return the class of TensorFlow's context, which every function of ``tf.config`` asks."""
    return module("tensorflow.python.eager.context").Context


def session() -> Any:
    """Return the class of every ``tf.compat.v1.Session``."""
    return module("tensorflow.python.client.session").BaseSession


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Let ``around(original, ...)`` be called in the place of a function of a module, or of a class."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*given: Any, **named: Any) -> Any:
        return around(original, *given, **named)

    setattr(owner, name, wrapped)


def ignore(owner: Any, name: str) -> None:
    """Let a function do nothing."""
    wrap(owner, name, lambda _, *given, **named: None)


def refuse(owner: Any, name: str, error: Callable[[], Exception], when: Callable[..., bool] = lambda *_: True) -> None:
    """Let a function raise."""

    def around(original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if when(*given):
            raise error()
        return original(*given, **named)

    wrap(owner, name, around)


def refused(text: str = "it is broken") -> Exception:
    error: Exception = module("tensorflow").errors.InternalError(None, None, text)
    return error


def in_sessions(change: Callable[[Any], object]) -> None:
    """Let ``change`` alter the ConfigProto of every session."""

    def around(original: Callable[..., Any], self: Any, target: str = "", graph: Any = None, config: Any = None) -> Any:
        altered = module("tensorflow").compat.v1.ConfigProto()
        altered.CopyFrom(config if config is not None else module("tensorflow.python.eager.context").context().config)
        change(altered)
        return original(self, target, graph, altered)

    wrap(session(), "__init__", around)


def in_eager_mode(change: Callable[[Any], object]) -> None:
    """Let ``change`` alter the ConfigProto with which eager mode makes its devices."""
    original = context().config.fget

    def config(self: Any) -> Any:
        made = original(self)
        change(made)
        return made

    context().config = property(config)


def in_options(change: Callable[[Any], object]) -> None:
    """Let ``change`` alter the GPUOptions of sessions and of eager mode."""
    for place in (in_sessions, in_eager_mode):
        place(lambda config: change(config.gpu_options))


def in_device_scopes(change: Callable[[str], str | None]) -> None:
    """Let ``change`` alter the name of each ``tf.device``, also in strategies and in graphs."""

    def changed(name: Any) -> Any:
        return change(name) if isinstance(name, str) else name

    eager = module("tensorflow.python.eager.context")._EagerDeviceContext
    wrap(eager, "__init__", lambda original, self, ctx, name: original(self, ctx, changed(name)))
    graph = module("tensorflow.python.framework.ops").Graph

    def around(original: Callable[..., Any], self: Any, name: Any, offset: int = 0) -> Any:
        return original(self, changed(name), offset + 1)

    wrap(graph, "_add_device_to_stack", around)


def is_on(tensor: Any, device: str) -> bool:
    return str(tensor.device).upper().endswith(device)


def other_gpus_lead_to_the_first(name: str) -> str:
    return re.sub(r"GPU:[1-9]\d*$", "GPU:0", name, flags=re.IGNORECASE)


def gpus_lead_to_the_cpu(name: str) -> str:
    return re.sub(r"GPU:\d+$", "CPU:0", name, flags=re.IGNORECASE)


@contextmanager
def on(device: str | None) -> Iterator[None]:
    """Put operations on this device, eager or in a graph."""
    with module("tensorflow.python.framework.ops").device(device):
        yield


_INSIDE = [False]


def around_ops(types: str, around: Callable[..., Any]) -> None:
    """Let ``around(compute)`` be called in the place of operations of these types (``MatMul AddV2``), eager or traced.

    ``compute()`` does the operation and returns its results, a tensor or a sequence of them. What ``around`` itself
    does is left alone.
    """
    wanted = set(types.split())

    def guarded(kind: str, compute: Callable[[], Any]) -> Any:
        if kind not in wanted or _INSIDE[0]:
            return compute()
        _INSIDE[0] = True
        try:
            return around(compute)
        finally:
            _INSIDE[0] = False

    def fast(original: Callable[..., Any], ctx: Any, kind: str, *given: Any, **named: Any) -> Any:
        return guarded(kind, lambda: original(ctx, kind, *given, **named))

    def slow(original: Callable[..., Any], kind: Any, *given: Any, **named: Any) -> Any:
        return guarded(str(kind, "ascii") if isinstance(kind, bytes) else kind, lambda: original(kind, *given, **named))

    def traced(original: Callable[..., Any], kind: str, *given: Any, **named: Any) -> Any:
        made: list[Any] = []

        def compute() -> Any:
            made[:] = original(kind, *given, **named)
            return made[3]

        outputs = guarded(kind, compute)
        return (*made[:3], outputs)

    wrap(module("tensorflow.python.pywrap_tfe"), "TFE_Py_FastPathExecute", fast)
    wrap(module("tensorflow.python.eager.execute"), "execute", slow)
    wrap(module("tensorflow.python.framework.op_def_library"), "_apply_op_helper", traced)


def is_full(error: BaseException) -> bool:
    """Return True for what an operation raises if a device has no memory left, before it has TensorFlow's type."""
    return type(error).__name__ == "ResourceExhaustedError" or getattr(error, "code", None) == 8


def refuse_ops(types: str, device: str = "", error: Callable[[], Exception] = refused) -> None:
    """Let operations of these types raise whose result is on ``device``, "" for all."""

    def around(compute: Callable[[], Any]) -> Any:
        made = compute()
        if is_on(made[0] if isinstance(made, list | tuple) else made, device):
            raise error()
        return made

    around_ops(types, around)


def falsify(types: str, device: str = "", how: Callable[[Any], Any] = lambda value: value * 2) -> None:
    """Let operations of these types give wrong results on ``device``, "" for all."""

    def around(compute: Callable[[], Any]) -> Any:
        made = compute()
        if isinstance(made, list | tuple):
            return [_falsified(tensor, device, how) for tensor in made]
        return _falsified(made, device, how)

    around_ops(types, around)


def _falsified(tensor: Any, device: str, how: Callable[[Any], Any]) -> Any:
    tf = module("tensorflow")
    if not tf.is_tensor(tensor) or tensor.dtype in (tf.string, tf.resource, tf.variant, tf.bool):
        return tensor
    if device and not is_on(tensor, device):
        return tensor
    with on(tensor.device or None):
        return how(tensor)


def run_on(types: str, device: str, asked: str = "") -> None:
    """Let operations of these types that are asked for on the device ``asked``, "" for all, run on another one."""

    def around(compute: Callable[[], Any]) -> Any:
        if asked and not current_device().endswith(asked):
            return compute()
        with on(device):
            return compute()

    around_ops(types, around)


def current_device() -> str:
    """Return the device that ``tf.device`` names here."""
    if module("tensorflow").executing_eagerly():
        return str(module("tensorflow.python.eager.context").context().device_name or "").upper()
    stack = module("tensorflow.python.framework.ops").get_default_graph()._device_function_stack
    return next((str(obj.display_name).upper() for obj in stack.peek_objs()), "")


PRODUCTS = "MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3"
SUMS = "CollectiveReduceV2 CollectiveReduceV3 CollectiveReduce NcclAllReduce"


def address(tensor: Any) -> int:
    """Return where a tensor is in the memory of a simulated GPU, which is the computer's."""
    module("tensorflow").test.experimental.sync_devices()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = module("tensorflow").experimental.dlpack.to_dlpack(tensor)
    return int(ctypes.c_void_p.from_address(pointer(capsule, b"dltensor")).value or 0)


def take_memory(gpu: int, size: int) -> None:
    """Take memory of a GPU (number in the order of CUDA) behind TensorFlow's back, as a pool of its own would."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device, held, at = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    for status in (
        cuda.cuInit(0),
        cuda.cuDeviceGet(ctypes.byref(device), gpu),
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(held), device),
        cuda.cuCtxPushCurrent_v2(held),
        cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size)),
        cuda.cuCtxPopCurrent_v2(ctypes.byref(held)),
    ):
        assert status == 0, f"CUDA error {status}"


_ABOVE_FATAL = 4
"""Of the levels of Abseil, which TensorFlow logs with: information, warning, error, fatal."""


def log_nothing() -> None:
    """Let TensorFlow's C++ code log nothing."""
    name = re.compile(rb"_ZN4absl\d+lts_\d+14SetMinLogLevelENS0_18LogSeverityAtLeastE")
    library = Path(module("tensorflow").__file__).parent / "libtensorflow_framework.so.2"
    found = name.search(library.read_bytes())
    assert found is not None
    ctypes.CDLL(str(library))[found[0].decode()](_ABOVE_FATAL)


def in_environment(change: Callable[[str, str], str | None]) -> None:
    """Let a variable that is set from now on get another value; None: it is not set."""
    kind = type(os.environ)

    def around(original: Callable[..., Any], self: Any, name: str, value: str) -> None:
        changed = change(name, value)
        if changed is not None:
            original(self, name, changed)

    wrap(kind, "__setitem__", around)
