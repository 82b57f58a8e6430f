"""Machines from public threads: Python finds another TensorFlow than was meant, or none that works."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from conftest import Gpudiag
from corpus import Item
from corpus.packages import CPU_BUILD, PLATFORM


def _named_like_tensorflow(gpudiag: Gpudiag) -> None:
    """The user's program has the name of the package, and lies in the folder in which it is started."""
    program = "import tensorflow as tf\nW = tf.Variable(tf.random.uniform([1], -1.0, 1.0))\n"
    (gpudiag.folder / "tensorflow.py").write_text(program)
    gpudiag.path.insert(0, str(gpudiag.folder))


def _of_the_user(gpudiag: Gpudiag) -> None:
    """A TensorFlow in ~/.local comes before that of the environment."""
    own = next(entry for entry in gpudiag.path if (Path(entry) / "tensorflow").is_dir())
    site = gpudiag.with_site_packages(PLATFORM)
    (site / PLATFORM / "build_info.py").unlink()
    (site / PLATFORM / "build_info.py").write_text(CPU_BUILD)
    next(site.glob("tensorflow-*.dist-info")).unlink()
    gpudiag.with_distribution(site, "tensorflow-cpu", "2.21.0", "tensorflow/__init__.py")
    user = gpudiag.folder / ".local" / "lib" / "python3.11" / "site-packages"
    user.parent.mkdir(parents=True)
    gpudiag.path[gpudiag.path.index(str(site))] = own
    gpudiag.path.insert(0, str(user))
    site.rename(user)
    gpudiag.environment["HOME"] = str(gpudiag.folder)


def _replaced(gpudiag: Gpudiag, package: str, version: str, name: str) -> Path:
    """Put copies in the place of a package's files, and metadata that says ``version``; return its folder."""
    site = gpudiag.with_site_packages()
    real = (site / package).resolve()
    (site / package).unlink()
    shutil.copytree(real, site / package, symlinks=True)
    next(site.glob(f"{name}-*.dist-info")).unlink()
    gpudiag.with_distribution(site, name, version, f"{package}/__init__.py")
    return site / package


def _old_protobuf(gpudiag: Gpudiag) -> None:
    google = _replaced(gpudiag, "google", "4.25.3", "protobuf")
    (google / "protobuf" / "runtime_version.py").unlink()


def _old_ml_dtypes(gpudiag: Gpudiag) -> None:
    """JAX of that day pinned a release that lacks types which TensorFlow names."""
    module = _replaced(gpudiag, "ml_dtypes", "0.2.0", "ml_dtypes") / "__init__.py"
    module.write_text(f"{module.read_text()}\ndel float8_e4m3b11fnuz, float8_e4m3fnuz, int4, uint4, float4_e2m1fn\n")


def _of_conda_for_cpu(gpudiag: Gpudiag) -> None:
    """conda was asked on a machine without a driver, such as a login node, and chose the build for CPUs."""
    site = gpudiag.with_site_packages(PLATFORM)
    (site / PLATFORM / "build_info.py").unlink()
    (site / PLATFORM / "build_info.py").write_text(CPU_BUILD)
    next(site.glob("tensorflow-*.dist-info")).unlink()
    gpudiag.with_distribution(site, "tensorflow", "2.21.0", "tensorflow/__init__.py")
    (site / "tensorflow-2.21.0.dist-info" / "INSTALLER").write_text("conda\n")
    record = {"name": "tensorflow", "version": "2.21.0", "build": "cpu_py311h6ac8430_0", "channel": "conda-forge"}
    meta = gpudiag.folder / "conda-meta" / "tensorflow-2.21.0-cpu_py311h6ac8430_0.json"
    meta.parent.mkdir()
    meta.write_text(json.dumps(record))
    gpudiag.environment["CONDA_PREFIX"] = str(meta.parents[1])


def _in_another_environment(gpudiag: Gpudiag) -> None:
    """The kernel of the notebook is another Python than that of the active environment."""
    gpudiag.without("tensorflow")
    active = gpudiag.folder / "tf"
    for file in ("bin/python", "pyvenv.cfg", "lib/python3.11/site-packages/tensorflow/__init__.py"):
        (active / file).parent.mkdir(parents=True, exist_ok=True)
        (active / file).write_text("")
    gpudiag.environment["VIRTUAL_ENV"] = str(active)


ITEMS = (
    Item(
        121,
        "the program is named tensorflow.py",
        rule="tensorflow_shadowed",
        fix="mv ",
        machine="",
        prepare=_named_like_tensorflow,
        source="https://github.com/tensorflow/tensorflow/issues/2370",
        settled="the program's own file is imported in the place of TensorFlow: rename it",
    ),
    Item(
        122,
        "a TensorFlow in ~/.local comes before the environment's",
        rule="build_without_cuda",
        fix="PYTHONNOUSERSITE=1",
        machine="1",
        prepare=_of_the_user,
        source="https://github.com/conda-forge/tensorflow-feedstock/issues/410",
        settled="another TensorFlow, without CUDA, is imported from the user's folder: remove it or leave it out",
    ),
    Item(
        123,
        "protobuf is too old",
        rule="requirement_not_met",
        fix="pip install 'protobuf",
        machine="1",
        prepare=_old_protobuf,
        source="https://github.com/tensorflow/models/issues/11192",
        settled="protobuf is older than TensorFlow needs: install one in its range",
    ),
    Item(
        124,
        "ml_dtypes is of another release than TensorFlow needs",
        rule="requirement_not_met",
        fix="pip install 'ml-dtypes",
        machine="1",
        prepare=_old_ml_dtypes,
        source="https://github.com/onnx/tensorflow-onnx/issues/2245",
        settled="ml_dtypes does not have the types that TensorFlow names: install one in its range",
    ),
    Item(
        125,
        "conda chose the build for CPUs",
        rule="build_without_cuda",
        fix="conda install",
        machine="1",
        prepare=_of_conda_for_cpu,
        source="https://github.com/conda-forge/tensorflow-feedstock/issues/174",
        settled="conda installs the build for CPUs if it sees no driver: install a build named cuda*, by conda",
    ),
    Item(
        126,
        "the notebook's kernel is another Python",
        rule="tensorflow_missing",
        fix="tf/bin/python",
        machine="",
        prepare=_in_another_environment,
        source="https://github.com/jupyter/notebook/issues/3451",
        settled="TensorFlow is installed for another Python: run that one (or register it as a kernel)",
    ),
)
