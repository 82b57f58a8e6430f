"""The program of a new interpreter that shows whether TensorFlow gets its GPU. It is run with ``python -c``.

The program does not import gpudiag, because the environment may hide gpudiag's packages. Python starts as for the
user's own programs. Only to leave out a start-up file it starts with ``-S``, and this program does the work of
``site``.
"""

from __future__ import annotations

import sys

if sys.path and not sys.path[0]:  # in Python 3.10 that is the working directory, where anybody may have left a json.py
    del sys.path[0]

import json
import os
from typing import Any


def _start(skipped: list[str], *, user_site: bool) -> None:
    """Run Python's own start-up without some of its files."""
    import site

    read = site.addpackage

    def read_unless_skipped(folder: Any, name: Any, known: Any, *more: Any) -> Any:
        return known if os.path.join(folder, name) in skipped else read(folder, name, known, *more)  # noqa: PTH118

    setattr(site, "addpackage", read_unless_skipped)  # noqa: B010  # mypy knows of no other function there
    for name in ("sitecustomize", "usercustomize"):
        if any(os.path.basename(os.path.dirname(file)) == name or _stem(file) == name for file in skipped):  # noqa: PTH119, PTH120
            setattr(site, f"exec{name}", lambda: None)
    if not user_site:
        site.ENABLE_USER_SITE = False
    site.main()


def _stem(file: str) -> str:
    return os.path.splitext(os.path.basename(file))[0]  # noqa: PTH119, PTH122


def _computed(tf: Any, gpus: int, *, libraries: bool) -> str:
    """Return the error of the first GPU operation that fails, or "". ``libraries``: also use libraries beyond cuBLAS
    and cuDNN."""
    tf.config.set_soft_device_placement(False)
    for number in range(gpus):
        with tf.device(f"/GPU:{number}"):
            ones = tf.ones([2, 2])
            product = tf.matmul(ones, ones)
            sums = tf.nn.conv2d(tf.ones([1, 2, 2, 1]), tf.ones([2, 2, 1, 1]), 1, "VALID")  # cuDNN is for these alone
            if libraries:  # cuFFT, cuSOLVER, cuSPARSE
                tf.signal.fft(tf.complex(ones, ones)).numpy()
                tf.linalg.cholesky(tf.eye(2)).numpy()
                tf.linalg.tridiagonal_solve(tf.ones([3, 2]), tf.ones([2]), partial_pivoting=False).numpy()
        right = float(product[1, 1]) == 2.0 and float(sums[0, 0, 0, 0]) == 4.0
        if not right or not product.device.endswith(f"GPU:{number}"):
            return f"an operation came out wrong, on {product.device}"
    return ""


def _driver_error() -> str:
    """Return the error with which the driver does not start, or makes no context on a GPU; "" if it has none, or cannot
    be asked. With such an error TensorFlow uses no GPU at all.

    A fork asks: TensorFlow, if it is imported next, must find a process that has no driver yet."""
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        try:
            os.write(writing, _refusal().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(pid, 0)
    return answer


def _refusal() -> str:
    """Ask the driver in this process, and return its error; "" if it has none, or is not there."""
    import ctypes

    count, gpu, context, name = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p(), ctypes.c_char_p()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        call, code = "cuInit", driver.cuInit(0)
        driver.cuDeviceGetCount(ctypes.byref(count))
        for number in range(count.value):
            if not code and not driver.cuDeviceGet(ctypes.byref(gpu), number):
                call, code = "cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), gpu)
                if not code:
                    driver.cuDevicePrimaryCtxRelease_v2(gpu)
        driver.cuGetErrorName(code, ctypes.byref(name))
    except (OSError, AttributeError):
        return ""
    return f"{call}: {name.value.decode() if name.value else f'error {code}'}" if code else ""


def main(argument: dict[str, Any]) -> None:
    """Import TensorFlow, list its GPUs, compute on each; each step is noted in a file as soon as it is done."""
    noted: dict[str, Any] = {}

    def note(**what: Any) -> None:
        noted.update(what)
        with open(argument["notes"], "w") as file:  # noqa: PTH123
            json.dump(noted, file)

    if sys.flags.no_site:
        _start(argument["skipped"], user_site=argument["user_site"])
    if argument["on_path"]:
        sys.path.insert(0, "")
    try:
        # To import TensorFlow takes seconds, to ask the driver none.
        if argument["driver"] and (error := _driver_error()):
            note(driver_error=error)
            os._exit(0)
        import tensorflow as tf

        listing = tf.config.list_physical_devices
        note(imported=True)
        gpus = listing("GPU")
        note(listed=len(gpus))
        if gpus:
            failed = _computed(tf, len(gpus), libraries=argument["libraries"])
            note(computed=not failed, failed=failed)
    except BaseException as error:
        note(failed=f"{type(error).__name__}: {error}")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # TensorFlow's exit handlers can hang or crash


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
