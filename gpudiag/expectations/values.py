"""Writes the values of a good machine in TOML; "" for a value that the report does not know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from packaging.version import InvalidVersion, Version

from gpudiag.expectations import seen
from gpudiag.expectations.seen import Seen
from gpudiag.model.expectations import AREA
from gpudiag.model.report import Judged, Report, Row
from gpudiag.probes import listing
from gpudiag.simulator.sizes import MIB


def quoted(text: str) -> str:
    """Return a text as a TOML string: a JSON string in ASCII is one."""
    import json

    return json.dumps(text)


def listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(quoted, texts))}]"


def at_least_version(text: str | None) -> str:
    return quoted(f">={text}") if text and _is_version(text) else ""


def _least(values: Iterable[Any]) -> Any:
    numbers = list(values)
    return None if not numbers or None in numbers else min(numbers)


def size(found: Seen) -> str:
    least_bytes = _least(found.values())
    return "" if least_bytes is None else quoted(f"{least_bytes // MIB}MiB")


def least(found: Seen) -> str:
    number = _least(found.values())
    return "" if number is None else str(number)


def least_rate(found: Seen, unit: str) -> str:
    """Return the slowest rate less a tenth: runs of one machine differ, and so do healthy GPUs of one model."""
    number = _least(found.values())
    return "" if number is None else quoted(f">={float(f'{0.9 * number:.2g}'):g}{unit}")


def tensorflow(report: Report) -> str:
    versions = [version for version in seen.tensorflow(report).values() if version and _is_version(version)]
    return quoted(f"=={'.'.join(map(str, Version(versions[0]).release[:2]))}.*") if versions else ""


def capability(report: Report) -> str:
    values = [version for version in seen.capability(report).values() if version and _is_version(version)]
    return at_least_version(min(values, key=Version)) if values else ""


def mig(report: Report) -> str:
    layouts = set(seen.mig(report).values())
    if len(layouts) != 1 or (layout := layouts.pop()) is None:
        return ""
    return quoted(layout) if isinstance(layout, str) else listed(f"{size}MiB" for size in layout)


def peers(report: Report) -> str:
    return "true" if set(seen.peers(report).values()) == {"ok"} else ""


def passing(report: Report) -> str:
    """Return the areas in which every row passed, and the passed probes of the other areas."""
    patterns: list[str] = []
    for area, rows in report.areas.items():
        if area == AREA:
            continue
        if all(_passed(row) for row in rows) and {row.probe for row in rows} == set(listing.chosen([area])):
            patterns.append(area)
        else:
            names = dict.fromkeys(row.probe for row in rows)
            patterns += [name for name in names if all(_passed(row) for row in rows if row.probe == name)]
    return f"[\n{''.join(f'    {quoted(pattern)},{chr(10)}' for pattern in patterns)}]" if patterns else ""


def _passed(row: Row) -> bool:
    return isinstance(row.outcome, Judged) and row.status in ("pass", "note")


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True
