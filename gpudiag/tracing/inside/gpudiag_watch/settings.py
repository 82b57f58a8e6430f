"""What sets an option of GPUs: functions, properties, options of sessions, and functions that are assigned to."""

import sys

from .cards import cards
from .lines import hide_our_frames, importing, kind_of, line_of_program, text_of
from .notes import cut, guarded, like, missing, note, replace, short_device, state
from .processes import environment, stage_of_tensorflow, task_of_cluster, version_of_tensorflow

_MOST_CONFIGS = 20
DETERMINISTIC = "TF_DETERMINISTIC_OPS"
PLAIN = (bool, int, float)  # the program's Python may be older than unions of types


def _around(original, describe):
    """Return a function that calls ``original`` and notes what was asked for and how that went."""

    def watched(*positional, **named):
        stage = stage_of_tensorflow()
        try:
            result = original(*positional, **named)
        except BaseException as error:
            hide_our_frames()
            guarded(_setting, describe, positional, named, stage, "%s: %s" % (type(error).__name__, error))
            raise
        guarded(_setting, describe, positional, named, stage, "")
        return result

    return like(original, watched)


def _setting(describe, positional, named, stage, error) -> None:
    fields = describe(*positional, **named)
    if fields is not None:
        note("setting", stage=stage, error=cut(error, 500), line=line_of_program(3), by_import=importing(3), **fields)


def _name(device: object) -> str:
    return getattr(device, "name", None) or cut(repr(device), 100)


def _names(devices: object) -> list:
    several = list(devices) if isinstance(devices, (list, tuple)) and not hasattr(devices, "name") else [devices]
    return [_name(device) for device in several[:64]]


def visible_devices(_, devices, device_type=None):
    return {"what": "visible_devices", "target": device_type or "", "value": _names(devices)}


def memory_growth(_, dev, enable):
    return {"what": "memory_growth", "target": _name(dev), "value": bool(enable)}


def logical_devices(_, dev, virtual_devices):
    limits = [getattr(device, "memory_limit", None) for device in virtual_devices]
    for device in virtual_devices:
        state.made.pop(id(device), None)
    return {"what": "logical_devices", "target": _name(dev), "value": limits[:64]}


def options_of(config: object) -> dict:
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
            for inner, setting in value.ListFields():
                options[inner.name] = cut(setting, 300) if not isinstance(setting, PLAIN) else setting
                if inner.name == "virtual_devices":
                    options[inner.name] = [list(device.memory_limit_mb) for device in setting]
        else:
            options[field.name] = value if isinstance(value, PLAIN) else cut(value, 300)
    return options


def device_policy(_, value):
    """Leave out what TensorFlow sets itself for a moment, as its strategies do."""
    by_program = sys._getframe(4).f_code.co_name == "set_device_policy"
    return {"what": "device_policy", "target": "", "value": getattr(value, "name", "")} if by_program else None


def session_options(self, target="", graph=None, config=None):
    fields = {"what": "session", "target": "", "value": options_of(config), "given": config is not None}
    if config is not None and len(state.given_configs) < _MOST_CONFIGS:
        state.given_configs.append((config, fields["value"], line_of_program(4)))
    if getattr(self, "_session", None) is None or target:  # it was refused, or its devices are elsewhere
        return fields
    devices = [(short_device(device.name), device.memory_limit_bytes) for device in self.list_devices()][:256]
    state.gpus = state.gpus or tuple(name for name, _ in devices if name.startswith("GPU:"))
    if config is None:  # then TensorFlow takes what tf.config says (session.py, 2.21)
        fields["options"] = options_of(getattr(self, "_config", None))
    return {**fields, "devices": devices, "cards": cards(), "variables": environment()}


def _local_devices(session_config=None):
    return {"what": "list_local_devices", "target": "", "value": options_of(session_config)}


def _eager(config=None, device_policy=None, execution_mode=None):
    return {"what": "enable_eager_execution", "target": "", "value": options_of(config)} if config is not None else None


def note_determinism() -> None:
    """Note whether operations had to be deterministic, at the end: asking makes TensorFlow read the variable."""
    asked = sys.modules.get("tensorflow.python.util._pywrap_determinism")
    if asked is not None and state.initialised and (DETERMINISTIC in state.put or DETERMINISTIC in environment()):
        note("determinism", enabled=bool(asked.is_enabled()))


def watch_property(cls, name, describe=None):
    """Note what a property is set to; ``describe`` says how, or None for what is not worth a note."""
    whole = getattr(cls, name, None)
    if not isinstance(whole, property) or whole.fset is None:
        missing("%s.%s" % (getattr(cls, "__name__", cls), name), "when %s was set" % name)
        return

    def plain(_, value):
        return {"what": name, "target": "", "value": value if isinstance(value, PLAIN) else cut(value, 100)}

    replace(cls, name, property(whole.fget, _around(whole.fset, describe or plain), whole.fdel, whole.__doc__))


def watch_method(owner, name, describe, costs):
    original = None if owner is None else getattr(owner, name, None)
    if original is None:
        missing("%s.%s" % (getattr(owner, "__name__", owner), name), costs)
    else:
        replace(owner, name, _around(original, describe))


def in_device_lib(module) -> None:
    watch_method(module, "list_local_devices", _local_devices, "devices made by device_lib.list_local_devices")


def in_server(module) -> None:
    watch_method(getattr(module, "Server", None), "__init__", _server, "devices made by tf.distribute.Server")


def _server(_, server_or_cluster_def=None, *positional, **named):
    config = named.get("config", positional[3] if len(positional) > 3 else None)
    return {"what": "server", "target": "", "value": options_of(config)}


def in_ops(module) -> None:
    watch_method(module, "enable_eager_execution", _eager, "options of enable_eager_execution")


def in_eager_run(module) -> None:
    watch_method(module, "run_functions_eagerly", _eagerly, "whether functions run eagerly")


def _eagerly(run_eagerly):
    return {"what": "run_functions_eagerly", "target": "", "value": bool(run_eagerly)}


def in_debug_mode(module) -> None:
    watch_method(module, "enable_debug_mode", _debug_mode, "whether tf.data runs its functions eagerly")


def _debug_mode():
    return {"what": "enable_debug_mode", "target": "", "value": True}


def in_trainer(module) -> None:
    """Watch the models of Keras: compile sets whether one runs eagerly."""
    watch_property(getattr(module, "Trainer", None), "run_eagerly", _model_eagerly)


def _model_eagerly(_, value):
    return {"what": "run_eagerly", "target": "", "value": True} if value else None


def in_tensorflow(module) -> None:
    note("tensorflow", version=version_of_tensorflow(), variables=environment(), task=task_of_cluster())
    for name in ("config", "config.experimental", "config.optimizer", "config.threading", "debugging"):
        inner = module
        for part in name.split("."):
            inner = getattr(inner, part, None)
        if type(inner) is _Module:
            replace(inner, "__class__", _Watched)
            _watched[id(inner)] = "tf.%s" % name
    if type(module) is _Module:
        replace(module, "__class__", _Root)


_Module = type(sys)
_watched: dict = {}
_OF_TENSORFLOW_1 = frozenset(("ConfigProto", "GPUOptions", "InteractiveSession", "Session"))


class _Root(_Module):
    """TensorFlow's own module, which somebody may ask for what only TensorFlow 1 had there."""

    def __getattr__(self, name):
        if name in _OF_TENSORFLOW_1:
            guarded(_absent, "tf", name)
        raise AttributeError("module %r has no attribute %r" % (self.__name__, name))


class _Watched(_Module):
    """A module whose functions somebody may replace by mistake: ``tf.config.set_soft_device_placement = False``.

    And one that may be asked for a function that it does not have, in a ``try`` that hides the error.
    """

    def __getattr__(self, name):
        if not name.startswith("_"):
            guarded(_absent, _watched.get(id(self), self.__name__), name)
        raise AttributeError("module %r has no attribute %r" % (self.__name__, name))

    def __setattr__(self, name, value):
        before = self.__dict__.get(name)
        super().__setattr__(name, value)
        if callable(before) and not callable(value):
            called = "%s.%s" % (_watched.get(id(self), self.__name__), name)
            note(
                "setting",
                what="assigned",
                target=called,
                value=cut(repr(value), 100),
                line=line_of_program(2),
                stage=stage_of_tensorflow(),
                error="",
            )


def _absent(module, name) -> None:
    """Note a name that TensorFlow does not have, unless the program only asks whether it has it."""
    frame = sys._getframe(3)
    file = frame.f_code.co_filename
    if kind_of(file) == "program" and "attr(" not in text_of(frame):
        note("absent", name="%s.%s" % (module, name), line="%s:%d" % (file, frame.f_lineno))
