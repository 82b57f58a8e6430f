"""What six of the other programs do wrong, in one process: TensorFlow is imported once."""

import runpy
from pathlib import Path

for name in (
    "too_many_replicas",
    "values_read_in_a_loop",
    "string_in_xla",
    "model_run_eagerly",
    "forks_after_use",
    "function_replaced",
):
    runpy.run_path(str(Path(__file__).with_name(f"{name}.py")), run_name="__main__")
