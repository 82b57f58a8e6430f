"""every library fails on a GPU with the same error

Kernels run later than they are called, so an error of a kernel is returned by the next call that waits, and by every
later call of the process: the library in which it appears is rarely the one at fault. With gpudiag's own small products
and convolutions no program is to blame: the GPU, its memory, its power or the driver is.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.devices import ChosenGpus
from gpudiag.causes.shared.gpu_state import addresses
from gpudiag.causes.shared.last_resort import CODE
from gpudiag.fix import Kind, check, kernel_log, nvidia_smi, run
from gpudiag.model.diagnosis import Confidence
from gpudiag.text import listed

CAUSE = Cause(
    title="{what} on {gpus} with {error}",
    unfit=True,
    fix=(
        kernel_log("shows which fault it is: NVIDIA's table of Xid errors says what to do"),
        nvidia_smi("shows errors of the GPU's memory", "-q -d ECC,ROW_REMAPPER"),
        run("sudo nvidia-smi --gpu-reset", "if no process uses the GPU; or reboot", kind=Kind.RESET_GPU),
        check("sudo dcgmi diag -r 3", "runs NVIDIA's own test; run it without overclocking and with enough power"),
    ),
    url="https://docs.nvidia.com/deploy/xid-errors/index.html",
    unless={
        "no_code_for_gpu": "the work fails for lack of code for the GPU",
    },
    symptom=True,
)


def find(gpus: ChosenGpus) -> Matches:
    failed = [
        (error[0], found)
        for row in gpus.rows
        for found in row.findings
        if row.area == "libraries" and found.kind == "failed" and (error := CODE.search(found.message))
        if error[0] != "CUDA_ERROR_OUT_OF_MEMORY"
    ]
    if not failed:
        return
    devices = dict.fromkeys(str(found.figures["device"]) for _, found in failed if "device" in found.figures)
    bad = [gpu for number, gpu in enumerate(gpus.gpus) if f"GPU:{number}" in devices]
    others = gpus.without(bad, "until it is repaired")
    elsewhere = len(bad) < len(gpus.gpus) and others.change is not None
    names = [*dict.fromkeys(str(found.figures["library"]) for _, found in failed if "library" in found.figures)]
    scope = {gpu.uuid for gpu in bad or gpus.gpus}
    works = any(row.area == "libraries" and row.status == "pass" and scope & {*row.devices} for row in gpus.rows)
    some = f"{listed(names)} {'fails' if len(names) == 1 else 'fail'}"
    yield Match(
        evidence=tuple(found.message for _, found in failed[:3]),
        confidence=Confidence.LIKELY,
        figures={
            "what": some if works and names else "every library fails",
            "gpus": " and ".join(devices) or "the GPUs",
            "error": failed[0][0],
        },
        fix=(*([others] if elsewhere else []), *CAUSE.fix),
        tried=others if elsewhere else None,
        gpus=addresses(bad),
    )
