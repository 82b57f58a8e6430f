"""Other packages leave TensorFlow's files intact, and its CUDA libraries in the versions that it requires.

What it does
    Compares the versions of the installed `nvidia-*` packages with the ranges in TensorFlow's own metadata, looks for
    packages of two CUDA releases that install the same folder, compares a few of TensorFlow's files with what its
    distribution recorded, and lists plug-ins. Nothing is imported.
Why it matters
    Other frameworks pin the same packages exactly: installing one of them replaces TensorFlow's CUDA libraries, and pip
    says so in one line that scrolls away.
What to do
    Give each framework its own virtual environment, or choose releases whose ranges overlap: `pip check` names
    those that do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudiag.model.facts import (
    Distribution,
    Facts,
    TensorflowFacts,
    Unknown,
)
from gpudiag.probe import Needs, Probe

PROBE = Probe(needs=Needs(tensorflow=False), families=("tensorflow",), quick=True)

_OF_A_CUDA = re.compile(r"(?P<base>nvidia-.+)-cu(?P<release>\d+)")


def figure(facts: Facts) -> str:
    tensorflow = facts.tensorflow
    if isinstance(tensorflow, Unknown):
        return "not known"
    count = sum(_OF_A_CUDA.fullmatch(distribution.name) is not None for distribution in tensorflow.companions)
    beside = (
        f", beside {' '.join(distribution.name for distribution in tensorflow.frameworks)}"
        if tensorflow.frameworks
        else ""
    )
    return f"{count} CUDA package{'' if count == 1 else 's'}{beside}"


# What causes judge by.


def out_of_range(tensorflow: TensorflowFacts) -> Iterator[Distribution]:
    """Yield the packages of NVIDIA whose version TensorFlow's metadata excludes."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    for distribution in tensorflow.companions:
        try:
            specifiers = SpecifierSet(tensorflow.ranges.get(distribution.name, ""))
            if not specifiers.contains(Version(distribution.version), prereleases=True):
                yield distribution
        except (InvalidSpecifier, InvalidVersion):
            continue


def sharing_a_folder(tensorflow: TensorflowFacts) -> Iterator[tuple[Distribution, ...]]:
    """Yield packages that install one library for several releases of CUDA into one folder; CUDA 13 alone has other
    folders."""
    bases: dict[str, list[Distribution]] = {}
    for distribution in tensorflow.companions:
        if found := _OF_A_CUDA.fullmatch(distribution.name):
            bases.setdefault(found["base"], []).append(distribution)
    yield from (tuple(several) for several in bases.values() if len(several) > 1)


def folder(package: Distribution) -> str:
    """Return the folder that a package of NVIDIA installs, such as ``nvidia/cudnn``."""
    found = _OF_A_CUDA.fullmatch(package.name)
    return f"nvidia/{found['base'].removeprefix('nvidia-').replace('-', '_')}" if found else "nvidia"


def wanted(tensorflow: TensorflowFacts, packages: tuple[Distribution, ...]) -> str:
    """Return the package among ``packages`` that TensorFlow requires, with its version range."""
    for distribution in packages:
        if distribution.name in tensorflow.ranges:
            return f"{distribution.name}{tensorflow.ranges[distribution.name]}"
    return packages[0].name


def foreign_directml(tensorflow: TensorflowFacts) -> Iterator[Distribution]:
    """Yield the DirectML plug-in if it was made for another TensorFlow than the installed one."""
    versions = {distribution.version for distribution in tensorflow.distributions}
    for distribution in tensorflow.plugin_distributions:
        if distribution.name == "tensorflow-directml-plugin" and not any(
            re.match(r"2\.10\.", version) for version in versions
        ):
            yield distribution
