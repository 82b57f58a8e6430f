"""Finds changed facts by one walk over the records of both reports, whatever families they have.

Records in lists are paired by identity, so that a new package does not look like a change of all packages after it. A
field that one report lacks because its gpudiag did not know it is not compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from gpudiag.comparison.likeness import is_loose, is_same
from gpudiag.model.change import Change, ChangeSubject
from gpudiag.model.fact_names import PASSING_VARIABLES, SAID_BY_ANOTHER, Place, lasting_fields
from gpudiag.model.facts import Distribution, FactFamily, Facts, NvmlDevice, Unknown

IDENTITY: Mapping[type, tuple[tuple[str, ...], ...]] = {
    NvmlDevice: (("uuid",), ("pci_bus_id",)),
    Distribution: (("name", "location"), ("name",)),
}
"""The fields that identify a record of each type, in order of preference; for other types it is the first field."""

_LABELS: Mapping[type, str] = {NvmlDevice: "GPU {pci_bus_id}"}
"""The labels of records that are not named by their identity."""

_ORDERED = frozenset({"libraries.runpath", "cuda.uuids"})
"""Lists whose order matters."""


@dataclass(frozen=True)
class _Value:
    """A value, and its JSON in a loaded report; None for a report that has not been saved, which has all fields."""

    value: Any
    plain: Any = None

    def has(self, field: str) -> bool:
        return not isinstance(self.plain, dict) or field in self.plain

    def __getitem__(self, key: Any) -> _Value:
        """Return a field of a record, the value of a key, or an element of a list."""
        inner = getattr(self.value, key) if isinstance(self.value, msgspec.Struct) else self.value[key]
        known = isinstance(self.plain, dict | list)
        return _Value(inner, self.plain[key] if known else None)

    def elements(self) -> list[_Value]:
        return [self[number] for number in range(len(self.value))]


def changes(old: Facts, new: Facts, old_plain: Any = None, new_plain: Any = None) -> Iterator[Change]:
    """Yield the differences; the plain facts are the JSON from which a report was loaded."""
    yield from _walk(Place(), _Value(old, old_plain), _Value(new, new_plain))


def _walk(place: Place, old: _Value, new: _Value) -> Iterator[Change]:
    a, b = old.value, new.value
    if place.path in SAID_BY_ANOTHER:
        return
    if isinstance(a, msgspec.Struct) and type(a) is type(b):
        for field in lasting_fields(type(a)):
            if old.has(field) and new.has(field):
                yield from _walk(place.at(field), old[field], new[field])
    elif isinstance(a, dict) and isinstance(b, dict):
        yield from _keyed(place, {key: old[key] for key in a}, {key: new[key] for key in b}, str)
    elif isinstance(a, tuple) and isinstance(b, tuple):
        yield from _list(place, old, new)
    elif not is_same(a, b, unit=re.split(r"[._]", place.path)[-1]):
        yield _change(place, a, b)


def _list(place: Place, old: _Value, new: _Value) -> Iterator[Change]:
    before, after = old.elements(), new.elements()
    if any(isinstance(side.value, msgspec.Struct) for side in (*before, *after)):
        for gone, come in _paired(before, after):
            item = (gone or come).value  # type: ignore[union-attr]  # one of them is there
            yield from _both(place.of(_identity(item), _label(item)), gone, come)
        return
    texts = [[str(item.value) for item in side] for side in (before, after)]
    before_keys, after_keys = ({text: _Value(True) for text in side} for side in texts)
    yield from _keyed(place, before_keys, after_keys, lambda _: "")
    if place.path in _ORDERED and sorted(texts[0]) == sorted(texts[1]) and texts[0] != texts[1]:
        yield _change(place, ", ".join(texts[0]), ", ".join(texts[1]))


def _keyed(
    place: Place, old: dict[str, _Value], new: dict[str, _Value], said: Callable[[object], str]
) -> Iterator[Change]:
    """Yield the changes of a dictionary, or of a list whose elements are their own keys and need no text."""
    unmatched = [key for key in new if key not in old]
    loose = [key for key in unmatched if is_loose(key)]
    for key, value in old.items():
        candidates = unmatched if is_loose(key) else loose
        other = key if key in new else next((candidate for candidate in candidates if is_same(key, candidate)), None)
        if other in unmatched:
            unmatched.remove(other)
            loose = [item for item in loose if item != other]
        yield from _both(place.of(key), value, None if other is None else new[other], said)
    for key in unmatched:
        yield from _both(place.of(key), None, new[key], said)


def _both(
    place: Place, old: _Value | None, new: _Value | None, said: Callable[[object], str] | None = None
) -> Iterator[Change]:
    if PASSING_VARIABLES.fullmatch(place.label) and place.path.startswith("environment."):
        return
    if old is not None and new is not None:
        yield from _walk(place, old, new)
        return
    told = said or _summary
    there = [None if value is None else told(value.value) or "there" for value in (old, new)]
    yield Change(ChangeSubject.FACT, place.name, there[0], there[1], path=place.path)


def _change(place: Place, old: object, new: object) -> Change:
    size = place.path.endswith("_bytes")
    name = place.name.removesuffix(" bytes") if size else place.name
    if place.label and place.field == "version" and (old is None or new is None):
        name = f"{name} version"
    return Change(ChangeSubject.FACT, name, _said(old, size=size), _said(new, size=size), path=place.path)


def _said(value: object, *, size: bool) -> str | None:
    """Return a value as a text for people; None for None."""
    if value is None:
        return None
    if isinstance(value, Unknown):
        return f"not known: {value.reason}"
    if isinstance(value, FactFamily):
        return "known"
    if isinstance(value, msgspec.Struct):
        return _summary(value) or "known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "empty"
    return f"{int(str(value)) >> 20} MiB" if size else str(value)


def _summary(value: object) -> str:
    """Return the main value of an added or removed record: its version, or else its first text that is not its
    identity."""
    if not isinstance(value, msgspec.Struct):
        return str(value)
    texts = {name: text for name in value.__struct_fields__ if isinstance(text := getattr(value, name), str) and text}
    version = texts.get("version") or texts.get("name" if isinstance(value, NvmlDevice) else "")
    rest = (text for name, text in texts.items() if name not in _ways(type(value))[0])
    return version or next(rest, "")


def _ways(kind: type) -> tuple[tuple[str, ...], ...]:
    fields: tuple[str, ...] = kind.__struct_fields__  # type: ignore[attr-defined]
    return IDENTITY.get(kind, (fields[:1],))


def _identity(value: Any) -> str:
    return str(getattr(value, _ways(type(value))[-1][0]))


def _label(value: Any) -> str:
    label = _LABELS.get(type(value))
    return _identity(value) if label is None else label.format_map(msgspec.structs.asdict(value))


def _paired(before: Iterable[_Value], after: Iterable[_Value]) -> list[tuple[_Value | None, _Value | None]]:
    """Return pairs of the same record in both reports, with None where one is missing."""
    gone, come = list(before), list(after)
    pairs: list[tuple[_Value | None, _Value | None]] = []
    kinds = {type(value.value) for value in (*gone, *come)}
    for level in range(max(len(_ways(kind)) for kind in kinds)):
        for value in list(gone):
            way = _ways(type(value.value))[min(level, len(_ways(type(value.value))) - 1)]
            surely = level + 1 < len(_ways(type(value.value)))
            other = next((two for two in come if _is_itself(value.value, two.value, way, surely=surely)), None)
            if other is not None:
                gone.remove(value)
                come.remove(other)
                pairs.append((value, other))
    return [*pairs, *((value, None) for value in gone), *((None, two) for two in come)]


def _is_itself(first: Any, two: Any, way: tuple[str, ...], *, surely: bool) -> bool:
    """Return whether two records agree in the fields of ``way``; ``surely``: placeholders do not count as equal."""
    pairs = [(getattr(first, name), getattr(two, name)) for name in way] if type(first) is type(two) else []
    return bool(pairs) and all(a == b if surely else is_same(a, b) for a, b in pairs)
