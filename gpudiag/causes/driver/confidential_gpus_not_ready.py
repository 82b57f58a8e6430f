"""confidential computing is on, but the GPUs are not set ready: CUDA cannot start until they are

In confidential computing mode (H100 and later) a GPU gives no access before it was attested and set ready, which is
lost at each restart of the driver. nvidia-smi shows the GPU, and cuInit fails with 802: "system not yet initialized".
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.steps import CuInitFailed
from gpudiag.fix import configure, nvidia_smi, run
from gpudiag.model.facts import NvmlFacts

CAUSE = Cause(
    unfit=True,
    fix=(
        configure("sudo nvidia-smi conf-compute -srs 1"),
        run(
            "python -m verifier.cc_admin",
            "if the machine must be attested, run this instead: it also sets the GPUs ready",
        ),
        nvidia_smi("must show: ready", "conf-compute -grs"),
    ),
    url="https://docs.nvidia.com/confidential-computing/index.html",
)


def find(failed: CuInitFailed, nvml: NvmlFacts) -> Matches:
    if nvml.confidential and nvml.confidential_ready is False:
        yield Match(evidence=("NVML: confidential computing: on; GPUs ready: no", f"cuInit: {failed}"))
