"""Dynamic libraries, and where they are looked for."""

from __future__ import annotations

import shutil
from pathlib import Path

from conftest import Gpudiag
from corpus import Item
from gpudiag import simulator


def _packaged(gpudiag: Gpudiag, *, name: str, version: str, folder: str, library: str) -> Path:
    """Install one of NVIDIA's packages beside TensorFlow; its library is a copy of the simulated machine's."""
    site = gpudiag.with_site_packages()
    file = site / "nvidia" / folder / "lib" / library
    file.parent.mkdir(parents=True)
    shutil.copy(simulator.library_directory() / library, file)
    gpudiag.with_distribution(site, name, version, str(file.relative_to(site)))
    return file


def _cusolver(gpudiag: Gpudiag) -> None:
    _packaged(gpudiag, name="nvidia-cusolver-cu12", version="11.7.5.82", folder="cusolver", library="libcusolver.so.11")


ITEMS = (
    Item(
        1,
        "tensorflow[and-cuda] 2.21.0 does not find cuSOLVER",
        rule="package_not_on_runpath",
        fix="/site-packages/nvidia/cusolver/lib:$LD_LIBRARY_PATH",
        machine="2x16GiB",
        faults=("library_missing=cusolver",),
        prepare=_cusolver,
        tried="works",
    ),
)
