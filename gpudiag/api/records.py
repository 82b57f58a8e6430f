"""The records that the Python interface returns: those of the model, which can also show and save themselves."""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import TypeVar

from gpudiag import report as formats
from gpudiag.errors import UsageError, nearest
from gpudiag.model import change, report
from gpudiag.model.diagnosis import RootCause
from gpudiag.record import Record
from gpudiag.report import comparison, words
from gpudiag.report.files import write
from gpudiag.text import counted, one_line

_Kind = TypeVar("_Kind", bound=Record)

WIDTH = 80
"""The columns of a text."""
_FRAME = (
    '<p>{summary}</p><iframe title="{summary}" srcdoc="{page}" allow="clipboard-write" '
    'style="box-sizing: border-box; width: 100%; height: 40em; border: 1px solid #8888; resize: vertical"></iframe>'
)
"""A notebook that is not trusted, and pages such as GitHub's, show the sentence alone."""


class Report(report.Report):
    """A report of gpudiag: ``verdict``, ``causes``, ``rows``, ``gpus``, and all else that its JSON has.

    ``str(report)`` is what ``gpudiag check`` prints; in a notebook it is shown as its page.
    """

    @classmethod
    def of(cls, other: report.Report) -> Report:
        """Return the report with the methods of this class."""
        return _as(cls, other)

    @property
    def causes(self) -> tuple[RootCause, ...]:
        """The causes that were found, the first one first; ``fix`` has what to do about each."""
        return (*self.diagnosis.causes, *self.diagnosis.folded)

    def to_json(self, *, mask: bool = False) -> str:
        """Return the report as JSON, with a final newline; ``mask`` makes it fit to be shared."""
        return self.render("json", mask=mask)

    def render(self, format: str = "summary", *, mask: bool = False, verbose: bool = False) -> str:  # noqa: A002
        """Return the report in a format of ``gpudiag check --format``; UsageError if there is none of that name."""
        if format not in formats.FORMATS:
            raise UsageError(f"no format is called {format!r}. {nearest(format, formats.FORMATS)}")
        shown: report.Report = self
        if mask:
            from gpudiag.report.masking import mask as masked

            shown = masked(self)
        return formats.render(shown, format, width=WIDTH, color=False, verbose=verbose)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        format: str | None = None,  # noqa: A002  # as of the command line
        mask: bool = False,
        verbose: bool = False,
    ) -> None:
        """Write the report to a file, in the format of its suffix: .txt .json .html .md .xml .prom.

        ``format`` chooses another one. Raises :class:`gpudiag.UsageError` for a suffix that means no format, and
        :class:`gpudiag.OutputError` if the file cannot be written.
        """
        name = formats.format_of(Path(path)) if format is None else format
        write(Path(path), self.render(name, mask=mask, verbose=verbose))

    def __str__(self) -> str:
        return self.render().rstrip()

    def __repr__(self) -> str:
        parts = [words.headline(self) if self.causes or self.is_log_alone else ""]
        if not self.is_log_alone:
            counts = (f"{number} {status}" for status, number in self.counts.items())
            parts = [self.verdict.value, *parts, counted(len(self.gpus), "GPU"), *counts]
        simulated = " simulated" if self.world.simulated else ""
        return f"<gpudiag.Report{simulated}: {one_line(', '.join(filter(None, parts)))}>"

    def _repr_html_(self) -> str:
        return _frame(repr(self), self.render("html"))


class Comparison(change.ReportComparison):
    """What changed from one report to another: ``worse`` and ``changes``."""

    @classmethod
    def of(cls, other: change.ReportComparison) -> Comparison:
        """Return the comparison with the methods of this class."""
        return _as(cls, other)

    def to_json(self) -> str:
        """Return the comparison as JSON, with a final newline."""
        return self.render("json")

    def render(self, format: str = "table") -> str:  # noqa: A002
        """Return the comparison in a format of ``gpudiag diff --format``; UsageError if there is none of that name."""
        if format not in comparison.FORMATS:
            raise UsageError(f"no format of a comparison is called {format!r}. {nearest(format, comparison.FORMATS)}")
        return comparison.render(self, format, width=WIDTH, color=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the comparison to a file, in the format of its suffix: .txt .json .md .html. Raises as a report."""
        write(Path(path), self.render(comparison.format_of(Path(path))))

    def __str__(self) -> str:
        return self.render().rstrip()

    def __repr__(self) -> str:
        return f"<gpudiag.Comparison: {comparison.summary(self)}>"

    def _repr_html_(self) -> str:
        return _frame(repr(self), self.render("html"))


def _as(kind: type[_Kind], record: Record) -> _Kind:
    """Return the record as one of a class that adds methods to its own."""
    return kind(**{name: getattr(record, name) for name in record.__struct_fields__})


def _frame(summary: str, page: str) -> str:
    """Return a page in a frame, which keeps its style and script apart from those of the notebook."""
    return _FRAME.format(summary=html.escape(summary.strip("<>")), page=html.escape(page))
