"""Which tool fills the environment of this interpreter, and how a user starts it: a part of the family ``system``."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from gpudiag import guest
from gpudiag.facts import printable, read_text
from gpudiag.model.facts import PythonEnvironment

_BY_FOLDER = (
    ("/pipx/venvs/", "pipx"),
    ("/pypoetry/virtualenvs/", "poetry"),
    ("/.local/share/virtualenvs/", "pipenv"),
    ("/.pixi/envs/", "pixi"),
    ("/uv/tools/", "uv tool"),
)
"""Parts of the paths of environments that a tool keeps for itself."""
_BY_LOCK = (("uv.lock", "uv"), ("poetry.lock", "poetry"), ("pdm.lock", "pdm"), ("Pipfile.lock", "pipenv"))
"""The files, beside the folder of an environment, of tools that remove from it what they did not install."""
_NOTEBOOKS = (
    ("COLAB_RELEASE_TAG", "Colab"),
    ("KAGGLE_KERNEL_RUN_TYPE", "Kaggle"),
    ("DATABRICKS_RUNTIME_VERSION", "Databricks"),
    ("JPY_PARENT_PID", "Jupyter"),
)
"""Variables that services of notebooks set for their kernels, the most special first."""
_TOOLS = ("conda", "mamba", "pipx", "poetry", "uv")


def gather(environ: Mapping[str, str] = os.environ) -> PythonEnvironment:
    """Return the facts of the environment of this interpreter; about 1 ms of a processor."""
    prefix = Path(sys.prefix)
    library = Path(sysconfig.get_path("purelib"))
    is_own = sys.prefix != sys.base_prefix
    lock_tool, project = _lock(prefix, environ)
    return PythonEnvironment(
        tool=_tool(prefix, lock_tool, is_own=is_own),
        command=printable(_command()),
        has_pip=importlib.util.find_spec("pip") is not None,
        externally_managed=not is_own and Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED").exists(),
        writable=os.access(library, os.W_OK),
        project=printable(project),
        tools=tuple(name for name in _TOOLS if shutil.which(name, path=environ.get("PATH"))),
        notebook=_notebook(environ),
        of_gpudiag=printable(guest.home["executable"]) if guest.home else "",
    )


def _notebook(environ: Mapping[str, str]) -> str:
    name = next((name for variable, name in _NOTEBOOKS if variable in environ), "")
    return "JupyterHub" if name == "Jupyter" and "JUPYTERHUB_USER" in environ else name


def _tool(prefix: Path, lock_tool: str, *, is_own: bool) -> str:
    folder = f"{prefix}/"
    for part, tool in _BY_FOLDER:
        if part in folder:
            return tool
    if (prefix / "conda-meta").is_dir():
        return "conda"
    if lock_tool:
        return lock_tool
    if not is_own:
        return "system"
    return "uv venv" if re.search(r"^uv = ", read_text(prefix / "pyvenv.cfg"), re.MULTILINE) else "venv"


def _lock(prefix: Path, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the tool that fills the environment from a lock file, and the folder of that file; both "" without one.

    The file lies beside the environment, or uv was told by ``UV_PROJECT_ENVIRONMENT`` to use this one for the project
    whose file lies in the current folder or above it; in images that is often the system's own.
    """
    if sys.prefix != sys.base_prefix:
        for file, tool in _BY_LOCK:
            if (prefix.parent / file).is_file():
                return tool, str(prefix.parent)
    if named := environ.get("UV_PROJECT_ENVIRONMENT"):
        with suppress(OSError):  # the current folder was removed
            here = Path.cwd()
            project = next((folder for folder in (here, *here.parents) if (folder / "uv.lock").is_file()), None)
            if project is not None and (project / named).resolve() == prefix.resolve():
                return "uv", str(project)
    return "", ""


def _command() -> str:
    """Return the shortest word that starts this interpreter in the caller's shell."""
    own = sys.executable
    for name in ("python", "python3"):
        there = shutil.which(name)
        # A link in another environment leads to the same file, and is another interpreter.
        if there and own and Path(there).parent == Path(own).parent:
            return name
    return own
