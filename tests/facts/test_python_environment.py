"""The tool that fills the environment of Python is found by its lock file."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from gpudiag.facts.python_environment import gather


def test_uv_is_told_which_environment_a_project_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = tmp_path / "src"
    below.mkdir()
    monkeypatch.chdir(below)
    told = {"UV_PROJECT_ENVIRONMENT": sys.prefix}
    assert gather(told).project == ""
    (tmp_path / "uv.lock").touch()
    named = gather(told)
    assert (named.tool, named.project) == ("uv", str(tmp_path))
    for other in ({}, {"UV_PROJECT_ENVIRONMENT": ".venv"}):
        assert gather(other).project == ""


MADE: tuple[tuple[str, tuple[str, ...], dict[str, str], tuple[str, str]], ...] = (
    ("home/.cache/pypoetry/virtualenvs/a-py3.11", (), {}, ("poetry", "")),
    ("work/.venv", ("work/poetry.lock",), {}, ("poetry", "work")),
    ("elsewhere", ("work/Pipfile.lock",), {"PIPENV_ACTIVE": "1", "VIRTUAL_ENV": "PREFIX"}, ("pipenv", "work")),
    ("elsewhere", ("work/Pipfile.lock",), {"PIPENV_ACTIVE": "1", "VIRTUAL_ENV": "/another"}, ("venv", "")),
    ("elsewhere", ("work/poetry.lock", "INSTALLER"), {}, ("poetry", "work")),
    ("elsewhere", ("INSTALLER",), {}, ("venv", "")),
    ("project/.pixi/envs/default", ("project/pixi.lock",), {}, ("pixi", "project")),
    ("work/.venv", ("work/.venv/rye-venv.json", "work/requirements.lock"), {}, ("rye", "work")),
    ("work/.venv", ("work/requirements.lock",), {}, ("venv", "")),
    ("hatch/env/virtual/a/b/a", (), {}, ("hatch", "")),
    ("spack/opt/spack/linux/python-3.11", (), {}, ("Spack", "")),
    ("conda", ("conda/conda-meta/history", "poetry.lock"), {}, ("conda", "")),
)


@pytest.mark.parametrize(("folder", "files", "variables", "expected"), MADE)
def test_the_manager_is_known_by_what_it_leaves(
    folder: str, files: tuple[str, ...], variables: dict[str, str], expected: tuple[str, str], tmp_path: Path
) -> None:
    prefix, work = tmp_path / folder, tmp_path / "work"
    venv.create(prefix, symlinks=True, with_pip=False)
    work.mkdir(exist_ok=True)
    (site,) = prefix.glob("lib/python*/site-packages")
    for name in files:
        path = site / "tensorflow-2.21.0.dist-info/INSTALLER" if name == "INSTALLER" else tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("poetry 1.8.3\n")
    own = [entry for entry in sys.path if entry]
    program = "from gpudiag.facts.python_environment import gather; known = gather(); print(known.tool, known.project)"
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(own)}
    environ |= {name: value.replace("PREFIX", str(prefix)) for name, value in variables.items()}
    command = [str(prefix / "bin/python"), "-c", program]
    done = subprocess.run(command, env=environ, cwd=work, capture_output=True, text=True, check=True, timeout=60)
    project = f"{tmp_path}/{expected[1]}" if expected[1] else ""
    assert done.stdout == f"{expected[0]} {project}\n"


def test_a_hub_is_known_from_a_server_of_ones_own() -> None:
    kernel = {"JPY_PARENT_PID": "7"}
    assert gather(kernel).notebook == "Jupyter"
    assert gather({**kernel, "JUPYTERHUB_USER": "someone"}).notebook == "JupyterHub"
    assert gather({"JUPYTERHUB_USER": "someone"}).notebook == ""
