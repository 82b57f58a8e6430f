"""NVML's errors, by name and as ``nvidia-smi`` and other programs print them."""

from __future__ import annotations

from gpudiag.fix import Kind, Role, Where, check, note, reboot, run, start
from gpudiag.knowledge.message import Family, Text

FAMILY = Family(
    "NVML and nvidia-smi",
    stage="NVML",
    seen="NVML, nvidia-smi",
    url="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html",
)

_DRIVER = (
    check("lsmod | grep ^nvidia; sudo modprobe nvidia", "is the kernel module loaded, and what does loading it say"),
    check(
        "sudo dkms status; mokutil --sb-state", "built for this kernel; Secure Boot refuses a module that is not signed"
    ),
    run("sudo apt install --reinstall nvidia-driver-580", "of this distribution; then reboot", kind=Kind.CHANGE_DRIVER),
)
_LOST = (
    check("sudo dmesg | grep -i -e nvrm -e xid -e AER", "Xid 79: the GPU is off the bus"),
    reboot("or switch the machine off and on", role=Role.ALTERNATIVE),
    note("check power cables, seat, temperature and the PCIe slot", kind=Kind.REPLACE_HARDWARE),
)

FAMILY.fault(
    "driver_not_reached",
    Text(
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
        "https://github.com/gridhead/nvidia-auto-installer-for-fedora-linux/issues/75",
    ),
    Text("NVML_ERROR_DRIVER_NOT_LOADED", "nvidia-nvml-dev-cu12 12.9.79 nvml.h:1207"),
    "NVMLError_DriverNotLoaded",
    Text("Driver Not Loaded", "nvidia-ml-py 13.615.71 pynvml.py:1049"),
    meaning="the kernel module of the NVIDIA driver is not loaded",
    fix=_DRIVER,
    stage="DRIVER",
)
FAMILY.fault(
    "nvml_unknown",
    Text("Failed to initialize NVML: Unknown Error", "https://github.com/NVIDIA/nvidia-docker/issues/1671"),
    Text(
        "NVML_ERROR_UNKNOWN",
        "tensorflow 2.4.4 tensorflow/include/external/nccl_archive/_virtual_includes/include_hdrs/nvmlwrap.h:124",
    ),
    "NVMLError_Unknown",
    meaning="NVML cannot use the driver: in a container, systemd took the device files away when it reloaded; else "
    "the driver is damaged",
    fix=(
        start("docker restart CONTAINER", "or make the pod again: it gets the devices back"),
        run(
            "sudo nvidia-ctk system create-dev-char-symlinks --create-all",
            "so that it does not come again",
            where=Where.HOST,
        ),
        start(
            "docker run --gpus all --device /dev/nvidia0 --device /dev/nvidiactl --device /dev/nvidia-uvm ...",
            "or so",
            role=Role.ALTERNATIVE,
        ),
        note(
            "outside of a container: install the driver again, also after an upgrade of Windows, and reboot",
            kind=Kind.CHANGE_DRIVER,
        ),
    ),
)
FAMILY.fault(
    "nvml_blocked",
    Text("GPU access blocked by the operating system", "nvidia-cuda-cupti-cu12 12.9.79 libcupti.so.12"),
    "Failed to initialize NVML: N/A",
    meaning="Windows does not let WSL or the container use the GPU: WSL, Windows or the driver on Windows is too "
    "old, or another libnvidia-ml comes first",
    fix=(
        run("wsl --update", "in Windows, then: wsl --shutdown", kind=Kind.REBOOT),
        note("install the current NVIDIA driver in Windows, and none in WSL", kind=Kind.CHANGE_DRIVER),
        run(
            "sudo apt purge '*nvidia-driver*' 'libnvidia-compute*'",
            "in WSL, if one was installed there",
            kind=Kind.REMOVE,
        ),
    ),
    stage="DRIVER",
    seen="WSL 2",
)
FAMILY.fault(
    "smi_without_cuda",
    Text("CUDA Version: ERR!", "https://github.com/tensorflow/tensorflow/issues/43860"),
    "CUDA Version: N/A",
    meaning="nvidia-smi finds NVML, and not libcuda: the container was given the driver's tools without its CUDA "
    "(compute), or that package of the driver is not installed",
    fix=(
        start(
            "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",
            "in a container, with the NVIDIA runtime",
        ),
        check(
            "ldconfig -p | grep libcuda.so.1; sudo apt install libnvidia-compute-580", "otherwise; the driver's number"
        ),
    ),
    stage="DRIVER_LIBRARY",
)
FAMILY.fault(
    "nvml_missing",
    Text("NVML_ERROR_LIBRARY_NOT_FOUND", "nvidia-nvml-dev-cu12 12.9.79 nvml.h:1210"),
    "NVMLError_LibraryNotFound",
    Text("NVML Shared Library Not Found", "nvidia-ml-py 13.615.71 pynvml.py:1052"),
    Text("Couldn't find libnvidia-ml.so library in your system", "https://github.com/NVIDIA/nvidia-docker/issues/859"),
    "nvidia-smi: command not found",
    'nvidia-smi": executable file not found in $PATH',
    "'nvidia-smi' is not recognized as an internal or external command",
    meaning="NVML, a part of the NVIDIA driver, is not there: no driver, or a container that was given none",
    fix=(
        start("docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...", "in a container"),
        run(
            "sudo ldconfig; sudo apt install --only-upgrade nvidia-container-toolkit libnvidia-container1",
            "if the host's nvidia-smi works: the first in the container, the second on the host",
            where=Where.HOST,
        ),
        run(
            "sudo apt install nvidia-driver-580",
            "of this distribution; then reboot",
            kind=Kind.CHANGE_DRIVER,
            where=Where.HOST,
        ),
    ),
)
FAMILY.fault(
    "nvml_no_permission",
    Text(
        "NVML_ERROR_NO_PERMISSION",
        "tensorflow 2.4.4 tensorflow/include/external/nccl_archive/_virtual_includes/include_hdrs/nvmlwrap.h:108",
    ),
    "NVMLError_NoPermission",
    "Failed to initialize NVML: Insufficient Permissions",
    meaning="this user may not use the GPU's device files",
    fix=(
        check("ls -l /dev/nvidia*", "readable and writable for all, or for a group"),
        run("sudo usermod -aG video,render $USER"),
    ),
    stage="DRIVER",
)
FAMILY.fault(
    "device_handle_lost",
    Text(
        "Unable to determine the device handle for {gpu}: Unknown Error",
        "https://github.com/rwth-i6/returnn/issues/1486",
    ),
    "Unable to determine the device handle for {gpu}: No Device",
    Text(
        "NVML_ERROR_GPU_IS_LOST",
        "tensorflow 2.4.4 tensorflow/include/external/nccl_archive/_virtual_includes/include_hdrs/nvmlwrap.h:119",
    ),
    "NVMLError_GpuIsLost",
    Text("NVML_ERROR_RESET_REQUIRED", "nvidia-nvml-dev-cu12 12.9.79 nvml.h:1214"),
    "NVMLError_ResetRequired",
    Text("GPU requires reset", "nvidia-cuda-cupti-cu12 12.9.79 libcupti.so.12"),
    meaning="a GPU does not answer the driver any more: a fault of its power, its slot or the GPU",
    fix=_LOST,
    stage="DRIVER",
)
FAMILY.fault(
    "no_devices_found",
    Text("No devices were found", "https://github.com/NVIDIA/open-gpu-kernel-modules/issues/862"),
    Text("No NVIDIA GPU found", "open-gpu-kernel-modules 595.45.04 kernel-open/nvidia/nv.c:905"),
    Text(
        "NVML_ERROR_NOT_FOUND",
        "tensorflow 2.4.4 tensorflow/include/external/nccl_archive/_virtual_includes/include_hdrs/nvmlwrap.h:110",
    ),
    "NVMLError_NotFound",
    meaning="the driver runs and finds no GPU: none is given to this container, or the driver refuses the GPU",
    fix=(
        check("lspci -nn | grep -i nvidia; sudo dmesg | grep -i nvrm", "is there a GPU, and why was it refused"),
        start("docker run --gpus all ...", "in a container"),
    ),
    follows=True,
    stage="DRIVER",
)
FAMILY.fault(
    "nvml_power",
    Text("NVML_ERROR_INSUFFICIENT_POWER", "nvidia-nvml-dev-cu12 12.9.79 nvml.h:1206"),
    "NVMLError_InsufficientPower",
    Text("Insufficient External Power", "nvidia-ml-py 13.615.71 pynvml.py:1048"),
    meaning="a GPU has no power cable, or too few",
    fix=(
        note(
            "connect each power socket of the GPU to the power supply, and start the machine again",
            kind=Kind.REPLACE_HARDWARE,
        ),
    ),
    stage="DRIVER",
)
FAMILY.fault(
    "nvml_irq",
    Text("NVML_ERROR_IRQ_ISSUE", "nvidia-nvml-dev-cu12 12.9.79 nvml.h:1209"),
    "NVMLError_IrqIssue",
    Text("Interrupt Request Issue", "nvidia-ml-py 13.615.71 pynvml.py:1051"),
    meaning="the kernel does not deliver the GPU's interrupts",
    fix=(check("sudo dmesg | grep -i -e nvrm -e irq", "then: irqpoll on the kernel's command line, or another slot"),),
    stage="DRIVER",
)
FAMILY.fault(
    "nvml_ecc",
    Text("NVML_ERROR_CORRUPTED_INFOROM", "nvidia-nvml-dev-cu12 12.9.79 nvml.h:1212"),
    "NVMLError_CorruptedInforom",
    "infoROM is corrupted at gpu {gpu:s}",
    meaning="the GPU's own storage of its settings (InfoROM) is damaged",
    fix=(check("nvidia-smi -q | grep -i inforom"), note("the GPU works as a rule; its maker can write it again")),
    possible=True,
)
FAMILY.fault(
    "nvml_in_use",
    Text(
        "NVML_ERROR_IN_USE",
        "tensorflow 2.4.4 tensorflow/include/external/nccl_archive/_virtual_includes/include_hdrs/nvmlwrap.h:123",
    ),
    "NVMLError_InUse",
    "is currently in use by another process",
    "In use by another client",
    meaning="the GPU cannot be changed while a process uses it",
    fix=(check("sudo fuser -v /dev/nvidia*", "who uses it; end it, and try again"),),
)
FAMILY.fault(
    "nvml_too_old",
    Text("NVML_ERROR_FUNCTION_NOT_FOUND", "nvidia-nvml-dev-cu12 12.9.79 nvml.h:1211"),
    "NVMLError_FunctionNotFound",
    Text(
        "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
        "tensorflow 2.15.1 tensorflow/include/third_party/gpus/cuda/include/nvml.h:995",
    ),
    "NVMLError_ArgumentVersionMismatch",
    meaning="the driver is older than the program that asks NVML",
    fix=(run("sudo apt install nvidia-driver-580", "of this distribution; then reboot", kind=Kind.CHANGE_DRIVER),),
    possible=True,
)
FAMILY.fault(
    "nvml_no_memory",
    Text("NVML_ERROR_MEMORY", "nvidia-nvml-dev-cu12 12.9.79 nvml.h:1218"),
    "NVMLError_Memory",
    Text("NVML_ERROR_INSUFFICIENT_RESOURCES", "nvidia-nvml-dev-cu12 12.9.79 nvml.h:1221"),
    "NVMLError_InsufficientResources",
    meaning="the driver lacks memory of the host, or room for a MIG instance",
    fix=(check("free -m; nvidia-smi mig -lgip", "memory of the host; room for instances"),),
    possible=True,
)
FAMILY.sign(
    "nvml_not_supported",
    Text(
        "NVML_ERROR_NOT_SUPPORTED",
        "tensorflow 2.4.4 tensorflow/include/external/nccl_archive/_virtual_includes/include_hdrs/nvmlwrap.h:107",
    ),
    "NVMLError_NotSupported",
    meaning="this GPU does not report what was asked",
)
FAMILY.sign(
    "nvml_uninitialized",
    Text(
        "NVML_ERROR_UNINITIALIZED",
        "tensorflow 2.4.4 tensorflow/include/external/nccl_archive/_virtual_includes/include_hdrs/nvmlwrap.h:105",
    ),
    "NVMLError_Uninitialized",
    "NVML: Uninitialized",
    meaning="NVML was not started",
)
FAMILY.fault(
    "nvml_timeout",
    Text("NVML_ERROR_TIMEOUT", "nvidia-nvml-dev-cu12 12.9.79 nvml.h:1208"),
    "NVMLError_Timeout",
    meaning="the driver did not answer in time",
    fix=(run("sudo nvidia-smi -pm 1", "keeps GPUs initialised"), check("sudo dmesg | grep -i -e nvrm -e xid")),
    possible=True,
)
FAMILY.fault(
    "nvml_os",
    Text("NVML_ERROR_OPERATING_SYSTEM", "nvidia-nvml-dev-cu12 12.9.79 nvml.h:1215"),
    "NVMLError_OperatingSystem",
    Text("blocked by the operating system/cgroups", "nvidia-nvml-dev-cu12 12.9.79 nvml.h:1215"),
    meaning="the operating system, or the control group of the container, blocks the GPU",
    fix=(start("docker run --gpus all ...", "or give the job a GPU"), check("ls -l /dev/nvidia*")),
    stage="DRIVER",
)
for _name, _texts, _meaning in (
    (
        "invalid_argument",
        "INVALID_ARGUMENT INVALID_STATE INSUFFICIENT_SIZE",
        "NVML was called with a value that it does not take",
    ),
    ("not_ready", "NOT_READY", "the GPU is not ready to answer yet"),
    ("no_data", "NO_DATA", "the GPU has nothing to report"),
    ("gpu_not_found", "GPU_NOT_FOUND", "no GPU of that name is here"),
    ("no_frequency", "FREQ_NOT_SUPPORTED", "the GPU does not run at that frequency"),
    ("vgpu_without_ecc", "VGPU_ECC_NOT_SUPPORTED", "a vGPU cannot be used while its GPU checks its memory (ECC)"),
    ("repeated_call", "ALREADY_INITIALIZED DEPRECATED", "NVML was called as older programs do"),
):
    FAMILY.sign(
        f"nvml_{_name}",
        *(
            Text(f"NVML_ERROR_{_text}", "tensorflow 2.21 include/third_party/gpus/cuda/nvml/include/nvml.h")
            for _text in _texts.split()
        ),
        meaning=_meaning,
    )
