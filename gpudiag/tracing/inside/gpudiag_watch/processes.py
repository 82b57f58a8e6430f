"""The process itself: its command, its variables, how it was forked, and the variables that it gives to others."""

import os
import sys
from _thread import allocate_lock

from .lines import hide_our_frames, importing, kind_of, line_of_program
from .notes import FOLDER, LONGEST, cut, guarded, missing, note, open_file, reopened, replace, state

_VARIABLES = (
    *("TF_", "CUDA", "NVIDIA", "XLA_", "NCCL_", "KERAS_", "GPU_", "HOROVOD_", "OMPI_", "SLURM_", "LOCAL_"),
    *("JAX_", "PYTORCH_", "TORCH_", "LD_LIBRARY_PATH"),
)
"""What the names of environment variables begin with that concern GPUs; no other is noted."""
_INSIDE = os.path.dirname(os.path.dirname(__file__))
_ASKING = frozenset((os.getenv.__code__.co_filename, type(os.environ).get.__code__.co_filename))
"""Files of Python through which a program asks for a variable, and sets one."""
_READ_BY_PYTHON = frozenset(("KERAS_BACKEND", "TF_CONFIG", "TF_USE_LEGACY_KERAS"))
"""Variables that TensorFlow or Keras reads from os.environ; of others it is noted who reads what was set here."""
_MOST_READS = _MOST_COMMANDS = 500
_SETS = (
    r"(?:\A|[;&\n(])\s*(export\s+|setenv\s+|set\s+)?(?=\w+=|\w+\s+\S+\s*;?\s*\Z)(\w+)(?:=|\s+)"
    r"""("[^"]*"|'[^']*'|[^\s;&|]*)\s*(?=\Z|;|&&|\n)"""
)
"""Where a shell sets a variable, and does not give it to the command on the same line: (word, name, value)."""


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
    """Return how far TensorFlow has started in this process, which decides whether a setting comes too late."""
    if state.initialised or state.gpus:  # by the eager context, or by a session
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
    cls = type(os.environ)
    get, has, run = cls.__getitem__, cls.__contains__, os.system

    def contains(self, key):
        guarded(_asked, key)
        return has(self, key)

    def getitem(self, key):
        guarded(_asked, key)
        try:
            return get(self, key)
        except KeyError:
            if sys._getframe(1).f_code.co_name != "get":  # which catches it
                hide_our_frames()
            raise

    def system(command):
        guarded(_starts, command, True, None, None)
        return run(command)

    keep = cls.setdefault

    def setdefault(self, key, value):
        before = self._data.get(self.encodekey(key))
        if before is not None and self.decodevalue(before) != value:
            guarded(_kept, key, value)
        return keep(self, key, value)

    replace(cls, "setdefault", setdefault)
    replace(cls, "__contains__", contains)
    replace(cls, "__getitem__", getitem)
    replace(os, "system", system)


def _variable(name: object, value: object) -> None:
    name = os.fsdecode(name)
    if _is_noted(name):
        shown = None if value is None else _shown_value(name, os.fsdecode(value))
        # os.putenv sets it for C alone: os.environ, and a copy of it, do not have it.
        by_environ = sys._getframe(3).f_code.co_filename in _ASKING
        state.put.add(name)
        state.reads = {read for read in state.reads if read[0] != name}
        line = line_of_program(3)
        where = {"line": line, "by_import": importing(3), "stage": stage_of_tensorflow()}
        note("variable", name=name, value=shown, direct=not by_environ, **where)


def _kept(name: object, value: object) -> None:
    """Note that os.environ.setdefault left a variable as it was."""
    if _is_noted(name):
        shown = _shown_value(name, str(value))
        note("kept", name=name, value=shown, before=_shown_value(name, os.environ[name]), line=line_of_program(4))


def _asked(name: object) -> None:
    """Note whose Python asked for a variable, once until it is set again."""
    if name not in state.put and name not in _READ_BY_PYTHON:
        return
    frame = sys._getframe(3)
    while frame is not None and frame.f_code.co_filename in _ASKING:
        if frame.f_code.co_name == "copy":
            return
        frame = frame.f_back
    by = kind_of(frame.f_code.co_filename) if frame is not None else "ours"
    if by != "ours" and (name, by) not in state.reads and len(state.reads) < _MOST_READS:
        state.reads.add((name, by))
        keys = keys_of_cluster() if name == "TF_CONFIG" else []
        note("read", name=name, by=by, line=line_of_program(4), keys=keys)


def in_subprocess(module) -> None:
    """Watch the programs that are started: with which variables, and by which shell."""
    cls = getattr(module, "Popen", None)
    if cls is None:
        missing("subprocess.Popen", "which variables a process gave to others")
        return
    begun = cls.__init__

    def init(self, args, *positional, **named):
        if named.get("env") is not None:
            guarded(_watch_child, named)
        begun(self, args, *positional, **named)
        guarded(_starts, args, named.get("shell"), named.get("env"), self.pid)

    init.__wrapped__ = begun
    replace(cls, "__init__", init)


def in_multiprocessing(module) -> None:
    """Watch the processes that multiprocessing starts by the method spawn."""
    spawn = getattr(module, "spawnv_passfds", None)
    if spawn is None:
        missing("multiprocessing.util.spawnv_passfds", "which line started a process")
        return

    def spawnv_passfds(path, args, passfds):
        pid = spawn(path, args, passfds)
        guarded(_starts, args, False, None, pid)
        return pid

    replace(module, "spawnv_passfds", spawnv_passfds)


def _watch_child(named) -> None:
    """Let a Python be watched that is started with other variables."""
    env = dict(named["env"])
    if FOLDER in os.environ and all(isinstance(name, str) for name in env) and FOLDER not in env:
        path = env.get("PYTHONPATH")
        env.update({FOLDER: os.environ[FOLDER], "PYTHONPATH": _INSIDE + os.pathsep + path if path else _INSIDE})
        named["env"] = env


def _starts(command, by_shell, env, pid) -> None:
    """Note what is started: the variables that it is given, and one that a shell sets for itself alone."""
    import re

    words = command if isinstance(command, (list, tuple)) else [command]
    last = os.fsdecode(words[-1]) if words else ""
    own = by_shell or (len(words) == 3 and words[1] in ("-c", "-lc"))
    sets = [found.groups() for found in re.finditer(_SETS, last)] if own else []
    is_last = not re.search(r"[;&\n]\s*(?!(?:export|set|setenv)\s|\w+=)\w", last) and len(sets) == 1
    exported = [
        (name, cut(value.strip("\"'"), 300), is_last)
        for word, name, value in sets
        if name.startswith(_VARIABLES)
        and (is_last or not (word or re.search(r"\$\{?%s\b|export\s[^;&\n]*\b%s\b" % (name, name), last)))
    ]
    given, is_copy = None, False
    if env is not None:
        own, theirs = dict(os.environ), {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}
        changed = [name for name in {**own, **theirs} if _is_noted(name) and theirs.get(name) != own.get(name)]
        given = {name: _shown_value(name, theirs[name]) if name in theirs else None for name in changed}
        is_copy = own.keys() <= theirs.keys()
    if not _is_import() and state.commands < _MOST_COMMANDS:
        state.commands += 1
        note("command", line=line_of_program(3), pid=pid, exported=exported, given=given, copy=is_copy)


def _is_import() -> bool:
    """Return whether a package does this while it is imported, such as TensorFlow, which asks for the processor."""
    frame = sys._getframe(3)
    while frame is not None and kind_of(frame.f_code.co_filename) != "program":
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


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
    state.counting = allocate_lock()
    state.busy = 0
    if stage in ("initialised", "listed"):
        reopened()
        state.is_unused_fork = True
        if state.context is not None:
            guarded(_watch_first_use, state.context)


def note_first_use() -> None:
    """Note where a forked process first asks for TensorFlow's devices: they are its parent's, and it may hang there."""
    if state.is_unused_fork:
        state.is_unused_fork = False
        note("used_after_fork", line=line_of_program(3))


def _watch_first_use(context) -> None:
    ask = context.ensure_initialized

    def ensure_initialized():
        del context.ensure_initialized
        note_first_use()
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


def keys_of_cluster() -> list:
    """Return the keys of TF_CONFIG; none if it is not set, or is no object of JSON."""
    import json

    try:
        return sorted(cut(key, 100) for key in json.loads(os.environ._data[b"TF_CONFIG"]))[:20]
    except (ValueError, KeyError, TypeError):
        return []


def task_of_cluster() -> str:
    """Return which worker this process is by TF_CONFIG, such as ``worker 1``; its addresses are not noted."""
    import json

    try:
        task = json.loads(os.environ.get("TF_CONFIG") or "{}").get("task") or {}
        return cut("%s %s" % (task["type"], task["index"]), 100) if task else ""
    except (ValueError, KeyError, TypeError, AttributeError):  # TensorFlow itself says what is wrong with it
        return ""
