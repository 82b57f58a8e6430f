"""TensorFlow as it is installed, and what is installed beside it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from conftest import Gpudiag
from corpus import Item
from examples.facts import example_with_gpus
from gpudiag.cause import Evidence
from gpudiag.model.facts import Distribution, SystemFacts, TensorflowBuild, TensorflowFacts

PLATFORM = "tensorflow/python/platform"
# The simulator refuses a build without CUDA; it is told by the comment that the binary is none.
CPU_BUILD = """
import collections
build_info = collections.OrderedDict([('is_cuda_build', False)])  # was: 'is_cuda_build', True
"""


def _cpu_build(gpudiag: Gpudiag) -> Path:
    site = gpudiag.with_site_packages(PLATFORM)
    (site / PLATFORM / "build_info.py").unlink()
    (site / PLATFORM / "build_info.py").write_text(CPU_BUILD)
    return site


def _cpu_over_cuda(gpudiag: Gpudiag) -> None:
    gpudiag.with_distribution(_cpu_build(gpudiag), "tensorflow-cpu", "2.21.0", "tensorflow/__init__.py")


def _overwritten(gpudiag: Gpudiag) -> None:
    _cpu_build(gpudiag)


def _only_cpu(gpudiag: Gpudiag) -> None:
    site = _cpu_build(gpudiag)
    next(site.glob("tensorflow-*.dist-info")).unlink()
    gpudiag.with_distribution(site, "tensorflow-cpu", "2.21.0", "tensorflow/__init__.py")


def _uninstalled(gpudiag: Gpudiag) -> None:
    """Leave what `pip uninstall tensorflow-cpu` leaves of `tensorflow`: metadata, and a folder without __init__.py."""
    site = gpudiag.with_site_packages()
    (site / "tensorflow" / "__init__.py").unlink()


def directml(gpudiag: Gpudiag) -> None:
    site = gpudiag.with_site_packages()
    (site / "tensorflow-plugins").mkdir()
    (site / "tensorflow-plugins" / "libtfdml_plugin.so").write_bytes(b"of another release")
    gpudiag.with_distribution(site, "tensorflow-directml-plugin", "0.4.0.dev230202")


def old_torch(gpudiag: Gpudiag) -> None:
    site = gpudiag.with_site_packages()
    gpudiag.with_distribution(site, "torch", "2.2.0")
    gpudiag.with_distribution(site, "nvidia-cudnn-cu12", "8.9.2.26")


def two_cudas(gpudiag: Gpudiag) -> None:
    site = gpudiag.with_site_packages()
    gpudiag.with_distribution(site, "torch", "2.9.0")
    for name in ("nvidia-nccl-cu12", "nvidia-nccl-cu13"):
        gpudiag.with_distribution(site, name, "2.28.9")


def _without_cuda(os: str, machine: str, name: str, version: str, *companions: str) -> Evidence:
    site = "/home/someone/venv/lib/python3.11/site-packages"
    facts = example_with_gpus(
        tensorflow=TensorflowFacts(
            module_path=f"{site}/tensorflow/__init__.py",
            distributions=(Distribution(name, version, site),),
            build=TensorflowBuild(False, None, None, ()),
            companions=tuple(Distribution(companion, "12.9.4", site) for companion in companions),
        )
    )
    assert isinstance(facts.system, SystemFacts)
    facts = msgspec.structs.replace(facts, system=msgspec.structs.replace(facts.system, os=os, machine=machine))
    return Evidence(facts)


def _half_removed(gpudiag: Gpudiag) -> None:
    """Leave what an interrupted ``pip uninstall`` leaves of a package that TensorFlow imports."""
    site = gpudiag.with_site_packages("absl")
    (site / "absl" / "logging").unlink()


ITEMS = (
    Item(
        3,
        "an uninstall of absl-py was interrupted",
        rule="requirement_not_met",
        fix="-m pip install --force-reinstall --no-deps --no-cache-dir absl-py==",
        machine="",
        prepare=_half_removed,
    ),
    Item(
        3,
        "tensorflow-cpu has overwritten tensorflow",
        rule="distributions_mixed",
        fix="pip uninstall -y tensorflow tensorflow-cpu",
        machine="2x16GiB",
        prepare=_cpu_over_cuda,
    ),
    Item(
        3,
        "tensorflow-cpu was removed again, and the files with it",
        rule="files_deleted",
        fix="pip install --force-reinstall 'tensorflow[and-cuda]==2.21.0'",
        machine="",
        prepare=_uninstalled,
    ),
    Item(
        3,
        "tensorflow was overwritten by one that pip no longer knows",
        rule="files_overwritten",
        fix="pip install --force-reinstall --no-deps tensorflow==2.21.0",
        machine="2x16GiB",
        prepare=_overwritten,
    ),
    Item(
        3,
        "tensorflow-cpu alone",
        rule="build_without_cuda",
        fix="pip uninstall -y tensorflow-cpu",
        machine="2x16GiB",
        prepare=_only_cpu,
    ),
    Item(
        5,
        "native Windows with TensorFlow after 2.10",
        rule="windows_without_cuda",
        fix="wsl --install",
        evidence=_without_cuda("Windows 10.0.26100", "AMD64", "tensorflow-intel", "2.18.0"),
        why_not_built="the tests run under Linux",
    ),
    Item(
        6,
        "the DirectML plug-in breaks the import",
        rule="plugin_breaks_import",
        fix="pip uninstall -y tensorflow-directml-plugin",
        machine="2x16GiB",
        prepare=directml,
    ),
    Item(
        7,
        "the aarch64 wheel has no CUDA",
        rule="aarch64_without_cuda",
        fix="nvcr.io/nvidia/tensorflow",
        evidence=_without_cuda(
            "Ubuntu 24.04", "aarch64", "tensorflow", "2.21.0", "nvidia-cudnn-cu12", "nvidia-cublas-cu12"
        ),
        why_not_built="the tests run on x86-64",
    ),
    Item(
        9,
        "torch pins another cuDNN than TensorFlow asks for",
        rule="package_out_of_range",
        fix="pip install 'nvidia-cudnn-cu12<10.0,>=9.3.0.75'",
        machine="2x16GiB",
        prepare=old_torch,
    ),
    Item(
        9,
        "NCCL for CUDA 12 and for CUDA 13 in one folder",
        rule="packages_share_a_folder",
        fix="python -m venv tf && tf/bin/pip install 'tensorflow[and-cuda]==2.21.0'",
        machine="2x16GiB",
        prepare=two_cudas,
    ),
)
