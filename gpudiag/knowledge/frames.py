"""Frames of a traceback: the file that each names, and whose that file is."""

from __future__ import annotations

import re

FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
"""A frame as Python prints it."""
_INSTALLED = re.compile(
    r"(?:site|dist)-packages[/\\](?P<package>\w{1,60})|[/\\]lib(?:64)?[/\\]python|[/\\]Lib[/\\]|<(?:frozen|string)"
)


def is_installed(file: str) -> bool:
    """Return whether a file is Python's own or an installed package's, and not the program's."""
    return _INSTALLED.search(file) is not None


def packages_in(text: str) -> list[str]:
    """Return the installed packages whose files a text names, in order."""
    return [found["package"] for found in _INSTALLED.finditer(text) if found["package"]]
