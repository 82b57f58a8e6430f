"""{what} in {place} has made the GPUs with default options: {option} has no effect any more

device_lib.list_local_devices(), tf.test.is_gpu_available() and tf.test.gpu_device_name() make the GPU devices of the
process, with the default options. Their allocators stay: memory growth, limits and fractions that come later are
accepted, and the whole memory is taken. tf.config.list_physical_devices('GPU') makes nothing.

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

from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Call, Event, Program
from gpudiag.lint.rule import Match, Matches, Rule
from gpudiag.lint.settings import is_local, sets_gpu_options
from gpudiag.model.report import Severity

RULE = Rule(
    severity=Severity.WARNING,
    advice="ask tf.config.list_physical_devices('GPU') in place of {what}",
    words=tuple(sorted(name.rpartition(".")[2] for name in api.FIX_ALLOCATORS)),
    url="https://www.tensorflow.org/api_docs/python/tf/config/list_physical_devices",
)


def find(program: Program) -> Matches:
    for event in program.calls(api.GROWTH, api.LOGICAL, "Session"):
        earlier = _listing(event)
        if earlier is None or event.before("devices"):
            continue
        option = event.api.rpartition(".")[2]
        if event.api == "Session":
            options = [name for name in sets_gpu_options(event.made) if name != "visible_device_list"]
            if not options or not is_local(event.made) or event.before("session"):
                continue
            option = options[0]
        yield Match(event, {"what": earlier.what, "place": earlier.place(program), "option": option})


def _listing(event: Event) -> Event | None:
    """Return the call that made the devices before, if nothing else did earlier."""
    first = event.before("allocators")
    return first if isinstance(first, Call) and first.api in api.FIX_ALLOCATORS else None
