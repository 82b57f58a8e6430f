"""this ROCm has no code for the GPU

ROCm's libraries have code for a few generations of AMD GPUs. A GPU of a related generation runs that code if
HSA_OVERRIDE_GFX_VERSION names the relative; a GPU of a dropped generation runs only on an older ROCm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.fix import Action, Kind, check, export, note
from gpudiag.knowledge.messages.rocm import NO_CODE_FOR_AMD_GPU
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="{name}: this ROCm has no code for it",
    fix=(check("rocminfo | grep -i gfx", "shows the GPU's name"),),
    url="https://rocm.docs.amd.com/projects/install-on-linux/en/latest/reference/system-requirements.html",
    needs_gpu=False,
)


class _Generation(NamedTuple):
    gpus: str
    """A pattern for their names."""
    fix: Action


def _like(version: str, since: str = "") -> Action:
    return export("HSA_OVERRIDE_GFX_VERSION", version, f"runs the code of its nearest relative that ROCm has{since}")


_GENERATIONS = (
    _Generation(
        r"\b(?:gfx80[1-3]|RX ?[45][5-9]0|R9 ?(?:Fury|Nano|285|380)|Fiji|Polaris|Ellesmere)",
        note(
            "ROCm has no code for gfx803 since 4.0: ROCm 3.5 with tensorflow-rocm 2.2, or a build of ROCm for gfx803",
            kind=Kind.INSTALL,
        ),
    ),
    _Generation(r"\b(?:gfx90[02c]|Vega ?(?:56|64|Frontier|[3-9]|1[01])\b)", _like("9.0.0")),
    _Generation(
        r"\b(?:gfx906|Radeon VII|MI[56]0)",
        note("ROCm has code for gfx906 up to 5.7: that ROCm, with its tensorflow-rocm", kind=Kind.INSTALL),
    ),
    _Generation(r"\b(?:gfx101[0-2]|RX ?5[3-7]00)", _like("10.3.0", ", from 4.5 on")),
    _Generation(r"\b(?:gfx103[0-6]|RX ?6[4-9]\d0|6[68]0M)", _like("10.3.0")),
    _Generation(r"\b(?:gfx110[0-3]|RX ?7[6-9]\d0|7[68]0M)", _like("11.0.0")),
    _Generation(
        r"\b(?:gfx120[01]|RX ?90[67]0)",
        note("ROCm 6.4 and newer has code for it: that, with its tensorflow-rocm", kind=Kind.INSTALL),
    ),
)
_GPU = re.compile("|".join(f"({generation.gpus})" for generation in _GENERATIONS), re.IGNORECASE)
"""A GPU's name; the number of the group that matches is that of its generation."""
_OTHERS = "supported AMDGPU versions are"
"""The words before the names of other GPUs, those that this TensorFlow has code for."""


def find(program: LogAlone) -> Matches:
    said = program.said(NO_CODE_FOR_AMD_GPU)
    if not said or (found := _named(program.lines)) is None:
        return
    generation, name, line = found
    yield Match(
        (*said, line.strip()),
        Confidence.LIKELY,
        {"name": name},
        fix=(
            generation.fix,
            check(
                "pip list | grep -i rocm; cat /opt/rocm/.info/version",
                "compare the releases: each tensorflow-rocm 2.X is for one ROCm",
            ),
            *CAUSE.fix,
        ),
    )


def _named(lines: Iterable[str]) -> tuple[_Generation, str, str] | None:
    """Return the generation of the GPU that the lines name, its name in the line, and the line."""
    for line in lines:
        if (found := _GPU.search(line.partition(_OTHERS)[0])) and found.lastindex:
            return _GENERATIONS[found.lastindex - 1], found[0], line
    return None
