"""the permissions of the device files let this process in, but its device control group blocks it

The control group of a container, a systemd unit or a Slurm job has a list of devices that may be opened. If a device is
not on it, open(2) fails with EPERM for every user, root too, while `ls -l` shows nothing. A job that asked for no GPU
has none. Containers lose their GPUs that way while they run: `systemctl daemon-reload` on the host writes the list
again, from what systemd knows of, and the GPUs that the container runtime added are not among it. NVML then says
"Unknown Error", and cuInit "no CUDA-capable device is detected".
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.refusals import CONTROL, Refusals, Refuser
from gpudiag.causes.shared.visibility import SLURM_GPUS
from gpudiag.fix import Action, Kind, check, configure, note, start
from gpudiag.knowledge.sandboxes import BY_NAME
from gpudiag.model.facts import Unknown

CAUSE = Cause(
    title="the permissions of {files} let this process in, but its device control group blocks it",
    fix=BY_NAME["docker"].rules,
    url="https://github.com/NVIDIA/nvidia-container-toolkit/issues/48",
    unless={
        "slurm_gave_no_gpu": "Slurm sets the control group: the job has to ask for a GPU",
    },
    views=("host.driver.no_access", "host.driver.nvml_failed"),
)
_ASK = note(
    "ask the administrators: ConstrainDevices=yes keeps this file from every job; cgroup_allowed_devices_file.conf, or "
    "gres.conf, has to list it",
    kind=Kind.ASK_ADMIN,
)


def find(files: Refusals) -> Matches:
    if kept := files.by(Refuser.CONTROL_GROUP):
        group = getattr(files.facts.container, "control_group", None)
        yield files.match(kept, _fix(files), *([f"control group: {group}"] if group and group != "/" else []))


def _fix(files: Refusals) -> tuple[Action | None, ...]:
    kept = files.by(Refuser.CONTROL_GROUP)
    inside = files.facts.container
    if not isinstance(inside, Unknown) and inside.slurm_job is not None:
        given = any(files.facts.variables.get(name) for name in SLURM_GPUS)
        if given and all(refusal.node.path in CONTROL for refusal in kept):
            return (check("grep -rn nvidia /etc/slurm/cgroup*.conf /etc/slurm/gres.conf"), _ASK)
        return (start("srun --gres=gpu:1 ...", "requests a GPU from Slurm; the step must request it, too"),)
    if files.sandbox is None:
        return (
            check(
                "cat /proc/self/cgroup; systemctl show -p DeviceAllow -p DevicePolicy UNIT",
                "shows the device rules of that unit or slice",
            ),
            configure("sudo systemctl edit UNIT", f"[Service] DeviceAllow={kept[0].node.path} rw"),
        )
    return files.actions(files.sandbox.rules or (files.sandbox.give,), kept)
