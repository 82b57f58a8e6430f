"""the permissions of the device files let this process in, but its device control group blocks it

The control group of a container, a systemd unit or a Slurm job has a list of devices that may be opened. If a device is
not on it, open(2) fails with EPERM for every user, root too, while `ls -l` shows nothing. A job that asked for no GPU
has none. Containers lose their GPUs that way while they run: `systemctl daemon-reload` on the host writes the list
again, from what systemd knows of, and the GPUs that the container runtime added are not among it. NVML then says
"Unknown Error", and cuInit "no CUDA-capable device is detected".
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.device_files import NoAccess
from gpudiag.causes.shared.gpu_state import NoneListed, meaning
from gpudiag.causes.shared.machine import container
from gpudiag.fix import Action, Kind, Where, check, configure, run, start
from gpudiag.model.facts import Facts, TriedFacts, Unknown

CAUSE = Cause(
    title="the permissions of {files} let this process in, but its device control group blocks it",
    fix=(
        run(
            "docker restart CONTAINER",
            "gives the container its GPUs again",
            kind=Kind.START_CONTAINER,
            where=Where.HOST,
        ),
        configure("sudo nvidia-ctk system create-dev-char-symlinks --create-all", "they stay", where=Where.HOST),
    ),
    url="https://github.com/NVIDIA/nvidia-container-toolkit/issues/48",
    unless={
        "slurm_gave_no_gpu": "Slurm sets the control group: the job has to ask for a GPU",
        "device_files_kept_by_security_module": "the files are refused by SELinux or AppArmor",
    },
    views=("host.driver.no_access", "host.driver.nvml_failed"),
)
_CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/dxg")


def find(facts: Facts, tried: TriedFacts | None, none: NoneListed | None, files: NoAccess | None) -> Matches:
    if tried is not None and none is not None and (needed := _refused(tried)):
        evidence = (
            *(f"open {attempt.path}: {meaning(attempt.error)}" for attempt in tried.opened if attempt.path in needed),
            *(
                f"{node.mode} {node.path}: its permissions allow it"
                for node in getattr(facts.device_nodes, "nodes", ())
                if node.path in needed and node.readable and node.writable
            ),
        )
        yield Match(evidence, figures={"files": " ".join(needed)}, fix=_fix(facts, needed), stage=none.stage)
    elif files is not None and not files.by_their_mode:  # access(2) says it on some systems, and open(2) was not tried
        yield files.match(files.shut, fix=_fix(facts, [node.path for node in files.shut]))


def _refused(tried: TriedFacts) -> list[str]:
    """Return the device files that a GPU needs and that may not be opened."""
    kept = [attempt.path for attempt in tried.opened if attempt.error == "EPERM"]
    gpus = [attempt.path for attempt in tried.opened if re.fullmatch(r"/dev/nvidia\d+", attempt.path)]
    # A job is kept from the GPUs of others in the same way: without a GPU it is only if it has none at all.
    return [path for path in kept if path in _CONTROL] or (gpus if gpus and set(gpus) <= set(kept) else [])


def _fix(facts: Facts, files: list[str]) -> tuple[Action | None, ...]:
    if not isinstance(facts.container, Unknown) and facts.container.slurm_job is not None:
        do, then, runtime = (
            start("srun --gres=gpu:1 ...", "requests a GPU from Slurm; the step must request it, too"),
            None,
            None,
        )
    elif container(facts):
        do = run(
            "docker restart CONTAINER",
            "gives the container its GPUs again; in Kubernetes, delete the pod",
            kind=Kind.START_CONTAINER,
            where=Where.HOST,
        )
        then = configure("sudo nvidia-ctk system create-dev-char-symlinks --create-all", "they stay", where=Where.HOST)
        runtime = configure(
            "sudo nvidia-ctk config --in-place --set nvidia-container-cli.no-cgroups=false",
            "if no container ever got its GPUs: true is only for rootless containers",
            where=Where.HOST,
        )
    else:
        do = check(
            "cat /proc/self/cgroup; systemctl show -p DeviceAllow -p DevicePolicy UNIT",
            "shows the device rules of that unit or slice",
        )
        then, runtime = configure("sudo systemctl edit UNIT", f"[Service] DeviceAllow={files[0]} rw"), None
    return do, then, runtime
