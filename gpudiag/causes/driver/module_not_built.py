"""NVIDIA's kernel module was not built for the running kernel

The module must be built for each kernel. After a kernel update, this build fails or is skipped if the kernel's headers
are not installed or the driver is too old for the new kernel; the machine then starts without the module. The driver's
libraries are still there, so that everything looks installed.
"""

from __future__ import annotations

from dataclasses import replace

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.kernel_module import UnloadedModule
from gpudiag.causes.shared.machine import INSTALLATION, build_command, operating_system
from gpudiag.fix import Action, Kind, install_driver, note, run
from gpudiag.model.facts import KernelFacts

CAUSE = Cause(
    title="NVIDIA's kernel module was not built for the running kernel {kernel}{why}",
    fix=(
        run("sudo apt install linux-headers-6.1.0 && sudo dkms autoinstall -k 6.1.0", kind=Kind.CHANGE_DRIVER),
        run("sudo modprobe nvidia", kind=Kind.RELOAD_DRIVER),
        note("or boot the previous kernel from the boot menu", kind=Kind.CHANGE_DRIVER),
    ),
    url=INSTALLATION,
    views=("host.driver.no_module",),
)


def find(gpu: UnloadedModule, kernel: KernelFacts | None) -> Matches:
    if gpu.driver.module_file is not None:
        return
    running = operating_system(gpu.facts)[1]
    others = kernel.built_for if kernel and running not in kernel.built_for else ()
    if gpu.driver.module_installed is False or (gpu.driver.module_installed is None and others):
        missing = f"/lib/modules/{running}/modules.dep lists no module nvidia"
        elsewhere = f"it was built for {', '.join(others)}"
        error = kernel.build_error if kernel else ""
        found = gpu.match(
            "; ".join(([missing] if gpu.driver.module_installed is False else []) + ([elsewhere] if others else [])),
            fix=_another(others) if error else (build_command(gpu.facts), *CAUSE.fix[1:]),
        )
        why = f": the sources of {error.partition(':')[0]} do not compile for it" if error else ""
        yield replace(
            found,
            evidence=(*found.evidence, *([f"DKMS's make.log: {error}"] if error else [])),
            figures={**found.figures, "why": why},
        )


def _another(others: tuple[str, ...]) -> tuple[Action, ...]:
    """Return what helps where the driver's sources do not compile for a kernel: to build them again fails again."""
    boot = f"boot the kernel {others[-1]} from the boot menu: the module is there for it" if others else ""
    return (
        *([note(boot, kind=Kind.REBOOT)] if boot else []),
        install_driver("if it is a newer one than this; then reboot"),
        *([] if boot else [note("or boot an older kernel", kind=Kind.REBOOT)]),
    )
