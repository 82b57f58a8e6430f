"""What a program makes for TensorFlow and never gives to it: records of options, wrapped functions, datasets."""

import sys
from _weakref import ref  # weakref itself is not imported in every interpreter

from .lines import kind_of, line_and_caller, text_of
from .notes import guarded, like, missing, note, note_once, replace, state
from .settings import options_of

_MOST = 200
CLASSES = {
    "keras.src.dtype_policies.dtype_policy": {"DTypePolicy": ("compute_dtype", "variable_dtype")},
    "keras.src.optimizers.loss_scale_optimizer": {
        "LossScaleOptimizer": ("build", "apply", "stateless_apply", "scale_loss")
    },
    "tensorflow.python.data.ops.options": {"Options": None},
    "tensorflow.python.distribute.collective_util": {"Options": None},
    "tensorflow.python.distribute.cross_device_ops": {"CrossDeviceOps": None},
    "tensorflow.python.distribute.distribute_lib": {"InputOptions": None, "RunOptions": None},
    "tensorflow.python.distribute.input_lib": {
        "DistributedDataset": ("__iter__",),
        "DistributedDatasetsFromFunction": ("__iter__",),
    },
    "tensorflow.python.eager.context": {"LogicalDeviceConfiguration": None},
    "tensorflow.python.eager.polymorphic_function.polymorphic_function": {"Function": ()},
}
"""Modules of TensorFlow and Keras, and their classes of objects that do nothing until something uses them: by which of
their methods and properties, or None, by any attribute that code of another file of TensorFlow's reads."""
_DATASETS = frozenset(("DistributedDataset", "DistributedDatasetsFromFunction"))
"""Those that a method of a strategy makes."""
RESULTS = {
    "tensorflow.python.distribute.distribute_lib": {
        "StrategyBase": ("scope", "experimental_distribute_dataset", "distribute_datasets_from_function")
    },
    "tensorflow.python.data.ops.dataset_ops": {"DatasetV2": ()},
}
"""Classes, and their methods of which the result alone matters; (): those that return another dataset."""
_RECORDS = ("ConfigProto", "GPUOptions")
_given_elsewhere: dict = {}  # line of the program, and whether any line counts -> whether one gives away what it makes


def watch_module(module) -> None:
    for name, uses in CLASSES.get(module.__name__, {}).items():
        cls = getattr(module, name, None)
        if cls is None:
            missing("%s.%s" % (module.__name__, name), "whether one that the program makes is used")
        else:
            _watch_class(cls, uses)
    for name, methods in RESULTS.get(module.__name__, {}).items():
        cls = getattr(module, name, None)
        if cls is None:
            missing("%s.%s" % (module.__name__, name), "results of its methods that the program drops")
            continue
        for method in methods or [method for method, value in vars(cls).items() if _returns_dataset(value)]:
            if hasattr(cls, method):
                replace(cls, method, _returning(getattr(cls, method)))


def _returns_dataset(value) -> bool:
    return callable(value) and getattr(value, "__annotations__", {}).get("return") == "DatasetV2"


def _watch_class(cls, uses) -> None:
    begun = cls.__init__

    def init(self, *positional, **named):
        if begun is not object.__init__:
            begun(self, *positional, **named)
        guarded(_made, self, cls.__name__)

    replace(cls, "__init__", init)
    for name in uses or ():
        plain = getattr(cls, name, None)
        if plain is not None:
            get = getattr(plain, "fget", None)
            replace(cls, name, property(_reading(get), doc=plain.__doc__) if get else _using(plain))
    if uses is not None:
        return
    get = cls.__getattribute__
    own = {getattr(sys.modules.get(base.__module__), "__file__", "") for base in cls.__mro__}

    def getattribute(self, name):
        if id(self) in state.made:
            code = sys._getframe(1).f_code
            is_user = code.co_filename not in own or code.co_name == "merge_options"
            if is_user and kind_of(code.co_filename) in ("tensorflow", "keras"):
                used(self)
        return get(self, name)

    replace(cls, "__getattribute__", getattribute)


def _using(original):
    def watched(self, *positional, **named):
        if state.made:
            used(self)
        return original(self, *positional, **named)

    return like(original, watched)


def _reading(get):
    def watched(self):
        if id(self) in state.made:
            guarded(_read, self, sys._getframe(1))
        return get(self)

    return watched


def _read(thing, frame) -> None:
    """Take for used what a line reads of an object, unless it only shows it."""
    if not text_of(frame).startswith(("print(", "log")):
        used(thing)


def used(thing) -> None:
    """Forget an object that TensorFlow uses."""
    state.made.pop(id(thing), None)


def _made(thing, name) -> None:
    """Remember what a line of the program makes, or a function of TensorFlow for it."""
    frame = sys._getframe(3)
    if name == "Function":  # not one that TensorFlow makes of a method for each object
        while frame.f_code.co_name in ("decorated", "function", "new_func"):
            frame = frame.f_back
    elif name in _DATASETS:
        while kind_of(frame.f_code.co_filename) in ("tensorflow", "ours"):
            frame = frame.f_back
    else:
        while frame.f_code.co_name == "__new__" or (
            frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is thing
        ):
            frame = frame.f_back
    if kind_of(frame.f_code.co_filename) != "program" or len(state.made) >= _MOST:
        return
    line = "%s:%d" % (frame.f_code.co_filename, frame.f_lineno)
    if name == "Function":
        _dropped(frame, name)
        if _is_dropped(frame) or text_of(frame).startswith("@"):
            return  # what decorates a function is used by its name
    cls = type(thing)
    where = cls.__module__.replace("_", "").partition(".")[0] if cls.__name__ == "Options" else ""
    shown = "%s.%s" % (cls.__module__.split(".")[2], cls.__name__) if where else cls.__name__
    value = getattr(thing, "name", "") if name == "DTypePolicy" else ""
    state.made[id(thing)] = (_reference(thing), shown, str(value), line)


def _reference(thing):
    """Return a function that returns an object, which it keeps alive only if it is a tuple: these have no weak one."""

    def held():
        return thing

    try:
        return ref(thing)
    except TypeError:
        return held


def _returning(original):
    def watched(*positional, **named):
        result = original(*positional, **named)
        frame = sys._getframe(1)
        if kind_of(frame.f_code.co_filename) == "program":
            guarded(_dropped, frame, original.__qualname__)
        return result

    return like(original, watched)


def _dropped(frame, name) -> None:
    if _is_dropped(frame):
        note_once("unused", "%s:%d" % (frame.f_code.co_filename, frame.f_lineno), what=name, value="", dropped=True)


def _is_dropped(frame) -> bool:
    """Return whether the line drops what its call returns: the next instruction takes that off the stack."""
    from opcode import opmap

    code, at = frame.f_code.co_code, frame.f_lasti + 2
    while code[at] == opmap.get("CACHE"):
        at += 2
    return code[at] == opmap["POP_TOP"]


class _Record:
    """Stands for a record of ``tf.compat.v1``: makes one, and knows which were made."""

    def __init__(self, cls) -> None:
        self._cls = cls

    def __call__(self, *positional, **named):
        made = self._cls(*positional, **named)
        state.configs = [entry for entry in state.configs if all(entry[0] is not value for value in named.values())]
        guarded(_record_made, made, type(made).__name__)
        return made

    def __getattr__(self, name):
        return getattr(self._cls, name)

    def __instancecheck__(self, instance):
        return isinstance(instance, self._cls)


def _record_made(record, name) -> None:
    line, direct = line_and_caller(4)
    if direct and len(state.configs) < _MOST:
        state.configs.append((record, name, line))


def watch_records(compat) -> None:
    for name in _RECORDS:
        cls = getattr(compat, name, None)
        if cls is None:
            missing("tf.compat.v1.%s" % name, "records of options that no session was made with")
        else:
            replace(compat, name, _Record(cls))


def note_unused() -> None:
    """Note what the records say that the program made, and which other objects nothing of TensorFlow's has used."""
    given = [record.gpu_options for record, name, _ in state.configs if name == "ConfigProto"]
    for config, options, line in state.given_configs:
        later = {name: value for name, value in options_of(config).items() if options.get(name) != value}
        if later:
            note("unused", what="ConfigProto", value=str(later), line=line, dropped=False)
    state.given_configs = []
    for record, name, line in state.configs:
        if name == "ConfigProto":
            if not _is_given_elsewhere(line):
                note("record", value=options_of(record), line=line)
        elif record not in given and record.ListFields():
            value = ", ".join("%s=%s" % (field.name, value) for field, value in record.ListFields())
            _note_unused(name, value, line)
    made, state.configs, state.made = list(state.made.values()), [], {}
    alive = [thing for kept, *_ in made if (thing := kept()) is not None]
    held = _held_by_tensorflow(alive) if alive else set()
    for kept, what, value, line in made:
        thing = kept()
        if what == "Function" and (thing is None or thing._variable_creation_config is not None):
            continue  # it was called
        if thing is None or id(thing) not in held:
            _note_unused(what, value, line)


def _note_unused(what, value, line) -> None:
    if not _is_given_elsewhere(line, anywhere=what == "Function"):
        note("unused", what=what, value=value, line=line, dropped=False)


def _is_given_elsewhere(line, anywhere=False) -> bool:
    """Return the result of :func:`_gives_elsewhere`; False if the file of the line cannot be parsed."""
    if (line, anywhere) not in _given_elsewhere:  # many are often made by one line
        try:
            given = _gives_elsewhere(line, anywhere)
        except (SyntaxError, ValueError, RecursionError):  # such as a cell of a notebook
            given = False
        _given_elsewhere[line, anywhere] = given
    return _given_elsewhere[line, anywhere]


def _gives_elsewhere(line, anywhere) -> bool:
    """Return whether a line gives away what this one makes: one of another block, which may not have run, or any."""
    import ast
    import linecache

    file, _, number = line.rpartition(":")
    blocks = (ast.If, ast.IfExp, ast.For, ast.While, ast.Try, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    tree = ast.parse("".join(linecache.getlines(file)))
    names = {
        getattr(target, "id", getattr(target, "attr", ""))
        for node in ast.walk(tree)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and _spans(node, int(number))
        for target in getattr(node, "targets", None) or [node.target]
    }

    def gives(node, is_apart) -> bool:
        if isinstance(node, blocks) and not _spans(node, int(number)):
            own = {inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)}
            if names <= own:
                return False  # a parameter of the same name
            is_apart = True
        name = getattr(node, "id", getattr(node, "attr", None))  # of a variable, or an attribute
        if is_apart and name in names and isinstance(node.ctx, ast.Load):
            return True
        while isinstance(node, ast.Attribute):
            node = node.value  # what is read or set of it gives nothing away
        return any(gives(child, is_apart) for child in ast.iter_child_nodes(node))

    return bool(names) and gives(tree, anywhere)


def _spans(node, line) -> bool:
    return node.lineno <= line <= node.end_lineno


def _is_of_libraries(holder) -> bool:
    return type(holder).__module__.startswith(("tensorflow", "keras", "tf_keras"))


def _held_by_tensorflow(things) -> set:
    """Return the ids of those to which an object of a class of TensorFlow's, or of Keras, refers."""
    import gc

    found = set()
    for thing in things:
        for holder in gc.get_referrers(thing):
            attributes = gc.get_referrers(holder) if isinstance(holder, (dict, list, tuple)) else ()
            if any(map(_is_of_libraries, (holder, *attributes))):
                found.add(id(thing))
    return found
