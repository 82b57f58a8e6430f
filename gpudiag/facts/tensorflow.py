"""The family ``tensorflow``: TensorFlow as installed, read from files. It is never imported."""

from __future__ import annotations

import ast
import base64
import contextlib
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import PathFinder
from importlib.metadata import Distribution as Metadata
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from gpudiag import examined
from gpudiag.errors import UsageError
from gpudiag.facts import module_path as paths
from gpudiag.facts import printable
from gpudiag.facts.requirements import header, normalized, recorded, recorded_libraries, requirements, texts
from gpudiag.model.facts import Distribution, FileState, Requirement, TensorflowBuild, TensorflowFacts

_BUILD_INFO = "python/platform/build_info.py"
_LARGE = ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2")
"""Large files that are compared by size with their distribution's record; small files are compared by hash."""
_FRAMEWORKS = re.compile(
    r"(torch|jax|jaxlib|jax-cuda\d+-(plugin|pjrt)|cupy-.*|onnxruntime-gpu|paddlepaddle-gpu|mxnet-.*)"
)
_PLUGINS = ("tensorflow-directml", "tensorflow-metal", "tensorflow-rocm-plugin", "intel-extension-for-tensorflow")
"""What the names of plug-ins begin with."""
_IMPORTED = (
    "absl",
    "astunparse",
    "flatbuffers",
    "gast",
    "google",
    "grpc",
    "h5py",
    "keras",
    "ml_dtypes",
    "numpy",
    "opt_einsum",
    "packaging",
    "requests",
    "six",
    "tensorboard",
    "termcolor",
    "typing_extensions",
    "wrapt",
)
"""Modules of the distributions that TensorFlow requires."""
_COMPANIONS = ("keras", "tf-keras", "numpy", "protobuf", "ml-dtypes", "h5py")


def gather() -> TensorflowFacts:
    """Return what this interpreter would import and what is installed on ``sys.path``."""
    spec = find_spec("tensorflow")
    module_path = spec.origin if spec else None  # None also for what is left of a removed package: no __init__.py
    providers: dict[tuple[str, str], Distribution] = {}
    companions: dict[str, Distribution] = {}
    frameworks: dict[str, Distribution] = {}
    required: dict[str, dict[str, str]] = {}
    plugins: dict[str, Distribution] = {}
    own = ""
    here: dict[str, Metadata] = {}
    first: dict[str, Metadata] = {}
    unreadable: list[str] = []
    for metadata in distributions():
        try:
            name, version = _fields(metadata, "Name", "Version")
            name = normalized(name)
            first.setdefault(name, metadata)
            found = Distribution(name, version, printable(str(metadata.locate_file(""))))
            provides = _provides_tensorflow(metadata)
        except (OSError, ValueError):  # a broken disk, or bytes that are not text
            unreadable.append(printable(str(getattr(metadata, "_path", metadata.locate_file("")))))
            continue
        if provides:
            providers[found.name, found.location] = found
            if module_path and Path(found.location) == Path(module_path).parent.parent:
                own = found.name
                here[own] = metadata
        elif name in _COMPANIONS or name.startswith("nvidia-"):
            companions.setdefault(name, found)  # the first on sys.path is the one that is imported
        elif _FRAMEWORKS.fullmatch(name):
            frameworks.setdefault(name, found)
            for package, versions in _ranges(metadata, mandatory=True).items():
                required.setdefault(package, {}).setdefault(name, versions)
        if name.startswith(_PLUGINS):
            plugins.setdefault(name, found)
    unmet = requirements(own, here[own], first) if own else ()
    overwritten = {name: files for name, distribution in here.items() if (files := _altered(distribution)) is not None}
    return TensorflowFacts(
        module_path=None if module_path is None else printable(module_path),
        distributions=tuple(providers.values()),
        build=_build(Path(module_path).parent / _BUILD_INFO) if module_path else None,
        companions=tuple(companion for _, companion in sorted(companions.items())),
        ranges=_ranges(here[own]) if own else {},
        frameworks=tuple(framework for _, framework in sorted(frameworks.items())),
        plugins=_plugins(),
        plugin_distributions=tuple(plugin for _, plugin in sorted(plugins.items())),
        altered=overwritten.get(own, ()),
        in_working_directory=_in_working_directory(module_path),
        overwritten=overwritten,
        unreadable=tuple(unreadable),
        outside=(outside := dict(_outside())),
        path_provenance=paths.provenance(_folder_of(file) for file in outside.values()),
        without_init=tuple(map(printable, spec.submodule_search_locations or ())) if spec and not spec.origin else (),
        requirements=unmet,
        damaged=tuple(_damaged(own, {**first, **here}, unmet)),
        half_removed=_half_removed(),
        required_by_others=required,
        elsewhere="" if spec or providers else _elsewhere(),
    )


def _elsewhere() -> str:
    """Return the first Python on PATH, other than this one, that has TensorFlow; "" if none has."""
    for name in ("python", "python3"):
        program = shutil.which(name)
        if program is None or Path(program).parent == Path(sys.executable).parent:
            continue
        with contextlib.suppress(UsageError):
            if examined.describe(program).has_tensorflow:
                return printable(program)
    return ""


def _damaged(own: str, installed: Mapping[str, Metadata], required: Iterable[Requirement]) -> Iterator[FileState]:
    """Yield the libraries that are smaller than recorded or that this user may not read, and closed folders."""
    for name in dict.fromkeys((own, *(requirement.name for requirement in required))):
        if name not in installed:
            continue
        metadata = installed[name]
        root = metadata.locate_file("")
        owner = f"{name} {' '.join(_fields(metadata, 'Version'))}"
        for file, size in recorded_libraries(recorded(metadata) or ""):
            path = f"{root}/{file}"
            if not _is_whole(path, size) and (state := _state(path, size)) is not None:
                yield msgspec.structs.replace(state, owner=owner)
                break  # one of a distribution says enough
    for top in _IMPORTED if own else ():
        folder = f"{installed[own].locate_file('')}/{top}"
        is_shut = os.path.isdir(folder) and not os.access(folder, os.R_OK | os.X_OK)  # noqa: PTH112
        if is_shut and (state := _state(f"{folder}/__init__.py")) is not None:
            yield state


def _state(path: str, size: int | None = None) -> FileState | None:
    from gpudiag.hardware import elf, file_state  # 25 ms, and most files are as they should be

    return file_state.look(Path(path), elf.machine_of_python(), size)


def _is_whole(path: str, size: int) -> bool:
    """Return whether a file has the recorded size, or more, and may be read; True if it does not exist at all."""
    try:
        return os.stat(path).st_size >= size and os.access(path, os.R_OK)  # noqa: PTH116  # hundreds of texts
    except FileNotFoundError:
        return not os.path.islink(path)  # noqa: PTH114
    except OSError:
        return False


def _folder_of(file: str) -> str:
    """Return the folder in which a module is found, given its file."""
    path = Path(file)
    return str(path.parent.parent if path.name == "__init__.py" else path.parent)


def _outside() -> Iterator[tuple[str, str]]:
    for name in _IMPORTED:
        try:
            spec = PathFinder.find_spec(name)  # whether or not this process has imported it
        except (ImportError, ValueError):
            continue
        if spec is not None and spec.origin and not re.search(r"[/\\](?:site|dist)-packages[/\\]", spec.origin):
            yield name, printable(spec.origin)


def _in_working_directory(imported: str | None) -> str | None:
    """Return the module ``tensorflow`` of the working directory, if it is not TensorFlow and not ``imported``."""
    for file in (Path("tensorflow/__init__.py"), Path("tensorflow.py")):
        if not file.is_file() or (file.parent / _BUILD_INFO).exists():
            continue
        if imported is None or not file.samefile(imported):
            return printable(str(file.absolute()))
    return None


def _half_removed() -> tuple[str, ...]:
    """Return the folders that pip renamed while replacing a package and did not remove, because it was stopped or
    not permitted."""
    folders = (Path(entry) for entry in dict.fromkeys(sys.path) if "-packages" in entry)
    return tuple(printable(str(found)) for folder in folders for found in sorted(folder.glob("~*")))


def _ranges(metadata: Metadata, mandatory: bool = False) -> dict[str, str]:
    """Return the versions of NVIDIA's packages that this distribution requires.

    ``mandatory``: only requirements for this system without an extra, as torch has them; otherwise also those of extras
    such as ``and-cuda``.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    ranges = {}
    for text in texts(metadata):
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if mandatory and requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if requirement.name.startswith("nvidia-"):
            ranges[requirement.name] = str(requirement.specifier)
    return ranges


def _plugins() -> tuple[str, ...]:
    """Return the libraries that ``import tensorflow`` loads as plug-ins, as its ``__init__.py`` finds them."""
    folders = dict.fromkeys(Path(entry) for entry in sys.path if "site-packages" in entry)
    files = (file for folder in folders for file in sorted((folder / "tensorflow-plugins").glob("*")))
    return tuple(printable(str(file)) for file in files if file.suffix in (".so", ".dylib", ".dll"))


def _altered(metadata: Metadata) -> tuple[str, ...] | None:
    """Return those of a few files that differ from the record in ``metadata``: another distribution overwrote them.

    None if the metadata records no hash of them.
    """
    record = f"\n{recorded(metadata) or ''}\n"
    changed = []
    compared = False
    for name in ("__init__.py", _BUILD_INFO, *_LARGE):
        key = f"\ntensorflow/{name},sha256="
        begins = record.find(key)
        line = record[begins : record.find("\n", begins + 1)].removeprefix(key) if begins >= 0 else ""
        expected, _, size = line.partition(",")
        if not size.isdecimal():
            continue
        compared = True
        file = Path(str(metadata.locate_file(f"tensorflow/{name}")))
        try:
            if name in _LARGE:
                same = file.stat().st_size == int(size)
            else:
                digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest())
                same = digest.rstrip(b"=").decode() == expected
        except OSError:
            same = False
        if not same:
            changed.append(f"tensorflow/{name}")
    return tuple(changed) if compared else None


def _provides_tensorflow(metadata: Metadata) -> bool:
    """Return True for a distribution that installs a module ``tensorflow``.

    The text of RECORD is searched, because ``Distribution.files`` parses each of TensorFlow's 22,000 lines.
    """
    record = recorded(metadata)
    if record is not None:
        return "\ntensorflow/__init__.py," in record or record.startswith("tensorflow/__init__.py,")
    return "tensorflow" in (metadata.read_text("top_level.txt") or "").split()


def _fields(metadata: Metadata, *keys: str) -> Iterator[str]:
    """Yield these fields of the metadata, "" for a missing one: the remains of a removed distribution have none."""
    if text := header(metadata):
        pairs = (line.partition(":") for line in reversed(text.splitlines()))  # the first of a name counts
        own = {name.lower(): value.strip() for name, _, value in pairs}
        yield from (own.get(key.lower(), "") for key in keys)
        return
    fields = metadata.metadata  # parsed whenever it is asked for
    for key in keys:
        yield fields[key] if key in fields else ""  # noqa: SIM401  (typed without "get" before Python 3.12)


def _build(file: Path) -> TensorflowBuild | None:
    """Return the contents of ``build_info.py``, or None if it cannot be read."""
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
