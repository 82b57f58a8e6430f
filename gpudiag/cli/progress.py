"""Shows progress on standard error: on a terminal the machine, a tree of areas and a bar, plain lines elsewhere.

No thread is started, because gpudiag's processes fork: the run loop calls :meth:`Progress.tick` instead.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpudiag.model.report import STATUSES, Broken, Interrupted, Row, Skipped
from gpudiag.text import one_line, plain

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress as Bar

    from gpudiag.model.facts import Facts
    from gpudiag.model.report import Gpu


@dataclass
class _Area:
    """The rows of an area."""

    planned: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    is_said: bool = False
    """True once its line was written."""

    @property
    def counts(self) -> list[tuple[int, str]]:
        """How many rows have each outcome."""
        return [(self.outcomes[status], status) for status in STATUSES if self.outcomes[status]]

    @property
    def done(self) -> int:
        return self.outcomes.total()


TAIL_LINES = 5
"""Lines of a child's log that ``verbose`` shows with its row."""


class Progress:
    """What runs now, how many rows are done and how long it has taken; the observer of a run.

    On a terminal this shows the machine, a line for each area with its findings and running probes, and a bar; it is
    redrawn, and removed before the report. Elsewhere it is a line for each completed area. ``verbose`` writes a line
    for each row, on a terminal too, with the end of its child's log. ``quiet`` writes nothing. Errors of writing are
    ignored: a closed standard error must not end a run.
    """

    def __init__(self, *, quiet: bool = False, verbose: bool = False) -> None:
        self._quiet = quiet
        self._verbose = verbose
        self._phase = ""
        self._total: int | None = None
        self._done = 0
        self._running: list[str] = []
        self._head: list[tuple[str, str]] = []
        self._areas: dict[str, _Area] = {}
        self._bar: Bar | None = None

    def __enter__(self) -> Progress:
        if not self._quiet:
            with _unhindered():
                self._bar = _bar(self._drawn)
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

    def machine(self, facts: Facts, gpus: tuple[Gpu, ...]) -> None:
        """Show the machine that the probes run on."""
        from gpudiag.report import words

        self._head = words.of_facts(facts, gpus)
        self.tick()

    def phase(self, text: str, probes: Sequence[str] | None = None) -> None:
        """Show that the phase ``text`` begins, with a row to come for each of ``probes``; None: it has no rows."""
        self._phase, self._done, self._running = text, 0, []
        self._total = None if probes is None else len(probes)
        for probe in probes or ():
            self._areas.setdefault(probe.partition(".")[0], _Area()).planned += 1
        if self._bar is None:
            self._write(text if probes is None else f"{text} ({len(probes)})")
        self.tick()

    def started(self, label: str) -> None:
        """Show that ``label`` runs now."""
        self._running.append(label)
        if self._verbose and self._bar is None:
            self._write(f"{label}: started")
        self.tick()

    def finished(self, row: Row, label: str) -> None:
        """Show that ``label`` ended with ``row``; it may never have started."""
        self._done += 1
        area = self._areas.setdefault(row.area, _Area())
        area.outcomes[row.status] += 1
        if label in self._running:
            self._running.remove(label)
        if self._verbose:
            self._write(f"[{self._done}/{self._total or '?'}] {label}: {_outcome_text(row)}")
        elif self._bar is None and area.done >= area.planned and not area.is_said:
            area.is_said = True
            counts = ", ".join(f"{number} {status}" for number, status in area.counts)
            self._write(f"[{self._done}/{self._total or '?'}] {row.area}: {counts}")
        if self._verbose:
            for line in row.log[-TAIL_LINES:]:
                self._write(f"    | {line}")
        self.tick()

    def note(self, text: str) -> None:
        """Write a note on a line of its own."""
        self._write(text)

    def tick(self) -> None:
        """Redraw the live line; call this several times a second."""
        if self._bar is not None:
            with _unhindered():
                (task,) = self._bar.task_ids
                self._bar.update(
                    task,
                    description=self._phase,
                    total=self._total,
                    completed=self._done,
                    running="" if self._areas else ", ".join(self._running),
                )
                self._bar.refresh()

    def _drawn(self, height: int) -> Iterator[RenderableType]:
        """Yield the machine and the tree of areas, as far as they and the bar fit into ``height`` lines."""
        from rich.table import Table
        from rich.text import Text

        from gpudiag.report.formats.table import STYLES

        room = height - 2
        if self._head and len(self._head) + len(self._areas) <= room:
            head = Table.grid(padding=(0, 2))
            head.add_column(style="dim", no_wrap=True)
            head.add_column(no_wrap=True, overflow="ellipsis")
            for heading, text in self._head:
                head.add_row(heading, Text(plain(text)))
            yield head
        if not 0 < len(self._areas) <= room:
            return
        widest = max(map(len, self._areas))
        for name, area in self._areas.items():
            running = [label.partition(".")[2] for label in self._running if label.partition(".")[0] == name]
            style = "bold" if running else "" if area.outcomes else "dim"
            line = Text(no_wrap=True, overflow="ellipsis")
            line.append(f"{name:{widest}}", style).append(f"  {f'{area.done}/{area.planned}':5}  ")
            line.append_text(
                Text(", ").join(Text(f"{number} {status}", STYLES.get(status, "dim")) for number, status in area.counts)
            )
            line.append(f"  {', '.join(running)}" if running else "", "dim")
            yield line

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
    if isinstance(row.outcome, Interrupted):
        return f"interrupted ({one_line(row.outcome.detail)})"
    if isinstance(row.outcome, Broken):
        return f"broken ({row.outcome.cause.value}: {one_line(row.outcome.detail)}; {row.duration_s:.2f} s)"
    return f"{row.status} ({row.duration_s:.2f} s)"


def _bar(above: Callable[[int], Iterable[RenderableType]]) -> Bar | None:
    """Return the live lines, or None if standard error is not a terminal that can redraw a line."""
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    from gpudiag.cli.delivery import in_color

    console = Console(stderr=True, no_color=not in_color(sys.stderr))
    if not console.is_terminal or console.is_dumb_terminal:
        return None

    class Lines(Bar):
        """The bar, and the lines above it."""

        def get_renderables(self) -> Iterable[RenderableType]:
            yield from above(console.height)
            yield from super().get_renderables()

    return Lines(
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
