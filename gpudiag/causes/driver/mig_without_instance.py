"""a GPU is in MIG mode without any MIG instance, so CUDA does not show it

In MIG mode a GPU computes only through its instances. With the mode on and none created, nvidia-smi lists the GPU, and
CUDA does not: cuInit answers "no CUDA-capable device is detected", or the GPU is lacking in TensorFlow's list.
Instances are lost at each reboot, the mode is kept.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.gpu_state import addresses
from gpudiag.causes.shared.visibility import MIG_GUIDE
from gpudiag.fix import Role, check, configure
from gpudiag.model.diagnosis import Stage
from gpudiag.model.facts import Facts, NvmlDevice
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.probes.discovery import trace

CAUSE = Cause(
    title="GPU {empty} is in MIG mode without any MIG instance, so CUDA does not show it",
    unfit=True,
    fix=(
        check("sudo nvidia-smi mig -i {gpu} -lgip", "shows which instances are possible"),
        configure(
            "sudo nvidia-smi mig -i {gpu} -cgi 0 -C",
            "creates an instance of profile 0, the whole GPU; for parts, take other profiles",
        ),
        configure("sudo nvidia-smi -i {gpu} -mig 0", "or uses the whole GPU without MIG", role=Role.ALTERNATIVE),
    ),
    url=MIG_GUIDE,
)


def _in_scope(facts: Facts) -> list[NvmlDevice]:
    chosen = {gpu.pci_bus_id for gpu in gpus_in_scope(facts)}
    return [device for device in facts.nvml_devices if device.pci_bus_id in chosen]


def find(facts: Facts, traced: trace.Reading | None) -> Matches:
    devices = _in_scope(facts)
    empty = [device for device in devices if device.mig_mode == "enabled" and not device.mig_uuids]
    listed = traced.listed if traced else len(devices) - len(empty)
    if empty and listed < len(devices):
        yield Match(
            evidence=tuple(f"GPU {device.index}: MIG mode enabled, no instance" for device in empty),
            figures={"empty": ", ".join(str(device.index) for device in empty), "gpu": empty[0].index},
            stage=Stage.DRIVER if not listed else Stage.DEVICE_FILTER,
            gpus=addresses(empty),
        )
