"""Checks a value of an expectations file, and compares it with the machine."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from gpudiag.errors import UsageError
from gpudiag.probes import listing
from gpudiag.simulator.sizes import MIB, parse_size

MOST_GPUS = 1024
_LONGEST = 200
"""The most characters of a version range, whose parts are compared pair by pair."""


class Comparison:
    """Checks a value of an expectations file, and compares it with the machine."""

    types: tuple[type, ...] = (str,)
    wanted = ""
    """The allowed values, for errors and for the manual."""

    def check(self, value: Any) -> None:
        """Raise ``ValueError`` with the reason if no machine can meet ``value``, or if it is meaningless."""

    def is_met(self, value: Any, seen: Any) -> bool:
        raise NotImplementedError

    def text(self, seen: Any) -> str:
        """Return the machine's value, for a person."""
        return str(seen)

    def expected(self, value: Any) -> str:
        """Return the expected value, for a person."""
        return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


class Range(Comparison):
    """A range of versions, in pip's notation."""

    wanted = 'a range of versions in quotes, such as ">=550" or ">=2.19,<2.22"'

    def check(self, value: Any) -> None:
        if not value.strip():
            raise ValueError("it is empty")
        if not _is_possible(_range(value)):
            raise ValueError("no version is in this range")

    def is_met(self, value: Any, seen: Any) -> bool:
        try:
            return _range(value).contains(Version(str(seen)), prereleases=True)
        except InvalidVersion:
            return False


class Number(Range):
    """A number, or a range of numbers."""

    types = (int, str)
    wanted = 'a whole number above 0, such as 4, or a range in quotes, such as ">=4"'

    def check(self, value: Any) -> None:
        if isinstance(value, str):
            super().check(value)
            if not any(_range(value).contains(str(number)) for number in range(1, MOST_GPUS)):
                raise ValueError("no number of GPUs is in this range")
        elif not 0 < value < MOST_GPUS:
            raise ValueError(f"a machine has 1 to {MOST_GPUS - 1} GPUs")

    def is_met(self, value: Any, seen: Any) -> bool:
        return super().is_met(value, seen) if isinstance(value, str) else bool(seen == value)


class LeastBytes(Comparison):
    """A least number of bytes."""

    wanted = 'an amount of memory in quotes, such as "79GiB" or "9728MiB"'

    def check(self, value: Any) -> None:
        _bytes(value)

    def is_met(self, value: Any, seen: Any) -> bool:
        return bool(seen >= _bytes(value))

    def text(self, seen: Any) -> str:
        return f"{seen // MIB} MiB"

    def expected(self, value: Any) -> str:
        return f"at least {value}"


class Least(Comparison):
    """A least number."""

    types = (int,)

    def __init__(self, most: int, wanted: str) -> None:
        self.most = most
        self.wanted = wanted

    def check(self, value: Any) -> None:
        if not 0 < value <= self.most:
            raise ValueError(f"it is not between 1 and {self.most}")

    def is_met(self, value: Any, seen: Any) -> bool:
        return bool(seen >= value)

    def expected(self, value: Any) -> str:
        return f"at least {value}"


class Most(Comparison):
    """A most number of seconds."""

    types = (int, float)
    wanted = "a number of seconds above 0, such as 120"

    def check(self, value: Any) -> None:
        if not (math.isfinite(value) and value > 0):
            raise ValueError("it is not above 0")

    def is_met(self, value: Any, seen: Any) -> bool:
        return bool(seen <= value)

    def text(self, seen: Any) -> str:
        return f"{seen:.1f} s"

    def expected(self, value: Any) -> str:
        return f"at most {value:g} s"


class NamePatterns(Comparison):
    """Compares a name with a list of patterns, in which ``*`` stands for any letters."""

    types = (tuple,)
    wanted = 'a list of names in quotes, such as ["NVIDIA H200*"]; * stands for any letters'

    def check(self, value: Any) -> None:
        if not value or not all(item.strip() for item in value):
            raise ValueError("it is empty")

    def is_met(self, value: Any, seen: Any) -> bool:
        return any(fnmatchcase(seen, pattern) for pattern in value)

    def expected(self, value: Any) -> str:
        return " or ".join(value)


class Quantity(Comparison):
    """Bounds of a measured number."""

    def __init__(self, example: str, unit: str = "", *, is_unit_known: bool = False) -> None:
        """``is_unit_known``: the name of the key says the unit, so that a value may leave it out."""
        self.unit, self._unit_known = unit, is_unit_known or not unit
        self.wanted = (
            f'bounds in quotes, such as "{example}": >=, >, <= or <, and a number{f" in {unit}" if unit else ""}'
        )

    def check(self, value: Any) -> None:
        bounds = self._bounds(value)
        least = max([number for sign, number in bounds if sign in _LEAST], default=0.0)
        most = min([number for sign, number in bounds if sign not in _LEAST], default=math.inf)
        if least > most or most <= 0:
            raise ValueError("no number is within these bounds")

    def is_met(self, value: Any, seen: Any) -> bool:
        return all(_WITHIN[sign](seen, number) for sign, number in self._bounds(value))

    def text(self, seen: Any) -> str:
        return f"{seen:.3g} {self.unit}".strip()

    def _bounds(self, value: str) -> list[tuple[str, float]]:
        """Return the sign and the number of each bound; raises ``ValueError``."""
        return [self._bound(part.strip()) for part in value.split(",")]

    def _bound(self, text: str) -> tuple[str, float]:
        sign = next((sign for sign in _WITHIN if text.startswith(sign)), "")
        if not sign:
            raise ValueError(f"{text!r} does not begin with >=, >, <= or <")
        amount = text.removeprefix(sign).strip()
        if not self._unit_known and not amount.endswith(self.unit):
            raise ValueError(f"{amount!r} is not in {self.unit}")
        try:
            number = float(amount.removesuffix(self.unit))
        except ValueError:
            number = math.nan
        if not 0 <= number < math.inf:
            raise ValueError(f"{amount!r} is not a number{f' in {self.unit}' if self.unit else ' without a unit'}")
        return sign, number


_WITHIN: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_LEAST = (">=", ">")


class Passing(Comparison):
    """Rows that must pass; notes are allowed."""

    types = (tuple,)
    wanted = 'a list of areas, probes or globs in quotes, such as ["discovery", "memory.growth"]'

    def check(self, value: Any) -> None:
        if not value:
            raise ValueError("it is empty")
        try:
            listing.chosen(value)
        except UsageError as error:
            raise ValueError(str(error)) from None

    def is_met(self, value: Any, seen: Any) -> bool:
        return seen in ("pass", "note")

    def expected(self, value: Any) -> str:
        return f"a pass of {super().expected(value)}"


class Yes(Comparison):
    """True, the only allowed value of a yes-or-no expectation."""

    types = (bool,)
    wanted = "true; leave the key out if it is not needed"

    def check(self, value: Any) -> None:
        if not value:
            raise ValueError("false expects nothing")

    def is_met(self, value: Any, seen: Any) -> bool:
        return bool(seen == "ok")

    def expected(self, value: Any) -> str:
        return "ok"


class Mig(Comparison):
    """Compares the MIG layout of a GPU with the expected one: none, or instances of these sizes."""

    types = (str, tuple)
    wanted = '"disabled", or the memory of the MIG instances of each GPU, such as ["9728MiB", "9728MiB"]'

    def check(self, value: Any) -> None:
        if isinstance(value, str):
            if value != "disabled":
                raise ValueError("it is neither 'disabled' nor a list")
        elif not value:
            raise ValueError("it is empty")
        else:
            for item in value:
                _bytes(item)

    def is_met(self, value: Any, seen: Any) -> bool:
        if isinstance(value, str):
            return bool(seen == value)
        return not isinstance(seen, str) and sorted(seen) == sorted(_bytes(item) // MIB for item in value)

    def text(self, seen: Any) -> str:
        return seen if isinstance(seen, str) else ", ".join(f"{item} MiB" for item in seen) or "no instance"


def _bytes(text: str) -> int:
    if re.fullmatch(r"[\d.]+", text.strip()):
        raise ValueError(f"{text!r} has no unit; write such as 16GiB or 512MiB")
    try:
        return parse_size(text)
    except UsageError as error:
        raise ValueError(str(error)) from None


def _range(text: str) -> SpecifierSet:
    if len(text) > _LONGEST:
        raise ValueError(f"it has more than {_LONGEST} letters")
    try:
        specifiers = SpecifierSet(text)
    except InvalidSpecifier:
        raise ValueError("it is not a range of versions") from None
    if any(specifier_set.operator == "===" for specifier_set in specifiers):
        raise ValueError("=== compares letters, not versions; write ==")
    return specifiers


def _is_possible(versions: SpecifierSet) -> bool:
    """Return whether any version is in the range: its ends are tried, a version just above each, and 0."""
    ends = [Version(version.version.removesuffix(".*")) for version in versions]
    release = [".".join(map(str, (*end.release, 0, 0, 0, 1))) for end in ends]
    tried = ["0", *map(str, ends), *(f"{end.epoch}!{text}" for end, text in zip(ends, release, strict=True))]
    return any(versions.contains(text, prereleases=True) for text in tried)
