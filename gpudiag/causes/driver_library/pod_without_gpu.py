"""this pod was given no GPU: it asks for none, or its runtime class cannot give one

Kubernetes gives a container exactly the nvidia.com/gpu that its limits name; without that line NVIDIA's runtime
passes none in (NVIDIA_VISIBLE_DEVICES is then void, none or unset), also on a node full of GPUs. If the line is
there and no device comes, the container runs under another runtime: the runtime class nvidia is missing, or nvidia is
not the default runtime of the node. TensorFlow says "failed call to cuInit", with 303 or "no CUDA-capable device", as
it does without any GPU.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.containers import PODS, WithoutGpu
from gpudiag.fix import start
from gpudiag.model.report import Severity

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=(
        start("resources: {{limits: {{nvidia.com/gpu: 1}}}}", "put it into the container's part of the pod"),
        start("runtimeClassName: nvidia", "if nvidia is not the node's default runtime, put this into the pod's spec"),
        start(
            "kubectl describe node NODE | grep nvidia.com/gpu",
            "if it shows 0 or nothing, the device plugin does not run there",
        ),
    ),
    url=PODS,
    needs_gpu=False,
    unless={
        "pod_runtime_without_gpu": "the pod was given a GPU; its runtime does not pass it in",
    },
    finding="host.driver.not_given",
)


def find(inside: WithoutGpu) -> Matches:
    if inside.container.kubernetes:
        yield inside.match()
