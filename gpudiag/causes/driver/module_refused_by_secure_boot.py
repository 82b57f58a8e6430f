"""Secure Boot is on and NVIDIA's kernel module, which is installed, is not loaded

Under Secure Boot the kernel loads only modules that are signed with a key it knows. A module that was built on this
machine is signed with its own key, which somebody must enrol in the firmware, at the blue screen of the next
start. `sudo dmesg` then says "Loading of module with unavailable key is rejected", and modprobe "Key was rejected by
service".
"""

from __future__ import annotations

from dataclasses import replace

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.gpu_state import KernelLog
from gpudiag.causes.shared.kernel_module import UnloadedModule
from gpudiag.fix import Kind, note, reboot, run
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="{state} and NVIDIA's kernel module, which is installed, is not loaded",
    fix=(
        run("sudo modprobe nvidia", "shows whether the key is rejected", kind=Kind.RELOAD_DRIVER),
        run("sudo mokutil --import {key}", kind=Kind.CHANGE_DRIVER),
        reboot("choose at the next start: Enroll MOK"),
        note("or switch Secure Boot off in the firmware", kind=Kind.CHANGE_DRIVER),
    ),
    url="https://wiki.ubuntu.com/UEFI/SecureBoot/DKMS",
    views=("host.driver.no_module",),
    unless={
        "gpu_needs_legacy_driver": "to sign a driver that ignores the GPU does not help",
    },
)


def find(gpu: UnloadedModule, kernel: KernelLog) -> Matches:
    refused = kernel.last("Loading of unsigned module", "unavailable key", "unsigned module loading is restricted")
    if gpu.driver.module_installed and (gpu.driver.secure_boot or refused):
        on = gpu.driver.secure_boot
        sign = "UEFI variable SecureBoot: on; the module was built" if on else "the module was built"
        match = gpu.match(sign, Confidence.LIKELY)
        state = "Secure Boot is on" if on else "the kernel refuses a module whose signature it does not know,"
        yield replace(match, evidence=(*match.evidence, *refused), figures={**match.figures, "state": state})
