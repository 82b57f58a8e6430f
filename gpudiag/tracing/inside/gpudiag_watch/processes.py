"""The process itself: its command, its variables, and how it was forked."""

import os
import sys
from _thread import allocate_lock

from .lines import line_of_program
from .notes import LONGEST, cut, guarded, note, open_file, reopened, replace, state

_VARIABLES = ("TF_", "CUDA", "NVIDIA", "XLA_", "NCCL_", "KERAS_", "GPU_", "HOROVOD_", "OMPI_", "SLURM_", "LOCAL_")
"""What the names of environment variables begin with that concern GPUs; no other is noted."""


def _is_noted(name: str) -> bool:
    return name.upper().startswith(_VARIABLES)


def _shown_value(name: str, value: str) -> str:
    return "(set)" if name == "TF_CONFIG" or not _is_noted(name) else cut(value, 300)


def environment() -> dict:
    return {name: _shown_value(name, value) for name, value in os.environ.items() if _is_noted(name)}


def note_process(how: str, **more: object) -> None:
    try:
        with open("/proc/self/cmdline", "rb") as file:
            command = file.read(LONGEST).decode("utf-8", "backslashreplace").rstrip("\0").split("\0")
    except OSError:
        command = list(getattr(sys, "orig_argv", [sys.executable]))
    try:
        folder = os.getcwd()
    except OSError:
        folder = ""
    note(
        "process",
        how=how,
        pid=os.getpid(),
        parent=os.getppid(),
        command=command[:64],
        folder=folder,
        python="%d.%d.%d" % sys.version_info[:3],
        variables=environment(),
        **more,
    )


def stage_of_tensorflow() -> str:
    """Return how far TensorFlow is: a setting may come too late for it."""
    if state.initialised:
        return "initialised"
    if state.context is not None and getattr(state.context, "_physical_devices", None) is not None:
        return "listed"
    return "imported" if "tensorflow" in sys.modules else "before"


def watch_environment() -> None:
    put, unset = os.putenv, os.unsetenv

    def putenv(name, value, /):
        put(name, value)
        guarded(_variable, name, value)

    def unsetenv(name, /):
        unset(name)
        guarded(_variable, name, None)

    replace(os, "putenv", putenv)
    replace(os, "unsetenv", unsetenv)


def _variable(name: object, value: object) -> None:
    name = os.fsdecode(name)
    if _is_noted(name):
        shown = None if value is None else _shown_value(name, os.fsdecode(value))
        note("variable", name=name, value=shown, line=line_of_program(3), stage=stage_of_tensorflow())


def forked_in_parent() -> None:
    if state.words is not None and stage_of_tensorflow() in ("initialised", "listed"):
        note("fork", line=line_of_program(2), stage=stage_of_tensorflow())


def forked_in_child() -> None:
    if state.words is None and state.forked is None:
        return  # the watcher was stopped
    stage = stage_of_tensorflow()
    state.forked = lambda: _open_after_fork(stage)
    state.words = state.lines = None
    state.forget_counters()
    state.lock = allocate_lock()
    state.busy = False
    if stage in ("initialised", "listed"):
        reopened()
        guarded(_watch_first_use, state.context)


def _watch_first_use(context) -> None:
    """Note when a forked process first asks for TensorFlow's devices: they are its parent's, and it may hang there."""
    ask = context.ensure_initialized

    def ensure_initialized():
        del context.ensure_initialized
        note("used_after_fork", line=line_of_program(2))
        ask()

    context.ensure_initialized = ensure_initialized


def _open_after_fork(stage) -> bool:
    if not open_file(state.folder):
        return False
    note_process("forked", stage=stage)
    if "tensorflow" in sys.modules:
        note("tensorflow", version=version_of_tensorflow())
    return True


def version_of_tensorflow() -> str:
    return str(getattr(sys.modules.get("tensorflow"), "__version__", ""))


def task_of_cluster() -> str:
    """Return which worker this process is by TF_CONFIG, such as ``worker 1``; its addresses are not noted."""
    import json

    try:
        task = json.loads(os.environ.get("TF_CONFIG") or "{}").get("task") or {}
        return cut("%s %s" % (task["type"], task["index"]), 100) if task else ""
    except (ValueError, KeyError, TypeError, AttributeError):  # TensorFlow itself says what is wrong with it
        return ""
