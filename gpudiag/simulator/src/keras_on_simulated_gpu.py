"""Run by keras.c inside every program on a simulated machine; nothing imports this file.

If Keras sees a GPU it chooses functions that a simulated one lacks: XLA for compile(jit_compile="auto"), the default,
and cuDNN for LSTM and GRU. Only these two choices are replaced (Keras 3.6 to 3.15 were looked at); an explicit
jit_compile=True stays what the user asked for, and runs without XLA (xla.cc).
"""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Callable
from typing import Any


def choose_no(choice: Callable[..., Any], text: str) -> Callable[..., bool]:
    """Replace the function `choice` by one that never says yes, and report once where it would have."""
    said: list[str] = []

    def chosen(*arguments: Any) -> bool:
        is_compared = sys._getframe(2).f_code.co_name == "__setattr__"  # Keras reads an attribute before it sets one
        if not is_compared and choice(*arguments) and not said:
            said.append(text)
            print(f"gpudiag simulated GPU: {text}", file=sys.stderr, flush=True)
        return False

    return chosen


def leave_xla_off(trainer: Any) -> None:
    """Turn XLA off; Keras' own rule looks at the device list, the strategy and op determinism."""
    choice = getattr(trainer.Trainer, "_resolve_auto_jit_compile", None)
    if choice is not None:
        trainer.Trainer._resolve_auto_jit_compile = choose_no(
            choice,
            'Keras jit_compile="auto" would use XLA, which cannot run on a simulated GPU; it is left off',
        )


def leave_cudnn_off(rnn: Any) -> None:
    """Turn cuDNN off; in a graph the choice is made when tracing, so a missing kernel could not be caught later."""
    choice = getattr(rnn, "_is_gpu_available", None)
    if choice is not None:
        rnn._is_gpu_available = choose_no(
            choice,
            "Keras LSTM and GRU would use cuDNN, which cannot run on a simulated GPU; they use "
            "TensorFlow's other kernels",
        )


CHANGES = {
    "keras.src.trainers.trainer": leave_xla_off,
    "keras.src.backend.tensorflow.rnn": leave_cudnn_off,
}


class AfterImport(importlib.abc.MetaPathFinder):
    """Lets the other finders find a module, and changes the module after its execution."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in CHANGES:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None and spec.loader is not None), None)
        if spec is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def execute_and_change(module: Any) -> None:
                execute(module)
                CHANGES[name](module)

            loader.exec_module = execute_and_change
        return spec


for name, change in CHANGES.items():
    if name in sys.modules:
        change(sys.modules[name])
sys.meta_path.insert(0, AfterImport())
