"""Compares TensorFlow's requirements with the installed packages: versions, files, and the Python that a wheel is for.

Only metadata is read; nothing is imported.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import Distribution as Metadata
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from gpudiag.facts import printable
from gpudiag.model.facts import Requirement

if TYPE_CHECKING:
    from packaging.requirements import Requirement as Parsed

_MOST_FILES = 3
_MODULE_FILE = re.compile(r"^([^,\n]+\.(?:py|so))(?:,[^,\n]*){0,2}$", re.MULTILINE)
_OF_AN_EXTRA = re.compile(r"\bextra *== *['\"]\w")


def normalized(name: str) -> str:
    """Return the name of a distribution as PEP 503 writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(name: str, own: Metadata, installed: Mapping[str, Metadata]) -> tuple[Requirement, ...]:
    """Return the unmet requirements of the distribution ``own``, called ``name``, and of its requirements in turn.

    ``installed`` has the first distribution of each name on ``sys.path``, by its normalized name.
    """
    requirements_by_key: dict[tuple[str, str], Requirement] = {}
    asking = [name]
    seen = {**installed, name: own}
    visited: set[str] = set()
    while asking:
        by = asking.pop(0)
        if by in visited or by not in seen:
            continue
        visited.add(by)
        for parsed in _required(seen[by]):
            needed = normalized(parsed.name)
            asking.append(needed)
            requirement = _compared(needed, parsed, seen.get(needed), by)
            if seen[by] is own or not requirement.fits:
                requirements_by_key.setdefault((needed, str(parsed.specifier)), requirement)
    return tuple(requirements_by_key.values())


def _required(metadata: Metadata) -> Iterator[Parsed]:
    """Yield the requirements that apply to this Python and system, without those of extras."""
    from packaging.requirements import InvalidRequirement, Requirement

    for text in texts(metadata):
        marker = text.partition(";")[2]
        if _OF_AN_EXTRA.search(marker) and " or " not in marker:  # most are, and to parse one takes 0.1 ms
            continue
        try:
            parsed = Requirement(text)
            if parsed.marker is None or parsed.marker.evaluate({"extra": ""}):
                yield parsed
        except (InvalidRequirement, KeyError, ValueError):  # a marker can name what nobody defines
            continue


def texts(metadata: Metadata) -> list[str]:
    """Return a distribution's requirements as written, such as ``numpy>=1.26; python_version < "3.13"``."""
    fields = header(metadata)
    return re.findall(r"^Requires-Dist: (.+)$", fields, re.MULTILINE) if fields else metadata.requires or []


@cache
def recorded(metadata: Metadata) -> str | None:
    """Return the text of RECORD (2 MB for TensorFlow); None if there is none."""
    return metadata.read_text("RECORD")


def recorded_libraries(record: str) -> Iterator[tuple[str, int]]:
    """Yield file and size (0: not recorded) of each library in the text of RECORD, which has 22,000 lines."""
    at = record.find(".so")
    while at >= 0:
        begins, ends = record.rfind("\n", 0, at) + 1, record.find("\n", at)
        line = record[begins : ends if ends >= 0 else len(record)].rstrip("\r")
        file, _, rest = line.partition(",")
        size = rest.rpartition(",")[2]
        if file.endswith(".so") or re.search(r"\.so\.[.\d]{1,99}$", file):
            yield file, int(size) if size.isdecimal() else 0
        at = record.find(".so", begins + len(line))


@cache
def header(metadata: Metadata) -> str:
    """Return the fields of METADATA; "" for another format. The email parser of the standard library takes 0.5 ms."""
    try:
        return (metadata.read_text("METADATA") or "").partition("\n\n")[0]
    except (OSError, ValueError):
        return ""


def _version(metadata: Metadata) -> str:
    match = re.search(r"^Version: (\S+)$", header(metadata), re.MULTILINE)
    return match[1] if match else str(metadata.version)


def _compared(name: str, parsed: Parsed, metadata: Metadata | None, by: str) -> Requirement:
    from packaging.version import InvalidVersion

    if metadata is None:
        return Requirement(name, str(parsed.specifier), by, None)
    try:
        version = _version(metadata)
        in_range = parsed.specifier.contains(version, prereleases=True)
    except (InvalidVersion, TypeError, KeyError):  # what is left of a removed distribution has no version
        return Requirement(name, str(parsed.specifier), by, "")
    location, gone, tag = _state(metadata)
    return Requirement(name, str(parsed.specifier), by, version, location, in_range, gone, tag)


@cache
def _state(metadata: Metadata) -> tuple[str, tuple[str, ...], str]:
    """Return a distribution's folder, the first of its modules that is missing, and its tag if that is for another
    Python."""
    root = Path(str(metadata.locate_file("")))
    try:
        record, wheel = recorded(metadata) or "", metadata.read_text("WHEEL") or ""
    except (OSError, ValueError):
        return printable(str(root)), (), ""
    # As texts: thousands of paths would take a tenth of a second to make.
    if (project := _editable(metadata)) and not os.path.exists(project):  # noqa: PTH110
        return printable(str(root)), (printable(project),), ""
    gone = [file for file in _MODULE_FILE.findall(record) if _is_absent(f"{root}/{file}")]
    tags = [line.removeprefix("Tag: ") for line in wheel.splitlines() if line.startswith("Tag: ")]
    foreign = tags and not any(_is_ours(tag) for tag in tags)
    return printable(str(root)), tuple(map(printable, gone[:_MOST_FILES])), tags[0] if foreign else ""


def _is_absent(path: str) -> bool:
    """Return True only if there is no such file: behind a folder that this user may not enter, nobody knows."""
    try:
        os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _editable(metadata: Metadata) -> str:
    """Return the folder of the project that an editable installation leads to; "" for any other (PEP 610)."""
    try:
        direct = json.loads(metadata.read_text("direct_url.json") or "{}")
        url = urlsplit(direct["url"])
        return unquote(url.path) if direct["dir_info"]["editable"] and url.scheme == "file" else ""
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def _is_ours(tag: str) -> bool:
    """Return whether a tag such as ``cp311-cp311-manylinux_2_17_x86_64`` is for this Python; the system is not judged.

    A tag can be compressed, as ``py2.py3-none-any``.
    """
    pythons, abis, _, *_ = (*tag.split("-"), "", "", "")
    return any(f"{python}-{abi}" in _our_pythons() for python in pythons.split(".") for abi in abis.split("."))


@cache
def _our_pythons() -> frozenset[str]:
    from packaging.tags import sys_tags

    return frozenset(f"{tag.interpreter}-{tag.abi}" for tag in sys_tags())
