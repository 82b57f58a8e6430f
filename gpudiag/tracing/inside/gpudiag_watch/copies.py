"""Counts the tensors that are copied from or to a GPU."""

from .lines import line_and_caller
from .notes import HEAD, new_slot, state


def count_copy(direction, tensor, depth=3) -> None:
    """Count a copy of a tensor from or to a GPU, and its bytes, by the line that made it."""
    if state.words is None:
        return
    line, direct = line_and_caller(depth)
    key = (direction, line, direct)
    slot = state.slots.get(key)
    if slot is None:
        slot = state.slots[key] = new_slot("copy", direction, "", "", line, "direct" if direct else "", words=2)
    if slot != HEAD:
        size = tensor.dtype.size * (tensor.shape.num_elements() or 0)  # first: another thread may count meanwhile
        state.words[slot] += 1
        state.words[slot + 1] += size
