"""How the place that put something where TensorFlow meets it is changed: the actions for each kind of place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from shlex import quote

from gpudiag.fix import Action, Kind, Where, note, run
from gpudiag.knowledge.settings_of_files import entries, is_list
from gpudiag.model.facts import EnvironmentFacts, Provenance, ProvenanceKind, VariableProvenance

_MOST = 3
_AGAIN = {
    ProvenanceKind.SHELL: "each new shell sets it again",
    ProvenanceKind.LOGIN: "each login sets it again",
    ProvenanceKind.UNIT: "the service sets it whenever it starts",
    ProvenanceKind.KERNEL: "Jupyter sets it whenever it starts this kernel",
    ProvenanceKind.CONDA: "each activation sets it again",
    ProvenanceKind.PYTHON: "Python reads it whenever it starts",
}


def of_change(
    known: EnvironmentFacts, change: Mapping[str, str | None], about: Iterable[str]
) -> Iterator[VariableProvenance]:
    """Yield who set the variables that ``change`` takes away or replaces, and the list entries that it takes away.

    An entry that stays counts if the cause is ``about`` it: the change puts another folder before it.
    """
    folders = {str(PurePath(name)) for name in about}
    for name, value in change.items():
        old = known.variables.get(name)
        if old is None or value == old:
            continue
        kept = {str(PurePath(entry)) for _, entry in entries(name, value or "") if entry}
        of_name = [found for found in known.provenance if found.name == name]
        guilty = [found for found in of_name if found.entry in folders or (found.entry and found.entry not in kept)]
        yield from [found for found in guilty if is_list(name)][:_MOST] or [
            found for found in of_name if not found.entry
        ][:_MOST]


def sentence(found: VariableProvenance) -> str:
    """Return a line of evidence: the place that sets a variable to the value that it has, or puts an entry into it."""
    source, name = found.provenance, found.name
    what = f"{found.entry} in {name}" if found.entry else name
    if source.kind is ProvenanceKind.CONTAINER:
        return f"the first process of this container ({source.place}) was started with {what}, too"
    if source.kind is ProvenanceKind.MODULE:
        return f"the file of the loaded environment module {source.place} names {what}"
    if source.kind is ProvenanceKind.CONDA_VARIABLES:
        return f"conda keeps {what} for the environment {source.place}"
    return f"{source.place} {f'puts {found.entry} into {name}' if found.entry else f'sets {name} to this value'}"


def removal(found: VariableProvenance) -> Action:
    """Return how to take a variable, or an entry of one, out of the place that sets it."""
    source, name = found.provenance, found.name
    if source.kind is ProvenanceKind.MODULE:
        return run(f"module unload {quote(source.place)}", f"the module sets {name}", kind=Kind.SET_VARIABLE)
    if source.kind is ProvenanceKind.CONDA_VARIABLES:
        command = f"conda env config vars unset {name} -p {quote(source.place)}"
        return run(command, f"then activate the environment again: conda keeps {name} for it", kind=Kind.SET_VARIABLE)
    what = f"{found.entry} out of {name}" if found.entry else f"{name} out"
    if source.kind is ProvenanceKind.CONTAINER:
        set_by = f"the image (ENV) or the start (-e) of the container sets {name}"
        return note(
            f"{set_by}: start it without {found.entry or 'it'}", kind=Kind.START_CONTAINER, where=Where.SCHEDULER
        )
    place = f"in {source.place}" if found.entry else f"of {source.place}"
    return note(f"take {what} {place}, or {_AGAIN[source.kind]}", kind=Kind.SET_VARIABLE)


def off_the_module_path(folder: str, source: Provenance) -> Action:
    """Return how to keep a start-up file of Python from putting ``folder`` on ``sys.path``."""
    again = _AGAIN[ProvenanceKind.PYTHON]
    return note(f"take {folder} out of {source.place}, which puts it on sys.path: {again}", kind=Kind.CONFIGURE)


def off_the_loaders_path(folder: str, place: str) -> Action:
    """Return how to take ``folder`` out of the loader's configuration; ``place`` is the file with its line."""
    file, _, line = place.rpartition(" line ")
    return run(
        f"sudo sed -i '{line}d' {quote(file)} && sudo ldconfig",
        f"takes {folder} out of the loader's path for all programs",
        kind=Kind.CONFIGURE,
    )
