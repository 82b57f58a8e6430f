"""What gpudiag removes: its own folders, and nothing else."""

from __future__ import annotations

import ast
import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import gpudiag
from gpudiag import folders


def made(folder: Path) -> Path:
    with folders.new(folder) as unfinished:
        (unfinished / "lib").mkdir()
        (unfinished / "lib/file").write_text("x")
        (unfinished / "link").symlink_to(folder.parent)
    return folder


def test_a_folder_that_gpudiag_made_is_removed_as_a_whole_or_in_part(tmp_path: Path) -> None:
    folder = made(tmp_path / "a folder")
    assert folders.remove(folder / "lib")
    assert folders.remove(folder / "link")
    assert folders.remove(folder / "was never there")
    assert sorted(path.name for path in folder.iterdir()) == [folders.MARK]
    assert folders.remove(folder)
    assert not list(tmp_path.iterdir())


def replace_by_a_pipe(mark: Path) -> None:
    mark.unlink()
    os.mkfifo(mark)


@pytest.mark.parametrize(
    "alter",
    [
        lambda mark: mark.unlink(),
        lambda mark: mark.write_text("{"),
        lambda mark: mark.write_text("{}"),
        lambda mark: mark.write_text("[" * 100_000),
        lambda mark: (mark.unlink(), mark.mkdir()),
        replace_by_a_pipe,
        lambda mark: (mark.rename(mark.with_name("real")), mark.symlink_to("real")),
        lambda mark: mark.parent.rename(mark.parent.with_name("moved")),
        lambda mark: os.chown(mark, 65534, 65534),
        lambda mark: os.chown(mark.parent, 65534, 65534),
    ],
    ids=[
        "none",
        "not JSON",
        "empty",
        "nested",
        "folder",
        "pipe",
        "link",
        "moved",
        "of another user",
        "another's folder",
    ],
)
def test_without_a_right_mark_nothing_is_removed(alter: object, tmp_path: Path) -> None:
    assert callable(alter)
    folder = made(tmp_path / "folder")
    try:
        alter(folder / folders.MARK)
    except PermissionError:
        pytest.skip("needs root, who can give a file to another user")
    (there,) = tmp_path.iterdir()
    before = sorted(tmp_path.rglob("*"))
    assert not folders.remove(there)
    assert not folders.remove(there / "lib")
    assert not folders.remove(there / "lib/file")
    folders.remove_leftovers(tmp_path, "")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.EACCES, errno.ENOMEM])
def test_a_mark_that_cannot_be_read_removes_nothing(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(tmp_path / "folder")
    monkeypatch.setattr(folders, "boot", lambda: "the next start")
    opened = os.open

    def failing(path: object, *arguments: int) -> int:
        if Path(str(path)).name == folders.MARK:
            raise OSError(number, os.strerror(number))
        return opened(path, *arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", failing)
        folders.remove_leftovers(tmp_path, "")
        assert not folders.remove(folder)
        assert (folder / "lib/file").is_file()
    folders.remove_leftovers(tmp_path, "")
    assert not folder.exists()


def test_a_copy_is_not_removed_and_a_link_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made(tmp_path / "gpudiag-folder")
    shutil.copytree(folder, tmp_path / "gpudiag-copy", symlinks=True)
    (tmp_path / "gpudiag-link").symlink_to(folder)
    monkeypatch.setattr(folders, "boot", lambda: "the next start")
    assert not folders.remove(tmp_path / "gpudiag-copy")
    assert not folders.remove(tmp_path / "gpudiag-link")
    assert (folder / "lib/file").is_file()
    folders.remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpudiag-copy", "gpudiag-link"]


def test_no_other_module_removes_anything() -> None:
    """What removes or replaces a file has one of these names, and is called in one module alone."""
    package = Path(gpudiag.__file__).parent
    removing = []
    for path in package.rglob("*.py"):
        nodes = [] if path == Path(folders.__file__) else ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        removing += [f"{path.relative_to(package)}:{node.lineno}: {name}" for node in nodes if (name := removal(node))]  # type: ignore[attr-defined]
    assert not removing, "use gpudiag.folders, which asks for the mark"


def test_what_removes_is_seen() -> None:
    for line in (
        "shutil.rmtree(a)",
        "a.unlink(missing_ok=True)",
        "from os import remove",
        "stack.callback(shutil.rmtree, a)",
        "os.remove(a)",
        "os.replace(a, b)",
        "a.replace(b)",
        "with tempfile.TemporaryDirectory(): pass",
    ):
        assert any(removal(node) for node in ast.walk(ast.parse(line))), line
    for line in ("a.remove(b)", "a.replace('b', 'c')", "structs.replace(a, b=c)", "folders.remove(a)"):
        assert not any(removal(node) for node in ast.walk(ast.parse(line))), line


def removal(node: ast.AST) -> str:
    """Return what may remove or replace a file in a piece of code; "" if nothing does."""
    match node:
        case ast.ImportFrom(module="os" | "shutil" | "pathlib" | "tempfile", names=names):
            return " ".join(alias.name for alias in names if alias.name in REMOVING | AMBIGUOUS)
        case ast.Attribute(attr=name) if name in REMOVING:
            return name
        case ast.Attribute(attr=name, value=ast.Name("os" | "shutil" | "pathlib" | "Path")) if name in AMBIGUOUS:
            return name
        case ast.Call(func=ast.Attribute(attr="replace"), args=[_], keywords=[]):  # a text or a record takes more
            return "replace"
    return ""


REMOVING = {
    *("rmtree", "unlink", "rmdir", "removedirs", "unlinkat", "TemporaryDirectory", "NamedTemporaryFile"),
    *("rename", "renames", "move"),
}
AMBIGUOUS = {"remove", "replace"}
"""Also methods of lists and of texts."""


def test_a_temporary_folder_goes_with_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "gpudiag-job-mine").mkdir()
    (tmp_path / "gpudiag-job-mine/file").write_text("x")
    script = (
        "import os, sys, subprocess; from gpudiag.folders import Folder\n"
        "folder = Folder('job')\n"
        "started = subprocess.Popen(['sleep', '60'], env={**os.environ, 'TMPDIR': str(folder.path)})\n"
        "print(folder.path, started.pid, flush=True); sys.stdin.read()"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=environment) as process:
        assert process.stdout is not None
        name, _, pid = process.stdout.readline().partition(" ")
        try:
            folders.Folder("job").close()
            assert Path(name).is_dir(), "its process lives"
            process.kill()
            process.wait()
            folders.Folder("job").close()
            assert Path(name).is_dir(), "what it started lives, and has its temporary files there"
        finally:
            process.kill()
            os.kill(int(pid), signal.SIGKILL)
    until = time.monotonic() + 300
    while Path(name).exists():  # who was killed last may take a moment to go
        assert time.monotonic() < until
        folders.Folder("job").close()
    assert [path.name for path in tmp_path.iterdir()] == ["gpudiag-job-mine"]


def test_a_fork_removes_nothing_and_another_descriptor_is_not_closed(tmp_path: Path) -> None:
    folder = folders.Folder("job", [tmp_path])
    child = os.fork()
    if not child:
        folder.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert folders.is_in_use(folder.path)
    assert folder._lock is not None
    descriptor = folder._lock[0]
    os.dup2(os.open(os.devnull, os.O_RDONLY), descriptor)  # as a program that closes all descriptors, and goes on
    folder.close()
    os.fstat(descriptor)
    os.close(descriptor)
    assert not list(tmp_path.iterdir())


def test_a_file_beside_another_is_removed_unless_it_took_its_place(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with folders.file_beside(target) as temporary:
        temporary.write_text("x")
        folders.put_in_place(temporary, target)
        temporary.write_text("of another")  # a name that nobody else takes; if he does, it is his
    assert sorted(path.read_text() for path in tmp_path.iterdir()) == ["of another", "x"]
    temporary.unlink()
    with folders.file_beside(target):
        pass
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_in_which_something_is_mounted_stays(tmp_path: Path) -> None:
    """A program that gpudiag has started may have mounted a file system in its folder for temporary files."""
    folder = made(tmp_path / "a folder")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").write_text("x")
    (folder / "a mount").mkdir()
    script = (
        f"mount --bind '{tmp_path}/precious' '{folder}/a mount' && exec '{sys.executable}' -c "
        f"'from pathlib import Path; from gpudiag import folders; print(folders.remove(Path(\"{folder}\")))'"
    )
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", script],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    assert done.stdout == "False\n"
    assert (tmp_path / "precious/file").is_file()
    assert (folder / "lib/file").is_file()
    assert folders.remove(folder)
