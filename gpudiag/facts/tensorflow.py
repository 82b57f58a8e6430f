"""The family ``tensorflow``: TensorFlow as installed, read from files. It is never imported."""

from __future__ import annotations

import ast
import re
from importlib.metadata import Distribution as Metadata
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpudiag.facts import printable
from gpudiag.hostfacts import Distribution, TensorflowBuild, TensorflowFacts

_BUILD_INFO = "python/platform/build_info.py"
_COMPANIONS = re.compile(r"(keras|tf-keras|numpy|protobuf|ml-dtypes|h5py|nvidia-.*)")


def gather() -> TensorflowFacts:
    """Return what this interpreter would import and what is installed on ``sys.path``."""
    spec = find_spec("tensorflow")
    module_path = spec.origin if spec else None  # None also for what is left of a removed package: no __init__.py
    providers: dict[tuple[str, str], Distribution] = {}
    companions: dict[str, Distribution] = {}
    for metadata in distributions():
        name = re.sub(r"[-_.]+", "-", _field(metadata, "Name")).lower()
        found = Distribution(name, _field(metadata, "Version"), printable(str(metadata.locate_file(""))))
        if _provides_tensorflow(metadata):
            providers[found.name, found.location] = found
        elif _COMPANIONS.fullmatch(name):
            companions.setdefault(name, found)  # the first on sys.path is the one that is imported
    return TensorflowFacts(
        module_path=None if module_path is None else printable(module_path),
        distributions=tuple(providers.values()),
        build=_build(Path(module_path).parent / _BUILD_INFO) if module_path else None,
        companions=tuple(companion for _, companion in sorted(companions.items())),
    )


def _provides_tensorflow(metadata: Metadata) -> bool:
    """Return True for a distribution that installs a module ``tensorflow``.

    The text of RECORD is searched, because ``Distribution.files`` parses each of TensorFlow's 22,000 lines.
    """
    record = metadata.read_text("RECORD")
    if record is not None:
        return re.search(r"^tensorflow/__init__\.py,", record, re.MULTILINE) is not None
    return "tensorflow" in (metadata.read_text("top_level.txt") or "").split()


def _field(metadata: Metadata, key: str) -> str:
    """Return a field of the metadata, "" where it lacks it: what is left of a removed distribution has none."""
    fields = metadata.metadata
    return fields[key] if key in fields else ""  # noqa: SIM401  (typed without "get" before Python 3.12)


def _build(file: Path) -> TensorflowBuild | None:
    """Return what ``build_info.py`` says, or None where it cannot be read."""
    try:
        values = _assigned(ast.parse(file.read_text(encoding="utf-8")), "build_info")
    except (OSError, SyntaxError, ValueError):
        return None
    return TensorflowBuild(
        cuda=bool(values.get("is_cuda_build")),
        cuda_version=values.get("cuda_version"),
        cudnn_version=values.get("cudnn_version"),
        compute_capabilities=tuple(values.get("cuda_compute_capabilities", ())),
    )


def _assigned(tree: ast.Module, name: str) -> dict[str, Any]:
    """Return the value that ``tree`` assigns to ``name``: ``OrderedDict([(key, value), ...])`` of literals."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name and isinstance(node.value, ast.Call):
            return dict(ast.literal_eval(node.value.args[0]))
    raise ValueError(f"no {name}")
