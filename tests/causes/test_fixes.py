"""The fix of a machine is followed on it, and its cause is gone after that.

Which fixes can be followed is known from the table of all machines, ``reports/diagnosis.md``; the others change what a
test has not: the kernel, a container, packages of the system, code (:data:`fixing.KINDS`).
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import fixing
import pytest
import staged

from conftest import Gpudiag
from corpus import Item, items
from reports import fix_lines

FOLLOWED = {109}
"""A package installed again; the others are slow tests."""
_SIMULATED = "the folder is one of the simulated machine's files, which the loader of this one does not search"
_BY_ITSELF = "the program sets it itself, and it is for its author to take that line out"
_NOT_BROUGHT = "what the package brings is not among the simulated machine's libraries"
STAYS = {
    "11 a library that cuSOLVER needs (nvJitLink) is missing": _NOT_BROUGHT,
    "18 libdevice is not found": _NOT_BROUGHT,
    "33 WSL: the driver's folder is not on the path": _SIMULATED,
    "70 Pascal with a cuDNN that dropped it": _NOT_BROUGHT,
    "72 MirroredStrategy hangs: IOMMU": "the line confirms the cause, which the firmware's settings remove",
    "104 NixOS: the driver's libraries are in /run/opengl-driver": _SIMULATED,
    "44 variable set in Python too late": _BY_ITSELF,
    "56 TF_FORCE_GPU_ALLOW_GROWTH=1, set by the program": _BY_ITSELF,
    "122 a TensorFlow in ~/.local comes before the environment's": "the tests set sys.path, Python's start does not",
    "132 CUDA_VISIBLE-DEVICES in the place of CUDA_VISIBLE_DEVICES": "no shell can unset a name with a hyphen",
}
"""Machines whose fix is followed and whose cause stays, and why that is right."""
_TABLE = Path(__file__).parents[2] / "reports" / "diagnosis.md"
_ROW = re.compile(
    r"\| \[?(?P<machine>\d\d+ .+?)(?:\]\(\S+\))? \|(?: [^|]*\|){2} `(?P<fix>(?:[^|`]|(?<=\\)\|)+)` \|", re.MULTILINE
)


@cache
def in_the_table() -> dict[str, set[str]]:
    """Return the first line of the fix of each machine; two machines may have one title."""
    found: dict[str, set[str]] = {}
    for row in _ROW.finditer(_TABLE.read_text(encoding="utf-8")):
        found.setdefault(row["machine"], set()).add(row["fix"].replace("\\|", "|"))
    return found


def is_followed(item: Item) -> bool:
    """Return whether the fix of a machine can be followed here, and its program, if it has one, be run again."""
    if item.machine is None or item.log_recorded or item.harmless:
        return False
    lines = in_the_table().get(str(item), {"export A_NEW=machine"})
    return any(not fixing.kind(line) for line in lines)


MACHINES = [
    pytest.param(item, id=str(item), marks=[] if item.number in FOLLOWED else [pytest.mark.slow])
    for item in items()
    if is_followed(item)
]


def test_why_a_fix_is_not_followed_is_known() -> None:
    kinds = {machine: {fixing.kind(line) for line in lines} for machine, lines in in_the_table().items()}
    assert len(kinds) > 130
    assert sum("" in those for those in kinds.values()) > 55


@pytest.mark.usefixtures("no_child_left")
@pytest.mark.parametrize("item", MACHINES)
def test_the_cause_is_gone_after_the_fix(item: Item, gpudiag: Gpudiag) -> None:
    causes = staged.check(item, gpudiag, staged.stage(item, gpudiag)).diagnosis.causes
    first = next(cause for cause in causes if cause.cause_id == (item.after or item.rule))
    followed = fixing.follow(fix_lines(first), item, gpudiag)
    assert followed.done
    arguments = staged.check_arguments(followed.item, gpudiag, before=item)
    after = staged.check(followed.item, gpudiag, arguments).diagnosis
    stays = first.cause_id in {cause.cause_id for cause in (*after.causes, *after.folded)}
    assert stays == (str(item) in STAYS), (followed.done, after.causes)
