"""Configuration files: whose are taken, what they may name, and that a report says which was in force."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from conftest import Gpudiag
from gpudiag import configuration
from gpudiag.cli import config
from gpudiag.cli.check import check
from gpudiag.errors import UsageError
from gpudiag.model import codec

ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to others")
OTHER = 12345


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "project" / "gpudiag.toml"
    path.parent.mkdir()
    path.write_text("allow-no-gpu = true\n")
    return path


def found(start: Path) -> Path | None:
    return configuration.find(start).file


def test_an_own_file_is_taken(file: Path) -> None:
    assert configuration.find(file.parent) == configuration.ConfigurationFile(file)


@ROOT_ONLY
@pytest.mark.parametrize("which", ["file", "link"])
def test_a_file_of_somebody_else_is_ignored_with_a_note(which: str, file: Path) -> None:
    if which == "link":
        file.rename(file.with_name("mine.toml"))
        file.symlink_to("mine.toml")
    os.chown(file, OTHER, -1, follow_symlinks=False)
    config = configuration.find(file.parent)
    assert config.file != file
    assert config.ignored == (f"{file} is ignored: it belongs to uid {OTHER}. To use it: --config {file}",)


@ROOT_ONLY
def test_a_file_below_that_of_somebody_else_is_found_above_it(file: Path, tmp_path: Path) -> None:
    below = tmp_path / "project" / "below"
    below.mkdir()
    (below / "gpudiag.toml").touch()
    os.chown(below / "gpudiag.toml", OTHER, -1)
    config = configuration.find(below)
    assert (config.file, len(config.ignored)) == (file, 1)


@ROOT_ONLY
@pytest.mark.parametrize(("table", "notes"), [("[tool.gpudiag]\n", 1), ("[tool.other]\n[broken", 0)])
def test_of_a_pyproject_of_somebody_else_only_a_table_for_gpudiag_is_noted(
    table: str, notes: int, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text(table)
    os.chown(tmp_path / "pyproject.toml", OTHER, -1)
    assert len(configuration.find(tmp_path).ignored) == notes


@ROOT_ONLY
@pytest.mark.parametrize(("uid", "taken"), [(str(OTHER), True), ("54321", False), ("junk", False)])
def test_under_sudo_the_files_of_the_caller_count(
    uid: str, taken: bool, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(file, OTHER, -1)
    monkeypatch.setenv("SUDO_UID", uid)
    assert (found(file.parent) == file) is taken


@ROOT_ONLY
def test_a_user_takes_what_is_roots_and_no_other_users() -> None:
    source = f"""
import os, pwd, sys
sys.path[:] = {[entry for entry in sys.path if entry]!r}
from pathlib import Path
from gpudiag import configuration
os.environ["SUDO_UID"] = "54321"  # anybody can set it: it counts for root alone
os.setuid({OTHER})
for folder in map(Path, sys.argv[1:]):
    print(configuration.find(folder).file == folder / "gpudiag.toml")
"""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:  # other users do not reach pytest's own folders
        Path(name).chmod(0o755)
        folders = [Path(name) / owner for owner in ("root", "other")]
        for folder in folders:
            folder.mkdir(mode=0o755)
            (folder / "gpudiag.toml").touch()
        os.chown(folders[1] / "gpudiag.toml", 54321, -1)
        command = [sys.executable, "-c", source, *map(str, folders)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, cwd="/")
    assert done.stdout.split() == ["True", "False"]


@pytest.mark.parametrize(
    ("file_mode", "folder_mode", "why"),
    [
        (0o644, 0o777, "everybody can write to its folder"),
        (0o666, 0o755, "everybody can write to it"),
        (0o644, 0o1777, ""),  # as in /tmp, where nobody can replace it
        (0o664, 0o775, ""),  # umask 002 is what many systems set: whom the group has is the owner's affair
    ],
)
def test_what_others_can_write_is_ignored(file_mode: int, folder_mode: int, why: str, file: Path) -> None:
    file.chmod(file_mode)
    file.parent.chmod(folder_mode)
    config = configuration.find(file.parent)
    assert (config.file == file) is (why == "")
    assert why in " ".join(config.ignored)


def load(path: Path, *, found: bool) -> dict[str, Any]:
    return config.load(path, check.params, found=found)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("output", ["/etc/gpudiag.json"]),
        ("output", ["r.json", "../other.json"]),
        ("output", ["link/r.json"]),
        ("log", "../other.json"),
    ],
)
def test_a_file_that_was_found_names_no_file_outside_its_tree(
    key: str, value: str | list[str], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    (file.parent.parent / "other.json").touch()
    (file.parent / "link").symlink_to("/etc")
    file.write_text(f"{key} = {json.dumps(value)}\n")
    with pytest.raises(UsageError, match=rf"'{key}': .* is not in {file.parent}\..*--config {file}"):
        load(file, found=True)
    assert load(file, found=False)


def test_files_in_its_tree_may_be_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    file.write_text(f'output = ["r.json", "{file.parent}/s.xml"]\n')
    assert load(file, found=True) == {"output": [Path("r.json"), file.parent / "s.xml"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a" + ".a" * 30_000 + " = 1", "more than 1000 dots"),
        ("a = " + "[" * 50_000, "not TOML"),
        ("# " + "x" * (256 << 10), "larger than 256 KiB"),
    ],
)
def test_what_would_keep_the_parser_busy_is_refused(text: str, said: str, file: Path) -> None:
    file.write_text(text)
    with pytest.raises(UsageError, match=said):
        load(file, found=False)


def test_the_file_in_force_is_named_with_what_it_sets(gpudiag: Gpudiag) -> None:
    file = gpudiag.folder / "gpudiag.toml"
    file.write_text('allow-no-gpu = true\nlevel = "quick"\nformat = "table"\noutput = ["r.json", "r.md", "r.xml"]\n')
    done = gpudiag("check", "host", "--level", "full")
    assert done.returncode == 0
    report = codec.load(gpudiag.folder / "r.json")
    assert report.settings is not None
    assert report.settings.file == str(file)
    assert report.settings.values == {"allow-no-gpu": "true", "format": "table", "output": "r.json r.md r.xml"}
    assert f"gpudiag: settings from {file}: allow-no-gpu=true, " in done.stderr
    for shown in (done.stdout, *((gpudiag.folder / f"r.{suffix}").read_text() for suffix in ("md", "xml"))):
        assert "allow-no-gpu=true" in " ".join(shown.split())
        assert "level=quick" not in shown


@ROOT_ONLY
def test_an_ignored_file_breaks_nothing_and_is_noted_in_the_report(gpudiag: Gpudiag) -> None:
    file = gpudiag.folder / "gpudiag.toml"
    file.write_text("allow-no-gpu = true\n")
    os.chown(file, OTHER, -1)
    done = gpudiag("check", "host", "-o", "r.json")
    assert done.returncode == 5, done.stderr
    report = codec.load(gpudiag.folder / "r.json")
    assert report.settings is None
    assert report.notes == (f"{file} is ignored: it belongs to uid {OTHER}. To use it: --config {file}",)
    assert report.notes[0] in done.stderr
    assert "is ignored" in done.stdout
    named = gpudiag("check", "host", "-q", "--config", str(file))
    assert (named.returncode, "allow-no-gpu=true" in named.stdout) == (0, True)
