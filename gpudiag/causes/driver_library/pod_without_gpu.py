"""this pod was given no GPU: it asks for none, or its runtime class cannot give one

Kubernetes gives a container exactly the nvidia.com/gpu that its limits name; without that line NVIDIA's runtime
passes none in (NVIDIA_VISIBLE_DEVICES is then void, none or unset), also on a node full of GPUs. Where the line is
there and no device comes, the container runs under another runtime: the runtime class nvidia is missing, or nvidia is
not the default runtime of the node. TensorFlow says "failed call to cuInit", with 303 or "no CUDA-capable device", as
it does without any GPU.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Match, Matches
from gpudiag.causes.shared.containers import (
    NONE,
    PODS,
    VISIBLE,
    asked,
    container_facts,
    given_none,
    gpu_of_the_host,
    marks,
    no_device_seen,
    stage,
)
from gpudiag.model import Sure

CAUSE = Cause(
    fix=(
        "resources: {{limits: {{nvidia.com/gpu: 1}}}}   # in the container's part of the pod",
        "runtimeClassName: nvidia   # in the pod's spec, where nvidia is not the node's default runtime",
        "kubectl describe node NODE | grep nvidia.com/gpu   # 0 or nothing: the device plugin does not run there",
    ),
    url=PODS,
    needs_gpu=False,
    views=("host.driver.not_given",),
)


def find(evidence: Evidence) -> Matches:
    facts = evidence.facts
    container = container_facts(facts)
    if container is None or not container.kubernetes or not given_none(evidence):
        return
    host = gpu_of_the_host(facts)
    wanted = facts.variables.get(VISIBLE)
    if not host and wanted is None:
        return
    yield Match(
        evidence=tuple(filter(None, [marks(container), no_device_seen(facts), *asked(facts), host])),
        sure=Sure.PROVED if host else Sure.LIKELY if wanted in NONE else Sure.POSSIBLE,
        stage=stage(facts),
    )
