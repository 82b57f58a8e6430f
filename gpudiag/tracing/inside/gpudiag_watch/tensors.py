"""Copies of single tensors between the host and a GPU, and what the program waits for."""

import time

from .copies import count_copy
from .lines import hide_our_frames, line_of_program
from .notes import HEAD, guarded, missing, new_slot, note, replace, state
from .operations import constant_in_host_memory
from .settings import PLAIN, in_ops

_MOST_STEPS = 64


def in_tensors(module) -> None:
    in_ops(module)
    cls = getattr(module, "_EagerTensorBase", None)
    read, copy = getattr(cls, "_numpy", None), getattr(cls, "_copy_nograd", None)
    if read is None or copy is None:
        missing("ops._EagerTensorBase._numpy and _copy_nograd", "copies of single tensors to the host")
        return

    def _numpy(self):
        try:
            value = read(self)
        except Exception:
            hide_our_frames()
            raise
        if "GPU" in (self.backing_device or ""):  # a GPU's integers may be kept on the host
            guarded(count_copy, "to host", self)
        return value

    def _copy_nograd(self, ctx=None, device_name=None):
        made = copy(self, ctx, device_name)
        before, after = "GPU" in (self.backing_device or ""), "GPU" in (made.backing_device or "")
        if before != after:
            guarded(count_copy, "to host" if before else "to device", made)
        return made

    replace(cls, "_numpy", _numpy)
    replace(cls, "_copy_nograd", _copy_nograd)


def in_constants(module) -> None:
    convert = getattr(module, "convert_to_eager_tensor", None)
    if convert is None:
        missing("constant_op.convert_to_eager_tensor", "copies of values of Python to a GPU")
        return

    def convert_to_eager_tensor(value, ctx, dtype=None):
        try:
            made = convert(value, ctx, dtype)
        except Exception:
            hide_our_frames()
            raise
        # TensorFlow keeps the single numbers that it has copied once.
        if type(value) not in PLAIN and made is not value:
            if "GPU" in made.backing_device:
                guarded(count_copy, "to device", made)
            elif "GPU" in made.device:
                guarded(constant_in_host_memory, made)
        return made

    replace(module, "convert_to_eager_tensor", convert_to_eager_tensor)


def in_iterators(module) -> None:
    cls = getattr(module, "OwnedIterator", None)
    following = getattr(cls, "_next_internal", None)
    if following is None:
        missing("iterator_ops.OwnedIterator._next_internal", "how long the program waited for tf.data")
        return

    def _next_internal(self):
        began, steps = time.monotonic(), 0
        try:
            element = following(self)
            steps = 1  # what raises is the end of the data
            return element
        finally:
            guarded(_waited, began, steps)

    replace(cls, "_next_internal", _next_internal)
    begun = cls.__init__

    def init(self, dataset=None, *positional, **named):
        begun(self, dataset, *positional, **named)
        guarded(_pipeline, dataset)

    replace(cls, "__init__", init)


def in_prefetching(module) -> None:
    cls = getattr(module, "_CopyToDeviceDataset", None)
    if cls is None:
        missing("prefetching_ops._CopyToDeviceDataset", "what follows tf.data.experimental.prefetch_to_device")
        return
    begun = cls.__init__

    def init(self, *positional, **named):
        self._gpudiag_line = line_of_program(2)
        begun(self, *positional, **named)

    replace(cls, "__init__", init)


def _pipeline(dataset) -> None:
    """Note what follows in a pipeline after its elements were copied to a GPU."""
    later: list = []
    while dataset is not None and len(later) < _MOST_STEPS:
        line, device = getattr(dataset, "_gpudiag_line", None), getattr(dataset, "_target_device", "")
        if line is not None:
            note("setting", what="prefetch_to_device", target=device, value=later, line=line, stage="", error="")
            return
        later.append(type(dataset).__name__.strip("_"))
        before = getattr(dataset, "_inputs", list)()
        dataset = before[0] if len(before) == 1 else None


def _waited(began, steps) -> None:
    if state.words is None:
        return
    key = ("waited", line_of_program(3))
    slot = state.slots.get(key)
    if slot is None:
        slot = state.slots[key] = new_slot("waited", "", "", "", key[1], "", words=2)
    if slot != HEAD:
        state.words[slot] += steps
        state.words[slot + 1] += int((time.monotonic() - began) * 1e6)
