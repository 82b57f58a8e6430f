"""Which tool fills the environment of this interpreter, and how a user starts it: a part of the family ``system``."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from gpudiag import guest
from gpudiag.facts import printable, read_text
from gpudiag.knowledge.managers import CONDAS, MANAGERS, Manager
from gpudiag.knowledge.starters import NOTEBOOKS
from gpudiag.model.facts import PythonEnvironment

_TOOLS = (*CONDAS, "pipx", "poetry", "uv")


def gather(environ: Mapping[str, str] = os.environ) -> PythonEnvironment:
    """Return the facts of the environment of this interpreter; about 1 ms of a processor."""
    prefix = Path(sys.prefix)
    library = Path(sysconfig.get_path("purelib"))
    is_own = sys.prefix != sys.base_prefix
    manager, project = _manager(prefix, library, environ, is_own=is_own)
    made_by_uv = is_own and re.search(r"^uv = ", read_text(prefix / "pyvenv.cfg"), re.MULTILINE)
    return PythonEnvironment(
        tool=manager.name if manager else "uv venv" if made_by_uv else "venv" if is_own else "system",
        command=printable(_command()),
        has_pip=importlib.util.find_spec("pip") is not None,
        externally_managed=not is_own and Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED").exists(),
        writable=os.access(library, os.W_OK),
        project=printable(str(project or "")),
        tools=tuple(_tools(environ)),
        notebook=_notebook(environ),
        of_gpudiag=printable(guest.home["executable"]) if guest.home else "",
    )


def _tools(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the tools that the caller's shell finds; micromamba is a function of it, which names its program."""
    for name in _TOOLS:
        is_function = name == "micromamba" and Path(environ.get("MAMBA_EXE", "")).name == name
        if is_function or shutil.which(name, path=environ.get("PATH")):
            yield name


def _notebook(environ: Mapping[str, str]) -> str:
    name = next((row.name for row in NOTEBOOKS if row.variable in environ), "")
    return "JupyterHub" if name == "Jupyter" and "JUPYTERHUB_USER" in environ else name


def _manager(
    prefix: Path, library: Path, environ: Mapping[str, str], *, is_own: bool
) -> tuple[Manager | None, Path | None]:
    """Return what fills the environment, and the folder of the lock file that it is made from, if there is one.

    The file lies beside the environment, or in the current folder or above it if the environment lies elsewhere. uv may
    have been told by ``UV_PROJECT_ENVIRONMENT`` to use this one; in images that is often the system's own.
    """
    for manager in MANAGERS:
        part = next((part for part in manager.folders if part in f"{prefix}/"), "")
        if part or (manager.file and (prefix / manager.file).exists()):
            before = Path(f"{prefix}/".partition(part)[0]) if part else prefix.parent
            return manager, _with(manager.lock, (before, *_here()))
    is_active = environ.get("VIRTUAL_ENV") == str(prefix)
    named = environ.get("UV_PROJECT_ENVIRONMENT")
    for manager in (manager for manager in MANAGERS if not manager.file):
        if is_own and (project := _with(manager.lock, (prefix.parent,))):
            return manager, project
        project = _with(manager.lock, _here())
        if manager.variable and is_active and manager.variable in environ:
            return manager, project
        if project and manager.installs and _installed_by(manager.name, library):
            return manager, project
        if project and manager.name == "uv" and named and (project / named).resolve() == prefix.resolve():
            return manager, project
    return None, None


def _with(lock: str, folders: Iterable[Path]) -> Path | None:
    """Return the first folder that has the file ``lock``."""
    return next((folder for folder in folders if (folder / lock).is_file()), None) if lock else None


def _here() -> Iterator[Path]:
    """Yield the current folder and those above it."""
    with suppress(OSError):  # the current folder was removed
        here = Path.cwd()
        yield from (here, *here.parents)


def _installed_by(name: str, library: Path) -> bool:
    """Return whether the package of TensorFlow says that ``name``, such as ``poetry 1.8.3``, installed it."""
    files = library.glob("tensorflow*.dist-info/INSTALLER")
    return any(read_text(file).split(" ")[0].strip() == name for file in files)


def _command() -> str:
    """Return the shortest word that starts this interpreter in the caller's shell."""
    own = sys.executable
    for name in ("python", "python3"):
        there = shutil.which(name)
        # A link in another environment leads to the same file, and is another interpreter.
        if there and own and Path(there).parent == Path(own).parent:
            return name
    return own
