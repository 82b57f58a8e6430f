"""Messages of the Linux kernel, its build system and the driver's installer about the driver and PCI Express."""

from __future__ import annotations

from gpudiag.fix import Kind, check, install_driver, kernel_log, note, reboot, reset_gpu, run
from gpudiag.knowledge.fault import Confidence, Stage
from gpudiag.knowledge.message import MessageFamily

FAMILY = MessageFamily(
    "the kernel and the driver's module",
    stage=Stage.DRIVER,
    seen="Linux, NVIDIA drivers from 390 on",
    url="https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/",
)
_NVRM = check("sudo dmesg | grep -i -e nvrm -e nvidia", "shows all that the driver reports")

FAMILY.fault(
    "driver_does_not_know_gpu",
    "installed in this system is not supported by the {}NVIDIA {:s} driver release",
    "You do not appear to have an NVIDIA GPU supported by the {:v} NVIDIA Linux graphics driver",
    "installed in this system is not supported by the",
    "supported through the NVIDIA {needed:s} Legacy drivers",
    meaning="this driver does not support this GPU: it is too old or too new for it",
    fix=(
        check(
            "lspci -nn | grep -i nvidia; nvidia-smi",
            "shows GPU and driver; find one that fits at https://www.nvidia.com/drivers",
        ),
    ),
)
FAMILY.fault(
    "gpu_needs_closed_module",
    "installed in this system is not supported by open",
    meaning="the open kernel module does not drive this GPU, which has no system processor (GSP): it needs the "
    "proprietary module",
    fix=(
        run("sudo apt install nvidia-driver-580", "the proprietary module", kind=Kind.CHANGE_DRIVER),
        reboot(),
    ),
)
FAMILY.fault(
    "open_module_for_data_center",
    "Open nvidia.ko is only ready for use on Data Center GPUs",
    meaning="the open kernel module of this release drives other GPUs than those of data centers only if it is told to",
    fix=(
        run(
            "echo 'options nvidia NVreg_OpenRmEnableUnsupportedGpus=1' | sudo tee /etc/modprobe.d/nvidia-open.conf",
            "or install the proprietary module, or a driver from 560 on",
            kind=Kind.CHANGE_DRIVER,
        ),
        reboot(),
    ),
)
FAMILY.fault(
    "power_cables",
    "GPU does not have the necessary power cables connected",
    meaning="the GPU gets no power: its power cables are not connected, or of the wrong kind",
    fix=(
        note(
            "switch off, and connect every power socket of the card to the power supply, with a cable that is made for "
            "it: some cards take the plug of a processor (EPS) and not that of PCIe",
            kind=Kind.REPLACE_HARDWARE,
        ),
    ),
)
FAMILY.fault(
    "gpu_off_the_bus",
    "NVRM: GPU {:b}: GPU has fallen off the bus",
    "has fallen off the bus and is not responding to commands",
    meaning="the GPU does not answer any more: it has fallen off the PCIe bus",
    fix=(
        reboot("or switch the machine off and on: the GPU does not answer before"),
        note("check power cables, seat, temperature and the PCIe slot", kind=Kind.REPLACE_HARDWARE),
    ),
)
FAMILY.fault(
    "gpu_reset_required",
    "Reset required [NV_ERR_RESET_REQUIRED]",
    meaning="the driver refuses the GPU until it is reset",
    fix=(
        reset_gpu("GPU", "if no process uses the GPU; or reboot"),
        kernel_log("shows the error before it, which names the fault"),
    ),
)
FAMILY.fault(
    "gpu_does_not_wake",
    "can't change power state from D3cold to D0 (config space inaccessible)",
    "Unable to change power state from {:s} to D0, device inaccessible",
    meaning="the GPU cannot be switched on again from its power-saving state",
    fix=(
        reboot("starts the GPU again"),
        run(
            "echo 'options nvidia NVreg_DynamicPowerManagement=0x00' | sudo tee /etc/modprobe.d/nvidia-power.conf",
            "keeps the driver from switching it off",
            kind=Kind.CHANGE_DRIVER,
        ),
    ),
)
FAMILY.fault(
    "firmware_missing",
    "Direct firmware load for nvidia/{:s} failed with error -2",
    "loading /lib/firmware/nvidia/{:s} failed with error {:s}",
    "RmFetchGspRmImages: No firmware image found",
    meaning="the driver's firmware in /lib/firmware/nvidia is missing or cannot be loaded",
    fix=(
        check("ls -l /lib/firmware/nvidia/*", "must have a folder of the loaded module's release, with gsp_*.bin"),
        note(
            "install the driver's firmware of that release (Ubuntu: nvidia-firmware, Debian: firmware-nvidia-gsp), "
            "and rebuild the initramfs if the module is loaded from it",
            kind=Kind.CHANGE_DRIVER,
        ),
    ),
)
FAMILY.fault(
    "gsp_not_started",
    "Cannot initialize GSP firmware RM",
    "failed to wait for GFW boot complete",
    "unexpected WPR2 already up, cannot proceed with booting GSP",
    meaning="the firmware of the GPU (GSP) does not start",
    fix=(
        note(
            "switch the machine off, wait, and switch it on: a GPU in a bad state starts only then; if the GPU is "
            "passed to a virtual machine, reset it on the host",
            kind=Kind.REBOOT,
        ),
        note("update the driver, and the firmware of mainboard and card (VBIOS)", kind=Kind.CHANGE_DRIVER),
    ),
)
FAMILY.fault(
    "no_interrupt",
    "Can't find an IRQ for your NVIDIA card",
    meaning="the firmware, or the virtual machine, gave the GPU no interrupt",
    fix=(
        note(
            "a virtual machine must offer MSI, or an interrupt line: update the hypervisor; on real hardware load the "
            "firmware's defaults",
            kind=Kind.CHANGE_DRIVER,
        ),
    ),
)
FAMILY.fault(
    "module_blacklisted",
    "Module nvidia{:s} is blacklisted",
    meaning="an option of the kernel (module_blacklist=) forbids the driver's module",
    fix=(
        check("cat /proc/cmdline", "shows module_blacklist=: take the module out in the boot loader's settings"),
        reboot(),
    ),
)
FAMILY.fault(
    "module_of_another_kernel",
    "disagrees about version of symbol {:w}",
    "nvidia: Unknown symbol {:w}",
    "nvidia: version magic {}should be{}",
    meaning="the driver's kernel module was built for another kernel than the running one",
    fix=(
        run(
            "sudo apt install linux-headers-$(uname -r) && sudo dkms autoinstall && sudo modprobe nvidia",
            kind=Kind.CHANGE_DRIVER,
        ),
    ),
)
FAMILY.fault(
    "bar_not_assigned",
    "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid",
    "NVRM: BAR{:d} is {:s} @ 0x0",
    "BAR{:d} is 0M @ 0x0 (PCI:",
    "BAR {:s} failed to assign",
    "BAR {:s} no space for",
    "can't assign; no space",
    meaning="the firmware, or the virtual machine, gave the GPU no address range (BAR)",
    fix=(
        note("switch on 'Above 4G Decoding' (and 'Resizable BAR') in the firmware; then", kind=Kind.CHANGE_DRIVER),
        note(
            "kernel options pci=realloc, or pci=realloc=off if it is set; virtual machine: a larger 64-bit MMIO window",
            kind=Kind.CHANGE_DRIVER,
        ),
        _NVRM,
    ),
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "gpu_not_initialised",
    "NVRM: None of the NVIDIA devices were initialized",
    "NVRM: request_irq() failed ({:s})",
    "NVRM: The NVIDIA probe routine failed for {:d} device(s)",
    "NVRM: None of the NVIDIA graphics adapters were initialized",
    "NVRM: No NVIDIA graphics adapter found",
    "nvidia: probe of {device:s} failed with error {:s}",
    "GSP boot failed at resume",
    meaning="the driver found the GPU and could not start it",
    fix=(
        _NVRM,
        note("switch the machine off and on: the GPU may hang; check its power cables and its slot", kind=Kind.REBOOT),
        install_driver("or install another release of the driver; then reboot"),
    ),
    symptom=True,
)
FAMILY.fault(
    "module_not_built",
    "Bad return status for module build on kernel: {kernel:s}",
    "Checking to see whether the nvidia kernel module was successfully built",
    "Error! Your kernel headers for kernel {kernel:s} cannot be found",
    "Unable to find the kernel source tree for the currently running kernel",
    "Error! Your kernel headers for kernel",
    "DKMS module 'nvidia{:q}' failed to build",
    "The kernel header file '{:q}' does not exist",
    "Failed CC version check",
    "The CC version check failed",
    "The distribution-provided pre-install script failed",
    "KERNEL_UNAME={:s} modules{:s}(bad exit status: {:d})",
    "ERROR: Unable to build the NVIDIA kernel module",
    "ERROR: Failed to run `/usr/sbin/dkms build -m nvidia {}",
    'An error occurred while performing the step: "Building kernel modules"',
    "nvidia.ko failed to build",
    "akmods: Building rpms failed; see /var/cache/akmods/nvidia",
    "/var/crash/nvidia-dkms",
    "dkms.conf for module nvidia includes a BUILD_EXCLUSIVE directive which does not match this kernel",
    meaning="the driver's kernel module could not be built for this kernel: its headers are missing, or the driver is "
    "older than the kernel or its compiler",
    fix=(
        run(
            "sudo apt install linux-headers-$(uname -r) build-essential && sudo dkms autoinstall",
            kind=Kind.CHANGE_DRIVER,
        ),
        check("cat /var/lib/dkms/nvidia/*/build/make.log | tail -30", "shows the compiler's errors"),
        install_driver("installs a driver that supports this kernel; then reboot"),
    ),
)
FAMILY.fault(
    "module_not_loaded_by_installer",
    "ERROR: Unable to load the kernel module 'nvidia.ko'",
    "ERROR: The kernel module failed to load",
    "ERROR: Unable to load the 'nvidia{:q}' kernel module",
    meaning="the driver's kernel module cannot be loaded: another one is in use, it was built for "
    "another kernel, or Secure Boot refuses it",
    fix=(
        check(
            "sudo dmesg | tail -20; mokutil --sb-state",
            "shows why; if SecureBoot is enabled, sign the module or switch Secure Boot off",
        ),
        run(
            "sudo apt install --reinstall linux-headers-$(uname -r) nvidia-dkms-580; sudo reboot",
            kind=Kind.CHANGE_DRIVER,
        ),
    ),
)
FAMILY.fault(
    "module_in_use",
    "An NVIDIA kernel module {:s} appears to already be loaded in your kernel",
    "appears to already be loaded in your kernel. This may be because it is in use",
    "You appear to be running an X server; please exit X before installing",
    "modprobe: FATAL: Module nvidia{:s} is in use",
    "rmmod: ERROR: Module nvidia{:s} is in use",
    meaning="the driver's kernel module is in use, and cannot be replaced or unloaded now",
    fix=(
        check(
            "sudo lsof /dev/nvidia* 2>/dev/null | awk 'NR>1{{print $2}}' | sort -u",
            "shows the processes that use it: end them, or stop the desktop: sudo systemctl isolate multi-user.target",
        ),
        run(
            "sudo systemctl stop nvidia-persistenced && sudo rmmod nvidia_drm nvidia_modeset nvidia_uvm nvidia",
            "or reboot",
            kind=Kind.RELOAD_DRIVER,
        ),
    ),
)
FAMILY.fault(
    "driver_packages_conflict",
    "held broken packages",
    "nvidia-driver-{version:s} : Depends: {} but it is not {}",
    "nvidia-dkms-{version:s} : Depends: {} but it is not {}",
    "trying to overwrite '{file:q}', which is also in package {:s}nvidia{}",
    meaning="packages of two driver releases are mixed, so none can be installed",
    fix=(
        run("sudo apt purge '*nvidia*' '*cublas*' 'cuda-drivers*' && sudo apt autoremove", kind=Kind.CHANGE_DRIVER),
        run("sudo apt update && sudo apt install nvidia-driver-580 && sudo reboot", kind=Kind.CHANGE_DRIVER),
    ),
    confidence=Confidence.POSSIBLE,
    seen="apt",
)
FAMILY.fault(
    "pcie_errors",
    "PCIe Bus Error: severity=Uncorrected{}",
    "AER: Uncorrected (Fatal) error received",
    "PCIe Bus Error: severity=Fatal{}",
    "AER: Uncorrected (Non-Fatal) error received",
    "AER: Multiple Uncorrected {}",
    "device recovery failed",
    meaning="the PCI Express link of a device fails; it is the GPU's if the line names the GPU's address",
    fix=(
        check("lspci -d 10de:", "shows the GPUs' addresses: compare them with the line"),
        note(
            "check seat, riser cable and power; set a lower PCIe generation for that slot in the "
            "firmware; boot with pcie_aspm=off",
            kind=Kind.REPLACE_HARDWARE,
        ),
    ),
    stage=Stage.CONTEXT,
    confidence=Confidence.POSSIBLE,
)
FAMILY.harmless(
    "pcie_corrected",
    "AER: Corrected error received",
    "PCIe Bus Error: severity=Corrected{}",
    "AER: Multiple Corrected error received",
    meaning="an error of the PCI Express connection that was corrected; many a second mean a bad seat or cable",
    seen="Linux",
)
FAMILY.fault(
    "processor_stuck",
    "BUG: soft lockup - CPU#{:d} stuck for {:s}",
    "nvidia-modeset: ERROR: GPU:{:d}: Idling display engine timed out",
    meaning="the kernel hangs in a driver: a GPU that does not answer, most often, if a program of CUDA is named",
    fix=(kernel_log("shows what the GPU's driver reported before it"), reboot()),
    confidence=Confidence.POSSIBLE,
)
