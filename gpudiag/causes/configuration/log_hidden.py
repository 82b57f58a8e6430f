"""TF_CPP_MIN_LOG_LEVEL hides messages of TensorFlow, often the only reason given for a missing GPU

1 hides information, 2 warnings too, 3 errors too. gpudiag's own probes run without it. It is a fault only if there
was such a line to hide.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Variables
from gpudiag.fix import unset
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="TF_CPP_MIN_LOG_LEVEL={value} hides TensorFlow's {hidden}, often the only reason given for a missing GPU",
    severity=Severity.NOTE,
    fix=(unset("TF_CPP_MIN_LOG_LEVEL", note="do this while you look for a fault"),),
    url="https://www.tensorflow.org/guide/gpu#setup",
    finding="host.environment.log_hidden",
    row_only=True,
)
_LEVEL = "TF_CPP_MIN_LOG_LEVEL"


def find(variables: Variables) -> Matches:
    level = variables.get(_LEVEL, "")
    if level.isdecimal() and int(level) >= 2:
        hidden = "warnings" if int(level) == 2 else "warnings and errors"
        yield Match(evidence=(f"{_LEVEL}={level}",), figures={"value": level, "hidden": hidden})
