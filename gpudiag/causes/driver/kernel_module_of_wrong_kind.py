"""a GPU needs NVIDIA's open kernel module but the proprietary one is loaded, or the other way round

NVIDIA's driver comes with one of two kernel modules. The open one drives GPUs from Turing on (2018: T4, RTX 20), and is
the only one for Blackwell (B200, RTX 50). The proprietary one drives everything up to Ada and Hopper. The wrong one
loads without an error and refuses the GPU: nvidia-smi says "No devices were found", and the kernel's log "requires
use of the NVIDIA open kernel modules" or "not supported by open nvidia.ko".
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.gpu_state import KernelLog, NoneListed
from gpudiag.causes.shared.machine import WholeDriver, uses_apt
from gpudiag.fix import Kind, check, note, reboot, run
from gpudiag.model.diagnosis import Stage

CAUSE = Cause(
    title="GPU {pci} needs NVIDIA's {needed} kernel module, but the {loaded} one is {state}",
    unfit=True,
    fix=(
        run("sudo apt install nvidia-driver-570-open", kind=Kind.CHANGE_DRIVER),
        reboot(),
        check("cat /proc/driver/nvidia/version", "shows which one is loaded: the open one says Open Kernel Module"),
    ),
    url="https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/kernel-modules.html",
    views=("host.driver.not_counted", "host.driver.no_module"),
)
_TURING, _BLACKWELL = 0x1E00, 0x2900
"""The first PCI device numbers of these generations; NVIDIA numbers them in their order (pci.ids)."""
_LAST_FOR_VOLTA = 580
"""The last release with a proprietary module for Maxwell, Pascal and Volta."""


def find(whole: WholeDriver, none: NoneListed | None, kernel: KernelLog) -> Matches:
    driver, nodes = whole.driver, whole.nodes
    # A module that refuses every GPU is unloaded again; then the kernel's log says which it was.
    refused_by_open = kernel.last("not supported by open nvidia.ko")
    is_open = driver.open_module if driver.open_module is not None else (True if refused_by_open else None)
    if is_open is None or whole.container:
        return
    refused = [
        pci
        for pci, model in nodes.models.items()
        if not whole.counts(pci)
        and nodes.bound.get(pci, "nvidia") == "nvidia"
        and (number := _number(model)) is not None
        and (number < _TURING if is_open else number >= _BLACKWELL)
    ]
    if not refused:
        return
    found = re.match(r"\d{3}", driver.kernel_module or "")
    release = int(found[0]) if found else _LAST_FOR_VOLTA
    package = f"nvidia-driver-{min(release, _LAST_FOR_VOLTA)}" if is_open else f"nvidia-driver-{max(release, 570)}-open"
    yield Match(
        evidence=(
            f"kernel module {driver.kernel_module or 'unloaded again'}: {'open' if is_open else 'proprietary'}",
            *(f"PCI bus: {pci}, device {nodes.models[pci]}; NVML does not count it" for pci in refused),
            *kernel.last("open kernel module", "open nvidia.ko", "RmInitAdapter"),
        ),
        figures={
            "pci": ", ".join(refused),
            "needed": "proprietary" if is_open else "open",
            "loaded": "open" if is_open else "proprietary",
            "state": "loaded" if driver.kernel_module else "installed",
        },
        fix=(
            run(f"sudo apt install {package}", kind=Kind.CHANGE_DRIVER)
            if uses_apt(whole.facts)
            else note(
                f"install the {'proprietary' if is_open else 'open'} module of the driver, such as {package}",
                kind=Kind.CHANGE_DRIVER,
            ),
            *CAUSE.fix[1:],
        ),
        stage=none.stage if none else Stage.CONFIGURATION,
        gpus=tuple(refused),
    )


def _number(model: str) -> int | None:
    return int(model, 16) if re.fullmatch("0x[0-9a-fA-F]{1,4}", model) else None
