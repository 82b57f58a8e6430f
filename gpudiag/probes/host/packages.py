"""The packages beside TensorFlow leave it its files, and its CUDA libraries in the versions that it asks for.

What it does
    Compares the versions of the installed `nvidia-*` packages with the ranges in TensorFlow's own metadata, looks for
    packages of two CUDA releases that install the same folder, compares a few of TensorFlow's files with what its
    distribution recorded, and lists plug-ins. Nothing is imported.
Why it matters
    Other frameworks pin the same packages exactly: installing one of them replaces TensorFlow's CUDA libraries, and pip
    says so in one line that scrolls away.
What a failure means
    `out_of_range`: a package of NVIDIA is not in the range that TensorFlow's metadata asks for.
    `shared_folder`: packages for two releases of CUDA install the same folder: the last one's files are there.
    `altered`: files of TensorFlow are not those that its distribution installed; another one overwrote them.
    `directml`: the DirectML plug-in is installed for a TensorFlow that it does not know; it needs 2.10.
    `unreadable`: the metadata of a distribution cannot be read, so it is left out of all that is said of packages.
    A machine that was given no NVIDIA GPU needs none of the packages: the first two are not looked for there.
What to do
    Give each framework a virtual environment of its own, or choose releases whose ranges overlap: `pip check` names
    those that do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudiag.hostfacts import (
    Distribution,
    Facts,
    TensorflowFacts,
    Unknown,
)
from gpudiag.model import Finding, Limits, Severity
from gpudiag.probe import Kind, Needs, Probe

PROBE = Probe(needs=Needs(tensorflow=False), families=("tensorflow",), quick=True)

OUT_OF_RANGE = Kind(
    "out_of_range",
    Severity.WARNING,
    "{package} {version} is installed, TensorFlow {tensorflow} asks for {asked}",
    "pip install '{package}{asked}', or a virtual environment for TensorFlow alone.",
)
SHARED_FOLDER = Kind(
    "shared_folder",
    Severity.WARNING,
    "{packages} install the same folder, {folder}: the files in it are those of the one that was installed last",
    "Give each framework a virtual environment of its own. Here: pip uninstall {packages}, then "
    "pip install --force-reinstall --no-deps '{wanted}'",
)
ALTERED = Kind(
    "altered",
    Severity.WARNING,
    "{files} of {distribution} are not the files that it installed",
    "pip install --force-reinstall --no-deps {name}=={version}",
)
DIRECTML = Kind(
    "directml",
    Severity.WARNING,
    "{plugin} {found} works with TensorFlow 2.10 alone, and {version} is installed",
    "pip uninstall {plugin}; for NVIDIA GPUs under Windows use WSL2 and the Linux wheel.",
)
UNREADABLE = Kind(
    "unreadable",
    Severity.WARNING,
    "{folder} cannot be read: the metadata of a distribution, of which no more is known",
    "Remove that folder, and install the distribution again. A full or failing disk leaves such files.",
)

_OF_A_CUDA = re.compile(r"(?P<base>nvidia-.+)-cu(?P<release>\d+)")


def judge(facts: Facts, limits: Limits) -> Iterator[Finding]:
    tensorflow = facts.tensorflow
    if isinstance(tensorflow, Unknown):
        return
    version = tensorflow.distributions[0].version if tensorflow.distributions else "of unknown version"
    if facts.nvml_devices or (not isinstance(facts.device_nodes, Unknown) and facts.device_nodes.nodes):
        for one in out_of_range(tensorflow):
            asked = tensorflow.ranges[one.name]
            yield OUT_OF_RANGE.found(package=one.name, version=one.version, tensorflow=version, asked=asked)
        for pair in sharing_a_folder(tensorflow):
            yield SHARED_FOLDER.found(
                packages=" ".join(one.name for one in pair), folder=folder(pair[0]), wanted=wanted(tensorflow, pair)
            )
    if tensorflow.altered and len({one.name for one in tensorflow.distributions}) == 1:
        own = tensorflow.distributions[0]
        yield ALTERED.found(
            files=" and ".join(tensorflow.altered),
            distribution=f"{own.name} {own.version}",
            name=own.name,
            version=own.version,
        )
    for plugin in foreign_directml(tensorflow):
        yield DIRECTML.found(plugin=plugin.name, found=plugin.version, version=version)
    for unread in tensorflow.unreadable:
        yield UNREADABLE.found(folder=unread)


def figure(facts: Facts) -> str:
    tensorflow = facts.tensorflow
    if isinstance(tensorflow, Unknown):
        return "not known"
    count = sum(_OF_A_CUDA.fullmatch(one.name) is not None for one in tensorflow.companions)
    beside = f", beside {' '.join(one.name for one in tensorflow.frameworks)}" if tensorflow.frameworks else ""
    return f"{count} CUDA package{'' if count == 1 else 's'}{beside}"


# What the rules of the diagnosis judge by, too.


def out_of_range(tensorflow: TensorflowFacts) -> Iterator[Distribution]:
    """Yield the packages of NVIDIA whose version TensorFlow's metadata excludes."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    for one in tensorflow.companions:
        try:
            specifiers = SpecifierSet(tensorflow.ranges.get(one.name, ""))
            if not specifiers.contains(Version(one.version), prereleases=True):
                yield one
        except (InvalidSpecifier, InvalidVersion):
            continue


def sharing_a_folder(tensorflow: TensorflowFacts) -> Iterator[tuple[Distribution, ...]]:
    """Yield packages that are one library for several releases of CUDA; those of CUDA 13 alone have other folders."""
    bases: dict[str, list[Distribution]] = {}
    for one in tensorflow.companions:
        if found := _OF_A_CUDA.fullmatch(one.name):
            bases.setdefault(found["base"], []).append(one)
    yield from (tuple(several) for several in bases.values() if len(several) > 1)


def folder(package: Distribution) -> str:
    """Return the folder that a package of NVIDIA installs, such as ``nvidia/cudnn``."""
    found = _OF_A_CUDA.fullmatch(package.name)
    return f"nvidia/{found['base'].removeprefix('nvidia-').replace('-', '_')}" if found else "nvidia"


def wanted(tensorflow: TensorflowFacts, packages: tuple[Distribution, ...]) -> str:
    """Return the one of ``packages`` that TensorFlow asks for, with its range."""
    for one in packages:
        if one.name in tensorflow.ranges:
            return f"{one.name}{tensorflow.ranges[one.name]}"
    return packages[0].name


def foreign_directml(tensorflow: TensorflowFacts) -> Iterator[Distribution]:
    """Yield the DirectML plug-in, where TensorFlow is not the one it was made for."""
    versions = {one.version for one in tensorflow.distributions}
    for one in tensorflow.plugin_distributions:
        if one.name == "tensorflow-directml-plugin" and not any(re.match(r"2\.10\.", version) for version in versions):
            yield one
