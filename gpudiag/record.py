"""The base of every typed record: immutable, strict, and the same in memory and in JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    # msgspec inherits frozen=True; mypy (2.4) wants it repeated on every subclass, so it does not know.
    class Record(msgspec.Struct): ...

else:

    class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """An immutable record; decoding refuses unknown fields and wrong types (``msgspec``'s strict mode)."""
