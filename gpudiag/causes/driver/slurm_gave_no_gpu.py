"""Slurm gave no GPU to this job

Slurm gives a job the GPUs that it asks for, and a step (srun) those that the step asks for. To the others it writes
CUDA_VISIBLE_DEVICES=NoDevFiles, or an empty value, or keeps the devices from them by control groups. cuInit then
answers "no CUDA-capable device is detected" on a node full of GPUs, and programs that parse the value fail with
"invalid literal for int() with base 10: 'NoDevFiles'". Unsetting the variable would take a GPU that was given to
another job.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.visibility import MASK, SLURM_GPUS, hidden_by_slurm, slurm_job
from gpudiag.fix import check, start
from gpudiag.knowledge.messages.program import SLURM_HIDES
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts, Unknown
from gpudiag.probes.discovery import trace

CAUSE = Cause(
    title="Slurm gave no GPU to this {what}{job}",
    fix=(
        start("sbatch --gres=gpu:1 ...", "or in the script: #SBATCH --gres=gpu:1"),
        start("srun --gres=gpu:1 ...", "requests a GPU for the step: it may have to, even if its job has GPUs"),
        check("scontrol show job $SLURM_JOB_ID | grep -i tres", "shows what the job was given"),
    ),
    url="https://slurm.schedmd.com/gres.html",
    views=("host.environment.all_hidden", "host.driver.no_access", "host.driver.nvml_failed"),
)


def _kept_from_the_job(facts: Facts, traced: trace.Reading | None) -> bool:
    """Return True if the node has GPUs, and control groups keep them from this job: NVML works, and counts none."""
    nvml, nodes = facts.nvml, facts.device_nodes
    if isinstance(nvml, Unknown) or isinstance(nodes, Unknown) or (traced and traced.listed):
        return False
    return bool(nodes.pci_gpus) and not nvml.devices and nvml.error in (None, "Insufficient Permissions")


def find(facts: Facts, program: Program, traced: trace.Reading | None) -> Matches:
    job = slurm_job(facts)
    said = program.first(SLURM_HIDES)
    in_log = said.line if said is not None else None
    of_job = next((f"{name}={facts.variables[name]}" for name in SLURM_GPUS if facts.variables.get(name)), None)
    masked = hidden_by_slurm(facts)
    kept = job is not None and of_job is None and _kept_from_the_job(facts, traced)
    if not (masked or kept or in_log):
        return
    seen = [
        f"Slurm job {job}, {of_job or 'without SLURM_JOB_GPUS and SLURM_STEP_GPUS'}" if job else None,
        f"{MASK}={facts.variables[MASK]!r}" if masked else None,
        "the node has GPUs, and NVML shows none of them to this job" if kept and not masked else None,
        f"log: {in_log.strip()}" if in_log else None,
    ]
    yield Match(
        evidence=tuple(filter(None, seen)),
        confidence=Confidence.PROVED if masked else Confidence.LIKELY,
        figures={"what": "job step" if of_job else "job", "job": f" {job}" if job else ""},
        about=(MASK,) if masked else (),
    )
