"""Options of commands, each declared once: as the field of a record, with its type, default and help.

The command line makes an option of each field (:mod:`gpudiag.cli.binding`): ``lock_wait_s`` is ``--lock-wait``,
``GPUDIAG_LOCK_WAIT`` and the key ``lock-wait`` of a configuration file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DECLARED = "option"
"""The key of a field's metadata that holds the :class:`Declared` of its option."""


@dataclass(frozen=True)
class Declared:
    """The properties of an option that the type and the default of its field do not show."""

    help: str
    flags: tuple[str, ...] = ()
    """Short forms, such as ``-q``."""
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    """The smallest number that the option takes; if it is None, seconds must be above 0."""
    metavar: str | None = None
    type: Any = None
    """Converts the value, if the type of the field does not say how."""
    hidden: bool = False


def option(help: str, *, default: Any = None, **declared: Any) -> Any:  # noqa: A002  # as all that take options call it
    """Return a field of a dataclass that is an option of a command; see :class:`Declared`."""
    return field(default=default, metadata={DECLARED: Declared(help, **declared)})
