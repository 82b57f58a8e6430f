"""this pod asked for no GPU, but sees all GPUs of the node

Images for GPUs set NVIDIA_VISIBLE_DEVICES=all. Where nvidia is the default runtime of the node, a pod without a limit
for nvidia.com/gpu keeps that value and gets every GPU, which the scheduler does not know; in a pod that has the limit,
the device plugin replaces it by the GPUs that were given. TensorFlow then takes the memory of GPUs that belong to other
pods, and both run out of memory.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.containers import PODS, VISIBLE, InContainer
from gpudiag.fix import Kind, check, note, start
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts
from gpudiag.model.report import Severity
from gpudiag.model.visibility import gpus_in_scope, other_use

CAUSE = Cause(
    title="this pod asked for no GPU, but sees all {gpus} of the node",
    severity=Severity.WARNING,
    fix=(
        start("resources: {{limits: {{nvidia.com/gpu: 1}}}}", "if the pod needs GPUs"),
        check("env: [{{name: NVIDIA_VISIBLE_DEVICES, value: void}}]", "if the pod needs none"),
        note(
            "set accept-nvidia-visible-devices-envvar-when-unprivileged=false in the toolkit's config.toml on the node",
            kind=Kind.START_CONTAINER,
        ),
    ),
    url=PODS,
)


def find(inside: InContainer, facts: Facts) -> Matches:
    gpus = gpus_in_scope(facts)
    if not inside.container.kubernetes or facts.variables.get(VISIBLE) != "all":
        return
    others = [f"GPU {gpu.index} is used by {use}" for gpu in gpus if (use := other_use(gpu, facts))]
    if len(gpus) > 1 or others:
        yield Match(
            evidence=(inside.marks, f"{VISIBLE}='all': the device plugin would have named GPUs", *others),
            confidence=Confidence.LIKELY,
            figures={"gpus": len(facts.nvml_devices)},
        )
