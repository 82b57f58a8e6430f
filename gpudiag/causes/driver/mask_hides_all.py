"""CUDA_VISIBLE_DEVICES={value!r} hides all GPUs of this machine

The CUDA driver, not TensorFlow, reads this variable, and ends the list at the first entry that names no GPU. An empty
value, -1, an index that does not exist, a word: each leaves nothing, and cuInit then answers "no CUDA-capable device
is detected", as if there were none. It is often left in a .env file, a notebook, a CI configuration, or set by a
scheduler that gave the job no GPU. A file for `docker --env-file` keeps quotes, and `"0"` is not an index.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.visibility import MASK, PROGRAMMING_GUIDE
from gpudiag.model.facts import Facts
from gpudiag.model.report import Severity
from gpudiag.model.visibility import apply_mask
from gpudiag.text import counted

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=("unset CUDA_VISIBLE_DEVICES", "export CUDA_VISIBLE_DEVICES={uuid}  # or: chooses one"),
    url=PROGRAMMING_GUIDE,
    unless=("ray_gave_no_gpu", "slurm_gave_no_gpu", "another_makers_gpu_counted"),
    finding="host.environment.all_hidden",
)


def find(facts: Facts) -> Matches:
    value = facts.variables.get(MASK)
    devices = facts.nvml_devices
    if value is None or not devices:
        return
    mask = apply_mask(value, devices)
    if mask.devices:
        return
    meant = value.strip("\"' ")
    is_quoted = meant != value and bool(apply_mask(meant, devices).devices)
    twice = [f"{mask.twice} names a GPU for the second time: CUDA shows none then"] if mask.twice else []
    valid = f"0 to {len(devices) - 1}" if len(devices) > 1 else "0"
    yield Match(
        evidence=(f"{MASK}={value!r}", *twice, f"NVML reports {counted(len(devices), 'GPU')}; valid indices: {valid}"),
        figures={"value": value, "uuid": devices[0].uuid},
        fix=(f"export {MASK}={meant}  # without the quotes" if is_quoted else f"unset {MASK}", ...),
        change={MASK: meant if is_quoted else None},
    )
