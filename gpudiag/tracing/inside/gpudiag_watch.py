"""What `gpudiag trace` runs inside a program: it notes what TensorFlow is asked for and what it does.

It imports nothing that the interpreter or TensorFlow has not imported, changes no result, starts no thread and keeps
memory bounded. Notes go to one file for each process, which is mapped into memory: so they outlive any death of the
process, no file descriptor of the program can be mistaken for theirs, and an operation costs an increment. The room of
the file is reserved when it is made, because a write to a mapped file on a full disk would kill the program.

Layout of a file: eight unsigned words of 8 bytes (:data:`HEAD`), :data:`SLOTS` counters of 8 bytes, then a line for
each note, ``repr`` of a dictionary. Names of TensorFlow that are not public are looked up one by one: what is missing
in another release costs only what it was for, and is noted.
"""

import os
import sys
import time
from _thread import _local, allocate_lock

FOLDER = "GPUDIAG_TRACE_FOLDER"
"""The variable that names the folder for the notes."""

HEAD = 8
USED, DROPPED, LAST_OP, LAST_OP_AT = range(4)
"""Words of the head: bytes of notes, notes that did not fit, the counter of the last operation, and when it ended (time
since the epoch, in microseconds)."""
SLOTS = 8192
NOTES = 1 << 19
SIZE = 8 * (HEAD + SLOTS) + NOTES

_LONGEST = 4096
"""Characters of a text in a note."""
_VARIABLES = ("TF_", "CUDA", "NVIDIA", "XLA_", "NCCL_", "KERAS_", "GPU_", "HOROVOD_", "OMPI_", "SLURM_", "LOCAL_")
"""What the names of environment variables begin with that concern GPUs; no other is noted."""
_HEAVY_BYTES = 1 << 20
_MOST_ERRORS = 20
_MOST_FAULTS = 20
_MOST_WALKS = 3
_MOST_NODES = 40
"""Lines of one function's operations on the CPU that are noted."""
_MOST_GRAPHS = 300
"""Graphs of functions that are looked at in a process."""
_MOST_CALLED = 10_000
_SAMPLES = 128
"""Samples of the memory; whenever that many were taken, the time between two is doubled."""
_FIRST_S = 0.05


class _State:
    """What the watcher knows; one for each process."""

    def __init__(self) -> None:
        self.kept = []
        self.recent = []
        self.quick = {}
        self.reset()

    def reset(self) -> None:
        """Forget all, for a new trace; what the callbacks of other threads hold stays the same object."""
        self.folder = ""
        self.words = None
        self.lines = None
        self.faults = {}
        self.forget_counters()
        self.lock = allocate_lock()
        self.context = None
        self.local = None
        self.initialised = False
        self.gpus = ()
        self.limits = {}
        self.graphs = {}
        self.sessions = {}
        self.compiled = False
        self.looked_at = 0
        self.kernels = {}
        self.sample_at = 0.0
        self.sample_every = _FIRST_S
        self.samples = 0
        self.errors = 0
        self.last_error = ""
        self.walks = 0
        self.busy = False
        self.forked = None

    def forget_counters(self) -> None:
        """Forget the counters of a file that this process does not write to any more."""
        self.slots = {}
        self.next_slot = HEAD + 1  # HEAD: whatever finds no counter
        self.recent.clear()
        for here in self.quick.values():
            here.clear()


_state = _State()
_undo: list = []
"""What :func:`stop` puts back: an owner, the name of an attribute and its value, the last first."""


def _replace(owner, name, value) -> None:
    before = getattr(owner, name) if name == "__class__" else owner.__dict__.get(name, getattr(owner, name))
    _undo.append((owner, name, before))
    setattr(owner, name, value)


_kinds: dict = {}  # file of code -> "ours", "tensorflow", "keras", "library" or "program"


# --- notes -----------------------------------------------------------------------------------------------------------


def _open(folder: str) -> bool:
    """Make the file for the notes of this process; False if there is no room for it."""
    import mmap

    state = _state
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
        os.posix_fallocate(file, 0, SIZE)
        mapped = mmap.mmap(file, SIZE, trackfd=False) if sys.version_info >= (3, 13) else mmap.mmap(file, SIZE)
    except (OSError, ValueError):
        os.unlink(path)
        return False
    finally:
        os.close(file)
    whole = memoryview(mapped)
    state.kept.append((mapped, whole))  # never closed: its descriptor may be another's by then
    state.words = whole[: 8 * (HEAD + SLOTS)].cast("Q")
    state.lines = whole[8 * (HEAD + SLOTS) :]
    state.forget_counters()
    state.folder = folder
    return True


def note(kind: str, **fields: object) -> bool:
    """Write a note; if there is no room left it is counted, and False is returned."""
    state = _state
    if state.words is None and not _reopened():
        return False
    fields["k"] = kind
    fields["t"] = round(time.time(), 3)
    line = (repr(fields) + "\n").encode("utf-8", "backslashreplace")
    if not state.lock.acquire(timeout=0.2):  # a handler of a signal came in between
        state.words[DROPPED] += 1
        return False
    try:
        at = state.words[USED]
        if at + len(line) > NOTES:
            state.words[DROPPED] += 1
            return False
        state.lines[at : at + len(line)] = line
        state.words[USED] = at + len(line)
    finally:
        state.lock.release()
    return True


def _reopened() -> bool:
    """Make the file of a forked process, when it has the first note; False if this is not one."""
    reopen, _state.forked = _state.forked, None
    return reopen is not None and reopen()


def _cut(value: object, most: int = _LONGEST) -> str:
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= most else text[:most] + "..."


def _missing(name: str, costs: str) -> None:
    """Note that this TensorFlow has no such internal name, and what cannot be said because of it."""
    note("missing", name=name, costs=costs)


# --- where in the program --------------------------------------------------------------------------------------------


def _kind(file: str) -> str:
    kind = _kinds.get(file)
    if kind is None:
        parts = file.replace("\\", "/").split("/")
        installed = "site-packages" in parts or "dist-packages" in parts
        if parts[-1].startswith("__autograph_generated_file"):
            kind = "tensorflow"  # a copy of a function of the program, whose own line is not known
        elif installed and ("keras" in parts or "tf_keras" in parts):
            kind = "keras"
        elif file == __file__ or parts[-1] in ("gpudiag_watch.py", "gpudiag_notebook.py"):
            kind = "ours"
        elif installed and "tensorflow" in parts:
            kind = "tensorflow"
        elif installed or file.startswith(("<frozen", _stdlib)) or "/gpudiag/tracing/" in file:
            kind = "library"
        else:
            kind = "program"
        if len(_kinds) < 10_000:
            _kinds[file] = kind
    return kind


_PLAIN = (bool, int, float)  # the program's Python may be older than unions of types
_stdlib = os.path.dirname(os.__file__) + "/"


def _line(depth: int = 2) -> str:
    """Return ``file:line`` of the innermost line of the program itself, or of a library that is not TensorFlow's."""
    frame = sys._getframe(depth)
    library = ""
    while frame is not None:
        file = frame.f_code.co_filename
        kind = _kinds.get(file) or _kind(file)
        if kind == "program":
            return "%s:%d" % (file, frame.f_lineno)
        if kind == "library" and not library and not file.startswith("<frozen"):
            library = "%s:%d" % (file, frame.f_lineno)
        frame = frame.f_back
    return library


# --- environment and processes ---------------------------------------------------------------------------------------


def _is_noted(name: str) -> bool:
    return name.upper().startswith(_VARIABLES)


def _value(name: str, value: str) -> str:
    return "(set)" if name == "TF_CONFIG" or not _is_noted(name) else _cut(value, 300)


def _environment() -> dict:
    return {name: _value(name, value) for name, value in os.environ.items() if _is_noted(name)}


def _process(how: str, **more: object) -> None:
    try:
        with open("/proc/self/cmdline", "rb") as file:
            command = file.read(_LONGEST).decode("utf-8", "backslashreplace").rstrip("\0").split("\0")
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
        variables=_environment(),
        **more,
    )


def _stage() -> str:
    """Return how far TensorFlow is: a setting may come too late for it."""
    if _state.initialised:
        return "initialised"
    if _state.context is not None and getattr(_state.context, "_physical_devices", None) is not None:
        return "listed"
    return "imported" if "tensorflow" in sys.modules else "before"


def _watch_environment() -> None:
    put, unset = os.putenv, os.unsetenv

    def putenv(name, value, /):
        put(name, value)
        _guarded(_variable, name, value)

    def unsetenv(name, /):
        unset(name)
        _guarded(_variable, name, None)

    _replace(os, "putenv", putenv)
    _replace(os, "unsetenv", unsetenv)


def _variable(name: object, value: object) -> None:
    name = os.fsdecode(name)
    if _is_noted(name):
        shown = None if value is None else _value(name, os.fsdecode(value))
        note("variable", name=name, value=shown, line=_line(3), stage=_stage())


def _forked_in_parent() -> None:
    if _state.words is not None and _stage() in ("initialised", "listed"):
        note("fork", line=_line(2), stage=_stage())


def _forked_in_child() -> None:
    state = _state
    if state.words is None and state.forked is None:
        return  # the watcher was stopped
    stage = _stage()
    state.forked = lambda: _open_after_fork(stage)
    state.words = state.lines = None
    state.forget_counters()
    state.lock = allocate_lock()
    state.busy = False
    if stage in ("initialised", "listed"):
        _reopened()
        _guarded(_watch_first_use, state.context)


def _watch_first_use(context) -> None:
    """Note when a forked process first asks for TensorFlow's devices: they are its parent's, and it may hang there."""
    ask = context.ensure_initialized

    def ensure_initialized():
        del context.ensure_initialized
        note("used_after_fork", line=_line(2))
        ask()

    context.ensure_initialized = ensure_initialized


def _open_after_fork(stage) -> bool:
    if not _open(_state.folder):
        return False
    _process("forked", stage=stage)
    if "tensorflow" in sys.modules:
        note("tensorflow", version=_version())
    return True


# --- settings --------------------------------------------------------------------------------------------------------


def _without_our_frames(kind, error, trace):
    """Print an exception that nobody caught as without the watcher: its own frames are taken out."""
    while trace is not None and _kind(trace.tb_frame.f_code.co_filename) == "ours":
        trace = trace.tb_next
    entry = trace
    while entry is not None:
        while entry.tb_next is not None and _kind(entry.tb_next.tb_frame.f_code.co_filename) == "ours":
            entry.tb_next = entry.tb_next.tb_next
        entry = entry.tb_next
    if error is not None:
        error.__traceback__ = trace
    sys.__excepthook__(kind, error, trace)


def _hide_our_frames() -> None:
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _without_our_frames


def _around(original, describe):
    """Return a function that calls ``original`` and notes what was asked for and how that went."""

    def watched(*positional, **named):
        stage = _stage()
        try:
            result = original(*positional, **named)
        except BaseException as error:
            _hide_our_frames()
            _guarded(_setting, describe, positional, named, stage, "%s: %s" % (type(error).__name__, error))
            raise
        _guarded(_setting, describe, positional, named, stage, "")
        return result

    for name in ("__name__", "__qualname__", "__doc__", "__module__", "__wrapped__"):
        try:
            setattr(watched, name, original if name == "__wrapped__" else getattr(original, name))
        except AttributeError:
            continue
    return watched


def _setting(describe, positional, named, stage, error) -> None:
    fields = describe(*positional, **named)
    if fields is not None:
        note("setting", stage=stage, error=_cut(error, 500), line=_line(3), **fields)


def _name(device: object) -> str:
    return getattr(device, "name", None) or _cut(repr(device), 100)


def _names(devices: object) -> list:
    several = list(devices) if hasattr(devices, "__iter__") else [devices]
    return [_name(device) for device in several[:64]]


def _visible(_, devices, device_type=None):
    return {"what": "visible_devices", "target": device_type or "", "value": _names(devices)}


def _growth(_, dev, enable):
    return {"what": "memory_growth", "target": _name(dev), "value": bool(enable)}


def _logical(_, dev, virtual_devices):
    limits = [getattr(one, "memory_limit", None) for one in virtual_devices]
    return {"what": "logical_devices", "target": _name(dev), "value": limits[:64]}


def _options(config: object) -> dict:
    """Return what a ConfigProto says of GPUs."""
    if config is None:
        return {}
    options = {}
    if config.device_count:
        options["device_count"] = dict(config.device_count)
    for name in ("allow_soft_placement", "log_device_placement"):
        if getattr(config, name):
            options[name] = True
    for field, value in config.gpu_options.ListFields():
        if field.name == "experimental":
            for inner, one in value.ListFields():
                options[inner.name] = _cut(one, 300) if not isinstance(one, _PLAIN) else one
                if inner.name == "virtual_devices":
                    options[inner.name] = [list(device.memory_limit_mb) for device in one]
        else:
            options[field.name] = value if isinstance(value, _PLAIN) else _cut(value, 300)
    return options


def _session(self, target="", graph=None, config=None):
    return {"what": "session", "target": "", "value": _options(config), "given": config is not None}


def _local_devices(session_config=None):
    return {"what": "list_local_devices", "target": "", "value": _options(session_config)}


def _eager(config=None, device_policy=None, execution_mode=None):
    return {"what": "enable_eager_execution", "target": "", "value": _options(config)} if config is not None else None


def _property(cls, name):
    whole = getattr(cls, name, None)
    if not isinstance(whole, property) or whole.fset is None:
        _missing("Context.%s" % name, "when %s was set" % name)
        return

    def describe(_, value):
        return {"what": name, "target": "", "value": value if isinstance(value, _PLAIN) else _cut(value, 100)}

    _replace(cls, name, property(whole.fget, _around(whole.fset, describe), whole.fdel, whole.__doc__))


def _method(owner, name, describe, costs):
    original = getattr(owner, name, None)
    if original is None:
        _missing("%s.%s" % (getattr(owner, "__name__", owner), name), costs)
    else:
        _replace(owner, name, _around(original, describe))


def _in_context(module) -> None:
    """Watch the eager context: every public function that sets something ends in one of its methods."""
    cls = getattr(module, "Context", None)
    if cls is None:
        _missing("tensorflow.python.eager.context.Context", "settings and operations")
        return
    _method(cls, "set_visible_devices", _visible, "settings of visible devices")
    _method(cls, "set_memory_growth", _growth, "settings of memory growth")
    _method(cls, "set_logical_device_configuration", _logical, "settings of logical devices")
    for name in ("soft_device_placement", "log_device_placement", "device_policy"):
        _property(cls, name)
    made, listed = getattr(cls, "_initialize_logical_devices", None), getattr(cls, "_initialize_physical_devices", None)
    if made is None:
        _missing("Context._initialize_logical_devices", "which devices TensorFlow made, and when")
    else:

        def devices(self):
            made(self)
            _guarded(_initialised, self)

        _replace(cls, "_initialize_logical_devices", devices)
    if listed is None:
        _missing("Context._initialize_physical_devices", "when the devices were listed first")
    else:

        def physical(self, reinitialize=False):
            first = self._physical_devices is None
            listed(self, reinitialize)
            if first:
                _guarded(_listed, self)

        _replace(cls, "_initialize_physical_devices", physical)
    ask = getattr(cls, "_set_device", None)
    if ask is not None:

        def _set_device(self, device_name, device_spec):
            ask(self, device_name, device_spec)
            if type(_state.local) is _Thread:
                _state.local.follow(device_name)

        _replace(cls, "_set_device", _set_device)
    for name in ("enable_run_metadata", "enable_graph_collection"):
        if hasattr(cls, name):
            _replace(cls, name, _leaving_graphs(getattr(cls, name)))
    begun = cls.__init__

    def init(self, *positional, **named):
        begun(self, *positional, **named)
        _guarded(_made, self)

    _replace(cls, "__init__", init)
    _watch_threads()


class _Thread(_local):
    """What is watched in each thread: the callback for its operations, and the device that it asks for with tf.device.

    That is followed here, because to read it from TensorFlow's own record costs each operation a microsecond.
    """

    def __init__(self, data) -> None:
        self.on_op, self._choose = _callback()
        self.follow(data.device_name)

    def follow(self, device_name) -> None:
        self.device_name = device_name
        self._choose(device_name)


def _leaving_graphs(original):
    """Return a method that leaves the graphs of functions to a program that collects them, as tf.summary.trace_on."""

    def enable(self):
        if _state.looked_at < _MOST_GRAPHS:
            _state.looked_at = _MOST_GRAPHS
            note("left", line=_line(2))
        original(self)

    return enable


def _guarded(function, *arguments) -> None:
    """Call a part of the watcher; a fault of it is noted and goes no further."""
    try:
        function(*arguments)
    except Exception as error:
        _fault(function.__name__, error)


def _fault(where, error) -> None:
    """Count what went wrong in the watcher itself; each kind is noted once."""
    state = _state
    key = (where, type(error))
    slot = state.faults.get(key)
    if slot is None and len(state.faults) < _MOST_FAULTS:
        text = _cut("%s: %s" % (type(error).__name__, error), 300)
        try:
            slot = state.faults[key] = _new_slot("fault", where, "", "", text, "")
        except RuntimeError:  # there is no file for notes
            return
    if slot is not None and state.words is not None:
        state.words[slot] += 1


def _made(context) -> None:
    """Watch the operations of a context that was just made, in this thread; it has no device yet."""
    import atexit

    from tensorflow.python.eager import execute

    if not _at_exit:
        _at_exit.append(atexit.register(_guarded, _flush))
    data = getattr(context, "_thread_local_data", None)
    _state.context, _state.local = context, _thread_of(data) if hasattr(context, "_set_device") else data
    with_callbacks = getattr(execute, "execute_with_callbacks", None)
    if with_callbacks is None:
        _missing("tensorflow.python.eager.execute.execute_with_callbacks", "where functions ran")
    else:
        _replace(execute, "execute", with_callbacks)
    _watch_thread(context)


_at_exit: list = []
_threads: list = []
"""TensorFlow's record of each thread, and ours; kept when a trace ends, because other threads keep their callbacks."""


def _thread_of(data):
    if data is None:
        return None
    if not _threads or _threads[0] is not data:
        _threads[:] = data, _Thread(data)
    _threads[1].follow(data.device_name)
    return _threads[1]


def _watch_thread(context) -> None:
    data = getattr(context, "_thread_local_data", None)
    callbacks = getattr(data, "op_callbacks", None)
    if callbacks is None:
        _missing("Context._thread_local_data.op_callbacks", "where operations ran")
        return
    on_op = _state.local.on_op if type(_state.local) is _Thread else _on_op
    if on_op not in callbacks:
        callbacks.append(on_op)


def _watch_threads() -> None:
    """Watch the operations of every thread that Python starts: TensorFlow keeps callbacks for each thread."""
    import threading

    original = getattr(threading.Thread, "_bootstrap_inner", None)
    if original is None:
        _missing("threading.Thread._bootstrap_inner", "operations of threads that the program starts")
        return

    def bootstrap(self):
        if _state.context is not None:
            _guarded(_watch_thread, _state.context)
        original(self)

    _replace(threading.Thread, "_bootstrap_inner", bootstrap)


def _listed(context) -> None:
    note("listed", line=_line(3), devices=[one.name for one in context._physical_devices][:64])


def _initialised(context) -> None:
    state = _state
    from tensorflow.python import pywrap_tfe
    from tensorflow.python.client import pywrap_tf_session

    state.context, state.initialised = context, True
    devices = []
    listed = pywrap_tfe.TFE_ContextListDevices(context._context_handle)
    try:
        for number in range(min(pywrap_tfe.TF_DeviceListCount(listed), 256)):
            name = pywrap_tfe.TF_DeviceListName(listed, number)
            devices.append((name, pywrap_tf_session.TF_DeviceListMemoryBytes(listed, number)))
    finally:
        pywrap_tfe.TF_DeleteDeviceList(listed)
    state.gpus = tuple(_short(name) for name, _ in devices if "device:GPU:" in name)
    details = []
    for device in context._physical_devices or ():
        if device.device_type == "GPU":
            found = context.get_device_details(device)
            details.append((device.name, found.get("device_name", "")))
    try:
        # The context's own method would wait for the lock that this thread holds.
        pywrap_tfe.TFE_ContextEnableGraphCollection(context._context_handle)
    except (AttributeError, TypeError):
        _missing("Context.enable_graph_collection", "where the operations of functions ran")
    note(
        "initialised",
        line=_line(3),
        devices=[(_short(name), limit) for name, limit in devices],
        options=_options(context.config),
        gpus=details[:64],
        variables=_environment(),
    )


def _short(device: str) -> str:
    """Return ``GPU:0`` for a device of this process; other names as they are."""
    for before in ("/job:localhost/replica:0/task:0/device:", "/device:"):
        if device.startswith(before):
            return device[len(before) :]
    return device


def _in_errors(module) -> None:
    """Note the errors of TensorFlow; some are raised by Python and some by C++, and all are made here."""
    cls = getattr(module, "OpError", None)
    if cls is None:
        _missing("tensorflow.python.framework.errors_impl.OpError", "errors, such as out of memory")
        return
    begun = cls.__init__

    def init(self, *positional, **named):
        begun(self, *positional, **named)
        if type(self).__name__ in _NOTED_ERRORS:
            _guarded(_failed, self)

    _replace(cls, "__init__", init)


_NOTED_ERRORS = frozenset(
    """
    AbortedError DataLossError FailedPreconditionError InternalError InvalidArgumentError ResourceExhaustedError
    UnavailableError UnimplementedError UnknownError
    """.split()
)
"""The others are often what a program expects: the end of a dataset, a file that is not there."""


def _failed(error) -> None:
    state = _state
    kind, message = type(error).__name__, error.message or ""
    if "[Op:" not in message and "{{" not in message:  # of no operation that ran: TensorFlow asks itself and catches
        return
    if message == state.last_error:  # a session makes it again, with more about the operation
        return
    state.last_error = message
    _flush()
    state.errors += 1
    if state.errors > _MOST_ERRORS:
        return
    note("error", error=kind, message=_cut(message, 2000), line=_line(3))
    if kind == "ResourceExhaustedError" and state.walks < _MOST_WALKS:
        state.walks += 1
        _sample()
        note("holders", holders=_holders(), limits=dict(state.limits))


def _holders() -> list:
    """Return the largest groups of tensors and variables that Python holds: name, device, bytes, number."""
    import gc

    from tensorflow.python.framework import ops
    from tensorflow.python.ops import resource_variable_ops

    eager = getattr(ops, "EagerTensor", None)
    variable = resource_variable_ops.BaseResourceVariable
    groups: dict = {}
    for one in gc.get_objects():
        kind = type(one)
        if kind is not eager and not issubclass(kind, variable):
            continue
        try:
            size = one.dtype.size * (one.shape.num_elements() or 0)
            if size < _HEAVY_BYTES:
                continue
            shape = "x".join(map(str, one.shape)) or "scalar"
            is_variable = kind is not eager
            name = "variable %s" % _cut(one.name, 100) if is_variable else "tensor"
            key = ("%s %s %s" % (name, one.dtype.name, shape), _short(one.device or ""))
        except Exception:  # noqa: S112  (a tensor that is half made)
            continue
        number, total = groups.get(key, (0, 0))
        groups[key] = (number + 1, total + size)
    largest = sorted(((total, number, *key) for key, (number, total) in groups.items()), reverse=True)[:8]
    return [
        {"what": what, "device": device, "bytes": total, "number": number} for total, number, what, device in largest
    ]


def _in_session(module) -> None:
    cls = getattr(module, "BaseSession", None)
    if cls is None:
        _missing("tensorflow.python.client.session.BaseSession", "options of sessions, and where their graphs ran")
        return
    _method(cls, "__init__", _session, "options of sessions")
    run = getattr(cls, "run", None)
    if run is None:
        _missing("BaseSession.run", "where the graphs of sessions ran")
        return

    def watched(self, fetches, feed_dict=None, options=None, run_metadata=None):
        try:
            slot = _state.sessions[_key_of_run(self, fetches)]
            _state.words[slot] += 1
            _state.words[LAST_OP] = slot
            first = None
        except Exception:
            first = _first_run(self, options)
        try:
            if first is None:
                return run(self, fetches, feed_dict, options, run_metadata)
            asked, filled = first
            result = run(self, fetches, feed_dict, asked, filled)
        except Exception:
            _hide_our_frames()
            raise
        wanted = options is not None and options.output_partition_graphs
        _guarded(_ran_in_session, self, fetches, filled, run_metadata, wanted)
        return result

    watched.__doc__ = run.__doc__
    _replace(cls, "run", watched)


def _key_of_run(session, fetches):
    """Return what one kind of run of a session has alone: its graph, and what it fetches."""
    return id(session.graph), _key_of(fetches)


def _key_of(fetches):
    if isinstance(fetches, dict):
        fetches = fetches.values()
    elif not isinstance(fetches, (list, tuple)):
        return fetches if isinstance(fetches, str) else id(fetches)
    return tuple(map(_key_of, fetches))


def _first_run(session, options):
    """Return options and metadata for a run whose graphs are wanted; None for one as it is."""
    state = _state
    if state.words is None or state.looked_at >= _MOST_GRAPHS or getattr(session, "_target", None):
        return None
    try:
        config = getattr(session, "_config", None)
        if config is not None and config.experimental.disable_output_partition_graphs:
            return None
        from tensorflow.core.protobuf import config_pb2

        asked = config_pb2.RunOptions()
        if options is not None:
            asked.CopyFrom(options)
        asked.output_partition_graphs = True
        return asked, config_pb2.RunMetadata()
    except Exception:  # options of another type: TensorFlow itself says what is wrong with them
        return None


def _ran_in_session(session, fetches, filled, metadata, wanted) -> None:
    """Note where the operations of a first run were placed, and give the program what it asked for itself."""
    state = _state
    graphs = list(filled.partition_graphs)
    if metadata is not None:
        if not wanted:
            filled.ClearField("partition_graphs")
        metadata.CopyFrom(filled)
    state.looked_at += 1
    if not state.gpus:
        devices = [(_short(one.name), one.memory_limit_bytes) for one in session.list_devices()][:256]
        state.gpus = tuple(name for name, _ in devices if name.startswith("GPU"))
        note("session_devices", devices=devices, options=_options(session._config), variables=_environment())
    line = _line(3)
    name = "Session.run(%s)" % _cut(_fetched(fetches), 60)
    slot = _new_slot("session", name, "", "", line, "")
    state.words[slot] += 1
    state.words[LAST_OP] = slot
    key = _key_of_run(session, fetches)
    if len(state.sessions) < _MOST_CALLED:
        state.sessions[key] = slot
    graph = session.graph

    def operation_of(node):
        try:
            return graph.get_operation_by_name(node)
        except Exception:
            return None

    def asked_of(node):
        operation = operation_of(node)
        return operation.device if operation is not None else ""

    _note_graphs(name, len(state.sessions), graphs, asked_of, operation_of)


def _fetched(fetches) -> str:
    if isinstance(fetches, dict):
        fetches = list(fetches.values())
    if isinstance(fetches, (list, tuple)):
        return ", ".join(_fetched(one) for one in fetches[:8])
    return str(getattr(fetches, "name", fetches)).partition(":")[0]


def _in_device_lib(module) -> None:
    _method(module, "list_local_devices", _local_devices, "devices made by device_lib.list_local_devices")


def _in_ops(module) -> None:
    _method(module, "enable_eager_execution", _eager, "options of enable_eager_execution")


def _in_tensors(module) -> None:
    _in_ops(module)
    cls = getattr(module, "_EagerTensorBase", None)
    read, copy = getattr(cls, "_numpy", None), getattr(cls, "_copy_nograd", None)
    if read is None or copy is None:
        _missing("ops._EagerTensorBase._numpy and _copy_nograd", "copies of single tensors to the host")
        return

    def _numpy(self):
        try:
            value = read(self)
        except Exception:
            _hide_our_frames()
            raise
        if "GPU" in (self.backing_device or ""):  # a GPU's integers may be kept on the host
            _guarded(_copied, "to host", self)
        return value

    def _copy_nograd(self, ctx=None, device_name=None):
        made = copy(self, ctx, device_name)
        before, after = "GPU" in (self.backing_device or ""), "GPU" in (made.backing_device or "")
        if before != after:
            _guarded(_copied, "to host" if before else "to device", made)
        return made

    _replace(cls, "_numpy", _numpy)
    _replace(cls, "_copy_nograd", _copy_nograd)


def _in_constants(module) -> None:
    convert = getattr(module, "convert_to_eager_tensor", None)
    if convert is None:
        _missing("constant_op.convert_to_eager_tensor", "copies of values of Python to a GPU")
        return

    def convert_to_eager_tensor(value, ctx, dtype=None):
        try:
            made = convert(value, ctx, dtype)
        except Exception:
            _hide_our_frames()
            raise
        # TensorFlow keeps the single numbers that it has copied once.
        if type(value) not in _PLAIN and made is not value and "GPU" in made.backing_device:
            _guarded(_copied, "to device", made)
        return made

    _replace(module, "convert_to_eager_tensor", convert_to_eager_tensor)


def _copied(direction, tensor) -> None:
    """Count a copy of a tensor between the host and a GPU, and its bytes, by the line that made it."""
    state = _state
    if state.words is None:
        return
    line, direct = _line_and_caller(3)
    key = (direction, line, direct)
    slot = state.slots.get(key)
    if slot is None:
        slot = state.slots[key] = _new_slot("copy", direction, "", "", line, "direct" if direct else "", words=2)
    if slot != HEAD:
        state.words[slot] += 1
        state.words[slot + 1] += tensor.dtype.size * (tensor.shape.num_elements() or 0)


def _line_and_caller(depth):
    """Return the line of the program, and whether it is what called TensorFlow: not Keras or another library."""
    frame = sys._getframe(depth)
    direct = True
    while frame is not None:
        file = frame.f_code.co_filename
        kind = _kinds.get(file) or _kind(file)
        if kind == "program":
            return "%s:%d" % (file, frame.f_lineno), direct
        direct = direct and kind in ("tensorflow", "ours")
        frame = frame.f_back
    return "", False


def _in_iterators(module) -> None:
    cls = getattr(module, "OwnedIterator", None)
    following = getattr(cls, "_next_internal", None)
    if following is None:
        _missing("iterator_ops.OwnedIterator._next_internal", "how long the program waited for tf.data")
        return

    def _next_internal(self):
        began = time.monotonic()
        try:
            return following(self)
        finally:
            _guarded(_waited, began)

    _replace(cls, "_next_internal", _next_internal)


def _waited(began) -> None:
    state = _state
    if state.words is None:
        return
    key = ("waited", _line(3))
    slot = state.slots.get(key)
    if slot is None:
        slot = state.slots[key] = _new_slot("waited", "", "", "", key[1], "", words=2)
    if slot != HEAD:
        state.words[slot] += 1
        state.words[slot + 1] += int((time.monotonic() - began) * 1e6)


def _in_eager_run(module) -> None:
    _method(module, "run_functions_eagerly", _eagerly, "whether functions run eagerly")


def _eagerly(run_eagerly):
    return {"what": "run_functions_eagerly", "target": "", "value": bool(run_eagerly)}


def _in_distribute(module) -> None:
    cls = getattr(module, "StrategyBase", None)
    if cls is None:
        _missing("tensorflow.python.distribute.distribute_lib.StrategyBase", "strategies")
        return
    begun = cls.__init__

    def init(self, extended):
        begun(self, extended)
        _guarded(_strategy, self)

    _replace(cls, "__init__", init)


def _strategy(strategy) -> None:
    if type(strategy).__name__.startswith("_Default"):
        return
    extended = strategy.extended
    devices = [_short(str(one)) for one in extended.worker_devices][:256]
    note(
        "strategy", what=type(strategy).__name__, devices=devices, replicas=strategy.num_replicas_in_sync, line=_line(3)
    )


def _in_functions(module) -> None:
    """Note each function that was traced: which graph it has, and how often its Python was run for a new one."""
    cls = getattr(module, "AtomicFunction", None)
    if cls is None:
        _missing("atomic_function.AtomicFunction", "how often functions were traced, and lines in functions")
        return
    from_graph = getattr(module, "from_func_graph", None)
    if from_graph is None:
        _missing("atomic_function.from_func_graph", "which functions XLA compiles")
    else:

        def from_func_graph(name, graph, attrs, *positional, **named):
            compiled = (attrs or {}).get("_XlaMustCompile")
            _state.compiled = bool(getattr(compiled, "b", compiled))
            try:
                return from_graph(name, graph, attrs, *positional, **named)
            finally:
                _state.compiled = False

        _replace(module, "from_func_graph", from_func_graph)
    begun = cls.__init__

    def init(self, *positional, **named):
        begun(self, *positional, **named)
        _guarded(_traced, self)

    _replace(cls, "__init__", init)


def _traced(function) -> None:
    import weakref

    graph = function._cached_graph
    if graph is None:
        return
    state = _state
    name = function.name.decode()
    if len(state.graphs) < _MOST_CALLED:
        state.graphs[name] = weakref.ref(graph)
    if name.startswith("__inference_") and state.words is not None:
        key = ("traced", graph.name, _line(4))
        slot = state.slots.get(key)
        if slot is None:
            slot = state.slots[key] = _new_slot("traced", key[1], "", "", key[2], "xla" if state.compiled else "")
        state.words[slot] += 1


def _in_tensorflow(module) -> None:
    note("tensorflow", version=_version(), variables=_environment())
    for name in ("config", "config.experimental", "config.threading", "debugging"):
        inner = module
        for part in name.split("."):
            inner = getattr(inner, part, None)
        if type(inner) is _Module:
            _replace(inner, "__class__", _Watched)
            _watched[id(inner)] = "tf.%s" % name


_Module = type(sys)
_watched: dict = {}


class _Watched(_Module):
    """A module whose functions somebody may replace by mistake: ``tf.config.set_soft_device_placement = False``."""

    def __setattr__(self, name, value):
        before = self.__dict__.get(name)
        super().__setattr__(name, value)
        if callable(before) and not callable(value):
            called = "%s.%s" % (_watched.get(id(self), self.__name__), name)
            note(
                "setting",
                what="assigned",
                target=called,
                value=_cut(repr(value), 100),
                line=_line(2),
                stage=_stage(),
                error="",
            )


def _version() -> str:
    return str(getattr(sys.modules.get("tensorflow"), "__version__", ""))


_HOOKS = {
    "tensorflow": _in_tensorflow,
    "tensorflow.python.eager.context": _in_context,
    "tensorflow.python.framework.errors_impl": _in_errors,
    "tensorflow.python.client.session": _in_session,
    "tensorflow.python.client.device_lib": _in_device_lib,
    "tensorflow.python.framework.ops": _in_tensors,
    "tensorflow.python.framework.constant_op": _in_constants,
    "tensorflow.python.data.ops.iterator_ops": _in_iterators,
    "tensorflow.python.eager.polymorphic_function.eager_function_run": _in_eager_run,
    "tensorflow.python.distribute.distribute_lib": _in_distribute,
    "tensorflow.python.eager.polymorphic_function.atomic_function": _in_functions,
}


class _Finder:
    """Runs a hook after one of TensorFlow's modules was loaded."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        hook = _HOOKS.get(name)
        if hook is None:
            return None
        for finder in sys.meta_path:
            if finder is _Finder or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                break
        else:
            return None
        load = getattr(spec.loader, "exec_module", None)
        if load is not None:

            def exec_module(module):
                load(module)
                _guarded(hook, sys.modules.get(name, module))

            try:
                spec.loader.exec_module = exec_module
            except AttributeError:
                _missing("the loader of %s" % name, "what this module does")
        return spec


# --- operations ------------------------------------------------------------------------------------------------------


_BATCH = 16
"""Operations that are counted in Python before they are written to the file: to write each would double what an operation
costs. Of a process that is killed the last ones may be missing."""
_EXACT = 16
"""Operations of one type that are written at once, with the time, before they are counted so."""


def _callback():
    """Return what TensorFlow calls after each eager operation of a thread, and what says which device it asks for.

    The first lines are all that most operations cost, so they are written for speed: a list and dictionaries, which
    the processor has at hand. Only what :func:`_noted` has put into ``quick`` is found there.
    """
    here: dict = {}
    quick, recent, remember = _state.quick, _state.recent, _state.recent.append

    def choose(asked):
        nonlocal here
        here = quick.setdefault(asked, {})

    def on_op(op, inputs, attrs, outputs, op_name=None, graph=None):
        if graph is None:
            try:
                remember(here[op][outputs[0].device])
                if len(recent) < _BATCH:
                    return None
            except Exception:  # not met before, or its line is wanted
                _on_op(op, inputs, attrs, outputs)
                return None
            _guarded(_flush)
            return None
        return _on_op(op, inputs, attrs, outputs, op_name, graph)

    return on_op, choose


def _on_op(op, inputs, attrs, outputs, op_name=None, graph=None):
    """TensorFlow calls this after each eager operation and each function, and for each node that it adds to a graph.

    None means that nothing is changed; if there are other callbacks, the next one is given what this one returns.
    """
    state = _state
    if graph is not None:
        return outputs if len(state.context.op_callbacks) > 1 else None
    if _noted(op, inputs, attrs, outputs) and not state.busy:
        _guarded(_tick)
    return None


def _flush() -> None:
    """Write the operations that were counted in Python to the file."""
    state = _state
    done = state.recent[:]
    del state.recent[: len(done)]  # another thread may have added some
    if done and state.words is not None:
        for slot in done:
            state.words[slot] += 1
        state.words[LAST_OP] = done[-1]
        _tick()


def _tick() -> None:
    now = time.time()
    _state.words[LAST_OP_AT] = int(now * 1e6)
    if now >= _state.sample_at:
        _sample(now)


def _noted(op, inputs, attrs, outputs) -> int:
    """Count an operation that has no counter yet, or one for each line; return 0 if that is not possible."""
    state = _state
    if state.busy or (state.words is None and not _reopened()):
        return 0
    _flush()
    state.busy = True
    try:
        device = outputs[0].device if outputs else inputs[0].device if inputs else ""
        asked = state.local.device_name
        why = state.kernels.get((op, device, asked))
        if why is not None:
            slot = _slot_at_line(op, device, asked, why)
        elif not outputs and (op, device, asked, "") in state.slots:
            slot = state.slots[op, device, asked, ""]
        else:
            slot = state.slots.get((op, device, asked)) or _slot_of(op, inputs, attrs, device, asked, bool(outputs))
        state.words[slot] = number = state.words[slot] + 1
        state.words[LAST_OP] = slot
        if number > _EXACT and why is None and outputs and asked in state.quick and not _is_function(op):
            state.quick[asked].setdefault(op, {})[device] = slot
        return slot
    except Exception as error:
        _fault("an operation", error)
        return 0
    finally:
        state.busy = False


def _slot_of(op, inputs, attrs, device, asked, has_outputs):
    """Return the counter of an operation that was not met before on this device, in this scope."""
    state = _state
    text = op.decode() if isinstance(op, bytes) else op
    why = None
    if _is_function(text):
        slot = _new_slot("function", text, _short(device), _short(asked or ""), _line(3), "")
        _function(text)
    else:
        kernel = ""
        if "GPU" in (asked or "") and "GPU" in device and _short(asked) != _short(device):
            why = "asked"  # there is no such GPU, and it ran on another
        elif "CPU" in device and (state.gpus or "GPU" in (asked or "")):
            kernel = _gpu_kernel(text, dict(zip(attrs[::2], attrs[1::2])))
            why = _why_on_cpu(inputs, asked) if kernel == "yes" else None
        if why is not None:
            state.kernels[op, device, asked] = why
            return _slot_at_line(op, device, asked, why)
        slot = _new_slot("op", text, _short(device), _short(asked or ""), "", kernel)
    state.slots[(op, device, asked) if has_outputs else (op, device, asked, "")] = slot
    return slot


def _is_function(op) -> bool:
    return op.startswith("__" if isinstance(op, str) else b"__")


def _slot_at_line(op, device, asked, why):
    """Return the counter of an operation at this line of the program."""
    state = _state
    line = _line(4)
    slot = state.slots.get((op, device, asked, line))
    if slot is None:
        text = op.decode() if isinstance(op, bytes) else op
        slot = _new_slot("op", text, _short(device), _short(asked or ""), line, why)
        state.slots[op, device, asked, line] = slot
    return slot


def _new_slot(kind, op, device, asked, line, kernel, words=1):
    """Return the first word of a new counter; :data:`HEAD` is the one for all that there is no room for."""
    state = _state
    if state.words is None and not _reopened():
        raise RuntimeError("there is no file for notes")
    if state.next_slot + words > HEAD + SLOTS:
        return HEAD
    slot, state.next_slot = state.next_slot, state.next_slot + words
    written = note("counter", slot=slot, what=kind, op=op, device=device, asked=asked, line=line, kernel=kernel)
    return slot if written else HEAD


def _why_on_cpu(inputs, asked) -> str:
    """Return why an operation ran on the CPU that TensorFlow could have run on a GPU."""
    if "GPU" in (asked or ""):
        return "asked"
    if "CPU" in (asked or ""):
        return "scope"
    for one in inputs:
        if getattr(one, "dtype", None) is not None and one.dtype.name == "resource":
            return "variable"
    return "none"


_PLUMBING = frozenset(
    """
    Assert AssignVariableOp Const DestroyResourceOp Enter Exit Identity IdentityN If LoopCond Merge
    MergeV2Checkpoints NextIteration NoOp PartitionedCall Placeholder Range Rank ReadVariableOp RestoreV2 SaveV2
    Shape ShapeN Size StatefulPartitionedCall StatelessIf StatelessWhile StopGradient Switch VarHandleOp
    VarIsInitializedOp While _Arg _DeviceArg _DeviceRetval _EagerConst _HostRecv _HostSend _Recv _Retval _Send
    """.split()
)
"""Operations that compute nothing, or that belong on the host."""
_REAL = frozenset((1, 2, 8, 14, 18, 19))
"""Numbers of the types float32, float64, complex64, bfloat16, complex128 and float16: with others TensorFlow's kernels
for the GPU keep their data on the host."""


def _gpu_kernel(op, attributes) -> str:
    """Return ``yes`` if the registry has a kernel for the GPU for these types, else why not: ``op`` or ``type``.

    Operations without data in floating point, and those that only pass data on, are not asked for: "plain".
    """
    if op in _PLUMBING:
        return "plain"
    types = {}
    for name, value in attributes.items():
        number = getattr(value, "type", value) if not isinstance(value, bool) else None  # AttrValue or a number
        number = getattr(number, "as_datatype_enum", number)
        if isinstance(number, int):
            types[name] = number
    for_gpu = [constraints for device, constraints in _kernels(op) if device == "GPU"]
    if not for_gpu:
        return "cpu only"
    fits = [
        constraints
        for constraints in for_gpu
        if all(types.get(name) in allowed for name, allowed in constraints.items() if name in types)
    ]
    if not fits:
        return "type"
    floating = [types[name] in _REAL for name in ("T", "dtype", "Tin", "SrcT", "U") if name in types]
    return "yes" if any(floating) else "plain"


_registry: dict = {}


def _kernels(op) -> list:
    """Return the device and the constraints of types of each kernel that is registered for ``op``."""
    found = _registry.get(op)
    if found is None:
        from tensorflow.python.framework import kernels

        found = _registry[op] = [
            (kernel.device_type, {one.name: frozenset(one.allowed_values.list.type) for one in kernel.constraint})
            for kernel in kernels.get_registered_kernels_for_op(op).kernel
        ]
    return found


def _function(name: str) -> None:
    """Note where the operations of the functions ran whose graphs TensorFlow has collected since the last time."""
    state = _state
    if state.looked_at >= _MOST_GRAPHS:
        return
    state.looked_at += 1
    if state.looked_at == _MOST_GRAPHS:
        state.context.disable_graph_collection()
        note("enough", what="functions", number=_MOST_GRAPHS)
    metadata = state.context.export_run_metadata()
    for number, graphs in enumerate(metadata.function_graphs[:64]):
        asked = {node.name: node.device for node in graphs.pre_optimization_graph.node if node.device}
        _note_graphs(
            name,
            number,
            graphs.partition_graphs,
            lambda node, asked=asked: asked.get(node, ""),
            lambda node: _operation(name, node),
        )


def _note_graphs(name, number, graphs, asked_of, operation_of) -> None:
    """Note the devices of graphs as they ran, the operations on the CPU, the copies and the clusters of XLA in them.

    ``asked_of`` returns the device that a node asked for, ``operation_of`` the operation that it was made from.
    """
    state = _state
    counts: dict = {}
    blamed: dict = {}
    sends: dict = {}
    receives = []
    clusters = 0
    left = {}
    for graph in graphs:
        for node in graph.node:
            device = _short(node.device)
            counts[device] = counts.get(device, 0) + 1
            if node.op in ("_Send", "_HostSend"):
                sends[node.attr["tensor_name"].s] = node.op == "_HostSend" or "GPU" not in device
            elif node.op in ("_Recv", "_HostRecv"):
                receives.append((node, node.op == "_HostRecv" or "GPU" not in device))
            elif node.op == "_XlaCompile":
                clusters += 1
            elif "GPU" in device or not state.gpus:
                left[node.op.removeprefix("_Mkl")] = left.get(node.op.removeprefix("_Mkl"), 0) + 1
            asked = asked_of(node.name)
            if ("CPU" in device and (state.gpus or "GPU" in asked)) or _on_another_gpu(asked, device):
                op = node.op.removeprefix("_Mkl")
                kernel = _gpu_kernel(op, node.attr)
                if kernel != "plain":
                    line = _line_of(operation_of(node.name))
                    key = (op, device, asked, kernel, line)
                    blamed[key] = blamed.get(key, 0) + 1
    if not counts:
        return
    copies = {"to host": [0, 0, 0], "to device": [0, 0, 0]}
    for node, to_host in receives:
        from_host = sends.get(node.attr["tensor_name"].s)
        if from_host is None or from_host == to_host:
            continue
        size = _bytes_of(node, operation_of)
        total = copies["to host" if to_host else "to device"]
        total[0] += 1
        total[1] += size or 0
        total[2] += size is None
    jit = _wants_clusters()
    note(
        "graph",
        function=name,
        number=number,
        devices=counts,
        copies=copies,
        clusters=clusters if clusters or jit else None,
        outside=_outside(left) if jit else {},
        cpu=[(*key, times) for key, times in list(blamed.items())[:_MOST_NODES]],
        cut=max(0, len(blamed) - _MOST_NODES),
    )


def _on_another_gpu(asked, device) -> bool:
    """Return whether a certain GPU was asked for, and this is another one."""
    number = asked.rpartition(":GPU:")[2]
    return number.isdecimal() and ":GPU:" in asked and "GPU:" in device and device.rpartition(":")[2] != number


def _bytes_of(node, operation_of):
    """Return the size of the tensor that a node receives; None if its shape is not known before it runs."""
    name = node.attr["tensor_name"].s.decode()  # edge_12_block/MatMul: the node that made it
    operation = operation_of(name.split("_", 2)[2]) if name.startswith("edge_") else None
    for output in operation.outputs if operation is not None else ():
        if output.dtype.as_datatype_enum == node.attr["tensor_type"].type:
            number = output.shape.num_elements()
            return None if number is None else number * output.dtype.size
    return None


def _wants_clusters() -> bool:
    """Return whether TensorFlow was asked to form clusters for XLA by itself."""
    if "tf_xla_auto_jit" in os.environ.get("TF_XLA_FLAGS", ""):
        return True
    return bool(getattr(_state.context, "_optimizer_jit", None))  # None before there is a context


def _outside(ops) -> dict:
    """Return the types of operation that are in no cluster: whether XLA has a kernel for them."""
    device = "XLA_GPU_JIT" if _state.gpus else "XLA_CPU_JIT"
    found = {}
    for op, _ in sorted(ops.items(), key=lambda item: -item[1]):
        if op not in _PLUMBING and not op.startswith(("_", "Xla")) and len(found) < _MOST_NODES:
            found[op] = any(kernel == device for kernel, _ in _kernels(op))
    return found


def _operation(function, node):
    """Return the operation that a node of a function, or of a function that was inlined into it, was made from."""
    reference = _state.graphs.get(function)
    graph = None if reference is None else reference()
    if graph is None:
        return None
    parts = node.split("/")
    for number in range(len(parts), 0, -1):
        prefix = "/".join(parts[:number])
        try:
            operation = graph.get_operation_by_name(prefix)
        except Exception:  # noqa: S112  (there is none of this name)
            continue
        if number < len(parts):
            try:
                inner = operation.get_attr("f").name
            except Exception:
                inner = ""
            found = _operation(inner, "/".join(parts[number:])) if inner and inner != function else None
            if found is not None:
                return found
        return operation
    return None


def _line_of(operation) -> str:
    """Return the line of the program that made an operation."""
    for entry in reversed(operation.traceback) if operation is not None else ():
        if _kind(entry.filename) == "program":
            return "%s:%d" % (entry.filename, entry.lineno)
    return ""


def _sample(now: float = 0.0) -> None:
    """Note what TensorFlow's allocators hold on each GPU; with the time ``now``, more rarely the longer it runs."""
    state = _state
    if now:
        if state.samples >= _SAMPLES:
            state.samples //= 2
            state.sample_every *= 2
        state.samples += 1
        state.sample_at = now + state.sample_every
    full = state.words[USED] > NOTES // 2
    if not state.gpus or state.context is None or (full and now):
        return
    from tensorflow.python import pywrap_tfe

    held = []
    for gpu in state.gpus[:64]:
        info = pywrap_tfe.TFE_GetMemoryInfo(state.context._context_handle, gpu)
        held.append((gpu, info["current"], info["peak"]))
    note("memory", held=held)


# --- start -----------------------------------------------------------------------------------------------------------


def start_in_new_interpreter() -> None:
    """Watch this process, which `gpudiag trace` started, or a process of its program."""
    folder = os.environ.get(FOLDER)
    if folder and _open(folder):
        _start()


def start_here(folder: str) -> bool:
    """Watch this process from now until :func:`stop`, whatever it has imported; False if there is no room for notes."""
    _state.reset()
    if not _open(folder):
        return False
    _start()
    for name, hook in _HOOKS.items():
        module = sys.modules.get(name)
        if module is not None:
            _guarded(hook, module)
    context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    if context is not None:
        _guarded(_made, context)
        if getattr(context, "_context_handle", None) is not None:
            _guarded(_initialised, context)
    return True


_registered_at_fork: list = []


def _start() -> None:
    _process("started")
    _watch_environment()
    if not _registered_at_fork:
        os.register_at_fork(after_in_parent=_forked_in_parent, after_in_child=_forked_in_child)
        _registered_at_fork.append(True)
    sys.meta_path.insert(0, _Finder)


def stop() -> None:
    """Put back everything that was replaced; the notes stay as they are."""
    state = _state
    _guarded(_flush)
    _guarded(_sample)
    if _Finder in sys.meta_path:
        sys.meta_path.remove(_Finder)
    for owner, name, value in reversed(_undo):
        setattr(owner, name, value)
    _undo.clear()
    context = state.context
    if context is not None:
        callbacks = getattr(getattr(context, "_thread_local_data", None), "op_callbacks", None)
        for callback in (_on_op, getattr(state.local, "on_op", None)):
            if callbacks is not None and callback in callbacks:
                callbacks.remove(callback)
        disable = getattr(context, "disable_graph_collection", None)
        if disable is not None:
            disable()
    state.words = state.lines = None
