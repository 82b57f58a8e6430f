"""What `gpudiag trace` runs inside a program: it notes what TensorFlow is asked for and what it does.

It imports nothing that the interpreter or TensorFlow has not imported, changes no result, starts no thread and keeps
memory bounded. Names of TensorFlow that are not public are looked up one by one: what is missing in another release
costs only what it was for, and is noted. So is what goes wrong in the watcher itself: it goes no further.

The modules import one another relative to this package, whose name no program uses for its own.
"""

import os
import sys

from .context import context_initialised, context_made
from .given import note_unused
from .hooks import HOOKS, Finder
from .lines import hide_our_frames
from .notes import ABSENT, FOLDER, guarded, open_file, state, undo
from .operations import flush, sample
from .processes import forked_in_child, forked_in_parent, note_process, watch_environment


def start_in_new_interpreter() -> None:
    """Watch this process, which `gpudiag trace` started, or a process of its program."""
    folder = os.environ.get(FOLDER)
    if folder and open_file(folder):
        _start()
        guarded(hide_our_frames)


def start_here(folder: str) -> bool:
    """Watch this process from now until :func:`stop`, whatever it has imported; False if there is no room for notes."""
    state.reset()
    if not open_file(folder):
        return False
    _start()
    for name, hook in HOOKS.items():
        module = sys.modules.get(name)
        if module is not None:
            guarded(hook, module)
    context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    if context is not None:
        guarded(context_made, context)
        if getattr(context, "_context_handle", None) is not None:
            guarded(_initialised_before, context)
    return True


def _initialised_before(context) -> None:
    context_initialised(context, is_new=False)


_registered_at_fork: list = []


def _start() -> None:
    note_process("started")
    watch_environment()
    if not _registered_at_fork:
        os.register_at_fork(after_in_parent=forked_in_parent, after_in_child=forked_in_child)
        _registered_at_fork.append(True)
    sys.meta_path.insert(0, Finder)


def stop() -> None:
    """Put back everything that was replaced; the notes stay as they are."""
    guarded(note_unused)
    guarded(flush)
    guarded(sample)
    if Finder in sys.meta_path:
        sys.meta_path.remove(Finder)
    for owner, name, value in reversed(undo):
        if value is ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, value)
    undo.clear()
    context = state.context
    if context is not None:
        context.__dict__.pop("ensure_initialized", None)
        callbacks = getattr(getattr(context, "_thread_local_data", None), "op_callbacks", None) or []
        if getattr(state.local, "on_op", None) in callbacks:
            callbacks.remove(state.local.on_op)
        disable = getattr(context, "disable_graph_collection", None)
        if disable is not None:
            disable()
    state.words = state.lines = None
