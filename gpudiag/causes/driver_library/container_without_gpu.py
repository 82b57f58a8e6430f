"""no GPU was passed into this container

GPUs and the driver's libraries are on the host; the NVIDIA Container Toolkit puts them into a container, and only
when it is asked to. Without that TensorFlow finds no libcuda.so.1 and says "failed call to cuInit: UNKNOWN ERROR
(303)", or, if a driver was installed in the image, that there is no CUDA-capable device. Docker: --gpus all.
Podman: --device nvidia.com/gpu=all. Apptainer: --nv. NVIDIA_VISIBLE_DEVICES=all, which images set, asks for nothing
by itself, unless nvidia is the default runtime; void or none gives no GPU whatever else is asked for. A driver
installed in the image does not help, and harms if the host has another version. On a host without an NVIDIA GPU
there is nothing to fix.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.containers import TOOLKIT, VISIBLE, WithoutGpu
from gpudiag.fix import Where, note
from gpudiag.knowledge.sandboxes import BY_NAME
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="no GPU was passed into this container{how}{host}",
    severity=Severity.WARNING,
    fix=(
        BY_NAME["docker"].give,
        note(
            "nvidia-smi and the NVIDIA Container Toolkit must work; install no driver in the image",
            where=Where.HOST,
        ),
    ),
    url=TOOLKIT,
    needs_gpu=False,
    finding="host.driver.not_given",
)


def find(inside: WithoutGpu) -> Matches:
    if not inside.container.kubernetes:
        yield inside.match(
            (inside.start(**({VISIBLE: "all"} if inside.forbidden else {})), *CAUSE.fix[1:]),
            how=f": {VISIBLE}={inside.wanted!r} forbids it" if inside.forbidden else "",
            host="" if inside.host else "; whether its host has one cannot be seen from here",
        )
