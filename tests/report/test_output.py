"""Report files: refused beforehand, replaced as a whole, never half of one."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpudiag.errors import OutputError, UsageError
from gpudiag.report import files

AS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


@pytest.fixture(autouse=True)
def nothing_left_over(tmp_path: Path) -> Iterator[None]:
    yield
    assert list(tmp_path.rglob(".gpudiag-*")) == []


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def test_a_new_file(tmp_path: Path) -> None:
    files.reserve([tmp_path / "a.json", tmp_path / "b.md"])
    assert list(tmp_path.iterdir()) == [], "reserving leaves no file"
    files.write(tmp_path / "a.json", "käse\n")
    assert (tmp_path / "a.json").read_bytes() == "käse\n".encode()


def test_reserving_leaves_the_old_report(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    files.reserve([path])
    assert path.read_text() == "old"
    files.write(path, "new")
    assert path.read_text() == "new"


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_umask_gives_the_mode(tmp_path: Path, umask: Callable[[int], int], mask: int, mode: int) -> None:
    umask(mask)
    files.write(tmp_path / "a.json", "text")
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == mode


def test_readers_see_the_old_or_the_new_text(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with path.open() as reader:
        files.write(path, "new")
        assert reader.read() == "old"
    assert path.read_text() == "new"


def test_of_a_link_the_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    target, link = tmp_path / "reports" / "real.json", tmp_path / "link.json"
    link.symlink_to(target)
    for text in ("first", "second"):
        files.reserve([link])
        files.write(link, text)
        assert link.is_symlink()
        assert target.read_text() == text


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("none/a.json", "there is no folder .*none"),
        ("file/a.json", "Not a directory"),
        ("folder.json", "it is a folder"),
        ("dangling.json", "there is no folder .*gone"),
        ("x" * 300 + ".json", "File name too long"),
    ],
)
def test_what_cannot_be_written_is_refused_beforehand(tmp_path: Path, path: str, fault: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "dangling.json").symlink_to(tmp_path / "gone" / "a.json")
    with pytest.raises(UsageError, match=rf"cannot be written: {fault}") as refused:
        files.reserve([tmp_path / "good.json", tmp_path / path])
    assert str(refused.value).startswith(str(tmp_path / path))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc, which refuses files even to root")
def test_a_file_system_that_takes_no_file_is_refused_beforehand() -> None:
    with pytest.raises(UsageError, match=r"cannot be written: cannot create files in /proc\."):
        files.reserve([Path("/proc/report.json")])


@pytest.mark.skipif(os.name != "posix", reason="permission bits are those of POSIX")
@pytest.mark.parametrize(("path", "fault"), [("closed/a.json", "Permission denied"), ("mine.json", "it is read-only")])
def test_permissions_are_respected(tmp_path: Path, path: str, fault: str) -> None:
    (tmp_path / "closed").mkdir(mode=0o555)
    (tmp_path / "mine.json").touch(mode=0o444)
    source = f"""
import os, sys
sys.path[:] = {sys.path!r}
from pathlib import Path
from gpudiag.report import files
from gpudiag.errors import UsageError
if {AS_ROOT}:
    # Permission bits do not bind root. Its identity goes after the import, which another user may not be able to do.
    os.chown({str(tmp_path)!r}, 12345, -1)
    os.setuid(12345)
try:
    files.reserve([Path({path!r})])
except UsageError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", source], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == f"{path}: cannot be written: {fault}.\n"


def test_a_failure_to_write_leaves_the_old_report(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    source = f"""
import resource, sys
sys.path[:] = {sys.path!r}
from pathlib import Path
from gpudiag.report import files
from gpudiag.errors import OutputError
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    files.write(Path("a.json"), "new" * 10_000)
except OutputError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", source], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "a.json: cannot be written: File too large.\n"
    assert path.read_text() == "old"


def test_a_folder_that_went_away(tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    files.reserve([folder / "a.json"])
    folder.rmdir()
    with pytest.raises(OutputError, match=r"there is no folder .*reports"):
        files.write(folder / "a.json", "text")


def test_the_null_device_is_written_and_stays() -> None:
    files.reserve([Path(os.devnull)])
    files.write(Path(os.devnull), "text")
    assert not Path(os.devnull).is_file()


def test_a_pipe_is_written_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="no program reads from"):
        files.reserve([pipe])
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    files.reserve([pipe])
    with pytest.raises(BlockingIOError):  # it would be the end, had reserving closed the pipe
        os.read(reader, 10)
    files.write(pipe, "text")
    assert (os.read(reader, 10), os.read(reader, 10)) == (b"text", b"")
    os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666, 0o4644])
def test_mode_and_owner_of_a_file_that_is_replaced_stay(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    if AS_ROOT:
        os.chown(path, 12345, 12345)
    path.chmod(mode)
    files.write(path, "new")
    status = path.stat()
    assert path.read_text() == "new"
    assert stat.S_IMODE(status.st_mode) == mode & 0o777
    assert (status.st_uid, status.st_gid) == ((12345, 12345) if AS_ROOT else (os.getuid(), os.getgid()))


def test_nobody_else_reads_a_report_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    path.touch(mode=0o600)
    seen = []
    real = Path.write_bytes

    def write_bytes(file: Path, content: bytes) -> int:
        seen.append(stat.S_IMODE(file.stat().st_mode))
        return real(file, content)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    files.write(path, "new")
    assert seen == [0o600]


@pytest.mark.skipif(not AS_ROOT, reason="only root can give files to others")
def test_what_another_user_put_into_a_shared_folder_is_not_obeyed(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    victim = tmp_path / "victim.json"
    victim.write_text("precious")
    link, file = shared / "link.json", shared / "file.json"
    link.symlink_to(victim)
    file.touch()
    for path in (link, file):
        os.chown(path, 12345, -1, follow_symlinks=False)
    with pytest.raises(UsageError, match="cannot be written: it is another user's link"):
        files.reserve([link])
    with pytest.raises(OutputError, match="it is another user's link"):
        files.write(link, "report")
    assert victim.read_text() == "precious"
    files.write(file, "report")
    assert (file.read_text(), file.stat().st_uid) == ("report", 0), "who made the file must not get the report"
    own = shared / "own.json"
    own.symlink_to(victim)
    files.write(own, "report")
    assert victim.read_text() == "report"
