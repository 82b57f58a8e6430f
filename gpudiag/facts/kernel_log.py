"""The last lines of NVIDIA's driver in the kernel's log, if this user may read it (``kernel.dmesg_restrict``)."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from gpudiag.facts import printable

_RECORD_BYTES = 8192
"""The longest record of the kernel log; the kernel refuses a shorter buffer (EINVAL)."""
_MOST_RECORDS = 100_000
_KEPT = 30
_OF_THE_DRIVER = re.compile(r"^(NVRM: .*|nvidia[ -].*)$")
_ORDINARY = re.compile(
    r"NVRM: loading NVIDIA|vgaarb|module verification|NVLink Core is being initialized", re.IGNORECASE
)


def kernel_log(root: Path = Path("/")) -> tuple[str, ...] | None:
    """Return the last lines of NVIDIA's driver in ``root/dev/kmsg``; None if it is not readable.

    Lines that every ordinary start logs are left out.
    """
    try:
        file = os.open(root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        lines = (line for line in _lines(file) if _OF_THE_DRIVER.match(line) and not _ORDINARY.search(line))
        return tuple(map(printable, deque(lines, _KEPT)))
    except OSError:
        return None
    finally:
        os.close(file)


def _lines(file: int) -> Iterator[str]:
    """Yield the text of each record, ``6,339,5140900,-;NVRM: ...``; each read returns one record, on a simulated
    machine all."""
    for _ in range(_MOST_RECORDS):
        try:
            record = os.read(file, _RECORD_BYTES)
        except BlockingIOError:
            return
        except BrokenPipeError:  # the oldest records were overwritten meanwhile
            continue
        if not record:
            return
        for line in record.decode(errors="replace").splitlines():
            yield re.sub(r"^\d+,\d+,\d+,[^;]*;", "", line)
