"""per_process_gpu_memory_fraction and virtual_devices exclude each other: this session raises InvalidArgumentError

The limits of the virtual devices say how much memory each takes. The text of the error is "It's invalid to set
per_process_gpu_memory_fraction when virtual_devices is set" (2.21, simulated GPUs); on a machine without a GPU nothing
is said.

Bad
    import tensorflow.compat.v1 as tf

    config = tf.ConfigProto()
    config.gpu_options.per_process_gpu_memory_fraction = 0.5
    config.gpu_options.experimental.virtual_devices.add(memory_limit_mb=[1024, 1024])
    session = tf.Session(config=config)

Good
    import tensorflow.compat.v1 as tf

    config = tf.ConfigProto()
    config.gpu_options.experimental.virtual_devices.add(memory_limit_mb=[1024, 1024])
    session = tf.Session(config=config)
"""

from __future__ import annotations

from gpudiag.lint.program import Call, Program
from gpudiag.lint.rule import Match, Matches, Rule, change
from gpudiag.lint.settings import UNSURE, base_of, gpu_options, session_config
from gpudiag.lint.values import Items, Made
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.FAIL,
    fix=(change("remove the fraction: memory_limit_mb of each virtual device is its limit"),),
    words=("virtual_devices",),
    also=("per_process_gpu_memory_fraction",),
    url="https://www.tensorflow.org/api_docs/python/tf/compat/v1/GPUOptions",
)


def find(program: Program) -> Matches:
    for event in program.calls("Session"):
        config = session_config(event.made)
        fraction = (gpu_options(event.made) or {}).get("per_process_gpu_memory_fraction")
        if config is not None and fraction not in (None, 0, UNSURE) and _divides(event, config):
            yield Match(event)


def _divides(session: Call, config: Made) -> bool:
    """Return whether a session's configuration surely has virtual devices."""
    given = config.kwargs.get("gpu_options")
    inner = given.kwargs.get("experimental") if isinstance(given, Made) else None
    listed = inner.kwargs.get("virtual_devices") if isinstance(inner, Made) else None
    if isinstance(listed, Items) and listed.items:
        return True
    added = (event.made.owner for event in session.history() if isinstance(event, Call) and event.api.endswith(_ADDED))
    return any(base_of(owner) in (config, given) for owner in added)


_ADDED = ("experimental.virtual_devices.add", "experimental.virtual_devices.append")
