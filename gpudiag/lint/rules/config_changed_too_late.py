"""{path} is set after the session of {place} was made with this config, and changes nothing

A session reads its ConfigProto when it is made.

Bad
    import tensorflow.compat.v1 as tf

    config = tf.ConfigProto()
    session = tf.Session(config=config)
    config.gpu_options.allow_growth = True

Good
    import tensorflow.compat.v1 as tf

    config = tf.ConfigProto()
    config.gpu_options.allow_growth = True
    session = tf.Session(config=config)
"""

from __future__ import annotations

from gpudiag.lint.program import Call, Option, Program
from gpudiag.lint.rule import Match, Matches, Rule, change
from gpudiag.lint.settings import session_config
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    fix=(change("set it before the session is made"),),
    words=("ConfigProto",),
    url="https://www.tensorflow.org/api_docs/python/tf/compat/v1/Session",
)


def find(program: Program) -> Matches:
    for event in program.of(Option):
        sessions = [
            earlier
            for earlier in event.history()
            if isinstance(earlier, Call) and earlier.api == "Session" and session_config(earlier.made) is event.made
        ]
        later = (call.made for call in program.calls("Session") if call.made not in [made.made for made in sessions])
        if sessions and not any(session_config(value) is event.made for value in later):
            yield Match(event, {"path": event.path, "place": sessions[-1].place(program)})
