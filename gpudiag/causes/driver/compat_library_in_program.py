"""the program loaded a libcuda of a package for forward compatibility (cuda-compat), which this GPU or driver does
not accept

The package brings a newer libcuda for an older kernel module. It works on data-centre GPUs only, with certain
drivers; on GeForce and others cuInit fails with CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE. NVIDIA's images have it in
/usr/local/cuda/compat. An upgrade of the driver without a restart ends in the same error.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import Kind, check, note, nvidia_smi
from gpudiag.knowledge.messages.programs_and_drivers import COMPAT_REFUSED, TWO_VERSIONS
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    fix=(
        check("echo $LD_LIBRARY_PATH", "take cuda/compat out of it; in an image: rm /usr/local/cuda/compat/libcuda*"),
        nvidia_smi("'Driver/library version mismatch': sudo reboot instead"),
        note("or a newer driver, or an image of an older CUDA, so that it is not needed", kind=Kind.CHANGE_DRIVER),
    ),
    url="https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html",
    needs_gpu=False,
    unless={
        "library_and_module_differ": "it names the two versions that do not fit",
    },
)


def find(program: Program) -> Matches:
    if not program.first(TWO_VERSIONS) and (said := program.said(COMPAT_REFUSED)):
        yield Match(said, Confidence.LIKELY)
