"""Kubernetes gave this pod a GPU, but the container's runtime passes none in

The device plugin writes the UUID of the GPU into NVIDIA_VISIBLE_DEVICES, and NVIDIA's runtime reads it there. Under
another runtime (runc, the default of containerd) the variable has no effect: the pod counts as one with a GPU, and its
container has neither device files nor the driver's libraries; a file such as nvidia-smi may be there, and empty.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.containers import PODS, WithoutGpu
from gpudiag.fix import Role, Where, configure, start

CAUSE = Cause(
    title="Kubernetes gave this pod {wanted}, but the container's runtime passes no GPU in",
    fix=(
        start("runtimeClassName: nvidia", "put it into the pod's spec"),
        configure(
            "sudo nvidia-ctk runtime configure --runtime=containerd --set-as-default && sudo systemctl "
            "restart containerd",
            "sets it for every pod",
            role=Role.ALTERNATIVE,
            where=Where.HOST,
        ),
        start("kubectl get runtimeclass nvidia", "must exist"),
    ),
    url=PODS,
    views=("host.driver.not_given",),
    needs_gpu=False,
)


def find(inside: WithoutGpu) -> Matches:
    if inside.container.kubernetes and re.match("(?:GPU|MIG)-", inside.wanted or ""):
        yield inside.match(wanted=str(inside.wanted))
