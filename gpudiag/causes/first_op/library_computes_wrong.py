"""a library computes wrong results on a GPU

No error is raised: models train, but do not learn. If one GPU of several does so, it is that GPU: its memory, power or
clock. If all of them do, with one library, the library is damaged, or is a copy of another release.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.devices import ChosenGpus
from gpudiag.causes.shared.gpu_state import addresses
from gpudiag.causes.shared.libraries import LIBRARIES
from gpudiag.fix import check, install, nvidia_smi
from gpudiag.model.diagnosis import Confidence
from gpudiag.probes.host.libraries import requirement

CAUSE = Cause(
    title="{library} computes wrong results on {gpus}",
    unfit=True,
    fix=(
        install("--force-reinstall", "nvidia-cublas-cu12"),
        nvidia_smi("shows errors of the GPUs' memory", "-q -d ECC,ROW_REMAPPER"),
        check("sudo dcgmi diag -r 3", "runs NVIDIA's own test; run it without overclocking and with enough power"),
    ),
    url="https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html",
    symptom=True,
    unless={
        "library_fails": "a library that raises is not judged by its results",
    },
)


def find(gpus: ChosenGpus) -> Matches:
    differing = [
        found
        for row in gpus.rows
        if row.area == "libraries"
        for found in row.findings
        if found.kind == "differs" and "library" in found.figures
    ]
    for library in dict.fromkeys(str(found.figures["library"]) for found in differing):
        seen = [found for found in differing if found.figures["library"] == library]
        devices = dict.fromkeys(str(found.figures["device"]) for found in seen)
        wrong = [gpu for number, gpu in enumerate(gpus.gpus) if f"GPU:{number}" in devices]
        some = len(wrong) < len(gpus.gpus)
        others = gpus.without(wrong, "until it is repaired")
        package = requirement(gpus.facts, LIBRARIES.get(library, ""))
        yield Match(
            evidence=tuple(found.message for found in seen[:2]),
            confidence=Confidence.LIKELY,
            figures={"library": library, "gpus": " and ".join(devices)},
            fix=(
                install("--force-reinstall", package) if package and not some else None,
                others if some and others.change else None,
                *CAUSE.fix[1:],
            ),
            gpus=addresses(wrong),
        )
