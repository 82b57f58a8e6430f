"""What provokes host.libraries and host.packages."""

from __future__ import annotations

from conftest import Gpudiag
from corpus import libraries, packages
from provocations import AlteredFacts, OnMachine

_LATER_CUDNN = {"path": "/site/cudnn.so", "version": "9.10.2.21", "owner": "nvidia-cudnn-cu12 9.10.2.21", "error": None}


def _libdevice_of_a_toolkit(gpudiag: Gpudiag) -> None:
    folder = gpudiag.folder / "cuda-12.6" / "nvvm" / "libdevice"
    folder.mkdir(parents=True)
    (folder / "libdevice.10.bc").touch()
    gpudiag.environment["CUDA_PATH"] = str(gpudiag.folder / "cuda-12.6")  # which XLA does not read


def _overwritten(gpudiag: Gpudiag) -> None:
    site = gpudiag.with_site_packages()
    (site / "tensorflow" / "__init__.py").unlink()
    (site / "tensorflow" / "__init__.py").write_text("")


PROVOCATIONS: tuple[OnMachine | AlteredFacts, ...] = (
    OnMachine("host.libraries", "unopened", faults=("library_missing=cufft",)),
    OnMachine("host.libraries", "cudnn_too_old", faults=("cudnn_version=9.1.0",)),
    AlteredFacts(
        "host.libraries",
        "older_first",
        {"libraries.libraries.8.source": "LD_LIBRARY_PATH", "libraries.libraries.8.copies": [_LATER_CUDNN]},
    ),
    OnMachine("host.libraries", "other_soname", prepare=libraries.renamed_cusolver),
    OnMachine("host.libraries", "no_libdevice", prepare=_libdevice_of_a_toolkit),
    OnMachine("host.packages", "out_of_range", prepare=packages.old_torch),
    OnMachine("host.packages", "shared_folder", prepare=packages.two_cudas),
    OnMachine("host.packages", "altered", prepare=_overwritten),
    OnMachine("host.packages", "directml", prepare=packages.directml),
)
