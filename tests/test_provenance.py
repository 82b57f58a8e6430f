"""The place that sets a variable is named beside each fix that changes the variable."""

from __future__ import annotations

import msgspec
import pytest

from examples.hosts.libraries import example_copy, example_facts, example_library
from gpudiag import causes
from gpudiag.cause import Evidence
from gpudiag.model.diagnosis import RootCause
from gpudiag.model.facts import EnvironmentFacts, LibraryFacts, Provenance, ProvenanceKind, VariableProvenance

OLD = "/opt/old/lib"
PATH = "LD_LIBRARY_PATH"


def older_first(kind: ProvenanceKind, place: str, entry: str = OLD) -> RootCause:
    """Return the cause of a machine where ``LD_LIBRARY_PATH`` puts an older library first."""
    good = example_copy("libcufft.so.11", "/venv/nvidia/cufft/lib", "11.3.0.4", "nvidia-cufft-cu12 11.3.0.4")
    library = example_library(
        "libcufft.so.11", path=f"{OLD}/libcufft.so.11", source=PATH, version="11.0.0", owner=None, copies=(good,)
    )
    facts = example_facts(library, variables={PATH: f"{OLD}:/opt/other"})
    assert isinstance(facts.environment, EnvironmentFacts)
    provenance = (VariableProvenance(PATH, entry, Provenance(kind, place)),)
    environment = msgspec.structs.replace(facts.environment, provenance=provenance)
    assert isinstance(facts.libraries, LibraryFacts)
    libraries = msgspec.structs.replace(facts.libraries, search_path=(OLD, "/opt/other"))
    evidence = Evidence(msgspec.structs.replace(facts, environment=environment, libraries=libraries))
    known = causes.get("older_library_first")
    assert known is not None
    return next(iter(known.causes(evidence)))


@pytest.mark.parametrize(
    ("kind", "place", "seen", "fix"),
    [
        (
            ProvenanceKind.SHELL,
            "/home/me/.bashrc line 7",
            "/home/me/.bashrc line 7 puts /opt/old/lib into LD_LIBRARY_PATH",
            "take /opt/old/lib out of",
        ),
        (
            ProvenanceKind.MODULE,
            "cuda/11.8",
            "environment module cuda/11.8 names /opt/old/lib in LD_LIBRARY_PATH",
            "module unload cuda/11.8",
        ),
        (
            ProvenanceKind.CONDA_VARIABLES,
            "/conda",
            "conda keeps /opt/old/lib in LD_LIBRARY_PATH for the environment /conda",
            "conda env config vars unset",
        ),
        (
            ProvenanceKind.CONTAINER,
            "tini",
            "process of this container (tini) was started with /opt/old/lib in LD_LIBRARY_PATH, too",
            "start it without /opt/old/lib",
        ),
    ],
)
def test_evidence_and_fix_name_the_place(kind: ProvenanceKind, place: str, seen: str, fix: str) -> None:
    cause = older_first(kind, place)
    assert any(seen in line for line in cause.evidence)
    first, second = cause.fix[:2]
    assert first.change is not None  # the shell that is open now
    assert fix in second.text


def test_the_place_of_an_entry_that_is_not_in_the_way_is_not_named() -> None:
    cause = older_first(ProvenanceKind.SHELL, "/home/me/.bashrc line 7", entry="/opt/other")
    assert not any(".bashrc" in line for line in cause.evidence)
    assert not any(".bashrc" in action.text for action in cause.fix)
