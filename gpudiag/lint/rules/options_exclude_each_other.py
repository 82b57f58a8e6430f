"""two options exclude each other: one of them is lost

Memory growth belongs to a whole GPU, logical devices divide it. If growth is set first, TensorFlow says nothing, and
growth is off, on every GPU, even if only the CPU is divided. In the other order set_memory_growth raises ValueError.

The limits of virtual devices say how much memory each takes: with per_process_gpu_memory_fraction the session ends with
"It's invalid to set per_process_gpu_memory_fraction when virtual_devices is set"; on a machine without a GPU nothing is
said (2.21, simulated GPUs).

Bad
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
        tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=2048)])

Good
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=2048)])
"""

from __future__ import annotations

from gpudiag.fix import Role, edit_note, export
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Call, LintedProgram, Past, ProgramEvent
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.settings import UNSURE, base_of, gpu_options, session_config
from gpudiag.lint.values import Items, Made, devices
from gpudiag.model.report import Severity

RULE = Rule(
    message="{options} exclude each other: {lost}",
    severity=Severity.WARNING,
    fix=(
        edit_note("remove set_memory_growth"),
        export("TF_FORCE_GPU_ALLOW_GROWTH", "true", "set it in the environment to have both", role=Role.ALTERNATIVE),
    ),
    words=("set_memory_growth", "virtual_devices"),
    url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
    cause="settings_exclude_each_other",
)


def find(program: LintedProgram) -> Matches:
    latest: dict[str, dict[Past, ProgramEvent | None]] = {api.GROWTH: {}, api.LOGICAL: {}}
    for event in program.calls(api.GROWTH, api.LOGICAL):
        other = api.LOGICAL if event.api == api.GROWTH else api.GROWTH
        earlier = _latest(event.past, other, latest[other])
        if earlier is None or not _is(event, event.api) or event.before("devices") or earlier.before("devices"):
            continue  # what comes too late sets nothing
        place = earlier.place(program)
        if event.api == api.LOGICAL:
            yield Violation(event, {"options": _GROWTH, "lost": f"the growth that {place} sets is lost"})
        elif earlier.node is not event.node and not _same_loop(event, earlier):
            yield Violation(event, {"options": _GROWTH, "lost": f"after {place} it raises ValueError"})
    for event in program.calls("Session"):
        config = session_config(event.made)
        fraction = (gpu_options(event.made) or {}).get("per_process_gpu_memory_fraction")
        if config is not None and fraction not in (None, 0, UNSURE) and _divides(event, config):
            options = "per_process_gpu_memory_fraction and virtual_devices"
            fix = edit_note("remove the fraction: memory_limit_mb of each virtual device is its limit")
            figures = {"options": options, "lost": "this session raises InvalidArgumentError"}
            yield Violation(event, figures, fix=(fix,), severity=Severity.FAIL)


_GROWTH = "memory growth and logical devices"


def _latest(past: Past | None, name: str, known: dict[Past, ProgramEvent | None]) -> ProgramEvent | None:
    """Return the last earlier call of this kind; ``known`` ones are not searched for again."""
    passed = []
    found = None
    while past is not None:
        if past in known:
            found = known[past]
            break
        passed.append(past)
        if _is(past.event, name):
            found = past.event
            break
        past = past.before
    known.update(dict.fromkeys(passed, found))
    return found


def _is(event: ProgramEvent, name: str) -> bool:
    """Return whether an event is a call of this kind that sets something."""
    if not isinstance(event, Call) or event.api != name:
        return False
    if name == api.LOGICAL:
        return True
    device = devices(event.made.argument(0, "device"))
    return event.made.constant(1, "enable") is not False and not (device and device.kind == "CPU")


def _same_loop(event: ProgramEvent, earlier: ProgramEvent) -> bool:
    """Return whether the earlier call belongs to the previous round of a loop, and comes later in the text."""
    return earlier.module is event.module and earlier.piece is event.piece and earlier.line > event.line


def _divides(session: Call, config: Made) -> bool:
    """Return whether a session's configuration surely has virtual devices."""
    given = config.kwargs.get("gpu_options")
    inner = given.kwargs.get("experimental") if isinstance(given, Made) else None
    listed = inner.kwargs.get("virtual_devices") if isinstance(inner, Made) else None
    if isinstance(listed, Items) and listed.items:
        return True
    added = (event.made.owner for event in session.history() if isinstance(event, Call) and event.api.endswith(_ADDED))
    return any(base_of(owner) in (config, given) for owner in added)


_ADDED = ("experimental.virtual_devices.add", "experimental.virtual_devices.append")
