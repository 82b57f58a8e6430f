"""GPUs by the name that people and NVIDIA's tools give them, and the compute capability of each.

From https://developer.nvidia.com/cuda-gpus and https://developer.nvidia.com/cuda-legacy-gpus, read in November 2026.
A machine of Amazon's cloud is named by its type, which has GPUs of one kind: https://aws.amazon.com/ec2/instance-types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudiag.record import Record


class NamedCard(Record):
    """A GPU that a text names."""

    name: str
    capability: str
    """The compute capability, such as ``8.6``."""


_NAMES: tuple[tuple[str, str], ...] = (
    ("12.0", r"RTX ?PRO ?[2-6]\d00(?: Blackwell)?|RTX ?50[5-9]0"),
    ("10.0", r"G?B[12]00"),
    ("9.0", r"H[12]00|H800|GH200|H20|p5en?\.48xlarge"),
    ("8.9", r"RTX ?40[5-9]0|L40S?|L4|RTX ?[2456]\d00 Ada|g6e?\.\d{0,2}xlarge"),
    ("8.7", r"Orin"),
    ("8.6", r"RTX ?30[5-9]0|RTX ?A[2-6]\d?\d?00|A10G?|A16|A40|g5\.\d{0,2}xlarge"),
    ("8.0", r"A100|A800|A30|p4de?\.24xlarge"),
    ("7.5", r"RTX ?20[5-8]0|GTX ?16[3-6]0|T4|TITAN RTX|Quadro RTX ?[3-8]000|T[1-2]000|MX4[5]0|g4dn\.\d{0,2}xlarge"),
    ("7.2", r"Xavier"),
    ("7.0", r"V100S?|TITAN V|GV100|p3(?:dn)?\.\d{0,2}xlarge"),
    ("6.1", r"GTX ?10[1-8]0|TITAN Xp|P40|P4|P[1-6]000|MX[123][0-9]0|GT ?1030"),
    ("6.0", r"P100|GP100"),
    ("5.2", r"GTX ?9[5-8]0|M40|M60|M[456]000"),
    ("5.0", r"GTX ?75[0]|9[1-4]0MX?|GTX ?9[56]0M|M[12]\d00"),
    ("3.7", r"K80|p2\.\d{0,2}xlarge"),
    ("3.5", r"K40[cm]?|K20[cmx]?|GTX ?780|GT ?7[1-3]0|TITAN Black"),
    ("3.0", r"GTX ?7[67]0|GTX ?6[5-9]0|K10|GT ?7[45]0M?"),
)
_ENDING = r"(?:[ -]?(?:Ti|Super|Laptop|Mobile|Max-?Q|SXM\d?|PCIe?|D)){0,4}"
_CARDS = tuple(
    (capability, re.compile(pattern))
    for capability, pattern in (
        (capability, rf"(?i)(?<![\w.-])(?:{names}){_ENDING}(?![\w.])") for capability, names in _NAMES
    )
)
_TURNED = re.compile(r"(?i)\b(\d{4}) ?(RTX|GTX)\b|\b(RTX|GTX)[ -]?(\d{3,4})")
_SHORT = frozenset({"T4", "P4", "L4", "M40", "M60", "P40", "A10", "A16", "A30", "A40", "H20", "K10", "ORIN", "XAVIER"})
"""Names that may mean something else: they count only in text that is about a GPU."""
_ANY = re.compile(
    r"(?i)[RG]TX? ?-?\d|Tesla|Quadro|Titan|Orin|Xavier|\b[ABHKLMPTV][1-9]\d{0,4}[A-Z]{0,2}\b|\bGB?[12]00|9[1-4]0M|MX\d"
    r"|\d[a-z]{0,2}\.\d{0,2}xlarge"
)
"""A quick test: every name of a GPU matches, and most lines do not."""
_BARE = re.compile(r"(?i)\b(GPUs?|NVIDIA|GeForce)[ :]{1,3}((?:1[06]|[2-5]0)[3-9]0)\b")
"""A number alone, as people write it: "Nvidia 1660 Ti"."""
_WITH_TI = re.compile(r"(?i)(?<![\w.])((?:1[06]|[2-5]0)[5-9]0)(?= ?(?:ti|super)\b)")
"""A number that the letters after it mark as a GPU's: "3080ti"."""
_MEANT = re.compile(r"(?i)\bGPUs?\b|nvidia|tesla|geforce|quadro|jetson|\bcard\b|name:")


def cards(text: str) -> Iterator[NamedCard]:
    """Yield the GPUs that a line of text names."""
    text = _BARE.sub(lambda found: f"{found[1]} {'RTX' if found[2] >= '2050' else 'GTX'} {found[2]}", text)
    text = _WITH_TI.sub(lambda found: f"{'RTX' if found[1] >= '2050' else 'GTX'} {found[1]}", text)
    if not _ANY.search(text):
        return
    upright = _TURNED.sub(lambda found: f"{found[2] or found[3]} {found[1] or found[4]}", text)
    for capability, pattern in _CARDS:
        for found in pattern.finditer(upright):
            if found[0].upper().split("-")[0] not in _SHORT or _MEANT.search(text):
                yield NamedCard(found[0].strip(), capability)
