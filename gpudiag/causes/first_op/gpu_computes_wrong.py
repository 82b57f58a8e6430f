"""a GPU computes wrong results

A product of small matrices of whole numbers has one right result, and the GPU gave another one, without an error; or
several libraries are wrong on one GPU. Its memory, its power or its clock is at fault most often, or what lies between
it and the host; a library that is damaged is rarer. Models train on such a GPU, but do not learn, or end in NaN.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.devices import ChosenGpus
from gpudiag.causes.shared.gpu_state import addresses
from gpudiag.fix import check, kernel_log
from gpudiag.model.report import Finding

CAUSE = Cause(
    title="{which} {verb} wrong results",
    unfit=True,
    fix=(
        check("nvidia-smi -q -d ECC,ROW_REMAPPER -i {index}", "shows errors of the GPU's memory"),
        kernel_log(),
        check("sudo dcgmi diag -r 3", "runs NVIDIA's own test; run it without overclocking and with enough power"),
    ),
    url="https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html",
    views=(
        "distribution.collective_matches.wrong_sum",
        "distribution.dataset.raised",
        "distribution.dataset.wrong_gather",
        "distribution.dataset.wrong_parts",
        "distribution.dataset.wrong_sum",
        "distribution.manual_replicas.wrong_sum",
        "distribution.mirrored_strategy.wrong_step",
        "distribution.reduction.none_works",
        "distribution.reduction.wrong_sum",
        "distribution.towers.wrong_gradient",
        "libraries.nccl.differs",
    ),
)
_MOST_SEEN = 4


def find(gpus: ChosenGpus) -> Matches:
    found = list(gpus.rows.found("discovery.logical_devices", "wrong_result"))
    buses = [str(finding.figures["pci_bus_id"]) for finding in found]
    for number, gpu in enumerate(gpus.gpus):
        if several := _of_several_libraries(gpus, f"GPU:{number}"):
            found += several
            buses.append(gpu.pci_bus_id)
    wrong = [gpu for gpu in gpus.gpus if gpu.pci_bus_id in buses]
    if not wrong:
        return
    others = gpus.without(wrong, "until it is repaired")
    yield Match(
        evidence=tuple(finding.message for finding in found[:_MOST_SEEN]),
        figures={
            "which": " and ".join(f"GPU {gpu.index} ({gpu.name}, {gpu.pci_bus_id})" for gpu in wrong),
            "verb": "computes" if len(wrong) == 1 else "compute",
            "index": ",".join(str(gpu.index) for gpu in wrong),
        },
        fix=(*([others] if others.change else []), *CAUSE.fix),
        tried=others if others.change else None,
        gpus=addresses(wrong),
    )


def _of_several_libraries(gpus: ChosenGpus, device: str) -> list[Finding]:
    """Return a finding for each library whose results are wrong on a device; none if that is one library alone."""
    differing = {
        str(found.figures["library"]): found
        for row in gpus.rows
        for found in row.findings
        if row.area == "libraries" and found.kind == "differs" and found.figures.get("device") == device
    }
    return list(differing.values()) if len(differing) > 1 else []
