"""libcuda.so.1 is the stub of the CUDA toolkit instead of the driver's library

The toolkit has a libcuda.so in its folder stubs, for linking on machines without a driver. If that folder is in
LD_LIBRARY_PATH or in the loader's configuration, or a Dockerfile linked libcuda.so.1 to the stub, programs open it,
and cuInit says CUDA_ERROR_STUB_LIBRARY. The driver itself can be in order: nvidia-smi works.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.driver import link_into, not_the_drivers_own, who_names
from gpudiag.causes.shared.libraries import COMPUTE, PATH, without
from gpudiag.causes.shared.steps import CuInitFailed
from gpudiag.fix import unset
from gpudiag.model.facts import Facts, Unknown

CAUSE = Cause(
    title="libcuda.so.1 is the stub of the CUDA toolkit{where} instead of the driver's library",
    fix=(unset("LD_LIBRARY_PATH"),),
    url="https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html",
    views=("host.driver.libcuda_failed",),
)
_STUBS = "/stubs"
"""Part of the folder of the CUDA toolkit whose libraries are for linking alone."""


def find(facts: Facts, error: CuInitFailed) -> Matches:
    driver = facts.driver
    if "STUB_LIBRARY" not in error:
        return
    folder, away = not_the_drivers_own(facts, _STUBS)
    path = None if isinstance(driver, Unknown) else driver.libcuda_path
    link = link_into(facts, _STUBS)
    library = facts.library(COMPUTE)
    found_by = f", found by {library.source}" if link and library is not None and library.source else ""
    yield Match(
        evidence=(
            *([f"{link} is a link to {path}{found_by}"] if link else [f"libcuda.so.1 is {path or 'not known'}"]),
            *who_names(facts, folder),
            f"cuInit: {error}",
        ),
        figures={
            "where": f", to which the link {link} in {library.source} leads,"
            if link and library
            else f", from {folder}"
            if folder
            else ""
        },
        about=(folder,) if folder else (),
        fix=(away, without(facts.variables.get(PATH, "").split(":"), [folder]) if link and found_by else None),
        tried=None if link else away,
    )
