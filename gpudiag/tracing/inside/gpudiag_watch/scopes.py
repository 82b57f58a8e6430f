"""Scopes of devices and strategies: whether they were entered, and whether anything ran in them."""

import sys

from .lines import kind_of, line_of_program
from .notes import HEAD, guarded, missing, new_slot, note, replace, short_device, state

_MOST_SCOPES = 1000
_ASKING = frozenset(("device", "device_v2"))
"""Functions of TensorFlow through which a program makes a scope of a device."""
MADE, ENTERED, RAN, RAN_HERE = range(4)
"""Words of the counter of a line that makes device scopes: how many, how often one was entered, and how often something
ran before it was left, in this process and in the thread that entered it."""


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
            state.entered[id(self)] = _ran()

    def left(self, *error):
        before = state.entered.pop(id(self), None)
        if before is not None:
            slot = state.scopes.pop(id(self), None)
            if slot is not None and state.words is not None:
                after = _ran()
                state.words[slot + RAN] += before != after
                state.words[slot + RAN_HERE] += before[0] != after[0]
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
        slot = state.slots[key] = new_slot("scope", "", device_name, "", line, "", words=4)
    if slot != HEAD and len(state.scopes) < _MOST_SCOPES:
        state.words[slot + MADE] += 1
        state.scopes[id(scope)] = slot


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
        return run(self, fn, args, kwargs)

    replace(extended, "call_for_each_replica", call_for_each_replica)


def _strategy(strategy) -> None:
    if type(strategy).__name__.startswith("_Default"):
        return
    extended = strategy.extended
    devices = [short_device(str(device)) for device in extended.worker_devices][:256]
    slot = new_slot("strategy", type(strategy).__name__, "", "", "", "")
    state.strategies[id(extended)] = slot
    note(
        "strategy",
        what=type(strategy).__name__,
        devices=devices,
        replicas=strategy.num_replicas_in_sync,
        line=line_of_program(3),
        slot=slot,
    )
