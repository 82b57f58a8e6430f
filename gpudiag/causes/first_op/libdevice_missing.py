"""libdevice.10.bc was not found by XLA, which needs it to compile for the GPU

XLA compiles models for the GPU if Keras or the program asks for it (jit_compile, which Keras 3 sets by itself on GPUs),
and needs NVIDIA's library of mathematical functions. It comes with nvcc, not with the CUDA libraries, and XLA looks in
/usr/local/cuda, in the package nvidia-cuda-nvcc-cu12 and where XLA_FLAGS says; since 2.21 also in CUDA_HOME and in the
environment itself, but not where apt puts it. GPUs are listed and plain operations work; the first `fit` fails.
"""

from __future__ import annotations

from pathlib import PurePath

from gpudiag.cause import Cause, EveryLog, LogAlone, Match, Matches
from gpudiag.causes.shared import advice
from gpudiag.fix import Role, export, install
from gpudiag.knowledge.messages.code import NO_LIBDEVICE
from gpudiag.knowledge.origin import Origin
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts, LibraryFacts
from gpudiag.model.report import Severity
from gpudiag.probes.host.libraries import requirement, without_libdevice

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=(install("nvidia-cuda-nvcc-cu12"),),
    url="https://github.com/tensorflow/tensorflow/issues/58681",
    finding="host.libraries.no_libdevice",
)


def find(
    facts: Facts, libraries: LibraryFacts | None, log: EveryLog, alone: LogAlone | None, origin: Origin
) -> Matches:
    said = log.first(NO_LIBDEVICE)
    line = said.line if said is not None else None
    silent = without_libdevice(facts)
    if line is None and not silent:
        return
    if alone is not None:
        yield Match(alone.said(NO_LIBDEVICE), fix=advice.libdevice(origin))
        return
    elsewhere = () if libraries is None else libraries.libdevice_elsewhere
    shown = [f"log: {line.strip()[:200]}"] if line else []
    if silent or libraries is not None:
        known = () if libraries is None else libraries.libdevice
        shown.append(f"libdevice.10.bc where XLA looks: {', '.join(known) or 'none'}")
    shown += [f"{path} is where it does not look" for path in elsewhere]
    flags = facts.variables.get("XLA_FLAGS")
    shown += [f"XLA_FLAGS={flags}"] if flags else []
    base = str([*PurePath(elsewhere[0]).parents, PurePath()][:3][-1]) if elsewhere else ""
    added = f"{flags} " if flags and "xla_gpu_cuda_data_dir" not in flags else ""
    point = export("XLA_FLAGS", f"{added}--xla_gpu_cuda_data_dir={base}")
    bring = install(requirement(facts, "libdevice"))
    yield Match(
        evidence=tuple(shown),
        confidence=Confidence.PROVED if line else Confidence.LIKELY,
        fix=(point, bring.replaced(role=Role.ALTERNATIVE)) if elsewhere else (bring,),
    )
