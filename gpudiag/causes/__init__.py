"""Every cause that ships, found by walking the folders of the stages; see :mod:`gpudiag.cause`."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path

from gpudiag.catalogue import documentation
from gpudiag.cause import CatalogueCause, Cause
from gpudiag.errors import CatalogueError
from gpudiag.model import renamed
from gpudiag.model.diagnosis import Stage


@cache
def names() -> dict[str, Stage]:
    """Return every name and its stage, ordered by stage and then by name; no file of a cause is read.

    Raises :class:`CatalogueError` for two of one name.
    """
    found: dict[str, Stage] = {}
    for stage in Stage:
        for module in pkgutil.iter_modules([str(Path(__path__[0], stage.name.lower()))]):
            if module.name in found:
                raise CatalogueError(f"two causes are called {module.name!r}")
            found[module.name] = stage
    return found


@cache
def get(name: str) -> CatalogueCause | None:
    """Return the cause that is called ``name``, or was in earlier reports; or None."""
    if name in renamed.CAUSES:
        return get(renamed.CAUSES[name])
    stage = names().get(name)
    if stage is None:
        from gpudiag.causes import messages  # not above: it imports the table of messages, and most callers need none

        return messages.all_of_them().get(name)
    module = importlib.import_module(f"{__name__}.{stage.name.lower()}.{name}")
    sentence, _, why = documentation(module).partition("\n\n")
    declared: Cause = module.CAUSE
    find_in_log = getattr(module, "find_in_log", None)
    return CatalogueCause(
        name, stage, " ".join(sentence.split()), " ".join(why.split()), declared, module.find, find_in_log
    )


@cache
def all_of_them() -> tuple[CatalogueCause, ...]:
    """Return every cause, in the order of :func:`names`."""
    return tuple(cause for cause in map(get, names()) if cause is not None)


def explaining(sign: CatalogueCause) -> tuple[str, ...]:
    """Return the causes that explain a sign; () for a cause that is not a sign.

    A sign is a fact that the diagnosis does not name as a cause: that something is set, or does not answer. A report
    that has the sign and one of these causes gives the command of the cause.
    """
    if not sign.declared.row_only:
        return ()
    return tuple(cause.id for cause in all_of_them() if sign.declared.finding in cause.declared.views)
