"""Shared by rules: the options of a session, the mask, and the names of devices."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from gpudiag.fix import edit
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Call, LintedProgram, ProgramEvent, Variable
from gpudiag.lint.values import Attribute, Const, Made, ProjectFunction, Value, constants

MASK = "CUDA_VISIBLE_DEVICES"
GROWTH_FOR_EACH = edit(api.GROWTH_FOR_EACH, "set growth for each GPU")
_GPU_OPTIONS = {"per_process_gpu_memory_fraction": 0.0, "allow_growth": False, "visible_device_list": ""}
"""The options that are compared, and their defaults."""
_ID = re.compile(r"\s*(?:[+-]?\d+\s*\Z|GPU-|MIG-)")


def base_of(value: Value | None) -> Value | None:
    """Return the object that a value is an attribute of, directly or indirectly."""
    while isinstance(value, Attribute):
        value = value.of
    return value


_TEST = re.compile(r"(?:\A|_)tests?(?:_|\Z)|conftest")


def is_of_tests(program: LintedProgram) -> bool:
    """Return whether a program is a test file, in which unusual settings are intended."""
    return _TEST.search(program.module.source.path.stem) is not None


def is_never_called(function: ProjectFunction, program: LintedProgram) -> bool:
    """Return whether a function's name is nowhere in a program but in its definition, and in comments."""
    if program.shared or function.owner is not None or not function.name:
        return False
    if not isinstance(function.node, ast.FunctionDef) or function.node.decorator_list:
        return False
    trees = (piece.tree for module in program.modules for piece in module.source.pieces if piece.tree)
    return sum(len(re.findall(rf"\b{function.name}\b", ast.unparse(tree))) for tree in trees) == 1


UNSURE: Any = object()
"""The value of an option that is set to something unknown."""


def session_config(session: Made) -> Made | None:
    """Return the ConfigProto that a session is given, if it can be found."""
    config = session.kwargs.get("config") if session.api.startswith("train.") else session.argument(2, "config")
    return config if isinstance(config, Made) and config.api == "ConfigProto" else None


def gpu_options(session: Made) -> dict[str, Any] | None:
    """Return the GPU options that a session sets, by their names; None if its configuration is not known."""
    config = session_config(session)
    if config is None and session.argument(2, "config") is None:
        return {}
    return None if config is None else options_of(config)


def options_of(config: Made) -> dict[str, Any] | None:
    """Return the GPU options that a ConfigProto sets, by their names; None if its GPUOptions are not known."""
    found: dict[str, Any] = {}
    inner = config.kwargs.get("gpu_options", config.options.get("gpu_options"))
    if inner is not None and not (isinstance(inner, Made) and inner.api == "GPUOptions"):
        return None
    for owner, prefix in ((inner, ""), (config, "gpu_options.")):
        if isinstance(owner, Made):
            given = {**(owner.kwargs if not prefix else {}), **owner.options}
            for path, value in given.items():
                name = path.removeprefix(prefix)
                if name in _GPU_OPTIONS and (not prefix or path.startswith(prefix)):
                    sure = isinstance(value, Const) and path not in owner.doubtful
                    found[name] = value.value if sure and isinstance(value, Const) else UNSURE
    return found


def different_options(first: Made, second: Made) -> list[str]:
    """Return the options that the second session surely sets to other values than the first."""
    before, after = gpu_options(first), gpu_options(second)
    if before is None or after is None:
        return []
    differing = []
    for name, value in after.items():
        earlier = before.get(name, _GPU_OPTIONS[name])
        if UNSURE in (value, earlier) or value in (earlier, None):
            continue
        if name != "visible_device_list" or renumbers(str(earlier), str(value)):
            differing.append(name)
    return differing


def renumbers(first: str, second: str) -> bool:
    """Return whether a second visible_device_list numbers a GPU differently than the first; "" shows all GPUs."""
    lists = [[entry.strip() for entry in text.split(",")] for text in (first, second) if text]
    count = max(map(len, lists), default=0)
    before, after = (text.split(",") if text else [str(at) for at in range(count)] for text in (first, second))
    return any(line.strip() != other.strip() for line, other in zip(before, after, strict=False))


def sets_gpu_options(session: Made) -> list[str]:
    """Return the GPU options that a session sets to other values than the default."""
    given = gpu_options(session) or {}
    return [name for name, value in given.items() if value is not UNSURE and value != _GPU_OPTIONS[name]]


def is_local(session: Made) -> bool:
    """Return whether a session runs in this process, not on a server."""
    target = session.argument(0, "target")
    return target is None or (isinstance(target, Const) and not target.value)


def masks(program: LintedProgram) -> Iterator[Variable]:
    """Yield where the program sets CUDA_VISIBLE_DEVICES, for itself or for a process that it starts."""
    return (event for event in program.of(Variable) if event.name == MASK)


def mask_before(event: ProgramEvent) -> Variable | None:
    """Return the last setting of CUDA_VISIBLE_DEVICES that was surely made before."""
    settings = (earlier for earlier in event.history() if isinstance(earlier, Variable) and earlier.how != "env")
    return next((setting for setting in settings if setting.name == MASK), None)


def entries(mask: Value) -> list[str] | None:
    """Return the entries of a known mask as CUDA reads it, up to the first that names no GPU; None if it is unknown."""
    if not isinstance(mask, Const) or not isinstance(mask.value, str):
        return None
    valid = []
    for entry in mask.value.split(","):
        if not _ID.match(entry) or entry.strip().startswith("-"):
            break
        valid.append(entry.strip())
    return valid


_DEVICE = re.compile(r"\A/?(?:[\w:/*-]*/)?(?:device:)?([A-Za-z_]+)(?::(\d+|\*))?\Z")


def device_index(name: object) -> int | None:
    """Return the number of the GPU that a device name means, or None."""
    found = _DEVICE.match(name) if isinstance(name, str) else None
    if found is None or found[1].upper() != "GPU" or (isinstance(name, str) and "job:" in name):
        return None
    return int(found[2]) if found[2] and found[2] != "*" else 0


def device_names(call: Call) -> Iterator[str]:
    """Yield the names of devices that a call of ``tf.device`` or of a strategy is given."""
    value = call.made.argument(0, "device_name" if call.api == "device" else "devices")
    if value is None and call.api == "distribute.OneDeviceStrategy":
        value = call.made.argument(0, "device")
    for constant in constants(value):
        if isinstance(constant, str):
            yield constant


_VERSION = re.compile(
    r"(?:tf|tensorflow|keras)?_?(?:git_)?version(?:_info|_tuple)?|TF2_BEHAVIOR|executing_eagerly\w{0,40}"
    r"|(?:(?:is|use|using|has|have|only|run|running|with|for)_)?(?:tf|tensorflow)_?v?[12](?:_\d|x|\.x)?"
    r"(?:_(?:mode|behavior|enabled|only|installed|available))?"
    r"|is_v[12](?:_\d)?|run_(?:deprecated_)?v1(?:_only)?|v[12]_(?:behavior|only|enabled)",
    re.IGNORECASE,
)
"""Names that show the version of TensorFlow: ``tf.__version__``, ``tf2.enabled()``, ``is_tf1``; not a
``tf1_folder``."""
_LIBRARY = re.compile(r"tf\w{0,20}|tensorflow|keras|K|backend|v1")


def asks_for_version(test: ast.AST) -> bool:
    """Return whether a test, or a decorator such as skipif, checks TensorFlow's version, by the names in it."""
    return not isinstance(test, ast.ExceptHandler) and any(map(_is_of_version, ast.walk(test)))


def _is_of_version(node: ast.AST) -> bool:
    """Return whether a part of a test names a version, or asks whether TensorFlow has an attribute."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("hasattr", "getattr"):
        inner = node.args[0] if node.args else None
        while isinstance(inner, ast.Attribute):
            inner = inner.value
        return isinstance(inner, ast.Name) and _LIBRARY.fullmatch(inner.id) is not None
    name = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "value", None)
    return isinstance(name, str) and _VERSION.fullmatch(name.strip("_")) is not None


PLACING = ("device", *sorted(api.STRATEGIES))
"""Calls that take names of devices."""
