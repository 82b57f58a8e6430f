"""The locks of GPUs: who sees whose, and what a hostile neighbour cannot do."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Gpudiag
from examples.facts import example_with_gpus
from gpudiag.hardware import locks
from gpudiag.hardware.locks import GpuLocks, lock_folder, open_shared
from gpudiag.model import codec
from gpudiag.model.report import Broken, Gpu, NoReading, Report
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.report import words

GPUS = gpus_in_scope(example_with_gpus(1))


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that everybody may write to; it stands for those of the machine."""
    folder = tmp_path / "lock"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(locks, "SHARED_FOLDERS", (str(tmp_path / "absent"), str(folder)))
    return folder


@pytest.mark.skipif(os.getuid() != 0, reason="only a folder of root's is taken")
def test_the_folder_is_the_same_whatever_the_temporary_one(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/nowhere")
    assert lock_folder() == shared


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o1770])
def test_a_folder_that_is_not_for_everybody_is_not_taken(shared: Path, mode: int, tmp_path: Path) -> None:
    shared.chmod(mode)
    assert lock_folder() != shared
    assert lock_folder().name == f"gpudiag-{os.getuid()}"


def test_what_one_run_holds_another_sees_and_a_death_gives_back(tmp_path: Path) -> None:
    source = (
        "import time; from pathlib import Path; from gpudiag.hardware.locks import GpuLocks\n"
        "from gpudiag.model.report import Gpu\n"
        f"assert GpuLocks(Path({str(tmp_path)!r})).take((Gpu(0, '', {GPUS[0].uuid!r}, '', 0),), exclusive=True)\n"
        "print('held', flush=True); time.sleep(60)"
    )
    here = GpuLocks(tmp_path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, env=environment) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert not here.take(GPUS, exclusive=False)
        assert here.waited_s(GPUS) > 0
        other.kill()
    assert here.take(GPUS, exclusive=False)
    here.close()


def test_a_lock_can_be_taken_by_others_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        os.close(open_shared(tmp_path / "one.lock"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "one.lock").stat().st_mode) == 0o644
    (tmp_path / "one.lock").chmod(0o444)
    os.close(open_shared(tmp_path / "one.lock"))


def test_a_link_or_a_pipe_in_the_place_of_a_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link.lock").symlink_to(tmp_path / "victim")
    os.mkfifo(tmp_path / "pipe.lock")
    for name in ("link.lock", "pipe.lock"):
        with pytest.raises(OSError):  # noqa: PT011  # which error is the system's affair
            open_shared(tmp_path / name)
    assert not (tmp_path / "victim").exists()


def unusable(path: Path, kind: str) -> None:
    """Put into the place of a lock what cannot be locked."""
    if kind == "link":
        path.symlink_to(path.with_name("victim"))
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.parent.rmdir()
        path.parent.touch()


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("link", "is a link"), ("folder", "is not a plain file"), ("pipe", "is not a plain file"), ("file", "directory")],
)
def test_a_lock_that_cannot_be_used_is_a_sentence_and_not_an_error(kind: str, reason: str, tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    folder.mkdir()
    unusable(folder / f"gpudiag-{GPUS[0].uuid}.lock", kind)
    here = GpuLocks(folder)
    assert here.take(GPUS, exclusive=True)
    assert not here.take(GPUS, exclusive=False), "within the run it is still handed out once"
    here.release(GPUS)
    here.close()
    (said,) = here.unlocked.values()
    assert said.startswith("GPU 0 is not locked against other runs of gpudiag: ")
    assert reason in said
    assert not (folder / "victim").exists()


def test_a_file_system_without_locks_is_not_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS without its lock service says ENOLCK; other file systems do not know the call."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    before = len(list(Path("/proc/self/fd").iterdir()))
    here = GpuLocks(tmp_path)
    assert here.take(GPUS, exclusive=True)
    assert "No locks available" in "".join(here.unlocked.values())
    here.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


AS_OTHER = 12345


def as_other(source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python code as another user; modules are imported before."""
    whole = (
        f"import os, sys; sys.path[:] = {[entry for entry in sys.path if entry]!r}\n"
        "import pwd; from pathlib import Path; from gpudiag.hardware.locks import *\n"
        "from gpudiag.model.report import Gpu\n"
        f"os.setgroups([]); os.setgid({AS_OTHER}); os.setuid({AS_OTHER})\n"
        f"gpus = (Gpu(0, '', {GPUS[0].uuid!r}, '', 0),)\n{source}"
    )
    command = [sys.executable, "-c", whole, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, cwd="/")


AS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@pytest.fixture
def for_all() -> Iterator[Path]:
    """A sticky folder that other users can reach, as pytest's own folders cannot be."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o1777)
        yield Path(name)


TAKE = "one = GpuLocks(Path(sys.argv[1])); print(one.take(gpus, exclusive=True), list(one.unlocked.values()))"


@AS_ROOT
def test_users_share_locks(for_all: Path) -> None:
    here = GpuLocks(for_all)
    assert here.take(GPUS, exclusive=True)
    held = f"{TAKE}; print(one.holder(gpus))"
    taken, holder = as_other(held, str(for_all)).stdout.splitlines()
    assert taken == "False []"
    assert holder.startswith(f"process {os.getpid()} of root (")  # and its command, job and rank
    here.close()
    assert as_other(TAKE, str(for_all)).stdout == "True []\n"
    path = for_all / f"gpudiag-{GPUS[0].uuid}.lock"
    path.unlink()
    as_other(TAKE, str(for_all))  # the other user makes it ...
    assert path.stat().st_uid == AS_OTHER
    assert here.take(GPUS, exclusive=True)  # ... and root locks it all the same
    assert here.unlocked == {}
    assert as_other(TAKE, str(for_all)).stdout == "False []\n"
    here.close()


@AS_ROOT
def test_a_lock_that_others_may_not_open_is_a_sentence(for_all: Path) -> None:
    (for_all / f"gpudiag-{GPUS[0].uuid}.lock").touch(mode=0o000)
    assert "Permission denied" in as_other(TAKE, str(for_all)).stdout
    for_all.chmod(0o555)
    (for_all / f"gpudiag-{GPUS[0].uuid}.lock").unlink()
    assert as_other(TAKE, str(for_all)).stdout.startswith("True ['GPU 0 is not locked")


def test_a_lock_that_was_removed_is_locked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"gpudiag-{GPUS[0].uuid}.lock"
    real = locks._locked
    removed: list[Path] = []

    def locked(file: int) -> bool:
        if not removed:  # a cleaner came between opening and locking
            path.unlink()
            removed.append(path)
        return real(file)

    monkeypatch.setattr(locks, "_locked", locked)
    first, second = GpuLocks(tmp_path), GpuLocks(tmp_path)
    assert first.take(GPUS, exclusive=True)
    assert not second.take(GPUS, exclusive=True)
    first.close()


@pytest.mark.parametrize("kind", ["link", "file", "of another"])
def test_a_private_folder_that_is_not_this_users_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "SHARED_FOLDERS", ())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = tmp_path / f"gpudiag-{os.getuid()}"
    if kind == "link":
        (tmp_path / "elsewhere").mkdir()
        place.symlink_to(tmp_path / "elsewhere")
    elif kind == "file":
        place.touch()
    else:
        if os.getuid() != 0:
            pytest.skip("only root can give a folder away")
        place.mkdir()
        os.chown(place, AS_OTHER, -1)
    here = GpuLocks(None)
    assert here.take(GPUS, exclusive=True)
    (said,) = here.unlocked.values()
    assert str(place) in said
    here.close()


def test_a_private_folder_is_closed_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "SHARED_FOLDERS", ())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"gpudiag-{os.getuid()}").mkdir(mode=0o755)
    assert stat.S_IMODE(lock_folder().stat().st_mode) == 0o700


INSIDE = """
import os, subprocess, sys
from pathlib import Path
from gpudiag.hardware import nvml
from gpudiag.hardware.locks import GpuLocks
from gpudiag.model.report import Gpu
from gpudiag.simulator import MACHINE_VARIABLE

device = nvml.gather().devices[0]
folder = Path(os.environ[MACHINE_VARIABLE])
if sys.argv[1] == "unusable":
    (folder / f"gpudiag-{device.uuid}.lock").mkdir()
else:
    held = GpuLocks(folder)
    assert held.take((Gpu.of(device, device.uuid),), exclusive=True)
check = [sys.executable, "-m", "gpudiag", "check", "memory.growth", "-q", "--format", "json", "--lock-wait", "0.5"]
sys.exit(subprocess.run(check, timeout=300).returncode)
"""


def check_beside(lock: str, gpudiag: Gpudiag) -> Report:
    """Return the report of a run on a simulated machine on which another program did this to the lock of its GPU."""
    gpudiag.simulated("1")
    modules = {"PYTHONPATH": os.pathsep.join(gpudiag.path)}
    done = gpudiag("simulate", "1", "--", sys.executable, "-c", INSIDE, lock, flags=(), **modules)
    return codec.decode(done.stdout, done.stderr)


def test_a_run_beside_an_unusable_lock_says_so_and_goes_on(gpudiag: Gpudiag) -> None:
    told = check_beside("unusable", gpudiag)
    assert told.counts == {"pass": 1}
    (note,) = told.notes
    assert note.startswith("GPU 0 is not locked against other runs of gpudiag: ")
    assert ("note", note) in words.machine(told)


def test_a_lock_that_is_held_is_waited_for_as_long_as_asked(gpudiag: Gpudiag) -> None:
    told = check_beside("held", gpudiag)
    (row,) = told.rows
    assert isinstance(row.outcome, Broken)
    assert row.outcome.cause is NoReading.TIMEOUT
    assert row.outcome.detail.startswith("another run of gpudiag (process ")
    assert row.outcome.detail.endswith("held the GPU for more than 0.5 s (--lock-wait)")
    assert told.exit_code == 3


def test_an_old_name_of_a_mig_instance_names_no_folder(tmp_path: Path) -> None:
    instance = (Gpu(0, "", "MIG-GPU-00000000-0000-4000-8000-000000000000/1/0", "", 0),)
    here, there = GpuLocks(tmp_path), GpuLocks(tmp_path)
    assert here.take(instance, exclusive=True)
    assert here.unlocked == {}
    assert not there.take(instance, exclusive=False)
    here.close()
