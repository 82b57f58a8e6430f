"""Configuration files: ``gpudiag.toml``, or ``[tool.gpudiag]`` in ``pyproject.toml``; the nearest upwards is used."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpudiag import trust
from gpudiag.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


OWN_FILE = "gpudiag.toml"
PROJECT_FILE = "pyproject.toml"
_LARGEST = 256 << 10
"""The largest size in bytes of a configuration file."""
_MOST_DOTS = 1000
"""The most dots in one line: tomllib takes a minute for a key of 30,000 parts (Python 3.11.7)."""


@dataclass(frozen=True)
class ConfigurationFile:
    """The result of a search for a configuration file."""

    file: Path | None
    ignored: tuple[str, ...] = ()
    """A sentence for each configuration file that was skipped because other users may have written it."""


def find(start: Path) -> ConfigurationFile:
    """Return the nearest configuration file, in ``start`` or above, that only this user or root can have written.

    Raises :class:`UsageError` if a pyproject.toml that the search meets cannot be read or used.
    """
    ignored = []
    for folder in (start, *start.parents):
        for file in (folder / OWN_FILE, folder / PROJECT_FILE):
            if not os.path.isfile(file):  # noqa: PTH113  (Path.is_file raises for a folder that may not be searched)
                continue
            if distrust := _distrust(file):
                if file.name == OWN_FILE or _mentions(file):
                    ignored.append(f"{file} is ignored: {distrust}. To use it: --config {file}")
            elif file.name == OWN_FILE or _is_for_gpudiag(file):
                return ConfigurationFile(file, tuple(ignored))
    return ConfigurationFile(None, tuple(ignored))


def _is_for_gpudiag(project: Path) -> bool:
    try:
        content = parsed(project)
    except UsageError as error:
        raise UsageError(
            f"{error} gpudiag looks for [tool.gpudiag] there. Fix that file, use --config FILE, or put a {OWN_FILE} "
            "(it may be empty) beside it, which is read in its place."
        ) from None
    return table_of(project, content) is not None


def _distrust(file: Path) -> str:
    """Return why another user may have written ``file``; "" if its owners and modes show that this user or root did.

    As git does, root trusts under sudo also the files of the user who called it.
    """
    also: frozenset[int] = frozenset()
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        with contextlib.suppress(KeyError, ValueError):
            also = frozenset({int(os.environ["SUDO_UID"])})
    return trust.distrust(file, also)


def _mentions(project: Path) -> bool:
    """Return whether another user's pyproject.toml has a table for gpudiag; it is not parsed."""
    try:
        with project.open("rb") as stream:
            return (
                re.search(rb"^[ \t]*\[[ \t]*tool[ \t]*\.[ \t]*gpudiag\b", stream.read(_LARGEST), re.MULTILINE)
                is not None
            )
    except OSError:
        return False


EXPECT = "expect"
SECTIONS = ("lint", EXPECT)
"""Tables inside gpudiag's own: for ``gpudiag lint`` and for a deployment's expectations. All other keys are options of
``gpudiag check``."""


def expectations(path: Path, *, named: bool) -> dict[str, Any] | None:
    """Return the expectations in ``path``: the table ``expect`` of a configuration file, or the whole other file.

    None if a configuration file has no such table and the user has not ``named`` the file. Raises :class:`UsageError`.
    """
    content = parsed(path)
    if path.name not in (OWN_FILE, PROJECT_FILE):
        return content
    table = (table_of(path, content) or {}).get(EXPECT)
    header = f"[tool.gpudiag.{EXPECT}]" if path.name == PROJECT_FILE else f"[{EXPECT}]"
    if table is None and named:
        raise UsageError(f"{path}: has no table {header}. Write one, or name a file of expectations alone.")
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{path}: {EXPECT!r} must be a table: {header}.")
    return table


def table_of(path: Path, content: dict[str, Any]) -> dict[str, Any] | None:
    """Return gpudiag's settings from the ``content`` of ``path``; None if a pyproject.toml does not mention gpudiag."""
    if path.name != PROJECT_FILE:
        if "tool" in content:
            raise UsageError(f"{path}: remove the header [tool.gpudiag]: only {PROJECT_FILE} needs it.")
        return content
    tool = content.get("tool", {})
    if not isinstance(tool, dict):
        raise UsageError(f"{path}: 'tool' must be a table, such as [tool.gpudiag].")
    if "gpudiag" not in tool:
        for name in tool:
            if difflib.SequenceMatcher(None, name.lower(), "gpudiag").ratio() > 0.8:
                raise UsageError(f"{path}: unknown table [tool.{name}]. Did you mean 'gpudiag'?")
        return None
    own = tool["gpudiag"]
    if not isinstance(own, dict):
        raise UsageError(f"{path}: 'tool.gpudiag' must be one table: [tool.gpudiag].")
    return own


def parsed(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file():
            raise UsageError(f"{path}: cannot be read: it is not a regular file.")
        with path.open("rb") as stream:
            text = stream.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise UsageError(f"{path}: larger than {_LARGEST >> 10} KiB, so it is not read.")
        if any(line.count(b".") > _MOST_DOTS for line in text.splitlines()):
            raise UsageError(f"{path}: a line has more than {_MOST_DOTS} dots, so it is not read.")
        content: dict[str, Any] = tomllib.loads(text.decode("utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not TOML: {error}.") from None
    return content
