"""Requirements of packages: those that a log states, contradictions between them, and the versions that fit a release
of TensorFlow.

pip, conda, uv, Poetry and packages that check what they import each word requirements in their own way: a distribution
needs others within a range of versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import combinations

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion
from packaging.version import Version as Exact

from gpudiag.knowledge.releases import Version
from gpudiag.knowledge.tensorflow_releases import NEEDS, WHEELS
from gpudiag.record import Record
from gpudiag.text import one_line

_NAME = r"(?<![\w.-])[A-Za-z][\w.-]{0,80}"
"""Pattern of a name, anchored at the beginning: a search that also begins inside names takes 80 times as long."""
_EXTRA = r"(?:\[[\w,-]{0,60}\])?"
_BOUND = r"[<>=!~^]{1,3} ?\d[\w.*+]{0,30}"
_RANGE = rf"{_BOUND}(?:(?: ?, ?| and | ?\|{{1,2}} ?){_BOUND}){{0,8}}"
_BOUNDS = re.compile(_BOUND)
_VERSION = r"\d[\w.+]{0,40}"
_STATED = tuple(
    (word, re.compile(pattern))
    for word, pattern in (
        # pip, of what is installed; "has requirement" and "'ll" are pip's up to 20.
        (
            "incompatible",
            rf"(?P<by>{_NAME}) (?P<release>{_VERSION}) (?:requires|has requirement) (?P<needs>{_NAME}){_EXTRA}"
            rf"(?P<range>{_RANGE})?(?:;[^:]{{0,80}}?)?, but you(?:'ll)? have {_NAME} (?P<found>{_VERSION})",
        ),
        # pip and Poetry, of what is asked for.
        (
            "depends on",
            rf"(?P<by>{_NAME}){_EXTRA}(?: |==| \()(?P<release>{_VERSION})\)? depends on (?P<needs>{_NAME}){_EXTRA}"
            rf"(?: ?\(?(?P<range>{_RANGE}|{_VERSION})\)?)?",
        ),
        ("user requested", rf"The user requested (?:\(constraint\) )?(?P<needs>{_NAME}){_EXTRA} ?(?P<range>{_RANGE})?"),
        # uv and Poetry, of the project itself.
        (
            "depends on",
            rf"(?:your project|[\w-]{{1,60}}|[\w-]{{1,60}} \({_VERSION}\)) depends on (?P<needs>{_NAME}){_EXTRA}"
            rf"(?: ?\(?(?P<range>{_RANGE})\)?)",
        ),
        ("require", rf"you require (?P<needs>{_NAME}){_EXTRA}(?P<range>{_RANGE})"),
        # conda's solvers.
        (
            "requires",
            rf"package (?P<by>[\w.]{{1,60}}(?:-[a-z]\w{{0,40}}){{0,4}})-(?P<release>{_VERSION})-\w{{1,60}} requires "
            rf"(?P<needs>{_NAME}) (?P<range>{_RANGE})",
        ),
        (
            " -> ",
            rf"(?P<by>{_NAME})(?:[=]{{1,2}}(?P<release>{_VERSION}))?(?:=\w{{1,60}})? -> (?P<needs>{_NAME})"
            rf"\[version='(?P<range>{_RANGE})",
        ),
        # setuptools.
        (
            "Conflict",
            rf"\((?P<has>{_NAME}) (?P<found>{_VERSION}) \([^()]{{0,300}}\), Requirement\.parse\('"
            rf"(?P<needs>{_NAME}){_EXTRA}(?P<range>{_RANGE})[^']{{0,80}}'\)(?:, (?:set\(\[|\{{)'(?P<by>{_NAME})')?",
        ),
        # Packages that check it themselves.
        (
            "is required",
            rf"(?P<needs>{_NAME})(?P<range>{_RANGE}) is required for [^,]{{1,80}}, but found {_NAME}=="
            rf"(?P<found>{_VERSION})",
        ),
        (
            "Detected",
            rf"(?:This version of )?(?P<by>[A-Z]\w{{0,40}}(?: [A-Z]\w{{0,40}}){{0,3}}) requires (?P<needs>{_NAME}) "
            rf"version (?P<range>{_RANGE})[.;] Detected an installation of version (?P<found>{_VERSION})",
        ),
        (
            "is required",
            rf"(?P<needs>{_NAME}) (?P<range>{_RANGE}) is required(?: by (?P<by>{_NAME}))?[^;]{{0,40}}; ?(?:found|got|"
            rf"version) (?P<found>{_VERSION})",
        ),
    )
)


class StatedRequirement(Record):
    """A requirement that a line of the log states."""

    line: str
    needs: str
    """The distribution that is required, as pip writes it."""
    range: str
    """The accepted versions, such as ``>=1.23.5,<2``; "" for any."""
    by: str = ""
    """The distribution that has the requirement; "" if the user asks for it."""
    release: str = ""
    found: str = ""
    """The installed version; "" if the line does not name one."""

    @property
    def who(self) -> str:
        return f"{self.by} {self.release}".strip() or "what you ask for"

    @property
    def takes(self) -> SpecifierSet | None:
        """The versions that the requirement accepts; None if they are not written as pip writes them."""
        return specifiers(self.range)


def canonical(name: str) -> str:
    """Return the name of a distribution as pip compares it."""
    return re.sub(r"[-_. ]+", "-", name.strip()).lower()


def specifiers(text: str) -> SpecifierSet | None:
    """Return a range of versions; Poetry's ``^2.5`` is ``>=2.5,<3``. None for a text that is not a range."""
    parts = [part.replace(" ", "") for part in _BOUNDS.findall(text)]
    try:
        return SpecifierSet(",".join(_of_poetry(part) if part[0] == "^" else _whole(part) for part in parts))
    except (InvalidSpecifier, InvalidVersion):
        return None


def _of_poetry(part: str) -> str:
    least = Exact(part[1:])
    return f">={least},<{least.major + 1}" if least.major else f">={least},<0.{least.minor + 1}"


def _whole(part: str) -> str:
    return re.sub(r"^=(?!=)", "==", part)


def _joined(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines; a line whose requirement continues in the next line is joined with that."""
    last = ""
    for line in lines:
        if _OPEN.search(last):
            yield f"{last} {line}"
        yield line
        last = line


def stated(lines: Iterable[str]) -> Iterator[StatedRequirement]:
    """Yield each requirement in the lines, once."""
    seen = set[tuple[str, str, str]]()
    for line in _joined(lines):
        if not any(word in line for word in ("requ", "depends on", " -> ", "Requirement")):
            continue
        clean = one_line(line)
        for word, pattern in _STATED:
            for match in pattern.finditer(clean) if word in clean else ():
                fields = {name: value or "" for name, value in match.groupdict().items() if name != "has"}
                parts = [part.replace(" ", "") for part in _BOUNDS.findall(fields["range"])]
                fields["range"] = ",".join(parts) or (fields["range"] and f"=={fields['range']}")
                if " " in fields.get("by", ""):  # its name for people
                    fields["by"] = canonical(fields["by"])
                fields |= {"needs": canonical(fields["needs"]), "found": fields.get("found", "").rstrip(".")}
                requirement = StatedRequirement(line=clean, **fields)
                key = (requirement.needs, requirement.range, requirement.by)
                if key not in seen and not (
                    not requirement.by
                    and (requirement.needs, requirement.range) in {(of, what) for of, what, _ in seen}
                ):
                    seen.add(key)
                    yield requirement


_OPEN = re.compile(r"\b(?:requires|depends on|requires [A-Za-z]\w{1,40}) *$")
_CONDA_PYTHON = re.compile(rf"- (?P<by>{_NAME})[^ ]{{0,60}} -> python\[version='(?P<pythons>[^']{{1,400}})'")
_YOURS = re.compile(r"Your python: python={1,2}(?P<python>3\.\d{1,2})")
_MINOR = re.compile(r"3\.\d{1,2}")


def pythons_of_conda(lines: Iterable[str]) -> tuple[str, list[str], str] | None:
    """Return a package, the Pythons for which conda has builds of it, and the requested Python, which is another."""
    text = [one_line(line) for line in lines]
    yours = next((found["python"] for line in text if (found := _YOURS.search(line))), "")
    for line in text:
        if yours and (found := _CONDA_PYTHON.search(line)):
            # ">=3.6,<3.7.0a0" is 3.6
            known = {minor for part in found["pythons"].split("|") for minor in _MINOR.findall(part)[:1]}
            if known and yours not in known:
                return found["by"], sorted(known, key=Exact), yours
    return None


_NO_SUCH = re.compile(
    rf"no versions of (?P<needs>{_NAME}) match (?P<range>(?:{_BOUND}|{_VERSION})[^ ]{{0,80}})|"
    rf"there (?:is|are) no versions? of (?P<of>{_NAME}?)(?P<versions>=={_VERSION})"
)


def not_published(lines: Iterable[str]) -> StatedRequirement | None:
    """Return the last requirement that, says a resolver, no release satisfies, and what has it if a line names it."""
    found: StatedRequirement | None = None
    everything = tuple(lines)
    for line in everything:
        for match in _NO_SUCH.finditer(one_line(line)) if "no version" in line else ():
            name, versions = match["needs"] or match["of"], match["range"] or match["versions"]
            if "," not in versions:  # "no versions match >2.0,<3.0" says only that there is nothing newer
                found = StatedRequirement(
                    line=one_line(line), needs=canonical(name), range=versions.lstrip("=").rstrip(",.")
                )
    if found is None:
        return None
    by = next((statement for statement in stated(everything) if statement.needs == found.needs and statement.by), None)
    return StatedRequirement(
        line=found.line, needs=found.needs, range=found.range, by=by.by if by else "", release=by.release if by else ""
    )


def overlap(first: SpecifierSet, other: SpecifierSet) -> bool:
    """Return whether a version may be in both ranges: the versions they name, and those next to them, are tried."""
    both = first & other
    named = {Exact(part.version.removesuffix(".*")) for part in both}
    beside = {Exact(f"{base}{ending}") for base in (each.base_version for each in named) for ending in (".1", ".99")}
    below = {
        Exact(".".join([*map(str, each.release[:place]), str(each.release[place] - 1), "99"]))
        for each in named
        for place in range(len(each.release))
        if each.release[place] > 0
    }
    return not named or any(both.contains(each, prereleases=True) for each in named | beside | below)


def contradicting(all_of_them: Iterable[StatedRequirement]) -> tuple[StatedRequirement, StatedRequirement] | None:
    """Return the first two requirements that no version satisfies together."""
    for earlier, later in combinations((each for each in all_of_them if not each.found and each.range), 2):
        first, second = earlier.takes, later.takes
        if earlier.needs == later.needs and first is not None and second is not None and not overlap(first, second):
            return earlier, later
    return None


# --- TensorFlow's own -----------------------------------------------------------------------------------------------

TENSORFLOWS = {"tensorflow", "tensorflow-gpu", "tensorflow-cpu", "tensorflow-intel", "tensorflow-macos"}
_SAME_RELEASE = {
    "tensorboard": (Version(2, 2), None),
    "tensorflow-estimator": (Version(2, 2), Version(2, 15)),
    "tensorflow-serving-api": (Version(2, 2), None),
    "tensorflow-text": (Version(2, 2), None),
    "tf-keras": (Version(2, 14), None),
    "tf-models-official": (Version(2, 2), Version(2, 20)),
}
"""Distributions that have the version of the TensorFlow they were made for, with the first and the last version.

By the releases that pypi.org has, 2026-11-22.
"""
_EIGHT_LATER = {"tensorflow-addons", "tensorflow-probability"}
"""Distributions whose release 0.X was made for TensorFlow 2.(X - 8).

By the wheels: the release in ``tensorflow_probability/python/__init__.py`` (0.10 to 0.24), and the range for custom
operations in ``tensorflow_addons/utils/resource_loader.py`` (0.10 to 0.23). Addons 0.11 names 2.2 there; the table of
https://github.com/tensorflow/addons says 2.3.
"""
_OTHERS = {
    "tensorflow-io": {
        (2, 2): "0.14.*",
        (2, 3): "0.16.*",
        (2, 4): "0.17.*",
        (2, 5): "0.19.*",
        (2, 6): "0.21.*",
        (2, 7): "0.23.*",
        (2, 8): "0.25.*",
        (2, 9): "0.26.*",
        (2, 10): "0.27.*",
        (2, 11): "0.31.*",
        (2, 12): "0.32.*",
        (2, 13): "0.34.*",
        (2, 14): "0.35.*",
        (2, 15): "0.36.*",
        (2, 16): "0.37.*",
    },
    "tensorflow-metal": {
        (2, 5): "0.1.*",
        (2, 6): "0.2.*",
        (2, 7): "0.3.*",
        (2, 8): "0.4.*",
        (2, 9): "0.5.*",
        (2, 10): "0.6.*",
        (2, 11): "0.7.*",
        (2, 12): "0.8.*",
        (2, 13): "1.0.*",
        (2, 14): "1.1.*",
        (2, 15): "1.1.*",
        (2, 16): "1.1.*",
        (2, 17): "1.1.*",
        (2, 18): "1.2.*",
    },
    "tensorflow-probability": {(2, 18): "0.25.*"},
}
"""Releases for TensorFlow's own, from the tables in the README of https://github.com/tensorflow/io and in the
description of tensorflow-metal 1.2.0.

If there are several for one TensorFlow, the last one counts. The description gives 1.1.0 a second row, "fixes
compatibility with 2.18+": that is 1.2.0. TensorFlow Probability 0.25 asks for TensorFlow 2.18, and there is none made
for 2.17.
"""


def needed(release: Version, distribution: str) -> str:
    """Return the versions of a distribution that a release of TensorFlow accepts; "" if it does not name it."""
    return NEEDS.get((release.major, release.minor), {}).get(canonical(distribution), "")


def companion(distribution: str, release: Version) -> str:
    """Return the release of a distribution that was made for a TensorFlow, such as ``0.20.*``; "" if there is none."""
    name = canonical(distribution)
    if name in _SAME_RELEASE:
        oldest, newest = _SAME_RELEASE[name]
        return f"{release}.*" if oldest <= release and (newest is None or release <= newest) else ""
    if name in _EIGHT_LATER and Version(2, 2) <= release <= Version(2, 16 if name.endswith("probability") else 15):
        return f"0.{release.minor + 8}.*"
    return _OTHERS.get(name, {}).get((release.major, release.minor), "")


def has_companion(distribution: str) -> bool:
    """Return whether every release of a distribution was made for a certain release of TensorFlow."""
    return canonical(distribution) in _SAME_RELEASE.keys() | _EIGHT_LATER | _OTHERS.keys()


def newest_pair(distribution: str) -> tuple[str, Version] | None:
    """Return the newest release of a distribution made for a TensorFlow, and that TensorFlow; None if none is."""
    for major, minor in sorted(WHEELS, reverse=True):
        if fits := companion(distribution, Version(major, minor)):
            return fits, Version(major, minor)
    return None


def that_takes(distribution: str, takes: SpecifierSet) -> Version | None:
    """Return the newest TensorFlow release that accepts a version of a distribution in a range."""
    for (major, minor), needs in sorted(NEEDS.items(), reverse=True):
        own = specifiers(needs.get(canonical(distribution), ""))
        if canonical(distribution) in needs and own is not None and overlap(own, takes):
            return Version(major, minor)
    return None


def wheels(release: Version, system: str) -> tuple[str, str] | None:
    """Return the oldest and the newest Python for which a release has wheels on a system; None if it has none."""
    return WHEELS.get((release.major, release.minor), {}).get(system)


def for_python(python: str, system: str) -> tuple[Version, Version] | None:
    """Return the oldest and newest release with wheels for a Python (``3.8``) on a system; None if there are none."""
    at = Exact(python)
    found = [
        Version(*release)
        for release, systems in WHEELS.items()
        if system in systems and Exact(systems[system][0]) <= at <= Exact(systems[system][1])
    ]
    return (min(found), max(found)) if found else None
