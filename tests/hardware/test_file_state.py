"""A file as it is: each state is made with a real file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpudiag import simulator
from gpudiag.hardware import elf, file_state
from gpudiag.model.facts import FileFault

NAME = "libcufft.so.11"


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return Path(shutil.copy((simulator.library_directory() / NAME).resolve(), tmp_path / NAME))


def seen(file: Path, recorded: int | None = None) -> tuple[FileFault, str]:
    state = file_state.look(file, elf.machine_of_python(), recorded)
    assert state is not None
    assert state.path == str(file)
    return state.fault, state.words


def test_a_whole_library_has_no_fault(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(whole)
    size = whole.stat().st_size
    for file in (whole, tmp_path / "link"):
        for recorded in (None, size, size - 1, size + 1):  # patchelf makes it larger, and strip smaller
            assert file_state.look(file, elf.machine_of_python(), recorded) is None


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "first").symlink_to("second")
    (tmp_path / "second").symlink_to("/nowhere/libcudnn.so.9")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "old").symlink_to("libcudnn.so.9.1.0")
    assert seen(tmp_path / "first") == (FileFault.LINK, "is a link to /nowhere/libcudnn.so.9, which is not there")
    assert seen(tmp_path / "old") == (FileFault.LINK, "is a link to libcudnn.so.9.1.0, which is not there")
    assert seen(tmp_path / "loop") == (FileFault.LINK, "is a link that leads to itself")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "is a pointer of Git LFS"),
        (b"<!DOCTYPE html><html>", "is a page of HTML or XML"),
        (b"/* GNU ld script */ GROUP ( libx.so.1 )", "is a text for the linker"),
        (b"!<arch>\n", "is a static library"),
        (b"PK\x03\x04", "is a compressed archive"),
        (bytes(4096), "begins with zeros"),
        (b"junk", "is not a library"),
        (b"\x7fELF\2\1\1" + b"\xff" * 100, "is cut short"),
    ],
)
def test_what_is_in_the_place_of_a_library(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(content)
    assert seen(tmp_path / NAME)[1].startswith(words)


def test_a_folder_and_a_pipe_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert seen(tmp_path / "folder")[0] is FileFault.FOLDER
    assert seen(tmp_path / "pipe")[0] is FileFault.KIND


def test_a_library_that_was_cut_short(whole: Path) -> None:
    size = whole.stat().st_size
    os.truncate(whole, 300)
    fault, words = seen(whole)
    assert fault is FileFault.CUT
    assert words.startswith("is cut short: it has 300 bytes, and its headers name ")
    assert seen(whole, size)[1].endswith(f"(its package's record: {size})")


def test_a_library_of_another_processor(whole: Path) -> None:
    content = bytearray(whole.read_bytes())
    content[18:20] = b"\xb7\x00"
    whole.write_bytes(content)
    fault, words = seen(whole)
    assert (fault, "AArch64 (64 bit)" in words) == (FileFault.PROCESSOR, True)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be another user for a while")
def test_what_this_user_may_not_read_is_named_with_the_step_that_keeps_him_out(whole: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    (tmp_path / "link").symlink_to(closed / NAME)
    shutil.copy(whole, closed)
    whole.chmod(0o600)
    closed.chmod(0o700)
    reached = tmp_path
    while reached != reached.parent:  # the folders above must let everybody pass
        if not reached.stat().st_mode & 1:
            pytest.skip(f"{reached} is closed to other users")
        reached = reached.parent
    os.seteuid(65534)
    try:
        fault, words = seen(whole)
        behind = file_state.look(tmp_path / "link")
    finally:
        os.seteuid(0)
    assert fault is FileFault.SHUT
    assert words == "may not be read by nobody (-rw-------, owned by root)"
    assert behind is not None
    assert (behind.fault, behind.place) == (FileFault.SHUT, str(closed))
    assert behind.words.startswith(f"is behind {closed}, which may not be entered by nobody (drwx------")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can mount")
def test_a_library_on_a_file_system_without_execution(whole: Path, tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    (tmp_path / "look.py").write_text(
        "from pathlib import Path\nfrom gpudiag.hardware import file_state\n"
        f"print(file_state.look(Path({str(mount / NAME)!r})))\n"
    )
    script = f"mount -t tmpfs -o noexec none {mount} && cp {whole} {mount} && {sys.executable} {tmp_path}/look.py"
    command = ["unshare", "-m", "sh", "-c", script]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "mount: " in ended.stderr or "unshare: " in ended.stderr:
        pytest.skip("no mounts here")
    assert f"is on {mount}, which is mounted noexec" in ended.stdout, ended.stderr
