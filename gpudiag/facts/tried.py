"""The family ``tried``: opens device files, writes to folders and connects to sockets, as the driver and TensorFlow do.

Names and permissions are not enough: a device control group answers ``EPERM`` to ``open(2)`` where ``access(2)`` sees
nothing, a file may have the number of another driver (``ENXIO``), a folder may be full or on a read-only disk.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from gpudiag.facts import mps, printable, read_text, user_name
from gpudiag.facts.device_nodes import is_needed
from gpudiag.knowledge.variables import MPS_PIPES, mps_folder
from gpudiag.model.facts import PathAttempt, TriedFacts, is_gpu_file

_SOCKETS = ("run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket")
_TEMPORARY = ("TEST_TMPDIR", "TMPDIR", "TMP")
_LAST = Path("/tmp")  # noqa: S108
_FLAGS = re.compile(
    r"--(xla_gpu_per_fusion_autotune_cache_dir|xla_gpu_kernel_cache_file|xla_dump_to|tf_xla_persistent_cache_directory)"
    r"[= ]['\"]?([^\s'\"]+)"
)
"""Flags of XLA that name files or folders to which it writes."""
_CLOSED = ("EACCES", "EPERM")
_WRITTEN_BYTES = 64 << 10


def gather(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> TriedFacts:
    """Try the device files and sockets under ``root``, and the folders that ``environ`` names.

    Opening a device file creates no context. It starts a GPU without persistence, which takes a second or two and which
    NVML does anyway.
    """
    nodes = sorted(file for file in root.glob("dev/*") if is_needed(file.name))
    sockets = [(root / path, f"/{path}") for path in _SOCKETS]
    pipes = mps_folder(environ)
    sockets.append((Path(pipes) / "control", f"{pipes}/control"))
    asked_for = MPS_PIPES in environ
    tries = (_connected(file, path, asked_for and path.startswith(pipes)) for file, path in sockets)
    connected = tuple(attempt for attempt in tries if attempt is not None)
    serves = PathAttempt(printable(f"{pipes}/control")) in connected
    return TriedFacts(
        opened=tuple(PathAttempt(printable(f"/{node.relative_to(root)}"), _opened(node, root)) for node in nodes),
        written=tuple(_written(folder, purpose) for folder, purpose in _folders(environ)),
        connected=connected,
        mps=mps.gather(root, pipes, sum(is_gpu_file(f"/dev/{node.name}") for node in nodes), environ)
        if serves
        else None,
        confined=_confined(root),
    )


def _confined(root: Path) -> str | None:
    """Return the label of this process, ``system_u:system_r:container_t:s0:c1,c2`` or ``docker-default (enforce)``."""
    label = read_text(root / "proc/self/attr/current").strip("\0\n ")
    return None if not label or label == "unconfined" or ":unconfined_t:" in label else printable(label)


def _name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "EIO")


def _opened(node: Path, root: Path) -> str | None:
    """Return why the device cannot be opened. On a simulated machine the file's content is the answer."""
    if root != Path("/"):
        answer = read_text(node).strip() if node.is_file() else ""
        return answer if answer in errno.errorcode.values() else None
    try:
        os.close(os.open(node, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        return _name(error)
    return None


def _folders(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Yield the folders that a program on a GPU writes to, with their purpose."""
    # TensorFlow takes the first that exists, and no other if that one cannot be written (GetLocalTempDirectories).
    candidates = filter(None, map(environ.get, _TEMPORARY))
    folder = next((Path(candidate) for candidate in candidates if os.path.isdir(candidate)), _LAST)  # noqa: PTH112
    yield folder, "temporary files"
    home = environ.get("HOME")
    if home:
        yield Path(home), "home"
    if environ.get("CUDA_CACHE_DISABLE", "0") in ("", "0") and (home or environ.get("CUDA_CACHE_PATH")):
        yield Path(environ.get("CUDA_CACHE_PATH") or f"{home}/.nv/ComputeCache"), "CUDA cache"
    for name in ("XLA_FLAGS", "TF_XLA_FLAGS"):
        for flag, value in _FLAGS.findall(environ.get(name, "")):
            if value not in ("-", "sponge"):  # xla_dump_to: standard output, a service of Google's
                yield Path(value).parent if flag.endswith("_file") else Path(value), flag


def _written(folder: Path, purpose: str) -> PathAttempt:
    """Test whether a nameless file can be written in ``folder``, or where it would be created."""
    # Path.exists raises PermissionError below a folder that is closed to this user, such as the HOME=/root of sudo -u.
    place = next((path for path in (folder, *folder.absolute().parents) if os.path.exists(path)), folder)  # noqa: PTH110
    try:
        error = _try_to_write(place)
    except OSError as raised:
        error = _name(raised)
    try:
        room = os.statvfs(place)
    except (OSError, AttributeError):
        return PathAttempt(printable(str(folder)), error, purpose)
    return PathAttempt(printable(str(folder)), error, purpose, room.f_bavail * room.f_frsize)


def _try_to_write(place: Path) -> str | None:
    with tempfile.TemporaryFile(dir=place) as file:  # O_TMPFILE if the file system has it: no name, nothing is left
        file.write(b"\0" * _WRITTEN_BYTES)
        file.flush()
    return None


def _connected(file: Path, path: str, asked_for: bool) -> PathAttempt | None:
    """Return the result of connecting to a socket; None for an absent socket that no variable names."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1)
        try:
            connection.connect(str(file))
        except OSError as error:
            if error.errno == errno.ENOENT and not asked_for:
                return None
            # Of another kind than a stream: a service has it, all the same.
            failed = None if error.errno == errno.EPROTOTYPE else _name(error)
            return PathAttempt(printable(path), failed, owner=_owner(file) if failed in _CLOSED else "")
    return PathAttempt(printable(path))


def _owner(file: Path) -> str:
    """Return the user that owns ``file``, or the folder that keeps this user from it; "" if neither exists."""
    for path in (file, *file.parents[:1]):
        with suppress(OSError):
            return user_name(path.lstat().st_uid)
    return ""
