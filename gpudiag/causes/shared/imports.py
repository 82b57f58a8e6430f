"""Shared by causes: an import of TensorFlow that failed, here or in the program that wrote the log."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import PurePath
from shlex import quote

from gpudiag.cause import TRACE, Evidence
from gpudiag.causes.shared.packages import FailedImport
from gpudiag.knowledge import names
from gpudiag.knowledge.frames import FRAME, packages_in
from gpudiag.knowledge.log_lines import Log
from gpudiag.knowledge.requirements import canonical
from gpudiag.model.facts import Facts, Requirement, TensorflowFacts, Unknown

_MODULE = re.compile(
    r"(?:No module named|cannot import name '[^']*' from(?: partially initialized module)?|module|bad magic number in) "
    r"'([\w.]+)'"
)
_PROBES = "gpudiag/probes/"
_LONGEST = 300
"""The most letters of an error that are shown: numpy's fill a page."""
_ALIASES = {"absl": "absl-py", "clang": "libclang", "google": "protobuf", "grpc": "grpcio", "pasta": "google-pasta"}
"""Modules whose name differs from their distribution, for distributions that TensorFlow requires."""
_OF_PYTHON = sys.stdlib_module_names | {"asynchat", "asyncore", "distutils", "imp"}
"""Python's own modules, including those that it no longer has."""
_OF_TENSORFLOW = ("tensorflow", "tensorflow_core")


class ImportLog(Log):
    """What a failed import of TensorFlow printed here, and the log of the user's program."""

    @classmethod
    def of(cls, evidence: Evidence) -> ImportLog:
        here = _lines(evidence) if FailedImport.of(evidence) else ()
        return cls((*here, *evidence.program.lines))


@dataclass(frozen=True)
class Traceback:
    """``import tensorflow`` raised an exception on this machine."""

    error: str
    """Type and text of the exception, on one line."""
    files: tuple[str, ...]
    """The files of the frames, the innermost last."""

    @classmethod
    def of(cls, evidence: Evidence) -> Traceback | None:
        failed = FailedImport.of(evidence)
        if failed is None:
            return None
        frames = (FRAME.match(line.lstrip()) for line in _lines(evidence))
        files = tuple(frame["file"] for frame in frames if frame)
        if any(_PROBES in file for file in files) and set(_OF_TENSORFLOW).isdisjoint(packages_in("\n".join(files))):
            return None  # gpudiag's own code raised it, when TensorFlow had been imported
        error = failed.error.removeprefix("exception: ").removeprefix("import tensorflow raised ")
        error = error if len(error) <= _LONGEST else f"{error[:_LONGEST]}..."
        return cls(error, files)

    @property
    def module(self) -> str:
        """The module that the error names, such as ``absl.logging``; "" if it names none."""
        named = _MODULE.search(self.error)
        return named[1] if named else ""

    @property
    def distributions(self) -> tuple[str, ...]:
        """The distributions that the failure touches: the one that the error names, then those of the frames, the
        innermost first, without TensorFlow."""
        own = self.module.partition(".")[0] in _OF_PYTHON  # no distribution has it
        found = [distribution_of(self.module)] if self.module and not own else []
        found += map(distribution_of, packages_in(self.error))
        for file in reversed(self.files):
            if packages := packages_in(file):
                if packages[0] in _OF_TENSORFLOW:
                    break
                found.append(distribution_of(packages[0]))
        return tuple(dict.fromkeys(name for name in found if name not in _OF_TENSORFLOW and name not in _OF_PYTHON))

    def touches(self, requirement: Requirement) -> bool:
        return requirement.name in self.distributions or requirement.by in self.distributions

    @property
    def where(self) -> str:
        """The innermost file that is not of Python's own machinery; "" if no frame is known."""
        own = (file for file in reversed(self.files) if not file.startswith("<") and "importlib" not in file)
        return next(own, "")


def distribution_of(module: str) -> str:
    """Return the distribution that a module belongs to, by its name."""
    top = module.partition(".")[0]
    return _ALIASES.get(top) or canonical(names.distribution_of(top))


def _lines(evidence: Evidence) -> tuple[str, ...]:
    return next((row.log for row in evidence.rows if row.probe == TRACE), ())


def executable(facts: Facts) -> str:
    """Return the interpreter as a shell takes it."""
    system = facts.system
    return "python" if isinstance(system, Unknown) else quote(system.executable)


def active_environment(facts: Facts) -> str:
    """Return the active environment, if this interpreter is not from it; "" if it is, or if none is active."""
    system = facts.system
    own = "" if isinstance(system, Unknown) else system.prefix
    active = [facts.variables.get(name, "") for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    return next((folder for folder in active if own and folder and PurePath(folder) != PurePath(own)), "")


def interpreter(facts: Facts) -> tuple[str, ...]:
    """Return evidence about this interpreter, and about the active environment if that is another."""
    system = facts.system
    if isinstance(system, Unknown):
        return ()
    active = active_environment(facts)
    other = [f"the environment {active} is active, and this interpreter is not of it"] if active else []
    return (f"the interpreter is {system.executable} (Python {system.python})", *other)


def version_of(installed: TensorflowFacts, name: str) -> str:
    """Return ``NAME VERSION`` of a distribution that TensorFlow requires; its name alone if no version is known."""
    known = next((requirement for requirement in installed.requirements if requirement.name == name), None)
    return f"{name} {known.version}" if known is not None and known.version else name
