"""/sys/module/nvidia is hidden from this process, and the driver's libraries look there for the kernel module

A sandbox may keep /sys, or parts of it, from the programs in it. The libraries of newer drivers (560 and later) read
/sys/module/nvidia/initstate before they open a device, and without it they do not start: cuInit answers
CUDA_ERROR_OPERATING_SYSTEM, and NVML "GPU access blocked by the operating system". The device files are there and open.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.gpu_state import NoneListed
from gpudiag.causes.shared.steps import CuInitFailed
from gpudiag.fix import start
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import DeviceNodeFacts, DriverFacts

CAUSE = Cause(
    title="/sys/module/nvidia is hidden from this process: {error}",
    fix=(
        start("bwrap --ro-bind /sys /sys --dev-bind /dev /dev ...", "in a sandbox of bubblewrap"),
        start("firejail --noblacklist=/sys/module --whitelist=/sys/module/nvidia* ...", "in one of firejail"),
    ),
    url="https://github.com/netblue30/firejail/issues/6509",
)


def find(driver: DriverFacts, nodes: DeviceNodeFacts, none: NoneListed, failed: CuInitFailed) -> Matches:
    if driver.kernel_module is not None and nodes.module_in_sysfs is False and "OPERATING_SYSTEM" in failed:
        yield Match(
            evidence=(
                f"cuInit: {failed}",
                f"/proc/driver/nvidia/version: {driver.kernel_module}; /sys/module/nvidia does not exist here",
            ),
            confidence=Confidence.LIKELY,
            figures={"error": failed.partition(":")[0]},
            stage=none.stage,
        )
