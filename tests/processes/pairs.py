"""Probes with a second process: pairs that behave and pairs that do not, each a ``measure`` and a ``peer``."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable

from gpudiag import probe
from gpudiag.model.facts import Facts
from gpudiag.probe import Context, Findings


class Reading(probe.Reading):
    """What the probe's process was told."""

    own: int
    """Process id of the one that measured."""
    told: int | None = None
    """What the other one told."""

    def figure(self) -> str:
        return f"told {self.told}"


Pair = tuple[Callable[[Context], Reading], Callable[[Context], object]]


class Fault(probe.Faults):
    """Nothing."""


def judge(reading: Reading, facts: Facts) -> Findings:
    return iter(())


def meets(ctx: Context) -> Reading:
    """Meet twice; the second time shows that the other process is alive still."""
    ctx.peer.meet("first", os.getpid())
    return Reading(os.getpid(), ctx.peer.meet("second", os.getpid()))


def ends(ctx: Context) -> Reading:
    return Reading(os.getpid())


def raises(ctx: Context) -> Reading:
    raise ValueError("nothing works")


def segfaults(ctx: Context) -> Reading:
    print("the last words", file=sys.stderr, flush=True)
    ctypes.string_at(0)
    raise AssertionError


def hangs(ctx: Context) -> Reading:
    while True:
        time.sleep(3600)


def returns_nonsense(ctx: Context) -> Reading:
    ctx.peer.meet("first")
    ctx.peer.meet("second", object())
    raise AssertionError


PAIRS: dict[str, Pair] = {
    "both_meet": (meets, meets),
    "peer_raises": (meets, raises),
    "peer_dies": (meets, segfaults),
    "peer_hangs": (meets, hangs),
    "peer_ends_early": (meets, ends),
    "peer_tells_what_is_no_json": (meets, returns_nonsense),
    "probe_ends_early": (ends, meets),
    "probe_raises": (raises, meets),
    "probe_dies": (segfaults, meets),
    "probe_hangs": (hangs, meets),
}
