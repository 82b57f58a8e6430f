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
    run_container,
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
    run_container("--rm", "--gpus all", image="ubuntu nvidia-smi", note="the test"),
)
_CDI = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"

FAMILY.fault(
    "no_device_driver",
    "could not select device driver {} with capabilities: [[",
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
    meaning="Docker is configured for the NVIDIA Container Toolkit, but its programs were not found",
    fix=_TOOLKIT,
)
FAMILY.fault(
    "container_no_nvml",
    "nvidia-container-cli{}: initialization error: load library failed: libnvidia-ml.so.1",
    "nvidia-container-cli{}: initialization error: load library failed: libcuda.so.1",
    meaning="the host's driver libraries were not found by the daemon that starts the container",
    fix=(
        check("nvidia-smi", "must work on the host first", where=Where.HOST),
        run(
            "sudo snap remove docker; docker context use default",
            "if Docker comes from snap or Docker Desktop, it does not see the host's files",
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
    meaning="the host's driver does not work, so no container gets a GPU",
    fix=(
        check("nvidia-smi", "its error names the fault", where=Where.HOST),
        reboot("if the driver was upgraded"),
    ),
    stage=Stage.DRIVER,
)
FAMILY.fault(
    "container_of_newer_driver",
    "This container was built for NVIDIA Driver Release {needs:v} or later, but version {has:v} was detected",
    meaning="the host's driver {has} is too old for this image, which needs {needs}",
    in_general="the host's driver is too old for this image",
    fix=(
        install_driver("then reboot", where=Where.HOST),
        note(
            "or use an image of an earlier month: https://docs.nvidia.com/deeplearning/frameworks/support-matrix",
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
    in_general="the image has no code for the GPU, which is too old for it",
    fix=(
        note(
            "use an image of an earlier year: https://docs.nvidia.com/deeplearning/frameworks/support-matrix",
            kind=Kind.START_CONTAINER,
        ),
        install(
            "tensorflow==2.10.*",
            "numpy<2",
            note="or use the wheel from pypi.org, with CUDA 11.2 and cuDNN 8.1: it has code for compute "
            "capability 3.5 and newer",
        ),
    ),
    stage=Stage.CONFIGURATION,
    seen="images of NVIDIA",
)
FAMILY.fault(
    "container_without_code",
    "No supported GPU(s) detected to run this container",
    meaning="the image has no code for this GPU: the GPU is newer than the image, or too old for it",
    fix=(
        nvidia_smi("shows the GPU's name and compute capability", "--query-gpu=name,compute_cap --format=csv"),
        note(
            "use the image of a month that supports it: https://docs.nvidia.com/deeplearning/frameworks/support-matrix",
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
    meaning="this docker-compose is too old: it does not understand how the file requests GPUs",
    fix=(
        start(
            "docker compose version; sudo apt install docker-compose-plugin",
            "then run: docker compose up, without the hyphen",
        ),
        install("--upgrade", "docker-compose", note="or upgrade the old docker-compose to 1.28 or newer"),
    ),
    stage=Stage.CONFIGURATION,
    seen="Docker Compose",
)
FAMILY.fault(
    "container_wsl_driver",
    "nvidia-container-cli{}: initialization error: WSL environment detected but no adapters were found",
    meaning="WSL has no GPU: the driver on Windows is missing or too old, or WSL is not version 2",
    fix=(
        run("wsl --update", "run it in Windows, then: wsl --shutdown", kind=Kind.REBOOT),
        note("install the current NVIDIA driver in Windows", kind=Kind.CHANGE_DRIVER),
    ),
    stage=Stage.DRIVER,
)
FAMILY.fault(
    "container_driver_slow",
    "driver rpc error",
    meaning="the driver takes longer to initialise the GPUs than the container toolkit's timeout",
    fix=(
        configure(
            "sudo nvidia-smi -pm 1", "keeps them initialised; or: sudo systemctl enable --now nvidia-persistenced"
        ),
        kernel_log("if it stays slow, shows why"),
    ),
    stage=Stage.DRIVER,
)
FAMILY.fault(
    "image_needs_newer_driver",
    "unsatisfied condition: cuda>={needed:v}",
    "unsupported CUDA version: driver {:v} < image {needed:v}",
    meaning="the image needs CUDA {needed}, which is newer than the host's driver supports",
    in_general="the image needs a CUDA that is newer than the host's driver supports",
    fix=(
        install_driver("install a driver that supports that CUDA; under WSL, install it in Windows", where=Where.HOST),
        note("or use an older image", kind=Kind.INSTALL),
        run_container("-e NVIDIA_DISABLE_REQUIRE=1", note="skips the check; works only on data-centre GPUs"),
    ),
    stage=Stage.DRIVER,
)
FAMILY.fault(
    "image_requires",
    "unsatisfied condition: brand = {brand}",
    "unsatisfied condition: driver>={driver}",
    "unsatisfied condition: arch{arch}",
    meaning="the image requires a driver or a kind of GPU that this machine does not have",
    fix=(
        install_driver("under WSL, install it in Windows", where=Where.HOST),
        run_container("-e NVIDIA_DISABLE_REQUIRE=1", note="skips the check"),
    ),
    stage=Stage.DRIVER,
)
FAMILY.fault(
    "container_unknown_device",
    "device error: {device:s} unknown device",
    "device error: unknown device id: {device:s}",
    meaning="the container requests a GPU or MIG instance that this machine does not have under that name",
    fix=(
        nvidia_smi("shows the valid names: GPU-..., MIG-... (drivers from 470 on); numbers count from 0", "-L"),
        start(
            "kubectl -n kube-system rollout restart daemonset nvidia-device-plugin-daemonset",
            "in Kubernetes, if the node's GPUs were changed; then create the pod again",
        ),
        configure(f"{_CDI}; nvidia-ctk cdi list", "if you use CDI names (nvidia.com/gpu=0)"),
    ),
    stage=Stage.CONFIGURATION,
)
FAMILY.fault(
    "cdi_device",
    "unresolvable CDI devices {device:s}",
    meaning="no CDI specification of the device {device} was found by the container engine: it was "
    "not generated, is in another folder, or is older than a change of the GPUs",
    in_general="the container engine found no CDI specification of the device: it was not generated, is "
    "in another folder, or is older than a change of the GPUs",
    fix=(
        configure(f"{_CDI}; nvidia-ctk cdi list", "must list the device"),
        note(
            "needs Podman 4.1 or Docker 25; if the specifications are in another folder: podman "
            "--cdi-spec-dir=/var/run/cdi"
        ),
        nvidia_smi("lists the GPUs and MIG instances of this machine", "-L"),
    ),
    stage=Stage.CONFIGURATION,
    url="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html",
)
FAMILY.fault(
    "cdi_out_of_date",
    'failed to stat CDI host device "{path:q}"',
    meaning="the CDI specification names {path}, which this machine does not have: "
    "it is older than a change of the GPUs",
    in_general="the CDI specification names a device file that the machine does not have",
    fix=(configure(f"{_CDI}; nvidia-ctk cdi list", "writes it again, for the devices that are there now"),),
    stage=Stage.CONFIGURATION,
    url="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html",
)
FAMILY.fault(
    "cdi_not_known_to_engine",
    "stat nvidia.com/gpu={} no such file or directory",
    meaning="this container engine takes a CDI device for a file: Podman knows CDI from 4.1 on, Docker from 25 on",
    fix=(
        check("podman --version; docker --version", "upgrade the one that starts the container"),
        note(
            'or let NVIDIA\'s runtime read the specification: mode = "cdi" in /etc/nvidia-container-runtime/config.toml'
        ),
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
    meaning="the NVIDIA driver's libraries, which --nv passes in, were not found on this host by "
    "Singularity (Apptainer)",
    fix=(
        check(
            "nvidia-smi; ldconfig -p | grep libcuda.so.1",
            "run it outside the container: both must print a result",
            where=Where.HOST,
        ),
        start("srun --gres=gpu:1 ...", "on a cluster, run it on a node that has GPUs"),
        note(
            "if the libraries are in an unusual folder, add them to nvliblist.conf or to the host's "
            "ldconfig, or use --bind"
        ),
    ),
    seen="Singularity, Apptainer",
    url="https://apptainer.org/docs/user/latest/gpu.html",
)
FAMILY.fault(
    "container_mount_exists",
    "mount error: file creation failed: {file:s}: file exists",
    meaning="the image contains driver files, and the toolkit cannot mount the host's files over them",
    fix=(
        note("rebuild the image without driver packages; in its Dockerfile:"),
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
    meaning="the container toolkit is too old for this kernel's control groups (version 2)",
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
    meaning="the host's driver is partly loaded, or was changed while it ran: its files in /proc or /dev are missing",
    fix=(
        reboot("reboot the host, or run there: sudo nvidia-modprobe -u -c 0; nvidia-smi"),
        check("nvidia-smi", "run it before a container is started: it creates the device files", where=Where.HOST),
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
    meaning="the NVIDIA Container Toolkit is older than the driver, or its CDI specification was made"
    " for another driver: it names files that do not exist",
    fix=(
        run(
            "sudo apt update; sudo apt install --only-upgrade nvidia-container-toolkit "
            "nvidia-container-toolkit-base "
            "libnvidia-container1 libnvidia-container-tools",
            kind=Kind.INSTALL_AS_ROOT,
        ),
        configure(
            "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
            "run it run it again after each change of the driver",
            where=Where.HOST,
        ),
        check("nvidia-ctk --version; cat /etc/apt/sources.list.d/*nvidia*", "shows whether its repository is disabled"),
    ),
    confidence=Confidence.POSSIBLE,
)
FAMILY.fault(
    "container_ldconfig",
    "nvidia-container-cli{}: ldcache error: process {program:s} failed with error code: {:d}",
    "nvidia-container-cli{}: mount error: failed to add device rules: {}",
    "nvidia-container-cli{}: ldcache error: open failed: {program:s}: no such file or directory",
    "could not start {program:s} mount operation failed: {:s} operation not permitted",
    meaning="the toolkit's hook was refused in this container: most often the container runs without "
    "root or in its own user namespace, or the host's ldconfig has another path",
    fix=(
        configure(
            "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml; podman run --device "
            "nvidia.com/gpu=all "
            "--security-opt "
            "label=disable ...",
            "uses CDI, which needs no hook",
            where=Where.HOST,
        ),
        configure(
            "sudo sed -i 's/^#no-cgroups = false/no-cgroups = true/' /etc/nvidia-container-runtime/config.toml",
            "if containers run without root",
            where=Where.HOST,
        ),
        check(
            "grep ldconfig /etc/nvidia-container-runtime/config.toml",
            'must name the host\'s ldconfig, such as "@/sbin/ldconfig"; on Debian and Ubuntu: @/sbin/ldconfig.real',
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
    fix=(check("sudo nvidia-container-cli -k -d /dev/tty info", "shows the full reason"), *_TOOLKIT[:2]),
    symptom=True,
)
FAMILY.fault(
    "toolkit_mode",
    "invoking the NVIDIA Container Runtime Hook directly (e.g. specifying the docker --gpus flag) is not supported",
    meaning="the toolkit is set to CDI, but this Docker's option --gpus does not use CDI",
    fix=(
        run_container("--runtime=nvidia", "-e NVIDIA_VISIBLE_DEVICES=all"),
        run_container("--device nvidia.com/gpu=all"),
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
        note("read the rest of the message (stderr: ...): it names the fault"),
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
    meaning="the CDI specification, which describes the GPUs to containers, is missing, outdated or invalid",
    fix=(configure(_CDI, "run it again after each change of the driver"), check("nvidia-ctk cdi list")),
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
    meaning="the device plugin's pod has no driver libraries: the NVIDIA runtime is not this node's default",
    fix=(
        configure(
            "sudo nvidia-ctk runtime configure --runtime=containerd --set-as-default && sudo systemctl "
            "restart containerd",
            where=Where.HOST,
        ),
        start("kubectl -n kube-system rollout restart daemonset nvidia-device-plugin-daemonset"),
        start("runtimeClassName: nvidia", "or set it in the plugin's pod", role=Role.ALTERNATIVE),
    ),
    url=PLUGIN,
)
FAMILY.fault(
    "insufficient_gpus",
    "Insufficient nvidia.com/gpu",
    "Insufficient nvidia.com/mig-{:s}",
    meaning="no GPU (nvidia.com/gpu) is free for the pod on any node that it may use",
    fix=(
        check("kubectl describe nodes | grep -A8 -e Allocatable -e 'Allocated resources'", "must list nvidia.com/gpu"),
        check(
            "kubectl -n kube-system logs -l name=nvidia-device-plugin-ds",
            "if it does not, says why the plugin found no GPU",
        ),
        check("kubectl get pods -A -o wide", "if it does, shows which pods hold the GPUs"),
    ),
    stage=Stage.CONFIGURATION,
    url=PLUGIN,
)
FAMILY.fault(
    "admission_failed",
    "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu",
    "UnexpectedAdmissionError",
    "no healthy devices present; cannot allocate unhealthy devices nvidia.com/",
    meaning="the kubelet has no healthy GPU for the pod: the device plugin does not run, or a GPU is unhealthy",
    fix=(
        start("kubectl -n kube-system rollout restart daemonset nvidia-device-plugin-daemonset"),
        check("sudo dmesg | grep -i xid", "look for an Xid: it makes a GPU unhealthy"),
        start("kubectl delete pod NAME", "a refused pod does not restart by itself"),
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
    meaning="the node's container engine has no runtime named nvidia",
    fix=(
        configure(
            "sudo nvidia-ctk runtime configure --runtime=containerd && sudo systemctl restart containerd",
            where=Where.HOST,
        ),
        check("kubectl get runtimeclass", "must list nvidia"),
    ),
    stage=Stage.CONFIGURATION,
    url=PLUGIN,
)
FAMILY.fault(
    "privileged_ignored",
    "Ignoring devices requested by environment variable(s) in unprivileged container",
    meaning="NVIDIA_VISIBLE_DEVICES is not permitted to give this container GPUs",
    fix=(
        run_container("--gpus all", note="in Kubernetes, request nvidia.com/gpu"),
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
    "Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm)",
    "Bus error (core dumped)",
    meaning="shared memory (/dev/shm) is full; a container has only 64 MiB by default",
    fix=(run_container("--shm-size=1g", note="or --ipc=host"), check("df -h /dev/shm")),
    confidence=Confidence.POSSIBLE,
    stage=Stage.MEMORY,
)
FAMILY.harmless(
    "gpu_not_given",
    "WARNING: The NVIDIA Driver was not detected. GPU functionality will not be available",
    meaning="NVIDIA's image was started without --gpus; this is right only if it is meant to run on the CPU",
    seen="NVIDIA's images",
)
FAMILY.fault(
    "image_shm_notice",
    "The SHMEM allocation limit is set to the default of 64MB",
    meaning="the container has only 64 MiB of shared memory; NCCL and data loaders need more",
    fix=(run_container("--gpus all", "--ipc=host", "--ulimit memlock=-1", "--ulimit stack=67108864"),),
    symptom=True,
    stage=Stage.CONFIGURATION,
)
FAMILY.fault(
    "container_older_than_gpu",
    "Detected {gpu} GPU, which is not yet supported in this version of the container",
    meaning="the image is older than the GPU, and has no code for it",
    fix=(
        run_container(
            "--gpus all",
            "-it",
            image="nvcr.io/nvidia/tensorflow:25.02-tf2-py3",
            note="runs a newer image, the last with TensorFlow",
        ),
    ),
    stage=Stage.CONFIGURATION,
    confidence=Confidence.POSSIBLE,
    seen="images of NVIDIA",
)
FAMILY.fault(
    "rootless_nvml",
    "nvidia-container-cli{}: permission error: capability change failed",
    meaning="the container engine runs without root, so the toolkit must not set control groups",
    fix=(configure("sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place", where=Where.HOST),),
    stage=Stage.DRIVER,
)
