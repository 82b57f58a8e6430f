"""The family ``driver``: NVIDIA's kernel module and the CUDA driver library. CUDA is not initialised."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from gpudiag.hostfacts import DriverFacts

_LIBRARY = "libcuda.so.1"


def gather(root: Path = Path("/"), library: str = _LIBRARY) -> DriverFacts:
    """Return the facts of the driver whose kernel module shows under ``root`` and whose library is ``library``.

    Loading the library runs its constructors and nothing else: ``cuDriverGetVersion`` needs no ``cuInit``.
    """
    module = _kernel_module(root)
    try:
        cuda = ctypes.CDLL(library)
    except OSError as error:
        return DriverFacts(module, None, str(error), None)
    version = ctypes.c_int()
    status = cuda.cuDriverGetVersion(ctypes.byref(version))
    if status:
        return DriverFacts(module, _mapped(library), f"cuDriverGetVersion returned CUDA error {status}", None)
    return DriverFacts(module, _mapped(library), None, f"{version.value // 1000}.{version.value % 1000 // 10}")


def _kernel_module(root: Path) -> str | None:
    """Return the version in ``NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 ...``."""
    try:
        text = (root / "proc/driver/nvidia/version").read_text(errors="replace")
    except OSError:
        return None
    version = re.search(r"\s(\d+\.\d[\d.]*)\s", text)
    return version[1] if version else text.partition("\n")[0]


def _mapped(library: str) -> str:
    """Return the file that is mapped for ``library``, links resolved, or ``library`` where the system cannot tell."""
    stem = Path(library).name.partition(".so")[0] + ".so"
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return library
    paths = (line.split(maxsplit=5)[5] for line in lines if "/" in line)
    return next((path for path in paths if Path(path).name.startswith(stem)), library)
