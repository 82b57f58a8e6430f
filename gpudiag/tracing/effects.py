"""The effect of a GPU option that TensorFlow has read, as it was observed: pure.

Each function compares what an option asks for with what :class:`~gpudiag.tracing.observed.Observed` holds: the cards
that the driver shows, the devices that TensorFlow made, the memory that was taken. What cannot be seen there is not
checked, and why not is said.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from gpudiag.fix import Action, edit, edit_note, export, note, unset
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.knowledge.variables import ALLOCATOR, DEVICE_ORDER, FORCE_GROWTH, GRAPH_FLAGS, THREAD_MODE
from gpudiag.model.program import WITHOUT_EFFECT, place
from gpudiag.model.program import SettingFate as Fate
from gpudiag.tracing.notes import Note
from gpudiag.tracing.observed import Card, Observed, devices_of, gpus_of, layout, mib

MASK = "CUDA_VISIBLE_DEVICES"
NEVER_READ = (*WITHOUT_EFFECT, Fate.NOT_REACHED)
RESERVE, MOST_ALLOCATED = "TF_DEVICE_MIN_SYS_MEMORY_IN_MB", "TF_PER_DEVICE_MEMORY_LIMIT_MB"
_MIB = 1 << 20
_FLAGS = (
    *("tf_xla_auto_jit", "tf_xla_cpu_global_jit", "tf_xla_min_cluster_size", "tf_xla_max_cluster_size"),
    *("tf_xla_enable_xla_devices", "tf_xla_enable_lazy_compilation", "tf_xla_async_compilation"),
    *("tf_xla_clustering_debug", "tf_xla_clustering_fuel", "tf_xla_ops_to_cluster"),
    "tf_xla_persistent_cache_directory",
)
"""The flags in TF_XLA_FLAGS that are used most."""
_AUTO_JIT = re.compile(r"--?tf_xla_auto_jit=(?P<level>[-\w]+)")
_TINY = 64 * _MIB
"""Less than the workspace of one convolution."""
_NEAR = 0.01
"""Share of a card by which a limit may differ that TensorFlow computes from what is free at that moment."""
Variables = Mapping[str, tuple[str, str]]
"""Variables that TensorFlow read: their values, and the lines that set them."""


@dataclass(frozen=True)
class Effect:
    """What became of a setting."""

    fate: Fate
    why: str
    instead: Action | None = None


def of_variable(name: str, value: str, observed: Observed, variables: Variables) -> Effect:
    """Return what a variable did that was read."""
    judge = _OF_VARIABLES.get(name)
    if judge is None:
        return Effect(Fate.NOT_CHECKED, "nothing that a program sees shows what it does")
    return judge(value, observed, variables)


# Which cards a process sees, and in which order


def _of_mask(value: str, observed: Observed, variables: Variables) -> Effect:
    cards = observed.cards
    if cards is None:
        return Effect(Fate.NOT_CHECKED, "the CUDA driver was not loaded")
    entries = [entry.strip() for entry in value.split(",")]
    while len(entries) > 1 and not entries[-1]:
        del entries[-1]
    if not entries[0] or entries[0].startswith("-"):
        if cards:
            return Effect(Fate.IGNORED, f"the CUDA driver shows {_number(cards)}")
        if not observed.machine:
            return Effect(Fate.NOT_CHECKED, "NVML lists no GPU that it could hide")
        if value.strip() and not entries[0]:
            shown = f"the CUDA driver shows none of {_number(list(observed.machine))}"
            why = f"its first entry is empty, and the list ends there: {shown}"
            return Effect(Fate.OTHER_EFFECT, why, note("give it numbers of GPUs, such as '0' or '0,1'"))
        return Effect(Fate.TOOK_EFFECT, f"the CUDA driver shows none of {_number(list(observed.machine))}")
    if not cards and not observed.machine:
        return Effect(Fate.NOT_CHECKED, "neither the CUDA driver nor NVML lists a GPU")
    if len(cards) > len(entries):
        return Effect(Fate.IGNORED, f"the CUDA driver shows {_number(cards)}")
    if len(cards) < len(entries):
        return _of_short_mask(entries, cards, observed)
    return _of_entries(entries, cards, observed, variables)


def _of_short_mask(entries: Sequence[str], cards: Sequence[Card], observed: Observed) -> Effect:
    """Return the effect of a mask that names more GPUs than the driver shows."""
    real = {str(card.index) for card in observed.machine.values()}
    last, named = entries[len(cards)], [entry for entry in entries if entry]
    because = "" if last in real else f": the list ends at {last!r}, which this machine does not have"
    if not last:
        because = ": the list ends at its first empty entry"
    elif not cards and len(set(named)) < len(named):
        because = ": a GPU that is named twice hides all"
    numbers = re.findall(r"\d+", ",".join(entries))
    if numbers and "0" not in numbers and all(str(int(number) - 1) in real for number in numbers):
        numbers = [str(int(number) - 1) for number in numbers]  # they were counted from 1
    kept = list(dict.fromkeys(number for number in numbers if number in real))
    instead = export(MASK, ",".join(kept)) if kept else unset(MASK)
    why = f"it names {len(named)}, and the CUDA driver shows {_number(cards)}{because}"
    return Effect(Fate.OTHER_EFFECT, why, instead)


def _of_entries(entries: Sequence[str], cards: Sequence[Card], observed: Observed, variables: Variables) -> Effect:
    """Return the effect of a mask that names as many GPUs as the driver shows: are they the same?"""
    known = {str(card.index): card for card in observed.machine.values()}
    for written, card in zip(entries, cards, strict=True):
        entry = str(int(written)) if written.isdecimal() else written
        if entry.upper().startswith(("GPU-", "MIG-")):
            if not card.uuid.startswith(entry[4:].lower()):
                return Effect(Fate.NOT_CHECKED, f"{entry} is shown as {card.pci}, whose UUID is {card.uuid}")
        elif not known:
            why = f"the CUDA driver shows {_named(cards)}; NVML, which numbers them, does not answer"
            return Effect(Fate.NOT_CHECKED, why)
        elif entry not in known:
            return Effect(Fate.NOT_CHECKED, f"NVML has no GPU {entry}; the CUDA driver shows {_named(cards)}")
        elif known[entry].pci != card.pci:
            other = observed.machine.get(card.pci)
            number = f", which nvidia-smi calls {other.index}" if other else ""
            why = f"{entry} is {card.pci}{number}: CUDA counts the fastest GPU first"
            if variables.get(DEVICE_ORDER, ("",))[0] == "PCI_BUS_ID":
                return Effect(Fate.NOT_CHECKED, f"{entry} is {card.pci}{number}")
            return Effect(Fate.OTHER_EFFECT, why, export(DEVICE_ORDER, "PCI_BUS_ID"))
    return Effect(Fate.TOOK_EFFECT, f"the CUDA driver shows {_named(cards)}")


def _of_order(value: str, observed: Observed, variables: Variables) -> Effect:
    cards = observed.cards
    if cards is None or value != "PCI_BUS_ID":
        return Effect(Fate.NOT_CHECKED, "which GPU CUDA takes for the fastest is not known")
    mask = variables.get(MASK)
    if mask is not None:
        entries = [entry.strip() for entry in mask[0].split(",")]
        known = {str(card.index): card.pci for card in observed.machine.values()}
        expected = list(takewhile(bool, (known.get(entry, "") for entry in entries)))  # where the list ends
        if not expected:
            return Effect(Fate.NOT_CHECKED, f"{MASK}={mask[0]} names no GPU by its number in nvidia-smi")
    elif len(cards) < 2:
        return Effect(Fate.NOT_CHECKED, f"the CUDA driver shows {_number(cards)}")
    else:
        expected = sorted(card.pci for card in cards)
    shown = [card.pci for card in cards]
    if shown == expected and (mask is None or len(expected) == len(entries)):
        return Effect(Fate.TOOK_EFFECT, f"the CUDA driver shows {', '.join(shown)}")
    return Effect(Fate.NOT_CHECKED, f"the CUDA driver shows {', '.join(shown) or 'no GPU'}")


def _of_types(value: str, observed: Observed, _: Variables) -> Effect:
    if observed.physical is None:
        return Effect(Fate.NOT_CHECKED, "the program listed no devices")
    wanted = "GPU" in [entry.strip() for entry in value.split(",")]
    if observed.physical and wanted:
        return Effect(Fate.TOOK_EFFECT, f"TensorFlow lists {_number(observed.physical)}")
    if observed.physical:
        return Effect(Fate.IGNORED, f"TensorFlow lists {_number(observed.physical)}")
    if wanted or not observed.machine:
        return Effect(Fate.NOT_CHECKED, "TensorFlow lists no GPU")
    return Effect(Fate.TOOK_EFFECT, f"TensorFlow lists none of {_number(list(observed.machine))}")


def _of_multiprocessors(value: str, observed: Observed, _: Variables) -> Effect:
    try:
        least = int(value)
    except ValueError:
        return Effect(Fate.IGNORED, "it is not a number, and TensorFlow uses its default")
    if least < 0:
        return Effect(Fate.IGNORED, "it is negative, and TensorFlow uses its default")
    if not observed.cards or observed.physical is None:
        return Effect(Fate.NOT_CHECKED, "the CUDA driver shows no GPU")
    kept = [card for card in observed.cards if card.multiprocessors >= least]
    if len(kept) != len(observed.physical):
        return Effect(Fate.NOT_CHECKED, f"TensorFlow lists {_number(observed.physical)}")
    return Effect(Fate.TOOK_EFFECT, f"TensorFlow lists {_number(observed.physical)} of {_number(observed.cards)}")


def of_visible_devices(note: Note, observed: Observed) -> Effect:
    """Return what tf.config.set_visible_devices did."""
    names = [str(name) for name in note["value"]]
    gpus = [name for name in names if ":GPU:" in name]
    kind = str(note["target"])
    if kind.upper() == "CPU":
        has = "CPU:0" in observed.devices
        return Effect(
            Fate.TOOK_EFFECT if has == bool(names) else Fate.IGNORED, f"TensorFlow made {_devices(observed.devices)}"
        )
    if kind and kind.upper() != "GPU":
        return Effect(Fate.NOT_CHECKED, f"devices of type {kind} were not looked at")
    made = f"TensorFlow made {_devices(observed.gpus)}"
    if observed.physical is None or (not observed.physical and not gpus):
        return Effect(Fate.NOT_CHECKED, "TensorFlow lists no GPU that it could hide")
    if gpus != sorted(gpus, key=_index):
        order = ",".join(str(_index(name)) for name in gpus)
        why = "the order is ignored: GPU:0 stays the first GPU"
        return Effect(Fate.IGNORED, why, export(MASK, order, "in place of the call"))
    if not gpus:
        if not observed.gpus:
            return Effect(Fate.TOOK_EFFECT, made)
        upper = ": the type is 'GPU', in upper case" if kind and kind != "GPU" else ""
        return Effect(Fate.IGNORED, f"{made}{upper}", edit("tf.config.set_visible_devices([], 'GPU')"))
    ordinals = {observed.card_of_physical(name) for name in gpus}
    if not observed.layout or None in ordinals:
        return Effect(Fate.NOT_CHECKED, f"{made}; which cards these are is not known")
    if set(observed.layout.values()) != ordinals:
        return Effect(Fate.OTHER_EFFECT, _on_cards(observed))
    return Effect(Fate.TOOK_EFFECT, _on_cards(observed))


# Limits of memory


def of_logical_devices(note: Note, observed: Observed) -> Effect:
    """Return what tf.config.set_logical_device_configuration did: the devices, and their limits."""
    limits = note["value"]
    made = f"TensorFlow made {_devices(observed.devices)}"
    if ":GPU:" not in note["target"]:
        number = sum(name.startswith("CPU:") for name in observed.devices)
        return Effect(Fate.TOOK_EFFECT if number == len(limits) else Fate.IGNORED, made)
    ordinal = observed.card_of_physical(str(note["target"]))
    if ordinal is None or observed.cards is None:
        return Effect(Fate.NOT_CHECKED, f"{made}; which cards these are is not known")
    if (hidden := of_hidden_card(note, observed)) is not None:
        return hidden
    names = observed.on_card(ordinal)
    if not names:
        return Effect(Fate.NOT_CHECKED, f"{made}; which cards these are is not known")
    actual = [observed.devices[name] // _MIB for name in names]
    if actual != [int(limit) for limit in limits]:
        return Effect(Fate.OTHER_EFFECT, f"{_limits(observed.devices, names)}")
    return _within_card(
        [int(limit) * _MIB for limit in limits], observed.cards[ordinal], _limits(observed.devices, names)
    )


def of_hidden_card(note: Note, observed: Observed) -> Effect | None:
    """Return what becomes of an option of a GPU on which TensorFlow makes no device, although it does on others."""
    ordinals = {name: observed.card_of_physical(name) for name in observed.physical or ()}
    cards, own = observed.cards or (), ordinals.get(str(note["target"]))
    visible = [name for name, ordinal in ordinals.items() if ordinal is not None and cards[ordinal].is_open]
    if own is None or cards[own].is_open or not visible:
        return None
    why = f"TensorFlow made {_devices(observed.devices)}: none on {cards[own].pci}, which is not visible"
    alike = (other["target"] for other in observed.notes.of("setting") if other["what"] == note["what"])
    if any(target in visible for target in alike):  # it was set for each GPU, before some were hidden
        return Effect(Fate.NOT_CHECKED, why)
    instead = edit(f"tf.config.list_physical_devices('GPU')[{_index(visible[0])}]", "the GPU that is visible")
    return Effect(Fate.IGNORED, why, instead)


def _within_card(limits: Sequence[int], card: Card, as_made: str) -> Effect:
    """Return whether a card has the memory that its devices may take."""
    total = sum(limits)
    for limit in limits:
        if limit > card.total and _MIB <= limit // _MIB <= card.total:  # bytes, where MiB were meant
            why = f"memory_limit is in MiB: {mib(limit)} of a card with {mib(card.total)}, so nothing is limited"
            return Effect(Fate.OTHER_EFFECT, why, edit(f"memory_limit={limit // _MIB // _MIB}", "MiB"))
    tiny = min(limits, default=_TINY)
    if tiny < _TINY:
        why = f"memory_limit is in MiB: {mib(tiny)} of a card with {mib(card.total)}, which few programs fit into"
        meant = tiny // _MIB * 1024
        fits = meant * _MIB * len(limits) <= card.total
        return Effect(Fate.OTHER_EFFECT, why, edit(f"memory_limit={meant}", "MiB, if GiB are meant") if fits else None)
    room = card.total if card.free is None else card.free
    if total <= room:
        return Effect(Fate.TOOK_EFFECT, as_made)
    has = f"{mib(card.total)}" if card.free is None else f"{mib(card.free)} free of {mib(card.total)}"
    why = f"{as_made}: {mib(total)} in all, and the card has {has}; what is missing fails when a tensor needs it"
    return Effect(Fate.OTHER_EFFECT, why, note(f"limits of at most {room // _MIB:,} MiB in all"))


def _of_fraction(value: float, devices: Mapping[str, int], where: Mapping[str, Card], variables: Variables) -> Effect:
    if not value:
        return Effect(Fate.IGNORED, "0 is the same as nothing")
    if not where:
        return Effect(Fate.NOT_CHECKED, "which cards its devices are on is not known")
    as_made = _limits(devices, list(where))
    for name, card in where.items():
        if abs(devices[name] - int(card.total * value)) > max(2 * _MIB, _NEAR * card.total):
            if RESERVE not in variables:
                return Effect(Fate.IGNORED, as_made)
            why = f"{as_made}: {RESERVE}={variables[RESERVE][0]} comes first"
            return Effect(Fate.OVERRIDDEN, why, unset(RESERVE))
    for name, card in where.items():
        if value <= 1 and card.free is not None and devices[name] > card.free:
            why = f"{as_made}, and {mib(card.free)} are free: another process, or a context, holds the rest"
            return Effect(
                Fate.OTHER_EFFECT, why, note(f"a fraction of at most {int(100 * card.free / card.total) / 100:.2f}")
            )
    return Effect(Fate.TOOK_EFFECT, as_made)


def _of_reserve(value: str, observed: Observed, _: Variables) -> Effect:
    """Return what TF_DEVICE_MIN_SYS_MEMORY_IN_MB did: a limit is what was free, less the reserve."""
    cards = observed.cards or ()
    found = {name: cards[ordinal] for name, ordinal in observed.layout.items()}
    left = [(observed.devices[name], card.total, card.free) for name, card in found.items() if card.free is not None]
    if not left or not value.strip().isdecimal():
        return Effect(Fate.NOT_CHECKED, "what was free is not known")
    reserve, as_made = int(value) * _MIB, _limits(observed.devices, list(found))
    if any(reserve > free for _, _, free in left):
        return Effect(Fate.IGNORED, f"{as_made}: less than the reserve was free, and it is ignored")
    if all(abs(free - reserve - limit) <= _NEAR * total for limit, total, free in left):
        return Effect(Fate.TOOK_EFFECT, f"{as_made}, of {', '.join(mib(free) for _, _, free in left)} free")
    return Effect(Fate.NOT_CHECKED, as_made)


def _of_cap(value: str, observed: Observed, variables: Variables) -> Effect:
    """Return what TF_PER_DEVICE_MEMORY_LIMIT_MB did: without growth it is what TensorFlow takes at once."""
    if not value.strip().isdecimal() or not int(value):
        return Effect(Fate.NOT_CHECKED, "which limit that is, is not known")
    if (
        observed.options.get("allow_growth")
        or variables.get(FORCE_GROWTH, ("",))[0] == "true"
        or ALLOCATOR in variables
    ):
        return Effect(Fate.NOT_CHECKED, "memory is taken as it is needed")
    cap = int(value) * _MIB
    taken = {name: bytes_taken for name in observed.gpus if (bytes_taken := observed.taken(name)) is not None}
    bound = {name: number for name, number in taken.items() if observed.devices[name] > cap}
    if not bound:
        return Effect(Fate.NOT_CHECKED, "nothing was allocated on a GPU whose own limit is higher")
    as_taken = ", ".join(f"{mib(number)} were taken for {name}" for name, number in bound.items())
    return Effect(Fate.TOOK_EFFECT if max(bound.values()) <= cap else Fate.NOT_CHECKED, as_taken)


def _of_thread_count(value: str, _: Observed, variables: Variables) -> Effect:
    """Return what TF_GPU_THREAD_COUNT did: TensorFlow asks for it in two of three modes alone (measured, 2.21)."""
    if variables.get(THREAD_MODE, ("global",))[0].lower() in ("", "global"):
        why = f"TensorFlow reads it only if {THREAD_MODE} is gpu_private or gpu_shared"
        return Effect(Fate.IGNORED, why, export(THREAD_MODE, "gpu_private"))
    return Effect(Fate.NOT_CHECKED, "nothing that a program sees shows what it does")


def of_refused_flags(value: str) -> Effect | None:
    """Return why TensorFlow ended the process when it read TF_XLA_FLAGS; None if that is not known (measured, 2.21)."""
    words = value.split()
    if words and not words[0].startswith("-"):
        why = "it does not begin with --: TensorFlow takes it for the name of a file, and ends the process"
        return Effect(Fate.REFUSED, why, export(GRAPH_FLAGS, " ".join("--" + word.lstrip("-") for word in words)))
    for word in words:
        flag, is_set, _ = word.lstrip("-").partition("=")
        near = difflib.get_close_matches(flag, _FLAGS, n=1)
        if (flag not in _FLAGS and near) or (flag == "tf_xla_auto_jit" and not is_set):
            why = f"TensorFlow does not know the flag {word}, and ends the process"
            right = "--tf_xla_auto_jit=2" if "jit" in flag else f"--{near[0]}"
            return Effect(Fate.REFUSED, why, export(GRAPH_FLAGS, right))
    return None


def _of_graph_flags(value: str, observed: Observed, _: Variables) -> Effect:
    """Return what TF_XLA_FLAGS did: whether XLA compiled parts of functions that were not to be compiled as a whole."""
    level = _AUTO_JIT.search(value)
    if "tf_xla_cpu_global_jit" in value and level is None:
        why = "tf_xla_cpu_global_jit is about what tf_xla_auto_jit does on the CPU, and that is not set"
        return Effect(Fate.IGNORED, why, export(GRAPH_FLAGS, f"--tf_xla_auto_jit=2 {value.strip()}"))
    if level is None or level["level"] in ("0", "-1"):
        return Effect(Fate.NOT_CHECKED, "nothing that a program sees shows what it does")
    clusters = [note["clusters"] for note in observed.notes.of("graph") if note["clusters"] is not None]
    if any(clusters):
        return Effect(Fate.TOOK_EFFECT, f"XLA compiled {sum(clusters)} parts of functions")
    if clusters and not observed.gpus and "tf_xla_cpu_global_jit" not in value:
        why = "the functions ran on the CPU, and XLA compiles parts of these only with tf_xla_cpu_global_jit"
        return Effect(Fate.IGNORED, why, export(GRAPH_FLAGS, f"{value.strip()} --tf_xla_cpu_global_jit"))
    return Effect(Fate.NOT_CHECKED, "no function ran of which XLA compiled a part")


# Growth


def of_growth(note: Note, observed: Observed, variables: Variables) -> Effect:
    """Return what tf.config.experimental.set_memory_growth did on its GPU."""
    ordinal = observed.card_of_physical(str(note["target"]))
    if ordinal is None:
        return Effect(Fate.NOT_CHECKED, "which card this is, is not known")
    names = observed.on_card(ordinal)
    if not names:
        return Effect(Fate.NOT_CHECKED, "TensorFlow made no device on this GPU")
    return _growth(names, observed, variables, wanted=bool(note["value"]))


def _of_forced_growth(value: str, observed: Observed, variables: Variables) -> Effect:
    return _growth(observed.gpus, observed, variables, wanted=value == "true")


def _growth(names: Sequence[str], observed: Observed, variables: Variables, *, wanted: bool) -> Effect:
    """Return whether the memory that was taken shows the growth that was asked for."""
    if not names:
        return Effect(Fate.NOT_CHECKED, "TensorFlow made no GPU device")
    for name in (ALLOCATOR, MOST_ALLOCATED):
        if variables.get(name, ("",))[0]:
            return Effect(Fate.NOT_CHECKED, f"with {name} memory does not show it")
    found = list(observed.growth(names))
    against = next((growth for growth in found if growth.grows is (not wanted)), None)
    if against is not None:
        return Effect(Fate.IGNORED, against.why)
    shown = next((growth for growth in found if growth.grows is wanted), None)
    if shown is not None:
        return Effect(Fate.TOOK_EFFECT, shown.why)
    return Effect(Fate.NOT_CHECKED, found[0].why)


# Options of sessions


def of_option(name: str, value: Any, observed: Observed, made: Note, variables: Variables) -> Effect:
    """Return what an option of a session did, whose devices are in the note ``made``."""
    if not made.get("devices"):
        return Effect(Fate.NOT_CHECKED, "which devices it has is not known")
    devices = devices_of(made)
    gpus = gpus_of(devices)
    cards = observed.cards_at(made)
    ordinals = layout(dict(made.get("options", {})), gpus, cards)
    where = {device: cards[ordinal] for device, ordinal in ordinals.items()}
    if name == "per_process_gpu_memory_fraction":
        return _of_fraction(float(value), devices, where, variables)
    if name == "allow_growth":
        return _growth(gpus, observed, variables, wanted=bool(value))
    if name == "device_count":
        return _of_device_count(value, devices)
    if name == "virtual_devices":
        return _of_virtual_devices(value, devices, where)
    if name == "visible_device_list":
        return _of_visible_list(str(value), devices, where, ordinals)
    if name == "allow_soft_placement":
        return of_switch({**made, "what": "soft_device_placement", "value": value}, observed)
    return Effect(Fate.NOT_CHECKED, "nothing that a program sees shows what it does")


def _of_device_count(value: Mapping[str, int], devices: Mapping[str, int]) -> Effect:
    made = f"TensorFlow made {_devices(devices)}"
    for kind, number in value.items():
        actual = sum(name.startswith(f"{kind}:") for name in devices)
        if kind not in ("CPU", "GPU"):
            return Effect(Fate.NOT_CHECKED, made)
        if actual != number and not (kind == "CPU" and not number):  # 0 of CPU: as many as without it
            return Effect(Fate.OTHER_EFFECT, f"{made}: {actual} of the {number} of type {kind}")
    return Effect(Fate.TOOK_EFFECT, made)


def _of_virtual_devices(
    value: Sequence[Sequence[float]], devices: Mapping[str, int], where: Mapping[str, Card]
) -> Effect:
    names = gpus_of(dict(devices))
    limits = [int(limit) for limits in value for limit in limits]
    as_made = _limits(devices, names)
    if not limits or len(limits) != len(names) or not where:
        return Effect(Fate.NOT_CHECKED, as_made or "no GPU device was made")
    if [devices[name] // _MIB for name in names] != limits:
        return Effect(Fate.OTHER_EFFECT, as_made)
    for card in dict.fromkeys(where.values()):
        mine = [devices[name] for name, other in where.items() if other == card]
        if (effect := _within_card(mine, card, as_made)).fate != Fate.TOOK_EFFECT:
            return effect
    return Effect(Fate.TOOK_EFFECT, as_made)


def _of_visible_list(
    value: str, devices: Mapping[str, int], where: Mapping[str, Card], ordinals: Mapping[str, int]
) -> Effect:
    made = f"TensorFlow made {_devices(gpus_of(dict(devices)))}"
    wanted = [int(entry) for entry in value.split(",") if entry.strip().isdecimal()]
    if not where or not wanted:
        return Effect(Fate.NOT_CHECKED, made)
    if set(ordinals.values()) != set(wanted):
        return Effect(Fate.OTHER_EFFECT, made)
    if wanted != sorted(wanted):
        return Effect(Fate.NOT_CHECKED, f"{made}; in which order is not seen")
    return Effect(Fate.TOOK_EFFECT, f"{made}: {', '.join(dict.fromkeys(card.pci for card in where.values()))}")


# Switches, which show in what ran


def of_switch(note: Note, observed: Observed) -> Effect:
    """Return what a property of the context did, or a function that sets one."""
    judge = _OF_SWITCHES.get(note["what"])
    if judge is None:
        return Effect(Fate.NOT_CHECKED, "nothing that a program sees shows what it does")
    at = next((number for number, later_note in enumerate(observed.notes.notes) if later_note["t"] >= note["t"]), 0)
    return judge(note, observed.notes.notes[at:])


def _of_soft_placement(note: Note, later: Sequence[Note]) -> Effect:
    fell = any(_fell_back(entry) for entry in later if entry["k"] == "counter" and entry["what"] == "op")
    fell_inside = any(
        row[3] == "yes" and "GPU" in row[2] for entry in later if entry["k"] == "graph" for row in entry["cpu"]
    )
    refused = any(
        "Could not satisfy device specification" in entry["message"] for entry in later if entry["k"] == "error"
    )
    if note["value"] and (fell or fell_inside):
        return Effect(Fate.TOOK_EFFECT, "operations ran on another device than they asked for")
    if not note["value"] and refused:
        return Effect(Fate.TOOK_EFFECT, "an operation that could not run where it was asked for was refused")
    return Effect(Fate.NOT_CHECKED, "no operation asked for a device that it could not have")


def _fell_back(counter: Note) -> bool:
    """Return whether an operation ran elsewhere: there is no such GPU, or TensorFlow has no kernel for it there."""
    return counter["kernel"] == "asked" or (counter["kernel"] in ("cpu only", "type") and "GPU" in counter["asked"])


def _of_eager_functions(note: Note, later: Sequence[Note]) -> Effect:
    counters = {entry["what"] for entry in later if entry["k"] == "counter"}
    if note["value"] and "function" not in counters and "op" in counters:
        return Effect(Fate.TOOK_EFFECT, "operations ran, and no function as a graph")
    if not note["value"] and "function" in counters:
        return Effect(Fate.TOOK_EFFECT, "functions ran as graphs")
    return Effect(Fate.NOT_CHECKED, "functions ran as graphs, too" if "function" in counters else "no function ran")


def _of_debug_mode(_: Note, later: Sequence[Note]) -> Effect:
    if any(counter["k"] == "counter" and "Dataset" in counter["op"] for counter in later):
        return Effect(Fate.TOOK_EFFECT, "datasets were made after it")
    return Effect(Fate.NOT_CHECKED, "no dataset was made after it")


def of_failed_devices(note: Note, failed: Note) -> Effect:
    """Return what became of a setting if TensorFlow could not make its devices: is it to blame?"""
    error = f"TensorFlow could not make its devices at {place(failed['line'])}: {failed['error']}"
    what, names = note["what"], note["value"]
    if what == "memory_growth" and "growth cannot differ" in error:
        every = edit(api.GROWTH_FOR_EACH, "every GPU, or none")
        return Effect(Fate.REFUSED, error, every)
    hides_cpu = what == "visible_devices" and not any(":CPU:" in str(name) for name in names)
    if hides_cpu and note["target"].upper() != "GPU" and "No CPU devices" in error:
        return Effect(Fate.REFUSED, f"without the type 'GPU' it hides the CPU, too: {error}", _VISIBLE_GPUS)
    if what == "logical_devices" and not names and "Not enough GPUs" in error:
        return Effect(Fate.REFUSED, error, edit("tf.config.set_visible_devices([], 'GPU')", "to use none"))
    return Effect(Fate.NOT_REACHED, error)


_VISIBLE_GPUS = edit_note("give it the type, too, as the second argument: 'GPU'")
_OF_VARIABLES: dict[str, Callable[[str, Observed, Variables], Effect]] = {
    MASK: _of_mask,
    DEVICE_ORDER: _of_order,
    "TF_ENABLED_DEVICE_TYPES": _of_types,
    "TF_MIN_GPU_MULTIPROCESSOR_COUNT": _of_multiprocessors,
    FORCE_GROWTH: _of_forced_growth,
    RESERVE: _of_reserve,
    MOST_ALLOCATED: _of_cap,
    "TF_GPU_THREAD_COUNT": _of_thread_count,
    GRAPH_FLAGS: _of_graph_flags,
}
_OF_SWITCHES: dict[str, Callable[[Note, Sequence[Note]], Effect]] = {
    "soft_device_placement": _of_soft_placement,
    "enable_debug_mode": _of_debug_mode,
    "run_functions_eagerly": _of_eager_functions,
    "run_eagerly": _of_eager_functions,
}


def _number(several: Sequence[Any]) -> str:
    return f"{len(several) or 'no'} GPU{'' if len(several) == 1 else 's'}"


def _named(cards: Sequence[Card]) -> str:
    return ", ".join(card.pci for card in cards)


def _devices(names: Any) -> str:
    shown = list(names)
    return ", ".join(shown) if shown else "no GPU"


def _on_cards(observed: Observed) -> str:
    cards = observed.cards or ()
    return ", ".join(f"{name} on {cards[ordinal].pci}" for name, ordinal in observed.layout.items())


def _limits(devices: Mapping[str, int], names: Sequence[str]) -> str:
    return ", ".join(f"{name} may take {mib(devices[name])}" for name in names)


def _index(device: str) -> int:
    last = device.rpartition(":")[2]
    return int(last) if last.isdecimal() else 0
