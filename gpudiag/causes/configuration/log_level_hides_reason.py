"""TF_CPP_MIN_LOG_LEVEL hides the lines in which TensorFlow says why it uses no GPU

1 hides information, 2 warnings too (the one about libraries that cannot be opened), 3 errors too (that cuInit failed).
The value is copied from tutorial to tutorial; the list of GPUs is then empty without a reason. gpudiag's own probes run
without it.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Variables
from gpudiag.causes.shared.configuration import WITHOUT_GPU
from gpudiag.fix import export, unset
from gpudiag.knowledge.log_lines import Log
from gpudiag.model.report import Severity
from gpudiag.probes.discovery import trace

CAUSE = Cause(
    title="TF_CPP_MIN_LOG_LEVEL={value} hides the lines in which TensorFlow says why it uses no GPU",
    severity=Severity.WARNING,
    fix=(
        unset("TF_CPP_MIN_LOG_LEVEL"),
        export("TF_CPP_VMODULE", "dso_loader=1", "makes the log name missing libraries"),
    ),
    url="https://www.tensorflow.org/guide/gpu#setup",
    views=("host.environment.log_hidden",),
)
_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"


def find(variables: Variables, seen: trace.Reading) -> Matches:
    value = variables.get(_LOG_LEVEL, "")
    if seen.listed or not value.strip().isdecimal():
        return
    hidden = "IWE"[: int(value)]
    said = Log(f"{line.file}: {line.text}" for line in seen.lines if line.level in hidden)
    reasons = said.said(*WITHOUT_GPU)
    if reasons:
        yield Match(
            evidence=(f"{_LOG_LEVEL}={value}", *(f"hidden: {line}" for line in reasons)),
            figures={"value": value},
        )
