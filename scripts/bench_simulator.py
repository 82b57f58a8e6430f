"""What a simulated GPU costs, as ratios measured in one run.

    python scripts/bench_simulator.py

`measure()` gives the figures; scripts/bench.py calls it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys

from gpudiag.simulator import Machine

IMPORT = """
import time
start = time.perf_counter()
import tensorflow
print(time.perf_counter() - start)
"""

# From fork to the first matmul's number, in children of a process that imported TensorFlow.
FIRST_MATMUL = """
import gc, os, sys, time
import tensorflow as tf
from gpudiag.simulator import preload
preload()
gc.freeze()
for _ in range(int(sys.argv[1])):
    start = time.perf_counter()
    reader, writer = os.pipe()
    if not os.fork():
        tf.config.set_soft_device_placement(False)
        with tf.device("/GPU:0"):
            x = tf.ones((64, 64))
            assert tf.matmul(x, x).numpy()[0, 0] == 64
        os.write(writer, str(time.perf_counter() - start).encode())
        os._exit(0)
    os.close(writer)
    print(os.fdopen(reader).read())
    os.wait()
"""

# Seconds of a training step, one for each line on stdin.
STEPS = """
import sys, time
import numpy as np
import keras
import tensorflow as tf
kind, device = sys.argv[1:]
if device == "CPU":
    tf.config.set_visible_devices([], "GPU")
assert bool(tf.config.get_visible_devices("GPU")) == (device == "GPU")
layers = keras.layers
if kind == "cnn":
    shape = (32, 32, 3)
    body = [layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"), layers.BatchNormalization(),
            layers.GlobalAveragePooling2D()]
else:
    shape = (256,)
    body = [layers.Dense(512, activation="relu"), layers.Dense(512, activation="relu")]
model = keras.Sequential([layers.Input(shape), *body, layers.Dense(10)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True),
              jit_compile=False)
random = np.random.default_rng(0)
x = tf.constant(random.normal(size=(64, *shape)).astype("f"))
y = tf.constant(random.integers(0, 10, 64))
for _ in range(5):
    model.train_on_batch(x, y)
print("ready", flush=True)
for _ in sys.stdin:
    start = time.perf_counter()
    model.train_on_batch(x, y)
    print(time.perf_counter() - start, flush=True)
"""


def _environment(machine: Machine, **changes: str) -> dict[str, str]:
    base = {**machine.environment(), "TF_CPP_MIN_LOG_LEVEL": "3", **changes}
    base["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    base.pop("CUDA_VISIBLE_DEVICES", None)
    return base


def _numbers(code: str, machine: Machine, *arguments: str) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=_environment(machine),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"a measurement failed:\n{done.stderr[-3000:]}")
    return [float(line) for line in done.stdout.split()]


class Trainer:
    """A process that trains one step at each request."""

    def __init__(self, machine: Machine, kind: str, device: str, onednn: bool) -> None:
        self.times: list[float] = []
        self._process = subprocess.Popen(
            [sys.executable, "-c", STEPS, kind, device],
            env=_environment(machine, TF_ENABLE_ONEDNN_OPTS=str(int(onednn))),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._read()

    def _read(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a training process ended too early")
        return line

    def step(self) -> None:
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.times.append(float(self._read()))

    def median(self) -> float:
        return statistics.median(self.times)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def measure(repeats: int = 5, steps: int = 40) -> dict[str, float]:
    """Medians. Ratios are named after what they compare; only they mean anything elsewhere."""
    figures: dict[str, float] = {}
    with Machine("1x16GiB") as small, Machine("1x80GiB:H100") as large:
        imports = [_numbers(IMPORT, small)[0] for _ in range(3)]
        figures["import_s"] = statistics.median(imports)
        for name, machine in (("16gib", small), ("80gib", large)):
            seconds = statistics.median(_numbers(FIRST_MATMUL, machine, str(repeats)))
            figures[f"fork_to_first_matmul_{name}_s"] = seconds
            figures[f"fork_to_first_matmul_{name}_per_import"] = seconds / figures["import_s"]
        for kind in ("cnn", "dense"):
            gpu = Trainer(small, kind, "GPU", onednn=False)
            cpu = Trainer(small, kind, "CPU", onednn=False)
            with_onednn = Trainer(small, kind, "CPU", onednn=True)
            # Step by step in turn, so that whatever else the machine does slows all alike.
            for _ in range(steps):
                gpu.step()
                cpu.step()
                with_onednn.step()
            for trainer in (gpu, cpu, with_onednn):
                trainer.close()
            figures[f"step_{kind}_gpu_s"] = gpu.median()
            figures[f"step_{kind}_gpu_per_cpu"] = gpu.median() / cpu.median()
            figures[f"step_{kind}_gpu_per_cpu_with_onednn"] = gpu.median() / with_onednn.median()
    return figures


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
