"""The eager context: settings, devices, and the operations of each thread."""

from _thread import _local

from .cards import cards
from .clusters import watch_joining
from .given import note_unused
from .graphs import MOST_GRAPHS
from .lines import hide_our_frames, line_of_program
from .notes import cut, guarded, missing, note, replace, short_device, state
from .operations import callback_of_thread, flush, sample
from .processes import environment
from .requests import watch_lists
from .scopes import watch_device_scopes
from .settings import (
    device_policy,
    logical_devices,
    memory_growth,
    note_determinism,
    options_of,
    visible_devices,
    watch_method,
    watch_property,
)


def in_context(module) -> None:
    """Watch the eager context: every public function that sets something ends in one of its methods."""
    cls = getattr(module, "Context", None)
    if cls is None:
        missing("tensorflow.python.eager.context.Context", "settings and operations")
        return
    watch_method(cls, "set_visible_devices", visible_devices, "settings of visible devices")
    watch_method(cls, "set_memory_growth", memory_growth, "settings of memory growth")
    watch_method(cls, "set_logical_device_configuration", logical_devices, "settings of logical devices")
    watch_property(cls, "soft_device_placement")
    watch_property(cls, "device_policy", device_policy)
    made, listed = getattr(cls, "_initialize_logical_devices", None), getattr(cls, "_initialize_physical_devices", None)
    if made is None:
        missing("Context._initialize_logical_devices", "which devices TensorFlow made, and when")
    else:

        def devices(self):
            made(self)
            guarded(context_initialised, self)

        replace(cls, "_initialize_logical_devices", devices)
    if listed is None:
        missing("Context._initialize_physical_devices", "when the devices were listed first")
    else:

        def physical(self, reinitialize=False):
            first = self._physical_devices is None
            listed(self, reinitialize)
            if first:
                guarded(_listed, self)

        replace(cls, "_initialize_physical_devices", physical)
    ask = getattr(cls, "_set_device", None)
    if ask is None:
        missing("Context._set_device", "which device an operation asked for")
    else:

        def _set_device(self, device_name, device_spec):
            ask(self, device_name, device_spec)
            if state.local is not None:
                state.local.follow(device_name)

        replace(cls, "_set_device", _set_device)
    for name in ("enable_run_metadata", "enable_graph_collection"):
        if hasattr(cls, name):
            replace(cls, name, _leaving_graphs(getattr(cls, name)))
    watch_joining(cls)
    watch_device_scopes(module)
    watch_lists(cls)
    begun = cls.__init__

    def init(self, *positional, **named):
        begun(self, *positional, **named)
        guarded(context_made, self)

    replace(cls, "__init__", init)
    _watch_threads(module)


class _Thread(_local):
    """What is watched in each thread: the callback for its operations, and the device that it asks for with tf.device.

    That is followed here, because to read it from TensorFlow's own record costs each operation a microsecond.
    """

    noted = 0
    """Operations of this thread that were looked at one by one."""

    def __init__(self, data) -> None:
        """Python calls this in each thread that uses TensorFlow, at its first use, whatever started the thread."""
        self.data, self.device_name, self.on_op = data, None, None
        guarded(self.watch)

    def watch(self) -> None:
        """Let TensorFlow call back after each operation of this thread."""
        callbacks = getattr(self.data, "op_callbacks", None)
        if callbacks is None:
            missing("Context._thread_local_data.op_callbacks", "where operations ran")
            return
        # Python forgets a thread of TensorFlow's own after each of its calls, and TensorFlow does not.
        kept = [callback for callback in callbacks if hasattr(callback, "choose")]
        self.on_op = kept[0] if kept else callback_of_thread()
        if not kept:
            callbacks.append(self.on_op)
        self.follow(self.data.device_name)

    def follow(self, device_name) -> None:
        self.device_name = device_name
        if self.on_op is not None:
            self.on_op.choose(device_name)


def _watch_threads(module) -> None:
    """Watch the operations of every thread: TensorFlow keeps callbacks for each, and asks here for its record of it.

    Both lookups are in C, because each operation does them.
    """
    from operator import attrgetter

    def keep(context, data):
        context.__dict__["_thread_local_data"] = data
        context.__dict__[_THREADS] = _thread_of(data)

    made = getattr(module, "_context", None)
    if made is not None:
        keep(made, made._thread_local_data)
    replace(module.Context, "_thread_local_data", property(attrgetter(_THREADS + ".data"), keep))


_THREADS = "_gpudiag_threads"


def _leaving_graphs(original):
    """Return a method that leaves the graphs of functions to a program that collects them, as tf.summary.trace_on."""

    def enable(self):
        if state.looked_at < MOST_GRAPHS:
            state.looked_at = MOST_GRAPHS
            note("left", line=line_of_program(2))
        original(self)

    return enable


def context_made(context) -> None:
    """Watch the operations of a context that was just made, in this thread; it has no device yet."""
    import atexit

    from tensorflow.python.eager import execute

    if not _at_exit:
        _at_exit.append(atexit.register(_at_end))
    state.context, state.local = context, context.__dict__.get(_THREADS)
    if state.local is None:
        missing("Context._thread_local_data", "where operations ran")
    else:
        state.local.watch()
    with_callbacks = getattr(execute, "execute_with_callbacks", None)
    if with_callbacks is None:
        missing("tensorflow.python.eager.execute.execute_with_callbacks", "where functions ran")
    else:
        replace(execute, "execute", with_callbacks)
    _watch_making(context)


def _at_end() -> None:
    guarded(note_unused)
    guarded(note_determinism)
    guarded(flush)
    guarded(sample)


def _watch_making(context) -> None:
    """Note why TensorFlow could not make its devices; nothing is watched after it has made them."""
    make = getattr(context, "ensure_initialized", None)
    if make is None:
        missing("Context.ensure_initialized", "why TensorFlow could not make its devices")
        return

    def ensure_initialized():
        try:
            make()
        except Exception as error:
            hide_our_frames()
            guarded(_not_made, error)
            raise
        context.__dict__.pop("ensure_initialized", None)

    context.ensure_initialized = ensure_initialized


def _not_made(error) -> None:
    note("not_made", error="%s: %s" % (type(error).__name__, cut(error, 500)), line=line_of_program(4))


_at_exit: list = []
_threads: list = []
"""TensorFlow's record of each thread, and ours; kept when a trace ends, because other threads keep their callbacks."""


def _thread_of(data):
    if not _threads or _threads[0] is not data:
        _threads[:] = data, _Thread(data)
    return _threads[1]


def _listed(context) -> None:
    note(
        "listed",
        line=line_of_program(3),
        devices=[device.name for device in context._physical_devices][:64],
        cards=cards(),
    )


def context_initialised(context, *, is_new=True) -> None:
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
    # Of a cluster, the devices of other tasks are listed, too.
    state.gpus = tuple(name for name in (short_device(name) for name, _ in devices) if name.startswith("GPU:"))
    details = []
    for device in context._physical_devices or ():
        if device.device_type == "GPU":
            found = context.get_device_details(device)
            details.append((device.name, found.get("device_name", ""), tuple(found.get("compute_capability", ()))))
    try:
        # The context's own method would wait for the lock that this thread holds.
        pywrap_tfe.TFE_ContextEnableGraphCollection(context._context_handle)
    except (AttributeError, TypeError):
        missing("Context.enable_graph_collection", "where the operations of functions ran")
    note(
        "initialised",
        line=line_of_program(3),
        devices=[(short_device(name), limit) for name, limit in devices],
        options=options_of(context.config),
        gpus=details[:64],
        variables=environment(),
        cards=cards(),
        physical=[device.name for device in context._physical_devices or ()][:64],
        new=is_new,
    )
