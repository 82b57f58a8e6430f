"""a vGPU has no licence: the driver slows it down, and then refuses contexts on it

A vGPU asks a licence server for a licence when it starts. Without one it works for a while (20 minutes after the
machine started), then its clocks are lowered, and new contexts fail: "all CUDA-capable devices are busy or
unavailable", CUDA_ERROR_DEVICE_UNAVAILABLE. nvidia-smi shows the GPU, idle and healthy.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Rows
from gpudiag.causes.shared.devices import SaidToBeBusy
from gpudiag.causes.shared.gpu_state import GpusInScope, addresses, named
from gpudiag.causes.shared.machine import container
from gpudiag.causes.shared.steps import context_error
from gpudiag.fix import check, configure
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.facts import Facts

CAUSE = Cause(
    title="{gpu} is a vGPU without a licence: {what}",
    unfit=True,
    fix=(
        check("nvidia-smi -q | grep -i -A 2 licens", "must show: Licensed"),
        configure(
            "sudo systemctl restart nvidia-gridd; sudo journalctl -u nvidia-gridd -e",
            "{where}asks for the licence again, and shows why it fails",
        ),
        check(
            "ls -l /etc/nvidia/ClientConfigToken /etc/nvidia/gridd.conf",
            "{where}must list the licence token and the configuration with the product",
        ),
    ),
    url="https://docs.nvidia.com/vgpu/latest/grid-licensing-user-guide/index.html",
)


def find(facts: Facts, gpus: GpusInScope, rows: Rows, busy: SaidToBeBusy | None) -> Matches:
    without = gpus.whose_state(lambda gpu: gpu.virtualization == "vgpu" and gpu.licensed is False)
    if not without:
        return
    words = busy.text if busy else context_error(rows)
    yield Match(
        evidence=(
            *(f"NVML: GPU {device.index} ({device.name}): not licensed" for device in without),
            *filter(None, [words]),
        ),
        confidence=Confidence.PROVED if not words else Confidence.LIKELY,
        figures={
            "gpu": named(without),
            "what": "the driver refuses contexts on it"
            if words
            else "the driver slows it down, and will refuse contexts on it",
            "where": "on the virtual machine, not in the container: " if container(facts) else "",
        },
        stage=Stage.CONTEXT if words else Stage.CONFIGURATION,
        gpus=addresses(without),
    )
