"""DirectML uses the processor's integrated graphics by default, although another GPU is available

tensorflow-directml takes the adapters in the order of Windows, and a program uses the first: on many laptops that is
the processor's own. Later releases sort them by their speed.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.fix import Kind, install, run
from gpudiag.knowledge.messages.runtime import DIRECTML_ADAPTER
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="DirectML uses {first}, the processor's integrated graphics, by default, although {other} is available",
    fix=(
        run(
            'set DML_VISIBLE_DEVICES="{number}"',
            "selects only that one; set it before Python starts",
            kind=Kind.SET_VARIABLE,
        ),
        install("--upgrade", "tensorflow-directml", note="installs a release that sorts the adapters by speed"),
    ),
    url="https://github.com/microsoft/tensorflow-directml",
    needs_gpu=False,
)
_INTEGRATED = re.compile(
    r"(?i)\bintel\b(?!.{0,20}\barc\b)|\b(?:u?hd|iris)\b.{0,12}graphics|radeon(?:\(tm\))? graphics|vega \d{1,2}\b"
)


def find(program: LogAlone) -> Matches:
    adapters = {int(event["number"]): event["name"] for event in program.all(DIRECTML_ADAPTER)}
    fast = [number for number, name in sorted(adapters.items()) if not _INTEGRATED.search(name)]
    if fast and 0 in adapters and 0 not in fast:
        yield Match(
            program.said(DIRECTML_ADAPTER),
            Confidence.POSSIBLE,
            {"first": adapters[0], "other": adapters[fast[0]], "number": str(fast[0])},
        )
