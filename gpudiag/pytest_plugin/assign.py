"""Devices for workers: chosen out of the caller's mask, locked, shared where there are more workers than devices."""

from __future__ import annotations
