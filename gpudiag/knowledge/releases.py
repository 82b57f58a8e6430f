"""The releases of TensorFlow: the CUDA and cuDNN that each was built for, and how these are installed.

From https://www.tensorflow.org/install/source#gpu (built for), https://www.tensorflow.org/install/pip and the notes
of the releases (what pip brings), https://docs.nvidia.com/cuda/cuda-toolkit-release-notes (drivers); read in November
2026.
"""

from __future__ import annotations

from gpudiag.knowledge.tensorflow_releases import WHEELS
from gpudiag.record import Record


class Version(Record, order=True):
    """A release of TensorFlow without its patch level, such as 2.15."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class Generation(Record):
    """Releases that were built for the same CUDA and cuDNN."""

    first: Version
    last: Version
    cuda: str
    cudnn: str

    def __str__(self) -> str:
        return f"TensorFlow {self.first}" + (f" to {self.last}" if self.last != self.first else "")


GENERATIONS = tuple(
    Generation(Version(*first), Version(*last), cuda, cudnn)
    for first, last, cuda, cudnn in (
        ((1, 0), (1, 2), "8.0", "5.1"),
        ((1, 3), (1, 4), "8.0", "6"),
        ((1, 5), (1, 12), "9.0", "7"),
        ((1, 13), (2, 0), "10.0", "7.4"),
        ((2, 1), (2, 3), "10.1", "7.6"),
        ((2, 4), (2, 4), "11.0", "8.0"),
        ((2, 5), (2, 11), "11.2", "8.1"),
        ((2, 12), (2, 13), "11.8", "8.6"),
        ((2, 14), (2, 14), "11.8", "8.7"),
        ((2, 15), (2, 15), "12.2", "8.9"),
        ((2, 16), (2, 17), "12.3", "8.9"),
        ((2, 18), (2, 21), "12.5", "9.3"),
    )
)
OLDEST, NEWEST = GENERATIONS[0].first, GENERATIONS[-1].last
LAST_FOR_WINDOWS = Version(2, 10)
"""The last release whose wheels for Windows were built with CUDA."""
FIRST_WITH_EXTRA = Version(2, 14)
"""The first release with the extra ``tensorflow[and-cuda]``."""
ONE_PACKAGE = Version(2, 1)
"""The first release whose package ``tensorflow`` has GPU support; before, only ``tensorflow-gpu`` had it."""

COMPILED_WITH = tuple(
    (Version(*release), cudnn)
    for release, cudnn in (
        ((1, 2), "5.1"),
        ((1, 4), "6.0"),
        ((1, 12), "7.0"),
        ((1, 14), "7.4"),
        ((2, 3), "7.6"),
        ((2, 4), "8.0"),
        ((2, 11), "8.1"),
        ((2, 13), "8.6"),
        ((2, 14), "8.7"),
        ((2, 17), "8.9"),
        ((2, 21), "9.3"),
    )
)
"""The last release built with each cuDNN, as the log line "source was compiled with" names it; in release order."""

DRIVERS = {
    "8.0": ("375.26", "376.51"),
    "9.0": ("384.81", "385.54"),
    "10.0": ("410.48", "411.31"),
    "10.1": ("418.39", "418.96"),
    "11.0": ("450.36", "451.22"),
    "11.2": ("450.80", "452.39"),
    "11.8": ("450.80", "452.39"),
    "12.2": ("525.60", "527.41"),
    "12.3": ("525.60", "527.41"),
    "12.5": ("525.60", "527.41"),
}
"""For each CUDA, the oldest driver that runs it, on Linux and on Windows; within 11 and 12 by minor version
compatibility."""

PTX_DRIVERS = {"11.2": "460.27", "11.8": "520.61", "12.2": "535.54", "12.3": "545.23", "12.5": "555.42"}
"""For each CUDA, the oldest driver that compiles its PTX; minor version compatibility does not cover PTX."""

NEW_IN = {
    "5.0": "6.5",
    "6.0": "8.0",
    "7.0": "9.0",
    "7.5": "10.0",
    "8.0": "11.0",
    "8.6": "11.1",
    "8.9": "11.8",
    "9.0": "11.8",
    "10.0": "12.8",
    "12.0": "12.8",
}
"""For each compute capability, the first CUDA that supports it."""

LAST_WITH = {"8.0": "2.9", "10.2": "3.2", "11.8": "3.9", "12.9": "7.2"}
"""The last CUDA that compiles for compute capabilities up to a given one."""

_OLDEST_CAPABILITIES = (((1, 4), "3.0"), ((2, 14), "3.5"), ((2, 17), "5.0"))
"""For each compute capability that was the oldest supported one, the last release whose wheels run on it; by the
release notes and the CUDA that each was built for."""


def oldest_capability(release: Version) -> str:
    """Return the oldest compute capability that the wheels of a release have code for."""
    return next((least for last, least in _OLDEST_CAPABILITIES if release <= Version(*last)), "6.0")


def last_for(capability: str) -> Version | None:
    """Return the newest release whose wheels have code for a compute capability; None if there is none."""
    fit = [Version(*last) for last, least in _OLDEST_CAPABILITIES if numbers(least) <= numbers(capability)]
    return NEWEST if numbers(capability) >= (6,) else max(fit, default=None)


def knows(cuda: str, capability: str) -> bool:
    """Return whether a CUDA has code for a compute capability, or for an older one of the same major number."""
    major = numbers(capability)[0]
    same = [
        since for known, since in NEW_IN.items() if numbers(known)[0] == major and numbers(known) <= numbers(capability)
    ]
    return not same or any(numbers(since) <= numbers(cuda) for since in same)


def pythons(release: Version) -> tuple[str, str]:
    """Return the oldest and the newest Python that a release has wheels for, such as ``("3.9", "3.12")``."""
    known = [wheel for wheel in WHEELS if wheel <= (release.major, release.minor)] or [min(WHEELS)]
    return WHEELS[max(known)]["linux_x86_64"]


def generation(release: Version) -> Generation:
    """Return the generation of a release; the newest generation for newer releases, the oldest for older ones."""
    return next((generation for generation in GENERATIONS if release <= generation.last), GENERATIONS[-1])


def numbers(version: str) -> tuple[int, ...]:
    """Return a version such as ``11.8`` as numbers, which can be compared."""
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


_DATES = (
    ("2018-11-05", (1, 12)),
    ("2019-02-26", (1, 13)),
    ("2019-06-19", (1, 14)),
    ("2019-09-30", (2, 0)),
    ("2020-01-08", (2, 1)),
    ("2020-05-06", (2, 2)),
    ("2020-07-27", (2, 3)),
    ("2020-12-14", (2, 4)),
    ("2021-05-13", (2, 5)),
    ("2021-08-11", (2, 6)),
    ("2021-11-04", (2, 7)),
    ("2022-02-02", (2, 8)),
    ("2022-05-16", (2, 9)),
    ("2022-09-06", (2, 10)),
    ("2022-11-18", (2, 11)),
    ("2023-03-23", (2, 12)),
    ("2023-07-05", (2, 13)),
    ("2023-09-26", (2, 14)),
    ("2023-11-14", (2, 15)),
    ("2024-03-07", (2, 16)),
    ("2024-07-11", (2, 17)),
    ("2024-10-24", (2, 18)),
    ("2025-03-11", (2, 19)),
    ("2025-08-13", (2, 20)),
)
"""The dates on which releases came out (pypi.org); a date covers the release and all before it."""


def released_by(day: str) -> Version:
    """Return the newest release that existed on this day (``2023-06-06``), without release candidates."""
    older = [release for date, release in _DATES if date <= day]
    if not day or len(older) == len(_DATES):
        return NEWEST
    return Version(*older[-1]) if older else OLDEST
