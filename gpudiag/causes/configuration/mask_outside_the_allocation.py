"""this process sees GPUs of the node that Slurm did not give the job

Slurm sets CUDA_VISIBLE_DEVICES to the job's GPUs, but blocks the other GPUs only if the administrator has set
ConstrainDevices. A program that sets the variable itself (os.environ["CUDA_VISIBLE_DEVICES"] = "0"), a login by ssh,
sudo or a container that loses it, then computes on GPUs of other jobs: both run out of memory, and its own GPU is idle.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.launchers import allocated, allocated_by
from gpudiag.causes.shared.visibility import MASK, slurm_job
from gpudiag.fix import Kind, edit_note, export, note
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts
from gpudiag.model.report import Severity
from gpudiag.model.visibility import gpus_in_scope

CAUSE = Cause(
    title="this process sees GPU {others} of the node, but Slurm gave the job GPU {given}",
    severity=Severity.WARNING,
    fix=(
        export("CUDA_VISIBLE_DEVICES", "{uuids}", "GPU {given}"),
        edit_note("remove the line that sets CUDA_VISIBLE_DEVICES from the program: Slurm sets it"),
        note("ask the administrator to set ConstrainDevices=yes in cgroup.conf", kind=Kind.ASK_ADMIN),
    ),
    url="https://slurm.schedmd.com/gres.html",
)


def find(facts: Facts) -> Matches:
    given, devices = allocated(facts), facts.nvml_devices
    # Where control groups keep the other GPUs away, NVML counts those of the job alone, from 0.
    if slurm_job(facts) is None or given is None or len(devices) <= len(given) or max(given) >= len(devices):
        return
    if any(device.mig_mode == "enabled" for device in devices):  # its instances are numbered separately
        return
    others = [gpu.index for gpu in gpus_in_scope(facts) if gpu.index not in given]
    if not others:
        return
    uuids = ",".join(devices[number].uuid for number in given)
    name = allocated_by(facts)
    yield Match(
        evidence=(
            f"{name}={facts.variables[name]}, {MASK}={facts.variables.get(MASK, '(not set)')}",
            f"NVML reports {len(devices)} GPUs: control groups do not keep the others away",
        ),
        confidence=Confidence.LIKELY,
        figures={
            "others": ", ".join(map(str, others)),
            "given": ", ".join(map(str, given)),
            "uuids": uuids,
        },
        tried=CAUSE.fix[0],
    )
