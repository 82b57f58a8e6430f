"""the NVIDIA kernel module does not run where the program ran

The driver's libraries and nvidia-smi are there, and nothing answers them. After an upgrade of the kernel the module
is not built for it; with Secure Boot an unsigned module is refused; nouveau may hold the GPU; in a container the
host's module counts.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.without_gpu import is_without_gpu
from gpudiag.fix import Kind, Role, check, note, run, run_container
from gpudiag.knowledge.messages.programs_and_drivers import (
    GPU_HELD_BY_MODULE,
    MODULE_SILENT,
    MODULE_UNSIGNED,
    NO_CUDA_DEVICE,
)
from gpudiag.knowledge.origin import Origin
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="the NVIDIA kernel module does not run where the program ran: {why}",
    fix=(
        run("mokutil --sb-state; sudo modprobe nvidia; sudo dmesg | tail", kind=Kind.RELOAD_DRIVER),
        run(
            "sudo apt install --reinstall linux-headers-$(uname -r) nvidia-dkms-580; sudo reboot",
            kind=Kind.CHANGE_DRIVER,
        ),
        run("sudo mokutil --import /var/lib/shim-signed/mok/MOK.der", kind=Kind.CHANGE_DRIVER),
    ),
    url="https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/",
    needs_gpu=False,
    unless={
        "module_not_loaded": "this machine's facts say the same of its module",
    },
)
_SECURE_BOOT = run(
    "sudo mokutil --disable-validation",
    "switch Secure Boot off, which refuses an unsigned module; or sign the module and enrol "
    "the key (sudo mokutil --import /var/lib/shim-signed/mok/MOK.der), then reboot",
    kind=Kind.REBOOT,
)

_NAMED_BY_ID = re.compile(r"\([0-9a-f]{12}\)")
"""The name that Docker gives to the host of a container without a name."""
_GIVEN = run_container("--gpus all", note="if the program ran in a container without the GPU")
_NO_NOUVEAU = run(
    r"printf 'blacklist nouveau\noptions nouveau modeset=0\n' | sudo tee "
    r"/etc/modprobe.d/no-nouveau.conf && sudo "
    "update-initramfs -u && sudo reboot",
    kind=Kind.CHANGE_DRIVER,
)


def find(program: Program, origin: Origin) -> Matches:
    if unsigned := program.said(MODULE_UNSIGNED):
        yield Match(
            unsigned,
            figures={"why": "Secure Boot refuses it, because it is not signed by a key of this machine"},
            fix=(
                _SECURE_BOOT,
                run("sudo modprobe nvidia", "then", kind=Kind.RELOAD_DRIVER),
            ),
        )
    elif held := program.said(GPU_HELD_BY_MODULE):
        yield Match(
            held,
            Confidence.LIKELY,
            {"why": "another driver holds the GPU: most often nouveau, or vfio-pci for a virtual machine"},
            fix=(
                check("lspci -k -d 10de:", "look for 'Kernel driver in use': it names the other driver"),
                _NO_NOUVEAU,
                note(
                    "if it is vfio-pci, the GPU is reserved for a virtual machine: its address is in "
                    "/etc/modprobe.d or the kernel's options"
                ),
            ),
        )
    elif (said := program.said(MODULE_SILENT)) and not is_without_gpu(program, origin):
        yield Match(
            said,
            Confidence.LIKELY,
            {"why": "it is not loaded, not built for this kernel, or refused"},
            explains=program.all(NO_CUDA_DEVICE),
            fix=(
                *((_GIVEN,) if any(map(_NAMED_BY_ID.search, said)) else ()),
                run(
                    "sudo modprobe nvidia; sudo dmesg | grep -i -e nvidia -e nvrm | tail",
                    "says why",
                    kind=Kind.RELOAD_DRIVER,
                ),
                _SECURE_BOOT.replaced(note=f"{_SECURE_BOOT.note} (mokutil --sb-state shows whether it is on)"),
                run(
                    "sudo apt install --reinstall linux-headers-$(uname -r) nvidia-dkms-580; sudo reboot",
                    "after an upgrade of the kernel: build it; the number is that of your driver",
                    role=Role.ALTERNATIVE,
                    kind=Kind.CHANGE_DRIVER,
                ),
            ),
        )
