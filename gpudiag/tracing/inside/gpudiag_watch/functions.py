"""Functions that are traced, and what Keras computes with."""

import os
import sys

from .lines import line_of_program
from .notes import MOST_CALLED, guarded, missing, new_slot, note, replace, state


def in_functions(module) -> None:
    """Note each function that was traced: which graph it has, and how often its Python was run for a new one."""
    cls = getattr(module, "AtomicFunction", None)
    if cls is None:
        missing("atomic_function.AtomicFunction", "how often functions were traced, and lines in functions")
        return
    from_graph = getattr(module, "from_func_graph", None)
    if from_graph is None:
        missing("atomic_function.from_func_graph", "which functions XLA compiles")
    else:

        def from_func_graph(name, graph, attrs, *positional, **named):
            compiled = (attrs or {}).get("_XlaMustCompile")
            state.compiled = bool(getattr(compiled, "b", compiled))
            try:
                return from_graph(name, graph, attrs, *positional, **named)
            finally:
                state.compiled = False

        replace(module, "from_func_graph", from_func_graph)
    begun = cls.__init__

    def init(self, *positional, **named):
        begun(self, *positional, **named)
        guarded(_traced, self)

    replace(cls, "__init__", init)


def _traced(function) -> None:
    import weakref

    graph = function._cached_graph
    if graph is None:
        return
    name = function.name.decode()
    if len(state.graphs) < MOST_CALLED:
        state.graphs[name] = weakref.ref(graph)
    if name.startswith("__inference_") and state.words is not None:
        key = ("traced", graph.name, line_of_program(4))
        slot = state.slots.get(key)
        if slot is None:
            slot = state.slots[key] = new_slot("traced", key[1], "", "", key[2], "xla" if state.compiled else "")
        state.words[slot] += 1


def in_keras(module) -> None:
    """Note with what Keras computes, if that is not TensorFlow."""
    backend = getattr(module, "_BACKEND", "tensorflow")
    if backend != "tensorflow":
        import atexit

        by_variable = backend == os.environ.get("KERAS_BACKEND")
        source = "KERAS_BACKEND" if by_variable else str(getattr(module, "_config_path", ""))
        note("keras", backend=str(backend), source=source, line=line_of_program(3))
        atexit.register(guarded, _note_device_of_keras, str(backend))


def _note_device_of_keras(backend) -> None:
    """Note on which device Keras has computed with another backend, as that says itself: asking starts nothing."""
    device = "cpu" if backend == "numpy" else ""
    if backend == "jax":
        started = getattr(sys.modules.get("jax._src.xla_bridge"), "_default_backend", None)
        device = getattr(started, "platform", "")
    elif backend == "torch":
        device = getattr(sys.modules.get("keras.src.backend.torch.core"), "DEFAULT_DEVICE", "")
    if device:
        note("keras_device", device=str(device))
