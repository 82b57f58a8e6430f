"""Host facts: what can be known about a machine without TensorFlow. Records only; ``gpudiag.facts`` gathers them.

Each family is gathered in a separate child process with a deadline, because NVML and the driver can hang. A family
that could not be gathered is :class:`Unknown`, never an empty record: "no GPU" and "no answer" are different facts.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Annotated, TypeVar

import msgspec

from gpudiag.record import Record

_T = TypeVar("_T")
MOMENTARY = "momentary"
Momentary = Annotated[_T, msgspec.Meta(extra={MOMENTARY: True})]
"""A value that is another one a moment later, on the same machine: two reports are not compared by it."""


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


class Requirement(Record):
    """What a distribution requires, and what is installed."""

    name: str
    """Normalized, as in ``typing-extensions``."""
    specifier: str
    """The versions that are asked for, such as ``<3,>=1.26``; empty for any."""
    by: str
    """The distribution that requires it."""
    version: str | None
    """What is installed; None if nothing is, "" if only a part of its metadata is left."""
    location: str = ""
    in_range: bool = False
    gone: tuple[str, ...] = ()
    """The first of its recorded modules that are not there."""
    foreign_tag: str = ""
    """The tag of its wheel, if that is for another Python, such as ``cp310-cp310-manylinux_2_17_x86_64``."""

    @property
    def fits(self) -> bool:
        """True if it is installed, whole, for this Python and of a version that is asked for."""
        return bool(self.version) and self.in_range and not self.gone and not self.foreign_tag

    @property
    def wanted(self) -> str:
        """What pip is given to install it."""
        return f"{self.name}{self.specifier}"


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
    half_removed: tuple[str, ...] = ()
    """Folders that pip renamed (``~vidia_cudnn_cu12-9.3.0.75.dist-info``) and did not remove: it was interrupted."""
    required_by_others: dict[str, dict[str, str]] = {}
    """NVIDIA's package to what other frameworks here ask of it, by their names, such as ``==9.1.0.70``."""
    outside: dict[str, str] = {}
    """Modules that TensorFlow imports, to their file, if that is not in a folder of installed packages."""
    requirements: tuple[Requirement, ...] = ()
    """What TensorFlow requires; and of what that requires in turn, what is not as it must be."""
    without_init: tuple[str, ...] = ()
    """Folders ``tensorflow`` without ``__init__.py`` on ``sys.path``, if no module ``tensorflow`` is found."""


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
    open_module: bool | None = None
    """Whether the kernel module that is loaded is the open one; None: none is loaded."""
    kernel_log: tuple[str, ...] | None = None
    """The last lines of the kernel's log that are of NVIDIA's driver; None: this user may not read it."""
    interposed: tuple[str, ...] = ()
    """Files that a process has loaded before the driver and that define functions of the driver or of NVML: by
    ``LD_PRELOAD`` or ``/etc/ld.so.preload``, as libraries do that share a GPU out."""


class Holder(Record):
    """What ``/proc`` says of a process; each None if it is not known."""

    user: str | None = None
    command: str | None = None
    """Its command line without arguments that can hold a secret; a masked report has no word of it."""
    started_at: str | None = None
    """Day and time, UTC."""
    parent_gone: bool | None = None
    """Whether the process that started it has ended, and it is not a service: left behind, or started with nohup."""
    job: str | None = None
    """The container or the job of a scheduler that it belongs to, by its control group."""


class GpuProcess(Record):
    """A process that holds memory of a GPU, as NVML reports it."""

    pid: int
    used_bytes: int | None
    """None if NVML does not report it (MIG, WSL, some containers)."""
    computes: bool = True
    """False for one that only draws, such as a desktop's."""
    holder: Holder | None = None
    """None if it is not visible from the pid namespace of this process, or was not asked."""


class GpuState(Record):
    """Health and limits of a GPU by NVML; None: the card, the driver or this user cannot know it.

    It is the state at the moment of asking: an idle GPU lowers its clocks and its link.
    """

    virtualization: str | None = None
    """``none``, ``passthrough``, ``vgpu`` (this is one), ``host_vgpu`` or ``host_vsga`` (a host of them)."""
    licensed: bool | None = None
    """Of a vGPU: whether one of the products that it is enabled for has a licence."""
    persistence: bool | None = None
    ecc: bool | None = None
    uncorrected_errors: int | None = None
    """ECC errors since the driver was loaded that could not be corrected."""
    corrected_errors: int | None = None
    retired_pages: int | None = None
    retirement_pending: bool | None = None
    """Pages wait to be retired: until a reset the faulty memory is in use. Cards before Ampere."""
    remapped_rows: int | None = None
    remap_pending: bool | None = None
    """Rows wait to be remapped, which a reset does. Ampere and later."""
    remap_failed: bool | None = None
    """No spare row is left: the card is to be replaced."""
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    slowed_by: tuple[str, ...] | None = None
    """Why its clocks are lower than they could be: ``idle``, ``power_cap``, ``power_brake``, ``hot`` ..."""
    performance_state: int | None = None
    """0 is the fastest; an idle GPU is in 8 or more."""
    power_limit_watts: int | None = None
    power_default_watts: int | None = None
    clock_mhz: int | None = None
    clock_max_mhz: int | None = None
    fabric: str | None = None
    """Its registration with the NVSwitch fabric: ``not_supported``, ``not_started``, ``in_progress``, ``completed``."""
    fabric_error: int | None = None
    """NVML's code if the registration was completed with an error; 0: without."""
    nvlinks: tuple[bool, ...] | None = None
    """For each NVLink, whether it is active."""

    @property
    def is_working(self) -> bool:
        """Whether it was known to be under load, or at least awake, when it was asked."""
        awake = self.performance_state is not None and self.performance_state <= 2
        return awake and self.slowed_by is not None and "idle" not in self.slowed_by


class NvmlDevice(Record):
    """One GPU as NVML reports it. NVML counts in PCI order and ignores ``CUDA_VISIBLE_DEVICES``."""

    index: int
    name: str
    uuid: str
    pci_bus_id: str
    """``dddd:bb:dd.f`` in lower case, the form CUDA prints."""
    memory_total_bytes: int
    """0 if NVML does not report it, as for GPUs that share the host's memory."""
    memory_used_bytes: Momentary[int]
    compute_capability: str | None
    """Such as ``8.0``."""
    compute_mode: str | None
    """``default``, ``exclusive_process`` or ``prohibited``."""
    mig_mode: str | None
    """``enabled``, ``disabled``, or None if the GPU has no MIG."""
    mig_uuids: tuple[str, ...]
    processes: Momentary[tuple[GpuProcess, ...]]
    mig_memory_bytes: Momentary[tuple[tuple[int, int], ...]] = ()
    """Memory of each MIG instance, total and used; (0, 0) if NVML does not report it."""
    state: GpuState = GpuState()
    memory_error: str = ""
    """NVML's error if it fails when it is asked for the memory; "" also if this card or user has no answer."""


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
    peers: dict[str, str] = {}
    """Two GPUs, such as ``0 1``, to whether one may read the other's memory: ``ok``, or why not."""
    confidential: bool | None = None
    """Whether confidential computing is on."""
    confidential_ready: bool | None = None
    """Whether its GPUs were set ready, without which CUDA does not start."""

    @property
    def undescribed(self) -> dict[int, str]:
        """The GPUs that it counts and cannot describe: index to its message (as :mod:`gpudiag.hardware.nvml` does)."""
        errors = (part.removeprefix("GPU ").partition(": ") for part in (self.error or "").split("; "))
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
    models: dict[str, str] = {}
    """The PCI device number of each GPU of NVIDIA's, such as ``0x2330``."""
    without_memory_region: tuple[str, ...] = ()
    """Those to which the firmware gave no address space for the first or second memory region (BAR)."""
    asleep: tuple[str, ...] = ()
    """GPUs that the kernel has switched off (``D3cold``)."""
    bridges: dict[str, tuple[str, ...]] = {}
    """Of each GPU, PCI bus id to the PCI bridges and switches above it, the host's first."""


class EnvironmentFacts(Family, tag="environment"):
    """Variables that affect TensorFlow, CUDA or the launcher: an allow-list, never the whole environment."""

    variables: dict[str, str]
    """Name to value. A value that can hold a secret is not stored; ``(set)`` replaces it."""
    set_by_python: dict[str, str] = {}
    """Those that Python itself sets whenever it starts, to the file that does so ("": not known); ``LD_PRELOAD`` or
    ``/etc/ld.so.preload``: a library that is named there sets it in every program."""


class ContainerFacts(Family, tag="container"):
    """Marks of a container, of Kubernetes and of Slurm, and what they limit."""

    runtime: str | None
    """``docker``, ``podman``, ``containerd``, ``singularity``, ``lxc`` ... or None outside a container."""
    evidence: tuple[str, ...]
    """The signs of it that were found, such as ``/.dockerenv``."""
    kubernetes: bool
    slurm_job: Momentary[str | None]
    """``SLURM_JOB_ID``, or None outside a Slurm job."""
    shm_bytes: int | None = None
    """Size of ``/dev/shm``; None if its mount names none, which means half of the host's memory."""
    memlock_bytes: int | None = None
    """How much memory a process may lock (``RLIMIT_MEMLOCK``); None: no limit, or not known."""
    address_space_bytes: int | None = None
    """How many addresses a process may use (``RLIMIT_AS``, ``ulimit -v``); None: no limit, or not known."""
    infiniband: tuple[str, ...] = ()
    """Device files of InfiniBand verbs (``/dev/infiniband``)."""
    image: str | None = None
    """The container's image: the name that the runtime gives, or a digest of its layers; None: not known."""

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
    passed_over: dict[str, str] = {}
    """Of one that cannot be opened: files of its name that the loader passes over, to what is wrong with them."""
    digest: str | None = None
    """Of the file's size and of 64 pieces of it: the same for copies, another for another build."""

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
    """Copies of libdevice in folders where TensorFlow does not look."""
    corrected: dict[str, str] = {}
    """Names for which the loader itself, asked, took another file than its rules say, to the file of the rules."""
    incomplete: dict[str, str] = {}
    """A distribution of NVIDIA's and its version, to the first library that it installed and that is not there."""


class Attempt(Record):
    """Something that was tried, as TensorFlow or the driver does it."""

    path: str
    error: str | None = None
    """The name of the error number, such as ``EPERM``; None: it worked."""
    purpose: str = ""
    """What a folder is for: ``temporary files``, ``CUDA cache``, ``home``, or the flag that names it."""
    free_bytes: Momentary[int | None] = None
    """Room that is left in a folder."""


class TriedFacts(Family, tag="tried"):
    """What came of trying: permissions and names say less, as a device control group is not seen by ``access(2)``."""

    opened: tuple[Attempt, ...] = ()
    """Device files, opened for reading and writing. No context is created."""
    written: tuple[Attempt, ...] = ()
    """Folders in which a nameless file was written."""
    connected: tuple[Attempt, ...] = ()
    """Sockets of services: of persistence, of the NVSwitch fabric, of MPS. Those that are not there are left out."""
    confined: str | None = None
    """The label (SELinux) or profile (AppArmor) of this process; None: it has none, or is not confined."""


class CudaFacts(Family, tag="cuda"):
    """What the CUDA driver shows; asked only where indices in ``CUDA_VISIBLE_DEVICES`` are ambiguous."""

    mask: str | None = None
    """The ``CUDA_VISIBLE_DEVICES`` that it was asked under; None: it was not asked."""
    uuids: tuple[str, ...] = ()
    """Of the GPUs and MIG instances that it shows, as NVML writes them, in its order; none where it fails."""


SLOW_S = 5.0
"""A first call that takes longer is slow: with an idle driver cuInit takes 0.1 to 2 s, more with many GPUs."""


_DRIVER_CALL = re.compile(r"cu[A-Z]|cuda[A-Z]|nvml[A-Z]|dlopen")


class Call(Record):
    """The first call of a function of the driver, of NVML, of a library or of the loader in a process."""

    name: str
    """Such as ``cuInit`` or ``dlopen(libcuda.so.1)``."""
    seconds: float | None
    """None: it did not return in the time that it was given."""
    gpu: str = ""
    """UUID of the GPU that it was for; "" if it was for none."""
    waited_s: float = 0.0
    """How long it was waited for, if it did not return."""
    probe: str = ""
    """The probe that was seen to wait in it; "" if it was called to be measured."""
    file: str = ""
    """What it asked the kernel for meanwhile, such as ``ioctl on /dev/nvidia0``; "" if that is not known."""

    @property
    def of_driver(self) -> bool:
        """True for a call of the driver, of CUDA's runtime, of NVML or of the loader, not of a library above them."""
        return not self.probe or bool(_DRIVER_CALL.match(self.name))


class CallFacts(Family, tag="calls"):
    """How long the first calls take: what every program on this machine waits for."""

    calls: tuple[Call, ...] = ()

    @property
    def hung(self) -> tuple[Call, ...]:
        """The calls that did not return."""
        return tuple(call for call in self.calls if call.seconds is None)

    @property
    def driver_hangs(self) -> bool:
        """True: no process can start the CUDA driver, or NVML."""
        return any(not call.gpu and not call.probe for call in self.hung)

    @property
    def driver_s(self) -> float:
        """How long a process waits until the CUDA driver and NVML have started."""
        return sum(call.seconds or 0.0 for call in self.calls if not call.gpu and not call.probe)


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
    tried: TriedFacts | Unknown = Unknown("not gathered by the gpudiag that made this report")
    calls: CallFacts | Unknown = Unknown("not gathered by the gpudiag that made this report")

    def library(self, soname: str) -> Library | None:
        """Return what is known of the library that TensorFlow opens by this name."""
        libraries = () if isinstance(self.libraries, Unknown) else self.libraries.libraries
        return next((library for library in libraries if library.soname == soname), None)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that were stored; empty if the family is unknown."""
        return {} if isinstance(self.environment, Unknown) else self.environment.variables

    @property
    def set_by_python(self) -> dict[str, str]:
        """Variables that Python sets when it starts, each with the file that does so."""
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
    def given_a_gpu(self) -> bool:
        """True if NVML reports a GPU, or a device file of one is here."""
        return bool(self.nvml_devices or (not isinstance(self.device_nodes, Unknown) and self.device_nodes.nodes))

    @property
    def nvml_devices(self) -> tuple[NvmlDevice, ...]:
        """Every GPU NVML reports, in its order; empty if NVML could not be asked."""
        return () if isinstance(self.nvml, Unknown) else self.nvml.devices
