"""What is tried: device files, folders, sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudiag.facts import mps
from gpudiag.facts.tried import _opened, gather
from gpudiag.knowledge.variables import MPS_CONTROL
from gpudiag.model.facts import MpsFacts, PathAttempt


def written(**environ: str) -> dict[str, PathAttempt]:
    return {attempt.purpose: attempt for attempt in gather(Path("/nonexistent"), environ).written}


def test_a_folder_that_takes_a_file(tmp_path: Path) -> None:
    found = written(TMPDIR=str(tmp_path), HOME=str(tmp_path))
    assert {purpose: attempt.error for purpose, attempt in found.items()} == {
        "temporary files": None,
        "home": None,
        "CUDA cache": None,
    }
    assert found["CUDA cache"].path == f"{tmp_path}/.nv/ComputeCache"
    assert (found["home"].free_bytes or 0) > 0
    assert list(tmp_path.iterdir()) == []


def test_the_first_temporary_folder_that_exists_is_the_only_one(tmp_path: Path) -> None:
    """TensorFlow takes no other; /proc takes no file of anybody's, root's neither."""
    found = written(TEST_TMPDIR="/nonexistent/folder", TMPDIR="/proc", TMP=str(tmp_path))
    assert found["temporary files"].path == "/proc"
    assert found["temporary files"].error is not None


def test_a_cache_that_would_be_created_where_nothing_can_be() -> None:
    assert written(CUDA_CACHE_PATH="/proc/folder/cache")["CUDA cache"].error is not None


def test_a_cache_that_is_switched_off_is_not_tried(tmp_path: Path) -> None:
    assert "CUDA cache" not in written(HOME=str(tmp_path), CUDA_CACHE_DISABLE="1")


def test_folders_of_flags(tmp_path: Path) -> None:
    found = written(
        XLA_FLAGS=f"--xla_dump_to={tmp_path} --xla_gpu_kernel_cache_file=/proc/kernels",
        TF_XLA_FLAGS="--tf_xla_persistent_cache_directory /proc",
    )
    assert found["xla_dump_to"].error is None
    assert found["xla_gpu_kernel_cache_file"].path == "/proc"
    assert found["tf_xla_persistent_cache_directory"].error is not None
    assert "xla_dump_to" not in written(XLA_FLAGS="--xla_dump_to=-")


def test_a_device_that_does_not_open(tmp_path: Path) -> None:
    """A socket in its place is refused as a number is that no driver has."""
    node = tmp_path / "nvidia0"
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(str(node))
        assert _opened(node, Path("/")) == "ENXIO"
    assert _opened(Path("/dev/null"), Path("/")) is None


def test_what_a_simulated_device_answers(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for name, answer in {"nvidia0": "EPERM\n", "nvidiactl": "", "nvidia-modeset": "EPERM", "nvidia-uvm": "?"}.items():
        (tmp_path / "dev" / name).write_text(answer)
    opened = gather(tmp_path, {}).opened
    assert {attempt.path: attempt.error for attempt in opened} == {
        "/dev/nvidia0": "EPERM",
        "/dev/nvidia-uvm": None,
        "/dev/nvidiactl": None,
    }


@pytest.mark.parametrize(
    ("label", "confined"),
    [
        ("system_u:system_r:container_t:s0:c221,c873\0", "system_u:system_r:container_t:s0:c221,c873"),
        ("docker-default (enforce)\n", "docker-default (enforce)"),
        ("unconfined\n", None),
        ("unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023\0", None),
        ("", None),
    ],
)
def test_the_label_of_this_process(tmp_path: Path, label: str, confined: str | None) -> None:
    (tmp_path / "proc/self/attr").mkdir(parents=True)
    (tmp_path / "proc/self/attr/current").write_text(label)
    assert gather(tmp_path, {}).confined == confined


@pytest.fixture
def service(tmp_path: Path) -> Iterator[socket.socket]:
    folder = tmp_path / "run/nvidia-persistenced"
    folder.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
        yield listening


def test_a_service_that_listens_and_one_that_is_gone(tmp_path: Path, service: socket.socket) -> None:
    path = "/run/nvidia-persistenced/socket"
    assert gather(tmp_path, {}).connected == (PathAttempt(path, "ECONNREFUSED"),)
    service.listen()
    assert gather(tmp_path, {}).connected == (PathAttempt(path),)


def test_the_daemon_of_mps_is_missed_only_if_it_was_asked_for(tmp_path: Path) -> None:
    pipes = str(tmp_path / "mps")
    assert gather(tmp_path, {}).connected == ()
    assert gather(tmp_path, {"CUDA_MPS_PIPE_DIRECTORY": pipes}).connected == (
        PathAttempt(f"{pipes}/control", "ENOENT"),
    )


def test_a_socket_of_another_kind_is_a_service_too(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(tmp_path / "control"))
        listening.listen()
        environ = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
        assert gather(tmp_path, environ).connected == (PathAttempt(f"{tmp_path}/control"),)


_LOG = """[2026-04-28 18:20:40.0 Control  4400] Cmd:set_default_device_pinned_mem_limit 0 4606M
[2026-04-28 18:20:40.1 Control  4400] Starting new server 4428 for user 1000
[2026-04-28 18:20:41.9 Control  4400] Server 4428 exited with status 1
"""
_SERVER_LOG = """[2026-04-28 18:20:41.9 Server  4428] Active Threads Percentage set to 33.0
[2026-04-28 18:20:41.9 Server  4428] Device pinned memory limit for device 1 set to 0x140000000 bytes
"""
_CONTROL = """#!/bin/sh
read -r command number
case "$command" in
get_default_active_thread_percentage) echo 25.0 ;;
*) echo 3G ;;
esac
"""


def test_the_limits_of_a_daemon_of_mps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its program is asked; without it the logs are read, which say what they say, and that it was not asked."""
    pipes, logs, programs = tmp_path / "pipe", tmp_path / "log", tmp_path / "bin"
    for folder in (pipes, logs, programs):
        folder.mkdir()
    environ = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    assert gather(environ=environ).mps is None
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(pipes / "control"))
        daemon.listen(8)
        assert gather(environ=environ).mps == MpsFacts(why_not="nvidia-cuda-mps-control is not here")
        (logs / "control.log").write_text(_LOG)
        (logs / "server.log").write_text(_SERVER_LOG)
        read = gather(environ=environ).mps
        assert read is not None
        assert (read.share, read.memory) == (33.0, {"0": 4606 << 20, "1": 5 << 30})
        assert (read.failure, read.known_by) == ("Server 4428 exited with status 1", f"{logs}/server.log")
        assert read.why_not == "nvidia-cuda-mps-control is not here"
        program = programs / "nvidia-cuda-mps-control"
        program.write_text(_CONTROL)
        program.chmod(0o755)
        asked = mps.gather(Path("/"), str(pipes), 1, environ)
        assert (asked.share, asked.memory, asked.known_by) == (25.0, {"0": 3 << 30, "1": 5 << 30}, MPS_CONTROL)
        program.write_text("#!/bin/sh\necho Cannot find MPS control daemon process\n")
        assert mps.gather(Path("/"), str(pipes), 1, environ).why_not.endswith("daemon process'")
        program.write_text("#!/bin/sh\nsleep 9\n")
        assert "TimeoutExpired" in mps.gather(Path("/"), str(pipes), 1, environ).why_not
