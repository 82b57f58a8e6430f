"""What became of what a program asks for by other ways than an option of TensorFlow that exists: pure, from its notes.

Lists of a type that there is not, scopes in which nothing ran, policies that no layer has, records that no session was
made with, functions that TensorFlow does not have, and variables of other programs.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from gpudiag import fix
from gpudiag.fix import edit, export
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.knowledge.placement import short_device
from gpudiag.knowledge.variables import (
    ALLOCATOR,
    CLUSTER,
    DEVICE_ORDER,
    FORCE_GROWTH,
    OTHER_PROGRAMS,
    instead_of,
    is_read_by_nothing,
)
from gpudiag.model.program import Setting, place
from gpudiag.model.program import SettingFate as Fate
from gpudiag.text import counted
from gpudiag.tracing.effects import MASK, Effect
from gpudiag.tracing.inside.gpudiag_watch import kernels, scopes
from gpudiag.tracing.inside.gpudiag_watch.settings import DETERMINISTIC
from gpudiag.tracing.notes import Note, Notes
from gpudiag.tracing.observed import Observed

_KIND = re.compile(r"(?i)(?:.*[:/])?(?P<kind>CPU|GPU)(?::(?P<number>\d+))?\Z")
_CLUSTER_KEYS = ("cluster", "task", "environment", "rpc_layer", "session_master", "service")
"""Keys that TensorFlow reads of TF_CONFIG (cluster_resolver/tfconfig_cluster_resolver.py, 2.21), and older ones."""
_CLAIMED = re.compile(r"(?i)/?(?:device:)?(?P<kind>cpu|gpu|cuda)")
_PASSING = ("PrefetchDataset", "OptionsDataset", "ModelDataset")
"""Steps of tf.data that leave an element on the GPU on which it is (measured, TensorFlow 2.21)."""
GPU_VARIABLES = (MASK, DEVICE_ORDER, FORCE_GROWTH, ALLOCATOR)
_MAKING = kernels.PLUMBING | {"AssignAddVariableOp", "Cast", "Fill"}
"""Operations that make a variable and read it."""
_HEAVY = ("MatMul", "Conv", "Einsum", "RNN")
"""Parts of the names of operations for which a GPU is there."""
_SETTINGS = {
    "virtual_device_configuration": "logical_devices",
    "VirtualDeviceConfiguration": "logical_devices",
    "logical_device_configuration": "logical_devices",
    "ConfigProto": "session",
    "GPUOptions": "session",
    "Session": "session",
    "InteractiveSession": "session",
}
"""For each function's name without ``set_``, the watcher's name of the setting that it changes."""
_FASTER_SINCE = {"mixed_float16": (7, 0), "float16": (7, 0), "mixed_bfloat16": (8, 0), "bfloat16": (8, 0)}
"""Policies of Keras, and the compute capability since which GPUs have units that are faster with them (CUDA Programming
Guide, compute capabilities)."""


_REDUCTIONS = ("NcclAllReduce", "HierarchicalCopyAllReduce", "ReductionToOneDevice")
_DISTRIBUTED = "strategy.experimental_distribute_dataset"
_UNUSED = {
    "DTypePolicy": ("tf.keras.mixed_precision.Policy", "tf.keras.mixed_precision.set_global_policy(policy)"),
    "LossScaleOptimizer": ("LossScaleOptimizer", "loss = optimizer.scale_loss(loss)"),
    "data.Options": ("tf.data.Options", "dataset = dataset.with_options(options)"),
    "distribute.Options": (
        "tf.distribute.experimental.CommunicationOptions",
        "tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)",
    ),
    "InputOptions": ("tf.distribute.InputOptions", f"{_DISTRIBUTED}(dataset, options)"),
    "RunOptions": ("tf.distribute.RunOptions", "strategy.run(step, args=(batch,), options=options)"),
    "DistributedDataset": ("a distributed dataset", "for batch in distributed_dataset:"),
    "DistributedDatasetsFromFunction": ("a distributed dataset", "for batch in distributed_dataset:"),
    "LogicalDeviceConfiguration": (
        "tf.config.LogicalDeviceConfiguration",
        "tf.config.set_logical_device_configuration(gpu, [configuration])",
    ),
    "GPUOptions": ("GPUOptions", "tf.compat.v1.ConfigProto(gpu_options=gpu_options)"),
    "ConfigProto": ("ConfigProto", "tf.compat.v1.Session(config=config)"),
    "Function": ("tf.function", "step = tf.function(step)"),
    "scope": ("strategy.scope", "with strategy.scope():"),
    "experimental_distribute_dataset": (_DISTRIBUTED, f"dataset = {_DISTRIBUTED}(dataset)"),
    "distribute_datasets_from_function": (
        "strategy.distribute_datasets_from_function",
        "dataset = strategy.distribute_datasets_from_function(function)",
    ),
    **{
        name: (f"tf.distribute.{name}", f"tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.{name}())")
        for name in _REDUCTIONS
    },
}
"""Objects that have no effect until they are given to TensorFlow: their name, and a line that gives them."""


# Calls whose effect shows elsewhere


def of_list(note: Note, observed: Observed) -> Effect | None:
    """Return why a list of devices was empty; None if the machine has no device of the intended type."""
    kind = _CLAIMED.match(note["value"])
    if kind is None or note["value"] in ("CPU", "GPU"):
        return None
    meant = "CPU" if kind["kind"].lower() == "cpu" else "GPU"
    there = observed.physical or () if meant == "GPU" else ("/physical_device:CPU:0",)
    if not there:
        return None
    why = f"of {note['value']!r} the list is empty on every machine: the type is compared letter by letter"
    taken = next((grown.why for grown in observed.growth(observed.gpus) if grown.grows is False), "")
    why += f"; TensorFlow lists {counted(len(there), meant)}{f', and {taken}' if taken and meant == 'GPU' else ''}"
    return Effect(Fate.IGNORED, why, edit(f"tf.config.{note['what']}({meant!r})"))


def of_policy(note: Note, observed: Observed) -> Effect | None:
    """Return what a policy of Keras did: which layers have it, and whether the GPU computes faster with it."""
    name, before = note["value"], note["layers"]
    if name == "float32":
        return None
    layers = {
        counter["op"]: observed.notes.count(counter)
        for counter in observed.notes.of("counter")
        if counter["what"] == "layer"
    }
    later = {policy: number - before.get(policy, 0) for policy, number in layers.items()}
    with_it, others = later.get(name, 0), {policy: number for policy, number in later.items() if policy != name}
    again = [later for later in observed.notes.of("setting") if later["what"] == "dtype_policy" and later is not note]
    last = next((later for later in again if later["t"] >= note["t"] and later["value"] != name), None)
    if not with_it and last is not None:
        why = f"{place(last['line'])} sets it to {last['value']} later, before the first layer"
        return Effect(Fate.OVERRIDDEN, why, fix.edit_note(f"take it out of {place(last['line'])}"))
    if not with_it and sum(others.values()) and note.get("apart"):
        why = f"Keras keeps it for each thread, and this is not the main one: {_layers(others)} made elsewhere"
        return Effect(Fate.IGNORED, why, fix.edit_note("call it in the thread that makes the layers"))
    if not with_it and sum(others.values()):
        why = f"{_layers(others)} made after it, and none that computes with it: each was given another dtype"
        return Effect(Fate.OTHER_EFFECT, why, fix.edit_note("take dtype= out of the layers that are to have it"))
    if not with_it and before:
        why = f"{_layers(before)} made before it, and none after it: a layer takes the policy when it is made"
        return Effect(Fate.TOO_LATE, why, fix.edit_note("move the line before the first layer is made"))
    if not with_it:
        return Effect(Fate.NOT_CHECKED, "no layer of Keras was made")
    needed = _FASTER_SINCE.get(name)
    slow = [card for card in observed.capabilities if needed and card < needed]
    if slow:
        has = ".".join(map(str, slow[0]))
        why = (
            f"{counted(with_it, 'layer')} compute with it on a GPU of compute capability {has}: units that are faster "
            f"at {name.removeprefix('mixed_')} came with {'.'.join(map(str, needed or ()))}"
        )
        return Effect(Fate.OTHER_EFFECT, why, edit("tf.keras.mixed_precision.set_global_policy('float32')"))
    unscaled = observed.notes.first("unscaled")
    if name == "mixed_float16" and unscaled:
        at = place(unscaled["line"])
        why = f"{at} applies gradients that no LossScaleOptimizer has scaled: below 6e-8 they are 0 in float16"
        scaler = "optimizer = tf.keras.mixed_precision.LossScaleOptimizer(optimizer)"
        return Effect(Fate.OTHER_EFFECT, why, edit(scaler, "and loss = optimizer.scale_loss(loss)"))
    return Effect(Fate.TOOK_EFFECT, f"{counted(with_it, 'layer')} made with it")


def _layers(by_policy: Mapping[str, int]) -> str:
    """Return how many layers have which policies."""
    parts = [f"{counted(number, 'layer')} with {policy}" for policy, number in by_policy.items() if number]
    return f"{' and '.join(parts)} {'was' if sum(by_policy.values()) == 1 else 'were'}"


def of_tensor_float_32(note: Note, observed: Observed) -> Effect | None:
    """Return what became of TensorFloat-32: GPUs have it since compute capability 8.0."""
    if note["value"] and observed.capabilities and all(card < (8, 0) for card in observed.capabilities):
        has = ", ".join(sorted({".".join(map(str, card)) for card in observed.capabilities}))
        return Effect(Fate.IGNORED, f"GPUs have TensorFloat-32 since compute capability 8.0, and here it is {has}")
    return Effect(Fate.NOT_CHECKED, "nothing that a program sees shows what it does")


def of_prefetch(note: Note, _: Observed) -> Effect | None:
    """Return what becomes of elements that tf.data copied to a GPU before other steps."""
    later = [step for step in note["value"] if step not in _PASSING]
    if not later:
        return None
    why = f"{later[-1]} comes after it: its results are on the CPU, and the copy to {note['target']} is lost"
    return Effect(
        Fate.IGNORED, why, edit(f"tf.data.experimental.prefetch_to_device({note['target']!r})", "as the last step")
    )


OF_CALLS: dict[str, Callable[[Note, Observed], Effect | None]] = {
    "list_physical_devices": of_list,
    "list_logical_devices": of_list,
    "dtype_policy": of_policy,
    "tensor_float_32": of_tensor_float_32,
    "prefetch_to_device": of_prefetch,
}
"""What a note of a setting is called whose effect shows elsewhere than in TensorFlow's devices."""


# What no option of TensorFlow is


def of_no_option(notes: Notes, pid: int, observed: Observed) -> Iterator[Setting]:
    """Yield what the program asked for in vain: functions, records, scopes."""
    settings = [note for note in notes.of("setting") if not note["error"]]
    yield from _absent(notes, pid, settings)
    if not any(note["what"] == "enable_eager_execution" or note.get("given") for note in settings):
        for note in notes.of("record"):
            if note["value"] and observed.made:
                value = ", ".join(f"{name}={value}" for name, value in note["value"].items())
                why = "this ConfigProto is given to nothing: its options hold for the session that is made with it"
                at = next((place(setting["line"]) for setting in settings if setting["what"] == "session"), "")
                growth = edit(
                    "tf.config.experimental.set_memory_growth(gpu, True)", "of each GPU; other options: tf.config"
                )
                instead = edit("tf.compat.v1.Session(config=config)", f"at {at}") if at else growth
                yield Setting("ConfigProto", value, note["line"], Fate.IGNORED, why, instead, pid)
    yield from _scopes(notes, pid, observed)
    if observed.made or notes.last_op_at:
        for note in notes.of("unused"):
            yield _unused(note, notes, pid)


def _unused(note: Note, notes: Notes, pid: int) -> Setting:
    """Return what became of an object that the program made and nothing of TensorFlow's used."""
    what = note["what"].rpartition(".")[2] if note["dropped"] else note["what"]
    why = "the line drops it" if note["dropped"] else "made here, and nothing of TensorFlow has used it"
    if what in _UNUSED:
        called, line = _UNUSED[what]
        instead = edit(line, "before the first layer is made" if what == "DTypePolicy" else "")
    elif note["dropped"]:  # a step of tf.data
        called, instead = f"dataset.{what}", edit(f"dataset = dataset.{what}(...)")
        why = f"the line drops what Dataset.{what} returns, and the dataset itself is not changed"
    else:
        called, instead = what, None
    layers = sum(notes.count(counter) for counter in notes.of("counter") if counter["what"] == "layer")
    if what == "DTypePolicy" and layers:
        why = f"{why}: {counted(layers, 'layer')} of Keras {'was' if layers == 1 else 'were'} made without it"
    if what == "ConfigProto":
        why = "the session was made with it before: it takes a copy, and this was set later"
    return Setting(called, note["value"], note["line"], Fate.IGNORED, why, instead, pid)


def _absent(notes: Notes, pid: int, settings: Sequence[Note]) -> Iterator[Setting]:
    """Yield the functions that this TensorFlow does not have, if the program went on and did not set the same later."""
    lines = set()
    for note in notes.of("absent"):
        short = note["name"].rpartition(".")[2].removeprefix("set_")
        done = {later["what"] for later in settings if later["t"] >= note["t"]}
        went_on = (
            any(event["t"] >= note["t"] for event in notes.of("initialised", "graph")) or notes.last_op_at > note["t"]
        )
        sets = short in _SETTINGS or f".set_{short}" in note["name"]
        if note["line"] in lines or not went_on or not sets or _SETTINGS.get(short, short) in done:
            continue
        lines.add(note["line"])
        version = notes.first("tensorflow").get("version", "")
        why = f"TensorFlow {version} does not have it: AttributeError, and the program goes on"
        instead = api.REMOVED.get(note["name"].removeprefix("tf."), "")
        called = f"{instead}(gpu, True)" if instead.endswith("set_memory_growth") else instead
        action = edit(called) if called else fix.edit_note("take it out")
        yield Setting(note["name"], "", note["line"], Fate.REFUSED, why, action, pid)


def _scopes(notes: Notes, pid: int, observed: Observed) -> Iterator[Setting]:
    """Yield the scopes of tf.device that changed nothing: nothing ran on their device, or variables were made there."""
    ran = _Ran(notes)
    if notes.lost or not ran.devices or notes.first("missing"):
        return
    for note in notes.of("counter"):
        found = _KIND.match(short_device(note["device"])) if note["what"] == "scope" else None
        device = f"{found['kind'].upper()}:{found['number'] or 0}" if found is not None else ""
        if device in observed.devices and (effect := _of_scope(device, note, notes, ran)) is not None:
            what, value = "tf.device", repr(note["device"])
            yield Setting(what, value, note["line"], effect.fate, effect.why, effect.instead, pid)


class _Ran:
    """What ran on which device, and for which."""

    def __init__(self, notes: Notes) -> None:
        counted_notes = [note for note in notes.of("counter") if note["what"] in ("op", "function")]
        done = [note for note in counted_notes if notes.count(note)]
        graphs = list(notes.of("graph"))
        self.devices = {note.get("device", "") for note in done if note["op"] not in _MAKING}
        self.devices |= {name for note in graphs for name in note["devices"]}
        types: dict[str, set[str]] = {}
        for note in graphs:
            for name, ops in note.get("types", {}).items():
                types.setdefault(name, set()).update(ops)
        for note in done:
            types.setdefault(note.get("device", ""), set()).add(note["op"])
        self.types = types
        """The types of operation that ran on each device."""
        self.heavy = {name for name, ops in types.items() if any(part in op for op in ops for part in _HEAVY)}
        """The devices on which products or convolutions ran."""
        self.asked: dict[str, set[str]] = {}
        """The types of operation that were asked for on each device."""
        for note in done:
            self.asked.setdefault(note.get("asked", ""), set()).add(note["op"])
        self.gpus = ", ".join(sorted(name for name in self.devices if name.startswith("GPU")))


def _of_scope(device: str, note: Note, notes: Notes, ran: _Ran) -> Effect | None:
    """Return what became of the scopes of one line for a device that there is; None if it is not known, or good."""
    words = (scopes.MADE, scopes.ENTERED, scopes.RAN, scopes.RAN_HERE, scopes.ELSEWHERE, scopes.VARIABLES)
    made, entered, inside, own, elsewhere, variables = (notes.count(note, word) for word in words)
    if elsewhere:
        why = (
            "variables that are made in it are on GPUs: the strategy in whose scope they are made places them, "
            "and makes a copy on each of its devices"
        )
        return Effect(Fate.IGNORED, why, fix.edit_note("make the variable outside of strategy.scope()"))
    is_gpu, types = device.startswith("GPU"), ran.asked.get(device, set())
    again = edit(f"with tf.device('/{device}'):", "around what computes, in the thread that does")
    if is_gpu and variables and ran.types.get(device, set()) <= _MAKING and ran.heavy:
        why = (
            f"variables were made for it, and all products and convolutions ran on {', '.join(sorted(ran.heavy))}: "
            "a layer makes its weights, and a function its graph, at the first call"
        )
        return Effect(
            Fate.OTHER_EFFECT, why, again.replaced(note="around what calls the model, or the function, first")
        )
    if notes.count(note, scopes.TENSORS):  # these are there: tf.constant runs no operation
        return None
    if not made or types - _MAKING or (device in ran.devices if is_gpu else not ran.gpus):
        return None
    on = f"operations ran on {ran.gpus or 'the CPU'}"
    if not entered:
        return Effect(Fate.IGNORED, f"it is called and not entered; {on}", again)
    if not inside:
        return Effect(
            Fate.IGNORED, f"nothing ran while it was open, and it holds for what is called in it; {on}", again
        )
    if is_gpu and not own:
        why = f"what ran while it was open ran in other threads, for which it does not hold; {on}"
        return Effect(Fate.IGNORED, why, again)
    if is_gpu and not types:
        why = f"what ran while it was open is inside of another tf.device, and the inner one holds; {on}"
        return Effect(Fate.IGNORED, why, fix.edit_note("take the inner tf.device out"))
    return None


# Variables


def of_variable(
    name: str, value: str, note: Note | None, notes: Notes, family: Mapping[int, Sequence[Notes]]
) -> Effect | None:
    """Return what became of a variable that TensorFlow does not read, or reads in Python; None: nothing is to be said.

    ``note``: of the line that sets it; None: the process was started with it.
    """
    if not notes.first("tensorflow"):
        return None
    for begins, (program, module, instead) in OTHER_PROGRAMS.items():
        if name.startswith(begins):
            imported = any(
                other["name"] == module for mine in family.values() for process in mine for other in process.of("other")
            )
            named = next((action for part, action in instead.items() if name.endswith(part)), None)
            if imported or (note is None and named is None):
                return None
            return Effect(
                Fate.IGNORED, f"{program} reads it, which this program does not import; TensorFlow does not", named
            )
    if name == DETERMINISTIC and notes.first("initialised"):
        return _of_determinism(value, notes.first("determinism"))
    reads = [read for read in notes.of("read") if read["name"] == name]
    if name == CLUSTER and (wrong := _wrong_keys(reads)) is not None:
        return wrong
    if note is None:
        return None
    later = notes.notes[notes.notes.index(note) + 1 :]
    starts = any(event["k"] == "command" for event in later) or _is_executed(notes, family)
    if name.startswith("NVIDIA_VISIBLE") and not starts:
        why = "the container runtime reads it when the container starts, and nothing in a program does"
        own = edit(f"os.environ['CUDA_VISIBLE_DEVICES'] = {value!r}", "before the first use of TensorFlow")
        return Effect(Fate.IGNORED, why, own)
    if name == "LD_LIBRARY_PATH" and not starts:
        why = "the loader has read it when this process started"
        return Effect(Fate.TOO_LATE, why, export(name, value, "before Python starts"))
    if name in (CLUSTER, "KERAS_BACKEND", "TF_USE_LEGACY_KERAS"):
        effect = _read_by_python(name, note, later, reads, notes)
        is_late = effect is not None and effect.fate == Fate.TOO_LATE
        return None if is_late and is_passed_on(note, notes, family) else effect
    everywhere = [
        event for mine in family.values() for process in mine for event in process.of("read") if event["name"] == name
    ]
    version = str(notes.first("tensorflow").get("version", ""))
    if version.startswith("2.21.") and is_read_by_nothing(name) and not everywhere and not starts:
        why = (
            f"nothing reads it: TensorFlow {version} does not know the name, and no Python of this program asked for it"
        )
        return Effect(Fate.IGNORED, why, instead_of(name))
    return None


def _of_determinism(value: str, answer: Note) -> Effect:
    """Return what became of TF_DETERMINISTIC_OPS, by TensorFlow's answer at the end of the process."""
    if not answer or value.lower() not in ("1", "true"):
        return Effect(Fate.NOT_CHECKED, "TensorFlow was not asked whether operations are deterministic")
    if answer["enabled"]:
        return Effect(Fate.TOOK_EFFECT, "TensorFlow says at the end that operations are deterministic")
    why = "TensorFlow says at the end that operations need not be deterministic: it had read the variable before"
    return Effect(
        Fate.TOO_LATE, why, edit("tf.config.experimental.enable_op_determinism()", "which holds from there on")
    )


def _wrong_keys(reads: Sequence[Note]) -> Effect | None:
    """Return what became of TF_CONFIG if TensorFlow read it and does not know one of its keys."""
    keys: list[str] = next(
        (read["keys"] for read in reversed(reads) if read["by"] == "tensorflow" and read.get("keys")), []
    )
    unknown = [key for key in keys if key not in _CLUSTER_KEYS]
    near = [difflib.get_close_matches(key.lower(), _CLUSTER_KEYS, n=1, cutoff=0.7) for key in unknown]
    if "cluster" in keys and not any(near):
        return None
    meant = next((found[0] for found in near if found), "cluster")
    if not keys or meant in keys:
        return None
    given = ", ".join(map(repr, keys))
    cost = "so this process is the only worker" if meant == "cluster" else "so it is as if it were not there"
    why = f"TensorFlow reads its key {meant!r}, which it does not have: it has {given}; {cost}"
    return Effect(Fate.IGNORED, why, fix.edit_note(f"call the key {meant!r} in TF_CONFIG"))


def _is_executed(notes: Notes, family: Mapping[int, Sequence[Notes]]) -> bool:
    """Return whether the process started another program later, in its own place or as a child."""
    start = notes.notes[0]
    again = any(process.notes[0]["t"] > start["t"] for process in family.get(start.get("pid", 0), ()))
    first = [process.notes[0] for several in family.values() for process in several]
    return again or any(child["parent"] == start.get("pid") and child["how"] == "started" for child in first)


def is_passed_on(note: Note, notes: Notes, family: Mapping[int, Sequence[Notes]]) -> bool:
    """Return whether another program was started with what a note of a variable sets.

    That is a watched process that began with this value, as a child or in the place of this process, or any other
    command that was given no other value. A fork is none: TensorFlow's state is copied with it.
    """
    start, name, value = notes.notes[0], note["name"], note["value"]
    until = next(
        (later["t"] for later in notes.of("variable") if later["name"] == name and later["t"] > note["t"]), math.inf
    )
    starts = [process.notes[0] for several in family.values() for process in several]
    return any(
        start.get("pid") in (begun.get("pid"), begun.get("parent"))
        and (begun["how"], (begun.get("variables") or {}).get(name)) == ("started", value)
        and begun["t"] > note["t"]
        for begun in starts
    ) or any(
        note["t"] <= command["t"] <= until and command["pid"] not in family and name not in (command["given"] or {})
        for command in notes.of("command")
    )


def is_put_back(note: Note, notes: Notes) -> bool:
    """Return whether a note of a variable sets a value that the variable had before: that asks for nothing new."""
    earlier = notes.notes[: notes.notes.index(note)]
    before = {other["value"] for other in earlier if other["k"] == "variable" and other["name"] == note["name"]}
    return note["value"] in {(notes.notes[0].get("variables") or {}).get(note["name"]), *before}


def comes_after_children(note: Note, notes: Notes, family: Mapping[int, Sequence[Notes]]) -> bool:
    """Return whether a process that does not use TensorFlow set a new value after it had started all its processes."""
    if note["value"] is None or is_put_back(note, notes):
        return False
    started = [
        command["t"]
        for command in notes.of("command")
        if any(own.first("tensorflow") for own in family.get(command["pid"], ()))
    ]
    return bool(started) and note["t"] >= max(started) and not notes.first("tensorflow")


def _read_by_python(name: str, note: Note, later: Sequence[Note], reads: Sequence[Note], notes: Notes) -> Effect | None:
    """Return what became of a variable that TensorFlow or Keras reads from os.environ."""
    mine = [read for read in reads if read["by"] in ("tensorflow", "keras")]
    after = [event for event in mine if event in later]
    if note.get("direct") and (mine or notes.first("initialised")):
        why = "os.putenv does not change os.environ, from which it is read"
        return Effect(Fate.IGNORED, why, fix.edit_note(f"assign to os.environ[{name!r}]"))
    if after:
        return None
    if mine:
        who = "Keras" if mine[0]["by"] == "keras" else "TensorFlow"
        where = place(mine[-1]["line"])
        return Effect(Fate.TOO_LATE, f"{who} has read it, at {where}", fix.edit_note(f"move the line before {where}"))
    strategy = notes.first("strategy")
    if name == CLUSTER and strategy and any(event is strategy for event in later):
        why = (
            f"{strategy['what']} at {place(strategy['line'])} has the GPUs of this machine alone, and does not read it"
        )
        return Effect(Fate.IGNORED, why, edit("strategy = tf.distribute.MultiWorkerMirroredStrategy()"))
    return None


def command_of(notes: Notes, family: Mapping[int, Sequence[Notes]]) -> Iterator[Note]:
    """Yield the note of the command with which a process of the program started this one."""
    start = notes.notes[0]
    for parent in family.get(start.get("parent", 0), ()):
        yield from (command for command in parent.of("command") if command["pid"] == start.get("pid"))


def of_parent(notes: Notes, pid: int, family: Mapping[int, Sequence[Notes]]) -> Iterator[Setting]:
    """Yield what the parent set and the process was not given: by os.putenv, or because env= was made without it."""
    start = notes.notes[0]
    variables, parents = start.get("variables") or {}, family.get(start.get("parent", 0), ())
    command = next(command_of(notes, family), None)
    if command is None or command["given"] is None or not notes.first("tensorflow"):
        return
    where, is_user = place(command["line"]), any(parent.first("tensorflow") for parent in parents)
    put = {note["name"]: note for parent in parents for note in parent.of("variable") if note["t"] <= start["t"]}
    for name, note in put.items():
        if note["value"] is None or variables.get(name) == note["value"]:
            continue
        if note.get("direct") and command.get("copy"):
            why = f"os.putenv does not change os.environ, a copy of which process {pid} was given at {where}"
            instead = edit(f"os.environ[{name!r}] = {note['value']!r}")
        elif not is_user and not command.get("copy") and name in GPU_VARIABLES and name not in variables:
            why = f"env= at {where} has no {name}, so process {pid} does not get it"
            instead = edit("env={**os.environ, ...}", f"at {where}")
        else:
            continue
        yield Setting(name, repr(note["value"]), note["line"], Fate.IGNORED, why, instead, pid)


def of_command(note: Note, pid: int) -> Iterator[Setting]:
    """Yield the variables that a shell set for itself alone."""
    for name, value, is_last in note["exported"]:
        why = "this shell sets it and ends: this program and what it starts do not see it"
        instead = edit(f"os.environ[{name!r}] = {value!r}")
        if not is_last:
            why = f"{name}={value} ends with ';' or '&&': it is a variable of the shell, which the commands do not get"
            instead = edit(f"{name}={value} python ...", "a blank before the command, or export")
        yield Setting(name, repr(value), note["line"], Fate.IGNORED, why, instead, pid)


def given_at(notes: Notes, family: Mapping[int, Sequence[Notes]]) -> dict[str, str]:
    """Return the variables that a process was given by the line that started it, each with that line."""
    command = next(command_of(notes, family), None)
    given = command["given"] if command is not None else None
    return {name: command["line"] for name, value in given.items() if value is not None} if command and given else {}
