"""the GPUs are not ready: NVIDIA's Fabric Manager, or another service of the driver, has not set them up

On machines whose GPUs are joined by NVSwitch (HGX and DGX with A100, H100, H200, B200) a service must set the
switches up before CUDA can start: nvidia-fabricmanager, of exactly the driver's version. nvidia-smi lists all GPUs
without it, and cuInit fails with CUDA_ERROR_SYSTEM_NOT_READY: "system not yet initialized". An upgrade of the driver
alone is enough to stop it. Without NVSwitch the same error comes from a GPU in confidential computing mode that is
not set ready (`nvidia-smi conf-compute -srs 1`), and from one whose driver or firmware has not come up.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, Fix, Listing, Match, Matches, Program
from gpudiag.causes.shared.driver import IN_PACKAGE
from gpudiag.causes.shared.machine import WholeDriver, uses_apt
from gpudiag.causes.shared.steps import cuinit_error
from gpudiag.fix import Action, Kind, Where, check, configure, run
from gpudiag.knowledge.log_lines import Log
from gpudiag.knowledge.messages.way import SYSTEM_NOT_READY
from gpudiag.knowledge.releases import numbers
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="the GPUs are not ready and wait for {waited}",
    fix=(
        run("sudo apt install 'nvidia-fabricmanager-535=535.104.05*'", kind=Kind.INSTALL_AS_ROOT),
        configure("sudo systemctl enable --now nvidia-fabricmanager"),
        check("nvidia-smi -q | grep -A 2 Fabric", "must show: Completed, Success"),
    ),
    url="https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html",
    unless={
        "confidential_gpus_not_ready": "the same error code; this state explains it",
        "fabric_not_ready": "NVML names the GPU and its state in the fabric",
    },
)
_JOINED = re.compile(r"SXM|HBM3|H200|\bG?B[23]00|HGX|DGX")
"""Parts of the names of GPUs that NVSwitch may join; machines with up to four of them can do without NVSwitch."""


def find(whole: WholeDriver, listing: Listing, program: Program) -> Matches:
    said = [event.line for event in Log((cuinit_error(listing), *program.lines)).all(SYSTEM_NOT_READY)]
    if not said:
        return
    driver, nodes = whole.driver, whole.nodes
    module = driver.kernel_module or ""
    package, version = next((entry for entry in driver.packages.items() if "fabricmanager" in entry[0]), ("", ""))
    of_package = IN_PACKAGE.match(version)
    installed = of_package[1] if of_package else driver.fabric_manager_version
    found = f"{package} {version}" if package else f"version {installed}" if installed else ""
    switches = [node.path for node in nodes.nodes if node.path.startswith("/dev/nvidia-nvswitch")]
    joined = any(_JOINED.search(device.name) for device in whole.nvml.devices)
    sure = Confidence.PROVED if switches else Confidence.LIKELY if joined else Confidence.POSSIBLE
    do = (
        run(f"sudo apt install 'nvidia-fabricmanager-{module.partition('.')[0]}={module}*'", kind=Kind.INSTALL_AS_ROOT)
        if uses_apt(whole.facts)
        else run(f"sudo dnf install nvidia-fabric-manager-{module}", kind=Kind.INSTALL_AS_ROOT)
    )
    if whole.container:
        state, do = "cannot be seen from inside this container", do.replaced(where=Where.HOST)
        sure = Confidence.LIKELY if switches or joined else Confidence.POSSIBLE
    elif installed and installed != module:
        state = f"is of version {installed}, and the driver of version {module}"
    elif driver.fabric_manager == "absent":
        state = "is not installed"
    elif driver.fabric_manager == "stopped":
        state, do = (
            "is installed and does not run",
            check("sudo journalctl -u nvidia-fabricmanager -e", "shows why it stopped"),
        )
    else:
        state, sure = "runs, and has not made the GPUs ready", Confidence.POSSIBLE
        do = check("sudo journalctl -u nvidia-fabricmanager -e; sudo systemctl restart nvidia-fabricmanager")
    yield Match(
        evidence=(
            f"the CUDA driver: {said[0]}",
            f"NVSwitch: {', '.join(switches) or 'no device file'}; kernel module {module or 'not known'}",
            f"Fabric Manager: {driver.fabric_manager or 'not known'}{found and f', {found}'}",
        ),
        confidence=sure,
        figures={
            "waited": f"NVIDIA's Fabric Manager, which {state}"
            if switches or joined
            else "a service of the driver, and no NVSwitch is seen whose Fabric Manager that would be"
        },
        fix=_fix(do, whole, is_expected=bool(switches or joined), has_switches=bool(switches)),
    )


def _fix(do: Action, whole: WholeDriver, *, is_expected: bool, has_switches: bool) -> Fix:
    """Return ``do`` and what follows it if a Fabric Manager is expected; otherwise, checks of the driver's services."""
    if is_expected:
        first = (do, configure("sudo systemctl enable --now nvidia-fabricmanager"))
    else:
        after = "a GPU or firmware that did not come up; then: sudo reboot"
        first = (
            check("systemctl --failed", "look for NVIDIA's services, such as nvidia-persistenced"),
            run("sudo dmesg | grep -i -e nvrm -e xid", after, kind=Kind.REBOOT),
        )
    confidential = configure(
        "sudo nvidia-smi conf-compute -srs 1", "if nvidia-smi conf-compute -f shows: CC status: ON"
    )
    state = "must show: Completed, Success" + ("" if is_expected else "; N/A: there is none")
    devices = whole.nvml.devices
    # Confidential computing began with compute capability 9.0 (Hopper).
    is_older = bool(devices) and all(numbers(device.compute_capability or "9") < (9,) for device in devices)
    actions = (*first, *(() if has_switches or is_older else (confidential,)))
    if whole.container:
        actions = tuple(action.replaced(where=Where.HOST) for action in actions)
    return (*actions, check("nvidia-smi -q | grep -A 2 Fabric", state))
