"""Slurm gave this job more GPUs on this node than the program sees: the others are idle

A line in the program or in the script of the job sets CUDA_VISIBLE_DEVICES, and so leaves out GPUs that the job has and
pays for. Slurm sets the variable itself, to the GPUs of the job or of the task.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.launchers import Launcher, allocated, allocated_by
from gpudiag.causes.shared.visibility import MASK, slurm_job
from gpudiag.fix import edit_note, run, unset
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts, NvmlDevice
from gpudiag.model.report import Severity
from gpudiag.model.visibility import IDLE_BYTES, gpus_in_scope

CAUSE = Cause(
    title="Slurm gave this job {given} GPUs on this node, but the program sees only {visible}: the others are idle",
    severity=Severity.WARNING,
    fix=(
        unset("CUDA_VISIBLE_DEVICES", note="GPU 0, 1, 2, 3"),
        edit_note("remove the line that sets CUDA_VISIBLE_DEVICES from the program or the job's script: Slurm sets it"),
        edit_note("request fewer GPUs if the program needs no more: sbatch --gpus-per-node={visible} ..."),
    ),
    url="https://slurm.schedmd.com/gres.html",
    unless={
        "mask_entries_ignored": "the others are idle because their entries are ignored",
        "mask_entry_cut": "the others are idle because an entry is cut",
        "mask_outside_the_allocation": "the mask names GPUs of other jobs",
    },
)


def find(facts: Facts, launcher: Launcher | None) -> Matches:
    given, devices = allocated(facts), facts.nvml_devices
    visible = {gpu.index for gpu in gpus_in_scope(facts)}
    if slurm_job(facts) is None or not given or not visible or MASK not in facts.variables:
        return
    if any(device.mig_mode == "enabled" for device in devices):  # its instances are numbered separately
        return
    # Control groups show a job its own GPUs alone, counted from 0.
    own = [device for device in devices if device.index in given] if len(devices) > len(given) else [*devices]
    left = [device for device in own if device.index not in visible]
    tasks = launcher.processes if launcher else 1
    if len(own) != len(given) or not left or len(visible) * tasks >= len(given) or any(map(_is_used, left)):
        return
    uuids = ",".join(device.uuid for device in own)
    numbers = ", ".join(str(device.index) for device in own)
    all_of_them = f"unset {MASK}" if len(own) == len(devices) else f"export {MASK}={uuids}"
    name = allocated_by(facts)
    yield Match(
        evidence=(
            f"{name}={facts.variables[name]}, {MASK}={facts.variables[MASK]}",
            f"nothing runs on GPU {', '.join(str(device.index) for device in left)}",
        ),
        confidence=Confidence.LIKELY,
        figures={"given": len(given), "visible": len(visible)},
        fix=(
            run(all_of_them, f"GPU {numbers}"),
            *CAUSE.fix[1:],
        ),
    )


def _is_used(device: NvmlDevice) -> bool:
    """Return whether a process runs on the GPU: a script may start a process for each GPU, each with another mask."""
    return device.memory_used_bytes > IDLE_BYTES or any(process.computes for process in device.processes)
