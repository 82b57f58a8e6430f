"""The locks of GPUs: who sees whose, and what a hostile neighbour cannot do."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gpudiag import devices
from gpudiag.devices import Devices, lock_folder, open_shared
from gpudiag.hostfacts import example_with_gpus
from gpudiag.scope import gpus_in_scope

GPUS = gpus_in_scope(example_with_gpus(1))


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that everybody may write to; it stands for those of the machine."""
    folder = tmp_path / "lock"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(devices, "SHARED_FOLDERS", (str(tmp_path / "absent"), str(folder)))
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
        "import time; from pathlib import Path; from gpudiag.devices import Devices; from gpudiag.model import Gpu\n"
        f"assert Devices(Path({str(tmp_path)!r})).take((Gpu(0, '', {GPUS[0].uuid!r}, '', 0),), exclusive=True)\n"
        "print('held', flush=True); time.sleep(60)"
    )
    here = Devices(tmp_path)
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
