"""Settings that a user may have (``settings.toml``), and what a check of a healthy machine must not say under them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from gpudiag.model.report import Broken, Report, Severity, Skipped, Verdict

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE: Mapping[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


@dataclass(frozen=True)
class Setting:
    """One value of a variable, or of a flag within one."""

    variable: str
    value: str
    flag: str = ""
    reader: str = ""
    """The part of the table that it is from: what reads it."""

    @property
    def name(self) -> str:
        return f"--{self.flag} of {self.variable}" if self.flag else self.variable

    def __str__(self) -> str:
        return f"{self.variable}=--{self.flag}={self.value}" if self.flag else f"{self.variable}={self.value}"


@dataclass(frozen=True)
class Changed:
    """A setting that changes what TensorFlow does with GPUs, and so what is found."""

    setting: Setting
    reason: str
    must: dict[str, str]
    """Probe (or a pattern of names), ``causes`` or ``verdict`` to words that are said of it."""

    def otherwise(self, faults: Mapping[str, str]) -> list[str]:
        """Return what :func:`faults` has that it must not, or lacks."""
        wrong = [
            f"{name}: {said}"
            for name, said in faults.items()
            if not any(fnmatchcase(name, pattern) and words in said for pattern, words in self.must.items())
        ]
        return wrong + [
            f"{pattern}: nothing of {words!r}"
            for pattern, words in self.must.items()
            if not any(fnmatchcase(name, pattern) and words in said for name, said in faults.items())
        ]


def every() -> tuple[Setting, ...]:
    """Return each value of each variable under which nothing may be found."""
    return tuple(_every())


def _every() -> Iterator[Setting]:
    for reader, part in TABLE.items():
        if reader == "changed":
            continue
        variable = part.get("flags")
        for name, values in part["values"].items():
            for value in values:
                yield Setting(variable or name, value, name if variable else "", reader)


def changed() -> tuple[Changed, ...]:
    """Return the settings under which something must be found."""
    return tuple(
        Changed(Setting(*text.split("=", 1)), part["reason"], part["must"])
        for part in TABLE["changed"]
        for text in part["settings"]
    )


def rounds(settings: Iterable[Setting], number: int = 3) -> tuple[tuple[Setting, ...], ...]:
    """Return rounds in which each setting is once and each variable at most once.

    The first value of a variable is in the first of ``number`` rounds, that of the next in the second and so on, so
    that no round has all that is off. A variable with more values has them in further rounds.
    """
    named: dict[str, list[Setting]] = {}
    for setting in settings:
        named.setdefault(setting.name, []).append(setting)
    made: list[list[Setting]] = [[] for _ in range(max([number, *map(len, named.values())]))]
    for start, values in enumerate(named.values()):
        places = islice(cycle(made[:number]), start % number, start % number + number)
        for setting, together in zip(values, (*places, *made[number:]), strict=False):
            together.append(setting)
    return tuple(map(tuple, made))


def environment(settings: Iterable[Setting], folder: Path) -> dict[str, str]:
    """Return the variables that these settings are, with files and folders in ``folder``."""
    found: dict[str, str] = {}
    for setting in settings:
        value = setting.value.replace("{folder}", str(folder))
        if setting.flag:
            value = f"{found.get(setting.variable, '')} --{setting.flag}={value}".lstrip()
        found[setting.variable] = value
    return found


def faults(report: Report) -> dict[str, str]:
    """Return what nothing may say of a healthy machine: probe, ``causes`` or ``verdict`` to what it says."""
    said = {row.probe: text for row in report.rows if (text := _fault(row.outcome))}
    if causes := (*report.diagnosis.causes, *report.diagnosis.folded):
        said["causes"] = ", ".join(cause.cause_id for cause in causes)
    if failed := report.diagnosis.failed:
        said["diagnosis"] = ", ".join(failure.part for failure in failed)
    return said if report.verdict is Verdict.PASS else {"verdict": report.verdict.value, **said}


def _fault(outcome: Any) -> str:
    if isinstance(outcome, Broken):
        return f"broken: {outcome.cause.value}: {outcome.detail}"
    if isinstance(outcome, Skipped):
        return "" if "needs real GPUs" in outcome.reason else f"skipped: {outcome.reason}"
    above = [finding for finding in outcome.findings if finding.severity is not Severity.NOTE]
    return "; ".join(f"{finding.severity.value}: {finding.message}" for finding in above)


def culprits(settings: Sequence[Setting], is_wrong: Callable[[Sequence[Setting]], bool]) -> tuple[Setting, ...]:
    """Return those of ``settings``, under which all together ``is_wrong``, that are so alone; by halving.

    If neither half is wrong by itself, it is all of them: they are so together.
    """
    if len(settings) == 1:
        return tuple(settings)
    middle = len(settings) // 2
    wrong = [half for half in (settings[:middle], settings[middle:]) if is_wrong(half)]
    return tuple(setting for half in wrong for setting in culprits(half, is_wrong)) or tuple(settings)
