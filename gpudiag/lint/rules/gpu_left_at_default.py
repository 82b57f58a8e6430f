"""an option is set for one GPU, and the others keep the default

TensorFlow makes all visible GPUs, and growth must be the same for all of them ("Memory growth cannot differ between
GPU devices"). A limit holds for its own GPU; a strategy without a list of devices takes the others as a whole.
set_visible_devices takes GPUs out of the process: growth and logical devices of a hidden one are accepted, and the
visible one keeps the default (2.21, two simulated GPUs).

Bad
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    tf.config.experimental.set_memory_growth(gpus[0], True)

Good
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpudiag.fix import edit_note
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Call, LintedProgram
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.settings import GROWTH_FOR_EACH, MASK
from gpudiag.lint.values import Devices, devices, elements, is_empty_list
from gpudiag.model.report import Severity

RULE = Rule(
    message="{what} is set for {which}: {happens}",
    severity=Severity.WARNING,
    fix=(GROWTH_FOR_EACH,),
    words=("set_memory_growth", "_device_configuration"),
    url="https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",
)
_ONE = re.compile(r"len\([^()]*\)\s*(?:==|<=)\s*1\b|len\([^()]*\)\s*<\s*2\b|\b1\s*==\s*len\(")
_RESTRICTED = re.compile(rf"{MASK}|visible_device_list")
_ALL = ("distribute.MirroredStrategy", "distribute.MultiWorkerMirroredStrategy")


def find(program: LintedProgram) -> Matches:
    for name in (api.GROWTH, api.LOGICAL):
        configured = [*_configured(program, name)]
        shown = _shown(program)
        if not _is_restricted(program) and (happens := _happens(name, program)):
            what = "memory growth" if name == api.GROWTH else "a limit"
            for event, _ in _of_one(configured):
                figures = {"what": what, "which": "one GPU alone", "happens": happens}
                fix = GROWTH_FOR_EACH if name == api.GROWTH else edit_note("configure each GPU")
                yield Violation(event, figures, fix=(fix,))
        elif shown and all(gpu.index not in (None, -1, *shown[1]) and gpu.kind == "GPU" for _, gpu in configured):
            visible = ", ".join(f"GPU {index}" for index in sorted(shown[1]))
            for event, gpu in configured:
                figures = {"what": name.rpartition(".")[2], "which": f"GPU {gpu.index}"}
                happens = f"{shown[0].place(program)} hides it, and the GPU that is used keeps the default"
                fix = edit_note(f"configure the GPU that is visible: {visible}")
                yield Violation(event, {**figures, "happens": happens}, fix=(fix,))


def _is_restricted(program: LintedProgram) -> bool:
    """Return whether the program may show itself fewer GPUs, but for none in a branch that is not taken for sure."""
    calls = [call for dead in (True, False) for call in program.calls(api.VISIBLE, dead=dead)]
    branches = (call for call in calls if call.frame.dead or call.frame.doubtful)
    none = {id(call.node) for call in branches if is_empty_list(call.made.argument(0, "devices"))}
    trees = (piece.tree for module in program.modules for piece in module.source.pieces if piece.tree)
    code = "\n".join(map(ast.unparse, trees))  # what is in comments restricts nothing
    return _RESTRICTED.search(code) is not None or code.count("set_visible_devices") > len(none)


def _configured(program: LintedProgram, name: str) -> Iterator[tuple[Call, Devices]]:
    """Yield the calls that configure a GPU, and the GPU; a device that is not known is one without a kind."""
    for event in program.calls(name):
        divided = len(elements(event.made.argument(1, "logical_devices"))) > 1
        if event.made.constant(1, "enable") is not False and not divided:
            yield event, devices(event.made.argument(0, "device")) or Devices("", event.made)


def _happens(name: str, program: LintedProgram) -> str:
    """Return what follows if one of several GPUs is configured; "" if nothing does."""
    if name == api.GROWTH:
        return "with several TensorFlow raises ValueError at the first operation"
    strategy = next((call for call in program.calls(*_ALL) if not call.made.argument(0, "devices")), None)
    taker = strategy and f"{strategy.api.rpartition('.')[2]} of {strategy.place(program)}"
    return f"{taker} takes all memory of the others" if taker else ""


def _of_one(configured: list[tuple[Call, Devices]]) -> Iterator[tuple[Call, Devices]]:
    """Yield the calls that configure one GPU of those that may be there, if none configures another."""
    gpus = [(event, gpu) for event, gpu in configured if gpu.kind in ("GPU", None)]
    if any(gpu.all and gpu.one for _, gpu in gpus) or len({gpu.index for _, gpu in gpus if gpu.one}) > 1:
        return
    for event, gpu in gpus:
        asked = any(_ONE.search(ast.unparse(guard)) for guard in event.guards if isinstance(guard, ast.expr))
        if gpu.one and not asked and gpu.listing.api != "config.list_logical_devices":
            yield event, gpu


def _shown(program: LintedProgram) -> tuple[Call, set[int]] | None:
    """Return the last call of set_visible_devices, and the GPUs that it shows, if they are known."""
    last = next(iter([*program.calls(api.VISIBLE)][-1:]), None)
    listed = [] if last is None else [devices(value) for value in elements(last.made.argument(0, "devices"))]
    known = {gpu.index for gpu in listed if gpu and gpu.kind == "GPU" and gpu.index is not None and gpu.index >= 0}
    return (last, known) if last and not last.frame.doubtful and known and len(known) == len(listed) else None
