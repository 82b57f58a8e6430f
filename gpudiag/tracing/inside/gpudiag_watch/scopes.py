"""Scopes of devices and strategies: whether they were entered, and whether anything ran in them."""

import sys
import time
from _thread import get_ident
from _weakref import ref

from .lines import kind_of, line_and_caller, line_of_program
from .notes import HEAD, guarded, like, missing, new_slot, note, replace, short_device, state

_MOST_SCOPES = 1000
_ASKING = frozenset(("device", "device_v2"))
"""Functions of TensorFlow through which a program makes a scope of a device."""
MADE, ENTERED, RAN, RAN_HERE, ELSEWHERE, VARIABLES, TENSORS = range(7)
"""Words of the counter of a line that makes device scopes: how many, how often one was entered, how often something
ran before it was left, in this process and in the thread that entered it, how many variables were made in it: on
GPUs in one for the CPU, and all others; and how many tensors of values of Python, for which no operation runs, or
errors with which it was left: what would have run there is not known."""
FORGOTTEN_AT, VARIABLES_OF = 1, 2
"""Words of the counter of a strategy: the time at which the program let go of it, and how many variables were made in
its scope; of variables that are made often the first sixteen alone are known."""
_MOST_LEAVES = 64
_MOST_LINES = 64
_DISTRIBUTED = frozenset(("DistributedIteratorBase", "DistributedIterator", "PerReplica"))
"""Classes of what a strategy gives each replica its own part of."""


def watch_device_scopes(context_module) -> None:
    cls = getattr(context_module, "_EagerDeviceContext", None)
    if cls is None:
        missing("context._EagerDeviceContext", "scopes of tf.device in which nothing ran")
        return
    begun, enter, leave = cls.__init__, cls.__enter__, cls.__exit__

    def init(self, ctx, device_name):
        begun(self, ctx, device_name)
        frame = sys._getframe(1)
        try:
            while frame.f_code.co_name in _ASKING and kind_of(frame.f_code.co_filename) == "tensorflow":
                frame = frame.f_back
            if device_name and kind_of(frame.f_code.co_filename) == "program":
                _count_scope(self, device_name, frame)
        except Exception:
            guarded(missing, "the frame of tf.device", "scopes of tf.device in which nothing ran")

    def entered(self):
        enter(self)
        slot = state.scopes.get(id(self))
        if slot is not None and state.words is not None:
            state.words[slot + ENTERED] += 1
            if not state.watches_constants:
                guarded(_watch_constants)
            state.entered[id(self)] = _ran(), get_ident(), slot, "CPU" in self._device_name.upper()

    def left(self, *error):
        before, _, slot, _ = state.entered.pop(id(self), (None, 0, HEAD, False))
        if before is not None and state.scopes.pop(id(self), None) is not None and state.words is not None:
            after = _ran()
            state.words[slot + RAN] += before != after
            state.words[slot + RAN_HERE] += before[0] != after[0]
            state.words[slot + TENSORS] += bool(error and error[0])
        leave(self, *error)

    replace(cls, "__init__", init)
    replace(cls, "__enter__", entered)
    replace(cls, "__exit__", left)


def _count_scope(scope, device_name, frame) -> None:
    """Count a scope of the program by the line that made it."""
    key = ("scope", device_name, frame.f_code, frame.f_lineno)
    slot = state.slots.get(key)
    if slot is None:
        if state.words is None or not isinstance(device_name, str):
            return
        line = "%s:%d" % (frame.f_code.co_filename, frame.f_lineno)
        slot = state.slots[key] = new_slot("scope", "", device_name, "", line, "", words=7)
    if slot != HEAD and len(state.scopes) < _MOST_SCOPES:
        state.words[slot + MADE] += 1
        state.scopes[id(scope)] = slot


def _watch_constants() -> None:
    """From the first device scope on, count the tensors that a program makes of Python values in such scopes."""
    module = sys.modules.get("tensorflow.python.framework.constant_op")
    make = getattr(module, "convert_to_eager_tensor", None)
    state.watches_constants = True
    if make is None:
        missing("constant_op.convert_to_eager_tensor", "tensors that are made in a scope of tf.device")
        return

    def convert_to_eager_tensor(*positional, **named):
        if state.entered and state.words is not None:
            slot, _ = innermost_scope()
            if slot != HEAD:
                state.words[slot + TENSORS] += 1
        return make(*positional, **named)

    replace(module, "convert_to_eager_tensor", like(make, convert_to_eager_tensor))


def innermost_scope():
    """Return the counter of the innermost device scope of the program in this thread, and whether it is for the CPU."""
    here = get_ident()
    own = ((slot, for_cpu) for _, thread, slot, for_cpu in reversed(list(state.entered.values())) if thread == here)
    return next(own, (HEAD, False))


def variable_made(device) -> None:
    """Count a variable by the scopes around it: of a device, where those for the CPU do not bind a strategy, and of a
    strategy; outside of all strategies by its line.
    """
    slot, is_for_cpu = innermost_scope() if state.entered else (HEAD, False)
    if slot != HEAD:
        if not is_for_cpu or "GPU" not in device:
            state.words[slot + VARIABLES] += 1
        elif state.strategies:
            state.words[slot + ELSEWHERE] += 1
    distribute = sys.modules.get("tensorflow.python.distribute.distribute_lib")
    if distribute is None:
        return
    slot = state.strategies.get(id(distribute.get_strategy().extended))
    if slot is None:
        line = line_of_program()
        slot = state.slots.get(("outside", line))
        if slot is None and state.lines_outside < _MOST_LINES:
            state.lines_outside += 1
            slot = state.slots["outside", line] = new_slot("outside", "", "", "", line, "")
        if slot is not None:
            state.words[slot] += 1
    elif slot != HEAD:
        state.words[slot + VARIABLES_OF] += 1


def _ran():
    """Return what is another after any operation of this process; the first after one of this thread.

    Of operations that run often on a device the first sixteen alone are known by their thread.
    """
    return getattr(state.local, "noted", 0), state.noted, state.flushed, len(state.recent)


def in_distribute(module) -> None:
    cls = getattr(module, "StrategyBase", None)
    if cls is None:
        missing("tensorflow.python.distribute.distribute_lib.StrategyBase", "strategies")
        return
    begun = cls.__init__

    def init(self, extended):
        begun(self, extended)
        guarded(_strategy, self)

    replace(cls, "__init__", init)
    extended = getattr(module, "StrategyExtendedV1", None)
    run = getattr(extended, "call_for_each_replica", None)
    if run is None:
        missing("distribute_lib.StrategyExtendedV1.call_for_each_replica", "whether a strategy ran anything")
        return

    def call_for_each_replica(self, fn, args=(), kwargs=None):
        slot = state.strategies.get(id(self))
        if slot is not None and state.words is not None:
            state.words[slot] += 1
            guarded(_given, self, slot, args, kwargs)
        return run(self, fn, args, kwargs)

    replace(extended, "call_for_each_replica", call_for_each_replica)


def _given(extended, slot, args, kwargs) -> None:
    """Note a line of the program that gives a strategy a tensor, and nothing that differs from replica to replica."""
    from tensorflow.python.util import nest, tf_stack

    if extended._num_replicas_in_sync < 2:
        return
    leaves = nest.flatten((args, kwargs or {}))[:_MOST_LEAVES]
    if any(cls.__name__ in _DISTRIBUTED for leaf in leaves for cls in type(leaf).__mro__):
        return
    shapes = [leaf.shape for leaf in leaves if hasattr(leaf, "shape") and hasattr(leaf, "dtype")]
    shape = next((shape for shape in shapes if len(shape) and shape[0] != 1), None)
    line, direct = line_and_caller(4)
    if shape is None or not direct or ("same", line) in state.slots:
        return
    state.slots["same", line] = 0
    called = [entry for entry in tf_stack.extract_stack() if kind_of(entry.filename) == "program"]
    own = "%s:%d" % (called[-1].filename, called[-1].lineno) if called else line
    note("same", slot=slot, line=own, called=line, shape=str(tuple(shape)))


def _forgotten(key, slot) -> None:
    """Note when the program let go of a strategy, in microseconds since the epoch."""
    state.strategies.pop(key, None)
    if state.words is not None and slot != HEAD:
        state.words[slot + FORGOTTEN_AT] = int(time.time() * 1e6)


def _strategy(strategy) -> None:
    if type(strategy).__name__.startswith("_Default"):
        return
    extended = strategy.extended
    devices = [short_device(str(device)) for device in extended.worker_devices][:256]
    slot = new_slot("strategy", type(strategy).__name__, "", "", "", "", words=3)
    state.strategies[id(extended)] = slot
    key = id(extended)
    state.alive[key] = ref(strategy, lambda _: _forgotten(key, slot))
    note(
        "strategy",
        what=type(strategy).__name__,
        devices=devices,
        replicas=strategy.num_replicas_in_sync,
        line=line_of_program(3),
        slot=slot,
    )
