"""the driver's libraries are in this container, {lacking} is not

CUDA needs /dev/nvidiactl, /dev/nvidia-uvm and a /dev/nvidiaN for each GPU. Passed in one by one, the second is the
one that is forgotten, because nvidia-smi works without it, while cuInit fails with an unknown error.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Match, Matches
from gpudiag.causes.shared.containers import (
    CONTROL,
    TOOLKIT,
    UNIFIED_MEMORY,
    container_facts,
    given_none,
    initialisation,
    libcuda_path,
    marks,
    node_paths,
    start,
)

CAUSE = Cause(
    fix=(
        "{start}",
        "# by hand, all of them: --device /dev/nvidiactl --device /dev/nvidia-uvm --device /dev/nvidia0",
        "sudo nvidia-modprobe -u -c=0  # on the host, where it lacks it, too",
    ),
    url=TOOLKIT,
    shown={
        "start": "docker run --gpus all IMAGE   # compose: deploy.resources.reservations.devices, capabilities: [gpu]"
    },
)


def find(evidence: Evidence) -> Matches:
    facts = evidence.facts
    container = container_facts(facts)
    # Where all of it is lacking, the container was given no GPU, and the library is the image's: told by that rule.
    if container is None or libcuda_path(facts) is None or given_none(evidence) or not initialisation(evidence):
        return
    lacking = [path for path in (CONTROL, UNIFIED_MEMORY) if path not in node_paths(facts)]
    if lacking and "/dev/dxg" not in node_paths(facts):
        yield Match(
            evidence=(
                marks(container),
                f"{libcuda_path(facts)} opens; cuInit: {initialisation(evidence)}",
                f"devices: {' '.join(node_paths(facts)) or 'none'}",
            ),
            figures={"start": start(container), "lacking": " and ".join(lacking)},
        )
