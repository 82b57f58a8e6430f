"""nothing reads a variable, whose name is probably misspelled

TensorFlow, the CUDA driver and NVIDIA's libraries read only the variables that they know, so that a misspelt name
causes no error. Some names spread from forum to forum although TensorFlow never read them; they are in no file of the
2.21 wheel.

Others are read under a condition: by the container runtime when it starts a container, by the loader when it starts the
process, or by TensorFlow if another variable is set as well.

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
from dataclasses import dataclass

from gpudiag.fix import Action, edit, edit_note
from gpudiag.knowledge.variables import PIECES, is_read_by_nothing, misspelling_of
from gpudiag.lint.program import Import, LintedProgram, Variable
from gpudiag.lint.rule import Matches, Rule, Violation, quoted, replace
from gpudiag.lint.values import constants
from gpudiag.model.report import Severity

RULE = Rule(
    message="nothing reads the variable {name}{meant}",
    severity=Severity.WARNING,
    fix=(edit_note("remove it"),),
    words=("environ", "putenv", "CUDA_", "TF_", "NVIDIA_", "LD_"),
    also=(*PIECES, "LD_LIBRARY_PATH"),
    url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
    cause="variable_misspelt",
)
_HIDE = edit("os.environ['CUDA_VISIBLE_DEVICES'] = '-1'", "hide the GPUs by it before import tensorflow")
_LIMIT = edit(
    "tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])",
    "give a limit in MiB",
)
_NEVER_READ = {
    # Met in public code, and in no file of the TensorFlow 2.21 wheel.
    "TF_ENABLE_SOFT_PLACEMENT": edit("tf.config.set_soft_device_placement(True)"),
    "TF_GPU_THREAD_PER_CORE": edit("os.environ['TF_GPU_THREAD_COUNT'] = '2'", "set TF_GPU_THREAD_MODE too"),
    "TF_USE_CUDNN": edit_note("remove it: there is no such switch"),
    "TF_USE_CUDA": _HIDE,
    "TF_USE_GPU": _HIDE,
    "TF_GPU_MEMORY_FRACTION": _LIMIT,
    "TF_LOG_DEVICE_PLACEMENT": edit("tf.debugging.set_log_device_placement(True)"),
    "TF_ALLOW_TF32": edit("tf.config.experimental.enable_tensor_float_32_execution(True)"),
    "TF_DISABLE_TF32": edit("tf.config.experimental.enable_tensor_float_32_execution(False)"),
    "TF_DISABLE_MKL": edit("os.environ['TF_ENABLE_ONEDNN_OPTS'] = '0'"),
    "TF_DISABLE_XLA": edit("os.environ['TF_XLA_FLAGS'] = '--tf_xla_auto_jit=-1'"),
    "TF_ENABLE_AUTO_MIXED_PRECISION": edit("tf.keras.mixed_precision.set_global_policy('mixed_float16')"),
    "TF_FORCE_GPU_MEMORY_GROWTH": edit("os.environ['TF_FORCE_GPU_ALLOW_GROWTH'] = 'true'"),
    "TF_GPU_MEMORY_LIMIT": _LIMIT,
}


@dataclass(frozen=True)
class Condition:
    """The condition under which a variable is read."""

    meant: str
    """The rest of the message, after the variable's name."""
    unless: re.Pattern[str]
    """Signs that the program meets the condition, or may meet it."""
    fix: Action


_CONTAINER = Condition(
    " here: the container runtime reads it when it starts a container",
    re.compile(r"docker|podman|container|apptainer|singularity|kubernetes|enroot|pyxis", re.IGNORECASE),
    edit("os.environ['CUDA_VISIBLE_DEVICES'] = '0'", "choose the GPUs of this program before import tensorflow"),
)
_CONDITIONS = {
    "NVIDIA_VISIBLE_DEVICES": _CONTAINER,
    "NVIDIA_DRIVER_CAPABILITIES": _CONTAINER,
    "TF_GPU_THREAD_COUNT": Condition(
        " unless TF_GPU_THREAD_MODE is gpu_private or gpu_shared",
        re.compile("TF_GPU_THREAD_MODE"),
        edit("os.environ['TF_GPU_THREAD_MODE'] = 'gpu_private'", "set it as well"),
    ),
    "TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC": Condition(
        " unless TF_GPU_ALLOCATOR is cuda_malloc_async",
        re.compile("TF_GPU_ALLOCATOR"),
        edit("os.environ['TF_GPU_ALLOCATOR'] = 'cuda_malloc_async'", "set it as well"),
    ),
    "LD_LIBRARY_PATH": Condition(
        " any more: the loader has read it when this process was started",
        re.compile(r"subprocess|Popen|os\.(?:exec|spawn|system)|multiprocessing|sys\.executable"),
        edit_note("set it in the shell before the program is started"),
    ),
}


def find(program: LintedProgram) -> Matches:
    for event in program.of(Variable):
        if event.name.startswith("TF_ENABLE_") and set(constants(event.value)) & {"0", "false", "False", ""}:
            continue  # it is off, as without the variable
        if instead := _NEVER_READ.get(event.name):
            yield Violation(event, {"name": event.name, "meant": ""}, fix=(instead,))
        elif (condition := _CONDITIONS.get(event.name)) and not event.module.source.is_script:
            uses = event.name != "LD_LIBRARY_PATH" or _uses_tensorflow(program)
            if uses and not program.mentions(condition.unless):
                yield Violation(event, {"name": event.name, "meant": condition.meant}, fix=(condition.fix,))
        elif known := misspelling_of(event.name):
            node = event.name_node
            spelt = isinstance(node, ast.Constant) and node.value == event.name
            edits = (replace(node, quoted(event, node, known)),) if spelt and node is not None else ()
            written = event.name.encode("unicode_escape").decode()  # two that look alike: a space of no width
            figures = {"name": written, "meant": f"; {known} is meant, probably"}
            yield Violation(
                event, figures, node=node if spelt else None, edits=edits, fix=(edit_note(f"write {known}"),)
            )
        elif is_read_by_nothing(event.name) and not _is_for_others(event, program):
            other = _OTHERS.get(event.name.partition("_")[0])
            yield Violation(event, {"name": event.name, "meant": " in TensorFlow 2.21"}, fix=(other,) if other else ())


_OTHERS = {
    "XLA": edit(
        "os.environ['TF_FORCE_GPU_ALLOW_GROWTH'] = 'true'", "the program sets a variable of JAX; this is TensorFlow's"
    ),
    "PYTORCH": edit(
        "os.environ['TF_GPU_ALLOCATOR'] = 'cuda_malloc_async'",
        "the program sets a variable of PyTorch; this is TensorFlow's",
    ),
}
_OTHER_PACKAGES = re.compile(r"\b(?:jax|flax|torch|pytorch|vllm|cupy)\b")


def _uses_tensorflow(program: LintedProgram) -> bool:
    return any(isinstance(event, Import) and event.name.startswith(("tensorflow", "keras")) for event in program.events)


def _is_for_others(event: Variable, program: LintedProgram) -> bool:
    """Return whether the project itself reads a variable, or uses another program that does."""
    named = sum(module.text.count(event.name) for module in program.modules)
    return not _uses_tensorflow(program) or named > 1 or program.mentions(_OTHER_PACKAGES)
