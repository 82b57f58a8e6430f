"""Started as your own programs are, TensorFlow finds every GPU in scope, and each library it opens is named.

What it does
    Imports TensorFlow in your environment as it is, and calls `tf.config.list_physical_devices('GPU')`. From
    TensorFlow's log, at the one level that names libraries, it takes each library that was opened or could not be, in
    the loader's own words, and every warning and error.
Why it matters
    TensorFlow's way to a GPU has many stages, and its output names the failed stage badly or not at all:
    "Could not find cuda drivers" means that the CUDA runtime library cannot be opened, and if NVML is missing there
    is no line. The diagnosis at the top of the report is based on the trace.
What to do
    Fix the cause at the top of the report. If none is named, `nvidia-smi` and `sudo dmesg | grep -i -e nvrm -e xid`
    say whether the driver and the GPU work at all; the failed stage and its log lines are there, too. To see the
    trace of a program of your own: `TF_CPP_VMODULE=dso_loader=1 python program.py`
"""

from __future__ import annotations

import os
import sys
from itertools import islice
from pathlib import Path

import msgspec

from gpudiag import fix, probe
from gpudiag.knowledge import log_lines
from gpudiag.knowledge.log import recognised
from gpudiag.knowledge.log_lines import Line
from gpudiag.model.facts import Facts
from gpudiag.model.visibility import least_visible
from gpudiag.probe import SEE_THE_CAUSE, Context, Findings, Raised, fail
from gpudiag.text import printable

PROBE = probe.Probe(quick=True, as_user=True)


class Fault(probe.Faults):
    fewer_listed = fail(
        "TensorFlow lists {listed} of the {given} GPUs in scope",
        means="TensorFlow, started as your own programs are, lists fewer GPUs than are in scope.",
        do=SEE_THE_CAUSE,
    )
    raised = fail(
        "tf.config.list_physical_devices('GPU') raised {raised}",
        means="tf.config.list_physical_devices('GPU') raised an error.",
        do=(fix.nvidia_smi("look for a GPU that is lost or failing"), probe.KERNEL_LOG),
    )


MOST_LINES = 200
"""After this many lines only lines with a known message are kept."""


class Reading(probe.Reading):
    """The GPUs that TensorFlow lists, and its log on the way."""

    listed: int
    """GPUs in ``tf.config.list_physical_devices('GPU')``."""
    raised: Raised | None
    opened: tuple[str, ...]
    """Libraries that TensorFlow opened, each once, in the order of opening."""
    unopened: dict[str, str]
    """Libraries that TensorFlow tried to open and could not, each with the loader's message."""
    lines: tuple[Line, ...]
    """The other lines of TensorFlow's log, from the import on."""
    hidden: dict[str, str] = {}
    """Modules that the import of TensorFlow loaded, and that programs started in the working directory do not get:
    each with the file there that has its name."""

    def figure(self) -> str:
        return ", not opened: ".join(
            [f"GPUs listed: {self.listed}", *([", ".join(self.unopened)] if self.unopened else [])]
        )


def measure(ctx: Context) -> Reading:
    listed: list[object] = []
    imported = ctx.import_log()
    with ctx.placements() as printed:
        raised = ctx.attempt(lambda: listed.extend(ctx.tf.config.list_physical_devices("GPU")))
    reading = read_log((*imported, *printed.lines), len(listed), raised)
    return msgspec.structs.replace(reading, hidden=hidden_in("."))


_OF_THE_START = ("encodings", "codecs", "io", "abc", "site", "stat", "posixpath", "genericpath", "os", "zipimport")
"""Modules that Python loads before it looks into the folder of a program."""
_OF_GPUDIAG = ("gpudiag", "msgspec", "elftools", "packaging")


def hidden_in(place: str | Path) -> dict[str, str]:
    """Return the modules of this process that a file in a folder hides from programs there, each with the file; none
    if the folder is gone or closed."""
    hidden = {}
    try:
        folder = Path(place).absolute()
        names = sorted(os.listdir(folder))  # noqa: PTH208  # names alone
    except OSError:
        return {}
    for name in names:
        stem = name.removesuffix(".py")
        module = sys.modules.get(stem)
        if module is None or stem in (*_OF_THE_START, *_OF_GPUDIAG) or not stem.isidentifier():
            continue
        file = folder / name if name.endswith(".py") else folder / name / "__init__.py"
        # What has no file is built in, or frozen: no folder is searched for it.
        own = getattr(module, "__file__", None)
        origin = getattr(getattr(module, "__spec__", None), "origin", None)
        if own and origin not in ("built-in", "frozen") and file.is_file() and not file.samefile(own):
            hidden[stem] = printable(str(file))
    return hidden


def read_log(printed: tuple[str, ...], listed: int, raised: Raised | None) -> Reading:
    """Return the reading of a log, with each line once, however often TensorFlow repeats it."""
    lines = dict.fromkeys(line for line in log_lines.parse(printed) if line.file != "dso_loader.cc")
    kept = (line for number, line in enumerate(lines) if number < MOST_LINES or recognised(line.text))
    return Reading(
        listed, raised, log_lines.opened(printed), log_lines.unopened(printed), tuple(islice(kept, 2 * MOST_LINES))
    )


def judge(reading: Reading, facts: Facts) -> Findings:
    given = least_visible(facts)
    if reading.raised is not None:
        yield Fault.raised.found(raised=reading.raised.brief)
    elif reading.listed < given:
        yield Fault.fewer_listed.found(listed=reading.listed, given=given)
