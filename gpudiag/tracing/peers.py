"""Which tasks of a program's cluster answer."""

from __future__ import annotations

from collections.abc import Iterable

from gpudiag.hardware.peers import MOST
from gpudiag.tracing.notes import Notes


def addresses(processes: Iterable[Notes], *, but_own: bool) -> list[str]:
    """Return the addresses of the clusters' tasks; with ``but_own`` without those that the program itself runs."""
    clusters = [note for notes in processes for note in notes.of("cluster")]
    own = {note["task"] for note in clusters} if but_own else set()
    found = [address for note in clusters for task, address in note["tasks"] if task not in {note["task"], *own}]
    return list(dict.fromkeys(found))[:MOST]
