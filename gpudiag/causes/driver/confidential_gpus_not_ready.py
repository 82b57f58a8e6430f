"""confidential computing is on, but the GPUs were not set to ready: CUDA does not start until they are

In confidential computing mode (H100 and later) a GPU gives no access before it was attested and set ready, which is
lost at each restart of the driver. nvidia-smi shows the GPU, and cuInit fails with 802: "system not yet initialized".
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.steps import CuInitFailed
from gpudiag.fix import check, run
from gpudiag.model.facts import NvmlFacts

CAUSE = Cause(
    unfit=True,
    fix=(
        run("sudo nvidia-smi conf-compute -srs 1"),
        run("python -m verifier.cc_admin", "before it, if the machine must be attested: sets them ready itself"),
        check("nvidia-smi conf-compute -grs", "must say: ready"),
    ),
    url="https://docs.nvidia.com/confidential-computing/index.html",
)


def find(failed: CuInitFailed, nvml: NvmlFacts) -> Matches:
    if nvml.confidential and nvml.confidential_ready is False:
        yield Match(evidence=("NVML: confidential computing: on; GPUs ready: no", f"cuInit: {failed}"))
