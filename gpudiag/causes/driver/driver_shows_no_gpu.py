"""CUDA finds no GPU, though NVML reports GPUs and nothing hides them

The usual reasons of "no CUDA-capable device is detected" do not apply here: CUDA_VISIBLE_DEVICES lets GPUs through, the
device files are there and may be opened, and the module is loaded. What is left: a module nvidia_uvm of another version
or in a failed state (after suspend, for example), a GPU that failed, or a driver that was half upgraded.
"""

from __future__ import annotations

from dataclasses import replace

from gpudiag.cause import Cause, Fix, Matches
from gpudiag.causes.shared.device_files import NoDevice
from gpudiag.causes.shared.gpu_state import AFTER_SLEEP, KernelLog
from gpudiag.fix import Where, check, kernel_log, reboot, reload_uvm, run_container
from gpudiag.knowledge.sandboxes import BY_NAME
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts, Unknown
from gpudiag.model.visibility import mask_in_force

CAUSE = Cause(
    title="CUDA finds no GPU, though NVML reports {gpus} and nothing hides them{why}",
    fix=(
        reload_uvm("if no GPU is in use"),
        kernel_log(),
        reboot(),
    ),
    url="https://docs.nvidia.com/deploy/xid-errors/index.html",
    unless={
        "vgpu_type_without_cuda": "it says why the driver shows no GPU",
        "uvm_device_fails": "it names the file that CUDA could not open",
        "device_file_of_another_driver": "it names the file that CUDA could not open",
        "device_files_kept_by_control_group": "it says who refuses the device files",
        "device_files_kept_by_security_module": "it says who refuses the device files",
    },
)


def find(gpu: NoDevice, facts: Facts, kernel: KernelLog) -> Matches:
    visible = mask_in_force(facts).devices
    if gpu.with_all_files and any(device.mig_mode != "enabled" or device.mig_uuids for device in visible):
        # nvidia_uvm often does not survive a suspend: cuInit then says CUDA_ERROR_UNKNOWN, and NVML works.
        reason = kernel.reason([device.pci_bus_id for device in visible])
        if reason is not None and reason.is_likely:
            return  # the kernel's log names the fault of a GPU: another cause says which
        if not isinstance(facts.container, Unknown) and facts.container.sandbox == "gvisor":
            match = gpu.match(Confidence.LIKELY)
            why = "; gVisor passes on only those calls to the driver that it knows"
            yield replace(match, figures={**match.figures, "why": why}, fix=_of_gvisor(facts))
            return
        slept = kernel.slept if "ERROR_UNKNOWN" in gpu.error else ()
        match = gpu.match(Confidence.LIKELY if slept else Confidence.POSSIBLE)
        why = "; this machine was suspended, which the module nvidia_uvm often does not survive" if slept else ""
        yield replace(
            match,
            evidence=(*slept, *match.evidence, *(reason.lines if reason and not slept else ())),
            figures={**match.figures, "why": why},
            fix=(*AFTER_SLEEP, CAUSE.fix[2]) if slept else (),
        )


def _of_gvisor(facts: Facts) -> Fix:
    module = "" if isinstance(facts.driver, Unknown) else facts.driver.kernel_module or ""
    release = (
        f"must list the driver {module}; a newer release of runsc knows more" if module else "must list the driver"
    )
    return (
        check("runsc nvproxy list-supported-drivers", release, where=Where.HOST),
        *BY_NAME["gvisor"].rules,
        BY_NAME["gvisor"].give,
        run_container("--runtime=runc", "--gpus all", image="IMAGE", note="starts the container without gVisor"),
    )
