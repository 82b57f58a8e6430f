"""a GPU is not registered with the NVSwitch fabric

On machines whose GPUs are joined by NVSwitch, CUDA starts on a GPU only after Fabric Manager has registered it. In a
virtual machine that has some of the GPUs, Fabric Manager runs outside, at the provider: nothing inside can start it,
and nvidia-smi shows a healthy GPU. cuInit fails with 802: "system not yet initialized".
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.gpu_state import GpusInScope, named
from gpudiag.causes.shared.machine import WholeDriver
from gpudiag.causes.shared.steps import CuInitFailed
from gpudiag.fix import Kind, check, configure, note

CAUSE = Cause(
    title="{gpu} is not registered with the NVSwitch fabric ({state}), which is not set up from {here}",
    unfit=True,
    fix=(
        note(
            "have the provider start Fabric Manager outside, or start this virtual machine again", kind=Kind.ASK_ADMIN
        ),
        check("nvidia-smi -q | grep -A 2 Fabric", "must show: Completed, Success"),
    ),
    url="https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html",
)


def find(failed: CuInitFailed, whole: WholeDriver, gpus: GpusInScope) -> Matches:
    waiting = gpus.whose_state(lambda gpu: gpu.fabric in ("not_started", "in_progress") or bool(gpu.fabric_error))
    if not waiting or whole.container or whole.driver.fabric_manager == "stopped":
        return
    states = {
        device.state.fabric.replace("_", " ")
        + (f" with error {device.state.fabric_error}" if device.state.fabric_error else "")
        for device in waiting
        if device.state.fabric
    }
    runs = whole.driver.fabric_manager == "running"
    if not runs and any(device.state.virtualization not in ("passthrough", "vgpu") for device in waiting):
        return  # Fabric Manager is to be installed here: another cause says so
    yield Match(
        evidence=(
            *(f"NVML: GPU {device.index}, fabric: {device.state.fabric}" for device in waiting),
            f"cuInit: {failed}",
            f"Fabric Manager: {whole.driver.fabric_manager or 'not known'}",
        ),
        figures={
            "gpu": named(waiting),
            "state": ", ".join(sorted(states)),
            "here": "this machine, though Fabric Manager runs" if runs else "inside this virtual machine",
        },
        fix=(
            configure("sudo systemctl restart nvidia-fabricmanager; sudo journalctl -u nvidia-fabricmanager -e")
            if runs
            else note(
                "have the provider start Fabric Manager outside, or start this virtual machine again",
                kind=Kind.ASK_ADMIN,
            ),
            CAUSE.fix[1],
        ),
    )
