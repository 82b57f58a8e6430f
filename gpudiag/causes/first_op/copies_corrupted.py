"""data copied to, from or between GPUs is corrupted, and no error is raised

GPUs write directly into each other's memory over PCI Express. An IOMMU that translates addresses, or PCI access control
(ACS), sends that traffic up to the processor, where on some machines it is corrupted or goes elsewhere: training on
several GPUs gives NaN or does not converge, and each GPU by itself works. If copies from or to the host are corrupted,
it is the GPU, its slot or the host's memory.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Rows
from gpudiag.causes.shared.multi_gpu import NCCL
from gpudiag.fix import boot_with, check, export, nvidia_smi

CAUSE = Cause(
    title="data copied {way} is corrupted, and no error is raised",
    unfit=True,
    fix=(
        boot_with("iommu=pt", "then reboot"),
        check("sudo lspci -vvv | grep ACSCtl", "must show SrcValid-; if not, switch ACS off in the firmware"),
        export("NCCL_P2P_DISABLE", "1", "use this until then: NCCL works, but more slowly"),
    ),
    url=NCCL + "#pci-access-control-services-acs",
    unless={
        "gpu_computes_wrong": "a GPU that computes wrong is the greater fault, of the same hardware",
    },
)
_OF_A_GPU = (
    nvidia_smi("shows errors of the GPU's memory", "-q -d ECC,ROW_REMAPPER"),
    check("sudo dmesg | grep -i -e nvrm -e xid -e 'pcie bus error' -e edac"),
    check("sudo dcgmi diag -r 3", "runs NVIDIA's own test"),
)


def find(rows: Rows) -> Matches:
    found = (*rows.found("libraries.copies", "corrupted"), *rows.found("libraries.copies", "sometimes_wrong"))
    if not found:
        return
    ends = [{"source": "memory", "target": finding.figures.get("device"), **finding.figures} for finding in found]
    ways = [(str(end["source"]), str(end["target"])) for end in ends]
    between = all(end.startswith("GPU:") for way in ways for end in way)
    yield Match(
        evidence=tuple(finding.message for finding in found[:3]),
        figures={"way": "between GPUs" if between else f"from {ways[0][0]} to {ways[0][1]}"},
        fix=() if between else _OF_A_GPU,
    )
