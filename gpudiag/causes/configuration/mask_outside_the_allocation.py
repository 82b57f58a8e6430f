"""this process sees GPUs of the node that the scheduler did not give the job

Slurm sets CUDA_VISIBLE_DEVICES to the job's GPUs, but blocks the other GPUs only if the administrator has set
ConstrainDevices. A program that sets the variable itself (os.environ["CUDA_VISIBLE_DEVICES"] = "0"), a login by ssh,
sudo or a container that loses it, then computes on GPUs of other jobs: both run out of memory, and its own GPU is idle.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.launchers import allocated, allocated_by
from gpudiag.causes.shared.visibility import MASK, slurm_job
from gpudiag.fix import Kind, edit_note, export, note, run
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts, Unknown
from gpudiag.model.report import Severity
from gpudiag.model.visibility import gpus_in_scope

CAUSE = Cause(
    title="this process sees GPU {others} of the node, but {scheduler} gave the job GPU {given}",
    severity=Severity.WARNING,
    fix=(
        export("CUDA_VISIBLE_DEVICES", "{uuids}", "GPU {given}"),
        edit_note("remove the line that sets CUDA_VISIBLE_DEVICES from the program: Slurm sets it"),
        note("ask the administrator to set ConstrainDevices=yes in cgroup.conf", kind=Kind.ASK_ADMIN),
    ),
    url="https://slurm.schedmd.com/gres.html",
)

_OF_TORQUE = "PBS_GPUFILE"
_BY_FILE = run(
    "export CUDA_VISIBLE_DEVICES=$(sed 's/.*-gpu//' $PBS_GPUFILE | paste -sd,)",
    "the same in the job's script, for any node: Torque itself sets no mask",
    kind=Kind.SET_VARIABLE,
)


def _value(facts: Facts, name: str) -> str:
    inside = facts.container
    if name == _OF_TORQUE and not isinstance(inside, Unknown) and inside.job_gpus:
        return f"a file that lists GPU {', '.join(map(str, inside.job_gpus))}"
    return facts.variables[name]


def find(facts: Facts) -> Matches:
    given, devices = allocated(facts), facts.nvml_devices
    # Where control groups keep the other GPUs away, NVML counts those of the job alone, from 0.
    slurm = slurm_job(facts) is not None
    name = allocated_by(facts)
    if not (slurm or name == _OF_TORQUE) or given is None or len(devices) <= len(given) or max(given) >= len(devices):
        return
    if any(device.mig_mode == "enabled" for device in devices):  # its instances are numbered separately
        return
    others = [gpu.index for gpu in gpus_in_scope(facts) if gpu.index not in given]
    if not others:
        return
    uuids = ",".join(devices[number].uuid for number in given)
    yield Match(
        evidence=(
            f"{name}={_value(facts, name)}, {MASK}={facts.variables.get(MASK, '(not set)')}",
            f"NVML reports {len(devices)} GPUs: control groups do not keep the others away",
        ),
        confidence=Confidence.LIKELY,
        figures={
            "others": ", ".join(map(str, others)),
            "given": ", ".join(map(str, given)),
            "uuids": uuids,
            "scheduler": "Slurm" if name != _OF_TORQUE else "Torque",
        },
        fix=() if name != _OF_TORQUE else (CAUSE.fix[0], _BY_FILE),
        tried=CAUSE.fix[0],
    )
