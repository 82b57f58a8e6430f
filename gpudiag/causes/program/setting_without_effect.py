"""a setting of the program, or of its environment, had no effect, or another than asked for

Each option has one moment at which it is read: TF_ENABLED_DEVICE_TYPES at the import, CUDA_VISIBLE_DEVICES and
TF_XLA_FLAGS at the first query of devices, TF_CONFIG when a strategy for several workers is made, a policy of Keras
when a layer is made, most else when TensorFlow makes its devices, which the first tensor does. A function that is
called later raises RuntimeError, which programs often catch; a variable that is set later does nothing.

TensorFlow and the CUDA driver ignore without a message what they do not know, and read the rest as it is written: a
list of GPUs ends at the first entry that is none, limits may add up to more than the card has, a limit in bytes is read
as MiB, GPU 1 of CUDA is another card than GPU 1 of nvidia-smi. Settings that exclude each other raise ValueError, a
function that TensorFlow does not have raises AttributeError, and an unknown flag in TF_XLA_FLAGS ends the process.

Some settings come before others: TF_FORCE_GPU_ALLOW_GROWTH is read inside the allocator, after everything that the
program has set, and the first session or tf.test.is_gpu_available() fixes the options of all devices. And nothing looks
at a scope in which nothing runs, a ConfigProto without a session, a list of 'gpu', which is empty, a variable of a
shell that has ended, or a function that is assigned to instead of called.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.traced import GROWTH_GUIDE, GUIDE
from gpudiag.fix import edit_note, export, unset
from gpudiag.model.program import ProgramTrace, Setting, place
from gpudiag.model.program import SettingFate as Fate
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="{setting} {where} {outcome}",
    severity=Severity.WARNING,
    fix=(export("TF_FORCE_GPU_ALLOW_GROWTH", "true"),),
    url=GROWTH_GUIDE,
    needs_gpu=False,
)
_PAGES = {
    "KERAS": "https://keras.io/getting_started/#configuring-your-backend",
    "CUDA_": "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
    "visible_device": "https://www.tensorflow.org/api_docs/python/tf/config/set_visible_devices",
    "logical_devices": f"{GUIDE}#virtual_gpus",
    "tf.device": f"{GUIDE}#manual_device_placement",
    "soft_device_placement": f"{GUIDE}#manual_device_placement",
    "dtype_policy": "https://www.tensorflow.org/guide/mixed_precision",
    "TF_CONFIG": "https://www.tensorflow.org/guide/distributed_training",
    "XLA": "https://openxla.org/xla/tf2xla",
    "DETERMINISTIC": "https://www.tensorflow.org/api_docs/python/tf/config/experimental/enable_op_determinism",
}
"""Pages about settings, by a part of the setting's name. A setting without one has the guide to memory."""
_MOST = 24
_OUTCOMES = {
    Fate.TOO_LATE: "comes too late to have an effect",
    Fate.IGNORED: "has no effect",
    Fate.OVERRIDDEN: "is overridden",
    Fate.OTHER_EFFECT: "does not do what it asks for",
    Fate.MISSPELT: "is read by nothing: the name is probably misspelled",
    Fate.REFUSED: "is refused by TensorFlow",
}


def find(program: ProgramTrace) -> Matches:
    """Yield a match for each line and kind of setting that did not do what it asks for; several GPUs count once."""
    found: dict[tuple[str, ...], list[Setting]] = {}
    for setting in sorted(program.settings, key=lambda setting: list(Fate).index(setting.fate)):
        if setting.fate in _OUTCOMES:
            key = (setting.what, setting.line, setting.fate, setting.why, repr(setting.instead))
            found.setdefault(key, []).append(setting)
    for (what, line, _, why, _), several in list(found.items())[:_MOST]:
        values = ", ".join(dict.fromkeys(setting.value for setting in several))
        take_out = edit_note(f"take it out of {place(line)}") if line else unset(what)
        yield Match(
            evidence=(
                f"{place(line)}: {what} {values}".rstrip() if line else f"{what}={values} in the environment",
                why,
            ),
            figures={
                "setting": _named(what, several),
                "where": f"at {place(line)}" if line else "in the environment",
                "outcome": _OUTCOMES[several[0].fate],
            },
            fix=(several[0].instead or take_out,),
            url=_url(what, several),
        )


def _url(what: str, several: Iterable[Setting]) -> str:
    """Return the page about what a setting sets."""
    for part, url in _PAGES.items():
        if part in what or any(setting.value.startswith(part) for setting in several):
            return url
    return ""


def _named(what: str, several: Iterable[Setting]) -> str:
    """Return how settings are named in a sentence; for a session, its relevant options."""
    if what not in ("session", "server", "enable_eager_execution"):
        return what
    options = dict.fromkeys(setting.value.partition("=")[0] for setting in several)
    return f"{' and '.join(options)} of {'' if what.startswith('enable') else 'the '}{what}"
