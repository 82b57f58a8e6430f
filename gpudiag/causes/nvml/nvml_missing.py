"""NVML (libnvidia-ml.so.1) was not found, and this TensorFlow lists no GPU without it

Since 2.21 TensorFlow asks NVML before it lists GPUs. If the library is missing it lists none and prints no line at all;
2.18 to 2.20 did without. The library belongs to the driver. In containers NVIDIA's runtime brings it with the
capability `utility`: images that ask for `compute` alone do not get it.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.libraries import (
    NVML,
    needs_nvml,
    tensorflow_version,
)
from gpudiag.causes.shared.signs import Signs
from gpudiag.causes.shared.whereabouts import installed, locate
from gpudiag.fix import Action, note, run_container
from gpudiag.model.facts import Facts, Unknown
from gpudiag.probes.discovery import trace

_TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"

CAUSE = Cause(
    title="NVML (libnvidia-ml.so.1) {where}, and TensorFlow {tensorflow} lists no GPU without it",
    fix=(
        run_container(
            "-e NVIDIA_DRIVER_CAPABILITIES=compute,utility",
            note="or with --gpus 'all,\"capabilities=compute,utility\"'",
        ),
    ),
    url=_TOOLKIT,
    needs_gpu=False,
    unless={
        "damaged_library_first": "the library is there, and a damaged one comes first",
    },
    finding="host.driver.no_nvml",
)


def find(facts: Facts, signs: Signs, traced: trace.Reading | None) -> Matches:
    if not signs.no_nvml or signs.older_tensorflow or not needs_nvml(facts, traced):
        return
    library = facts.library(NVML)
    capabilities = facts.variables.get("NVIDIA_DRIVER_CAPABILITIES")
    shown = [f"{NVML}: {library.error}" if library and library.error else f"{NVML} cannot be opened"]
    found = locate(facts, NVML)
    shown += found.evidence
    shown += [] if capabilities is None else [f"NVIDIA_DRIVER_CAPABILITIES={capabilities}"]
    yield Match(
        evidence=tuple(shown),
        confidence=found.confidence,
        figures={"tensorflow": tensorflow_version(facts), "where": found.words},
        fix=found.fix or (_cure_of_nvml(facts),),
        tried=found.tried,
    )


def _cure_of_nvml(facts: Facts) -> Action:
    if not isinstance(facts.container, Unknown) and facts.container.runtime is not None:
        if facts.container.kubernetes:
            return note("set NVIDIA_DRIVER_CAPABILITIES=compute,utility in the pod's env, or in its image")
        return run_container(
            "-e NVIDIA_DRIVER_CAPABILITIES=compute,utility",
            note="or with "
            """--gpus 'all,"capabilities=compute,utility"'""",
        )
    return installed(facts, NVML)
