"""Names for people of the facts of a machine, by their places in the records, and which facts last.

Used where reports are compared with each other, of one machine or of many.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, get_type_hints

from gpudiag.model.facts import MOMENTARY

NAMES = {
    "system.os": "operating system",
    "system.machine": "processor",
    "system.libc": "C library",
    "system.python": "Python",
    "system.hostname": "host",
    "system.executable": "interpreter",
    "system.prefix": "environment of Python",
    "system.bios": "BIOS",
    "system.product": "model of the machine",
    "tensorflow.module_path": "file of TensorFlow",
    "driver.kernel_module": "driver",
    "driver.libcuda_path": "file of libcuda",
    "driver.libcuda_error": "error of libcuda",
    "driver.cuda_version": "CUDA of the driver",
    "driver.modules": "kernel module",
    "nvml.driver_version": "driver by NVML",
    "nvml.cuda_version": "CUDA by NVML",
    "nvml.error": "error of NVML",
    "device_nodes.pci_gpus": "GPU on the PCI bus",
    "device_nodes.bound": "kernel driver of",
    "environment.variables": "",
    "environment.set_by_python": "set by Python:",
    "container.runtime": "container",
    "container.image": "image of the container",
    "cuda.uuids": "GPU by CUDA",
}
"""The names of facts for which the words of the field are not clear."""

SAID_BY_ANOTHER = frozenset({"libraries.search_path", "libraries.opener"})
"""Facts that follow from others, such as LD_LIBRARY_PATH or TensorFlow's file."""

PASSING_VARIABLES = re.compile(r"GPUDIAG_.*|SLURM_JOB_ID|PYTEST_XDIST_WORKER")
"""Variables that differ from job to job, or are settings of gpudiag itself."""

TEMPORARY = re.compile(
    r"/(?:tmp\.\w{6,}|tmp[a-z0-9_]{8}|gpudiag-sim-\w+|_MEI\w{6}|pytest-of-[^/:]+/pytest-\d+(?:/[^/:]+)?)(?=[/:\s'\"]|$)"
)
"""Folders whose names differ in each run: those of mktemp, of Python's tempfile, of simulated machines."""

_UNNAMED = ("version", "path")
"""Fields of a record in a list whose name is not shown beside that of the record."""


@dataclass(frozen=True)
class Place:
    """A path in the facts, and its name for people."""

    path: str = ""
    label: str = ""
    """The name of the record in a list, or of the key, that contains this place."""
    field: str = ""

    def at(self, field: str) -> Place:
        return Place(f"{self.path}.{field}".lstrip("."), self.label, field)

    def of(self, key: str, label: str = "") -> Place:
        """Return the place of an element; a record with a ``label`` is named by it alone, without its list."""
        words = self.field.replace("_", " ")
        inside = f"{self.label} {words}" if self.label else "" if label else NAMES.get(self.path, words)
        return Place(f"{self.path}[{key}]", f"{inside} {label or key}".strip())

    @property
    def name(self) -> str:
        words = "" if self.field in _UNNAMED and self.label else self.field.replace("_", " ")
        return NAMES.get(self.path) or f"{self.label} {words}".strip()


def without_temporary(text: str) -> str:
    """Return a text with a placeholder for each folder whose name differs in each run."""
    return TEMPORARY.sub("/<temporary>", text)


@cache
def lasting_fields(kind: type) -> tuple[str, ...]:
    """Return the fields of a record that do not change from moment to moment."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(name for name in kind.__struct_fields__ if not _is_momentary(hints[name]))  # type: ignore[attr-defined]


def _is_momentary(hint: Any) -> bool:
    return any((getattr(meta, "extra", None) or {}).get(MOMENTARY) for meta in getattr(hint, "__metadata__", ()))
