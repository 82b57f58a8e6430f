"""NVIDIA's kernel module is not loaded, though its driver is installed and a GPU is in this machine

The libraries of the driver are there, and the kernel does not run its module: the machine was not restarted after the
installation, the module does not fit the kernel, the driver does not support this GPU, or a file in a folder modprobe.d
or an option of the kernel forbids the module. If the kernel's log or such a line says why, the cause names it.
"""

from __future__ import annotations

from dataclasses import replace

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.gpu_state import KernelLog
from gpudiag.causes.shared.kernel_module import SWITCH_ON, GpuWithoutModule, ModuleSettings, shown
from gpudiag.causes.shared.machine import INSTALLATION
from gpudiag.fix import Kind, check, note, reboot, run
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="NVIDIA's kernel module is not loaded, though its driver is installed and GPU {pci} is in this machine{why}",
    fix=(
        run("sudo modprobe nvidia", kind=Kind.RELOAD_DRIVER),
        check("sudo dmesg | grep -i -e nvrm -e nvidia", "if that fails"),
        check(
            "grep -rn nvidia /etc/modprobe.d /lib/modprobe.d /run/modprobe.d /proc/cmdline",
            "look for a line that forbids the module: blacklist nvidia, install nvidia /bin/false, alias nvidia off",
        ),
    ),
    url=INSTALLATION,
    views=("host.driver.no_module",),
    symptom=True,
    unless={
        "module_refused_by_secure_boot": "modprobe cannot load what the kernel refuses",
    },
)
_LISTED = run("sudo depmod -a && sudo modprobe nvidia", kind=Kind.RELOAD_DRIVER)
_SWITCHED = note("if prime-select or envycontrol wrote the file: sudo prime-select on-demand, or envycontrol -s hybrid")


def find(gpu: GpuWithoutModule, kernel: KernelLog, settings: ModuleSettings) -> Matches:
    if settings.switched_off:  # integrated_gpu_chosen says so
        return
    match = gpu.match()
    forbidding = settings.forbidding()
    reason = None if forbidding else kernel.reason(gpu.nodes.pci_gpus)
    blacklisting = settings.blacklisting() if reason is None else ()
    found = forbidding + blacklisting
    why, fix, confidence = "", CAUSE.fix, Confidence.PROVED
    if found:
        option = found[0].place == "/proc/cmdline"
        why = f": the kernel's option {found[0].text} forbids it" if option else f": {found[0].place} forbids it"
        switched = _SWITCHED if any("/blacklist-nvidia.conf" in setting.place for setting in found) else None
        then = (reboot(),) if option else (CAUSE.fix[0], settings.boot_image)
        fix = (*settings.without(found), *then, *filter(None, [switched]))
        if any("bumblebee" in setting.place for setting in found):
            fix = SWITCH_ON[::-1]
        confidence = Confidence.PROVED if forbidding else Confidence.LIKELY
    elif gpu.driver.module_file is not None:
        why = f": modules.dep does not list {gpu.driver.module_file}, so modprobe does not find it"
        fix = (_LISTED, CAUSE.fix[1])
    elif reason is not None:
        why, fix, confidence = f": {reason.meaning}", reason.fix, reason.confidence
    yield replace(
        match,
        evidence=(*match.evidence, *shown(found), *(reason.lines if reason else ())),
        figures={**match.figures, "why": why},
        fix=fix if why else (),
        confidence=confidence,
    )
