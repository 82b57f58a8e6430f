"""What the watcher of `gpudiag trace` costs a program: the same work with and without it, in turns, in one process.

Run on a simulated GPU by ``scripts/bench.py``; prints the medians of processor seconds as JSON, because the time on the
clock of a shared machine says nothing. Processor time too depends on what else the machine does, for seconds at a time:
so the work is cut into short pieces, and the ratio is that of the medians.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from gpudiag.tracing.inside import gpudiag_watch as watcher

PAIRS = {"fit": 9, "eager": 60}
EAGER = 300
WARM = 60
"""Operations of each type before the time is taken: a program is watched from its start, and here each round starts
the watcher again. That replaces methods of TensorFlow, for which Python has to optimize its calls of them again."""
STEPS = 128


def _model() -> tuple[tf.keras.Model, np.ndarray, np.ndarray]:
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Conv2D(16, 3, activation="relu"), layers.Flatten(), layers.Dense(10)])
    model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    generator = np.random.default_rng(1)
    return model, generator.random((32 * STEPS, 28, 28, 1), np.float32), generator.integers(0, 10, 32 * STEPS)


def _eager(matrix: tf.Tensor, rounds: int = EAGER) -> None:
    for _ in range(rounds):
        result = tf.tanh(matrix @ matrix * 0.01)
    result.numpy()


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _watched(work: Callable[[], object], warm: Callable[[], object]) -> float:
    folder = tempfile.mkdtemp()
    assert watcher.start_here(folder)
    try:
        warm()
        return _seconds(work)
    finally:
        watcher.stop()
        shutil.rmtree(folder)


def main() -> None:
    """Measure and print."""
    model, images, labels = _model()
    matrix = tf.random.normal([64, 64])
    works: dict[str, Callable[[], object]] = {
        "fit": lambda: model.fit(images, labels, batch_size=32, verbose=0),
        "eager": lambda: _eager(matrix),
    }
    measured: dict[str, float] = {}
    for name, work in works.items():
        work()
        pairs = [(_seconds(work), _watched(work, lambda: _eager(matrix, WARM))) for _ in range(PAIRS[name])]
        measured[name] = statistics.median(plain for plain, _ in pairs)
        measured[f"{name}, traced"] = statistics.median(watched for _, watched in pairs)
        measured[f"{name}, ratio"] = measured[f"{name}, traced"] / measured[name]
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
