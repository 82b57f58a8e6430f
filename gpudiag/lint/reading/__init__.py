"""Reads a program without running it.

:class:`Reader` follows a program from its first line as Python would run it: modules of the project are read when they
are imported and functions when they are called, a bounded number of times. It assumes a machine with several GPUs on
which no exception is raised. Functions that nothing calls come last, as if their module had been imported.

Each file adds a layer: :mod:`cursor` knows the current place, :mod:`expressions` evaluates expressions, :mod:`calls`
follows calls, :mod:`imports` follows imports, and :mod:`statements` reads statements.
"""

from __future__ import annotations

from gpudiag.lint.program import LintedProgram
from gpudiag.lint.reading.cursor import TooLongError
from gpudiag.lint.reading.statements import Statements
from gpudiag.lint.values import ProjectFunction


class Reader(Statements):
    """Reads one program."""

    def read(self) -> LintedProgram:
        """Read the program and return it."""
        try:
            self.read_top_level(self.frame.module)
            begun = self.imported = self.past
            for piece, body in self.main:
                with self.inside(piece=piece):
                    self.block(body)
            collected = begun
            if self.program.module.source.path.name == "conftest.py":
                for name in self.project.tests_beside(self.program.module.source.path):
                    self._module(name, 0)
                collected, self.past = self.past, begun
            done = 0
            while done < len(self.functions):
                function = self.functions[done]
                done += 1
                if self._is_left_over(function):
                    of_pytest = not function.decorators.isdisjoint({"fixture", "yield_fixture"})
                    self.past = None if function.chosen else collected if of_pytest else begun
                    with self.inside(uncalled=True):
                        self._read_uncalled(function)
        except TooLongError:
            pass
        return self.program

    def _is_left_over(self, function: ProjectFunction) -> bool:
        """Return whether no call was seen of a function in this file that is of interest."""
        return (
            not self.call_counts[function] and function.module is self.program.module and self.is_of_interest(function)
        )

    def _read_uncalled(self, function: ProjectFunction) -> None:
        """Read a function without a known call as if it were called when its module is complete."""
        owner = function.owner
        start = owner.of.find("__init__") if owner is not None else None
        if isinstance(start, ProjectFunction) and start is not function and not self.call_counts[start]:
            self.follow(start, [owner], {}, function.node)
        self.follow(function, [owner] if owner is not None else [], {}, function.node, called=False)
