"""Which tasks of a cluster answer: each is really connected to, from this machine."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable

MOST = 64
"""More tasks than these are not asked."""
_WITHIN_S = 3.0
"""Seconds for all peers together; they are asked at the same time."""


def asked(several: Iterable[str], within_s: float = _WITHIN_S) -> dict[str, str]:
    """Return for each address ``host:port`` what connecting to it ended with; "" if it accepts connections."""
    answers = dict.fromkeys(several, f"no answer within {within_s:g} s")
    threads = [threading.Thread(target=_ask, args=(address, answers, within_s), daemon=True) for address in answers]
    until = time.monotonic() + within_s
    for thread in threads:
        thread.start()
    for thread in threads:  # one that asks for the address of a name cannot be stopped, and is not waited for
        thread.join(max(0.0, until - time.monotonic()))
    return dict(answers)


def _ask(address: str, answers: dict[str, str], within_s: float) -> None:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=within_s):
            answers[address] = ""
    except TimeoutError:
        pass
    except (OSError, ValueError, OverflowError) as error:  # a port that is not a number
        answers[address] = getattr(error, "strerror", None) or str(error)
