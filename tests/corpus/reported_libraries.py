"""Machines from public threads: TensorFlow does not load the libraries that it needs, or loads others.

Each is staged as the thread describes it, with the libraries of TensorFlow 2.21 in the place of those of its day.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Gpudiag
from corpus import Item
from corpus.containers import machine
from corpus.libraries import packaged
from gpudiag import simulator

_OS_RELEASE = "\"/etc/os-release\" = '''{}'''"
_NIXOS = 'ID=nixos\nNAME=NixOS\nPRETTY_NAME="NixOS 24.05 (Uakari)"\nVERSION_ID="24.05"\n'
_DEBIAN = 'ID=debian\nNAME="Debian GNU/Linux"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\n'
_OLD_CUDNN = """
#include <stddef.h>
size_t cudnnGetVersion(void) { return 90100; }
int cudnnGetProperty(int which, int *value) { *value = which == 0 ? 9 : which == 1 ? 1 : 0; return 0; }
"""
_DRIVER_THAT_ANSWERS = """
static int named(int code, const char **text, const char *name) {{ *text = name; return code != {code}; }}
int cuInit(unsigned flags) {{ return {code}; }}
int cuDriverGetVersion(int *version) {{ *version = {version}; return {version} ? 0 : {code}; }}
int cuGetErrorName(int code, const char **text) {{ return named(code, text, "{name}"); }}
int cuGetErrorString(int code, const char **text) {{ return named(code, text, "{text}"); }}
"""
_KERNEL_PACKAGES = "".join(
    f"Package: {name}\\nStatus: install ok installed\\nPriority: optional\\nVersion: 560.35.05-1\\n\\n"
    for name in ("nvidia-kernel-dkms", "nvidia-driver-libs", "xserver-xorg-video-nvidia")
)


def _compiled(gpudiag: Gpudiag, source: str, library: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler (cc or gcc) to make a library")
    library.parent.mkdir(parents=True)
    text = library.with_suffix(".c")
    text.write_text(source)
    flags = ["-shared", "-fPIC", f"-Wl,-soname,{library.name}", "-o", str(library)]
    subprocess.run([compiler, *flags, str(text)], check=True, timeout=60)
    text.unlink()


def _driver(folder: str, code: int, name: str, text: str, version: int = 0) -> Callable[[Gpudiag], None]:
    """Make a libcuda that refuses to start, as the one of the thread does."""

    def prepare(gpudiag: Gpudiag) -> None:
        source = _DRIVER_THAT_ANSWERS.format(code=code, name=name, text=text, version=version)
        _compiled(gpudiag, source, gpudiag.folder / folder / "libcuda.so.1")

    return prepare


def _old_cudnn_of_conda(gpudiag: Gpudiag) -> None:
    _compiled(gpudiag, _OLD_CUDNN, gpudiag.folder / "conda/envs/tf/lib/libcudnn.so.9")


def _without(*libraries: str) -> Callable[[Gpudiag], None]:
    def prepare(gpudiag: Gpudiag) -> None:
        def change(folder: Path) -> None:
            for library in libraries:
                (folder / library).unlink()

        gpudiag.with_simulator(change)

    return prepare


_CUDATOOLKIT = (
    "libcudart.so.12",
    "libcublas.so.12",
    "libcublasLt.so.12",
    "libcufft.so.11",
    "libcusolver.so.11",
    "libcusparse.so.12",
)
_TOOLKIT_13 = tuple(
    f'"/usr/local/cuda-13.0/lib64/{library}" = ""' for library in ("libcudart.so.13", "libcublas.so.13")
)


def _toolkit_of_conda(gpudiag: Gpudiag) -> None:
    folder = gpudiag.folder / "conda" / "lib"
    folder.mkdir(parents=True)
    for library in _CUDATOOLKIT:
        shutil.copy(simulator.library_directory() / library, folder)
    _without(*_CUDATOOLKIT)(gpudiag)
    gpudiag.environment["CONDA_PREFIX"] = str(folder.parent)


def _only_in_bashrc(gpudiag: Gpudiag) -> None:
    """The shell of the user sets the path, and what starts the program reads no shell's files."""
    folder = gpudiag.folder / "opt" / "cudnn" / "lib"
    folder.mkdir(parents=True)
    shutil.copy(simulator.library_directory() / "libcudnn.so.9", folder)
    _without("libcudnn.so.9")(gpudiag)
    with (gpudiag.folder / "machine.toml").open("a") as machine:
        line = f"export LD_LIBRARY_PATH={folder}:$LD_LIBRARY_PATH"
        machine.write(f'\n"{gpudiag.folder}/.bashrc" = "# CUDA\\n{line}\\n"\n')
    gpudiag.environment["HOME"] = str(gpudiag.folder)


def _truncated(gpudiag: Gpudiag) -> None:
    """The copy of a package's library was interrupted."""
    packaged(gpudiag, "nvidia-cudnn-cu12", "9.3.0.75", "cudnn", "libcudnn.so.9")
    file = gpudiag.folder / "site-packages" / "nvidia" / "cudnn" / "lib" / "libcudnn.so.9"
    file.write_bytes(file.read_bytes()[:40])
    _without("libcudnn.so.9")(gpudiag)


def _packages_elsewhere(gpudiag: Gpudiag) -> None:
    """NVIDIA's packages were installed into another folder than TensorFlow, which its RUNPATH does not lead to."""
    site = gpudiag.folder / "dist-packages"
    file = site / "nvidia" / "cufft" / "lib" / "libcufft.so.11"
    file.parent.mkdir(parents=True)
    shutil.copy(simulator.library_directory() / file.name, file)
    gpudiag.with_distribution(site, "nvidia-cufft-cu12", "11.2.3.61", str(file.relative_to(site)))
    gpudiag.path.append(str(site))
    _without("libcufft.so.11")(gpudiag)


def _old_libstdcxx(gpudiag: Gpudiag) -> None:
    """A module of the cluster puts its compiler's libraries first; here a copy that lacks the newer versions."""
    folder = gpudiag.folder / "opt" / "gnu" / "gcc" / "lib64"
    folder.mkdir(parents=True)
    ctypes.CDLL("libstdc++.so.6")
    mapped = Path("/proc/self/maps").read_text().splitlines()
    ours = next(line.split()[-1] for line in mapped if "/libstdc++.so.6" in line)
    old = Path(ours).read_bytes().replace(b"GLIBCXX_3.4.2", b"GLIBCXX_3.4.X")
    (folder / "libstdc++.so.6").write_bytes(old)
    gpudiag.environment["LD_LIBRARY_PATH"] = str(folder)


ITEMS = (
    Item(
        101,
        "conda's older cuDNN comes before pip's on LD_LIBRARY_PATH",
        rule="cudnn_too_old",
        fix="# without ",
        machine="2",
        prepare=_old_cudnn_of_conda,
        first="conda/envs/tf/lib",
        source="https://github.com/tensorflow/docs/pull/2251",
        settled="LD_LIBRARY_PATH puts conda's folder, with an older cuDNN, before that of the package: change the path",
    ),
    Item(
        102,
        "the toolkit's stub of libcuda is found first",
        rule="stub_library_opened",
        fix="LD_LIBRARY_PATH",
        machine="1",
        prepare=_driver("cuda/lib64/stubs", 34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"),
        first="cuda/lib64/stubs",
        source="https://github.com/tensorflow/tensorflow/issues/14224",
        settled="the loader finds the stub that is there for linking: take the folder stubs out of the loader's path",
    ),
    Item(
        103,
        "an image with cuda-compat on a GeForce card",
        rule="compat_library_refused",
        fix="LD_LIBRARY_PATH",
        machine=machine('"/.dockerenv" = ""', gpu='name = "NVIDIA GTX 1080 Ti"\ncompute_capability = "6.1"'),
        prepare=_driver(
            "cuda/compat",
            804,
            "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
            "forward compatibility was attempted on non supported HW",
            12080,
        ),
        first="cuda/compat",
        source="https://github.com/NVIDIA/nvidia-docker/issues/1294",
        settled="cuda-compat works on data centre cards only: take it out of the path, or update the host's driver",
    ),
    Item(
        104,
        "NixOS: the driver's libraries are in /run/opengl-driver",
        rule="compute_library_missing",
        fix="/run/opengl-driver/lib",
        machine=machine(
            _OS_RELEASE.format(_NIXOS),
            '"/run/opengl-driver/lib/libcuda.so.1" = ""',
            '"/run/opengl-driver/lib/libnvidia-ml.so.1" = ""',
        ),
        faults=("library_missing=cuda", "nvml_missing"),
        source="https://github.com/NixOS/nixpkgs/issues/127329",
        settled="the loader does not search the folder of the driver's libraries: add it to LD_LIBRARY_PATH",
    ),
    Item(
        105,
        "CUDA was installed by conda, TensorFlow by pip",
        rule="library_off_the_path",
        fix="conda/lib:$LD_LIBRARY_PATH",
        machine="1",
        prepare=_toolkit_of_conda,
        source="https://github.com/tensorflow/tensorflow/issues/52988",
        settled="the loader does not search conda's folder: add it to LD_LIBRARY_PATH",
        tried="works",
    ),
    Item(
        106,
        "only a toolkit of another CUDA is installed",
        rule="runtime_missing",
        fix="pip install 'tensorflow[and-cuda]==2.21.0'",
        machine=machine(*_TOOLKIT_13),
        prepare=_without("libcudart.so.12"),
        source="https://github.com/tensorflow/tensorflow/issues/42166",
        settled="the toolkit has another SONAME than TensorFlow was built with: install the CUDA that it names",
    ),
    Item(
        107,
        "LD_LIBRARY_PATH is set in ~/.bashrc, and the IDE does not read it",
        rule="library_off_the_path",
        fix="opt/cudnn/lib",
        machine=machine(),
        prepare=_only_in_bashrc,
        source="https://github.com/tensorflow/tensorflow/issues/9530",
        settled="the program does not have the shell's LD_LIBRARY_PATH: set it where the program is started",
    ),
    Item(
        109,
        "a library of a package is cut off",
        rule="library_missing",
        fix="--force-reinstall",
        machine="1",
        prepare=_truncated,
        source="https://github.com/microsoft/CNTK/issues/2213",
        settled="the file is damaged (too short): install it again",
    ),
    Item(
        111,
        "NVIDIA's packages are in another folder than TensorFlow",
        rule="package_not_on_runpath",
        fix="dist-packages/nvidia/cufft/lib",
        machine="1",
        prepare=_packages_elsewhere,
        source="https://github.com/tensorflow/tensorflow/issues/65842",
        settled="TensorFlow looks beside itself only: add the package's folder to LD_LIBRARY_PATH",
    ),
    Item(
        112,
        "Debian: the driver without libcuda1",
        rule="compute_library_missing",
        fix="libcuda1",
        machine=machine(_OS_RELEASE.format(_DEBIAN), f'"/var/lib/dpkg/status" = "{_KERNEL_PACKAGES}"'),
        faults=("library_missing=cuda",),
        source="https://github.com/conda-forge/tensorflow-feedstock/issues/257",
        settled="the kernel module is installed, the driver's CUDA library is a package of its own: install it",
    ),
    Item(
        113,
        "a cluster's compiler puts an old libstdc++ first",
        rule="system_library_too_old",
        fix="unset LD_LIBRARY_PATH",
        machine="",
        prepare=_old_libstdcxx,
        source="https://github.com/tensorflow/tensorflow/issues/30856",
        settled="LD_LIBRARY_PATH leads to a libstdc++ that is too old: take its folder away",
    ),
)
