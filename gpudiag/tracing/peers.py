"""Which tasks of a program's cluster answer: each is really connected to, from this machine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable

from gpudiag.tracing.notes import Notes

_MOST = 64
_WITHIN_S = 3.0
"""Seconds for all peers together; they are asked at the same time."""


def addresses(processes: Iterable[Notes], *, but_own: bool) -> list[str]:
    """Return the addresses of the clusters' tasks; with ``but_own`` without those that the program itself runs."""
    clusters = [note for notes in processes for note in notes.of("cluster")]
    own = {note["task"] for note in clusters} if but_own else set()
    found = [address for note in clusters for task, address in note["tasks"] if task not in {note["task"], *own}]
    return list(dict.fromkeys(found))[:_MOST]


def asked(several: Iterable[str]) -> dict[str, str]:
    """Return for each address ``host:port`` what connecting to it ended with; "" if it accepts connections."""
    answers = dict.fromkeys(several, f"no answer within {_WITHIN_S:g} s")
    threads = [threading.Thread(target=_ask, args=(address, answers), daemon=True) for address in answers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_WITHIN_S)  # each has begun by then, and most have ended
    return dict(answers)


def _ask(address: str, answers: dict[str, str]) -> None:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_WITHIN_S):
            answers[address] = ""
    except TimeoutError:
        pass
    except (OSError, ValueError, OverflowError) as error:  # a port that is not a number
        answers[address] = getattr(error, "strerror", None) or str(error)
