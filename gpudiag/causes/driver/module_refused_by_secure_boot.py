"""Secure Boot is on and NVIDIA's kernel module, which is installed, is not loaded

Under Secure Boot the kernel loads only modules that are signed with a key it knows. A module that was built on this
machine is signed with a key of its own, which somebody must enrol in the firmware, at the blue screen of the next
start. `sudo dmesg` then says "Loading of module with unavailable key is rejected", and modprobe "Key was rejected by
service".
"""

from __future__ import annotations

from gpudiag.cause import Cause, Evidence, Matches
from gpudiag.causes.shared.kernel_module import not_loaded
from gpudiag.model import Sure

CAUSE = Cause(
    fix=(
        "sudo modprobe nvidia  # says whether the key is rejected",
        "sudo mokutil --import {key}",
        "sudo reboot  # and choose: Enroll MOK",
        "# or switch Secure Boot off in the firmware",
    ),
    url="https://wiki.ubuntu.com/UEFI/SecureBoot/DKMS",
    views=("host.driver.no_module",),
)


def find(evidence: Evidence) -> Matches:
    yield from not_loaded(
        "module_refused_by_secure_boot", "UEFI variable SecureBoot: on; the module was built", Sure.LIKELY, evidence
    )
