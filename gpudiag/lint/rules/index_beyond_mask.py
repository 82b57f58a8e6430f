"""the number of a GPU is beyond those that the program can see

The driver numbers what CUDA_VISIBLE_DEVICES shows again, and TensorFlow what set_visible_devices shows. With one
visible GPU its name is GPU:0, whatever its place in the machine; what is put on GPU:1 runs elsewhere, and nothing is
said (2.21, two simulated GPUs). A process that shows itself one GPU by its rank, and chooses by its rank again, has
none.

Soft placement is on in TensorFlow 2: an operation for a GPU that is not there runs on another device, and replicas of
MirroredStrategy share one. A global rank counts the processes of all machines.

Bad
    import os

    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    import tensorflow as tf

    with tf.device("/GPU:1"):
        x = tf.zeros([2, 2])

Good
    import os

    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    import tensorflow as tf

    with tf.device("/GPU:0"):
        x = tf.zeros([2, 2])
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpudiag.fix import Role, edit, edit_note
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Call, LintedProgram, ProgramEvent, Variable
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.settings import MASK, PLACING, device_index, device_names, entries, mask_before, masks, session_config
from gpudiag.lint.values import Const, Made, devices, elements, of_gpus
from gpudiag.model.report import Severity

RULE = Rule(
    message="{what}: {why}",
    severity=Severity.WARNING,
    fix=(edit_note("take the first GPU, gpus[0], or leave the mask out"),),
    words=(MASK, "set_visible_devices", "rank()", "gpu:", "GPU:"),
    cause="gpus_renumbered",
    raises=("IndexError",),
)
_DIVIDED = re.compile(r"_device_configuration|virtual_devices")
"""Signs of logical devices, which have numbers of their own."""


def find(program: LintedProgram) -> Matches:
    divided = program.mentions(_DIVIDED)
    for event in program.calls(*PLACING, *api.DEVICE_SETTERS):
        used = _indices(event)
        limits = [_shown_by_mask(event)] if event.api in api.DEVICE_SETTERS else []
        if event.api in PLACING and not divided:
            limits = [_shown_by_mask(event), _shown_by_tensorflow(event)]
        for name, index in used:
            beyond = next((limit for limit in limits if limit is not None and index >= limit[0]), None)
            if beyond is not None:
                count, shown, by = beyond
                what = f"{name} is beyond {shown} of {by.place(program)}"
                instead = f"write 0, or leave {shown} out" if count == 1 else f"use a number from 0 to {count - 1}"
                yield Violation(event, {"what": what, "why": _NUMBERS}, fix=(edit_note(instead),))
    yield from _by_the_same_number(program)
    yield from _not_counted(program)
    yield from _of_all_machines(program)


def _by_the_same_number(program: LintedProgram) -> Matches:
    starts_itself = program.mentions(_STARTS_ITSELF)
    of_children = [mask for mask in masks(program) if mask.how == "env"] if starts_itself else []
    for event in program.calls("device", api.VISIBLE, api.GROWTH, api.LOGICAL):
        for index in _indexed(event):
            mask = next((mask for mask in [mask_before(event), *of_children] if mask and _same(mask, index)), None)
            if mask is not None:
                written = ast.unparse(mask.value_node) if mask.value_node is not None else MASK
                what = (
                    f"a GPU is chosen by {ast.unparse(index)} among those that {mask.place(program)} has already masked"
                )
                yield Violation(event, {"what": f"{what} by {written}", "why": _NUMBERS})
                break


def _shown_by_mask(event: ProgramEvent) -> tuple[int, str, ProgramEvent] | None:
    """Return how many GPUs the mask shows, if it is known and not 0: a program without GPUs is meant for the CPU."""
    mask = mask_before(event)
    shown = entries(mask.value) if mask is not None else None
    if not shown or mask is None or not isinstance(mask.value, Const):
        return None
    return len(shown), f"{MASK}={mask.value.value!r}", mask


def _shown_by_tensorflow(event: ProgramEvent) -> tuple[int, str, ProgramEvent] | None:
    """Return how many GPUs set_visible_devices leaves visible, if that is known."""
    last = next((call for call in event.history() if isinstance(call, Call) and call.api == api.VISIBLE), None)
    given = [] if last is None else [devices(value) for value in elements(last.made.argument(0, "devices"))]
    if last is None or not given or not all(device and device.one and device.kind == "GPU" for device in given):
        return None
    if any(device is not None and device.all for device in given):
        return None  # of a loop over all of them
    return len(given), f"the {len(given)} of set_visible_devices", last


def _indices(event: Call) -> list[tuple[str, int]]:
    if event.api in PLACING:
        return [(repr(name), index) for name in device_names(event) if (index := device_index(name)) is not None]
    argument = "devices" if event.api == api.VISIBLE else "device"
    found = [of_gpus(value) for value in elements(event.made.argument(0, argument))]
    return [(f"GPU {gpu.index}", gpu.index) for gpu in found if gpu and gpu.index is not None and gpu.index >= 0]


_STARTS_ITSELF = re.compile(r"sys\.argv\[0\]|__file__|sys\.executable, \*sys\.argv|sys\.argv\)")
_COMMON = frozenset({"str", "int", "args", "self", "format", "os", "environ", "sys", "config", "options", "opt", "env"})
_RANK = re.compile(r"rank", re.IGNORECASE)
_NUMBERED = re.compile(r"gpu:\Z|gpu:[%{]", re.IGNORECASE)


def _indexed(event: Call) -> Iterator[ast.expr]:
    """Yield the expressions, of unknown value, by which a call chooses a GPU."""
    if event.api == "device":
        name = event.made.node.args[0] if event.made.node.args else None
        inner = [] if name is None or isinstance(name, ast.Constant) else ast.walk(name)
        texts = (node.value for node in inner if isinstance(node, ast.Constant) and isinstance(node.value, str))
        if name is not None and any(map(_NUMBERED.search, texts)):
            yield name
        return
    for part in elements(event.made.argument(0, "devices" if event.api == api.VISIBLE else "device")):
        listed = devices(part)
        if listed is not None and listed.by is not None:
            yield listed.by


def _same(mask: Variable, index: ast.expr) -> bool:
    """Return whether a mask of one GPU is computed from the same value as an index."""
    if mask.value_node is None or isinstance(mask.value_node, ast.Constant) or len(entries(mask.value) or [""]) > 1:
        return False
    names, others = _names(mask.value_node), _names(index)
    ranks = [any(map(_RANK.search, those)) for those in (names, others)]
    return bool(names & others) or all(ranks)


def _names(node: ast.expr) -> set[str]:
    found = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return (found | {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}) - _COMMON


_NUMBERS = "the GPUs that are visible are numbered from 0"
_GLOBAL = re.compile(r"\brank\(\)")


def _of_all_machines(program: LintedProgram) -> Matches:
    """Yield GPUs that are chosen by a rank that counts the processes of all machines."""
    for event in program.calls("device", api.VISIBLE, api.GROWTH, api.LOGICAL):
        ranks = [text for text in map(ast.unparse, _indexed(event)) if _GLOBAL.search(text)]
        if ranks:
            why = "on the second machine the numbers go beyond its GPUs"
            fix = edit_note("choose by the local rank: hvd.local_rank()")
            what = f"a GPU is chosen by {ranks[0]}, which counts the processes of all machines"
            yield Violation(event, {"what": what, "why": why}, fix=(fix,), severity=Severity.NOTE)


_COUNTED = re.compile(
    r"list_(?:physical|logical|local)_devices|get_visible_devices|is_gpu_available|num_gpus|n_gpus?\b|ngpus?\b|gpu_count|"
    r"device_count|set_soft_device_placement\((?:enabled=)?False|allow_soft_placement\s*=\s*False|set_(?:logical|virtual)_device|"
    r"experimental_list_devices|pynvml|GPUtil|nvidia-smi|_get_available_gpus|CUDA_VISIBLE_DEVICES"
)


def _not_counted(program: LintedProgram) -> Matches:
    if program.mentions(_COUNTED):
        return
    soft = [_is_soft(session.made) for session in program.calls("Session")]
    if soft and not all(soft):
        return  # without soft placement a session raises if a GPU is missing
    used = {device_index(name) for event in program.calls(*PLACING) for name in device_names(event)} - {None}
    if used == set(range(len(used))):
        return  # it is written for so many GPUs
    for event in program.calls(*PLACING):
        beyond = [name for name in device_names(event) if (device_index(name) or 0) > 0]
        if beyond:
            figures = {"what": f"{beyond[0]!r} is used, and nothing asks how many GPUs there are"}
            why = "with fewer it runs elsewhere, silently"
            fix = (edit_note("leave allow_soft_placement out: then it raises"), _ASK[1]) if soft else _ASK
            yield Violation(event, {**figures, "why": why}, fix=fix, severity=Severity.NOTE, cause="cpu_instead_of_gpu")


def _is_soft(session: Made) -> bool:
    """Return whether a session may run operations elsewhere than on their device; without a known configuration not."""
    config = session_config(session)
    soft = config and config.kwargs.get("allow_soft_placement", config.options.get("allow_soft_placement"))
    return isinstance(soft, Const) and soft.value is True


_ASK = (
    edit("tf.config.set_soft_device_placement(False)", "it raises if the GPU is missing"),
    edit("len(tf.config.list_physical_devices('GPU'))", "ask how many there are", role=Role.ALTERNATIVE),
)
