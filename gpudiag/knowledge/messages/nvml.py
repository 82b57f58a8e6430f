"""NVML's errors, by name and as ``nvidia-smi`` and other programs print them."""

from __future__ import annotations

from gpudiag.fix import (
    Kind,
    Role,
    Where,
    check,
    configure,
    install_driver,
    kernel_log,
    note,
    nvidia_smi,
    reboot,
    run,
    run_container,
    start,
)
from gpudiag.knowledge.fault import Confidence, Stage
from gpudiag.knowledge.message import MessageFamily

FAMILY = MessageFamily(
    "NVML and nvidia-smi",
    stage=Stage.NVML,
    seen="NVML, nvidia-smi",
    url="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html",
)

_DRIVER = (
    check(
        "lsmod | grep ^nvidia; sudo modprobe nvidia",
        "shows whether the kernel module is loaded, and the error if it cannot be",
    ),
    check(
        "sudo dkms status; mokutil --sb-state",
        "must say that the module is built for this kernel; Secure Boot refuses a module that is not signed",
    ),
    run(
        "sudo apt install --reinstall nvidia-driver-580",
        "or install the driver in your distribution's way; then reboot",
        kind=Kind.CHANGE_DRIVER,
    ),
)
_LOST = (
    check("sudo dmesg | grep -i -e nvrm -e xid -e AER", "look for Xid 79: the GPU has fallen off the bus"),
    reboot("or switch the machine off and on", role=Role.ALTERNATIVE),
    note("check power cables, seat, temperature and the PCIe slot", kind=Kind.REPLACE_HARDWARE),
)

FAMILY.fault(
    "driver_not_reached",
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
    "NVML_ERROR_DRIVER_NOT_LOADED",
    "NVMLError_DriverNotLoaded",
    "Driver Not Loaded",
    meaning="the kernel module of the NVIDIA driver is not loaded",
    fix=_DRIVER,
    stage=Stage.DRIVER,
)
FAMILY.fault(
    "nvml_unknown",
    "Failed to initialize NVML: Unknown Error",
    "NVML_ERROR_UNKNOWN",
    "NVMLError_Unknown",
    meaning="the driver failed, and NVML has no name for how: in a container, systemd took the device files away when "
    "it reloaded; else a GPU has failed or the driver is damaged",
    fix=(
        start("docker restart CONTAINER", "or create the pod again: it gets the devices back"),
        configure(
            "sudo nvidia-ctk system create-dev-char-symlinks --create-all",
            "prevents it from happening again",
            where=Where.HOST,
        ),
        run_container(
            "--gpus all",
            "--device /dev/nvidia0",
            "--device /dev/nvidiactl",
            "--device /dev/nvidia-uvm",
            note="or so",
            role=Role.ALTERNATIVE,
        ),
        note(
            "reinstall the driver if it fails outside a container, also after an upgrade of Windows, and reboot",
            kind=Kind.CHANGE_DRIVER,
        ),
    ),
)
FAMILY.fault(
    "nvml_blocked",
    "GPU access blocked by the operating system",
    "Failed to initialize NVML: N/A",
    meaning="Windows does not let WSL or the container use the GPU: WSL, Windows or the driver on Windows is too "
    "old, or another libnvidia-ml comes first",
    fix=(
        run("wsl --update", "run it in Windows, then: wsl --shutdown", kind=Kind.REBOOT),
        note("install the current NVIDIA driver in Windows, and none in WSL", kind=Kind.CHANGE_DRIVER),
        run(
            "sudo apt purge '*nvidia-driver*' 'libnvidia-compute*'",
            "if a Linux driver was installed in WSL",
            kind=Kind.CHANGE_DRIVER,
        ),
    ),
    stage=Stage.DRIVER,
    seen="WSL 2",
)
FAMILY.fault(
    "smi_without_cuda",
    "CUDA Version: ERR!",
    "CUDA Version: N/A",
    meaning="nvidia-smi finds NVML but not libcuda: the container was given the driver's tools "
    "without CUDA (compute), or that package of the driver is not installed",
    fix=(
        run_container(
            "--gpus all",
            "-e NVIDIA_DRIVER_CAPABILITIES=compute,utility",
            note="if it runs in a container, with the NVIDIA runtime",
        ),
        check("ldconfig -p | grep libcuda.so.1", "must show the library"),
        run(
            "sudo apt install libnvidia-compute-580",
            "use this outside a container; take your driver's number",
            kind=Kind.INSTALL_AS_ROOT,
        ),
    ),
    stage=Stage.DRIVER_LIBRARY,
)
FAMILY.fault(
    "nvml_missing",
    "NVML_ERROR_LIBRARY_NOT_FOUND",
    "NVMLError_LibraryNotFound",
    "NVML Shared Library Not Found",
    "Couldn't find libnvidia-ml.so library in your system",
    "nvidia-smi: command not found",
    'nvidia-smi": executable file not found in $PATH',
    "'nvidia-smi' is not recognized as an internal or external command",
    meaning="NVML, a part of the NVIDIA driver, was not found: no driver is installed, or the container was given none",
    fix=(
        run_container("--gpus all", "-e NVIDIA_DRIVER_CAPABILITIES=compute,utility", note="if it runs in a container"),
        run(
            "sudo ldconfig; sudo apt install --only-upgrade nvidia-container-toolkit libnvidia-container1",
            "if the host's nvidia-smi works, run the first command in the container and the second on the host",
            where=Where.HOST,
            kind=Kind.INSTALL_AS_ROOT,
        ),
        install_driver("or install the driver in your distribution's way; then reboot", where=Where.HOST),
    ),
)
FAMILY.fault(
    "nvml_no_permission",
    "NVML_ERROR_NO_PERMISSION",
    "NVMLError_NoPermission",
    "Failed to initialize NVML: Insufficient Permissions",
    meaning="permission denied: this user may not open the GPU's device files",
    fix=(
        check("ls -l /dev/nvidia*", "must be readable and writable for all, or for a group"),
        configure("sudo usermod -aG video,render $USER"),
    ),
    stage=Stage.DRIVER,
)
HANDLE_LOST = FAMILY.fault(
    "device_handle_lost",
    "Unable to determine the device handle for {gpu}: Unknown Error",
    "NVML_ERROR_GPU_IS_LOST",
    "NVMLError_GpuIsLost",
    "NVML_ERROR_RESET_REQUIRED",
    "NVMLError_ResetRequired",
    "GPU requires reset",
    meaning="a GPU no longer answers the driver: its power, its slot or the GPU itself has failed",
    fix=_LOST,
    stage=Stage.DRIVER,
)
HANDLE_NOT_FOUND = FAMILY.fault(
    "device_handle_not_found",
    "Unable to determine the device handle for {gpu}: Not Found",
    meaning="the driver knows {gpu}, but could not start it: what the kernel's log says of it is the reason",
    in_general="the driver knows a GPU, but could not start it",
    fix=(
        # https://github.com/NVIDIA/open-gpu-kernel-modules/issues/246: with the open module, not with the other
        kernel_log("shows why, such as RmInitAdapter failed, or a GPU that needs the other kind of kernel module"),
        nvidia_smi("must list it after the change"),
    ),
    stage=Stage.DRIVER,
)
FAMILY.fault(
    "no_devices_found",
    "No devices were found",
    "No NVIDIA GPU found",
    "NVML_ERROR_NOT_FOUND",
    "NVMLError_NotFound",
    meaning="the driver runs but finds no GPU: this container was given none, or the driver refuses the GPU",
    fix=(
        check(
            "lspci -nn | grep -i nvidia; sudo dmesg | grep -i nvrm",
            "shows whether a GPU exists, and why it was refused",
        ),
        run_container("--gpus all", note="if it runs in a container"),
    ),
    symptom=True,
    stage=Stage.DRIVER,
)
FAMILY.fault(
    "nvml_power",
    "NVML_ERROR_INSUFFICIENT_POWER",
    "NVMLError_InsufficientPower",
    "Insufficient External Power",
    meaning="a GPU has no power cable, or too few",
    fix=(
        note(
            "connect each power socket of the GPU to the power supply, and start the machine again",
            kind=Kind.REPLACE_HARDWARE,
        ),
    ),
    stage=Stage.DRIVER,
)
FAMILY.fault(
    "nvml_irq",
    "NVML_ERROR_IRQ_ISSUE",
    "NVMLError_IrqIssue",
    "Interrupt Request Issue",
    meaning="the kernel does not deliver the GPU's interrupts",
    fix=(
        check(
            "sudo dmesg | grep -i -e nvrm -e irq",
            "if it shows interrupt errors, boot with the kernel option irqpoll, or use another slot",
        ),
    ),
    stage=Stage.DRIVER,
)
FAMILY.fault(
    "nvml_ecc",
    "NVML_ERROR_CORRUPTED_INFOROM",
    "NVMLError_CorruptedInforom",
    "infoROM is corrupted at gpu {gpu:s}",
    meaning="the GPU's settings memory (InfoROM) is damaged",
    fix=(
        check("nvidia-smi -q | grep -i inforom"),
        note("keep using the GPU: it usually works; its maker can rewrite the InfoROM"),
    ),
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "nvml_in_use",
    "NVML_ERROR_IN_USE",
    "NVMLError_InUse",
    "is currently in use by another process",
    "In use by another client",
    meaning="the GPU cannot be changed while a process uses it",
    fix=(check("sudo fuser -v /dev/nvidia*", "shows the process that uses it: end it, and try again"),),
)
FAMILY.fault(
    "nvml_too_old",
    "NVML_ERROR_FUNCTION_NOT_FOUND",
    "NVMLError_FunctionNotFound",
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
    "NVMLError_ArgumentVersionMismatch",
    meaning="the driver is older than the program that asks NVML",
    fix=(install_driver("or install the driver in your distribution's way; then reboot"),),
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "nvml_no_memory",
    "NVML_ERROR_MEMORY",
    "NVMLError_Memory",
    "NVML_ERROR_INSUFFICIENT_RESOURCES",
    "NVMLError_InsufficientResources",
    meaning="the driver lacks memory of the host, or room for a MIG instance",
    fix=(check("free -m; nvidia-smi mig -lgip", "shows the host's free memory, and the room for MIG instances"),),
    confidence=Confidence.POSSIBLE,
)
FAMILY.sign(
    "nvml_not_supported",
    "NVML_ERROR_NOT_SUPPORTED",
    "NVMLError_NotSupported",
    meaning="this GPU does not report what was asked",
)
FAMILY.sign(
    "nvml_uninitialized",
    "NVML_ERROR_UNINITIALIZED",
    "NVMLError_Uninitialized",
    "NVML: Uninitialized",
    meaning="NVML was not started",
)
FAMILY.fault(
    "nvml_timeout",
    "NVML_ERROR_TIMEOUT",
    "NVMLError_Timeout",
    meaning="the driver did not answer in time",
    fix=(configure("sudo nvidia-smi -pm 1", "keeps the GPUs initialised"), kernel_log()),
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "nvml_os",
    "NVML_ERROR_OPERATING_SYSTEM",
    "NVMLError_OperatingSystem",
    "blocked by the operating system/cgroups",
    meaning="the operating system, or the control group of the container, blocks the GPU",
    fix=(run_container("--gpus all", note="or request a GPU for the job"), check("ls -l /dev/nvidia*")),
    stage=Stage.DRIVER,
)
for _name, _texts, _meaning in (
    (
        "invalid_argument",
        "INVALID_ARGUMENT INVALID_STATE INSUFFICIENT_SIZE",
        "NVML was called with an invalid value",
    ),
    ("not_ready", "NOT_READY", "the GPU is not ready to answer yet"),
    ("no_data", "NO_DATA", "the GPU has nothing to report"),
    ("gpu_not_found", "GPU_NOT_FOUND", "no GPU with that name was found"),
    ("no_frequency", "FREQ_NOT_SUPPORTED", "the GPU does not run at that frequency"),
    ("vgpu_without_ecc", "VGPU_ECC_NOT_SUPPORTED", "a vGPU cannot be used while its GPU checks its memory (ECC)"),
    ("repeated_call", "ALREADY_INITIALIZED DEPRECATED", "NVML was called with an outdated interface"),
):
    FAMILY.sign(
        f"nvml_{_name}",
        *(f"NVML_ERROR_{_text}" for _text in _texts.split()),
        meaning=_meaning,
    )
