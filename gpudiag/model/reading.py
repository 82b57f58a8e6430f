"""Readings: the measurements of a probe's child, and how saved ones are read.

A run has the record that its probe declares. A saved report has plain JSON, a :class:`SavedReading`, until somebody
asks the probes of this gpudiag to decode it (:func:`gpudiag.catalogue.decode_readings`). Both are written as the same
JSON.
"""

from __future__ import annotations

from typing import Any

import msgspec


class AnyReading:
    """Base of what a row can have as its reading."""

    __slots__ = ()


class SavedReading(dict[str, Any], AnyReading):
    """The reading of a saved report, as plain JSON."""

    __slots__ = ()


def decode_hook(kind: type, value: object) -> SavedReading:
    """Tell ``msgspec`` how to decode a reading: the ``dec_hook`` for all types that contain rows."""
    if kind is not AnyReading:
        raise NotImplementedError(f"cannot decode {kind}")
    if not isinstance(value, dict):
        raise TypeError(f"Expected `object`, got `{type(value).__name__}`")
    return SavedReading(value)


def schema_hook(kind: type) -> dict[str, Any]:
    """Tell ``msgspec`` the JSON Schema of a reading: each probe has its own."""
    if kind is not AnyReading:
        raise NotImplementedError(f"no schema for {kind}")
    return {"type": "object"}


def plain_reading(reading: AnyReading | None) -> SavedReading | None:
    """Return a reading as a saved report has it: numbers, texts, sequences and dictionaries alone."""
    if reading is None or isinstance(reading, SavedReading):
        return reading
    return SavedReading(msgspec.to_builtins(reading))


_WITHOUT_LIST = frozenset(
    {
        "discovery.device_details",
        "discovery.device_order",
        "discovery.logical_devices",
        "discovery.physical_devices",
        "visibility.mask",
    }
)
"""Probes that judge themselves whether TensorFlow lists their GPUs: they never had the fields ``given`` and
``seen``."""


def upgraded_reading(probe: str, reading: dict[str, Any]) -> dict[str, Any]:
    """Return the reading of a probe of GPUs in a report of schema 1 as it would be saved today.

    The oldest reports have the GPUs as ``pci_bus_id``, as a number, or beside the devices of ``replicas``; and they say
    of the first GPU alone whether TensorFlow listed it, or have the number deeper inside.
    """
    if probe in _WITHOUT_LIST:
        return reading
    plain = dict(reading)
    if "pci_bus_id" in plain:
        plain["given"] = [plain.pop("pci_bus_id")]
        plain["seen"] = int(plain.get("pool", plain.get("kernel")) is not None)
    elif isinstance(plain.get("replicas"), dict):
        plain |= plain.pop("replicas")
    elif isinstance(plain.get("given"), int):
        plain["given"] = [""] * min(plain["given"], _MOST_GPUS)
    elif isinstance(plain.get("seen"), bool) and isinstance(plain.get("given"), list):  # of the first GPU
        plain["seen"] = len(plain["given"]) if plain["seen"] else 0
    if "seen" not in plain:
        inner = [part.get("seen", part.get("before")) for part in plain.values() if isinstance(part, dict)]
        plain["seen"] = min((seen for seen in inner if isinstance(seen, int)), default=0)
    return plain


_MOST_GPUS = 1024
"""The most GPUs that an upgraded reading may have, so that a made-up number in a report does not fill the memory."""
