"""Shared by causes: files that cannot serve as libraries, and how each is repaired."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePath
from shlex import quote

from gpudiag.fix import Action, Kind, Role, configure, distinct, install, note, run
from gpudiag.model.facts import FileFault, FileState, Library

_INSTALLED_AGAIN = frozenset(FileFault) - {FileFault.SHUT, FileFault.NOEXEC, FileFault.OTHER_BUILD}
_HOMES = ("/home", "/root", "/Users")
KEEPS_OUT = (FileFault.SHUT, FileFault.NOEXEC)
"""Faults of a whole file: the place where it is keeps it from being used, and the same file installed again would not
help."""


def states(libraries: Iterable[Library]) -> tuple[FileState, ...]:
    """Return the files that do not serve, each once."""
    return tuple({state.path: state for library in libraries for state in library.files}.values())


def shown(libraries: Iterable[Library]) -> Iterator[str]:
    """Yield a line of evidence for each file that has the name of a library and cannot serve as it."""
    for library in libraries:
        for file, why in library.passed_over.items():
            yield f"{file} {why}: the loader passes over it"
        for state in library.files:
            passed = state.fault in (FileFault.LINK, FileFault.SHUT, FileFault.PROCESSOR)
            yield f"{state.sentence}{': the loader passes over it' if passed else ''}"


def repairs(files: Iterable[FileState]) -> tuple[Action, ...]:
    """Return the actions after which the files serve; none for a file that no package owns and that is damaged."""
    files = tuple(files)
    again = dict.fromkeys(
        state.owner.replace(" ", "==") for state in files if state.owner and state.fault in _INSTALLED_AGAIN
    )
    linked = any(state.fault is FileFault.LINK and "/uv/" in state.place for state in files)
    why = "copies the files in place of linking to uv's cache, which was cleaned: uv does so with --link-mode=copy"
    return distinct(
        (
            *(action for state in files for action in _opened(state)),
            *(
                [install("--force-reinstall", "--no-deps", "--no-cache-dir", *again, note=why if linked else "")]
                if again
                else []
            ),
            *(_lfs(state) for state in files if "Git LFS" in state.words),
        )
    )


def _opened(state: FileState) -> tuple[Action, ...]:
    """Return how to change the place that keeps a whole file from being used."""
    if state.fault is FileFault.SHUT:
        if str(PurePath(state.place).parent) in _HOMES or state.place in _HOMES:
            place = f"{state.place} is a home folder that others may not enter"
            return (note(f"install TensorFlow in an environment of your own: {place}", kind=Kind.NEW_ENVIRONMENT),)
        return (configure(f"sudo chmod -R a+rX {quote(state.place)}", "lets every user read it"),)
    if state.fault is FileFault.NOEXEC:
        why = f"make the environment on another file system than {state.place}, which is mounted noexec"
        return (
            note(why, kind=Kind.NEW_ENVIRONMENT),
            configure(f"sudo mount -o remount,exec {quote(state.place)}", "instead", role=Role.ALTERNATIVE),
        )
    return ()


def _lfs(state: FileState) -> Action:
    folder = quote(str(PurePath(state.path).parent))
    return run(f"git -C {folder} lfs pull", "brings the file that the pointer stands for")
