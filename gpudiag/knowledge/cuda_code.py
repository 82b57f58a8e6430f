"""Which GPUs the CUDA code in a build serves."""

from __future__ import annotations

import re

_BUILT = re.compile(r"(?P<form>sm|compute)_(?P<major>\d+)(?P<minor>\d)(?P<exact>[a-z]?)")


def code_for(capability: str, built: tuple[str, ...]) -> tuple[bool, bool]:
    """Return whether the entries of ``built`` hold machine code and PTX for a GPU of this compute capability.

    ``sm_80`` is machine code. ``compute_90`` is PTX and, as TensorFlow builds it, machine code too: 2.21, built with
    ``compute_90`` alone for 9.0, warns of compilation on 10.0 and not on 9.0 (simulated).
    """
    version = _version(capability)
    machine_code = ptx = False
    for entry in filter(None, map(_BUILT.fullmatch, built)):
        of = (int(entry["major"]), int(entry["minor"]))
        if entry["exact"]:  # sm_90a runs on 9.0 and nowhere else
            machine_code |= of == version
        else:
            machine_code |= of[0] == version[0] and of <= version
            ptx |= entry["form"] == "compute" and of <= version
    return machine_code, ptx


def _version(capability: str) -> tuple[int, int]:
    major, _, minor = capability.partition(".")
    return int(major), int(minor or 0)
