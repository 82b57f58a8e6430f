"""What became of each GPU option that a process was given: pure, from its notes in their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gpudiag.knowledge.variables import ACCEPTED, ALLOCATOR, FORCE_GROWTH, misspelling_of
from gpudiag.model.program import Setting, place
from gpudiag.tracing.notes import Note, Notes

MASK = "CUDA_VISIBLE_DEVICES"
_READ_AT = {
    "TF_ENABLED_DEVICE_TYPES": "imported",
    MASK: "listed",
    "CUDA_DEVICE_ORDER": "listed",
    "TF_MIN_GPU_MULTIPROCESSOR_COUNT": "listed",
    FORCE_GROWTH: "made",
    ALLOCATOR: "made",
    "TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC": "made",
    "TF_DEVICE_MIN_SYS_MEMORY_IN_MB": "made",
    "TF_FORCE_UNIFIED_MEMORY": "made",
    "TF_GPU_HOST_MEM_LIMIT_IN_MB": "made",
    "TF_GPU_THREAD_COUNT": "made",
    "TF_GPU_THREAD_MODE": "made",
    "TF_PER_DEVICE_MEMORY_LIMIT_MB": "made",
}
"""GPU options among the variables, and the step at which they are read, once (measured, TensorFlow 2.21)."""
_STEPS = ("before", "imported", "listed", "made")
_WORDS = {
    "imported": "TensorFlow reads it when it is imported",
    "listed": "the CUDA driver reads it at the first query of devices",
    "made": "TensorFlow reads it when it makes its devices",
}
_MADE = ("session", "enable_eager_execution")
_GPU_OPTIONS = ("allow_growth", "per_process_gpu_memory_fraction", "allocator_type", "virtual_devices")
"""Options of a session that are fixed by the first in a process."""
_FIRST = "# move the line directly after import tensorflow, before anything that makes a tensor or a model"


@dataclass
class _Steps:
    """How far a process was, and which line took it there."""

    at: dict[str, str] = field(default_factory=dict)
    """Step to line."""
    options: dict[str, Any] = field(default_factory=dict)
    """Those with which the devices were made."""
    maker: str = ""

    @property
    def step(self) -> str:
        return next((step for step in reversed(_STEPS[1:]) if step in self.at), "before")


def judged(notes: Notes, pid: int) -> Iterator[Setting]:
    """Yield the settings of a process in their order, each with what became of it."""
    final = _Steps()
    for note in notes.notes:
        _advance(final, note)
    steps = _Steps()
    found: list[Setting] = []
    started = notes.first("process")
    inherited = started.get("how") == "started"
    for name, value in (started.get("variables") or {}).items() if inherited else ():
        if (one := _variable((name, value), "", steps, final, pid)) is not None:
            found.append(one)
    for note in notes.notes:
        _advance(steps, note)
        if note["k"] == "variable":
            if (one := _variable((note["name"], note["value"]), note["line"], steps, final, pid)) is not None:
                found.append(one)
        elif note["k"] == "setting" and (one := _call(note, steps, final, pid, found)) is not None:
            found.append(one)
    yield from _replaced(found)


def _advance(steps: _Steps, note: Note) -> None:
    """Follow a process to its next step."""
    kind = note["k"]
    if kind == "tensorflow":
        steps.at.setdefault("imported", "")
    elif kind == "listed":
        steps.at.setdefault("listed", note["line"])
    elif kind == "initialised" or (kind == "setting" and note["what"] in ("session", "list_local_devices")):
        if kind == "setting" and note["error"]:
            return
        steps.at.setdefault("listed", note["line"])
        if "made" not in steps.at:
            steps.at["made"] = note["line"]
            steps.options = note["options"] if kind == "initialised" else dict(note["value"])
            steps.maker = "" if kind == "initialised" else note["what"]


def _replaced(found: list[Setting]) -> Iterator[Setting]:
    """Yield the settings; one that took effect only until the same was set again is called ``replaced``."""
    last = {
        (one.what, _target(one)): number
        for number, one in enumerate(found)
        if one.fate == "took effect" and one.what not in _MADE
    }
    for number, one in enumerate(found):
        again = last.get((one.what, _target(one)), number)
        if one.fate == "took effect" and again != number:
            where = place(found[again].line)
            yield _with_fate(one, "replaced", f"set again at {where}")
        else:
            yield one


def _with_fate(one: Setting, fate: str, why: str, instead: str = "") -> Setting:
    return Setting(one.what, one.value, one.line, fate, why, instead, one.process)


def _target(one: Setting) -> str:
    return one.value.partition("=")[0] if "=" in one.value else ""


def _late(step: str, read_at: str) -> bool:
    return _STEPS.index(step) >= _STEPS.index(read_at)


def _variable(pair: tuple[str, str | None], line: str, steps: _Steps, final: _Steps, pid: int) -> Setting | None:
    """Return what became of a variable; None if it is not an option of GPUs."""
    name, value = pair
    shown = "unset" if value is None else repr(value)
    one = Setting(name, shown, line, "took effect", process=pid)
    known = misspelling_of(name)
    if known is not None and value is not None:
        fixed = f"export {known}={value}" if not line else f"os.environ[{known!r}] = {value!r}"
        return _with_fate(one, "misspelt", f"nothing reads {name}", fixed)
    read_at = _READ_AT.get(name)
    if read_at is None:
        return None
    if line and _late(steps.step, read_at):
        where = steps.at.get(read_at, "")
        why = f"{_WORDS[read_at]}{f', at {place(where)}' if where else ''}"
        before = "import tensorflow" if read_at == "imported" else "the first use of TensorFlow"
        return _with_fate(one, "too late", why, f"export {name}={value or ''}  # or set it before {before}")
    accepted = ACCEPTED.get(name)
    if accepted is not None and value is not None and not accepted.reads(value):
        meant = accepted.meant_by(value) or accepted.usual or accepted.words[0]
        return _with_fate(one, "ignored", f"{accepted.read}: {accepted.otherwise}", _set(name, meant, line))
    if not _late(final.step, read_at):
        return _with_fate(one, "not reached", f"TensorFlow never read it: {_WORDS[read_at]}")
    return one


def _set(name: str, value: str, line: str) -> str:
    return f"os.environ[{name!r}] = {value!r}" if line else f"export {name}={value}"


def _call(note: Note, steps: _Steps, final: _Steps, pid: int, before: list[Setting]) -> Setting | None:
    """Return what became of a call; None for one that sets nothing."""
    what, line, error = note["what"], note["line"], note["error"]
    shown = _shown(note)
    one = Setting(what, shown, line, "took effect", process=pid)
    if what == "assigned":
        return Setting(
            note["target"],
            f"= {note['value']}",
            line,
            "ignored",
            "it is a function: the assignment replaces it and sets nothing",
            f"{note['target']}({note['value']})",
            pid,
        )
    if what == "list_local_devices":
        return None
    if error:
        late = "after being initialized" in error or "after initialization" in error
        if late:
            where = steps.at.get("made", "")
            why = f"TensorFlow had made its devices{f' at {place(where)}' if where else ''}: {error}"
            return _with_fate(one, "too late", why, _FIRST)
        return _with_fate(one, "refused", error, _REFUSED.get(what, ""))
    if what in ("session", "enable_eager_execution"):
        return _of_config(note, one, steps, final)
    if what in ("memory_growth", "visible_devices", "logical_devices"):
        return _of_context(note, one, steps, final, before)
    return one


_REFUSED = {
    "memory_growth": f"export {FORCE_GROWTH}=true  # the only way to get growth with logical devices",
}


def _shown(note: Note) -> str:
    target = str(note["target"]).removeprefix("/physical_device:")
    value = note["value"]
    if isinstance(value, dict):
        return ", ".join(f"{name}={one}" for name, one in value.items()) or "no options"
    if isinstance(value, list):
        value = [str(one).removeprefix("/physical_device:") for one in value]
        value = f"[{', '.join(value)}]"
    return f"{target}={value}" if target else str(value)


def _of_context(note: Note, one: Setting, steps: _Steps, final: _Steps, before: list[Setting]) -> Setting:
    what = note["what"]
    if steps.maker and what != "visible_devices":
        where = steps.at["made"]
        why = f"the devices were made by {_MAKERS[steps.maker]} at {place(where)}, with other options"
        return _with_fate(one, "ignored", why, _FIRST)
    if "made" not in final.at:
        return _with_fate(one, "not reached", "TensorFlow made no device")
    if note["stage"] == "initialised":
        return one  # the same value again, which is accepted
    if what == "memory_growth":
        return _of_growth(note, one, final, before)
    if what == "visible_devices":
        devices = [str(device) for device in note["value"]]
        if not note["target"] and devices and all(":GPU:" in device for device in devices):
            return _with_fate(
                one, "refused", "without the type it hides the CPU too", "tf.config.set_visible_devices(gpus, 'GPU')"
            )
        if devices != sorted(devices, key=_index):
            return _with_fate(
                one,
                "ignored",
                "the order is ignored: GPU:0 stays the first GPU",
                f"export {MASK}={','.join(str(_index(device)) for device in devices)}  # in place of the call",
            )
    return one


_MAKERS = {
    "session": "a session",
    "list_local_devices": "device_lib.list_local_devices (tf.test.is_gpu_available calls it)",
}


def _of_growth(note: Note, one: Setting, final: _Steps, before: list[Setting]) -> Setting:
    forced = next((other for other in reversed(before) if other.what == FORCE_GROWTH), None)
    if forced is not None and forced.fate == "took effect" and forced.value in ("'true'", "'false'"):
        meant = "'true'" if note["value"] else "'false'"
        if forced.value != meant:
            where = f"at {place(forced.line)}" if forced.line else "in the environment"
            why = f"{FORCE_GROWTH}={forced.value}, set {where}, comes first"
            return _with_fate(one, "overridden", why, f"unset {FORCE_GROWTH}")
        return one
    allowed = bool(final.options.get("allow_growth"))
    if note["value"] and not allowed:
        split = "virtual_devices" in final.options
        why = "logical devices are configured, and growth is lost" if split else "the devices were made without growth"
        return _with_fate(one, "ignored", why, f"export {FORCE_GROWTH}=true  # holds for every GPU")
    if not note["value"] and allowed:
        return _with_fate(one, "ignored", "growth of the session's options stays on", "# take allow_growth out of them")
    return one


def _of_config(note: Note, one: Setting, steps: _Steps, final: _Steps) -> Setting | None:
    options = note["value"]
    if not options and not note.get("given"):
        return None
    lower = [
        name
        for name in options.get("device_count", {})
        if name not in ("CPU", "GPU") and name.upper() in ("CPU", "GPU")
    ]
    if lower:
        fixed = ", ".join(f"{name.upper()!r}: {options['device_count'][name]}" for name in lower)
        return _with_fate(one, "misspelt", f"device_count has no type {lower[0]!r}", f"device_count={{{fixed}}}")
    mine = {name: options[name] for name in _GPU_OPTIONS if name in options}
    first = {name: final.options[name] for name in _GPU_OPTIONS if name in final.options}
    is_first = steps.at.get("made") == note["line"] and steps.maker == note["what"]
    if note["what"] == "enable_eager_execution":
        if mine and mine != {name: first[name] for name in mine if name in first}:
            why = "eager execution is on already, and the configuration is not read"
            return _with_fate(
                one, "ignored", why, "tf.config.experimental.set_memory_growth(gpu, True)  # and the like"
            )
        return one
    if not is_first and mine != first and (mine or first):
        where = steps.at.get("made", "")
        why = f"the devices were made at {place(where)}, with {_text(first)}; later options of GPUs are not read"
        return _with_fate(one, "ignored", why, "# give the first session of the process these options")
    return one


def _text(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items()) or "other options"


def _index(device: str) -> int:
    last = device.rpartition(":")[2]
    return int(last) if last.isdecimal() else 0
