"""{what} in {place} has made the GPUs with default options: {option} has no effect any more

device_lib.list_local_devices(), tf.test.is_gpu_available() and tf.test.gpu_device_name() make the GPU devices of the
process, with the default options. Their allocators stay: memory growth, limits and fractions that come later are
accepted, and the whole memory is taken. So do a tf.train.Server without config, and the first eager operation for the
sessions that come later. tf.config.list_physical_devices('GPU') makes nothing.

Bad
    import tensorflow as tf

    print(tf.test.is_gpu_available())
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)

Good
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    print(bool(gpus))
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
"""

from __future__ import annotations

import re

from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Call, Event, Program
from gpudiag.lint.rule import Match, Matches, Rule, change
from gpudiag.lint.settings import is_local, sets_gpu_options
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    fix=(change("move {what} behind it, or give the options to what makes the devices first"),),
    words=(*sorted(name.rpartition(".")[2] for name in api.FIX_ALLOCATORS), "Server(", "local_server", "Session("),
    url="https://www.tensorflow.org/api_docs/python/tf/config/list_physical_devices",
)


_SESSIONS = ("Session", "train.MonitoredTrainingSession")


def find(program: Program) -> Matches:
    for event in program.calls(api.GROWTH, api.LOGICAL, *_SESSIONS):
        earlier = _maker(event)
        if earlier is None:
            continue
        option = event.api.rpartition(".")[2]
        if event.api in _SESSIONS:
            options = [name for name in sets_gpu_options(event.made) if name != "visible_device_list"]
            of_server = isinstance(earlier, Call) and earlier.api in api.SERVERS
            if not options or not (of_server or is_local(event.made)) or event.before("session"):
                continue
            option = options[0]
        yield Match(event, {"what": earlier.what, "place": earlier.place(program), "option": option})


def _maker(event: Call) -> Event | None:
    """Return the earlier event that made the devices with default options; None if another rule reports it."""
    first = event.before("allocators", "devices")
    if first is None or "session" in first.effects:
        return None
    if "devices" in first.effects:  # tf.config raises then
        return first if event.api in _SESSIONS and not event.module.mentions(_BY_DEFAULT) else None
    return first


_BY_DEFAULT = re.compile(r"TF_FORCE_GPU_ALLOW_GROWTH|set_memory_growth|_device_configuration")
"""Signs that eager operations have options of their own."""
