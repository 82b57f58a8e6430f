"""Dynamic libraries, and where they are looked for."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from conftest import Gpudiag
from corpus import Item
from gpudiag import simulator

LIBDEVICE = (
    "W0000 00:00:1795261972.783104   16176 nvptx_compiler.cc:930] Can't find libdevice directory "
    "${CUDA_DIR}/nvvm/libdevice. This may result in compilation or runtime failures, if the program we try to run uses "
    "routines from libdevice.\n"
    "tensorflow.python.framework.errors_impl.InternalError: libdevice not found at ./libdevice.10.bc [Op:__inference_x]"
)
CONTAINER = '[[gpu]]\n[files]\n"/.dockerenv" = ""\n'


def packaged(gpudiag: Gpudiag, name: str, version: str, folder: str, library: str) -> None:
    """Install one of NVIDIA's packages beside TensorFlow; its library is a copy of the simulated machine's."""
    site = gpudiag.with_site_packages()
    file = site / "nvidia" / folder / "lib" / library
    file.parent.mkdir(parents=True)
    shutil.copy(simulator.library_directory() / library, file)
    gpudiag.with_distribution(site, name, version, str(file.relative_to(site)))


def _removed(*libraries: str) -> Callable[[Gpudiag], None]:
    """Remove libraries from the simulated machine: they are then nowhere."""

    def prepare(gpudiag: Gpudiag) -> None:
        def change(folder: Path) -> None:
            for library in libraries:
                (folder / library).unlink()

        gpudiag.with_simulator(change)

    return prepare


def _cusolver_2_21(gpudiag: Gpudiag) -> None:
    packaged(gpudiag, "nvidia-cusolver-cu12", "11.7.5.82", "cusolver", "libcusolver.so.11")
    _removed("libcusolver.so.11")(gpudiag)


def _toolkit(library: str) -> Callable[[Gpudiag], None]:
    """Put ``library`` into a CUDA toolkit that CUDA_HOME names and the loader does not search."""

    def prepare(gpudiag: Gpudiag) -> None:
        file = gpudiag.folder / "cuda-12.6" / "lib64" / library
        file.parent.mkdir(parents=True)
        shutil.copy(simulator.library_directory() / library, file)
        gpudiag.environment["CUDA_HOME"] = str(file.parent.parent)
        _removed(library)(gpudiag)

    return prepare


def _rewritten(library: str, source: str, old: str, new: str) -> Callable[[Gpudiag], None]:
    """Make ``library`` a copy of ``source`` in which a name is another one."""

    def prepare(gpudiag: Gpudiag) -> None:
        def change(folder: Path) -> None:
            content = (folder / source).read_bytes()
            name = new.encode().ljust(len(old), b"\0")
            assert old.encode() in content
            (folder / library).unlink(missing_ok=True)
            (folder / library).write_bytes(content.replace(old.encode(), name))

        gpudiag.with_simulator(change)

    return prepare


renamed_cusolver = _rewritten("libcusolver.so.11", "libcusolver.so.11", "libcusolver.so.11", "libcusolver.so.10")


def _log(text: str) -> Callable[[Gpudiag], None]:
    def prepare(gpudiag: Gpudiag) -> None:
        (gpudiag.folder / "app.log").write_text(text)

    return prepare


ITEMS = (
    Item(
        1,
        "tensorflow[and-cuda] 2.21.0 does not find cuSOLVER",
        rule="package_not_on_runpath",
        fix="/site-packages/nvidia/cusolver/lib:$LD_LIBRARY_PATH",
        machine="2x16GiB",
        prepare=_cusolver_2_21,
        tried="works",
    ),
    Item(
        2,
        "pip install tensorflow without [and-cuda]",
        rule="runtime_missing",
        fix="pip install 'tensorflow[and-cuda]==2.21.0'",
        machine="2x16GiB",
        prepare=_removed("libcudart.so.12"),
    ),
    Item(
        2,
        "the CUDA runtime is in a toolkit that nobody names",
        rule="library_off_the_path",
        fix="cuda-12.6/lib64:$LD_LIBRARY_PATH",
        machine="2x16GiB",
        prepare=_toolkit("libcudart.so.12"),
        tried="works",
    ),
    Item(
        11,
        "Cannot dlopen some GPU libraries, without a name",
        rule="library_missing",
        fix="pip install 'tensorflow[and-cuda]==2.21.0'",
        machine="2x16GiB",
        prepare=_removed("libcufft.so.11", "libcudnn.so.9"),
    ),
    Item(
        11,
        "a library that cannot be opened comes first",
        rule="library_missing",
        fix="pip install 'tensorflow[and-cuda]==2.21.0'",
        machine="2x16GiB",
        faults=("library_missing=cusparse",),
    ),
    Item(
        11,
        "a library is in a toolkit that nobody names",
        rule="library_off_the_path",
        fix="cuda-12.6/lib64:$LD_LIBRARY_PATH",
        machine="2x16GiB",
        prepare=_toolkit("libcufft.so.11"),
        tried="works",
    ),
    Item(
        11,
        "a library that cuSOLVER needs (nvJitLink) is missing",
        rule="dependency_missing",
        fix="'nvidia-nvjitlink-cu12",
        machine="2x16GiB",
        prepare=_rewritten(
            "libcusolver.so.11", "libgpudiag_missing.so", "libremoved-by-a-simulated-fault.so", "libnvJitLink.so.12"
        ),
    ),
    Item(
        12,
        "an older cuDNN",  # by LD_LIBRARY_PATH: test_stray_library.py
        rule="cudnn_too_old",
        fix="pip install 'nvidia-cudnn-cu12<10.0,>=9.3.0.75'",
        machine="2x16GiB",
        faults=("cudnn_version=9.1.0",),
    ),
    Item(
        15,
        "libnvidia-ml.so.1 is missing in a container",
        rule="nvml_missing",
        fix="NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        machine=CONTAINER,
        faults=("nvml_missing",),
        variables={"NVIDIA_DRIVER_CAPABILITIES": "compute"},
    ),
    Item(16, "nvmlInit fails", rule="nvml_fails", fix="nvidia-modprobe", machine="2x16GiB", faults=("nvml_init=9",)),
    Item(16, "nvmlInit fails", rule="nvml_fails", fix="nvidia-smi", machine="2x16GiB", faults=("nvml_init=999",)),
    Item(
        18,
        "libdevice is not found",
        rule="libdevice_missing",
        fix="nvidia-cuda-nvcc-cu12",
        machine="2x16GiB",
        options=("--log", "app.log", "host", "discovery"),
        prepare=_log(LIBDEVICE),
    ),
    Item(
        20,
        "a home-made link to another release of a library",
        rule="other_soname",
        fix="pip install 'nvidia-cusolver-cu12",
        machine="2x16GiB",
        prepare=renamed_cusolver,
    ),
)
