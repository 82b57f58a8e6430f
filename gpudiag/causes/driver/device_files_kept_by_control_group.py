"""opening {files} is not permitted, though the permissions of the file allow it: a device control group forbids it

The control group of a container, a systemd unit or a job has a list of devices that may be opened. If a device is not
on it, open(2) fails with EPERM for every user, root too, while `ls -l` and access(2) show nothing. Containers lose
their GPUs that way while they run: `systemctl daemon-reload` on the host writes the list again, from what systemd knows
of, and the GPUs that the container runtime added are not among it. NVML then says "Unknown Error", and cuInit "no
CUDA-capable device is detected".
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.gpu_state import NoneListed, meaning
from gpudiag.causes.shared.machine import container
from gpudiag.model.facts import Facts, TriedFacts

CAUSE = Cause(
    fix=("{do}", "{then}", "{runtime}"),
    url="https://github.com/NVIDIA/nvidia-container-toolkit/issues/48",
    unless=("slurm_gave_no_gpu",),
    views=("host.driver.nvml_failed",),
    shown={
        "do": "docker restart CONTAINER  # on the host: it gets its GPUs again",
        "then": "sudo nvidia-ctk system create-dev-char-symlinks --create-all  # on the host: they stay",
        "runtime": "",
    },
)
_CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/dxg")


def find(facts: Facts, tried: TriedFacts, none: NoneListed) -> Matches:
    kept = [one.path for one in tried.opened if one.error == "EPERM"]
    gpus = [one.path for one in tried.opened if re.fullmatch(r"/dev/nvidia\d+", one.path)]
    # A job is kept from the GPUs of others in the same way: without a GPU it is only if it has none at all.
    needed = [path for path in kept if path in _CONTROL] or (gpus if gpus and set(gpus) <= set(kept) else [])
    if not needed:
        return
    inside = container(facts)
    yield Match(
        evidence=(
            *(f"open {one.path}: {meaning(one.error)}" for one in tried.opened if one.path in needed),
            *(
                f"{node.mode} {node.path}: its permissions allow it"
                for node in getattr(facts.device_nodes, "nodes", ())
                if node.path in needed and node.readable and node.writable
            ),
        ),
        figures={
            "files": " ".join(needed),
            "do": "docker restart CONTAINER  # on the host: it gets its GPUs again; in Kubernetes delete the pod"
            if inside
            else "cat /proc/self/cgroup; systemctl show -p DeviceAllow -p DevicePolicy UNIT  # of that unit or slice",
            "then": "sudo nvidia-ctk system create-dev-char-symlinks --create-all  # on the host: they stay"
            if inside
            else f"sudo systemctl edit UNIT  # [Service] DeviceAllow={needed[0]} rw",
            "runtime": "sudo nvidia-ctk config --in-place --set nvidia-container-cli.no-cgroups=false  # on the host, "
            "if no container ever had its GPUs: true is for rootless ones alone"
            if inside
            else "",
        },
        stage=none.stage,
    )
