"""A part of a program: `with gpudiag.trace() as report:`, a callback of Keras, a fixture of pytest."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gpudiag.errors import UsageError
from gpudiag.folders import Folder
from gpudiag.model.diagnosis import RootCause
from gpudiag.model.program import ProgramTrace
from gpudiag.model.report import Report
from gpudiag.report import render
from gpudiag.text import printable, say
from gpudiag.tracing import gather, notes
from gpudiag.tracing import report as reports
from gpudiag.tracing.inside import gpudiag_watch as watcher


class Traced:
    """What a part of a program did with its GPUs; known as soon as the part has ended."""

    def __init__(self) -> None:
        self._report: Report | None = None

    @property
    def report(self) -> Report:
        """The report, the same as of `gpudiag trace`; ``UsageError`` while the part still runs."""
        if self._report is None:
            raise UsageError("the part of the program that is traced has not ended: ask after the with block")
        return self._report

    @property
    def program(self) -> ProgramTrace:
        """The record of what was done."""
        assert self.report.program is not None
        return self.report.program

    @property
    def causes(self) -> tuple[RootCause, ...]:
        """What was found, the first in order first."""
        return (*self.report.diagnosis.causes, *self.report.diagnosis.folded)

    def __str__(self) -> str:
        return render(self.report, "table", width=80, color=False)


_running: list[Traced] = []


@contextmanager
def trace() -> Iterator[Traced]:
    """Watch what this process does with its GPUs in the ``with`` block.

    Settings that were made before the block are not known, nor is what became of them. Raises ``UsageError`` if another
    trace runs in this process, or if there is no room for its notes.
    """
    if _running:
        raise UsageError("a trace already runs in this process: they cannot be nested. End the first one before")
    traced = Traced()
    began, clock = time.time(), time.monotonic()
    ended = "part of a program"
    with Folder("trace") as folder:
        if not watcher.start_here(str(folder)):
            raise UsageError(f"no room for notes in {folder}: set TMPDIR to a folder with room")
        _running.append(traced)
        try:
            yield traced
        except BaseException as error:
            ended = f"part of a program, by {type(error).__name__}"
            raise
        finally:
            _running.remove(traced)
            watcher.stop()
            command = tuple(map(printable, sys.argv)) or ("python",)
            seconds = time.monotonic() - clock
            found = gather.gathered(notes.read(folder), command, ended, began, seconds)
            traced._report = reports.made(found, ("gpudiag.trace()",))


def keras_callback(output: str | None = None) -> object:
    """Return a callback for ``model.fit`` that traces the training, and writes the report where it ends.

    Without ``output`` the report is printed to standard error; the suffix of ``output`` names its format, as of ``-o``.
    """
    import keras

    from gpudiag import report as formats
    from gpudiag.report.files import write

    class Callback(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def __init__(self) -> None:
            super().__init__()
            self.traced: Traced | None = None
            self._stack = ExitStack()

        def on_train_begin(self, logs: object = None) -> None:
            self._stack.close()  # of a training that raised
            self.traced = self._stack.enter_context(trace())

        def on_train_end(self, logs: object = None) -> None:
            self._stack.close()
            if self.traced is None:
                return
            if output is None:
                say(str(self.traced))
            else:
                path = Path(output)
                write(path, formats.render(self.traced.report, formats.format_of(path), width=80, color=False))

    return Callback()
