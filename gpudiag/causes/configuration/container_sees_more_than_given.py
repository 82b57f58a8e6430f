"""this container sees more GPUs than it was given: TensorFlow takes the memory of other containers' GPUs

NVIDIA_VISIBLE_DEVICES names what the container runtime, or the device plugin of Kubernetes, gave. A privileged
container still sees every device of the host, and so does one whose spec sets the variable itself and bypasses the
plugin. TensorFlow then takes nearly all memory of each GPU, and other containers on the node run out of memory.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.containers import VISIBLE, InContainer
from gpudiag.causes.shared.visibility import MASK
from gpudiag.fix import Kind, export, note
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts
from gpudiag.model.report import Severity
from gpudiag.model.visibility import gpus_in_scope

CAUSE = Cause(
    title="this container was given {given}, but sees {seen}: TensorFlow takes the memory of other containers' GPUs",
    severity=Severity.WARNING,
    fix=(
        export(
            "CUDA_VISIBLE_DEVICES", "GPU-00000000-0000-4000-8000-000000000000", "shows only the GPUs that were given"
        ),
        note(
            "start it without privileges; in a pod: securityContext: {{privileged: false}}; docker "
            "run: without --privileged",
            kind=Kind.START_CONTAINER,
        ),
        note(
            "do not set NVIDIA_VISIBLE_DEVICES in the pod: request GPUs by resources.limits nvidia.com/gpu",
            kind=Kind.START_CONTAINER,
        ),
    ),
    url="https://github.com/kubernetes/kubernetes/issues/81256",
)
_ENTRY = re.compile(r"GPU-[0-9a-fA-F-]{1,36}|\d{1,2}")


def find(inside: InContainer, facts: Facts) -> Matches:
    value = facts.variables.get(VISIBLE, "")
    given = value.split(",")
    gpus = gpus_in_scope(facts)
    if not all(map(_ENTRY.fullmatch, given)) or len(given) >= len(gpus):
        return
    named = [gpu.uuid for gpu in gpus if gpu.uuid in given]
    if any(name.startswith("GPU-") for name in given) and not named:
        return  # the names of a host that gives others to its containers
    choose = export(MASK, ",".join(named), "shows only the GPUs that were given") if named else None
    yield Match(
        evidence=(inside.marks, f"{VISIBLE}={value!r}", f"{len(gpus)} GPUs are visible, {MASK} does not hide them"),
        confidence=Confidence.LIKELY,
        figures={"given": f"{len(given)} GPU{'' if len(given) == 1 else 's'}", "seen": f"{len(gpus)}"},
        fix=(
            choose,
            *CAUSE.fix[1:],
        ),
        tried=choose,
    )
