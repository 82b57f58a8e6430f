"""A file of the working directory that hides a module which TensorFlow's import loads is found by its name."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest

from gpudiag.probes.discovery.trace import hidden_in


def test_a_file_or_package_of_the_name_of_a_loaded_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inspect.py").touch()
    (tmp_path / "json").mkdir()
    (tmp_path / "json/__init__.py").touch()
    (tmp_path / "logging").mkdir()  # no package: Python goes on to its own module
    (tmp_path / "my_program.py").touch()
    (tmp_path / "sys.py").touch()  # built in: Python looks into no folder for it
    (tmp_path / "os.py").touch()  # loaded before the folder of a program is searched
    assert hidden_in(tmp_path) == {
        "inspect": f"{tmp_path}/inspect.py",
        "json": f"{tmp_path}/json/__init__.py",
    }
    monkeypatch.delitem(sys.modules, "json")
    assert set(hidden_in(tmp_path)) == {"inspect"}, "what the import did not load is not hidden from it"


def test_the_folder_of_the_module_itself_hides_nothing() -> None:
    assert "inspect" not in hidden_in(Path(inspect.__file__).parent)
    assert hidden_in("/nowhere") == {}
