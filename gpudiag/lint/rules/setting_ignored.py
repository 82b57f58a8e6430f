"""a setting has no effect

TF_FORCE_GPU_ALLOW_GROWTH wins over set_memory_growth, TF_CONFIG is read by strategies of several workers alone, what
compile() is given is for the steps of fit(), evaluate() and predict(). A session hides the GPUs from the graph that it
runs, not from Keras models and eager operations, and enable_eager_execution does something only while eager execution
is off. TensorFlow numbers the visible GPUs in the order of the driver, and a session reads its ConfigProto when it is
made. Nothing of it is an error (2.21, simulated GPUs).

Bad
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto()
    config.gpu_options.allow_growth = True
    tf.compat.v1.enable_eager_execution(config=config)

Good
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpudiag.fix import Action, edit, edit_note, export
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.knowledge.variables import CLUSTER, FORCE_GROWTH
from gpudiag.lint.program import Call, LintedProgram, Option, ProgramEvent, SetByImport, Variable
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.settings import UNSURE, asks_for_version, is_local, options_of, session_config
from gpudiag.lint.values import Const, Made, Table, devices, elements
from gpudiag.model.report import Severity

RULE = Rule(
    message="{what} has no effect: {why}",
    severity=Severity.WARNING,
    fix=(edit_note("remove it, or set what is read"),),
    words=(
        *("enable_eager_execution", "device_count", FORCE_GROWTH, "set_memory_growth", CLUSTER, "jit_compile"),
        *("set_visible_devices", "ConfigProto", "set_global_policy", "set_distribution"),
    ),
)


@dataclass(frozen=True)
class Ignored:
    """A setting that is ignored, and the reason."""

    event: ProgramEvent
    what: str
    why: str
    fix: Action
    cause: str = ""


def find(program: LintedProgram) -> Matches:
    for judge in _JUDGES:
        for ignored in judge(program):
            figures = {"what": ignored.what, "why": ignored.why}
            yield Violation(ignored.event, figures, fix=(ignored.fix,), cause=ignored.cause)


def _growth(program: LintedProgram) -> Iterator[Ignored]:
    growing = [call for call in program.calls(api.GROWTH) if call.made.constant(1, "enable") is True]
    for event in program.events if growing else ():
        setting = event.setting if isinstance(event, SetByImport) else event
        if not isinstance(setting, Variable) or setting.name != FORCE_GROWTH or setting.how not in ("=", "update"):
            continue
        off = isinstance(setting.value, Const) and setting.value.value in ("false", "0") and setting.certain
        if off and event.before("devices", "allocators") is None and not growing[0].frame.doubtful:
            why = f"{FORCE_GROWTH}='false' of {setting.place(program)} wins, and all memory of each GPU is taken"
            fix = edit(f"os.environ['{FORCE_GROWTH}'] = 'true'", "or leave the variable out")
            yield Ignored(growing[0], "set_memory_growth", why, fix)


_SEVERAL = re.compile(r"MultiWorker|ParameterServer|ClusterResolver|[Ee]stimator|horovod|AllReduceStrat|multi_worker")
_CONFIGURED = re.compile(rf"environ(?:\.get\(|\[)['\"]{CLUSTER}['\"]|getenv\(['\"]{CLUSTER}['\"]")


def _cluster(program: LintedProgram) -> Iterator[Ignored]:
    """Yield strategies of one machine in a program that looks at TF_CONFIG and has no other strategy."""
    if program.mentions(_CONFIGURED) and not program.mentions(_SEVERAL):
        for event in program.calls("distribute.MirroredStrategy"):
            why = f"MirroredStrategy is for the GPUs of one machine, and each worker of {CLUSTER} trains alone"
            fix = edit("tf.distribute.MultiWorkerMirroredStrategy()", "make it before anything else")
            yield Ignored(event, CLUSTER, why, fix)


_STEPS = re.compile(r"\.(?:fit|evaluate|predict|fit_generator|\w+_on_batch|make_train_function)\b|[Tt]uner\b|export")
_OWN_STEPS = re.compile(r"GradientTape\(")


def _compiled(program: LintedProgram) -> Iterator[Ignored]:
    """Yield compile() with options for its steps in a program that has steps of its own alone."""
    if program.shared or program.mentions(_STEPS) or not program.mentions(_OWN_STEPS):
        return
    for event in program.of(Call):
        of_model = event.api.startswith("keras.") and event.api.endswith("().compile")
        if of_model and event.made.constant(99, "jit_compile") is True:
            why = "it is for the steps of fit(), evaluate() and predict(), and the program has a step of its own"
            fix = edit("@tf.function(jit_compile=True)", "for the step")
            yield Ignored(event, "jit_compile of compile()", why, fix)


def _eager(program: LintedProgram) -> Iterator[Ignored]:
    for event in program.calls("enable_eager_execution"):
        if "compat.v1" not in event.made.name or event.made.argument(0, "config") is None:
            continue
        switched_off = any(isinstance(call, Call) and call.api in api.WITHOUT_EAGER for call in event.history())
        if not switched_off and not any(map(asks_for_version, event.guards)):
            config = event.made.argument(0, "config")
            given = (options_of(config) if isinstance(config, Made) and config.api == "ConfigProto" else None) or {}
            lines = [api.in_tf_config(name, value) for name, value in given.items() if value is not UNSURE]
            fix = edit_note("use tf.config: set_memory_growth for each GPU, set_logical_device_configuration")
            if any(lines):
                fix = edit("; ".join(filter(None, lines)), "write it directly after import tensorflow")
            yield Ignored(event, "the config of enable_eager_execution", "TensorFlow 2 is in eager mode already", fix)


_RUNS_GRAPHS = re.compile(
    r"\.run\(|disable_eager_execution|disable_v2_behavior|Graph\(\)|set_session|TF_USE_LEGACY_KERAS"
    r"|set_visible_devices|CUDA_VISIBLE_DEVICES"
)
_TRAINS = re.compile(r"\.(?:fit|predict)\(")


def _device_count(program: LintedProgram) -> Iterator[Ignored]:
    if not program.mentions(_TRAINS) or program.mentions(_RUNS_GRAPHS):
        return
    for event in program.calls("Session"):
        config = session_config(event.made)
        counts = None if config is None else config.kwargs.get("device_count", config.options.get("device_count"))
        gpus = counts.get("GPU") if isinstance(counts, Table) else None
        if "compat" in event.made.name and is_local(event.made) and isinstance(gpus, Const) and gpus.value == 0:
            fix = edit("tf.config.set_visible_devices([], 'GPU')", "write it directly after import tensorflow")
            why = "it hides no GPU from Keras, which trains eagerly and not in this session"
            yield Ignored(event, "device_count of this session", why, fix)


_APPLIES = re.compile(r"\.apply_gradients\(|\.apply\(")
_SCALED = re.compile(r"LossScale|loss_scale|scale_loss|scaled_loss|scaled_gradients|\.fit\(|DynamicLossScale")


def _unscaled(program: LintedProgram) -> Iterator[Ignored]:
    """Yield a policy of mixed precision in a program whose own step does not scale the loss."""
    if program.shared or program.mentions(_SCALED) or not program.mentions(_OWN_STEPS):
        return
    for event in program.calls("keras.mixed_precision.set_global_policy"):
        if event.made.constant(0, "policy") == "mixed_float16" and program.mentions(_APPLIES):
            why = "a step with its own GradientTape does not scale the loss, and small gradients become 0"
            fix = edit("optimizer = tf.keras.mixed_precision.LossScaleOptimizer(optimizer)", "and scale the loss by it")
            yield Ignored(event, "the loss scale of mixed_float16", why, fix)


def _order(program: LintedProgram) -> Iterator[Ignored]:
    for event in program.calls(api.VISIBLE):
        found = [devices(value) for value in elements(event.made.argument(0, "devices"))]
        order = [device.index for device in found if device and device.index is not None and device.kind == "GPU"]
        if len(order) == len(found) and order != sorted(order):
            fix = export("CUDA_VISIBLE_DEVICES", ",".join(map(str, order)), "it keeps the order")
            why = "GPU:0 stays the first of the machine, though get_visible_devices shows the order that was given"
            yield Ignored(event, "the order of set_visible_devices", why, fix, "gpus_in_another_order")


def _changed(program: LintedProgram) -> Iterator[Ignored]:
    """Yield what is set in a ConfigProto after the last session that was made with it."""
    for event in program.of(Option):
        given = [call for call in program.calls("Session") if session_config(call.made) is event.made]
        before = [call for call in event.history() if call in given]
        if before and len({id(call.made) for call in before}) == len({id(call.made) for call in given}):
            fix = edit_note("set it before the session is made")
            yield Ignored(event, event.path, f"the session of {before[-1].place(program)} was made before", fix)


_MAY_DISTRIBUTE = re.compile(r"\b(?:jax|torch)\b|KERAS_BACKEND(?!.{0,9}tensorflow)|Strategy\(")


def _distribution(program: LintedProgram) -> Iterator[Ignored]:
    for event in () if program.mentions(_MAY_DISTRIBUTE) else program.calls("keras.distribution.set_distribution"):
        fix = edit("strategy = tf.distribute.MirroredStrategy()", "make and compile the model in strategy.scope()")
        yield Ignored(event, "set_distribution", "Keras with TensorFlow trains on GPU 0 alone all the same", fix)


_JUDGES: tuple[Callable[[LintedProgram], Iterator[Ignored]], ...] = (
    _growth,
    _cluster,
    _compiled,
    _eager,
    _device_count,
    _order,
    _changed,
    _unscaled,
    _distribution,
)
