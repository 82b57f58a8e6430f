"""a setting of tf.config does not hold for a session

A session that is given a ConfigProto has what is in it, and nothing of tf.config: it sees every GPU, divides none,
takes all memory and places operations hard. A session without one takes what tf.config says when it is made. The GPUs
of the process are made by the first session, so growth that tf.config sets before, or afterwards, is lost for eager
operations, too: 6,656 of 8,192 MiB were taken, and 402 MiB with growth (2.21, simulated GPUs). A tf.function is
different: it obeys set_soft_device_placement at each call.

Bad
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    session = tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(log_device_placement=True))

Good
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto(log_device_placement=True)
    config.gpu_options.allow_growth = True
    session = tf.compat.v1.Session(config=config)
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gpudiag.fix import edit_note
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.knowledge.variables import FORCE_GROWTH
from gpudiag.lint.program import Call, LintedProgram
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.settings import base_of, gpu_options, is_local, session_config
from gpudiag.lint.values import Const, Made, elements, of_gpus
from gpudiag.model.report import Severity

RULE = Rule(
    message="{setting} does not hold for {session}: {why}",
    severity=Severity.WARNING,
    fix=(edit_note("{option}"),),
    words=("Session(",),
    also=("set_memory_growth", "_device_configuration", "set_visible_devices", "set_soft_device_placement"),
    url="https://www.tensorflow.org/api_docs/python/tf/compat/v1/Session",
)


class _Setting(NamedTuple):
    """The equivalent in a ConfigProto of a function of tf.config."""

    field: str
    """The part of the option's path that only this option has."""
    option: str
    makes_gpus: bool = True
    """True for a setting of the GPUs, which the first session makes."""


_SOFT = "config.set_soft_device_placement"
_SETTINGS = {
    api.GROWTH: _Setting("allow_growth", "set config.gpu_options.allow_growth = True before the session is made"),
    api.VISIBLE: _Setting("visible_device_list", "set config.gpu_options.visible_device_list = '0', or device_count"),
    api.LOGICAL: _Setting(
        "virtual_devices", "config.gpu_options.experimental.virtual_devices.add(memory_limit_mb=[MIB])"
    ),
    _SOFT: _Setting("allow_soft_placement", "give allow_soft_placement to the session's ConfigProto", makes_gpus=False),
}
_OTHER_WAYS = re.compile(
    rf"{FORCE_GROWTH}|virtual_devices|device_count|MergeFrom|CopyFrom|ParseFrom|[^\w.]Parse\(|setattr\("
)
"""Signs of code that may fill a ConfigProto, or make such a setting, in a way that is not followed."""
_EAGER = re.compile(r"\btf\.function|@function|\.fit\(|GradientTape")


def find(program: LintedProgram) -> Matches:
    if program.mentions(_OTHER_WAYS):
        return
    for event in program.calls("Session"):
        config = session_config(event.made)
        if config is None or not is_local(event.made) or _is_handed_on(config, program):
            continue
        for name, earlier in _set_before(event).items():
            if not _has(config, event.made, name):
                setting = f"{name.rpartition('.')[2]} of {earlier.place(program)}"
                figures = {"setting": setting, "session": "this session", "why": "it has its own ConfigProto"}
                yield Violation(event, {**figures, "option": _SETTINGS[name].option})
    for event in program.calls(api.GROWTH, api.LOGICAL, _SOFT):
        session = _made_before(event, program)
        if session is not None and not _agrees(session, event):
            setting, place = event.api.rpartition(".")[2], f"the session of {session.place(program)}"
            figures = {"setting": setting, "session": place, "why": "it was made before"}
            yield Violation(event, {**figures, "option": _SETTINGS[event.api].option})


def _set_before(session: Call) -> dict[str, Call]:
    """Return the settings of tf.config that were surely made before a session, the last one of each kind."""
    first = session.before("devices", "allocators", "session") is None
    found: dict[str, Call] = {}
    for event in session.history():
        if not isinstance(event, Call) or event.api not in _SETTINGS or not _sets(event):
            continue
        if first or not _SETTINGS[event.api].makes_gpus:
            found.setdefault(event.api, event)
    return found


def _sets(event: Call) -> bool:
    """Return whether a call makes a setting of GPUs, other than the default, that a session would need."""
    if event.api == _SOFT:
        return event.made.constant(0, "enabled") is True
    if event.api == api.VISIBLE:
        return all(of_gpus(device) for device in elements(event.made.argument(0, "devices")))
    return of_gpus(event.made.argument(0, "device")) is not None and event.made.constant(1, "enable") is not False


def _made_before(event: Call, program: LintedProgram) -> Call | None:
    """Return the session for which a setting surely comes too late, or None."""
    first = event.before("session")
    if not isinstance(first, Call) or not is_local(first.made) or any(_sets(call) for call in _same(first, event.api)):
        return None
    if event.api == _SOFT:
        eager = program.mentions(_EAGER) or any("devices" in earlier.effects for earlier in program.events)
        later = any(event in call.history() for call in program.calls("Session"))
        return None if eager or later else first
    return first if _sets(event) and event.before("devices", "allocators") is first else None


def _same(session: Call, name: str) -> list[Call]:
    return [event for event in session.history() if isinstance(event, Call) and event.api == name]


def _has(config: Made | None, session: Made, name: str) -> bool:
    """Return whether a session's own configuration contains a setting, or may contain it."""
    if config is None:
        return session.argument(2, "config") is not None
    field = _SETTINGS[name].field
    return gpu_options(session) is None or any(
        field in path for path in (*config.kwargs, *config.options, *(gpu_options(session) or ()))
    )


def _agrees(session: Call, event: Call) -> bool:
    """Return whether a session has, or may have, the value that tf.config sets later."""
    config = session_config(session.made)
    if event.api != _SOFT or config is None:
        return _has(config, session.made, event.api)
    own = config.kwargs.get("allow_soft_placement", config.options.get("allow_soft_placement", Const(False)))
    wanted = event.made.argument(0, "enabled")
    return not (isinstance(own, Const) and isinstance(wanted, Const) and bool(own.value) != bool(wanted.value))


def _is_handed_on(config: Made, program: LintedProgram) -> bool:
    """Return whether a configuration is passed to code that may fill it: to anything but a session."""
    for event in program.of(Call):
        if base_of(event.made.owner) is config:
            return True
        if event.api != "Session" and any(value is config for value in (*event.made.args, *event.made.kwargs.values())):
            return True
    return False
