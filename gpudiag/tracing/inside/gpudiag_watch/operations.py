"""Eager operations and functions: how often each ran, on which device, and the memory meanwhile."""

import time
from _thread import allocate_lock, get_ident

from .cards import free_bytes
from .copies import count_copy
from .graphs import look_at_function
from .kernels import PLUMBING, gpu_kernel
from .lines import line_and_caller, line_of_program
from .notes import (
    FREQUENT,
    HEAD,
    LAST_OP,
    LAST_OP_AT,
    NOTES,
    RAN,
    USED,
    fault,
    guarded,
    new_slot,
    note,
    reopened,
    short_device,
    state,
)
from .scopes import innermost_scope, variable_made

_BATCH = 16
"""Operations that are kept in Python before they are written to the file: to write each takes as long as all else that
is done for one. Of a process that is killed, or ends by os._exit, the last ones are missing, if they ran often."""
_EXACT = 16
"""Operations of one type that are written at once, with the time, before they are counted so."""
_LONGEST_WAIT_S = 1.0
"""The longest wait of a thread for another one that counts its operation."""
_LARGE_BYTES = 1 << 16
"""An operation on less takes as long as one of a single number, wherever it is computed."""
_MOST_MOVED = 1 << 16
_NOT_NUMBERS = ("resource", "variant", "string")
_SAMPLES = 128
"""Samples of the memory; whenever that many were taken, the time between two is doubled."""


def callback_of_thread():
    """Return the callback that TensorFlow calls after each eager operation of a thread; ``choose`` gets the device
    scope.

    The first lines are all that most operations cost, so they are written for speed: a row of bytes and dictionaries,
    which the processor has at hand. Only what :func:`_noted` has put into ``quick`` is found there. The key is in which
    memory the tensor is, because TensorFlow computes integers of "GPU:0" with kernels that keep them on the host.
    """
    here: dict = {}
    quick, recent, remember = state.quick, state.recent, state.recent.append

    def choose(asked):
        nonlocal here
        here = quick.setdefault(asked, {})

    def on_op(op, inputs, attrs, outputs, op_name=None, graph=None):
        if graph is None:
            try:
                remember(here[op][outputs[0].backing_device])
                if len(recent) < _BATCH:
                    return None
            except Exception:  # not met before, or its line is wanted
                any_operation(op, inputs, attrs, outputs)
                return None
            guarded(flush)
            return None
        return any_operation(op, inputs, attrs, outputs, op_name, graph)

    on_op.choose = choose
    return on_op


def any_operation(op, inputs, attrs, outputs, op_name=None, graph=None):
    """TensorFlow calls this after each eager operation and each function, and for each node that it adds to a graph.

    None means that nothing is changed; if there are other callbacks, the next one is given what this one returns.
    """
    if graph is not None:
        return outputs if len(state.context.op_callbacks) > 1 else None
    if _noted(op, inputs, attrs, outputs) and not state.busy:
        guarded(_tick)
    return None


def flush() -> None:
    """Write the frequent operations that ran to the file: one byte for each."""
    done = state.recent[:]
    del state.recent[: len(done)]  # another thread may have added some
    if not done or state.words is None:
        return
    state.flushed += 1
    if state.ran_at + len(done) > RAN:
        _count()
    at = state.ran_at
    state.ran_at = end = at + len(done)
    state.ran[at:end] = done
    state.words[LAST_OP] = state.frequent[done[-1]]
    _tick()


def _count() -> None:
    """Add the frequent operations that were written to their counters."""
    ran = bytes(state.ran)
    state.ran[:] = bytes(RAN)
    state.ran_at = 0
    for number in set(ran) - {0}:
        state.words[state.frequent[number]] += ran.count(number)


def _tick() -> None:
    now = time.time()
    state.words[LAST_OP_AT] = int(now * 1e6)
    if now >= state.sample_at:
        sample(now)


def _noted(op, inputs, attrs, outputs) -> int:
    """Count an operation that has no counter yet, or one for each line; return 0 if that is not possible."""
    thread = get_ident()
    if state.busy == thread or (state.words is None and not reopened()):
        return 0
    guarded(flush)
    counting = state.counting
    if not counting.acquire(timeout=_LONGEST_WAIT_S):  # an exception came in between, and it is held for ever
        state.counting = allocate_lock()
        return 0
    state.busy = thread
    state.noted += 1
    if state.local is not None:
        state.local.noted += 1
    try:
        device = outputs[0].device if outputs else inputs[0].device if inputs else ""
        memory = outputs[0].backing_device if outputs else ""
        asked = state.local.device_name if state.local is not None else None
        at_lines = state.kernels.get((op, device, memory, asked))
        if at_lines is not None:
            slot = _slot_at_line(op, device, asked, at_lines, inputs, outputs)
        else:
            key = (op, device, memory, asked)
            if _is_function(op):
                key += (line_of_program(2),)
            slot = state.slots.get(key) or _slot_of(key, inputs, attrs, outputs)
        state.words[slot] = number = state.words[slot] + 1
        state.words[LAST_OP] = slot
        if _is_function(op):
            return slot
        if op in ("VarHandleOp", b"VarHandleOp"):
            variable_made(device)
        if _count_moves(inputs, device):
            state.moving.add(slot)
        if number > _EXACT and at_lines is None and outputs and asked in state.quick and slot not in state.moving:
            _quicken(state.quick[asked].setdefault(op, {}), memory, slot)
        return slot
    except Exception as error:
        fault("an operation", error)
        return 0
    finally:
        state.busy = 0
        counting.release()


def _quicken(here, memory, slot) -> None:
    """Give a frequent operation a number; later ones of that kind are found here.

    None for one that runs both on the CPU and, with its tensors in host memory, on a GPU: these are
    looked at each time.
    """
    if memory in here:
        if here[memory] is not None and state.frequent[here[memory]] != slot:
            here[memory] = None
    elif slot != HEAD and state.next_frequent < FREQUENT:
        state.frequent[state.next_frequent] = slot
        here[memory] = state.next_frequent
        state.next_frequent += 1


def _slot_of(key, inputs, attrs, outputs):
    """Return the counter of an operation that was not met before on this device, in this scope; of a function, at this
    line.
    """
    op, device, memory, asked, *line = key
    if "GPU" in device and device not in state.used_gpus:
        state.used_gpus.add(device)
        state.sample_at = 0.0  # TensorFlow has just taken memory there
    text = op.decode() if isinstance(op, bytes) else op
    kernel = at_lines = ""
    if _is_function(text):
        is_new = key[:-1] not in state.slots
        state.slots[key] = state.slots[key[:-1]] = slot = new_slot(
            "function", text, short_device(device), short_device(asked or ""), *line, ""
        )
        if is_new:
            look_at_function(text, short_device(asked or ""))
        return slot
    if "GPU" in (asked or "") and "GPU" in device and short_device(asked) not in state.gpus:
        at_lines = "asked"  # there is no such GPU, and it ran on another
    elif "GPU" in device and "CPU" in memory and text not in PLUMBING and _is_plain(outputs[0]):
        kernel = "host"
        at_lines = kernel if _largest(inputs, outputs) >= _LARGE_BYTES else ""
    elif "CPU" in device and (state.gpus or "GPU" in (asked or "")):
        kernel = gpu_kernel(text, dict(zip(attrs[::2], attrs[1::2])))
        if kernel == "yes":
            at_lines = _why_on_cpu(inputs, asked)
        elif kernel != "plain" and "GPU" in (asked or ""):
            at_lines = kernel
    if at_lines:
        state.kernels[key] = at_lines
        return _slot_at_line(op, device, asked, at_lines, inputs, outputs)
    state.slots[key] = slot = new_slot("op", text, short_device(device), short_device(asked or ""), "", kernel)
    return slot


def _is_function(op) -> bool:
    return op.startswith("__" if isinstance(op, str) else b"__")


def _is_plain(tensor) -> bool:
    """Return whether a tensor holds numbers; strings and handles are in host memory on every device."""
    return tensor.dtype.name not in _NOT_NUMBERS


def _largest(inputs, outputs) -> int:
    """Return the bytes of the largest tensor of an operation."""
    return max(
        (
            tensor.dtype.size * (tensor.shape.num_elements() or 0)
            for tensor in (*inputs[:8], *outputs[:8])
            if _is_plain(tensor)
        ),
        default=0,
    )


def _slot_at_line(op, device, asked, why, inputs, outputs):
    """Return the counter of an operation at this line of the program; the word behind it is its largest tensor."""
    line, direct = line_and_caller(4)
    if why == "scope" and state.strategies and not innermost_scope()[1]:
        why = "strategy"
    slot = state.slots.get((op, device, asked, line, why))
    if slot is None:
        text = op.decode() if isinstance(op, bytes) else op
        more = (
            {"types": ", ".join(dict.fromkeys(tensor.dtype.name for tensor in inputs[:8]))}
            if why in ("type", "host")
            else {}
        )
        where = (short_device(device), short_device(asked or ""), line)
        slot = new_slot("op", text, *where, why, words=2, direct=direct, **more)
        state.slots[op, device, asked, line, why] = slot
    if slot != HEAD:
        state.words[slot + 1] = max(state.words[slot + 1], _largest(inputs, outputs))
    return slot


def constant_in_host_memory(tensor) -> None:
    """Count a constant that TensorFlow keeps in the computer's memory although its device is a GPU, if it is large."""
    if state.words is not None and _is_plain(tensor) and _largest((), (tensor,)) >= _LARGE_BYTES:
        asked = state.local.device_name if state.local is not None else None
        state.words[_slot_at_line("Const", tensor.device, asked, "host", (tensor,), ())] += 1


def _why_on_cpu(inputs, asked) -> str:
    """Return why an operation ran on the CPU that TensorFlow could have run on a GPU."""
    if "GPU" in (asked or ""):
        return "asked"
    if "CPU" in (asked or ""):
        return "scope"
    for tensor in inputs:
        if getattr(tensor, "dtype", None) is not None and tensor.dtype.name == "resource":
            return "variable"
    return "none"


def _count_moves(inputs, device) -> bool:
    """Count the inputs that TensorFlow had to copy to the GPU of an operation; return whether there were any.

    A tensor is copied once: TensorFlow keeps the copy beside it (MaybeCopyInputToExpectedDevice in execute.cc, 2.21).
    """
    if "GPU" not in device:
        return False
    moved = False
    for tensor in inputs[:16]:
        memory = tensor.backing_device
        if memory == device or not memory or tensor.dtype.name in _NOT_NUMBERS:
            continue
        if "GPU" not in memory and not tensor.dtype.is_floating and not tensor.dtype.is_complex:
            continue  # a shape or an index: the kernel wants it on the host
        key = (device, tensor._id)
        if key not in state.moved:
            if len(state.moved) >= _MOST_MOVED:
                state.moved.clear()
            state.moved.add(key)
            count_copy("between GPUs" if "GPU" in memory else "to device", tensor, 4)
            moved = True
    return moved


def sample(now: float = 0.0) -> None:
    """Note what TensorFlow's allocators hold on each GPU, and what each has free.

    With the time ``now``, more rarely the longer it runs.
    """
    if now:
        if state.samples >= _SAMPLES:
            state.samples //= 2
            state.sample_every *= 2
        state.samples += 1
        state.sample_at = now + state.sample_every
    full = state.words[USED] > NOTES // 2
    if not state.gpus or (full and now):
        return
    held = []
    if state.initialised:
        from tensorflow.python import pywrap_tfe

        for gpu in state.gpus[:64]:
            info = pywrap_tfe.TFE_GetMemoryInfo(state.context._context_handle, gpu)
            held.append((gpu, info["current"], info["peak"]))
    note("memory", held=held, free=free_bytes())
