"""no GPU was passed into this container{how}{host}

GPUs and the driver's libraries are on the host; the NVIDIA Container Toolkit puts them into a container, and only
when it is asked to. Without that TensorFlow finds no libcuda.so.1 and says "failed call to cuInit: UNKNOWN ERROR
(303)", or, where a driver was installed in the image, that there is no CUDA-capable device. Docker: --gpus all.
Podman: --device nvidia.com/gpu=all. Apptainer: --nv. NVIDIA_VISIBLE_DEVICES=all, which images set, asks for nothing
by itself, unless nvidia is the default runtime; void or none gives no GPU whatever else is asked for. A driver
installed in the image does not help, and harms where the host has another version. On a host without an NVIDIA GPU
there is nothing to mend.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Match, Matches
from gpudiag.causes.shared.containers import (
    NONE,
    TOOLKIT,
    VISIBLE,
    asked,
    container_facts,
    given_none,
    gpu_of_the_host,
    marks,
    no_device_seen,
    stage,
    start,
)
from gpudiag.model import Sure

CAUSE = Cause(
    fix=(
        "{start}",
        "# on the host nvidia-smi and the NVIDIA Container Toolkit must work; install no driver in the image",
    ),
    url=TOOLKIT,
    needs_gpu=False,
    shown={
        "start": "docker run --gpus all IMAGE   # compose: deploy.resources.reservations.devices, capabilities: [gpu]"
    },
    views=("host.driver.not_given",),
)


def find(evidence: Evidence) -> Matches:
    facts = evidence.facts
    container = container_facts(facts)
    if container is None or container.kubernetes or not given_none(evidence):
        return
    host = gpu_of_the_host(facts)
    wanted = facts.variables.get(VISIBLE)
    if not host and wanted is None:
        return  # no GPU can be seen, and nobody spoke of one
    yield Match(
        evidence=tuple(filter(None, [marks(container), no_device_seen(facts), *asked(facts), host])),
        sure=Sure.PROVED if host else Sure.LIKELY if wanted in NONE else Sure.POSSIBLE,
        figures={
            "start": start(container, **({VISIBLE: "all"} if wanted in NONE else {})),
            "how": f": {VISIBLE}={wanted!r} forbids it" if wanted in NONE else "",
            "host": "" if host else "; whether its host has one cannot be seen from here",
        },
        stage=stage(facts),
    )
