"""Which tool fills the environment of this interpreter, and how a user starts it: a part of the family ``system``."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Mapping
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
    return PythonEnvironment(
        tool=_tool(prefix, is_own=is_own),
        command=printable(_command()),
        has_pip=importlib.util.find_spec("pip") is not None,
        externally_managed=not is_own and Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED").exists(),
        writable=os.access(library, os.W_OK),
        project=printable(str(prefix.parent)) if _lock(prefix) else "",
        tools=tuple(name for name in _TOOLS if shutil.which(name, path=environ.get("PATH"))),
        notebook=next((name for variable, name in _NOTEBOOKS if variable in environ), ""),
        of_gpudiag=printable(guest.home["executable"]) if guest.home else "",
    )


def _tool(prefix: Path, *, is_own: bool) -> str:
    folder = f"{prefix}/"
    for part, tool in _BY_FOLDER:
        if part in folder:
            return tool
    if (prefix / "conda-meta").is_dir():
        return "conda"
    if not is_own:
        return "system"
    if tool := _lock(prefix):
        return tool
    return "uv venv" if re.search(r"^uv = ", read_text(prefix / "pyvenv.cfg"), re.MULTILINE) else "venv"


def _lock(prefix: Path) -> str:
    """Return the tool whose lock file lies beside the environment; "" if there is none."""
    return next((tool for file, tool in _BY_LOCK if (prefix.parent / file).is_file()), "")


def _command() -> str:
    """Return the shortest word that starts this interpreter in the caller's shell."""
    own = sys.executable
    for name in ("python", "python3"):
        there = shutil.which(name)
        # A link in another environment leads to the same file, and is another interpreter.
        if there and own and Path(there).parent == Path(own).parent:
            return name
    return own
