"""Requirements that a log states, and what fits a release of TensorFlow."""

from __future__ import annotations

import pytest

from gpudiag.knowledge import requirements
from gpudiag.knowledge.names import moved
from gpudiag.knowledge.releases import Version
from gpudiag.knowledge.requirements import StatedRequirement, contradicting, overlap, specifiers, stated


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "tensorflow 2.15.0 requires keras<2.16,>=2.15.0, but you have keras 3.0.2 which is incompatible.",
            ("tensorflow", "2.15.0", "keras", "<2.16,>=2.15.0", "3.0.2"),
        ),
        (
            "tensorflow 1.10.0 has requirement numpy<=1.14.5,>=1.13.3, but you'll have numpy 1.15.2 which is "
            "incompatible.",
            ("tensorflow", "1.10.0", "numpy", "<=1.14.5,>=1.13.3", "1.15.2"),
        ),
        ("    The user requested numpy==1.24", ("", "", "numpy", "==1.24", "")),
        (
            "    tensorflow-gpu 1.15.4 depends on numpy<1.19.0 and >=1.16.0",
            ("tensorflow-gpu", "1.15.4", "numpy", "<1.19.0,>=1.16.0", ""),
        ),
        (
            " and tensorflow (2.16.1) depends on keras (>=3.0.0), we know",
            ("tensorflow", "2.16.1", "keras", ">=3.0.0", ""),
        ),
        (
            "pkg_resources.ContextualVersionConflict: (grpcio 1.6.0 (/usr/lib/python3), "
            "Requirement.parse('grpcio<2,>=1.24.3'), {'tensorflow'})",
            ("tensorflow", "", "grpcio", "<2,>=1.24.3", "1.6.0"),
        ),
    ],
)
def test_each_tool_states_a_requirement_in_its_own_words(line: str, expected: tuple[str, ...]) -> None:
    (requirement, *_) = stated([line])
    assert (requirement.by, requirement.release, requirement.needs, requirement.range, requirement.found) == expected


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (">=1.23.5,<2", ">=2", False),
        ("~=1.19.2", ">=1.20", False),
        ("~=1.19.2", "==1.19.5", True),
        ("<1.19", ">=1.16", True),
        (">=1.20", "", True),
        ("!=1.2", "==1.2", False),
        ("<2.0", ">1.99", True),
        ("==2.15.0.post1", ">2", True),
    ],
)
def test_ranges_that_no_version_is_in_are_found(one: str, other: str, both: bool) -> None:
    first, second = specifiers(one), specifiers(other)
    assert first is not None
    assert second is not None
    assert overlap(first, second) is overlap(second, first) is both


def test_what_two_ask_for_is_compared_whoever_asks() -> None:
    wanted = StatedRequirement(line="x", needs="numpy", range="==2.0.1")
    ours = StatedRequirement(line="y", needs="numpy", range="<2", by="tensorflow", release="2.15.0")
    other = StatedRequirement(line="z", needs="scipy", range=">=3", by="tensorflow", release="2.15.0")
    assert contradicting([wanted, other, ours]) == (wanted, ours)
    assert contradicting([other, ours]) is None
    assert ours.who == "tensorflow 2.15.0"


@pytest.mark.parametrize(
    ("distribution", "release", "fits"),
    [
        ("tensorflow_text", Version(2, 10), "2.10.*"),
        ("tensorflow-addons", Version(2, 12), "0.20.*"),
        ("tensorflow-addons", Version(2, 16), ""),
        ("tensorflow-probability", Version(2, 4), "0.12.*"),
        ("tensorflow-probability", Version(2, 17), ""),
        ("tensorflow-probability", Version(2, 18), "0.25.*"),
        ("tensorflow-io", Version(2, 16), "0.37.*"),
        ("tensorflow-metal", Version(2, 8), "0.4.*"),
        ("tensorflow-estimator", Version(2, 16), ""),
        ("numpy", Version(2, 10), ""),
    ],
)
def test_companions_have_the_release_that_was_made_for_tensorflows(
    distribution: str, release: Version, fits: str
) -> None:
    assert requirements.companion(distribution, release) == fits


def test_the_table_of_releases_answers() -> None:
    takes = specifiers(">=2")
    assert takes is not None
    newest = requirements.that_takes("numpy", takes)
    assert newest is not None
    assert newest >= Version(2, 21)
    assert requirements.needed(Version(2, 15), "NumPy") == "<2.0.0,>=1.23.5"
    assert requirements.needed(Version(2, 21), "ml_dtypes") == "<1.0.0,>=0.5.1"
    assert requirements.for_python("3.8", "linux_x86_64") == (Version(2, 2), Version(2, 13))
    assert requirements.for_python("3.4", "windows") is None
    assert requirements.wheels(Version(2, 12), "mac_arm64") is None


@pytest.mark.parametrize(
    ("module", "name", "range_"),
    [
        ("numpy", "object", "<1.24"),
        ("typing_extensions", "TypeIs", ">=4.10"),
        ("tensorflow._api.v2.experimental", "numpy", ">=2.4"),
        ("distutils.core", "", "<3.12"),
    ],
)
def test_names_that_came_and_went_are_known(module: str, name: str, range_: str) -> None:
    known = moved(module, name)
    assert known is not None
    assert known.range == range_


def test_a_module_that_is_there_does_not_stand_for_its_names() -> None:
    assert moved("tensorflow.keras.wrappers", "frobnicate") is None
    assert moved("numpy", "") is None
