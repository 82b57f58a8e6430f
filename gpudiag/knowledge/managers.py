"""What fills an environment of Python: package managers, as one table.

Each row has the signs by which an environment shows its manager, and how the manager installs and removes packages.
What pip would do in such an environment is undone by the manager sooner or later, or is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

OF_UV = {"--force-reinstall": "--reinstall", "--no-cache-dir": "--no-cache", "--pre": "--prerelease=allow", "-y": ""}
"""Options of pip, with those of uv that do the same."""


@dataclass(frozen=True)
class Manager:
    """A tool that makes environments of Python and installs packages into them."""

    name: str
    folders: tuple[str, ...] = ()
    """Parts of the paths of environments that this manager keeps for itself."""
    file: str = ""
    """What lies in each environment that it makes, and in no other."""
    lock: str = ""
    """Its lock file, in the folder of a project."""
    variable: str = ""
    """A variable that it sets while one of its environments is active."""
    installs: bool = False
    """True if it writes its name into the packages that it installs for a project, and for nothing else."""
    add: str = ""
    """How it adds packages; "" if pip does."""
    remove: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of pip, with its own that do the same."""
    add_of_conda: str = ""
    """How it adds packages of conda."""
    is_fixed: bool = False
    """True if nobody adds packages to an environment that is there."""
    keep: str = ""
    """What keeps a package that pip adds."""


MANAGERS = (
    Manager("pipx", ("/pipx/venvs/",)),
    Manager("uv tool", ("/uv/tools/",)),
    Manager(
        "poetry",
        ("/pypoetry/virtualenvs/",),
        lock="poetry.lock",
        variable="POETRY_ACTIVE",
        installs=True,
        add="poetry add",
        remove="poetry remove",
    ),
    Manager(
        "pipenv",
        ("/.local/share/virtualenvs/",),
        lock="Pipfile.lock",
        variable="PIPENV_ACTIVE",
        add="pipenv install",
        remove="pipenv uninstall",
    ),
    Manager(
        "pdm",
        ("/pdm/venvs/",),
        lock="pdm.lock",
        variable="PDM_PROJECT_ROOT",
        installs=True,
        add="pdm add",
        remove="pdm remove",
    ),
    Manager(
        "pixi",
        ("/.pixi/envs/",),
        lock="pixi.lock",
        add="pixi add --pypi",
        remove="pixi remove --pypi",
        add_of_conda="pixi add",
    ),
    Manager("rye", file="rye-venv.json", lock="requirements.lock", add="rye add --sync", remove="rye remove --sync"),
    Manager(
        "hatch",
        ("/hatch/env/virtual/",),
        variable="HATCH_ENV_ACTIVE",
        keep="add it to the dependencies in pyproject.toml, too: hatch makes the environment from them",
    ),
    Manager("Nix", ("/nix/store/",), is_fixed=True),
    Manager("Guix", ("/gnu/store/",), is_fixed=True),
    Manager("Spack", ("/spack/opt/",), file=".spack", is_fixed=True),
    Manager("EasyBuild", file="easybuild", is_fixed=True),
    Manager("conda", file="conda-meta"),
    Manager("uv", lock="uv.lock", add="uv add", remove="uv remove", options=OF_UV),
)
"""Every row; what an environment's own path shows is surer than a lock file beside it."""
BY_NAME = {manager.name: manager for manager in MANAGERS}
CONDAS = ("conda", "mamba", "micromamba")
"""The programs that install packages of conda, which take the same arguments for it."""
