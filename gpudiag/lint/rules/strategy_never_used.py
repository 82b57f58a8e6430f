"""a strategy is not used: the model is trained on one GPU

A strategy holds for what is made inside of its scope. A Keras model that is made outside is trained without it, on the
first GPU alone, without a warning. If it is then compiled or trained in the scope, or with an optimizer of the scope,
fit() ends with an error that does not name the reason: RuntimeError, ValueError or AssertionError (2.21). A function
that is defined in the scope and called outside makes its model there. A loop over steps trains one replica, unless
strategy.run is given the step (2.21, two simulated GPUs: the second only keeps its copies of the variables).

Bad
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy()
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(loss="mse")

Good
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy()
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile(loss="mse")
"""

from __future__ import annotations

import ast
import re
from itertools import chain

from gpudiag.fix import edit_note
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Call, Entered, LintedProgram, ProgramEvent
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.values import Made
from gpudiag.model.report import Severity

RULE = Rule(
    message="{name} of {place} {how}",
    severity=Severity.WARNING,
    fix=(edit_note("{instead}"),),
    words=tuple(f"{name.rpartition('.')[2]}(" for name in sorted(api.STRATEGIES)),
    url="https://www.tensorflow.org/guide/distributed_training",
)
_TRAINS = re.compile(r"\.(?:fit|compile|apply_gradients)\(|GradientTape\(")
_KERAS_TRAINS = re.compile(r"\.(?:fit|compile|evaluate|predict|train_on_batch)\(")
_DISTRIBUTES = re.compile(
    r"distribute_strategy|distribution_strategy|\.run\(|experimental_run"
    r"|enter_context|Estimator|Coordinator"
)
_TAPE = re.compile(r"GradientTape\(")
_ONE_DEVICE = "distribute.OneDeviceStrategy"


def find(program: LintedProgram) -> Matches:
    if not program.mentions(_TRAINS) or program.mentions(_DISTRIBUTES):
        return
    for made, event in program.made:
        if made.api in api.STRATEGIES and not (program.shared and not event.functions) and (how := _how(made, program)):
            figures = {"name": made.api.rpartition(".")[2], "place": event.place(program), "how": how}
            if how != _NO_STEP:
                yield Violation(event, {**figures, "instead": _MAKE})
            else:
                yield Violation(
                    tape := next(chain(program.calls("function()"), program.calls("GradientTape")), event),
                    {**figures, "instead": _RUN},
                    _call(tape),
                )


def _call(event: ProgramEvent) -> ast.AST | None:
    """Return the call of a function of the same file that leads to an event; None if the event is not in a function."""
    return event.stack[0][2] if event.stack and event.stack[0][0] is event.module else None


_ONE_GPU = ": the model is trained on one GPU"
_NO_STEP = f"is given no step to run{_ONE_GPU}"
_OUTSIDE = f"the model was made outside of it{_ONE_GPU}"
_RAISES = "the model was made outside of it, and training ends with an error"
_RUN = "give the step to the replicas: strategy.run(step, args=(batch,)), with the batches of a distributed dataset"
_MAKE = "make the model and compile it inside of with strategy.scope():"


def _how(strategy: Made, program: LintedProgram) -> str:
    """Return why a strategy's replicas have no work; "" if they have some, or may have."""
    written = sum(module.text.count("scope(") for module in program.modules)
    mine = (event for event in program.of(Entered) if event.made.owner is strategy)
    scopes = [event for event in mine if event.made.api.endswith("().scope")]
    if not written:
        return "" if strategy.used else f"is never used{_ONE_GPU}"
    if strategy.api == _ONE_DEVICE or written != len({id(scope.node) for scope in scopes}):
        return ""
    definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    if all(isinstance(statement, definitions) for scope in scopes for statement in scope.body):
        return f"has a scope in which functions are only defined{_ONE_GPU}"
    if _makes_model_outside(strategy, scopes, program):
        names = (ast.unparse(node.func) for node in _calls(scopes))
        mixes = any("optimizers." in name or name.endswith((".compile", ".fit", ".evaluate")) for name in names)
        return f"has a scope in which no model is made: {_RAISES if mixes else _OUTSIDE}"
    return "" if program.mentions(_KERAS_TRAINS) or not program.mentions(_TAPE) else _NO_STEP


_MODEL = re.compile(
    r"(?:keras\.(?:layers\.(?!Input)[A-Z]\w+|Sequential|Model|models\.(?:Sequential|Model|load_model|clone_model)"
    r"|applications\.(?:\w{1,99}\.){0,3}[A-Z]\w+)|Variable|saved_model\.load)\Z"
)


def _makes_model_outside(strategy: Made, scopes: list[Entered], program: LintedProgram) -> bool:
    """Return whether a model is surely made outside the scope of the strategy, and none inside."""
    inside = outside = False
    for event in program.of(Call):
        if _MODEL.search(event.api):
            within = any(context.owner is strategy for context in event.frame.contexts)
            inside, outside = inside or within, outside or not within
    others = [node for node in _calls(scopes) if id(node) not in program.by_node and not _is_plain(node)]
    if others and all(id(node) in program.followed for node in others):
        without = program.runs_of(lambda maker: all(context.owner is not strategy for context in maker.frame.contexts))
        others = [] if any(without) else others
    return outside and not inside and not others


def _calls(scopes: list[Entered]) -> list[ast.Call]:
    """Return the calls in the bodies of some scopes."""
    return [node for scope in scopes for line in scope.body for node in ast.walk(line) if isinstance(node, ast.Call)]


def _is_plain(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id in ("print", "len", "str", "int", "range")
