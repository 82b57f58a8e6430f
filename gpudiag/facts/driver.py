"""The family ``driver``: NVIDIA's kernel module and the CUDA driver library. CUDA is not initialised."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from gpudiag.facts import kernel_release, printable, read_text
from gpudiag.knowledge.variables import PRELOAD_FILE
from gpudiag.model.facts import DriverFacts
from gpudiag.trust import distrust

_LIBRARY = "libcuda.so.1"
_FIRST_CALLS = ("cuInit", "nvmlInit_v2", "nvmlInit")
_MODULE_FILE = re.compile(r"^\S*/nvidia(-current)?\.ko[.\w]{0,9}:", re.MULTILINE)  # Debian's is called nvidia-current
_SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_PACKAGE = re.compile(
    r"^Package: (?P<name>(?:lib)?nvidia-(?:driver|compute|kernel|dkms|utils|smi|gl|ml|ptxjitcompiler|fabricmanager)\S*"
    r"|libcuda1|cuda-drivers\S*)\nStatus: (?:install|hold) (?P<flag>\S+) (?P<state>\S+)\n(?:.+\n){0,40}?"
    r"Version: (?P<version>\S+)",
    re.MULTILINE,
)
_GONE = ("not-installed", "config-files")
_FABRIC_MANAGER = ("usr/bin/nv-fabricmanager", "nv-fabricmanage")
"""The fabric manager's program, with its name as the kernel cuts it to 15 characters."""
_FABRIC_MANAGER_VERSION = re.compile(r"interface version (\d+\.[\d.]+\d) don't match with driver version")
_RELEASE = re.compile(r"\b\d{3}\.\d+(?:\.\d+)?\b")
_FABRIC_LOG_BYTES = 64 << 10
"""How much of the end of Fabric Manager's log is read."""
_WSL_LIBRARY = "usr/lib/wsl/lib/libcuda.so.1"
_WINDOWS_DRIVER = ("usr/lib/wsl/drivers/nv*/libcuda*", "mnt/c/Windows/System32/nvidia-smi.exe")


def gather(root: Path = Path("/"), library: str = _LIBRARY) -> DriverFacts:
    """Return the facts of the driver whose files lie under ``root`` and whose library is ``library``.

    Loading the library runs its constructors and nothing else: ``cuDriverGetVersion`` needs no ``cuInit``.
    """
    interposed = _interposed()  # before the library is opened
    preloaded, preload_error = _preloads(root)
    path, error, cuda_version = _ask(library)
    release = kernel_release(root)
    modules = read_text(root / f"lib/modules/{release}/modules.dep")
    installed = _MODULE_FILE.search(modules) is not None if modules else None
    packages = _PACKAGE.finditer(read_text(root / "var/lib/dpkg/status"))
    known = [found for found in packages if found["state"] not in _GONE]
    loaded = (line.partition(" ")[0] for line in read_text(root / "proc/modules").splitlines())
    return DriverFacts(
        kernel_module=_kernel_module(root),
        libcuda_path=path,
        libcuda_error=error,
        cuda_version=cuda_version,
        modules=tuple(name for name in loaded if name.startswith("nvidia") or name == "nouveau"),
        module_installed=installed,
        module_file=_unlisted_module(root, release) if installed is False else None,
        secure_boot=_secure_boot(root),
        prime=read_text(root / "etc/prime-discrete").strip() or None,
        packages={found["name"]: found["version"] for found in known},
        unfinished={
            found["name"]: found["state"] for found in known if (found["flag"], found["state"]) != ("ok", "installed")
        },
        fabric_manager=_fabric_manager(root),
        fabric_manager_version=_fabric_manager_version(root),
        wsl_library=f"/{_WSL_LIBRARY}" if (root / _WSL_LIBRARY).exists() else None,
        windows_driver=_windows_driver(root) if "microsoft" in release.lower() else None,
        open_module=_is_open(root),
        rebuilt=_rebuilt(root, release),
        libcuda_mounted=_is_mounted(root, path) if path else None,
        interposed=interposed,
        preloaded=preloaded,
        preload_error=preload_error,
    )


def _unlisted_module(root: Path, release: str) -> str | None:
    """Return the path of NVIDIA's kernel module, looked for where packages and DKMS install it."""
    for folder in ("updates", "extra", "weak-updates", "misc", "kernel/drivers/video"):
        for file in sorted((root / f"lib/modules/{release}/{folder}").glob("**/nvidia.ko*")):
            return f"/{file.relative_to(root)}"
    return None


def _preloads(root: Path) -> tuple[tuple[str, ...], str]:
    """Return what ``/etc/ld.so.preload`` names, and the error with which it cannot be read, "" if it can be."""
    try:
        text = (root / PRELOAD_FILE.lstrip("/")).read_text(errors="replace")
    except FileNotFoundError:
        return (), ""
    except OSError as error:
        return (), errno.errorcode.get(error.errno or 0, "EIO")
    lines = (line.partition("#")[0] for line in text.splitlines())
    return tuple(printable(file) for line in lines for file in line.replace(":", " ").split()), ""


class _Symbol(ctypes.Structure):
    """The C structure ``Dl_info`` of ``dladdr(3)``."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _interposed() -> tuple[str, ...]:
    """Return the files that define functions of the driver in this process although it has not opened the driver."""
    if sys.platform == "win32":  # it has no such order of libraries, and no CDLL(None)
        return ()
    process = ctypes.CDLL(None)
    files = []
    for name in _FIRST_CALLS:
        with suppress(AttributeError):  # nothing defines it; or no dladdr
            symbol = _Symbol()
            if process.dladdr(getattr(process, name), ctypes.byref(symbol)) and symbol.file:
                files.append(printable(os.fsdecode(symbol.file)))
    return tuple(dict.fromkeys(files))


def _ask(library: str) -> tuple[str | None, str | None, str | None]:
    """Return the path of ``library``, why it does not answer, and the newest CUDA version that it supports."""
    try:
        cuda = ctypes.CDLL(library)
    except OSError as error:
        return None, printable(str(error)), None
    version = ctypes.c_int()
    status = cuda.cuDriverGetVersion(ctypes.byref(version))
    if status:
        return _mapped(library), f"cuDriverGetVersion returned CUDA error {status}", None
    return _mapped(library), None, f"{version.value // 1000}.{version.value % 1000 // 10}"


def _kernel_module(root: Path) -> str | None:
    """Return the version in a line like ``NVRM version: NVIDIA UNIX x86_64 Kernel Module 535.104.05 Sat Aug 19
    ...``."""
    try:
        text = (root / "proc/driver/nvidia/version").read_text(errors="replace")
    except OSError:
        return None
    version = re.search(r"\s(\d+\.\d[\d.]*)\s", text)
    return version[1] if version else text.partition("\n")[0]


def _is_open(root: Path) -> bool | None:
    """Return whether the module is ``NVIDIA UNIX Open Kernel Module for x86_64``; None if no module is loaded."""
    text = read_text(root / "proc/driver/nvidia/version")
    return "Open Kernel Module" in text if text else None


def _rebuilt(root: Path, release: str) -> str:
    """Return the version in DKMS's link for this kernel, ``kernel-6.1.0-18-amd64-x86_64 -> 525.85.12/...``; ""."""
    links = root.glob(f"var/lib/dkms/nvidia*/kernel-{release}-*")
    with suppress(OSError):
        return next((printable(link.readlink().parts[0]) for link in links), "")
    return ""


def _is_mounted(root: Path, path: str) -> bool | None:
    """Return whether the innermost mount that has the file is another than that of ``/``."""
    lines = (line.split() for line in read_text(root / "proc/self/mountinfo").splitlines())
    points = {fields[4] for fields in lines if len(fields) > 4}
    above = {path, *map(str, Path(path).parents)} - {"/"}
    return not above.isdisjoint(points) if "/" in points else None


def _secure_boot(root: Path) -> bool | None:
    """Return the last byte of the UEFI variable ``SecureBoot``; the four before it are its attributes."""
    try:
        return (root / _SECURE_BOOT).read_bytes()[-1:] == b"\1"
    except OSError:
        return None


def _fabric_manager(root: Path) -> str:
    program, name = _FABRIC_MANAGER
    if any(read_text(file).strip() == name for file in root.glob("proc/[0-9]*/comm")):
        return "running"
    return "stopped" if (root / program).exists() else "absent"


def _fabric_manager_version(root: Path) -> str | None:
    """Return the version in Fabric Manager's log, or what its program answers: it was installed by any package."""
    written = ""
    with suppress(OSError), (root / "var/log/fabricmanager.log").open("rb") as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - _FABRIC_LOG_BYTES))
        written = log.read(_FABRIC_LOG_BYTES).decode(errors="replace")
    if versions := _FABRIC_MANAGER_VERSION.findall(written):
        return printable(versions[-1])
    program = root / _FABRIC_MANAGER[0]
    if root != Path("/") or not program.exists() or distrust(program):
        return None
    try:
        done = subprocess.run(
            [program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2, check=False
        )
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return None
    answer = _RELEASE.search(done.stdout)
    return None if answer is None else answer[0]


def _windows_driver(root: Path) -> str | None:
    files = (file for pattern in _WINDOWS_DRIVER for file in root.glob(pattern))
    return next((printable(f"/{file.relative_to(root)}") for file in files), None)


def _mapped(library: str) -> str:
    """Return the file that is mapped for ``library``, links resolved, or ``library`` if the system does not say."""
    stem = Path(library).name.partition(".so")[0] + ".so"
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return library
    paths = (line.split(maxsplit=5)[5] for line in lines if "/" in line)
    return next((path for path in paths if Path(path).name.startswith(stem)), library)
