"""Containers and Kubernetes: Docker, the NVIDIA container toolkit, CDI, the device plugin and the scheduler."""

from __future__ import annotations

from gpudiag.fix import (
    Kind,
    Role,
    Where,
    check,
    configure,
    install,
    install_driver,
    kernel_log,
    note,
    nvidia_smi,
    reboot,
    run,
    start,
)
from gpudiag.knowledge.fault import Confidence, Stage
from gpudiag.knowledge.message import MessageFamily

FAMILY = MessageFamily(
    "containers and Kubernetes",
    stage=Stage.DRIVER_LIBRARY,
    seen="Docker, NVIDIA container toolkit, Kubernetes",
    url="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html",
)
PLUGIN = "https://github.com/NVIDIA/k8s-device-plugin#prerequisites"
_TOOLKIT = (
    run("sudo apt install nvidia-container-toolkit", kind=Kind.INSTALL_AS_ROOT),
    configure("sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker", where=Where.HOST),
    start("docker run --rm --gpus all ubuntu nvidia-smi", "the test"),
)
_CDI = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"

FAMILY.fault(
    "no_device_driver",
    "could not select device driver {} with capabilities: [[gpu",
    "Unknown runtime specified nvidia",
    "unknown or invalid runtime name: nvidia",
    meaning="Docker has no NVIDIA runtime: the NVIDIA container toolkit is missing, or Docker does not use it",
    fix=_TOOLKIT,
)
FAMILY.fault(
    "hook_missing",
    'exec: "nvidia-container-runtime-hook": executable file not found',
    'exec: "nvidia-container-runtime": executable file not found',
    "nvidia-container-runtime: no such file or directory",
    "nvidia-container-runtime did not terminate successfully",
    meaning="Docker is configured for the NVIDIA container toolkit, and its programs are not there",
    fix=_TOOLKIT,
)
FAMILY.fault(
    "container_no_nvml",
    "nvidia-container-cli{}: initialization error: load library failed: libnvidia-ml.so.1",
    "nvidia-container-cli{}: initialization error: load library failed: libcuda.so.1",
    meaning="the daemon that starts the container does not find the driver's libraries of the host",
    fix=(
        check("nvidia-smi", "the driver must answer there first", where=Where.HOST),
        run(
            "sudo snap remove docker; docker context use default",
            "snap's Docker and Docker Desktop see another root",
            kind=Kind.REMOVE,
            where=Where.HOST,
        ),
        run(
            "sudo apt install --reinstall docker-ce nvidia-container-toolkit && sudo systemctl restart docker",
            kind=Kind.INSTALL_AS_ROOT,
        ),
    ),
)
FAMILY.fault(
    "container_driver_not_loaded",
    "nvidia-container-cli{}: initialization error: nvml error: driver not loaded",
    "nvidia-container-cli{}: initialization error: cuda error: no cuda-capable device",
    "nvidia-container-cli{}: initialization error: driver error: failed to process request",
    "nvidia-container-cli{}: initialization error: nvml error: driver/library version mismatch",
    "nvidia-container-cli{}: initialization error: nvml error: unknown error",
    meaning="the driver of the host does not work, so that no container gets a GPU",
    fix=(
        check("nvidia-smi", "what it says is the fault", where=Where.HOST),
        reboot("after an upgrade of the driver"),
    ),
    stage=Stage.DRIVER,
)
FAMILY.fault(
    "container_of_newer_driver",
    "This container was built for NVIDIA Driver Release {needs:v} or later, but version {has:v} was detected",
    meaning="the driver of the host ({has}) is older than the image needs ({needs})",
    fix=(
        install_driver("then reboot", where=Where.HOST),
        note(
            "or an image of an earlier month: https://docs.nvidia.com/deeplearning/frameworks/support-matrix",
            kind=Kind.START_CONTAINER,
        ),
    ),
    stage=Stage.CONTEXT,
    seen="images of NVIDIA",
)
FAMILY.fault(
    "container_newer_than_gpu",
    "Detected {gpu} GPU, which is not supported by this container",
    meaning="the image has no code for {gpu}: the GPU is too old for it",
    fix=(
        note(
            "an image of an earlier year: https://docs.nvidia.com/deeplearning/frameworks/support-matrix",
            kind=Kind.START_CONTAINER,
        ),
        install(
            "tensorflow==2.10.*",
            "numpy<2",
            note="or a wheel of pypi.org, with CUDA 11.2 and cuDNN 8.1: has code for 3.5 and newer",
        ),
    ),
    stage=Stage.CONFIGURATION,
    seen="images of NVIDIA",
)
FAMILY.fault(
    "container_without_code",
    "No supported GPU(s) detected to run this container",
    meaning="the image has no code for the GPU: the GPU is newer, or too old for it",
    fix=(
        nvidia_smi("which one it is", "--query-gpu=name,compute_cap --format=csv"),
        note(
            "the image of a month that has it: https://docs.nvidia.com/deeplearning/frameworks/support-matrix",
            kind=Kind.START_CONTAINER,
        ),
    ),
    stage=Stage.CONFIGURATION,
    symptom=True,
    seen="images of NVIDIA",
)
FAMILY.fault(
    "compose_too_old",
    "Additional property runtime is not allowed",
    "Additional property devices is not allowed",
    "__init__() got an unexpected keyword argument 'gpus'",
    "value 'devices' does not match any of the regexes",
    "deploy.resources.reservations value Additional properties are not allowed ('devices' was unexpected)",
    "Unsupported config option for services.{:s} 'runtime'",
    "__init__() got an unexpected keyword argument 'device_requests'",
    "create_container() got an unexpected keyword argument 'device_requests'",
    meaning="this docker-compose is too old for the way in which the file asks for GPUs",
    fix=(
        start(
            "docker compose version; sudo apt install docker-compose-plugin",
            "then: docker compose up, without the hyphen",
        ),
        install("--upgrade", "docker-compose", note="1.28 or newer, in its old form"),
    ),
    stage=Stage.CONFIGURATION,
    seen="Docker Compose",
)
FAMILY.fault(
    "container_wsl_driver",
    "nvidia-container-cli{}: initialization error: WSL environment detected but no adapters were found",
    meaning="WSL has no GPU: the driver on Windows is missing or too old, or WSL is not version 2",
    fix=(
        run("wsl --update", "in Windows, then: wsl --shutdown", kind=Kind.REBOOT),
        note("install the current NVIDIA driver in Windows", kind=Kind.CHANGE_DRIVER),
    ),
    stage=Stage.DRIVER,
)
FAMILY.fault(
    "container_driver_slow",
    "driver rpc error",
    meaning="the driver takes longer to initialise the GPUs than the container toolkit waits",
    fix=(
        configure(
            "sudo nvidia-smi -pm 1", "keeps them initialised; or: sudo systemctl enable --now nvidia-persistenced"
        ),
        kernel_log("if it is still slow"),
    ),
    stage=Stage.DRIVER,
)
FAMILY.fault(
    "image_needs_newer_driver",
    "unsatisfied condition: cuda>={needed:v}",
    "unsupported CUDA version: driver {:v} < image {needed:v}",
    meaning="the image asks for a newer CUDA {needed} than the host's driver runs",
    fix=(
        install_driver("under WSL in Windows; one of that CUDA or newer", where=Where.HOST),
        note("or an older image", kind=Kind.INSTALL),
        start("docker run -e NVIDIA_DISABLE_REQUIRE=1 ...", "skips the check; GPUs of data centres only"),
    ),
    stage=Stage.DRIVER,
)
FAMILY.fault(
    "image_requires",
    "unsatisfied condition: brand = {brand}",
    "unsatisfied condition: driver>={driver}",
    "unsatisfied condition: arch{arch}",
    meaning="the image asks for a driver or a kind of GPU that this machine does not have",
    fix=(
        install_driver("under WSL in Windows", where=Where.HOST),
        start("docker run -e NVIDIA_DISABLE_REQUIRE=1 ...", "skips the check"),
    ),
    stage=Stage.DRIVER,
)
FAMILY.fault(
    "container_unknown_device",
    "device error: {device:s} unknown device",
    "device error: unknown device id: {device:s}",
    meaning="the container is to get a GPU or MIG instance that this machine does not have under that name",
    fix=(
        nvidia_smi("the names: GPU-..., MIG-... of drivers from 470 on; a number counts from 0", "-L"),
        start(
            "kubectl -n kube-system rollout restart daemonset nvidia-device-plugin-daemonset",
            "Kubernetes, if GPUs of the node were changed; then make the pod again",
        ),
        configure(f"{_CDI}; nvidia-ctk cdi list", "for names of CDI (nvidia.com/gpu=0)"),
    ),
    stage=Stage.CONFIGURATION,
)
FAMILY.fault(
    "cdi_device",
    "unresolvable CDI devices {device:s}",
    meaning="the container engine finds no description (CDI) of the device {device}: none was made, it is not where "
    "the engine looks, or it is older than a change of the GPUs",
    fix=(
        configure(f"{_CDI}; nvidia-ctk cdi list", "must show the device"),
        note(
            "podman from 4.1 on, Docker from 25 on; another folder of descriptions: podman --cdi-spec-dir=/var/run/cdi"
        ),
        nvidia_smi("the GPUs and MIG instances that there are", "-L"),
    ),
    stage=Stage.CONFIGURATION,
    url="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html",
)
FAMILY.fault(
    "singularity_without_driver",
    "Could not find any nv files on this host",
    "Could not find any nv libraries on this host",
    "Could not find any NVIDIA binaries on this host",
    "Could not find any NVIDIA libraries on this host",
    meaning="Singularity (Apptainer) finds no libraries of an NVIDIA driver on this host, which --nv would bring along",
    fix=(
        check(
            "nvidia-smi; ldconfig -p | grep libcuda.so.1",
            "outside of the container: both must answer",
            where=Where.HOST,
        ),
        start("srun --gres=gpu:1 ...", "on a cluster: on a node that has GPUs"),
        note("libraries in an unusual folder: the names in nvliblist.conf, ldconfig of the host, or --bind"),
    ),
    seen="Singularity, Apptainer",
    url="https://apptainer.org/docs/user/latest/gpu.html",
)
FAMILY.fault(
    "container_mount_exists",
    "mount error: file creation failed: {file:s}: file exists",
    meaning="the image contains files of a driver, in whose place the toolkit cannot mount the host's",
    fix=(
        note("make the image again without driver packages; in its Dockerfile:"),
        run(
            "RUN rm -f /usr/lib/x86_64-linux-gnu/libcuda.so* /usr/lib/x86_64-linux-gnu/libnvidia-*.so*",
            kind=Kind.REMOVE,
            where=Where.IMAGE,
        ),
    ),
)
FAMILY.fault(
    "container_cgroup",
    "failed to add device rules: unable to find any existing device filters attached to the cgroup",
    "mount error: {} bpf_prog_query(BPF_CGROUP_DEVICE) failed",
    "container error: cgroup subsystem devices not found",
    meaning="the container toolkit does not know this kernel's control groups (version 2)",
    fix=(
        run("sudo apt install --only-upgrade nvidia-container-toolkit libnvidia-container1", kind=Kind.INSTALL_AS_ROOT),
        configure(
            "sudo sed -i 's/#no-cgroups = false/no-cgroups = true/' /etc/nvidia-container-runtime/config.toml",
            "rootless",
            where=Where.HOST,
        ),
    ),
    stage=Stage.DRIVER,
)
FAMILY.fault(
    "container_driver_changed",
    "mount error: mount operation failed: {:s}/proc/driver/nvidia{:s}: no such file or directory",
    "mount error: {:s} failed: /proc/driver/nvidia{:s}: no such file or directory",
    "mount error: {:s} failed: /dev/nvidia{:s}: no such file or directory",
    meaning="the driver of the host is half loaded, or was changed while it ran: its files in /proc or /dev are not "
    "there",
    fix=(
        reboot("the host; or: sudo nvidia-modprobe -u -c 0; nvidia-smi"),
        check("nvidia-smi", "before a container is started: makes the device files", where=Where.HOST),
    ),
    stage=Stage.DRIVER,
)
FAMILY.fault(
    "container_toolkit_old",
    "mount error: {} no such file or directory",
    "error executing hook `/usr/bin/nvidia-ctk` (exit code: {:d})",
    "error executing hook `/usr/bin/nvidia-container-toolkit` (exit code: {:d})",
    "error executing hook `/usr/bin/nvidia-container-runtime-hook` (exit code: {:d})",
    "error executing hook `/usr/bin/nvidia-cdi-hook` (exit code: {:d})",
    meaning="the NVIDIA container toolkit is older than the driver, or its CDI specification is of another driver: "
    "it names files that are not there",
    fix=(
        run(
            "sudo apt update; sudo apt install --only-upgrade nvidia-container-toolkit "
            "nvidia-container-toolkit-base "
            "libnvidia-container1 libnvidia-container-tools",
            kind=Kind.INSTALL_AS_ROOT,
        ),
        configure(
            "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
            "again, after each change of the driver",
            where=Where.HOST,
        ),
        check("nvidia-ctk --version; cat /etc/apt/sources.list.d/*nvidia*", "whether its repository is switched off"),
    ),
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "container_ldconfig",
    "nvidia-container-cli{}: ldcache error: process {program:s} failed with error code: {:d}",
    "nvidia-container-cli{}: mount error: failed to add device rules: {}",
    "nvidia-container-cli{}: ldcache error: open failed: {program:s}: no such file or directory",
    "could not start {program:s} mount operation failed: {:s} operation not permitted",
    meaning="the toolkit's hook may not do its work in this container: it runs without root or in its own user "
    "namespace, most "
    "often, or the host's ldconfig is elsewhere",
    fix=(
        configure(
            "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml; podman run --device "
            "nvidia.com/gpu=all "
            "--security-opt "
            "label=disable ...",
            "CDI needs no hook",
            where=Where.HOST,
        ),
        configure(
            "sudo sed -i 's/^#no-cgroups = false/no-cgroups = true/' /etc/nvidia-container-runtime/config.toml",
            "for containers without root",
            where=Where.HOST,
        ),
        check(
            "grep ldconfig /etc/nvidia-container-runtime/config.toml",
            '"@/sbin/ldconfig" is the host\'s; Debian, Ubuntu: @/sbin/ldconfig.real',
        ),
    ),
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "container_ldcache",
    "nvidia-container-cli{}: ldcache error: {}",
    "nvidia-container-cli{}: mount error: {}",
    "nvidia-container-cli{}: initialization error: {}",
    "nvidia-container-cli{}: detection error: {}",
    "nvidia-container-cli{}: container error: {}",
    meaning="the container toolkit could not prepare the container",
    fix=(check("sudo nvidia-container-cli -k -d /dev/tty info", "the reason in full"), *_TOOLKIT[:2]),
    symptom=True,
)
FAMILY.fault(
    "toolkit_mode",
    "invoking the NVIDIA Container Runtime Hook directly (e.g. specifying the docker --gpus flag) is not supported",
    meaning="the toolkit is set to CDI, which the option --gpus of this Docker does not use",
    fix=(
        start("docker run --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all ..."),
        start("docker run --device nvidia.com/gpu=all ..."),
    ),
    stage=Stage.CONFIGURATION,
)
FAMILY.fault(
    "container_hook_failed",
    "error running hook: exit status {:d}",
    "error running prestart hook #{:d}: exit status {:d}",
    "error running hook #{:d}: error running hook",
    meaning="a hook that prepares the container failed: the line after it says why",
    fix=(
        note("the rest of the message names the fault (stderr: ...)"),
        check("nvidia-smi", where=Where.HOST),
    ),
    symptom=True,
)
FAMILY.fault(
    "cdi_version",
    "CDI device injection failed",
    "failed to inject CDI devices",
    "failed to load CDI specification",
    "failed to construct CDI modifier",
    meaning="the description of the GPUs for containers (CDI) is missing, old or not valid",
    fix=(configure(_CDI, "again after each change of the driver"), check("nvidia-ctk cdi list")),
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "plugin_no_nvml",
    "could not load NVML library",
    "If this is a GPU node, did you set the docker default runtime to `nvidia`",
    "If this is a GPU node, did you configure the NVIDIA Container Toolkit",
    "Incompatible strategy detected {}",
    "Incompatible platform detected",
    "invalid device discovery strategy {}",
    "Failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND",
    "Incompatible {:w} detected auto",
    meaning="the device plugin's pod has no driver libraries: the NVIDIA runtime is not the default of this node",
    fix=(
        configure(
            "sudo nvidia-ctk runtime configure --runtime=containerd --set-as-default && sudo systemctl "
            "restart containerd",
            where=Where.HOST,
        ),
        start("kubectl -n kube-system rollout restart daemonset nvidia-device-plugin-daemonset"),
        start("runtimeClassName: nvidia", "or so, in the plugin's pod", role=Role.ALTERNATIVE),
    ),
    url=PLUGIN,
)
FAMILY.fault(
    "insufficient_gpus",
    "Insufficient nvidia.com/gpu",
    "Insufficient nvidia.com/mig-{:s}",
    meaning="no node that may be used has a free GPU (nvidia.com/gpu) for the pod",
    fix=(
        check(
            "kubectl describe nodes | grep -A8 -e Allocatable -e 'Allocated resources'", "nvidia.com/gpu must be there"
        ),
        check(
            "kubectl -n kube-system logs -l name=nvidia-device-plugin-ds", "if it is not: why the plugin found no GPU"
        ),
        check("kubectl get pods -A -o wide", "if it is: which pods hold them"),
    ),
    stage=Stage.CONFIGURATION,
    url=PLUGIN,
)
FAMILY.fault(
    "admission_failed",
    "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu",
    "UnexpectedAdmissionError",
    "no healthy devices present; cannot allocate unhealthy devices nvidia.com/",
    meaning="the kubelet has no healthy GPU for the pod: the device plugin is gone, or a GPU is unhealthy",
    fix=(
        start("kubectl -n kube-system rollout restart daemonset nvidia-device-plugin-daemonset"),
        check("sudo dmesg | grep -i xid", "an Xid makes a GPU unhealthy"),
        start("kubectl delete pod NAME", "a pod that was refused does not come back by itself"),
    ),
    stage=Stage.CONFIGURATION,
    url=PLUGIN,
)
FAMILY.fault(
    "runtime_class",
    'no runtime for "{:q}" is configured',
    "failed to find runtime handler {:s} from runtime list",
    'RuntimeClass "nvidia" not found',
    'RuntimeHandler "{:q}" not supported',
    'runtimeclass.node.k8s.io "nvidia" not found',
    meaning="the node's container engine has no runtime of the name nvidia",
    fix=(
        configure(
            "sudo nvidia-ctk runtime configure --runtime=containerd && sudo systemctl restart containerd",
            where=Where.HOST,
        ),
        check("kubectl get runtimeclass", "nvidia must be there"),
    ),
    stage=Stage.CONFIGURATION,
    url=PLUGIN,
)
FAMILY.fault(
    "privileged_ignored",
    "Ignoring devices requested by environment variable(s) in unprivileged container",
    meaning="NVIDIA_VISIBLE_DEVICES is not allowed to give this container GPUs",
    fix=(
        start("docker run --gpus all ...", "in Kubernetes: ask for nvidia.com/gpu"),
        configure(
            "sudo sed -i 's/.*accept-nvidia-visible-devices-envvar-when-unprivileged.*/"
            "accept-nvidia-visible-devices-envvar-when-unprivileged = true/' "
            "/etc/nvidia-container-runtime/config.toml",
            where=Where.HOST,
        ),
    ),
    stage=Stage.CONFIGURATION,
)
FAMILY.fault(
    "shm_bus_error",
    "[Errno 28] No space left on device: '/dev/shm{:q}'",
    "DataLoader worker (pid {:d}) is killed by signal: Bus error",
    "Bus error (core dumped)",
    meaning="shared memory (/dev/shm) is full, as in a container, whose default is 64 MiB",
    fix=(start("docker run --shm-size=1g ...", "or --ipc=host"), check("df -h /dev/shm")),
    confidence=Confidence.POSSIBLE,
    stage=Stage.MEMORY,
)
FAMILY.harmless(
    "gpu_not_given",
    "WARNING: The NVIDIA Driver was not detected. GPU functionality will not be available",
    meaning="NVIDIA's image was started without --gpus; that is as meant if it is to run on the CPU",
    seen="NVIDIA's images",
)
FAMILY.fault(
    "image_shm_notice",
    "The SHMEM allocation limit is set to the default of 64MB",
    meaning="the container has 64 MiB of shared memory, which NCCL and data loaders fill",
    fix=(start("docker run --gpus all --ipc=host --ulimit memlock=-1 --ulimit stack=67108864 ..."),),
    symptom=True,
    stage=Stage.CONFIGURATION,
)
FAMILY.fault(
    "container_older_than_gpu",
    "Detected {gpu} GPU, which is not yet supported in this version of the container",
    meaning="the image is older than the GPU, and has no code for it",
    fix=(
        start(
            "docker run --gpus all -it nvcr.io/nvidia/tensorflow:25.02-tf2-py3", "a newer one; the last with TensorFlow"
        ),
    ),
    stage=Stage.CONFIGURATION,
    confidence=Confidence.POSSIBLE,
    seen="images of NVIDIA",
)
FAMILY.fault(
    "rootless_nvml",
    "nvidia-container-cli{}: permission error: capability change failed",
    meaning="the container engine runs without root, and the toolkit must not set control groups then",
    fix=(configure("sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place", where=Where.HOST),),
    stage=Stage.DRIVER,
)
