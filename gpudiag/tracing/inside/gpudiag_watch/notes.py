"""The file for the notes of a process, and the counters in it.

Notes go to one file for each process, which is mapped into memory: so they outlive any death of the process, and no
file descriptor of the program can be mistaken for theirs. The room of the file is reserved before it is written to,
because a write to a mapped file on a full disk would kill the program: little when the file is made, which is enough
for a Python without TensorFlow, and all of it with the first counter.

Layout of a file: eight unsigned words of 8 bytes (:data:`HEAD`); :data:`SLOTS` counters of 8 bytes; of each of
:data:`FREQUENT` operations the counter, 2 bytes; :data:`RAN` bytes, each the number of such an operation that ran and
is not in its counter yet, or 0; then a line for each note, ``repr`` of a dictionary.
"""

import os
import sys
import time
from _thread import allocate_lock

FOLDER = "GPUDIAG_TRACE_FOLDER"
"""The variable that names the folder for the notes."""
HEAD = 8
USED, DROPPED, LAST_OP, LAST_OP_AT = range(4)
"""Words of the head: bytes of notes, notes that did not fit, the counter of the last operation, and when it ended (time
since the epoch, in microseconds)."""
SLOTS = 8192
FREQUENT = 256
RAN = 1024
NOTES = 1 << 19
FREQUENT_AT = 8 * (HEAD + SLOTS)
RAN_AT = FREQUENT_AT + 2 * FREQUENT
NOTES_AT = RAN_AT + RAN
SIZE = NOTES_AT + NOTES
_PAGE = 1 << 12
_FIRST_NOTES = 1 << 14
MOST_FILES = 1000
"""Processes that are watched; the later ones run without the watcher."""
LONGEST = 4096
"""Characters of a text in a note."""
_MOST_FAULTS = 20
MOST_CALLED = 10_000
_FIRST_S = 0.1


class State:
    """What the watcher knows; one for each process."""

    def __init__(self) -> None:
        self.kept = []
        self.recent = bytearray()
        self.quick = {}
        self.reset()

    def reset(self) -> None:
        """Forget all, for a new trace; what the callbacks of other threads hold stays the same object."""
        self.folder = ""
        self.path = ""
        self.room = 0
        self.words = None
        self.frequent = None
        self.ran = None
        self.lines = None
        self.faults = {}
        self.forget_counters()
        self.lock = allocate_lock()
        self.counting = allocate_lock()
        self.context = None
        self.local = None
        self.initialised = False
        self.watches_constants = False
        self.is_unused_fork = False
        self.gpus = ()
        self.own_devices = ""
        self.driver = None
        self.cards = 0
        self.used_gpus = set()
        self.limits = {}
        self.graphs = {}
        self.sessions = {}
        self.strategies = {}
        self.lines_outside = 0
        self.scopes = {}
        self.entered = {}
        self.alive = {}
        self.layers = {}
        self.configs = []
        self.given_configs = []
        self.made = {}
        self.put = set()
        self.reads = set()
        self.noted = self.flushed = self.commands = 0
        self.compiled = False
        self.looked_at = 0
        self.kernels = {}
        self.sample_at = 0.0
        self.sample_every = _FIRST_S
        self.samples = 0
        self.errors = 0
        self.last_error = ""
        self.walks = 0
        self.busy = 0
        self.forked = None

    def forget_counters(self) -> None:
        """Forget the counters of a file that this process does not write to any more."""
        self.slots = {}
        self.moving = set()
        self.moved = set()
        self.next_slot = HEAD + 1  # HEAD: whatever finds no counter
        self.next_frequent = 1
        self.ran_at = 0
        self.recent.clear()
        for here in self.quick.values():
            here.clear()


state = State()
ABSENT = object()
"""The value of an attribute that an owner does not have."""
undo: list = []
"""What :func:`stop` puts back: an owner, the name of an attribute and its value, the last first."""


def replace(owner, name, value) -> None:
    """Set an attribute until the trace ends; one that the owner does not have itself is removed then."""
    if name == "__class__":
        before = getattr(owner, name)
    elif name in owner.__dict__ or not hasattr(owner, name):
        before = owner.__dict__.get(name, ABSENT)
    else:
        before = getattr(owner, name)
    undo.append((owner, name, before))
    setattr(owner, name, value)


def like(original, watched):
    """Return ``watched`` under the name of the original, so that AutoGraph does not convert it."""
    for name in ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__", "__signature__"):
        if hasattr(original, name):
            setattr(watched, name, getattr(original, name))
    watched.__wrapped__ = original
    return watched


def open_file(folder: str) -> bool:
    """Make the file for the notes of this process; False if there is no room for it, or are files enough."""
    import mmap

    try:
        if len(os.listdir(folder)) >= MOST_FILES:
            return False
    except OSError:
        return False
    for number in range(1000):  # a process that executes another program makes a second file
        path = "%s/%d.%d" % (folder, os.getpid(), number)
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            break
        except FileExistsError:
            continue
        except OSError:
            return False
    else:
        return False
    try:
        os.ftruncate(file, SIZE)
        os.posix_fallocate(file, 0, _PAGE)
        os.posix_fallocate(file, NOTES_AT, _FIRST_NOTES)
        mapped = mmap.mmap(file, SIZE, trackfd=False) if sys.version_info >= (3, 13) else mmap.mmap(file, SIZE)
    except (OSError, ValueError):
        os.ftruncate(file, 0)  # its room is free again; the file goes with the folder
        return False
    finally:
        os.close(file)
    whole = memoryview(mapped)
    state.kept.append((mapped, whole))  # never closed: its descriptor may be another's by then
    state.words = whole[:FREQUENT_AT].cast("Q")
    state.frequent = whole[FREQUENT_AT:RAN_AT].cast("H")
    state.ran = whole[RAN_AT:NOTES_AT]
    state.lines = whole[NOTES_AT:]
    state.forget_counters()
    state.folder, state.path, state.room = folder, path, _FIRST_NOTES
    return True


def _has_room(number) -> bool:
    """Return whether so many bytes of notes fit into what is reserved of the file; all of it is, if they do not."""
    if number <= state.room:
        return True
    if number > NOTES:
        return False
    try:
        file = os.open(state.path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # the program outlives gpudiag
        return False
    try:
        os.posix_fallocate(file, 0, SIZE)
    except OSError:
        return False
    finally:
        os.close(file)
    state.room = NOTES
    return True


def note(kind: str, **fields: object) -> bool:
    """Write a note; if there is no room left it is counted, and False is returned."""
    if state.words is None and not reopened():
        return False
    fields["k"] = kind
    fields["t"] = round(time.time(), 3)
    line = (repr(fields) + "\n").encode("utf-8", "backslashreplace")
    if not state.lock.acquire(timeout=0.2):  # a handler of a signal came in between
        state.words[DROPPED] += 1
        return False
    try:
        at = state.words[USED]
        if not _has_room(at + len(line)):
            state.words[DROPPED] += 1
            return False
        state.lines[at : at + len(line)] = line
        state.words[USED] = at + len(line)
    finally:
        state.lock.release()
    return True


def reopened() -> bool:
    """Make the file of a forked process, when it has the first note; False if this is not one."""
    reopen, state.forked = state.forked, None
    return reopen is not None and reopen()


def cut(value: object, most: int = LONGEST) -> str:
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= most else text[:most] + "..."


def missing(name: str, costs: str) -> None:
    """Note that this TensorFlow has no such internal name, and what cannot be said because of it."""
    note("missing", name=name, costs=costs)


def note_once(kind: str, line: str, **fields: object) -> None:
    """Write a note of a line unless there is one of this kind."""
    if (kind, line) not in state.slots:
        state.slots[kind, line] = HEAD
        note(kind, line=line, **fields)


def guarded(function, *arguments) -> None:
    """Call a part of the watcher; a fault of it is noted and goes no further."""
    try:
        function(*arguments)
    except Exception as error:
        fault(function.__name__, error)


def fault(where, error) -> None:
    """Count what went wrong in the watcher itself; each kind is noted once."""
    key = (where, type(error))
    slot = state.faults.get(key)
    if slot is None and len(state.faults) < _MOST_FAULTS:
        text = cut("%s: %s" % (type(error).__name__, error), 300)
        try:
            slot = state.faults[key] = new_slot("fault", where, "", "", text, "")
        except RuntimeError:  # there is no file for notes
            return
    if slot is not None and state.words is not None:
        state.words[slot] += 1


def new_slot(kind, op, device, asked, line, kernel, words=1, **more):
    """Return the first word of a new counter; :data:`HEAD` is the one for all that there is no room for."""
    if state.words is None and not reopened():
        raise RuntimeError("there is no file for notes")
    if state.next_slot + words > HEAD + SLOTS or not _has_room(NOTES):
        return HEAD
    slot, state.next_slot = state.next_slot, state.next_slot + words
    written = note("counter", slot=slot, what=kind, op=op, device=device, asked=asked, line=line, kernel=kernel, **more)
    return slot if written else HEAD


def short_device(device: str) -> str:
    """Return ``GPU:0`` for a device of this process; other names as they are."""
    if state.own_devices and device.startswith(state.own_devices):
        return device[len(state.own_devices) :]
    for before in ("/job:localhost/replica:0/task:0/device:", "/device:"):
        if device.startswith(before):
            return device[len(before) :]
    return device
