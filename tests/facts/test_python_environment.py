"""The tool that fills the environment of Python is found by its lock file."""

from __future__ import annotations

import sys
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


def test_a_hub_is_known_from_a_server_of_ones_own() -> None:
    kernel = {"JPY_PARENT_PID": "7"}
    assert gather(kernel).notebook == "Jupyter"
    assert gather({**kernel, "JUPYTERHUB_USER": "someone"}).notebook == "JupyterHub"
    assert gather({"JUPYTERHUB_USER": "someone"}).notebook == ""
