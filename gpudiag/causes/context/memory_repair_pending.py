"""memory of a GPU is faulty, and not repaired yet

A GPU with ECC finds faulty places of its memory and replaces them: by spare rows (Ampere and later) or by taking pages
out of use (before). Both take effect only when the GPU is reset, until then the faulty place is used, and programs that
meet it end with CUDA_ERROR_ECC_UNCORRECTABLE. If no spare row is left, no reset helps.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.devices import ChosenGpus
from gpudiag.causes.shared.gpu_state import GpusInScope, KernelLog, addresses, indices, named
from gpudiag.causes.shared.steps import FirstFailed, context_error
from gpudiag.fix import Kind, export, note, nvidia_smi, reset_gpu
from gpudiag.model.diagnosis import Stage
from gpudiag.model.facts import GpuState, NvmlDevice

CAUSE = Cause(
    title="memory of {gpu} is faulty, and {what}",
    unfit=True,
    fix=(
        reset_gpu("0", "if no program uses it; or reboot"),
        export("CUDA_VISIBLE_DEVICES", "GPU-00000001-0000-4000-8000-000000000000"),
        nvidia_smi("must show Pending: No", "-q -d ROW_REMAPPER,PAGE_RETIREMENT,ECC -i {index}"),
    ),
    url="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",
)
_USED = (Stage.CONTEXT, Stage.FIRST_OP)


def find(gpus: ChosenGpus, states: GpusInScope, broken: FirstFailed | None, kernel: KernelLog) -> Matches:
    faulty = states.whose_state(lambda gpu: bool(gpu.remap_failed or gpu.remap_pending or gpu.retirement_pending))
    if not faulty:
        return
    spent = any(device.state.remap_failed for device in faulty)
    chosen = [gpu for gpu in gpus.gpus if gpu.pci_bus_id in {device.pci_bus_id for device in faulty}]
    other = gpus.without(chosen) if chosen else None
    broken_at = None if broken is None else broken.stage
    words = context_error(gpus.rows)
    yield Match(
        evidence=(
            *map(_said, faulty),
            *([f"creating the devices: {words}"] if words else []),
            *kernel.last("Xid", gpus=addresses(faulty)),
        ),
        figures={
            "gpu": named(faulty),
            "what": "it has no spare rows left: it has to be replaced" if spent else "the repair waits for a reset",
            "index": indices(faulty),
        },
        fix=(
            note("have the card replaced", kind=Kind.REPLACE_HARDWARE)
            if spent
            else reset_gpu(f"{indices(faulty)}", "if no program uses it; or reboot"),
            other,
            CAUSE.fix[2],
        ),
        tried=other if broken_at in _USED else None,
        stage=broken_at if broken_at in _USED else Stage.CONFIGURATION,
        gpus=addresses(faulty),
    )


def _said(device: NvmlDevice) -> str:
    return f"NVML: GPU {device.index}: {', '.join(_faults(device.state))}"


def _faults(state: GpuState) -> list[str]:
    said = {
        "rows could not be remapped": state.remap_failed,
        "rows wait to be remapped": state.remap_pending,
        "pages wait to be retired": state.retirement_pending,
        f"{state.uncorrected_errors} errors that could not be corrected": state.uncorrected_errors,
    }
    return [text for text, found in said.items() if found]
