"""Host facts: what can be known about a machine without TensorFlow. Records only; ``gpudiag.facts`` gathers them.

Each family is gathered in a separate child process with a deadline, because NVML and the driver can hang. A family
that could not be gathered is :class:`Unknown`, never an empty record: "no GPU" and "no answer" are different facts.
"""

from __future__ import annotations

import re
from enum import Enum
from pathlib import PurePath
from typing import Annotated, TypeVar

import msgspec

from gpudiag.record import Record

_T = TypeVar("_T")
MOMENTARY = "momentary"
Momentary = Annotated[_T, msgspec.Meta(extra={MOMENTARY: True})]
"""Marks a value that changes from moment to moment on the same machine; reports are not compared by it."""


class FactFamily(Record, tag_field="family"):
    """Base of the fact families; the tag names the family in JSON."""


class Unknown(FactFamily, tag="unknown"):
    """A family that could not be gathered; ``reason`` says why, as a text for people."""

    reason: str
    ours: bool = False
    """True if gpudiag itself broke while it gathered the family, which says nothing about the machine."""


class PythonEnvironment(Record):
    """How packages get into the environment of the interpreter, and how a user starts it."""

    tool: str
    """The tool that fills the environment: one of :mod:`gpudiag.knowledge.managers`, such as ``conda``, ``uv`` or
    ``poetry``; ``venv``; ``uv venv`` for one that uv made without a project; ``system`` for a Python without an
    environment of its own."""
    command: str
    """The shortest word that starts the interpreter in the caller's shell, such as ``python3``, or else its path."""
    has_pip: bool
    externally_managed: bool = False
    """True if pip refuses to install into this Python, since it belongs to the system (PEP 668)."""
    writable: bool = True
    """False if this user cannot write to the folder of packages: it is another user's, or read-only."""
    project: str = ""
    """The folder with the lock file that the environment is made from; "" if there is none."""
    tools: tuple[str, ...] = ()
    """Those of conda, mamba, micromamba, pipx, poetry and uv that the caller's shell has."""
    notebook: str = ""
    """The service that runs the notebook of this process: ``Colab``, ``Kaggle``, ``Databricks``, ``SageMaker``,
    ``Vertex AI``, ``JupyterHub`` or ``Jupyter``."""
    of_gpudiag: str = ""
    """The interpreter that gpudiag itself is installed for, if that is another one."""


class SystemFacts(FactFamily, tag="system"):
    """Operating system, Python, processors and memory of the host."""

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
    root: bool | None = None
    """True if this process may do what root may; None: not known."""
    sudo: bool | None = None
    """True if the command sudo is on PATH; None: not known."""
    python_environment: PythonEnvironment | None = None
    started_by: Momentary[tuple[str, ...]] = ()
    """What started this process besides a shell, the innermost first: names of :mod:`gpudiag.knowledge.starters`."""
    bios: str = ""
    """Version and date of the firmware (``/sys/class/dmi/id/bios_version``, ``bios_date``); "" if it is not known."""
    product: str = ""
    """Maker and model of the machine, such as ``Supermicro SYS-420GP-TNR``; "" if they are not known."""


class ProvenanceKind(str, Enum):
    """The kind of place that puts a variable or a folder where TensorFlow meets it."""

    SHELL = "shell"
    """A file that each interactive shell reads."""
    LOGIN = "login"
    """A file that is read at the login."""
    UNIT = "unit"
    """A unit of systemd."""
    KERNEL = "kernel"
    """The ``kernel.json`` of a Jupyter kernel."""
    CONDA = "conda"
    """A script that the activation of an environment runs."""
    CONDA_VARIABLES = "conda variables"
    """The variables that conda keeps for an environment."""
    MODULE = "module"
    """An environment module, such as ``cuda/11.8``."""
    CONTAINER = "container"
    """The first process of a container has it: it is of the image, or was given to the container."""
    PYTHON = "python"
    """A file that Python reads or runs whenever it starts: a ``.pth`` file or a ``sitecustomize.py``."""


class Provenance(Record):
    """The place that put something where TensorFlow meets it: to take it away, change this place."""

    kind: ProvenanceKind
    place: str
    """A file with its line, the name of an environment module, or the folder of an environment of conda."""


class VariableProvenance(Record):
    """The place that sets a variable, or an entry of a list such as ``LD_LIBRARY_PATH``."""

    name: str
    entry: str
    """The entry; "" for the whole value."""
    provenance: Provenance


class FileFault(str, Enum):
    """Why a file cannot serve as a library."""

    LINK = "link"
    """A link whose target is absent."""
    FOLDER = "folder"
    KIND = "kind"
    """A pipe, a socket or a device."""
    SHUT = "shut"
    """This user may not read it, or not enter a folder on the way to it: to the loader it is not there."""
    UNREADABLE = "unreadable"
    """Reading it fails for another reason, such as a stale handle of a network file system."""
    EMPTY = "empty"
    CUT = "cut"
    """Shorter than its own headers say; a program that touches the missing part is killed by SIGBUS."""
    CONTENT = "content"
    """No library, such as a pointer of Git LFS or a page of HTML."""
    PROCESSOR = "processor"
    NOEXEC = "noexec"
    """On a file system from which no code may be run."""
    CRASH = "crash"
    """Opening it ended the process by a signal."""
    OTHER_BUILD = "other build"
    """A part of a library that the loader takes from another folder, and that differs from the part beside it."""


class FileState(Record):
    """A file as it is, if it cannot serve as the library that its name says."""

    path: str
    fault: FileFault
    words: str
    """What it is, as the end of a sentence that begins with its path: ``is a link to X, which is not there``."""
    place: str = ""
    """The file or folder that has to change, if it is another: the folder that is shut, the mount point, the target."""
    owner: str = ""
    """The distribution that installed it, with its version, such as ``nvidia-cudnn-cu12 9.3.0.75``."""

    @property
    def sentence(self) -> str:
        return f"{self.path} {self.words}"


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
    """The compute capabilities as the file spells them, such as ``sm_60`` (machine code) or ``compute_90`` (PTX)."""


class Requirement(Record):
    """A requirement of a distribution, and what is installed for it."""

    name: str
    """The normalized name, as in ``typing-extensions``."""
    specifier: str
    """The versions that are required, such as ``<3,>=1.26``; empty for any."""
    by: str
    """The distribution that has the requirement."""
    version: str | None
    """The installed version; None if it is not installed, "" if only a part of its metadata is left."""
    location: str = ""
    in_range: bool = False
    gone: tuple[str, ...] = ()
    """The first module in the distribution's record that is missing on disk."""
    foreign_tag: str = ""
    """The tag of its wheel, if the wheel is for another Python, such as ``cp310-cp310-manylinux_2_17_x86_64``."""

    @property
    def fits(self) -> bool:
        """True if the distribution is completely installed for this Python, in a version that ``by`` accepts."""
        return bool(self.version) and self.in_range and not self.gone and not self.foreign_tag

    @property
    def wanted(self) -> str:
        """The argument of ``pip install`` that installs it."""
        return f"{self.name}{self.specifier}"


class TensorflowFacts(FactFamily, tag="tensorflow"):
    """TensorFlow as installed, read from metadata."""

    module_path: str | None
    """The file that ``import tensorflow`` would load, or None if there is no such module."""
    distributions: tuple[Distribution, ...]
    """Every distribution that installs a top-level module ``tensorflow``."""
    build: TensorflowBuild | None
    companions: tuple[Distribution, ...]
    """Installed packages that decide whether TensorFlow works: keras, numpy, protobuf, ``nvidia-*``."""
    ranges: dict[str, str] = {}
    """For each of NVIDIA's packages, the versions that TensorFlow's metadata requires, such as ``<13.0,>=12.5.3.2``."""
    frameworks: tuple[Distribution, ...] = ()
    """Other packages that install or pin CUDA libraries: torch, jax, cupy, onnxruntime ..."""
    plugins: tuple[str, ...] = ()
    """Files in the folders ``tensorflow-plugins``, which ``import tensorflow`` loads."""
    plugin_distributions: tuple[Distribution, ...] = ()
    """Distributions of plug-ins, such as ``tensorflow-directml-plugin``."""
    altered: tuple[str, ...] = ()
    """Files of TensorFlow whose hash or size differs from what its distribution installed; only a few are checked."""
    overwritten: dict[str, tuple[str, ...]] = {}
    """For each distribution that installs TensorFlow and records hashes, its name and the altered files."""
    in_working_directory: str | None = None
    """A module ``tensorflow`` in the working directory: this interpreter does not import it, but a program there
    would."""
    unreadable: tuple[str, ...] = ()
    """Metadata folders on ``sys.path`` that cannot be read, of any distribution."""
    half_removed: tuple[str, ...] = ()
    """Folders that an interrupted pip renamed (``~vidia_cudnn_cu12-9.3.0.75.dist-info``) and did not remove."""
    required_by_others: dict[str, dict[str, str]] = {}
    """For each of NVIDIA's packages, the versions that other installed frameworks require, such as ``==9.1.0.70``."""
    path_provenance: dict[str, Provenance] = {}
    """Folders and archives on ``sys.path`` that a ``.pth`` file or a start-up file of Python puts there."""
    damaged: tuple[FileState, ...] = ()
    """Libraries and folders of TensorFlow, and of the packages that it requires, that cannot be used as they are."""
    outside: dict[str, str] = {}
    """Modules that TensorFlow imports from outside the folders of installed packages, each with its file."""
    requirements: tuple[Requirement, ...] = ()
    """TensorFlow's direct requirements, and those indirect requirements that are not met."""
    without_init: tuple[str, ...] = ()
    """Folders ``tensorflow`` without ``__init__.py`` on ``sys.path``, if no module ``tensorflow`` is found."""
    elsewhere: str = ""
    """The first interpreter on PATH that has TensorFlow, if this one has none."""


class DriverFacts(FactFamily, tag="driver"):
    """The NVIDIA kernel module and the CUDA driver library, without initialising CUDA."""

    kernel_module: str | None
    """Version of the loaded kernel module (``/proc/driver/nvidia/version``), or None."""
    libcuda_path: str | None
    """The file that the loader maps for ``libcuda.so.1``, or None."""
    libcuda_error: str | None
    """The loader's message if ``libcuda.so.1`` cannot be opened, or the library's answer to a version query."""
    cuda_version: str | None
    """Newest CUDA version the driver supports (``cuDriverGetVersion``), such as ``12.5``."""
    modules: tuple[str, ...] = ()
    """Loaded kernel modules that drive NVIDIA GPUs: ``nvidia``, ``nvidia_uvm``, ``nouveau`` ... (``/proc/modules``)."""
    module_file: str | None = None
    """A file of NVIDIA's module for the running kernel that ``modules.dep`` does not list; None: there is none, or it
    is listed."""
    module_installed: bool | None = None
    """Whether NVIDIA's module was built for the running kernel (its ``modules.dep``); None: not known."""
    secure_boot: bool | None = None
    """Whether the kernel was started by UEFI Secure Boot; None: not known."""
    prime: str | None = None
    """The choice of Ubuntu's prime-select on a notebook with two GPUs: ``nvidia``, ``intel``, ``on-demand``."""
    packages: dict[str, str] = {}
    """Packages of NVIDIA's driver and their versions, if dpkg manages packages."""
    unfinished: dict[str, str] = {}
    """Those of them that dpkg has not brought to an end, with their state, such as ``half-configured``."""
    fabric_manager: str | None = None
    """NVIDIA's Fabric Manager: ``running``, ``stopped`` or ``absent``; None: not known."""
    fabric_manager_version: str | None = None
    """The version that Fabric Manager's own log, or its program, gives; None: not known."""
    wsl_library: str | None = None
    """The path of ``libcuda.so.1`` in the folder that Windows provides to WSL, even if the loader does not find it
    there."""
    windows_driver: str | None = None
    """Under WSL, the file that shows that Windows has NVIDIA's driver."""
    open_module: bool | None = None
    """True if the loaded kernel module is the open one; None if none is loaded."""
    rebuilt: str = ""
    """The version of the module that DKMS has installed for the running kernel, which the next start loads; "" if DKMS
    has none."""
    libcuda_mounted: bool | None = None
    """Whether ``libcuda_path`` lies on a mount of its own, as runtimes of containers bring the host's libraries in, and
    not in the file system of ``/``; None if it is not known."""
    kernel_log: tuple[str, ...] | None = None
    """Of older reports: the last lines of NVIDIA's driver in the kernel log; now in :class:`KernelFacts`."""
    interposed: tuple[str, ...] = ()
    """Preloaded files that define functions of the driver or of NVML: they come from ``LD_PRELOAD`` or
    ``/etc/ld.so.preload``. Libraries that share a GPU between programs do this."""
    preloaded: tuple[str, ...] = ()
    """What ``/etc/ld.so.preload`` names."""
    preload_error: str = ""
    """The name of the error with which this user cannot read ``/etc/ld.so.preload``: the loader, which reads it as this
    user, passes over it (measured, glibc 2.36). "" if it can be read, or is not there."""


DEAD, ZOMBIE, UNINTERRUPTIBLE = "X", "Z", "D"
"""Letters of the kernel for the state of a process: it does not exist any more, it has ended and its parent has not
noticed, it waits in the kernel and no signal reaches it."""


class ProcessIdentity(Record):
    """What ``/proc`` says about a process; a value is None if it is not known."""

    user: str | None = None
    command: str | None = None
    """Its command line without arguments that can hold a secret; a masked report leaves it out."""
    started_at: str | None = None
    """The start time of the process, UTC."""
    parent_gone: bool | None = None
    """True if its parent has ended and it is not a service: it was left behind, or started with nohup."""
    job: str | None = None
    """The container or the scheduler's job that it belongs to, by its control group."""
    state: str | None = None
    """The kernel's letter for its state: ``S`` sleeping, ``D`` waiting in the kernel all the time, ``T`` stopped, ``Z``
    a zombie, ``X`` it does not exist any more."""
    parent: int | None = None
    parent_command: str | None = None
    rank: str | None = None
    """Its number in its run, as ``OMPI_COMM_WORLD_RANK=1`` or ``PYTEST_XDIST_WORKER=gw1``, if its environment may be
    read."""
    run: str | None = None
    """The variable that shows that it belongs to the same run as this process: of one name in both, or a rank of both
    that one parent started."""
    is_ancestor: bool = False
    """True if it is this process, or has started it."""
    uses: str | None = None
    """The framework whose library it has loaded, such as ``PyTorch``, if this user may read its maps."""
    of_another_user: bool = False
    """True if it is known to be of another user than this process."""
    same_job: str | None = None
    """The variable with the number of a scheduler's job that both have, as ``LSB_JOBID=4711``."""

    @property
    def words(self) -> str:
        """The process in words, as far as it is known, such as ``of someone, python train.py ..., job 17 of Slurm``."""
        shared = self.run if self.run != (self.rank or "").partition("=")[0] else None
        known = (
            f"of {self.user}" if self.user else None,
            self.command,
            f"which uses {self.uses}" if self.uses else None,
            f"since {self.started_at}" if self.started_at else None,
            self.job,
            self.rank,
            f"the same {shared or self.same_job} as here" if shared or self.same_job else None,
            "whose parent has ended" if self.parent_gone else None,
        )
        return ", ".join(filter(None, known))


class GpuProcess(Record):
    """A process that holds memory of a GPU, as NVML reports it."""

    pid: int
    used_bytes: int | None
    """Memory that the process holds; None if NVML does not report it (MIG, WSL, some containers)."""
    computes: bool = True
    """False for a process that only draws, such as a desktop's."""
    holder: ProcessIdentity | None = None
    """The process in ``/proc``; None if this process's pid namespace does not show it, or if it was not looked up."""


class GpuState(Record):
    """Current health and limits of a GPU by NVML; None if the card, the driver or this user cannot know a value.

    The state is momentary: an idle GPU lowers its clocks and its link.
    """

    virtualization: str | None = None
    """The role of the GPU: ``none``, ``passthrough``, ``vgpu`` (a virtual GPU), ``host_vgpu`` or ``host_vsga`` (a host
    of virtual GPUs)."""
    licensed: bool | None = None
    """For a vGPU: True if one of the products that it is enabled for has a licence."""
    persistence: bool | None = None
    ecc: bool | None = None
    uncorrected_errors: int | None = None
    """ECC errors since the driver was loaded that could not be corrected."""
    corrected_errors: int | None = None
    retired_pages: int | None = None
    retirement_pending: bool | None = None
    """True if pages wait to be retired: the faulty memory is used until a reset. Only cards before Ampere."""
    remapped_rows: int | None = None
    remap_pending: bool | None = None
    """True if rows wait to be remapped, which a reset does. Only Ampere and later."""
    remap_failed: bool | None = None
    """True if no spare row is left: the card has to be replaced."""
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    slowed_by: tuple[str, ...] | None = None
    """The reasons why its clocks are lowered: ``idle``, ``power_cap``, ``power_brake``, ``hot`` ..."""
    performance_state: int | None = None
    """The performance state: 0 is the fastest; an idle GPU is in state 8 or above."""
    power_limit_watts: int | None = None
    power_default_watts: int | None = None
    clock_mhz: int | None = None
    clock_max_mhz: int | None = None
    temperature: int | None = None
    """Degrees Celsius."""
    temperature_max: int | None = None
    """The temperature from which the driver lowers the clock, in degrees Celsius (GPU Max Operating Temp)."""
    display: bool | None = None
    """True if a display has the GPU in use: a time limit for kernels then holds."""
    fabric: str | None = None
    """Its registration with the NVSwitch fabric: ``not_supported``, ``not_started``, ``in_progress``, ``completed``."""
    fabric_error: int | None = None
    """NVML's error code if the registration was completed with an error; 0 if there was none."""
    nvlinks: tuple[bool, ...] | None = None
    """For each NVLink, whether it is active."""

    @property
    def is_working(self) -> bool:
        """True if the GPU was known to be under load, or at least awake, when NVML was asked."""
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
    """NVML's error if the query for the memory fails; "" also if this card or user gets no answer."""
    opened_by: Momentary[tuple[GpuProcess, ...]] = ()
    """If memory is in use and NVML lists no process: those that have the GPU's device file open, as far as this user
    may look."""


NVML_ABSENT = (None, "NVML Shared Library Not Found", "Driver Not Loaded")
"""NVML's errors if there is no driver to ask; any other error may hide a GPU."""


class NvmlFacts(FactFamily, tag="nvml"):
    """NVML's answers about the machine and its GPUs."""

    error: str | None
    """NVML's message if it, or a GPU that it counts, could not be used; None if it answered."""
    driver_version: str | None
    cuda_version: str | None
    """Newest CUDA version the driver supports, as NVML reports it."""
    devices: tuple[NvmlDevice, ...]
    peers: dict[str, str] = {}
    """For each pair of GPUs, such as ``0 1``, whether one may read the other's memory: ``ok``, or the reason why
    not."""
    confidential: bool | None = None
    """Whether confidential computing is on."""
    confidential_ready: bool | None = None
    """Whether its GPUs were set to the ready state, which CUDA needs to start."""

    @property
    def undescribed(self) -> dict[int, str]:
        """GPUs that NVML counts but cannot describe: index to NVML's message (as :mod:`gpudiag.hardware.nvml` does)."""
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
    group_id: int | None = None
    """The number of that group in this user namespace; None: not known."""
    owner: str = ""
    """The user that owns it; "" if it is not known."""
    major: int | None = None
    """The number of its driver; None if it is no device."""
    minor: int | None = None
    nodev: bool = False
    """True if it lies on a file system that was mounted with ``nodev``, on which no device can be opened."""


def is_gpu_file(path: str) -> bool:
    """Return whether a path is that of the device file of one NVIDIA GPU, such as ``/dev/nvidia0``."""
    number = path.removeprefix("/dev/nvidia")
    return number != path and number.isdecimal()


class DeviceNodeFacts(FactFamily, tag="device_nodes"):
    """Device files, NVIDIA display devices on the PCI bus (vendor 0x10de), and the bridges and IOMMUs between them."""

    nodes: tuple[DeviceNode, ...]
    pci_gpus: tuple[str, ...]
    """PCI bus ids of NVIDIA display controllers (``/sys/bus/pci/devices``), with or without a driver."""
    iommu_groups: dict[str, str] = {}
    """The type of the IOMMU group of each NVIDIA display controller: ``identity`` (passed through), ``DMA`` or
    ``DMA-FQ``."""
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
    """The PCI device number of each NVIDIA GPU, such as ``0x2330``."""
    without_memory_region: tuple[str, ...] = ()
    """GPUs to which the firmware gave no address space for the first or second memory region (BAR)."""
    asleep: tuple[str, ...] = ()
    """GPUs that the kernel has switched off (``D3cold``)."""
    bridges: dict[str, tuple[str, ...]] = {}
    """For each GPU, by PCI bus id, the PCI bridges and switches above it, the host's first."""
    majors: dict[str, int] = {}
    """The numbers of NVIDIA's drivers of character devices (``/proc/devices``), which containers see, too."""
    private_dev: bool = False
    """True if ``/dev`` is not the kernel's own (``devtmpfs``), but a file system that somebody filled."""
    module_in_sysfs: bool | None = None
    """Whether this process sees ``/sys/module/nvidia``, which the driver's libraries read; None on a simulated
    machine."""


class TakenPort(Record):
    """A TCP port of this machine, and the process that listens on it."""

    port: int
    pid: int | None = None
    """None if this user may not see which process it is."""
    process: ProcessIdentity | None = None


class EnvironmentFacts(FactFamily, tag="environment"):
    """Variables that affect TensorFlow, CUDA or the launcher: an allow-list, never the whole environment."""

    variables: dict[str, str]
    """Name to value. A value that can hold a secret is not stored; ``(set)`` replaces it."""
    set_by_python: dict[str, str] = {}
    """Variables that Python sets whenever it starts, each with the file that does so ("": not known). ``LD_PRELOAD`` or
    ``/etc/ld.so.preload`` as the file means that a library named there sets the variable in every program."""
    keras_backend: str = ""
    """What Keras 3 computes with, by ``KERAS_BACKEND`` or else ``keras.json``; "" if neither names it."""
    keras_backend_from: str = ""
    """The variable or the file that names it."""
    silent_tasks: Momentary[dict[str, str]] = {}
    """Other tasks of ``TF_CONFIG`` that accepted no connection, such as ``worker 1``, each with the error."""
    port_taken: Momentary[TakenPort | None] = None
    """The port of this process's own task in ``TF_CONFIG``, if a process listens there already."""
    provenance: tuple[VariableProvenance, ...] = ()
    """The start-up files, modules and environments that set the variables which may matter, as they are set here."""


class Limit(Record):
    """A limit that the kernel holds this process to; what has no limit is left out."""

    name: str
    """``pids.max``, ``memory.max``, ``Max processes``, ``Max address space``, ``vm.overcommit_memory`` ..."""
    value: int
    """The limit in force: bytes, or a number."""
    place: str
    """The file that states it: of the control group that is the tightest, or ``/proc/self/limits``."""
    used: Momentary[int | None] = None
    """What is used of it; None if the kernel does not say."""
    reached: Momentary[int] = 0
    """How often the kernel refused more, or killed a process for it, since the control group was made."""
    during_run: Momentary[int] = 0
    """How often it did so while the probes ran, if a probe broke."""
    is_hard: bool = False
    """True for an ``ulimit`` that only root can raise."""
    since: Momentary[str] = ""
    """For a limit of addresses, the ancestor of this process with which it begins, such as ``process 33 (bash)``: its
    own parent has another. "" if the first process has it too, or if it is not known."""


class ContainerFacts(FactFamily, tag="container"):
    """Marks of a container, of Kubernetes and of Slurm, and what they limit."""

    runtime: str | None
    """``docker``, ``podman``, ``containerd``, ``singularity``, ``lxc`` ... or None outside a container; the names are
    those of :mod:`gpudiag.knowledge.sandboxes`."""
    evidence: tuple[str, ...]
    """The signs of the container that were found, such as ``/.dockerenv``."""
    kubernetes: bool
    slurm_job: Momentary[str | None]
    """``SLURM_JOB_ID``, or None outside a Slurm job."""
    shm_bytes: int | None = None
    """Size of ``/dev/shm``; None if its mount has no size option, which means half of the host's memory."""
    memlock_bytes: int | None = None
    """How much memory a process may lock (``RLIMIT_MEMLOCK``); None: no limit, or not known."""
    address_space_bytes: int | None = None
    """The size of the address space that a process may use (``RLIMIT_AS``, ``ulimit -v``); None: no limit, or not
    known."""
    infiniband: tuple[str, ...] = ()
    """Device files of InfiniBand verbs (``/dev/infiniband``)."""
    image: str | None = None
    """The container's image: the name that the runtime gives, or a digest of its layers; None: not known."""
    sandbox: str | None = None
    """What else confines this process: ``gvisor``, ``snap``, ``systemd`` (a unit), ``chroot``; None: nothing known."""
    sandbox_name: str = ""
    """The name of the unit, of the snap or of the Flatpak."""
    flatpak_devices: str | None = None
    """The devices of the host that a Flatpak passes in, such as ``dri;`` or ``all;``; None outside of one."""
    control_group: str | None = None
    """The path of this process's control group, of devices if it has one of its own for them."""
    user_namespace: str | None = None
    """The users that exist in this user namespace, as ``/proc/self/uid_map`` lists them; None if all do."""
    overrides_permissions: bool | None = None
    """Whether permissions of files do not bind this process (CAP_DAC_OVERRIDE); None: not known."""
    has_filter: bool | None = None
    """Whether system calls of this process pass a filter (seccomp), which may refuse some; None: not known."""
    limits: tuple[Limit, ...] = ()
    """The limits of control groups, ``ulimit`` and overcommit that are in force."""
    job_gpus: Momentary[tuple[int, ...] | None] = None
    """The GPUs of this node, by number, that Torque gave the job (``PBS_GPUFILE``); None: not known."""

    @property
    def name(self) -> str | None:
        """The container's runtime, or Kubernetes if no sign names a runtime; None outside a container."""
        return self.runtime or ("kubernetes" if self.kubernetes else None)


class LibraryCopy(Record):
    """A copy of a library that the loader does not choose."""

    path: str
    version: str | None
    owner: str | None
    """Its distribution and version, such as ``nvidia-cudnn-cu12 9.3.0.75``; None if no distribution has it."""
    error: str | None
    """The loader's message if it cannot be opened by its path; None if it can be opened."""
    named_by: str = ""
    """What names its folder, of a library that the loader does not find: a start-up file with the line, a mount."""


class Library(Record):
    """A library that TensorFlow opens by name, as the loader finds it for TensorFlow in this environment."""

    soname: str
    path: str | None
    """The file that the loader chooses; None if it finds none."""
    source: str
    """Where the loader found it: ``LD_LIBRARY_PATH``, ``RUNPATH``, ``ld.so.cache``, ``default folder``, ``loaded
    already``, ``simulated machine`` or ""."""
    file: str | None
    """``path`` with links resolved."""
    own_soname: str | None
    """The library's name in the file itself (``DT_SONAME``)."""
    version: str | None
    """The version: for cuDNN its own answer, otherwise from the name of the file or from its distribution."""
    owner: str | None
    """The distribution that installed it, with the version; None if no distribution did."""
    error: str | None
    """The loader's message if it cannot be opened."""
    lacks: dict[str, str]
    """Libraries that it needs, directly or indirectly, and that are not found; each with the file that needs it."""
    copies: tuple[LibraryCopy, ...]
    """Other files of this name: of packages, of CUDA toolkits, of conda."""
    damaged: tuple[str, ...] = ()
    """Damaged files of this library, or of one that it needs, that ``LD_LIBRARY_PATH`` puts first."""
    instead: str | None = None
    """The good file that the loader would find after the damaged ones; None if there is none, or no damaged file."""
    passed_over: dict[str, str] = {}
    """In earlier reports: files with its name that the loader skips, each with its fault. :attr:`files` has more."""
    digest: str | None = None
    """A digest of the file's size and of 64 pieces of it: equal for copies, different for another build."""
    crash: str = ""
    """The signal that ended the process which opened it, such as ``SIGBUS``; "" if none did."""
    files: tuple[FileState, ...] = ()
    """For a library that cannot be opened: the files of its name, or of one that it needs, that do not serve, in the
    order in which the loader meets them. For one that can be: its parts that are of another build."""

    @property
    def damaged_folders(self) -> tuple[str, ...]:
        """The folders of the damaged files, each once, as in ``LD_LIBRARY_PATH``, without slashes at the end."""
        return tuple(dict.fromkeys(str(PurePath(file).parent) for file in self.damaged))


class LibraryFacts(FactFamily, tag="libraries"):
    """The dynamic libraries that TensorFlow opens; each was opened, in TensorFlow's order, without an import."""

    opener: str | None
    """The file of TensorFlow that opens them; None if there is no such file, or it was built without CUDA."""
    runpath: tuple[str, ...]
    """Folders in which the loader searches on behalf of TensorFlow's file (``DT_RUNPATH``), each once."""
    search_path: tuple[str, ...]
    """Folders of ``LD_LIBRARY_PATH``, which come before the ``RUNPATH``."""
    libraries: tuple[Library, ...]
    libdevice: tuple[str, ...]
    """Files ``libdevice.10.bc`` where XLA looks for them; XLA uses the first."""
    libdevice_elsewhere: tuple[str, ...]
    """Copies of libdevice in folders where TensorFlow does not look."""
    corrected: dict[str, str] = {}
    """Names for which the real loader chose another file than gpudiag's model of its rules predicts; each with the
    predicted file."""
    incomplete: dict[str, str] = {}
    """NVIDIA distributions, with version, that lack an installed library; each with the first missing one."""
    plugins_lack: dict[str, str] = {}
    """Libraries that are needed by files in the folders ``tensorflow-plugins`` and not found, each with the file."""
    damaged: tuple[FileState, ...] = ()
    """Libraries of NVIDIA's distributions, opened or not, that are smaller than recorded and cannot serve."""
    configured: dict[str, str] = {}
    """Folders that ``/etc/ld.so.conf`` names, each with file and line. The loader finds there what ``ldconfig`` put
    into its cache."""
    secure: str = ""
    """Why the loader ignores ``LD_LIBRARY_PATH`` (it is in secure-execution mode): what is special about the file of
    this Python, such as ``file capabilities``; "" if it does not."""
    walked: tuple[str, ...] = ()
    """Folders that were looked through, with all below, for a library of the driver that cannot be opened; none if
    each opens, if no driver and no device is here, or if it took too long."""
    closed: tuple[str, ...] = ()
    """Some of the folders below these that this user may not look into."""


class PathAttempt(Record):
    """Something that was tried in the way TensorFlow or the driver does it."""

    path: str
    error: str | None = None
    """The name of the error number, such as ``EPERM``; None if it worked."""
    purpose: str = ""
    """What a folder is for: ``temporary files``, ``CUDA cache``, ``home``, or the flag that names it."""
    free_bytes: Momentary[int | None] = None
    """Free space in the folder."""
    owner: str = ""
    """The user that owns a socket that could not be connected to, or its folder; "" if it is not known."""


class MpsFacts(Record):
    """What a daemon of MPS that answers says of the limits of its clients."""

    share: float | None = None
    """The part of a GPU's multiprocessors that each client may use, in percent; None: not known."""
    memory: dict[str, int] = {}
    """How many bytes of a GPU each client may take, by the daemon's name for the GPU: its number, or its UUID."""
    failure: str = ""
    """The last failure of a server of MPS that its logs tell, such as ``Server 95 exited with status 1``."""
    known_by: str = ""
    """The program or the log that says so."""
    why_not: str = ""
    """Why the daemon was not asked, or gave no answer; "" if it gave one."""


class TriedFacts(FactFamily, tag="tried"):
    """Results of opening and writing: permissions say less, as ``access(2)`` ignores device control groups."""

    opened: tuple[PathAttempt, ...] = ()
    """Device files, opened for reading and writing. No context is created."""
    written: tuple[PathAttempt, ...] = ()
    """Folders in which a nameless file was written."""
    connected: tuple[PathAttempt, ...] = ()
    """Sockets of services: persistence, the NVSwitch fabric and MPS. Sockets that do not exist are left out."""
    mps: MpsFacts | None = None
    """None if no daemon of MPS answers."""
    confined: str | None = None
    """The SELinux label or AppArmor profile of this process; None if it has none, or is not confined."""


class ModuleSetting(Record):
    """A line about a kernel module, and where it is written."""

    place: str
    """``/etc/modprobe.d/nvidia.conf:3``, ``/proc/cmdline`` (the kernel's options), or a file of sysfs or driverctl."""
    text: str
    """The line, such as ``blacklist nvidia``, or the option or driver alone."""


class KernelFacts(FactFamily, tag="kernel"):
    """What the kernel says of NVIDIA's GPUs, read without a call into the driver: it is known even if that hangs."""

    log: tuple[str, ...] | None = None
    """The last messages of NVIDIA's driver since its module was loaded, and failures of the bus that name a GPU; None
    if this user may read the kernel's log in no way."""
    log_source: str = ""
    """Where the log was read: ``/dev/kmsg``, ``syslog(2)``, ``journalctl`` or a file in /var/log."""
    log_refused: str = ""
    """The first way that failed, with its error, such as ``/dev/kmsg: EPERM``."""
    settings: tuple[ModuleSetting, ...] = ()
    """Settings of the modules nvidia, nouveau and vfio-pci."""
    parameters: dict[str, str] = {}
    """Parameters of NVIDIA's loaded module (``/proc/driver/nvidia/params``); only some."""
    excluded: tuple[str, ...] = ()
    """PCI bus ids of GPUs that the module was told to leave alone (``GPU Excluded: Yes``)."""
    firmware: dict[str, str] = {}
    """The GSP firmware of each GPU by PCI bus id; ``N/A``: the GPU runs without."""
    video_bios: dict[str, str] = {}
    built_for: tuple[str, ...] = ()
    """The kernels for which NVIDIA's module lies in ``/lib/modules``."""
    build_error: str = ""
    """The compiler's first error in the log of DKMS, if it tried to build NVIDIA's module for the running kernel, after
    the version of the driver: ``545.29.06: nvidia-drm-drv.c:1520:27: error: ...``."""


class CudaFacts(FactFamily, tag="cuda"):
    """The GPUs that the CUDA driver shows; it is asked only if indices in ``CUDA_VISIBLE_DEVICES`` are ambiguous."""

    mask: str | None = None
    """The ``CUDA_VISIBLE_DEVICES`` under which the driver was asked; None if it was not asked."""
    uuids: tuple[str, ...] = ()
    """UUIDs of the GPUs and MIG instances that the driver shows, in NVML's notation and CUDA's order; empty if it
    fails."""


SLOW_S = 5.0
"""Seconds above which a first call is slow: with an idle driver cuInit takes 0.1 to 2 s, more with many GPUs."""


_DRIVER_CALL = re.compile(r"cu[A-Z]|cuda[A-Z]|nvml[A-Z]|dlopen")


class TimedCall(Record):
    """The first call in a process of a function of the driver, of NVML, of a library or of the loader."""

    name: str
    """The call, such as ``cuInit`` or ``dlopen(libcuda.so.1)``."""
    seconds: float | None
    """Duration; None if the call did not return within the time limit."""
    gpu: str = ""
    """UUID of the GPU that the call was for; "" if it was for none."""
    waited_s: float = 0.0
    """How long gpudiag waited for the call, if it did not return."""
    probe: str = ""
    """The probe that was seen waiting in the call; "" if the call was made to be measured."""
    file: str = ""
    """The kernel request during the call, such as ``ioctl on /dev/nvidia0``; "" if it is not known."""

    @property
    def of_driver(self) -> bool:
        """True for a call of the driver, of CUDA's runtime, of NVML or of the loader, not of a library above them."""
        return not self.probe or bool(_DRIVER_CALL.match(self.name))


class CallFacts(FactFamily, tag="calls"):
    """Durations of first calls, which every program on this machine has to wait for."""

    calls: tuple[TimedCall, ...] = ()
    time_limited: tuple[str, ...] = ()
    """PCI bus ids of the GPUs that the driver shows and on which it ends a kernel that runs for too long, as it does
    where a display is drawn (``CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT``)."""

    @property
    def hung(self) -> tuple[TimedCall, ...]:
        """The calls that did not return."""
        return tuple(call for call in self.calls if call.seconds is None)

    @property
    def driver_hangs(self) -> bool:
        """True if no process can start the CUDA driver or NVML."""
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
    kernel: KernelFacts | Unknown = Unknown("not gathered by the gpudiag that made this report")

    def library(self, soname: str) -> Library | None:
        """Return what is known of the library that TensorFlow opens by this name."""
        libraries = () if isinstance(self.libraries, Unknown) else self.libraries.libraries
        return next((library for library in libraries if library.soname == soname), None)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that were stored; empty if that family is unknown."""
        return {} if isinstance(self.environment, Unknown) else self.environment.variables

    @property
    def set_by_python(self) -> dict[str, str]:
        """Variables that Python sets when it starts, each with the file that does so."""
        return {} if isinstance(self.environment, Unknown) else self.environment.set_by_python

    @property
    def without_gpu(self) -> bool:
        """True only if the machine is known to have no NVIDIA GPU, not if one is hidden or NVML does not answer."""
        nvml, nodes, driver = self.nvml, self.device_nodes, self.driver
        if not isinstance(driver, Unknown) and (driver.wsl_library or driver.windows_driver):
            return False
        if isinstance(nvml, Unknown) or isinstance(nodes, Unknown) or nvml.devices or nodes.pci_gpus:
            return False
        return nvml.error in NVML_ABSENT

    @property
    def given_a_gpu(self) -> bool:
        """True if NVML reports a GPU, or if a GPU's device file exists."""
        return bool(self.nvml_devices or (not isinstance(self.device_nodes, Unknown) and self.device_nodes.nodes))

    @property
    def nvml_devices(self) -> tuple[NvmlDevice, ...]:
        """Every GPU NVML reports, in its order; empty if NVML could not be asked."""
        return () if isinstance(self.nvml, Unknown) else self.nvml.devices
