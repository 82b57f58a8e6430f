"""the result of a call is dropped, and the call does nothing else

TensorFlow is configured by objects that have to be given to something. A policy holds once it is set, a ConfigProto for
the session that is made with it, options of tf.data for the dataset that with_options returns. Transformations of a
dataset, tf.function and wrappers of optimizers return a new object and leave the old one as it was. tf.device and the
scope() of a strategy return a context, which holds inside of a with statement. If the result is not used, there is no
warning. After prefetch_to_device only prefetch() keeps the elements on the GPU: other steps run on the CPU.

Bad
    import tensorflow as tf

    policy = tf.keras.mixed_precision.Policy("mixed_float16")
    tf.device("/GPU:0")
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])

Good
    import tensorflow as tf

    policy = tf.keras.mixed_precision.Policy("mixed_float16")
    tf.keras.mixed_precision.set_global_policy(policy)
    with tf.device("/GPU:0"):
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
"""

from __future__ import annotations

import ast
import re

from gpudiag.fix import Action, edit, edit_note, fill_in
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Call, LintedProgram, ProgramEvent
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.settings import is_of_tests
from gpudiag.lint.sources import Piece
from gpudiag.lint.values import Made, Value
from gpudiag.model.report import Severity

_SET_POLICY = edit("tf.keras.mixed_precision.set_global_policy(policy)", "set the policy before the first layer")
_ENTER = edit_note("enter it with a with statement, and indent the operations below it")
_RESULTS: dict[str, tuple[str, Action]] = {
    "ConfigProto": (
        "what it sets has no effect",
        edit("tf.compat.v1.Session(config=config)", "give it to a session; without sessions use tf.config"),
    ),
    "GPUOptions": ("its options have no effect", edit("tf.compat.v1.ConfigProto(gpu_options=gpu_options)")),
    "keras.mixed_precision.Policy": ("layers keep the policy of before, float32", _SET_POLICY),
    "keras.DTypePolicy": ("layers keep the policy of before, float32", _SET_POLICY),
    "keras.mixed_precision.experimental.Policy": ("layers keep the policy of before, float32", _SET_POLICY),
    "keras.mixed_precision.LossScaleOptimizer": (
        "the optimizer does not scale the loss",
        edit("optimizer = tf.keras.mixed_precision.LossScaleOptimizer(optimizer)", "train with the wrapped optimizer"),
    ),
    "data.Options": (
        "no dataset has them",
        edit("dataset = dataset.with_options(options)", "give them to the dataset"),
    ),
    api.LOGICAL_DEVICE: (
        "no GPU is divided or limited",
        edit("tf.config.set_logical_device_configuration(gpu, [limit])", "give it to a GPU"),
    ),
    "function": ("the function that is called is not compiled", edit("step = tf.function(step)", "keep the result")),
    "distribute.NcclAllReduce": ("the strategy keeps its own", edit("MirroredStrategy(cross_device_ops=ops)")),
    "distribute.HierarchicalCopyAllReduce": (
        "the strategy keeps its own",
        edit("MirroredStrategy(cross_device_ops=ops)"),
    ),
    "distribute.ReductionToOneDevice": ("the strategy keeps its own", edit("MirroredStrategy(cross_device_ops=ops)")),
    "distribute.experimental.CommunicationOptions": (
        "the strategy keeps its own",
        edit("MultiWorkerMirroredStrategy(communication_options=options)"),
    ),
    "data.experimental.prefetch_to_device": (
        "no dataset is on the GPU",
        edit("dataset = dataset.apply(transformation)"),
    ),
    "data.experimental.copy_to_device": ("no dataset is on the GPU", edit("dataset = dataset.apply(transformation)")),
    "profiler.experimental.Trace": ("nothing is traced", _ENTER),
    "xla.experimental.jit_scope": ("it has no effect", _ENTER),
    "device": ("it has no effect", _ENTER),
}
"""For each canonical name: what is lost without the result, and what to do with the result."""
_DISTRIBUTES = ("experimental_distribute_dataset", "distribute_datasets_from_function")
_DISTRIBUTED = ("the loop is over batches that all replicas get whole", edit_note("loop over the distributed dataset"))
_PURE = frozenset(
    {"apply", "batch", "cache", "filter", "interleave", "map", "prefetch", "repeat", "shard", "shuffle", "with_options"}
)
_DATASET = ("the dataset stays as it was", edit("dataset = dataset.{method}(...)", "keep the result"))
RULE = Rule(
    message="the result of {call} is {how}: {lost}",
    severity=Severity.WARNING,
    fix=(edit_note("give the result to what it is for"),),
    words=(
        *("ConfigProto", "GPUOptions", "Policy(", "LossScaleOptimizer", "data.Options", "DeviceConfiguration("),
        *("tf.function(", "AllReduce", "ReductionToOneDevice", "CommunicationOptions", "_to_device", "Trace("),
        *("jit_scope", "tf.device(", "tf1.device(", "tensorflow.device(", "v1.device(", ".scope(", ".DistributedOptim"),
        *("data.Dataset", "data.TFRecord", "tf.data", *_DISTRIBUTES),
    ),
    url="https://www.tensorflow.org/guide/gpu",
)


def find(program: LintedProgram) -> Matches:
    for made, event in program.made:
        if made.used or made.entered or (lost := _lost(made)) is None:
            continue
        if lost is _DATASET and is_of_tests(program):
            continue  # what is tested may be that it raises
        kept_at = event if lost is _DATASET else _kept_at(event)
        if how := _how(made, kept_at, program):
            call = ast.unparse(made.node.func)
            method = made.name.rpartition(".")[2]
            action = fill_in(lost[1], {"method": method})
            yield Violation(kept_at, {"call": f"{call}()", "how": how, "lost": lost[0]}, fix=(action,))
    yield from _undone(program)


def _undone(program: LintedProgram) -> Matches:
    """Yield the steps of a pipeline after its copy to a GPU: their results are in the host's memory again."""
    events = {id(event.made): event for event in program.of(Call)}
    for event in program.of(Call):
        applied = event.made.owner
        step, copy = event.made.name.rpartition("().")[2], _copy(applied)
        if copy is not None and step in ("map", "batch", "repeat") and id(applied) in events:
            call, fix = copy.api.rpartition(".")[2], edit_note("make the copy the last step")
            how = f"undone, by {step}() after {events[id(applied)].place(program)}"
            yield Violation(
                event, {"call": f"{call}()", "how": how, "lost": "the elements are on the CPU again"}, fix=(fix,)
            )


def _copy(value: Value | None) -> Made | None:
    """Return the copy to a device that ``dataset.apply`` was given, or None."""
    if not isinstance(value, Made) or not value.name.endswith("().apply"):
        return None
    given = value.argument(0, "transformation_func")
    return given if isinstance(given, Made) and given.api.endswith("_to_device") else None


def _lost(made: Made) -> tuple[str, Action] | None:
    """Return what is lost without the result of a call, and what to do with it; None for other calls."""
    owner, _, method = made.api.rpartition("().")
    if made.api in _RESULTS:
        return None if made.api == "device" and not made.node.args else _RESULTS[made.api]
    if owner in api.STRATEGIES and method == "scope":
        return "it has no effect", _ENTER
    if method in _DISTRIBUTES:
        return _DISTRIBUTED
    if made.api.startswith("horovod.") and made.api.endswith("DistributedOptimizer"):
        return "the ranks train apart", edit("optimizer = hvd.DistributedOptimizer(optimizer)", "keep the result")
    if owner.startswith("data.") and method in _PURE:
        return _DATASET
    return None


def _kept_at(event: ProgramEvent) -> ProgramEvent:
    """Return the call whose result is bound or dropped: of what a function returns, the call of the function."""
    node, frame = event.node, event.frame
    while frame.stack and _bound(frame.piece).get(id(node)) == _RETURNED:
        module, piece, node = frame.stack[-1]
        changes = {"module": module, "piece": piece, "stack": frame.stack[:-1], "functions": frame.functions[:-1]}
        frame = frame.changed(changes)
    return event if node is event.node else ProgramEvent(node, frame, event.past, event.effects)


_RETURNED = "return"
"""In place of a name, for a result that a function returns."""


def _how(made: Made, event: ProgramEvent, program: LintedProgram) -> str:
    """Return what became of an unused result; "" if something may use it."""
    if made.held:
        return "given to nothing" if not program.shared and not _is_read(program, made.held) else ""
    name = _bound(event.piece).get(id(event.node))
    if name in (None, _RETURNED) or (name and made.api.endswith(tuple(f"().{method}" for method in _PURE))):
        return ""
    if not name:
        return "dropped"
    if program.shared and not event.functions:
        return ""
    if made.api.endswith("Optimizer") and not program.mentions(_TRAINS):
        return ""
    text = event.functions[-1].text.partition("\n")[2] if event.functions else event.module.text
    return "" if name in _USES.findall(_COMMENT.sub("", text)) else "given to nothing"


_USES = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\b(?!\s{0,9}\.\s{0,9}\w)(?!\s{0,9}(?::[^=\n]{0,80})?=[^=])")
"""Names that are used by themselves: not as targets of assignments, and not before a dot."""
_TRAINS = re.compile(r"\.(?:fit|compile|apply_gradients|minimize)\(")
_COMMENT = re.compile(r"#[^\n]{0,300}")


def _bound(piece: Piece) -> dict[int, str]:
    """Return the name that each call's result is assigned to, by the call's identity; "" if it is dropped."""
    if piece.bound is None:
        piece.bound = {}
        for node in ast.walk(piece.tree or ast.Module([], [])):
            if isinstance(node, ast.Expr | ast.Return) and isinstance(node.value, ast.Call):
                piece.bound[id(node.value)] = _RETURNED if isinstance(node, ast.Return) else ""
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.targets) == 1:
                target = node.targets[0]
                if isinstance(target, ast.Name):
                    piece.bound[id(node.value)] = target.id
    return piece.bound


def _is_read(program: LintedProgram, attribute: str) -> bool:
    """Return whether an attribute of an object is used for more than setting an option of it."""
    use = re.compile(rf"\.{attribute}\b(?!\s{{0,9}}(?:\.\w[\w.]{{0,99}}\s{{0,9}})?=[^=])|__dict__|getattr\(|vars\(")
    return program.mentions(use)
