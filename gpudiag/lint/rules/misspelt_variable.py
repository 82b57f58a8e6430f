"""nothing reads the variable {name}{meant}

TensorFlow, the CUDA driver and NVIDIA's libraries ask for the variables that they know, and nobody looks at the rest: a
misspelt name is not an error anywhere. Some names are passed on from post to post and were never read by TensorFlow;
they are in no file of the 2.21 wheel.

Bad
    import os

    os.environ["CUDA_VISIBLE_DEVICE"] = "1"
    import tensorflow as tf

Good
    import os

    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "1")
    import tensorflow as tf
"""

from __future__ import annotations

import ast
import re

from gpudiag.knowledge.variables import PIECES, is_read_by_nothing, misspelling_of
from gpudiag.lint.program import Import, Program, Variable
from gpudiag.lint.rule import Match, Matches, Rule, quoted, replace
from gpudiag.lint.values import constants
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    advice="{instead}",
    words=("environ", "putenv", "env CUDA", "env TF_"),
    also=PIECES,
    url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
    cause="variable_misspelt",
)
_NEVER_READ = {
    # Met in public code, and in no file of the TensorFlow 2.21 wheel.
    "TF_ENABLE_SOFT_PLACEMENT": "tf.config.set_soft_device_placement(True)",
    "TF_GPU_THREAD_PER_CORE": "os.environ['TF_GPU_THREAD_COUNT'] = '2'",
    "TF_USE_CUDNN": "remove it: there is no such switch",
    "TF_USE_CUDA": "os.environ['CUDA_VISIBLE_DEVICES'] = '-1' before import tensorflow hides the GPUs",
    "TF_USE_GPU": "os.environ['CUDA_VISIBLE_DEVICES'] = '-1' before import tensorflow hides the GPUs",
    "TF_GPU_MEMORY_FRACTION": "tf.config.set_logical_device_configuration(gpu, "
    "[tf.config.LogicalDeviceConfiguration(memory_limit=MIB)])",
    "TF_LOG_DEVICE_PLACEMENT": "tf.debugging.set_log_device_placement(True)",
    "TF_ALLOW_TF32": "tf.config.experimental.enable_tensor_float_32_execution(True)",
    "TF_DISABLE_TF32": "tf.config.experimental.enable_tensor_float_32_execution(False)",
    "TF_DISABLE_MKL": "os.environ['TF_ENABLE_ONEDNN_OPTS'] = '0'",
    "TF_DISABLE_XLA": "os.environ['TF_XLA_FLAGS'] = '--tf_xla_auto_jit=-1'",
    "TF_ENABLE_AUTO_MIXED_PRECISION": "tf.keras.mixed_precision.set_global_policy('mixed_float16')",
    "TF_FORCE_GPU_MEMORY_GROWTH": "os.environ['TF_FORCE_GPU_ALLOW_GROWTH'] = 'true'",
    "TF_GPU_MEMORY_LIMIT": "tf.config.set_logical_device_configuration(gpu, "
    "[tf.config.LogicalDeviceConfiguration(memory_limit=MIB)])",
}


def find(program: Program) -> Matches:
    for event in program.of(Variable):
        if event.name.startswith("TF_ENABLE_") and set(constants(event.value)) & {"0", "false", "False", ""}:
            continue  # it is off, as without the variable
        if instead := _NEVER_READ.get(event.name):
            yield Match(event, {"name": event.name, "meant": "", "instead": instead})
        elif known := misspelling_of(event.name):
            node = event.name_node
            spelt = isinstance(node, ast.Constant) and node.value == event.name
            instead = f"write {known}"
            edits = (replace(node, quoted(event, node, known)),) if spelt and node is not None else ()
            written = event.name.encode("unicode_escape").decode()  # two that look alike: a space of no width
            figures = {"name": written, "meant": f"; {known} is meant, probably", "instead": instead}
            yield Match(event, figures, node=node if spelt else None, edits=edits)
        elif is_read_by_nothing(event.name) and not _is_for_others(event, program):
            instead = _OTHERS.get(event.name.partition("_")[0], "remove it")
            yield Match(event, {"name": event.name, "meant": " in TensorFlow 2.21", "instead": instead})


_OTHERS = {
    "XLA": "it is one of JAX; TF_FORCE_GPU_ALLOW_GROWTH=true makes TensorFlow's memory grow",
    "PYTORCH": "it is one of PyTorch; TF_GPU_ALLOCATOR=cuda_malloc_async chooses TensorFlow's allocator",
}
_OTHER_PACKAGES = re.compile(r"\b(?:jax|flax|torch|pytorch|vllm|cupy)\b")


def _is_for_others(event: Variable, program: Program) -> bool:
    """Return whether the project itself reads a variable, or what reads it is in use beside TensorFlow."""
    uses_tensorflow = any(
        isinstance(entry, Import) and entry.name.startswith(("tensorflow", "keras")) for entry in program.events
    )
    named = sum(module.text.count(event.name) for module in program.modules)
    return not uses_tensorflow or named > 1 or program.mentions(_OTHER_PACKAGES)
