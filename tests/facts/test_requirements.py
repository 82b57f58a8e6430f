"""What a distribution requires against what is installed, on metadata made by the test."""

from __future__ import annotations

import sys
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from gpudiag.facts import tensorflow
from gpudiag.facts.requirements import requirements
from gpudiag.model.facts import Requirement

TAG = f"cp{sys.version_info.major}{sys.version_info.minor}"


class Site:
    """A folder of distributions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.installed: dict[str, PathDistribution] = {}

    def install(self, name: str, version: str, *requires: str, tag: str = "py3-none-any", gone: bool = False) -> None:
        metadata = self.folder / f"{name}-{version}.dist-info"
        metadata.mkdir()
        lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {require}" for require in requires)]
        (metadata / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *lines, "", "Version: in the text\n"]))
        (metadata / "RECORD").write_text(f"{name}/__init__.py,sha256=x,1\n{name}/data.txt,,\n")
        (metadata / "WHEEL").write_text(f"Wheel-Version: 1.0\nTag: {tag}\n")
        if not gone:
            (self.folder / name).mkdir()
            (self.folder / name / "__init__.py").touch()
        self.installed[name] = PathDistribution(metadata)

    def unfit(self) -> dict[str, Requirement]:
        return {requirement.name: requirement for requirement in self.all() if not requirement.fits}

    def all(self) -> tuple[Requirement, ...]:
        return requirements("tensorflow", self.installed["tensorflow"], self.installed)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_what_fits(site: Site) -> None:
    site.install("tensorflow", "2.21.0", "numpy>=1.26", "six", 'mac; sys_platform == "darwin"', 'gpu; extra == "cuda"')
    site.install("numpy", "2.1.0")
    site.install("six", "1.17.0", tag=f"{TAG}-{TAG}-manylinux_2_17_x86_64")
    assert [(requirement.name, requirement.version, requirement.fits) for requirement in site.all()] == [
        ("numpy", "2.1.0", True),
        ("six", "1.17.0", True),
    ]


def test_what_does_not(site: Site) -> None:
    site.install("tensorflow", "2.21.0", "numpy>=2", "six", "absl_py", "wrapt", "h5py")
    site.install("numpy", "1.23.5")
    site.install("wrapt", "1.0", gone=True)
    site.install("h5py", "3.0", tag="cp27-cp27mu-manylinux_2_17_x86_64")
    site.install("six", "1.17.0", tag="py2.py3-none-any")
    found = site.unfit()
    assert found.keys() == {"numpy", "absl-py", "wrapt", "h5py"}
    assert (found["numpy"].wanted, found["numpy"].in_range) == ("numpy>=2", False)
    assert found["absl-py"].version is None
    assert found["wrapt"].gone == ("wrapt/__init__.py",)
    assert found["h5py"].foreign_tag == "cp27-cp27mu-manylinux_2_17_x86_64"


def test_what_a_requirement_requires_in_turn(site: Site) -> None:
    site.install("tensorflow", "2.21.0", "typing_extensions>=3.6", "grpcio")
    site.install("grpcio", "1.80.0", "typing-extensions~=4.12", "tensorflow<2")
    site.install("typing-extensions", "3.7.4.3")
    assert {(requirement.name, requirement.by) for requirement in site.all() if not requirement.fits} == {
        ("typing-extensions", "grpcio"),
        ("tensorflow", "grpcio"),
    }


def test_broken_metadata_costs_nothing(site: Site) -> None:
    site.install("tensorflow", "2.21.0", "numpy (((", "six; nonsense == 1", "gast>=0.2")
    site.install("gast", "not a version", "astunparse>=1")
    assert site.unfit().keys() == {"gast", "astunparse"}


def test_the_installed_tensorflow_has_what_it_requires() -> None:
    gathered = tensorflow.gather()
    assert {"numpy", "protobuf", "keras", "absl-py"} <= {requirement.name for requirement in gathered.requirements}
    assert [requirement for requirement in gathered.requirements if not requirement.fits] == []
    assert gathered.without_init == ()
