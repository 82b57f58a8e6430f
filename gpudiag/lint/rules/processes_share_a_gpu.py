"""several processes take the same GPU

A process takes nearly all memory of each GPU that it sees, unless it sets memory growth: children that it gives a GPU
to afterwards have what is left (2.21, simulated GPUs: 911 MiB of 16 GiB).

Horovod starts a process for each GPU and leaves it to the program to choose one. Without that all ranks make their
variables on the first GPU, and its memory runs out while the others are idle.

Bad
    import horovod.tensorflow.keras as hvd
    import tensorflow as tf

    hvd.init()
    model = tf.keras.Sequential()

Good
    import horovod.tensorflow.keras as hvd
    import tensorflow as tf

    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    model = tf.keras.Sequential()
"""

from __future__ import annotations

import ast
import re

from gpudiag.fix import edit, edit_note
from gpudiag.knowledge import tensorflow_api as api
from gpudiag.lint.program import Call, LintedProgram, Variable
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.settings import GROWTH_FOR_EACH, MASK, entries, is_of_tests, mask_before, masks
from gpudiag.model.report import Severity

RULE = Rule(
    message="{what}: {happens}",
    severity=Severity.NOTE,
    fix=(edit("tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU')", "choose one after hvd.init()"),),
    words=("horovod", MASK),
    url="https://horovod.readthedocs.io/en/stable/tensorflow.html",
    cause="workers_share_gpus",
)
_CHOSEN = re.compile(r"local_rank|CUDA_VISIBLE_DEVICES|visible_device_list|set_visible_devices|LOCAL_RANK|sys\.path\b")
"""Signs that the program chooses a GPU, or imports modules that are not read and may choose one."""


def find(program: LintedProgram) -> Matches:
    yield from _holding_parents(program)
    yield from _of_one_mask(program)
    if program.mentions(_CHOSEN) or is_of_tests(program):
        return  # a test is one process
    for event in program.of(Call):
        if program.shared and event.functions and not event.stack:
            continue  # a helper of other files, which may choose the GPU
        if re.fullmatch(r"horovod\.(?:tensorflow|keras)(?:\.\w+)*\.init", event.made.name):
            what = "hvd.init() is called, and no GPU is chosen by hvd.local_rank()"
            yield Violation(event, {"what": what, "happens": "every rank of a machine uses GPU 0"})


def _holding_parents(program: LintedProgram) -> Matches:
    """Yield the first GPU that is given to a child by a process that has taken the memory of all."""
    for event in masks(program):
        taker = event.before("devices") if event.how == "env" and not event.module.source.is_script else None
        if taker is None or entries(event.value) == [] or mask_before(taker) or program.mentions(_FORCED):
            continue
        placed = any(context.api == "device" for context in taker.frame.contexts)
        if placed or getattr(taker, "api", "").startswith(("data.", "config.")):
            continue  # it may have computed on the CPU alone
        if not any(
            getattr(earlier, "api", "") in (api.GROWTH, api.VISIBLE, api.LOGICAL) for earlier in taker.history()
        ):
            what = f"a child is given a GPU whose memory this process has taken with {taker.what}"
            yield Violation(
                event,
                {"what": f"{what} in {taker.place(program)}", "happens": "what is left may be too little"},
                fix=(edit("tf.config.set_visible_devices([], 'GPU')", "if this process needs no GPU"), GROWTH_FOR_EACH),
                severity=Severity.WARNING,
            )
            return


def _of_one_mask(program: LintedProgram) -> Matches:
    """Yield a mask that is divided among several processes, and is the same for all of them."""
    rounds: dict[int, list[Variable]] = {}
    for event in masks(program):
        if event.how == "env" and event.value_node is not None and _DIVIDES.search(ast.unparse(event.value_node)):
            rounds.setdefault(id(event.value_node), []).append(event)
    for first, *others in rounds.values():
        given = {entry for event in (first, *others) for entry in entries(event.value) or [""]}
        if others and len(others) < _ALL_SEEN and len(given) == 1 and "" not in given:
            what = f"each of the {len(others) + 1} processes gets {MASK}={given.pop()!r}"
            yield Violation(first, {"what": what, "happens": "the other GPUs have none"}, fix=(edit_note(_DEAL),))


_DIVIDES = re.compile(r" (?://|%) ")
_DEAL = "number the GPUs by the remainder: str(index % count)"
_ALL_SEEN = 3
"""The most further rounds with which surely all calls of a function were followed."""
_FORCED = re.compile("TF_FORCE_GPU_ALLOW_GROWTH")
