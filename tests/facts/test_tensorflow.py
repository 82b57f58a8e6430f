"""The family ``tensorflow`` on folders laid out as pip lays them out."""

from __future__ import annotations

import base64
import hashlib
import sys
from pathlib import Path

import packaging.requirements  # noqa: F401  (gather imports it late, and here sys.path is replaced)
import pytest

from gpudiag.facts import tensorflow
from gpudiag.model.facts import Distribution, TensorflowBuild

CUDA_BUILD = """
import collections
build_info = collections.OrderedDict([
    ('cpu_compiler', 'clang'), ('cuda_compute_capabilities', ['sm_80', 'compute_90']), ('cuda_version', '12.5.1'),
    ('cudnn_version', '9'), ('is_cuda_build', True), ('is_rocm_build', False)])
"""
CPU_BUILD = "import collections\nbuild_info = collections.OrderedDict([('is_cuda_build', False)])\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder that is the whole of ``sys.path``."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    return tmp_path


def install(site: Path, name: str, version: str, *files: str, record: bool = True) -> Path:
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "top_level.txt").write_text("\n".join({file.partition("/")[0] for file in files}))
    if record:
        (folder / "RECORD").write_text("".join(f"{file},sha256=x,1\n" for file in ("a/b.py", *files)))
    return folder


def put_module(site: Path, build_info: str | None = CUDA_BUILD) -> Path:
    module = site / "tensorflow" / "__init__.py"
    file = module.parent / "python" / "platform" / "build_info.py"
    file.parent.mkdir(parents=True)
    module.write_text("raise AssertionError('imported')")
    if build_info is not None:
        file.write_text(build_info)
    return module


def test_nothing_installed(site: Path) -> None:
    facts = tensorflow.gather()
    assert (facts.module_path, facts.distributions, facts.build, facts.companions) == (None, (), None, ())


def test_a_cuda_build(site: Path) -> None:
    install(site, "tensorflow", "2.21.0", "tensorflow/__init__.py")
    module = put_module(site)
    facts = tensorflow.gather()
    assert facts.module_path == str(module)
    assert facts.distributions == (Distribution("tensorflow", "2.21.0", str(site)),)
    assert facts.build == TensorflowBuild(True, "12.5.1", "9", ("sm_80", "compute_90"))


def test_a_build_without_cuda(site: Path) -> None:
    put_module(site, CPU_BUILD)
    assert tensorflow.gather().build == TensorflowBuild(False, None, None, ())


@pytest.mark.parametrize("text", [None, "", "build_info = 3", "build_info = OrderedDict(x())", "def ("])
def test_a_build_description_that_cannot_be_read(site: Path, text: str | None) -> None:
    put_module(site, text)
    assert tensorflow.gather().build is None


def test_every_distribution_that_installs_the_module_and_no_other(site: Path) -> None:
    install(site, "tensorflow", "2.21.0", "tensorflow/__init__.py")
    install(site, "Tensorflow_CPU", "2.20.0", "tensorflow/__init__.py")
    install(site, "somebodys-fork", "1.0", "tensorflow/__init__.py")
    install(site, "from-conda", "2.19.0", "tensorflow/__init__.py", record=False)
    install(site, "tensorflow-text", "2.21.0", "tensorflow_text/__init__.py")
    install(site, "tensorflow-metapackage", "2.21.0", "other/tensorflow/__init__.py")
    found = {(each.name, each.version) for each in tensorflow.gather().distributions}
    assert found == {
        ("tensorflow", "2.21.0"),
        ("tensorflow-cpu", "2.20.0"),
        ("somebodys-fork", "1.0"),
        ("from-conda", "2.19.0"),
    }


def test_a_copy_elsewhere_on_the_path_is_listed_with_its_folder(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "second", "first"):
        monkeypatch.setattr(sys, "path", [*sys.path, str(site / name)])
    install(site / "first", "tensorflow", "2.21.0", "tensorflow/__init__.py")
    install(site / "second", "tensorflow", "2.18.0", "tensorflow/__init__.py")
    locations = [Path(found.location).name for found in tensorflow.gather().distributions]
    assert locations == ["first", "second"]


def test_files_gone_but_registered(site: Path) -> None:
    install(site, "tensorflow", "2.21.0", "tensorflow/__init__.py")
    (site / "tensorflow" / "python").mkdir(parents=True)
    facts = tensorflow.gather()
    assert facts.module_path is None
    assert [found.name for found in facts.distributions] == ["tensorflow"]


def test_companions(site: Path) -> None:
    for name in ("numpy", "Keras", "nvidia-cudnn-cu12", "requests", "tf_keras", "numpy-stubs"):
        install(site, name, "1.0", f"{name}/__init__.py")
    assert [each.name for each in tensorflow.gather().companions] == ["keras", "numpy", "nvidia-cudnn-cu12", "tf-keras"]


def test_what_is_left_of_a_removed_distribution_is_passed_over(site: Path) -> None:
    (site / "numpy-1.0.dist-info").mkdir()
    assert tensorflow.gather().companions == ()


def test_the_real_wheel() -> None:
    facts = tensorflow.gather()
    if facts.module_path is None:
        pytest.skip("needs TensorFlow: pip install 'gpudiag[tensorflow]'")
    assert Path(facts.module_path).is_file()
    assert facts.distributions
    assert facts.build is not None


def test_ranges_frameworks_and_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site-packages"
    monkeypatch.setattr(sys, "path", [str(site)])
    metadata = install(site, "tensorflow", "2.21.0", "tensorflow/__init__.py") / "METADATA"
    asked = 'Requires-Dist: nvidia-cudnn-cu12<10.0,>=9.3.0.75; extra == "and-cuda"\nRequires-Dist: numpy>=1.26.0\n'
    metadata.write_text(metadata.read_text() + asked)
    put_module(site)
    for name in ("torch", "jax", "tensorflow-directml-plugin"):
        install(site, name, "1.0", f"{name}/__init__.py")
    (site / "tensorflow-plugins").mkdir()
    (site / "tensorflow-plugins" / "libtfdml_plugin.so").touch()
    facts = tensorflow.gather()
    assert facts.ranges == {"nvidia-cudnn-cu12": "<10.0,>=9.3.0.75"}
    assert [distribution.name for distribution in facts.frameworks] == ["jax", "torch"]
    assert [distribution.name for distribution in facts.plugin_distributions] == ["tensorflow-directml-plugin"]
    assert facts.plugins == (f"{site}/tensorflow-plugins/libtfdml_plugin.so",)


def test_a_file_that_is_not_as_recorded_is_altered(site: Path) -> None:
    module = put_module(site)
    digest = base64.urlsafe_b64encode(hashlib.sha256(module.read_bytes()).digest()).rstrip(b"=").decode()
    record = install(site, "tensorflow", "2.21.0", "tensorflow/__init__.py") / "RECORD"
    large = module.parent / "libtensorflow_cc.so.2"
    large.write_bytes(b"12345")
    record.write_text(
        f"tensorflow/__init__.py,sha256={digest},1\n"
        "tensorflow/python/platform/build_info.py,sha256=x,1\n"
        "tensorflow/libtensorflow_cc.so.2,sha256=x,5\n"
    )
    assert tensorflow.gather().altered == ("tensorflow/python/platform/build_info.py",)
    large.write_bytes(b"123456")
    module.write_text("")
    assert tensorflow.gather().altered == (
        "tensorflow/__init__.py",
        "tensorflow/python/platform/build_info.py",
        "tensorflow/libtensorflow_cc.so.2",
    )


def test_files_are_compared_with_the_record_of_each_distribution_that_has_hashes(site: Path) -> None:
    digest = base64.urlsafe_b64encode(hashlib.sha256(put_module(site).read_bytes()).digest()).rstrip(b"=").decode()
    for name, recorded in (("tensorflow", "x"), ("tf-nightly", digest)):
        record = install(site, name, "2.21.0", "tensorflow/__init__.py") / "RECORD"
        record.write_text(f"tensorflow/__init__.py,sha256={recorded},1\n")
    record = install(site, "tensorflow-cpu", "2.21.0", "tensorflow/__init__.py") / "RECORD"
    record.write_text("tensorflow/__init__.py,,\n")
    assert tensorflow.gather().overwritten == {"tensorflow": ("tensorflow/__init__.py",), "tf-nightly": ()}


def test_a_module_in_the_working_directory_that_is_not_imported(
    site: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_module(site)
    work = tmp_path_factory.mktemp("work")
    monkeypatch.chdir(work)
    (work / "tensorflow").mkdir()
    assert tensorflow.gather().in_working_directory is None, "a folder without __init__.py hides nothing"
    (work / "tensorflow.py").touch()
    assert tensorflow.gather().in_working_directory == str(work / "tensorflow.py")
    (work / "tensorflow" / "__init__.py").touch()
    assert tensorflow.gather().in_working_directory == str(work / "tensorflow" / "__init__.py")
    monkeypatch.chdir(site)
    assert tensorflow.gather().in_working_directory is None


def test_metadata_that_is_no_text_costs_itself_alone(site: Path) -> None:
    broken = install(site, "nvidia-cudnn-cu12", "9.3.0.75", "nvidia/cudnn/lib/libcudnn.so.9")
    (broken / "METADATA").write_bytes(b"\xa9[=K3")
    install(site, "keras", "3.12.0", "keras/__init__.py")
    no_record = install(site, "numpy", "2.3.0", "numpy/__init__.py")
    (no_record / "RECORD").write_bytes(b"\xc3(")
    facts = tensorflow.gather()
    assert [distribution.name for distribution in facts.companions] == ["keras"]
    assert set(facts.unreadable) == {str(broken), str(no_record)}


def test_a_module_that_tensorflow_needs_lies_outside_the_installed_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, site = tmp_path / "work", tmp_path / "lib" / "site-packages"
    for folder, name in ((own, "numpy"), (site, "numpy"), (site, "h5py")):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.py").touch()
    monkeypatch.setattr(sys, "path", [str(own), str(site)])
    assert tensorflow.gather().outside == {"numpy": str(own / "numpy.py")}


def test_what_pip_renamed_and_did_not_remove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site-packages"
    (site / "~vidia_cudnn_cu12-9.3.0.75.dist-info").mkdir(parents=True)
    (site / "nvidia").mkdir()
    monkeypatch.setattr(sys, "path", [str(site)])
    assert tensorflow.gather().half_removed == (f"{site}/~vidia_cudnn_cu12-9.3.0.75.dist-info",)


def test_what_other_frameworks_ask_of_nvidias_packages(site: Path) -> None:
    folder = install(site, "torch", "2.4.0", "torch/__init__.py")
    with (folder / "METADATA").open("a") as metadata:
        metadata.write('Requires-Dist: nvidia-cudnn-cu12 ==9.1.0.70 ; platform_system == "Linux"\n')
        metadata.write('Requires-Dist: nvidia-nccl-cu12 ==2.20.5 ; platform_system == "Plan9"\n')
        metadata.write('Requires-Dist: nvidia-cufft-cu12 ; extra == "all"\nRequires-Dist: filelock\n')
    assert tensorflow.gather().required_by_others == {"nvidia-cudnn-cu12": {"torch": "==9.1.0.70"}}
