"""Progress on standard error: a live line on a terminal, plain lines elsewhere.

No thread is started, because gpudiag's processes fork: the run loop calls :meth:`Progress.tick` instead.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from gpudiag.model.report import Broken, Row, Skipped
from gpudiag.text import one_line, plain

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

TAIL_LINES = 5
"""Lines of a child's log that ``verbose`` shows with its row."""


class Progress:
    """What runs now, how many rows are done and how long it has taken; the observer of a run.

    On a terminal this is one line, which is redrawn and removed in the end; elsewhere it is a line for each row that is
    done. ``verbose`` writes these lines on a terminal too, each with the end of its child's log. ``quiet`` writes
    nothing. What cannot be written is lost: a closed standard error must not end a run.
    """

    def __init__(self, *, quiet: bool = False, verbose: bool = False) -> None:
        self._quiet = quiet
        self._verbose = verbose
        self._phase = ""
        self._total: int | None = None
        self._done = 0
        self._running: list[str] = []
        self._bar: Bar | None = None

    def __enter__(self) -> Progress:
        if not self._quiet:
            with _unhindered():
                self._bar = _bar()
        if self._bar is not None:
            with _unhindered():
                self._bar.start()
                self._bar.add_task("", total=None, running="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            with _unhindered():
                self._bar.stop()
            self._bar = None

    def phase(self, text: str, total: int | None = None) -> None:
        """Say that ``text`` begins, with ``total`` rows to come if that is known."""
        self._phase, self._total, self._done, self._running = text, total, 0, []
        if self._bar is None:
            self._write(text if total is None else f"{text} ({total})")
        self.tick()

    def started(self, label: str) -> None:
        """Say that ``label`` runs now."""
        self._running.append(label)
        if self._verbose and self._bar is None:
            self._write(f"{label}: started")
        self.tick()

    def finished(self, row: Row, label: str) -> None:
        """Say that ``label`` ended with ``row``; it may never have started."""
        self._done += 1
        if label in self._running:
            self._running.remove(label)
        if self._verbose or self._bar is None:
            self._write(f"[{self._done}/{self._total or '?'}] {label}: {_outcome_text(row)}")
        if self._verbose:
            for line in row.log[-TAIL_LINES:]:
                self._write(f"    | {line}")
        self.tick()

    def note(self, text: str) -> None:
        """Write a separate line."""
        self._write(text)

    def tick(self) -> None:
        """Redraw the live line; to be called several times a second."""
        if self._bar is not None:
            with _unhindered():
                (task,) = self._bar.task_ids
                self._bar.update(
                    task,
                    description=self._phase,
                    total=self._total,
                    completed=self._done,
                    running=", ".join(self._running),
                )
                self._bar.refresh()

    def _write(self, line: str) -> None:
        if self._quiet:
            return
        with _unhindered():
            if self._bar is not None:
                self._bar.console.print(plain(line), markup=False, highlight=False, soft_wrap=True)
            elif sys.stderr is not None:
                print(plain(line), file=sys.stderr, flush=True)


def _unhindered() -> contextlib.AbstractContextManager[None]:
    """Continue if standard error cannot be written: it is closed, full, or has no reader."""
    return contextlib.suppress(OSError, ValueError)


def _outcome_text(row: Row) -> str:
    if isinstance(row.outcome, Skipped):
        return f"skipped ({one_line(row.outcome.reason)})"
    if isinstance(row.outcome, Broken):
        return f"broken ({row.outcome.cause.value}: {one_line(row.outcome.detail)}; {row.duration_s:.2f} s)"
    return f"{row.status} ({row.duration_s:.2f} s)"


def _bar() -> Bar | None:
    """Return the live line, or None if standard error is not a terminal that can redraw a line."""
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    console = Console(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        return None
    return Bar(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[running]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
        console=console,
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
