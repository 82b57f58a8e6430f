"""The start-up files of Python that put folders and archives on ``sys.path``, or find modules beside it.

They are read as text; what the text does not show, a new interpreter shows, which looks after each file.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path

from gpudiag import trust
from gpudiag.facts import printable
from gpudiag.interpreter import asked
from gpudiag.model.facts import Provenance, ProvenanceKind

_PACKAGES = tuple(f"{before}{kind}-packages" for before in "-/\\" for kind in ("site", "dist"))
_FINDER = re.compile(r"\b__editable__\w{1,200}_finder\b")
_TIMEOUT_S = 5
_LARGEST = 256 << 10
_STARTED = """
import site
answer = {}
known = set(sys.path)
def note(file):
    answer.update((entry, file) for entry in sys.path if entry not in known)
    known.update(sys.path)
def noting(name, file_of):
    done = getattr(site, name)
    def run(*given, **named):
        note("")
        result = done(*given, **named)
        note(file_of(*given))
        return result
    setattr(site, name, run)
noting("addpackage", lambda folder, name, *_: os.path.join(folder, name))
for module in ("sitecustomize", "usercustomize"):
    noting("exec" + module, lambda module=module: getattr(sys.modules.get(module), "__file__", None) or module)
site.main()
"""


def provenance(beside: Iterable[str] = ()) -> dict[str, Provenance]:
    """Return the entries of ``sys.path``, and the folders ``beside`` it, that a start-up file names, each with it.

    Entries of ``PYTHONPATH`` are the variable's, and Python's own folders and those of packages are nobody's.
    """
    given = {os.path.normpath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry}
    on_path = {entry: os.path.normpath(entry) for entry in sys.path if entry and _is_foreign(entry)}
    wanted = dict.fromkeys((*on_path.values(), *map(os.path.normpath, beside)))
    wanted = {folder: None for folder in wanted if folder not in given and _is_foreign(folder)}
    if not wanted:
        return {}
    found: dict[str, str] = {}
    for file in _start_files():
        for folder, line in _named(file, wanted):
            found.setdefault(folder, f"{file} line {line}" if line else str(file))
    explained = {*found, *_of_program()}
    rest = [entry for entry, folder in on_path.items() if folder in wanted and folder not in explained]
    if rest:
        shown = _shown_by_a_start()
        found |= {on_path[entry]: shown[entry] for entry in rest if shown.get(entry)}
    return {printable(folder): Provenance(ProvenanceKind.PYTHON, printable(place)) for folder, place in found.items()}


def _of_program() -> Iterator[str]:
    """Yield the folders that Python itself puts on ``sys.path``: of the script, or the working directory."""
    with contextlib.suppress(OSError):  # the current folder was removed
        yield from (str(Path(file).absolute().parent) for file in (sys.executable, sys.argv[0]) if file)
        yield str(Path.cwd())


def _is_foreign(entry: str) -> bool:
    standard = os.path.dirname(os.__file__)  # noqa: PTH120
    own = entry.startswith(standard) or re.search(r"/python\d+\.zip$", entry)
    return Path(entry).is_absolute() and not own and not entry.endswith(_PACKAGES)


def _start_files() -> Iterator[Path]:
    for entry in dict.fromkeys(entry for entry in sys.path if entry.endswith(_PACKAGES)):
        yield from sorted(Path(entry).glob("*.pth"))
    for name in ("sitecustomize", "usercustomize"):
        spec = PathFinder.find_spec(name)
        if spec is not None and spec.origin:
            yield Path(spec.origin)


def _text(file: Path) -> str:
    try:
        return trust.read(file, _LARGEST).decode(errors="replace")
    except OSError:
        return ""


def _named(file: Path, folders: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield the folders that a start-up file names, each with the line; 0 if a module that it imports names it."""
    finders = ""
    for number, line in enumerate(_text(file).splitlines(), 1):
        is_code = file.suffix == ".py" or line.startswith(("import ", "import\t"))
        finders += " ".join(_text(file.with_name(f"{name}.py")) for name in _FINDER.findall(line) if is_code)
        for folder in folders:
            if folder in line if is_code else os.path.normpath(file.parent / line.strip()) == folder:
                yield folder, number
    yield from ((folder, 0) for folder in folders if f"'{folder}/" in finders)


def _shown_by_a_start() -> dict[str, str]:
    """Return what the start of a new interpreter adds to ``sys.path``, each with the file after which it is there."""
    try:
        # -S: the script starts what is left out, and looks after each file.
        return dict(json.loads(asked(_STARTED, env=os.environ, timeout_s=_TIMEOUT_S, options=("-S",))))
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
