"""CUDA reads only the beginning of an entry of CUDA_VISIBLE_DEVICES, and ignores the rest silently

CUDA reads a number at the beginning of each entry, and commas between entries. There are no ranges, and no other
separators.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.visibility import MASK, PROGRAMMING_GUIDE
from gpudiag.fix import export
from gpudiag.model.facts import Facts
from gpudiag.model.report import Severity
from gpudiag.model.visibility import mask_in_force

CAUSE = Cause(
    title="CUDA_VISIBLE_DEVICES={value!r}: CUDA reads {cut}, and ignores the rest silently",
    severity=Severity.WARNING,
    fix=(export("CUDA_VISIBLE_DEVICES", "{right}"),),
    url=PROGRAMMING_GUIDE,
    needs_gpu=False,
    finding="host.environment.entry_cut",
)
_NUMBER = re.compile(r"[+-]?\d+(?=[^\d])")


def find(facts: Facts) -> Matches:
    value, gpus = facts.variables.get(MASK), facts.nvml_devices
    if value is None or not gpus:
        return
    read = {entry.strip(): number[0] for entry in value.split(",") if (number := _NUMBER.match(entry.strip()))}
    cut = {entry: number for entry, number in read.items() if entry not in mask_in_force(facts).ignored}
    if cut:
        right = _meant_by(value, len(gpus))
        yield Match(
            evidence=(f"{MASK}={value!r}",),
            figures={
                "value": value,
                "cut": ", ".join(f"{entry!r} as {number}" for entry, number in cut.items()),
                "right": right,
            },
            tried=CAUSE.fix[0],
        )


def _meant_by(mask: str, gpus: int) -> str:
    """Return the indices that ``0-2`` or ``0 1`` means, separated by commas; all indices if that is not known."""
    indices: list[int] = []
    if re.fullmatch(r"\s*\d+(?:\s*[-,:;|]\s*\d+|\s+\d+)*\s*", mask):
        for low, high in re.findall(r"(\d+)(?:\s*-\s*(\d+))?", mask):
            indices += range(int(low), min(int(high or low), gpus) + 1)
    meant = indices and len(set(indices)) == len(indices) and max(indices) < gpus
    return ",".join(map(str, indices if meant else range(gpus)))
