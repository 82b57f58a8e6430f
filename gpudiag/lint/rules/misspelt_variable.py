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

from gpudiag.knowledge.variables import PIECES, misspelling_of
from gpudiag.lint.program import Program, Variable
from gpudiag.lint.rule import Match, Matches, Rule, quoted, replace
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
    "TF_GPU_MEMORY_LIMIT": "tf.config.set_logical_device_configuration(gpu, "
    "[tf.config.LogicalDeviceConfiguration(memory_limit=MIB)])",
}


def find(program: Program) -> Matches:
    for event in program.of(Variable):
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
