"""What became of each GPU option that a process was given: pure, from its notes in their order.

What is known of TensorFlow says why an option cannot have its effect: it came too late, its name is misspelt, it was
refused. That an option took effect is only said if :mod:`.effects` finds what it asks for in what was observed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from gpudiag import fix
from gpudiag.fix import Action, edit, export, unset
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.knowledge.variables import ACCEPTED, ALLOCATOR, FORCE_GROWTH, GRAPH_FLAGS, misspelling_of
from gpudiag.model.program import Booked, Setting, place
from gpudiag.model.program import SettingFate as Fate
from gpudiag.tracing import effects, requests
from gpudiag.tracing.effects import MASK, Effect
from gpudiag.tracing.notes import Note, Notes
from gpudiag.tracing.observed import Observed, as_made

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
    GRAPH_FLAGS: "listed",
    "XLA_FLAGS": "made",
}
"""GPU options among the variables, and the step at which they are read, once (measured, TensorFlow 2.21)."""
_STEPS = ("before", "imported", "listed", "made")
_WORDS = {
    "imported": "TensorFlow reads it when it is imported",
    "listed": "{reader} reads it at the first query of devices",
    "made": "TensorFlow reads it when it makes its devices",
}
_SESSIONS = ("session", "server", "enable_eager_execution")
_CONTEXT = ("memory_growth", "visible_devices", "logical_devices")
_GPU_OPTIONS = ("allow_growth", "per_process_gpu_memory_fraction", "allocator_type", "virtual_devices")
"""Options of a session that are fixed by the first in a process."""
_FIRST = fix.note("move the line directly after import tensorflow, before anything that makes a tensor or a model")
_SPAWN = edit("multiprocessing.get_context('spawn')", "start the process by it: a fork has the devices of its parent")
_TO_MAKER = fix.note(
    "give these options to what made the devices: the first session, or config= of tf.distribute.Server"
)
_ONE_LIST = edit(
    "with tf.device('/GPU:1'):",
    "around what is to run there: all sessions of a process have the devices of the first, so give each the same list",
)
_REFUSED = {
    "when virtual devices configured": export(FORCE_GROWTH, "true", "the only way to get growth with logical devices"),
    "Unrecognized device: [": edit(api.GROWTH_FOR_EACH, "one GPU a call, not a list"),
}
"""What to do about a growth that TensorFlow refuses, by a part of its error."""
_MAKERS = {
    "session": "a session",
    "server": "tf.distribute.Server",
    "list_local_devices": "device_lib.list_local_devices (tf.test.is_gpu_available calls it)",
}


@dataclass
class _Steps:
    """How far a process was, and which line took it there."""

    at: dict[str, str] = field(default_factory=dict)
    """Step to line."""
    options: dict[str, Any] = field(default_factory=dict)
    """The options with which the devices were made."""
    maker: str = ""
    given: bool = False
    """The devices were made by a session that was given a ConfigProto: it does not read tf.config."""
    error: Note = field(default_factory=dict)
    """The first note of an error with which TensorFlow could not make its devices."""

    @property
    def step(self) -> str:
        return next((step for step in reversed(_STEPS[1:]) if step in self.at), "before")

    def has_reached(self, step: str) -> bool:
        return _STEPS.index(self.step) >= _STEPS.index(step)

    def follow(self, note: Note) -> None:
        """Follow a process to its next step."""
        kind = note["k"]
        if kind == "process" and note["how"] == "forked":
            if note.get("stage") in ("listed", "initialised"):
                self.at.update(imported="", listed="")
            if note.get("stage") == "initialised":
                self.at["made"] = ""
        elif kind == "tensorflow":
            self.at.setdefault("imported", "")
        elif kind == "listed":
            self.at.setdefault("listed", note["line"])
        elif kind == "not_made":
            self.error = self.error or note
        elif kind == "initialised" or (kind == "setting" and note["what"] in _MAKERS and not note["error"]):
            self.at.setdefault("listed", note["line"])
            if "made" not in self.at:
                self.at["made"] = note["line"]
                self.options = dict(note["options"] if "options" in note else note["value"])
                self.maker = "" if kind == "initialised" else note["what"]
                self.given = bool(note.get("given"))


def judged(
    notes: Notes, pid: int, machine: Sequence[Booked] = (), family: Mapping[int, Sequence[Notes]] | None = None
) -> Iterator[Setting]:
    """Yield the settings of a process in their order, each with what became of it.

    ``machine`` is what NVML says, ``family`` has the notes of all processes of the program by their ids: of a process
    that executed another program in its place there are several.
    """
    yield from _replaced(list(_Judge(notes, pid, machine, family or {pid: [notes]}).settings()))


def _replaced(found: list[Setting]) -> Iterator[Setting]:
    """Yield the settings; one that was set again before it was read is ``replaced``, by another file ``overridden``."""
    last: dict[tuple[str, str], int] = {}
    for number, one in enumerate(found):
        if one.fate not in effects.NEVER_READ and one.what in (*_READ_AT, *_CONTEXT):
            key = (one.what, _target(one))
            if key not in last or found[last[key]].value != one.value:  # an equal one changes nothing
                last[key] = number
    for number, one in enumerate(found):
        again = last.get((one.what, _target(one)), number)
        if one.fate not in effects.NEVER_READ and again > number:
            yield _with(one, _again(one.line, one.value, found[again]))
        else:
            yield one


def _again(line: str, value: str, last: Setting) -> Effect:
    """Return the effect of a setting that ``last`` replaced before it was read."""
    again = place(last.line)
    by_other_file = line and last.line and line.rpartition(":")[0] != last.line.rpartition(":")[0]
    if not by_other_file or value == last.value:
        return Effect(Fate.REPLACED, f"set again at {again}")
    if not last.by_import:
        return Effect(Fate.OVERRIDDEN, f"{again} sets it to {last.value} later", fix.note(f"take it out of {again}"))
    why = f"{again} sets it to {last.value} later, when {place(last.by_import)} imports that file"
    return Effect(Fate.OVERRIDDEN, why, fix.note(f"move the line behind {place(last.by_import)}, or take out {again}"))


def _target(one: Setting) -> str:
    return one.value.partition("=")[0] if "=" in one.value else ""


def _with(one: Setting, effect: Effect) -> Setting:
    return msgspec.structs.replace(one, fate=effect.fate, why=effect.why, instead=effect.instead)


class _Judge:
    """Judges the settings of one process."""

    def __init__(
        self, notes: Notes, pid: int, machine: Sequence[Booked], family: Mapping[int, Sequence[Notes]]
    ) -> None:
        self.notes = notes
        self.family = family
        self.pid = pid
        self.observed = Observed(notes, pid, machine)
        self.steps = _Steps()
        self.final = _Steps()
        self.last_set: dict[str, Note] = {}
        """For each variable, the note that sets the value with which it is read."""
        for note in notes.notes:
            self.final.follow(note)
            if note["k"] == "variable" and not self.final.has_reached(_READ_AT.get(note["name"], "made")):
                before = self.last_set.get(note["name"])
                if before is None or before["value"] != note["value"]:  # an equal one changes nothing
                    self.last_set[note["name"]] = note
        self.variables = _variables_read(notes)

    def settings(self) -> Iterator[Setting]:
        """Yield the settings in their order."""
        started = self.notes.first("process")
        inherited = started.get("variables") if started.get("how") == "started" else None
        given_at = requests.given_at(self.notes, self.family)
        for name, value in (inherited or {}).items():
            yield from self._of_variable(name, value, given_at.get(name, ""), None)
        yield from requests.of_parent(self.notes, self.pid, self.family)
        for note in self.notes.notes:
            self.steps.follow(note)
            if note["k"] == "variable":
                yield from self._of_variable(note["name"], note["value"], note["line"], note)
            elif note["k"] == "kept" and note["name"] in _READ_AT:
                yield self._kept(note)
            elif note["k"] == "command":
                yield from requests.of_command(note, self.pid)
            elif note["k"] == "setting" and note["what"] in requests.OF_CALLS:
                one = Setting(note["what"], _shown(note), note["line"], Fate.NOT_CHECKED, process=self.pid)
                effect = Effect(Fate.REFUSED, note["error"]) if note["error"] else self._of_request(note)
                yield from () if effect is None else (_with(one, effect),)
            elif note["k"] == "setting" and note["what"] in _SESSIONS:
                yield from self._of_config(note)
            elif note["k"] == "setting" and note["what"] != "list_local_devices":
                by_import = note.get("by_import", "")
                one = Setting(note["what"], _shown(note), note["line"], Fate.NOT_CHECKED, "", None, self.pid, by_import)
                yield self._assigned(note) if note["what"] == "assigned" else _with(one, self._of_call(note))
        yield from requests.of_no_option(self.notes, self.pid, self.observed)

    def _kept(self, note: Note) -> Setting:
        """Return what became of os.environ.setdefault for a variable that had another value."""
        name, value = note["name"], note["value"]
        setters = [later for later in self.notes.of("variable") if later["name"] == name and later["t"] <= note["t"]]
        by = f"{place(setters[-1]['line'])} had set" if setters else "the environment has"
        why = f"{by} {note['before']!r}, and setdefault leaves that as it is"
        return Setting(
            name, repr(value), note["line"], Fate.OVERRIDDEN, why, edit(f"os.environ[{name!r}] = {value!r}"), self.pid
        )

    def _of_request(self, note: Note) -> Effect | None:
        return requests.OF_CALLS[note["what"]](note, self.observed)

    def _of_variable(self, name: str, value: str | None, line: str, note: Note | None) -> Iterator[Setting]:
        """Yield what became of a variable, if it is an option of GPUs; ``note``: of the line that sets it."""
        by_import = note.get("by_import", "") if note else ""
        shown = "unset" if value is None else repr(value)
        one = Setting(name, shown, line, Fate.NOT_CHECKED, process=self.pid, by_import=by_import)
        known = misspelling_of(name)
        if known is not None and value is not None:
            instead = _set(known, value, line, by_env=note is None)
            if line and note is None:
                instead = fix.edit_note(f"call it {known} in env= at {place(line)}")
            named = name if name.isidentifier() else repr(name)
            why = f"nothing reads {named}"
            if name.strip() != name:
                instead = instead.replaced(note="without the blank") if instead.command else instead
                why += f": the name has a blank at its {'beginning' if name.lstrip() != name else 'end'}"
            yield _with(msgspec.structs.replace(one, what=named), Effect(Fate.MISSPELT, why, instead))
        elif name in _READ_AT:
            last = self.last_set.get(name, note)
            again = None
            if last and last is not note and not self._holds_with(last, note, name, value):
                then = Setting(
                    name, repr(last["value"]), last["line"], Fate.NOT_CHECKED, by_import=last.get("by_import", "")
                )
                again = _again(line, shown, then)
            is_late = note is not None and self.steps.has_reached(_READ_AT[name])
            passed = note is not None and requests.is_passed_on(note, self.notes, self.family)
            if (is_late or again or not self.final.has_reached(_READ_AT[name])) and passed:
                return  # it is for another program, whose process is judged by what it was started with
            if is_late and note is not None and requests.is_put_back(note, self.notes):
                return
            if note is not None and not passed and requests.comes_after_children(note, self.notes, self.family):
                why = "the processes that this one starts had been started before"
                before = fix.edit_note("move the line before the one that starts the process")
                yield _with(one, Effect(Fate.TOO_LATE, why, before))
                return
            yield _with(
                one,
                again if again and not is_late else self._effect_of_variable(name, value, line, by_env=note is None),
            )
        elif value is not None and (effect := requests.of_variable(name, value, note, self.notes, self.family)):
            yield _with(one, effect)

    def _holds_with(self, last: Note, note: Note | None, name: str, value: str | None) -> bool:
        """Return whether a variable has the value of the note ``last`` from this setting on, until it is read."""
        if note is not None:
            return bool(last["t"] <= note["t"]) and last["value"] == value
        return all(other["value"] == value for other in self.notes.of("variable") if other["name"] == name)

    def _effect_of_variable(self, name: str, value: str | None, line: str, *, by_env: bool) -> Effect:
        read_at = _READ_AT[name]
        if line and self.steps.has_reached(read_at):
            where = self.steps.at.get(read_at, "")
            why = f"{_when_read(name)}{f', at {place(where)}' if where else ''}"
            before = "import tensorflow" if read_at == "imported" else "the first use of TensorFlow"
            earlier = f"or {'unset' if value is None else 'set'} it before {before}"
            action = unset(name, note=earlier) if value is None else export(name, value, earlier)
            inherited = (self.notes.first("process").get("variables") or {}).get(name)
            others = {note["value"] for note in self.notes.of("variable") if note["name"] == name}
            if value is not None and others - {value, None, inherited}:
                own = "use tf.device for each GPU, or" if name == MASK else "use one value, or"
                action = fix.edit_note(f"{own} start a process for each: it is read once in a process")
            return Effect(Fate.TOO_LATE, why, action)
        if name == GRAPH_FLAGS and self.final.step == "imported" and (refused := effects.of_refused_flags(value or "")):
            return (
                replace(refused, instead=_in_program(refused.instead, name, line, by_env=by_env)) if line else refused
            )
        accepted = ACCEPTED.get(name)
        if accepted is not None and value is not None and not accepted.reads(value):
            meant = accepted.meant_by(value) or accepted.usual or next(iter(accepted.words), None)
            instead = None if meant is None else _set(name, meant, line, by_env=by_env)
            return Effect(Fate.IGNORED, f"{accepted.read}: {accepted.otherwise}", instead)
        if not self.final.has_reached(read_at):
            return Effect(Fate.NOT_REACHED, f"TensorFlow never read it: {_when_read(name)}")
        if value is None:
            return Effect(Fate.NOT_CHECKED, "what it was without it is not known")
        effect = effects.of_variable(name, value, self.observed, self.variables)
        return replace(effect, instead=_in_program(effect.instead, name, line, by_env=by_env)) if line else effect

    def _assigned(self, note: Note) -> Setting:
        """Return what became of a function that was assigned to."""
        target, value = note["target"], note["value"]
        why = "it is a function: the assignment replaces it and sets nothing"
        return Setting(target, f"= {value}", note["line"], Fate.IGNORED, why, edit(f"{target}({value})"), self.pid)

    def _of_call(self, note: Note) -> Effect:
        what, error = note["what"], note["error"]
        if error:
            if "after being initialized" not in error and "after initialization" not in error:
                growth = _REFUSED.items() if what == "memory_growth" else ()
                return Effect(Fate.REFUSED, error, next((action for part, action in growth if part in error), None))
            where = self.steps.at.get("made", "")
            is_fork = where == "" and self.notes.first("process").get("stage") == "initialised"
            at = ", before this process was forked from it" if is_fork else f" at {place(where)}" if where else ""
            return Effect(Fate.TOO_LATE, f"TensorFlow had made its devices{at}: {error}", _SPAWN if is_fork else _FIRST)
        if what not in _CONTEXT:
            return effects.of_switch(note, self.observed)
        if self.steps.maker and what != "visible_devices" and not self._is_repeated(note):
            where = self.steps.at["made"]
            why = f"the devices were made by {_MAKERS[self.steps.maker]} at {place(where)}, with other options"
            by_listing = self.steps.maker == "list_local_devices"
            return Effect(Fate.IGNORED, why, _list_only(where) if by_listing else _FIRST)
        if self.final.error and "made" not in self.final.at:
            return effects.of_failed_devices(note, self.final.error)
        if "made" not in self.final.at:
            return Effect(Fate.NOT_REACHED, "TensorFlow made no device")
        if not self.observed.made:
            return self._of_unread_context(note)
        effect = self._of_context(note)
        if self.final.given and effect.fate in (Fate.IGNORED, Fate.OTHER_EFFECT):
            why = f"{effect.why}: the session at {place(self.final.at['made'])} has a ConfigProto, and that holds alone"
            return Effect(effect.fate, why, _in_config(note) or effect.instead)
        return effect

    def _is_repeated(self, note: Note) -> bool:
        """Return whether the same was set before: TensorFlow accepts it at any time, and it changes nothing."""
        earlier = self.notes.notes[: self.notes.notes.index(note)]
        same = [other for other in earlier if other["k"] == "setting" and other["what"] == note["what"]]
        return any((other["target"], other["value"]) == (note["target"], note["value"]) for other in same)

    def _of_context(self, note: Note) -> Effect:
        if note["what"] == "memory_growth":
            return self._of_growth(note)
        if note["what"] == "visible_devices":
            return effects.of_visible_devices(note, self.observed)
        return effects.of_logical_devices(note, self.observed)

    def _of_unread_context(self, note: Note) -> Effect:
        """Return the effect of a setting of tf.config if only a maker that does not read it made devices."""
        maker, where = self.final.maker, place(self.final.at["made"])
        if not maker:
            return Effect(Fate.NOT_CHECKED, "the devices were made by the process that this one was forked from")
        why = f"the devices were made by {_MAKERS[maker]} at {where}, which does not read tf.config"
        if maker == "server":
            return Effect(Fate.IGNORED, why, fix.edit_note(f"give the options as config= to the Server at {where}"))
        return Effect(Fate.IGNORED, why, _list_only(self.final.at["made"]))

    def _of_growth(self, note: Note) -> Effect:
        forced = self.variables.get(FORCE_GROWTH)
        if forced is not None and forced[0] != ("true" if note["value"] else "false"):
            where = f"at {place(forced[1])}" if forced[1] else "in the environment"
            why = f"{FORCE_GROWTH}={forced[0]!r}, set {where}, comes first"
            return Effect(Fate.OVERRIDDEN, why, unset(FORCE_GROWTH))
        if (hidden := effects.of_hidden_card(note, self.observed)) is not None:
            return hidden
        allowed = bool(self.final.options.get("allow_growth"))
        if note["value"] and not allowed and forced is None:
            split = "virtual_devices" in self.final.options
            lost = "logical devices are configured, and growth is lost"
            why = lost if split else "the devices were made without growth"
            return Effect(Fate.IGNORED, why, export(FORCE_GROWTH, "true", "holds for every GPU"))
        if not note["value"] and allowed:
            return Effect(
                Fate.IGNORED, "growth of the session's options stays on", fix.note("take allow_growth out of them")
            )
        return effects.of_growth(note, self.observed, self.variables)

    def _of_config(self, note: Note) -> Iterator[Setting]:
        """Yield what became of each option of a session."""
        for name, value in note["value"].items():
            one = Setting(note["what"], f"{name}={value}", note["line"], Fate.NOT_CHECKED, process=self.pid)
            yield _with(one, self._effect_of_option(note, name, value))

    def _refused(self, note: Note, name: str) -> Effect:
        """Return what became of an option of a session that TensorFlow refused to make."""
        named = [option for option in note["value"] if option in note["error"]]
        if named and name not in named:
            return Effect(Fate.NOT_REACHED, f"TensorFlow refused {named[0]}, and the session was not made")
        if self.notes.first("process").get("stage") in ("listed", "initialised"):
            return Effect(Fate.REFUSED, f"in a fork of a process that uses TensorFlow: {note['error']}", _SPAWN)
        by_list = self.steps.maker == "list_local_devices"
        instead = _own_list(note["value"], self.steps.at["made"]) if by_list else _ONE_LIST
        return Effect(Fate.REFUSED, note["error"], instead if "visible_device_list" in note["error"] else None)

    def _of_eager_config(self, name: str, value: Any) -> Effect:
        """Return what became of an option that enable_eager_execution was given."""
        instead = api.in_tf_config(name, value)
        if name in _GPU_OPTIONS and self.final.options.get(name) != value:
            why = "eager execution is on already, and the configuration is not read"
            return Effect(Fate.IGNORED, why, edit(instead, "directly after import tensorflow") if instead else None)
        effect = effects.of_option(name, value, self.observed, self.observed.made, self.variables)
        if effect.fate == Fate.OTHER_EFFECT and instead:
            why = f"{effect.why}: eager execution is on already, and the configuration is not read"
            return Effect(Fate.IGNORED, why, edit(instead, "directly after import tensorflow"))
        return effect

    def _effect_of_option(self, note: Note, name: str, value: Any) -> Effect:
        if note["error"]:
            return self._refused(note, name)
        if name == "device_count":
            lower = [kind for kind in value if kind not in ("CPU", "GPU") and kind.upper() in ("CPU", "GPU")]
            if lower:
                fixed = ", ".join(f"{kind.upper()!r}: {value[kind]}" for kind in lower)
                why = f"device_count has no type {lower[0]!r}"
                return Effect(Fate.MISSPELT, why, edit(f"device_count={{{fixed}}}"))
        first = self.final.options
        if note["what"] == "enable_eager_execution":
            return self._of_eager_config(name, value)
        if name in _GPU_OPTIONS and first.get(name) != value:
            given = ", ".join(f"{name}={first[name]}" for name in _GPU_OPTIONS if name in first)
            where = place(self.steps.at.get("made", ""))
            if self.steps.at.get("made") == note["line"]:  # by something that is not noted, or by this line before
                why = f"the devices had been made before, with {given or 'other options'}; later options are not read"
                return Effect(Fate.IGNORED, why, _TO_MAKER)
            why = f"the devices were made at {where}, with {given or 'other options'}; later options are not read"
            by_session = self.steps.maker == "session"
            if self.steps.maker == "list_local_devices":
                return Effect(Fate.IGNORED, why, _list_only(self.steps.at["made"]))
            if self.steps.maker == "server":
                return Effect(Fate.IGNORED, why, fix.note(f"give these options as config= to the Server at {where}"))
            before = (
                f"give these options to the session at {where}" if by_session else f"make this session before {where}"
            )
            return Effect(Fate.IGNORED, why, fix.note(before))
        if name == "allow_growth" and self.variables.get(FORCE_GROWTH, (str(value).lower(),))[0] != str(value).lower():
            return Effect(Fate.OVERRIDDEN, f"{FORCE_GROWTH} comes first", unset(FORCE_GROWTH))
        ran = {counter["what"] for counter in self.notes.of("counter")}
        if name == "device_count" and "session" not in ran and ran & {"op", "function"}:
            gpus = sorted(
                {counter["device"] for counter in self.notes.of("counter") if "GPU" in counter["device"]} - {""}
            )
            why = "it holds for what a session runs, and all was run outside of one"
            if value.get("GPU") == 0 and gpus:
                hidden = edit("tf.config.set_visible_devices([], 'GPU')")
                return Effect(Fate.IGNORED, f"{why}, on {', '.join(gpus)}", hidden)
            return Effect(Fate.NOT_CHECKED, why)
        return effects.of_option(name, value, self.observed, as_made(note), self.variables)


def _list_only(line: str) -> Action:
    """Return what lists the GPUs and makes no devices, in place of what made them at a line."""
    return edit("tf.config.list_physical_devices('GPU')", f"at {place(line)}: it lists the GPUs and makes no devices")


def _own_list(options: Mapping[str, Any], listed_at: str) -> Action:
    """Return how a session gets its GPUs if a listing of local devices has numbered them."""
    wanted = str(options.get("visible_device_list", ""))
    return export(MASK, wanted, f"in place of visible_device_list, or list the devices at {place(listed_at)} later")


def _in_config(note: Note) -> Action | None:
    """Return the option of a ConfigProto that does what a setting of tf.config asks for."""
    gpus = [str(name).rpartition(":")[2] for name in note["value"]] if note["what"] == "visible_devices" else []
    if note["what"] == "memory_growth" and note["value"]:
        return edit("config.gpu_options.allow_growth = True", "before the session is made")
    if gpus and note["target"].upper() == "GPU":
        return edit(f"config.gpu_options.visible_device_list = {','.join(gpus)!r}", "before the session is made")
    if note["what"] == "visible_devices" and note["target"].upper() == "GPU":
        return edit("config.device_count['GPU'] = 0", "before the session is made")
    return None


def _when_read(name: str) -> str:
    return _WORDS[_READ_AT[name]].format(reader="the CUDA driver" if name.startswith("CUDA") else "TensorFlow")


def _in_program(action: Action | None, name: str, line: str, *, by_env: bool) -> Action | None:
    """Return what changes a variable as a change of the program's line that sets it."""
    if action is None or name not in (action.change or {}):
        return action
    value = (action.change or {})[name]
    return fix.note(f"take it out of {place(line)}") if value is None else _set(name, value, line, by_env=by_env)


def _variables_read(notes: Notes) -> dict[str, tuple[str, str]]:
    """Return the variables that TensorFlow read: their values, and the lines that set them."""
    values = {name: (value, "") for name, value in (notes.first("process").get("variables") or {}).items()}
    steps = _Steps()
    for note in notes.notes:
        steps.follow(note)
        if note["k"] == "variable" and not steps.has_reached(_READ_AT.get(note["name"], "made")):
            values.pop(note["name"], None)
            if note["value"] is not None:
                values[note["name"]] = (note["value"], note["line"])
    return {
        name: found
        for name, found in values.items()
        if name in _READ_AT and (name not in ACCEPTED or ACCEPTED[name].reads(found[0]))
    }


def _set(name: str, value: str, line: str, *, by_env: bool) -> Action:
    """Return how to set a variable; ``by_env``: the line, if there is one, gives it to a process that it starts."""
    if line and by_env:
        return fix.edit_note(f"change {name} in env= at {place(line)}, for example to {value!r}")
    return edit(f"os.environ[{name!r}] = {value!r}") if line else export(name, value)


def _shown(note: Note) -> str:
    target = str(note["target"]).removeprefix("/physical_device:")
    value = note["value"]
    if isinstance(value, list):
        value = f"[{', '.join(str(entry).removeprefix('/physical_device:') for entry in value)}]"
    return f"{target}={value}" if target else str(value)
