"""The requirements of each TensorFlow release, and the systems and Pythons of its wheels, by pypi.org.

Written by ``scripts/refresh_releases.py``, 2026-11-22. The requirements are those of a release's last patch. Both
tables are written as what differs from the release before; None stands for what it no longer has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

_Value = TypeVar("_Value")
_Release = tuple[int, int]


def _whole(changes: Mapping[_Release, Mapping[str, _Value | None]]) -> Iterator[tuple[_Release, dict[str, _Value]]]:
    """Yield each release with all that it has, given what differs from the release before."""
    held: dict[str, _Value] = {}
    for release, changed in changes.items():
        kept = {name: value for name, value in held.items() if name not in changed}
        held = kept | {name: value for name, value in changed.items() if value is not None}
        yield release, dict(sorted(held.items()))


_WHEELS: dict[_Release, dict[str, tuple[str, str] | None]] = {
    (0, 12): {"linux_x86_64": ("2.7", "3.6"), "mac_x86_64": ("2.7", "3.6"), "windows": ("3.5", "3.5")},
    (1, 0): {},
    (1, 1): {},
    (1, 2): {"windows": ("3.5", "3.6")},
    (1, 3): {},
    (1, 4): {},
    (1, 5): {},
    (1, 6): {},
    (1, 7): {},
    (1, 8): {},
    (1, 9): {},
    (1, 10): {},
    (1, 11): {},
    (1, 12): {},
    (1, 13): {"linux_x86_64": ("2.7", "3.7"), "mac_x86_64": ("2.7", "3.7"), "windows": ("3.5", "3.7")},
    (1, 14): {},
    (1, 15): {},
    (2, 0): {},
    (2, 1): {},
    (2, 2): {"linux_x86_64": ("3.5", "3.8"), "mac_x86_64": ("3.5", "3.8"), "windows": ("3.5", "3.8")},
    (2, 3): {},
    (2, 4): {"linux_x86_64": ("3.6", "3.8"), "mac_x86_64": ("3.6", "3.8"), "windows": ("3.6", "3.8")},
    (2, 5): {"linux_x86_64": ("3.6", "3.9"), "mac_x86_64": ("3.6", "3.9"), "windows": ("3.6", "3.9")},
    (2, 6): {},
    (2, 7): {"linux_x86_64": ("3.7", "3.9"), "mac_x86_64": ("3.7", "3.9"), "windows": ("3.7", "3.9")},
    (2, 8): {"linux_x86_64": ("3.7", "3.10"), "mac_x86_64": ("3.7", "3.10"), "windows": ("3.7", "3.10")},
    (2, 9): {},
    (2, 10): {"linux_aarch64": ("3.7", "3.10")},
    (2, 11): {},
    (2, 12): {
        "linux_aarch64": ("3.8", "3.11"),
        "linux_x86_64": ("3.8", "3.11"),
        "mac_x86_64": ("3.8", "3.11"),
        "windows": ("3.8", "3.11"),
    },
    (2, 13): {"mac_arm64": ("3.8", "3.11")},
    (2, 14): {
        "linux_aarch64": ("3.9", "3.11"),
        "linux_x86_64": ("3.9", "3.11"),
        "mac_arm64": ("3.9", "3.11"),
        "mac_x86_64": ("3.9", "3.11"),
        "windows": ("3.9", "3.11"),
    },
    (2, 15): {},
    (2, 16): {
        "linux_aarch64": ("3.9", "3.12"),
        "linux_x86_64": ("3.9", "3.12"),
        "mac_arm64": ("3.9", "3.12"),
        "mac_x86_64": ("3.9", "3.12"),
        "windows": ("3.9", "3.12"),
    },
    (2, 17): {"mac_x86_64": None},
    (2, 18): {},
    (2, 19): {},
    (2, 20): {
        "linux_aarch64": ("3.9", "3.13"),
        "linux_x86_64": ("3.9", "3.13"),
        "mac_arm64": ("3.9", "3.13"),
        "windows": ("3.9", "3.13"),
    },
    (2, 21): {
        "linux_aarch64": ("3.10", "3.13"),
        "linux_x86_64": ("3.10", "3.13"),
        "mac_arm64": ("3.10", "3.13"),
        "windows": ("3.10", "3.13"),
    },
}
WHEELS = dict(_whole(_WHEELS))
"""For each release, the systems that it has wheels for, each with the oldest and the newest Python."""

_NEEDS: dict[_Release, dict[str, str | None]] = {
    (2, 2): {
        "absl-py": ">=0.7.0",
        "astunparse": "==1.6.3",
        "backports.weakref": ">=1.0rc1",
        "enum34": ">=1.1.6",
        "functools32": ">=3.2.3",
        "gast": "==0.3.3",
        "google-pasta": ">=0.1.8",
        "grpcio": ">=1.8.6",
        "h5py": "<2.11.0,>=2.10.0",
        "keras-preprocessing": ">=1.1.0",
        "mock": ">=2.0.0",
        "numpy": "<1.19.0,>=1.16.0",
        "opt-einsum": ">=2.3.2",
        "protobuf": ">=3.8.0",
        "six": ">=1.12.0",
        "tensorboard": "<2.3.0,>=2.2.0",
        "tensorflow-estimator": "<2.3.0,>=2.2.0",
        "termcolor": ">=1.1.0",
        "wheel": ">=0.26",
        "wrapt": ">=1.11.1",
    },
    (2, 3): {
        "backports.weakref": None,
        "enum34": None,
        "functools32": None,
        "keras-preprocessing": "<1.2,>=1.1.1",
        "mock": None,
        "protobuf": ">=3.9.2",
        "tensorboard": "<3,>=2.3.0",
        "tensorflow-estimator": "<2.4.0,>=2.3.0",
    },
    (2, 4): {
        "absl-py": "~=0.10",
        "astunparse": "~=1.6.3",
        "flatbuffers": "~=1.12.0",
        "google-pasta": "~=0.2",
        "grpcio": "~=1.32.0",
        "h5py": "~=2.10.0",
        "keras-preprocessing": "~=1.1.2",
        "numpy": "~=1.19.2",
        "opt-einsum": "~=3.3.0",
        "six": "~=1.15.0",
        "tensorboard": "~=2.4",
        "tensorflow-estimator": "<2.5.0,>=2.4.0",
        "termcolor": "~=1.1.0",
        "typing-extensions": "~=3.7.4",
        "wheel": "~=0.35",
        "wrapt": "~=1.12.1",
    },
    (2, 5): {
        "gast": "==0.4.0",
        "grpcio": "~=1.34.0",
        "h5py": "~=3.1.0",
        "keras-nightly": "~=2.5.0.dev",
        "tensorboard": "~=2.5",
        "tensorflow-estimator": "<2.6.0,>=2.5.0",
    },
    (2, 6): {
        "clang": "~=5.0",
        "grpcio": "<2.0,>=1.37.0",
        "keras": "<2.7,>=2.6.0",
        "keras-nightly": None,
        "protobuf": "<3.20,>=3.9.2",
        "tensorboard": "<2.7,>=2.6.0",
        "tensorflow-estimator": "<2.7,>=2.6.0",
        "typing-extensions": "<3.11,>=3.7",
    },
    (2, 7): {
        "absl-py": ">=0.4.0",
        "astunparse": ">=1.6.0",
        "clang": None,
        "flatbuffers": "<3.0,>=1.12",
        "gast": "<0.5.0,>=0.2.1",
        "google-pasta": ">=0.1.1",
        "grpcio": "<2.0,>=1.24.3",
        "h5py": ">=2.9.0",
        "keras": "<2.8,>=2.7.0rc0",
        "keras-preprocessing": ">=1.1.1",
        "libclang": ">=9.0.1",
        "numpy": ">=1.14.5",
        "opt-einsum": ">=2.3.2",
        "six": ">=1.12.0",
        "tensorboard": "~=2.6",
        "tensorflow-estimator": "<2.8,~=2.7.0rc0",
        "tensorflow-io-gcs-filesystem": ">=0.21.0",
        "termcolor": ">=1.1.0",
        "typing-extensions": ">=3.6.6",
        "wheel": "<1.0,>=0.32.0",
        "wrapt": ">=1.11.0",
    },
    (2, 8): {
        "flatbuffers": ">=1.12",
        "gast": ">=0.2.1",
        "keras": "<2.9,>=2.8.0rc0",
        "numpy": ">=1.20",
        "setuptools": "",
        "tensorboard": "<2.9,>=2.8",
        "tensorflow-estimator": "<2.9,>=2.8",
        "tensorflow-io-gcs-filesystem": ">=0.23.1",
        "wheel": None,
    },
    (2, 9): {
        "absl-py": ">=1.0.0",
        "flatbuffers": "<2,>=1.12",
        "gast": "<=0.4.0,>=0.2.1",
        "keras": "<2.10.0,>=2.9.0rc0",
        "libclang": ">=13.0.0",
        "packaging": "",
        "tensorboard": "<2.10,>=2.9",
        "tensorflow-estimator": "<2.10.0,>=2.9.0rc0",
    },
    (2, 10): {
        "flatbuffers": ">=2.0",
        "keras": "<2.11,>=2.10.0",
        "tensorboard": "<2.11,>=2.10",
        "tensorflow-estimator": "<2.11,>=2.10.0",
    },
    (2, 11): {
        "keras": "<2.12,>=2.11.0",
        "keras-preprocessing": None,
        "tensorboard": "<2.12,>=2.11",
        "tensorflow-estimator": "<2.12,>=2.11.0",
        "tensorflow-io-gcs-filesystem": None,
    },
    (2, 12): {
        "jax": ">=0.3.15",
        "keras": "<2.13,>=2.12.0",
        "numpy": "<=1.24.3,>=1.22",
        "protobuf": "!=4.21.0,!=4.21.1,!=4.21.2,!=4.21.3,!=4.21.4,!=4.21.5,<5.0.0dev,>=3.20.3",
        "tensorboard": "<2.13,>=2.12",
        "tensorflow-estimator": "<2.13,>=2.12.0",
        "typing-extensions": "<4.6.0,>=3.6.6",
        "wrapt": "<1.15,>=1.11.0",
    },
    (2, 13): {
        "flatbuffers": ">=23.1.21",
        "jax": None,
        "keras": "<2.14,>=2.13.1",
        "tensorboard": "<2.14,>=2.13",
        "tensorflow-estimator": "<2.14,>=2.13.0",
        "wrapt": ">=1.11.0",
    },
    (2, 14): {
        "flatbuffers": ">=23.5.26",
        "gast": "!=0.5.0,!=0.5.1,!=0.5.2,>=0.2.1",
        "keras": "<2.15,>=2.14.0",
        "ml-dtypes": "==0.2.0",
        "numpy": "<2.0.0,>=1.23.5",
        "tensorboard": "<2.15,>=2.14",
        "tensorflow-estimator": "<2.15,>=2.14.0",
        "tensorflow-io-gcs-filesystem": ">=0.23.1",
        "typing-extensions": ">=3.6.6",
        "wrapt": "<1.15,>=1.11.0",
    },
    (2, 15): {
        "keras": "<2.16,>=2.15.0",
        "ml-dtypes": "~=0.3.1",
        "tensorboard": "<2.16,>=2.15",
        "tensorflow-estimator": "<2.16,>=2.15.0",
    },
    (2, 16): {
        "h5py": ">=3.10.0",
        "keras": ">=3.0.0",
        "numpy": "<2.0.0,>=1.26.0",
        "requests": "<3,>=2.21.0",
        "tensorboard": "<2.17,>=2.16",
        "tensorflow-estimator": None,
        "wrapt": ">=1.11.0",
    },
    (2, 17): {
        "flatbuffers": ">=24.3.25",
        "keras": ">=3.2.0",
        "ml-dtypes": "<0.5.0,>=0.3.1",
        "tensorboard": "<2.18,>=2.17",
    },
    (2, 18): {
        "h5py": ">=3.11.0",
        "keras": ">=3.5.0",
        "ml-dtypes": "<1.0.0,>=0.4.0",
        "numpy": "<2.1.0,>=1.26.0",
        "protobuf": "!=4.21.0,!=4.21.1,!=4.21.2,!=4.21.3,!=4.21.4,!=4.21.5,<6.0.0dev,>=3.20.3",
        "tensorboard": "<2.19,>=2.18",
    },
    (2, 19): {"ml-dtypes": "<1.0.0,>=0.5.1", "numpy": "<2.2.0,>=1.26.0", "tensorboard": "~=2.19.0"},
    (2, 20): {
        "keras": ">=3.10.0",
        "numpy": ">=1.26.0",
        "protobuf": ">=5.28.0",
        "tensorboard": "~=2.20.0",
        "tensorflow-io-gcs-filesystem": None,
    },
    (2, 21): {
        "flatbuffers": ">=25.9.23",
        "h5py": "<3.15.0,>=3.11.0",
        "keras": ">=3.12.0",
        "protobuf": "<8.0.0,>=6.31.1",
        "tensorboard": None,
    },
}
NEEDS = dict(_whole(_NEEDS))
"""For each release, its requirements: distributions and accepted versions ("" for any); requirements of one system
alone are left out."""

OTHERS: dict[str, dict[str, tuple[str, str, str, str]]] = {
    "tensorflow-addons": {
        "linux_x86_64": ("0.5.0", "0.23.0", "2.7", "3.11"),
        "mac_arm64": ("0.16.1", "0.23.0", "3.8", "3.11"),
        "mac_x86_64": ("0.3.1", "0.23.0", "2.7", "3.11"),
        "windows": ("0.7.0", "0.22.0", "3.5", "3.11"),
    },
    "tensorflow-decision-forests": {
        "linux_x86_64": ("0.1.0", "1.12.0", "3.6", "3.12"),
        "mac_arm64": ("1.0.1", "1.12.0", "3.8", "3.12"),
        "mac_x86_64": ("0.2.3", "1.9.0", "3.7", "3.11"),
    },
    "tensorflow-io": {
        "linux_aarch64": ("0.24.0", "0.37.1", "3.7", "3.12"),
        "linux_x86_64": ("0.3.0", "0.37.1", "2.7", "3.12"),
        "mac_arm64": ("0.34.0", "0.37.1", "3.7", "3.12"),
        "mac_x86_64": ("0.7.2", "0.37.1", "2.7", "3.12"),
        "windows": ("0.12.0", "0.31.0", "3.5", "3.11"),
    },
    "tensorflow-io-gcs-filesystem": {
        "linux_aarch64": ("0.24.0", "0.37.1", "3.7", "3.12"),
        "linux_x86_64": ("0.18.0", "0.37.1", "3.6", "3.12"),
        "mac_arm64": ("0.34.0", "0.37.1", "3.7", "3.12"),
        "mac_x86_64": ("0.18.0", "0.37.1", "3.6", "3.12"),
        "windows": ("0.18.0", "0.31.0", "3.6", "3.11"),
    },
    "tensorflow-macos": {
        "mac_arm64": ("2.5.0", "2.16.2", "3.8", "3.12"),
        "mac_x86_64": ("2.5.0", "2.12.0", "3.8", "3.11"),
    },
    "tensorflow-metal": {
        "mac_arm64": ("0.1.0", "1.2.0", "3.8", "3.12"),
        "mac_x86_64": ("0.1.0", "1.0.0", "3.8", "3.11"),
    },
    "tensorflow-text": {
        "linux_aarch64": ("2.18.1", "2.21.1", "3.9", "3.13"),
        "linux_x86_64": ("0.1.0", "2.21.1", "2.7", "3.13"),
        "mac_arm64": ("2.17.0", "2.21.1", "3.9", "3.13"),
        "mac_x86_64": ("0.1.0", "2.16.1", "2.7", "3.11"),
        "windows": ("2.4.1", "2.10.0", "3.6", "3.10"),
    },
}
"""For other distributions, the systems that have wheels, each with the oldest and the newest release and Python."""
