"""Host facts: what can be known about a machine without TensorFlow. Records only; ``gpudiag.facts`` gathers them.

Each family is gathered in a separate child process with a deadline, because NVML and the driver can hang. A family
that could not be gathered is :class:`Unknown`, never an empty record: "no GPU" and "no answer" are different facts.
"""

from __future__ import annotations

from pathlib import PurePath

from gpudiag.record import Record


class Family(Record, tag_field="family"):
    """Base of the fact families; the tag names the family in JSON."""


class Unknown(Family, tag="unknown"):
    """A family that could not be gathered; ``reason`` says why, as a text for people."""

    reason: str
    ours: bool = False
    """True: gpudiag itself broke while it gathered the family, which says nothing about the machine."""


class SystemFacts(Family, tag="system"):
    """Operating system, Python and size of the host."""

    os: str
    """Name and version of the distribution, such as ``Debian GNU/Linux 12 (bookworm)``."""
    kernel: str
    machine: str
    """Processor architecture, such as ``x86_64``."""
    libc: str
    hostname: str
    user: str
    home: str
    python: str
    """Version of the interpreter, such as ``3.11.7``."""
    executable: str
    prefix: str
    """``sys.prefix``: the virtual environment, or the base installation."""
    cpus: int
    """Processors this process may use (its affinity mask)."""
    memory_bytes: int
    """Physical memory of the host."""
    wsl: bool
    """True under the Windows Subsystem for Linux."""


class Distribution(Record):
    """One installed Python distribution, from its metadata."""

    name: str
    version: str
    location: str
    """Folder that holds the distribution."""


class TensorflowBuild(Record):
    """What ``tensorflow/python/platform/build_info.py`` says, read as text: TensorFlow is not imported."""

    cuda: bool
    cuda_version: str | None
    cudnn_version: str | None
    compute_capabilities: tuple[str, ...]
    """As the file spells them, such as ``sm_60`` (machine code) or ``compute_90`` (PTX)."""


class TensorflowFacts(Family, tag="tensorflow"):
    """TensorFlow as installed, read from metadata."""

    module_path: str | None
    """The file ``import tensorflow`` would load, or None if there is no such module."""
    distributions: tuple[Distribution, ...]
    """Every distribution that installs a top-level module ``tensorflow``."""
    build: TensorflowBuild | None
    companions: tuple[Distribution, ...]
    """Installed packages that decide whether TensorFlow works: keras, numpy, protobuf, ``nvidia-*``."""
    ranges: dict[str, str] = {}
    """NVIDIA's package to the versions that TensorFlow's own metadata asks for, such as ``<13.0,>=12.5.3.2``."""
    frameworks: tuple[Distribution, ...] = ()
    """Other packages that install or pin CUDA libraries: torch, jax, cupy, onnxruntime ..."""
    plugins: tuple[str, ...] = ()
    """Files in the folders ``tensorflow-plugins``, which ``import tensorflow`` loads."""
    plugin_distributions: tuple[Distribution, ...] = ()
    """Distributions of plug-ins, such as ``tensorflow-directml-plugin``."""
    altered: tuple[str, ...] = ()
    """Files of TensorFlow that are not those its distribution installed, by hash or size; only a few are checked."""
    overwritten: dict[str, tuple[str, ...]] = {}
    """The same for each distribution that installs them, by its name, if its record has hashes to compare."""
    in_working_directory: str | None = None
    """A module ``tensorflow`` there: this interpreter does not import it, but a program in that folder would."""
    unreadable: tuple[str, ...] = ()
    """Folders of metadata on ``sys.path`` that cannot be read, of any distribution."""
    outside: dict[str, str] = {}
    """Modules that TensorFlow imports, to their file, if that is not in a folder of installed packages."""


class DriverFacts(Family, tag="driver"):
    """The NVIDIA kernel module and the CUDA driver library, without initialising CUDA."""

    kernel_module: str | None
    """Version of the loaded kernel module (``/proc/driver/nvidia/version``), or None."""
    libcuda_path: str | None
    """The file the loader maps for ``libcuda.so.1``, or None."""
    libcuda_error: str | None
    """The loader's message if ``libcuda.so.1`` cannot be opened, or the library's answer to a version query."""
    cuda_version: str | None
    """Newest CUDA version the driver supports (``cuDriverGetVersion``), such as ``12.5``."""
    modules: tuple[str, ...] = ()
    """Loaded kernel modules that drive NVIDIA GPUs: ``nvidia``, ``nvidia_uvm``, ``nouveau`` ... (``/proc/modules``)."""
    module_installed: bool | None = None
    """Whether NVIDIA's module was built for the running kernel (its ``modules.dep``); None: not known."""
    secure_boot: bool | None = None
    """Whether the kernel was started by UEFI Secure Boot; None: not known."""
    prime: str | None = None
    """What Ubuntu's prime-select chose on a notebook with two GPUs: ``nvidia``, ``intel``, ``on-demand``."""
    packages: dict[str, str] = {}
    """Installed packages of NVIDIA's driver and their versions, if dpkg manages packages."""
    fabric_manager: str | None = None
    """NVIDIA's Fabric Manager: ``running``, ``stopped`` or ``absent``; None: not known."""
    wsl_library: str | None = None
    """``libcuda.so.1`` in the folder in which Windows shows it to WSL, whether the loader finds it there or not."""
    windows_driver: str | None = None
    """Under WSL, the file that shows that Windows has NVIDIA's driver."""


class GpuProcess(Record):
    """A process that holds memory of a GPU, as NVML reports it."""

    pid: int
    used_bytes: int | None
    """None if NVML does not report it (MIG, WSL, some containers)."""
    computes: bool = True
    """False for one that only draws, such as a desktop's."""


class NvmlDevice(Record):
    """One GPU as NVML reports it. NVML counts in PCI order and ignores ``CUDA_VISIBLE_DEVICES``."""

    index: int
    name: str
    uuid: str
    pci_bus_id: str
    """``dddd:bb:dd.f`` in lower case, the form CUDA prints."""
    memory_total_bytes: int
    """0 if NVML does not report it, as for GPUs that share the host's memory."""
    memory_used_bytes: int
    compute_capability: str | None
    """Such as ``8.0``."""
    compute_mode: str | None
    """``default``, ``exclusive_process`` or ``prohibited``."""
    mig_mode: str | None
    """``enabled``, ``disabled``, or None if the GPU has no MIG."""
    mig_uuids: tuple[str, ...]
    processes: tuple[GpuProcess, ...]
    mig_memory_bytes: tuple[tuple[int, int], ...] = ()
    """Memory of each MIG instance, total and used; (0, 0) if NVML does not report it."""


NVML_ABSENT = (None, "NVML Shared Library Not Found", "Driver Not Loaded")
"""What NVML says if there is no driver to ask; any other error may hide a GPU."""


class NvmlFacts(Family, tag="nvml"):
    """What NVML answers."""

    error: str | None
    """NVML's message why it, or a GPU it counts, could not be used; None if it answered."""
    driver_version: str | None
    cuda_version: str | None
    """Newest CUDA version the driver supports, as NVML reports it."""
    devices: tuple[NvmlDevice, ...]

    @property
    def undescribed(self) -> dict[int, str]:
        """The GPUs that it counts and cannot describe: index to its message (as ``gpudiag.nvml`` writes them)."""
        errors = (one.removeprefix("GPU ").partition(": ") for one in (self.error or "").split("; "))
        return {int(index): why for index, colon, why in errors if colon and index.isascii() and index.isdecimal()}


class DeviceNode(Record):
    """A device file of the NVIDIA driver (``/dev/nvidia*``, ``/dev/dxg``)."""

    path: str
    mode: str
    """Type and permission bits as ``ls -l`` prints them, such as ``crw-rw-rw-``."""
    readable: bool
    writable: bool
    group: str = ""
    """The group that owns it."""


class DeviceNodeFacts(Family, tag="device_nodes"):
    """Device files, NVIDIA display devices on the PCI bus (vendor 0x10de), and what is between several of them."""

    nodes: tuple[DeviceNode, ...]
    pci_gpus: tuple[str, ...]
    """PCI bus ids of NVIDIA display controllers (``/sys/bus/pci/devices``), driver or not."""
    iommu_groups: dict[str, str] = {}
    """Of those, PCI bus id to the type of the IOMMU group: ``identity`` (passed through), ``DMA`` or ``DMA-FQ``."""
    iommus: tuple[str, ...] = ()
    """IOMMUs (``/sys/class/iommu``), such as ``dmar0`` (Intel) or ``ivhd0`` (AMD)."""
    iommu_options: tuple[str, ...] = ()
    """Words of the kernel's command line that concern the IOMMU, such as ``iommu=pt``."""
    network: tuple[str, ...] = ()
    """Network interfaces (``/sys/class/net``)."""
    bound: dict[str, str] = {}
    """The kernel driver of each GPU that has one, such as ``nvidia``, ``nouveau`` or ``vfio-pci``."""
    other_gpus: dict[str, str] = {}
    """PCI bus ids of the display controllers of Intel and AMD, and the maker of each."""
    groups: tuple[str, ...] = ()
    """The groups of this process."""


class EnvironmentFacts(Family, tag="environment"):
    """Variables that affect TensorFlow, CUDA or the launcher: an allow-list, never the whole environment."""

    variables: dict[str, str]
    """Name to value. A value that can hold a secret is not stored; ``(set)`` replaces it."""
    set_by_python: dict[str, str] = {}
    """Those that Python itself sets whenever it starts, to the file that does so; "": not known."""


class ContainerFacts(Family, tag="container"):
    """Marks of a container, of Kubernetes and of Slurm, and what they limit."""

    runtime: str | None
    """``docker``, ``podman``, ``containerd``, ``singularity``, ``lxc`` ... or None outside a container."""
    evidence: tuple[str, ...]
    """The signs of it that were found, such as ``/.dockerenv``."""
    kubernetes: bool
    slurm_job: str | None
    """``SLURM_JOB_ID``, or None outside a Slurm job."""
    shm_bytes: int | None = None
    """Size of ``/dev/shm``; None if its mount names none, which means half of the host's memory."""
    memlock_bytes: int | None = None
    """How much memory a process may lock (``RLIMIT_MEMLOCK``); None: no limit, or not known."""
    infiniband: tuple[str, ...] = ()
    """Device files of InfiniBand verbs (``/dev/infiniband``)."""

    @property
    def name(self) -> str | None:
        """The container's runtime, or Kubernetes if no sign names a runtime; None outside a container."""
        return self.runtime or ("kubernetes" if self.kubernetes else None)


class LibraryCopy(Record):
    """A copy of a library that the loader does not take."""

    path: str
    version: str | None
    owner: str | None
    """Its distribution and version, such as ``nvidia-cudnn-cu12 9.3.0.75``; None if no distribution has it."""
    error: str | None
    """The loader's message if it cannot be opened by its path; None if it opens."""


class Library(Record):
    """A library that TensorFlow opens by name, as the loader finds it for TensorFlow in this environment."""

    soname: str
    path: str | None
    """The file that the loader takes; None if it finds none."""
    source: str
    """Where: ``LD_LIBRARY_PATH``, ``RUNPATH``, ``ld.so.cache``, ``default folder``, ``loaded already``, ``simulated
    machine`` or ""."""
    file: str | None
    """``path`` with links resolved."""
    own_soname: str | None
    """What the file itself says it is (``DT_SONAME``)."""
    version: str | None
    """What cuDNN answers; otherwise the version in the name of the file or of its distribution."""
    owner: str | None
    """Its distribution and version; None if no distribution has it."""
    error: str | None
    """The loader's message if it cannot be opened."""
    lacks: dict[str, str]
    """Libraries that it needs, directly or not, and that cannot be found, to the file that needs each."""
    copies: tuple[LibraryCopy, ...]
    """Other files of this name: of packages, of CUDA toolkits, of conda."""
    damaged: tuple[str, ...] = ()
    """Files that ``LD_LIBRARY_PATH`` puts first and that cannot be opened, of this library or of one that it needs."""
    instead: str | None = None
    """The good file that the loader would find after them; None: there is none, or none is damaged."""

    @property
    def damaged_folders(self) -> tuple[str, ...]:
        """The folders of the damaged files, each once, as in ``LD_LIBRARY_PATH``, without slashes at the end."""
        return tuple(dict.fromkeys(str(PurePath(file).parent) for file in self.damaged))


class LibraryFacts(Family, tag="libraries"):
    """The dynamic libraries that TensorFlow opens; each was opened, in its order, without importing it."""

    opener: str | None
    """The file of TensorFlow that opens them; None if there is none, or none with CUDA."""
    runpath: tuple[str, ...]
    """Folders in which the loader searches for this file (``DT_RUNPATH``), each once."""
    search_path: tuple[str, ...]
    """Folders of ``LD_LIBRARY_PATH``, which come before them."""
    libraries: tuple[Library, ...]
    libdevice: tuple[str, ...]
    """Files ``libdevice.10.bc`` where XLA looks for one; the first is taken."""
    libdevice_elsewhere: tuple[str, ...]
    """Those where it does not look."""


class CudaFacts(Family, tag="cuda"):
    """What the CUDA driver shows; asked only where indices in ``CUDA_VISIBLE_DEVICES`` are ambiguous."""

    mask: str | None = None
    """The ``CUDA_VISIBLE_DEVICES`` that it was asked under; None: it was not asked."""
    uuids: tuple[str, ...] = ()
    """Of the GPUs and MIG instances that it shows, as NVML writes them, in its order; none where it fails."""


class Facts(Record):
    """All families of host facts of one run."""

    system: SystemFacts | Unknown
    tensorflow: TensorflowFacts | Unknown
    driver: DriverFacts | Unknown
    nvml: NvmlFacts | Unknown
    device_nodes: DeviceNodeFacts | Unknown
    environment: EnvironmentFacts | Unknown
    container: ContainerFacts | Unknown
    libraries: LibraryFacts | Unknown = Unknown("not gathered by the gpudiag that made this report")
    cuda: CudaFacts | Unknown = Unknown("not gathered by the gpudiag that made this report")

    def library(self, soname: str) -> Library | None:
        """Return what is known of the library that TensorFlow opens by this name."""
        libraries = () if isinstance(self.libraries, Unknown) else self.libraries.libraries
        return next((one for one in libraries if one.soname == soname), None)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that were stored; empty where the family is unknown."""
        return {} if isinstance(self.environment, Unknown) else self.environment.variables

    @property
    def set_by_python(self) -> dict[str, str]:
        """Of these, those that Python sets when it starts, to the file that does so."""
        return {} if isinstance(self.environment, Unknown) else self.environment.set_by_python

    @property
    def without_gpu(self) -> bool:
        """True only if it is known that there is no NVIDIA GPU: not if one is hidden or NVML does not answer."""
        nvml, nodes, driver = self.nvml, self.device_nodes, self.driver
        if not isinstance(driver, Unknown) and (driver.wsl_library or driver.windows_driver):
            return False
        if isinstance(nvml, Unknown) or isinstance(nodes, Unknown) or nvml.devices or nodes.pci_gpus:
            return False
        return nvml.error in NVML_ABSENT

    @property
    def nvml_devices(self) -> tuple[NvmlDevice, ...]:
        """Every GPU NVML reports, in its order; empty if NVML could not be asked."""
        return () if isinstance(self.nvml, Unknown) else self.nvml.devices


_SITE = "/home/someone/venv/lib/python3.11/site-packages"
_FRAMEWORK = f"{_SITE}/tensorflow/libtensorflow_framework.so.2"


def example(**families: Family) -> Facts:
    """Return the facts of an ordinary machine without a GPU, ``families`` replaced: for CASES and tests."""
    ordinary: dict[str, Family] = {
        "system": SystemFacts(
            os="Debian GNU/Linux 12 (bookworm)",
            kernel="6.1.0",
            machine="x86_64",
            libc="glibc 2.36",
            hostname="example",
            user="someone",
            home="/home/someone",
            python="3.11.7",
            executable="/home/someone/venv/bin/python",
            prefix="/home/someone/venv",
            cpus=2,
            memory_bytes=16 << 30,
            wsl=False,
        ),
        "tensorflow": TensorflowFacts(
            module_path="/home/someone/venv/lib/python3.11/site-packages/tensorflow/__init__.py",
            distributions=(Distribution("tensorflow", "2.21.0", "/home/someone/venv/lib/python3.11/site-packages"),),
            build=TensorflowBuild(True, "12.5.1", "9", ("sm_60", "sm_70", "sm_80", "sm_89", "compute_90")),
            companions=(),
        ),
        "driver": DriverFacts(None, None, "libcuda.so.1: cannot open shared object file", None),
        "nvml": NvmlFacts("NVML Shared Library Not Found", None, None, ()),
        "device_nodes": DeviceNodeFacts((), ()),
        "environment": EnvironmentFacts({}),
        "container": ContainerFacts(None, (), False, None),
        "libraries": LibraryFacts(_FRAMEWORK, (), (), (), (), ()),
        "cuda": CudaFacts(),
    }
    return Facts(**{**ordinary, **families})  # type: ignore[arg-type]  # msgspec checks nothing here, mypy cannot


def example_gpu(index: int = 0) -> NvmlDevice:
    """Return an ordinary GPU: for CASES and tests."""
    return NvmlDevice(
        index=index,
        name="NVIDIA A100-SXM4-40GB",
        uuid=f"GPU-{index:08x}-0000-4000-8000-000000000000",
        pci_bus_id=f"0000:{index + 1:02x}:00.0",
        memory_total_bytes=40 << 30,
        memory_used_bytes=0,
        compute_capability="8.0",
        compute_mode="default",
        mig_mode="disabled",
        mig_uuids=(),
        processes=(),
    )


def example_with_gpus(count: int = 1, **families: Family) -> Facts:
    """Return the facts of an ordinary machine with ``count`` GPUs, ``families`` replaced: for CASES and tests."""
    devices = tuple(example_gpu(index) for index in range(count))
    paths = ("/dev/nvidiactl", "/dev/nvidia-uvm", *(f"/dev/nvidia{gpu.index}" for gpu in devices))
    ordinary: dict[str, Family] = {
        "driver": DriverFacts("535.104.05", "/usr/lib/x86_64-linux-gnu/libcuda.so.535.104.05", None, "12.2"),
        "nvml": NvmlFacts(None, "535.104.05", "12.2", devices),
        "device_nodes": DeviceNodeFacts(
            tuple(DeviceNode(path, "crw-rw-rw-", True, True) for path in paths),
            tuple(gpu.pci_bus_id for gpu in devices),
        ),
    }
    return example(**{**ordinary, **families})
