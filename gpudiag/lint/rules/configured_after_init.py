"""GPUs are configured after TensorFlow has made its devices: an error, or no effect

Which GPUs are visible, memory growth, logical devices and the numbers of threads are read once, when TensorFlow makes
its devices. An operation or a tensor makes them, and so do list_logical_devices, get_memory_info, `with tf.device` and
MirroredStrategy(). list_physical_devices does not. Inside of try and except RuntimeError the setting is just not made.

MultiWorkerMirroredStrategy, too, is to come before: in a cluster of several workers it ends with "Collective ops must
be configured at program startup" if the devices are there (2.21).

device_lib.list_local_devices(), tf.test.is_gpu_available() and a Server make the GPUs of the process with options of
their own, outside of the eager context: what a session or tf.config asks for later has no effect, and nothing is said.

Bad
    import tensorflow as tf

    x = tf.constant([1.0, 2.0])
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)

Good
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    x = tf.constant([1.0, 2.0])
"""

from __future__ import annotations

import ast
import re

from gpudiag.fix import Action, edit, edit_note
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.knowledge.variables import CLUSTER
from gpudiag.lint.program import Call, LintedProgram, ProgramEvent, Variable
from gpudiag.lint.reading.cursor import is_eager
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.settings import gpu_options, is_local, is_never_called, renumbers, sets_gpu_options
from gpudiag.lint.values import Const
from gpudiag.model.report import Severity

RULE = Rule(
    message="{name} comes after {what} in {place}: {happens}",
    severity=Severity.FAIL,
    fix=(edit_note("configure the GPUs directly after import tensorflow, before anything else of TensorFlow"),),
    words=(
        *("set_memory_growth", "set_visible_devices", "_device_configuration", "parallelism_threads", "WorkerMirrored"),
        *(*sorted(name.rpartition(".")[2] for name in api.FIX_ALLOCATORS), "Server(", "local_server", "Session("),
    ),
    url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
    cause="configured_too_late",
)


def find(program: LintedProgram) -> Matches:
    for event in program.calls(*api.BEFORE_DEVICES):
        earlier = event.before("devices")
        if earlier is None or _repeats(event, earlier, program) or any(map(_asks, event.guards)):
            continue
        if event.functions and not event.stack and is_never_called(event.functions[0], program):
            continue
        name = ast.unparse(event.made.node.func)
        figures = {"name": name, "what": earlier.what, "place": earlier.place(program)}
        yield Violation(event, {**figures, "happens": "TensorFlow has made its devices, and it raises RuntimeError"})
    for event in program.calls(_OF_WORKERS):
        earlier = event.before("devices")
        if earlier is not None and not (isinstance(earlier, Call) and earlier.api == _OF_WORKERS):
            happens = "TensorFlow has made its devices, and as one of several workers it raises RuntimeError"
            figures = {"name": event.what, "what": earlier.what, "place": earlier.place(program), "happens": happens}
            has_workers = any(variable.name == CLUSTER for variable in program.of(Variable))
            severity = None if has_workers or "cluster_resolver" in event.made.kwargs else Severity.NOTE
            yield Violation(event, figures, fix=(_STRATEGY_FIRST,), severity=severity)
    for event in program.calls(api.GROWTH, api.LOGICAL, *_SESSIONS):
        earlier = _maker(event)
        if earlier is None:
            continue
        name = ast.unparse(event.made.node.func)
        if event.api in _SESSIONS:
            options = [name for name in sets_gpu_options(event.made) if name != "visible_device_list"]
            shown = (gpu_options(event.made) or {}).get("visible_device_list")
            if isinstance(shown, str) and shown and renumbers("", shown) and not event.before("session"):
                happens = "the GPUs are numbered already, and TensorFlow raises AlreadyExistsError for another list"
                figures = {"what": earlier.what, "place": earlier.place(program), "happens": happens}
                yield Violation(event, {"name": f"visible_device_list={shown!r}", **figures}, fix=(_MASK_INSTEAD,))
                continue
            of_server = isinstance(earlier, Call) and earlier.api in api.SERVERS
            if not options or not (of_server or is_local(event.made)) or event.before("session"):
                continue
            name = options[0]
        fix: Action = edit_note(f"move {earlier.what} behind it, or give the options to what makes the devices first")
        if isinstance(earlier, Call) and earlier.api in api.FIX_ALLOCATORS:
            fix = edit(_LISTS, f"in place of {earlier.what}: it lists the GPUs and makes no devices")
        figures = {"name": name, "what": earlier.what, "place": earlier.place(program)}
        happens = "the GPUs are made with default options, and it has no effect any more"
        yield Violation(event, {**figures, "happens": happens}, fix=(fix,), severity=Severity.WARNING)


_OF_WORKERS = "distribute.MultiWorkerMirroredStrategy"
_STRATEGY_FIRST = edit_note("make the strategy directly after import tensorflow, before anything else of TensorFlow")
_ASKS = re.compile(
    r"\bget_(?:memory_growth|visible_devices|\w{1,9}_device_configuration|\w{1,9}_parallelism_threads)\b"
)


def _asks(guard: ast.AST) -> bool:
    """Return whether a test asks for the current setting."""
    return isinstance(guard, ast.expr) and _ASKS.search(ast.unparse(guard)) is not None


def _repeats(event: Call, devices: ProgramEvent, program: LintedProgram) -> bool:
    """Return whether an identical setting was made before the devices: TensorFlow then raises nothing."""
    done = program.events[: program.events.index(devices)] if devices in program.events else ()
    earlier = [call for call in (*devices.history(), *done) if isinstance(call, Call) and call.api == event.api]
    if any(call.node is event.node and call.stack != event.stack for call in earlier):
        return True  # the same line, in an earlier call of its function
    if event.api == api.GROWTH:  # by a loop over all GPUs before
        return any(call.node is not event.node and _enables(call) == _enables(event) for call in earlier)
    return any(ast.dump(call.node) == ast.dump(event.node) and call.node is not event.node for call in earlier)


def _enables(call: Call) -> object:
    value = call.made.argument(1, "enable")
    return value.value if isinstance(value, Const) else None


_LISTS = "tf.config.list_physical_devices('GPU')"
_MASK_INSTEAD = edit_note("set CUDA_VISIBLE_DEVICES before import tensorflow, or list the devices after the session")
_SESSIONS = ("Session", "train.MonitoredTrainingSession")


def _maker(event: Call) -> ProgramEvent | None:
    """Return the earlier event that made the devices with default options; None if another rule reports it."""
    first = event.before("allocators", "devices")
    if first is None or "session" in first.effects:
        return None
    if "devices" in first.effects:  # tf.config raises then
        eager = event.api in _SESSIONS and is_eager(event.module)  # else code for TensorFlow 1
        return first if eager and not event.module.mentions(_BY_DEFAULT) else None
    return first


_BY_DEFAULT = re.compile(r"TF_FORCE_GPU_ALLOW_GROWTH|set_memory_growth|_device_configuration")
"""Signs that eager operations have options of their own."""
