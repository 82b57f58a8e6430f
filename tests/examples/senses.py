"""Examples of causes: what was tried, the health of GPUs, launchers.

Those of the kind "as in <address>" are machines that users met; the address has the thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from examples import Example
from examples.device_files import KEPT_THOUGH_PERMITTED
from examples.facts import example, example_gpu, example_with_gpus
from examples.machines import (
    DOCKER,
    MODULE,
    NO_DEVICE,
    PCI,
    example_driver,
    example_evidence,
    example_facts,
    example_gpus,
    example_nodes,
    example_row,
)
from gpudiag.cause import Evidence
from gpudiag.model.facts import (
    CallFacts,
    ContainerFacts,
    DeviceNodeFacts,
    DriverFacts,
    EnvironmentFacts,
    Facts,
    GpuProcess,
    GpuState,
    Library,
    LibraryFacts,
    MpsFacts,
    NvmlDevice,
    NvmlFacts,
    PathAttempt,
    ProcessIdentity,
    TensorflowFacts,
    TriedFacts,
)
from gpudiag.model.report import Finding, Judged, Row, Severity
from gpudiag.probe import Raised
from gpudiag.probes.discovery import logical_devices

POD = ContainerFacts("containerd", ("cri-containerd in /proc/1/cgroup",), True, None)
PODMAN = ContainerFacts("podman", ("/run/.containerenv",), False, None)
SELINUX = "system_u:system_r:container_t:s0:c221,c873"
SHUT: dict[str, str | None] = {"ctl": "EACCES", "uvm": "EACCES", "gpu": "EACCES"}
JOB = ContainerFacts(None, (), False, "17")
UNKNOWN = "CUDA_ERROR_UNKNOWN: unknown error"
NOT_READY = "CUDA_ERROR_SYSTEM_NOT_READY: system not yet initialized"
BUSY = "CUDA error: : CUDA_ERROR_DEVICE_UNAVAILABLE: CUDA-capable device(s) is/are busy or unavailable"
ECC = "CUDA error: : CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered"
FULL = "CUDA error: : CUDA_ERROR_OUT_OF_MEMORY: out of memory"
MPS = "CUDA_ERROR_MPS_CONNECTION_FAILED: MPS client failed to connect to the MPS control daemon or the MPS server"
CONTROL, UVM, GPU_0 = "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"
HEALTHY = GpuState(
    virtualization="none",
    persistence=True,
    ecc=True,
    uncorrected_errors=0,
    pcie_generation=4,
    pcie_generation_max=4,
    pcie_width=16,
    pcie_width_max=16,
    slowed_by=(),
    performance_state=0,
    fabric="not_supported",
    clock_mhz=1410,
    clock_max_mhz=1410,
)
_SITE = "/home/someone/venv/lib/python3.11/site-packages"


def card(name: str = "NVIDIA A100-SXM4-40GB", **state: Any) -> NvmlDevice:
    """Return a GPU whose state differs from a healthy one's."""
    return replace(example_gpu(), name=name, state=replace(HEALTHY, **state))


def devices(*gpus: NvmlDevice, **facts: Any) -> NvmlFacts:
    return replace(example_gpus(*gpus), **facts)


def opened(**errors: str | None) -> TriedFacts:
    """Return what came of opening the device files of one GPU; by ``ctl``, ``uvm`` and ``gpu``."""
    files = {CONTROL: "ctl", UVM: "uvm", GPU_0: "gpu"}
    return TriedFacts(opened=tuple(PathAttempt(path, errors.get(key)) for path, key in files.items()))


def bus(*models: str, **changes: Any) -> DeviceNodeFacts:
    """Return device files and the PCI bus of GPUs of these PCI device numbers."""
    facts = example_with_gpus(len(models)).device_nodes
    assert isinstance(facts, DeviceNodeFacts)
    return replace(facts, models=dict(zip(facts.pci_gpus, models, strict=True)), **changes)


def variables(**values: str) -> EnvironmentFacts:
    return EnvironmentFacts(values)


def driver(**changes: Any) -> DriverFacts:
    return example_driver(**changes)


@dataclass(frozen=True)
class Seen:
    """What TensorFlow does on a machine."""

    cuinit: str = ""
    """The driver's words where it fails."""
    raised: str = ""
    """The words with which its devices cannot be created."""
    lists: bool = True

    def on(self, gpus: int = 1, **families: Any) -> Evidence:
        facts = example_facts(gpus, **families)
        pci = next((device.pci_bus_id for device in facts.nvml_devices), PCI)
        failed = logical_devices.Reading((pci,), Raised("RuntimeError", self.raised), {})
        rows = [example_row(logical_devices, failed, facts)] if self.raised else []
        listed = 0 if self.cuinit or not self.lists else len(facts.nvml_devices)
        return example_evidence(facts, *rows, cuinit=self.cuinit, listed=listed)


WORKS, NO_GPU, HIDDEN = Seen(), Seen(cuinit=NO_DEVICE), Seen(lists=False)


def written(purpose: str, path: str, error: str | None, free_bytes: int = 1 << 30) -> TriedFacts:
    home = PathAttempt("/home/someone", purpose="home", free_bytes=1 << 30)
    return TriedFacts(written=(PathAttempt(path, error, purpose, free_bytes), home))


def compiled(tried: TriedFacts, **values: str) -> Evidence:
    """Return the evidence of a machine with a GPU for which TensorFlow has no machine code."""
    found = Finding(
        "ptx_only", Severity.WARNING, "Simulated B200: no machine code", figures={"name": "B200", "capability": "10.0"}
    )
    facts = example_with_gpus(tried=tried, environment=variables(**values))
    return Evidence(facts, rows=(Row("discovery.device_details", (), Judged((found,)), 0.0),))


def libraries(**changes: Any) -> LibraryFacts:
    facts = example().libraries
    assert isinstance(facts, LibraryFacts)
    return replace(facts, **changes)


def tensorflow(*leftovers: str) -> TensorflowFacts:
    facts = example().tensorflow
    assert isinstance(facts, TensorflowFacts)
    return replace(facts, half_removed=tuple(f"{_SITE}/{leftover}" for leftover in leftovers))


NO_CUDNN = Library(
    soname="libcudnn.so.9",
    path=None,
    source="",
    file=None,
    own_soname=None,
    version=None,
    owner=None,
    error="libcudnn.so.9: cannot open shared object file: No such file or directory",
    lacks={},
    copies=(),
)
LEFT = "~vidia_cudnn_cu12-9.3.0.75.dist-info"
GONE = {"nvidia-cudnn-cu12 9.3.0.75": f"{_SITE}/nvidia/cudnn/lib/libcudnn.so.9"}
EMPTY = NvmlFacts(None, MODULE, "12.2", ())
SLURM = {"SLURM_JOB_ID": "17"}
ALLOCATED = {"SLURM_JOB_GPUS": "2,3", "SLURM_STEP_GPUS": "2,3"}
CC = {"confidential": True, "confidential_ready": False}
MPS_ENDS = TriedFacts(
    connected=(PathAttempt("/mps/nvidia.com/gpu/pipe/control"),),
    mps=MpsFacts(None, {}, "Server 95 exited with status 1", "/mps/nvidia.com/gpu/log/control.log"),
)
MPS_GONE = TriedFacts(connected=(PathAttempt("/tmp/nvidia-mps/control", "ECONNREFUSED"),))
NO_PERMISSION = NvmlFacts("Insufficient Permissions", None, None, ())
LOST_NVML = NvmlFacts("Unknown Error", None, None, ())
VGPU = {"virtualization": "vgpu"}
JOINED = {"fabric": "in_progress", "virtualization": "passthrough"}
HELD = GpuProcess(
    4711, 39 << 30, holder=ProcessIdentity("someone", "python train.py ...", "2026-11-20 08:00 UTC", True)
)
TAKEN = replace(card(), memory_used_bytes=39 << 30, processes=(HELD,))
ALL_FOUR = {"SLURM_JOB_GPUS": "0-3", "SLURM_STEP_GPUS": "0,1,2,3"}
ABSENT = {"fabric_manager": "absent"}


def _with_displays(*displays: bool | None) -> Facts:
    return WORKS.on(len(displays), nvml=devices(*(card(display=display) for display in displays))).facts


def _timed_out(*displays: bool | None) -> Evidence:
    line = "E0000 CUDA_ERROR_LAUNCH_TIMEOUT: the launch timed out and was terminated"
    return Evidence(_with_displays(*displays), lines=(line,))


def _bounded(evidence: Evidence) -> Evidence:
    (device,) = evidence.facts.nvml_devices
    facts = replace(evidence.facts, calls=CallFacts((), (device.pci_bus_id,)))
    return Evidence(facts, lines=evidence.lines)


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "device_files_kept_by_control_group": (
        Example(
            "as in https://github.com/NVIDIA/nvidia-container-toolkit/issues/48",
            NO_GPU.on(nvml=LOST_NVML, container=DOCKER, tried=opened(ctl="EPERM", uvm="EPERM", gpu="EPERM")),
        ),
        Example("outside a container", NO_GPU.on(nvml=LOST_NVML, tried=opened(ctl="EPERM"))),
        Example("they open", NO_GPU.on(tried=opened()), fires=False),
        Example("permissions forbid it", NO_GPU.on(tried=opened(ctl="EACCES")), fires=False),
        Example(
            "the GPUs of others alone",
            WORKS.on(tried=replace(opened(), opened=(PathAttempt(GPU_0), PathAttempt("/dev/nvidia1", "EPERM")))),
            fires=False,
        ),
        Example("TensorFlow has its GPUs all the same", WORKS.on(tried=opened(uvm="EPERM")), fires=False),
        *KEPT_THOUGH_PERMITTED,
    ),
    "device_files_kept_by_security_module": (
        Example(
            "as in https://github.com/NVIDIA/nvidia-container-toolkit/issues/210",
            NO_GPU.on(nvml=NO_PERMISSION, container=PODMAN, tried=replace(opened(**SHUT), confined=SELINUX)),
        ),
        Example(
            "as in https://github.com/redhat-et/triton-dev-containers/issues/61",
            NO_GPU.on(nvml=NO_PERMISSION, container=PODMAN, tried=opened(**SHUT)),
        ),
        Example(
            "AppArmor, outside a container",
            NO_GPU.on(nvml=NO_PERMISSION, tried=replace(opened(**SHUT), confined="snap.jupyter (enforce)")),
        ),
        Example("a control group", NO_GPU.on(tried=opened(ctl="EPERM")), fires=False),
        Example(
            "permissions forbid it",
            NO_GPU.on(
                nvml=NO_PERMISSION,
                tried=opened(**SHUT),
                device_nodes=example_nodes(CONTROL, UVM, GPU_0, mode="crw-rw----"),
            ),
            fires=False,
        ),
        Example("confined, and let in", WORKS.on(tried=replace(opened(), confined=SELINUX)), fires=False),
    ),
    "device_file_of_another_driver": (
        Example(
            "as in https://github.com/NVIDIA/nvidia-container-toolkit/issues/1934",
            Seen(cuinit=UNKNOWN).on(container=DOCKER, tried=opened(uvm="ENXIO")),
        ),
        Example("outside a container", Seen(cuinit=UNKNOWN).on(tried=opened(uvm="ENODEV"))),
        Example("another error", Seen(cuinit=UNKNOWN).on(tried=opened(uvm="EIO")), fires=False),
        Example("TensorFlow has its GPU", WORKS.on(tried=opened(uvm="ENXIO")), fires=False),
    ),
    "uvm_device_fails": (
        Example(
            "as in https://github.com/pytorch/pytorch/issues/49081",
            Seen(cuinit=UNKNOWN).on(tried=opened(uvm="EIO")),
        ),
        Example("it opens", Seen(cuinit=UNKNOWN).on(tried=opened()), fires=False),
        Example("another file", Seen(cuinit=UNKNOWN).on(tried=opened(gpu="EIO")), fires=False),
    ),
    "mps_daemon_does_not_answer": (
        Example(
            "as in https://github.com/NVIDIA/nvidia-container-toolkit/issues/714",
            Seen(cuinit=MPS).on(tried=MPS_GONE, container=DOCKER),
        ),
        Example(
            "named by a variable",
            Seen(cuinit=MPS).on(tried=MPS_GONE, environment=variables(CUDA_MPS_PIPE_DIRECTORY="/tmp/nvidia-mps")),
        ),
        Example("nothing was tried", Seen(cuinit=MPS).on()),
        Example("its server ends, by its log", Seen(cuinit=MPS).on(tried=MPS_ENDS)),
        Example(
            "it serves as many as it can", Seen(cuinit="CUDA_ERROR_MPS_MAX_CLIENTS_REACHED: 808").on(tried=MPS_ENDS)
        ),
        Example("another error", Seen(cuinit=UNKNOWN).on(tried=MPS_GONE), fires=False),
        Example("CUDA works without it", WORKS.on(tried=MPS_GONE), fires=False),
    ),
    "vgpu_type_without_cuda": (
        Example(
            "as in https://github.com/DualCoder/vgpu_unlock/issues/70",
            NO_GPU.on(nvml=devices(card("GRID T4-2B", **VGPU))),
        ),
        Example("a type for computing", NO_GPU.on(nvml=devices(card("GRID T4-2C", **VGPU))), fires=False),
        Example("a card whose name ends so", NO_GPU.on(nvml=devices(card("NVIDIA RTX-4000A"))), fires=False),
    ),
    "vgpu_host": (
        Example(
            "as in https://github.com/DualCoder/vgpu_unlock/issues/10",
            HIDDEN.on(nvml=devices(card(virtualization="host_vgpu")), driver=driver(libcuda=None)),
        ),
        Example("a GPU passed through", HIDDEN.on(nvml=devices(card(virtualization="passthrough"))), fires=False),
        Example("CUDA works", WORKS.on(nvml=devices(card(virtualization="host_vgpu"))), fires=False),
    ),
    "confidential_gpus_not_ready": (
        Example(
            "as in https://github.com/NVIDIA/nvtrust/issues/56",
            Seen(cuinit=NOT_READY).on(nvml=devices(card("NVIDIA H100 PCIe"), **CC), driver=driver(**ABSENT)),
        ),
        Example("they are ready", Seen(cuinit=NOT_READY).on(nvml=devices(card(), confidential=True)), fires=False),
        Example("CUDA works", WORKS.on(nvml=devices(card(), **CC)), fires=False),
    ),
    "fabric_not_ready": (
        Example(
            "as in https://github.com/huggingface/huggingface_hub/issues/4134",
            Seen(cuinit=NOT_READY).on(nvml=devices(card("NVIDIA H200", **JOINED)), driver=driver(**ABSENT)),
        ),
        Example(
            "Fabric Manager runs",
            Seen(cuinit=NOT_READY).on(
                nvml=devices(card(fabric="completed", fabric_error=999)), driver=driver(fabric_manager="running")
            ),
        ),
        Example(
            "it is to be started here",
            Seen(cuinit=NOT_READY).on(nvml=devices(card(**JOINED)), driver=driver(fabric_manager="stopped")),
            fires=False,
        ),
        Example(
            "it is to be installed here",
            Seen(cuinit=NOT_READY).on(nvml=devices(card(fabric="not_started")), driver=driver(**ABSENT)),
            fires=False,
        ),
        Example("CUDA works", WORKS.on(nvml=devices(card(**JOINED)), driver=driver(**ABSENT)), fires=False),
    ),
    "kernel_module_of_wrong_kind": (
        Example(
            "as in https://github.com/Bad3r/nixos/issues/362",
            NO_GPU.on(nvml=EMPTY, driver=driver(open_module=False), device_nodes=bus("0x2b85")),
        ),
        Example(
            "as in https://github.com/NVIDIA/open-gpu-kernel-modules/issues/322",
            NO_GPU.on(
                nvml=EMPTY,
                driver=driver(
                    open_module=True,
                    kernel_log=("NVRM: installed in this system is not supported by open", "NVRM: nvidia.ko because"),
                ),
                device_nodes=bus("0x1db5"),
            ),
        ),
        Example(
            "one of two GPUs",
            WORKS.on(2, nvml=devices(card()), driver=driver(open_module=True), device_nodes=bus("0x20b0", "0x1db5")),
        ),
        Example(
            "the right one", NO_GPU.on(nvml=EMPTY, driver=driver(open_module=True), device_nodes=bus("0x2b85")), False
        ),
        Example(
            "either will do", NO_GPU.on(nvml=EMPTY, driver=driver(open_module=True), device_nodes=bus("0x20b0")), False
        ),
        Example(
            "it drives the GPU, whatever its number",
            WORKS.on(driver=driver(open_module=False), device_nodes=bus("0x2b85")),
            fires=False,
        ),
        Example(
            "the GPU is kept for a virtual machine",
            WORKS.on(nvml=EMPTY, driver=driver(open_module=True), device_nodes=bus("0x1db5", bound={PCI: "vfio-pci"})),
            fires=False,
        ),
    ),
    "no_memory_region": (
        Example(
            "as in https://github.com/NVIDIA/gpu-operator/issues/492",
            NO_GPU.on(
                nvml=EMPTY,
                driver=driver(kernel_log=("NVRM: BAR1 is 0M @ 0x0 (PCI:0000:01:00.0)",)),
                device_nodes=bus("0x20b0", without_memory_region=(PCI,)),
            ),
        ),
        Example("the regions are there", NO_GPU.on(nvml=EMPTY, device_nodes=bus("0x20b0")), fires=False),
        Example("NVML counts it", WORKS.on(device_nodes=bus("0x20b0", without_memory_region=(PCI,))), fires=False),
    ),
    "ray_gave_no_gpu": (
        Example(
            "as in https://github.com/verl-project/verl/pull/590",
            NO_GPU.on(2, environment=variables(CUDA_VISIBLE_DEVICES="", RAY_JOB_ID="01000000")),
        ),
        Example("without Ray", NO_GPU.on(2, environment=variables(CUDA_VISIBLE_DEVICES="")), fires=False),
        Example(
            "Ray gave one",
            WORKS.on(2, environment=variables(CUDA_VISIBLE_DEVICES="1", RAY_JOB_ID="01000000")),
            fires=False,
        ),
    ),
    "vgpu_without_licence": (
        Example(
            "as in https://github.com/DDMAL/Rodan/issues/1332",
            Seen(raised=BUSY).on(nvml=devices(card("GRID V100D-8C", licensed=False, **VGPU))),
        ),
        Example("it works for a while", WORKS.on(nvml=devices(card("GRID V100D-8C", licensed=False, **VGPU)))),
        Example("licensed", Seen(raised=BUSY).on(nvml=devices(card(licensed=True, **VGPU))), fires=False),
        Example("no vGPU", WORKS.on(nvml=devices(card(licensed=False))), fires=False),
    ),
    "memory_repair_pending": (
        Example(
            "as in https://github.com/leptonai/gpud/pull/80",
            Seen(raised=ECC).on(nvml=devices(card(remapped_rows=4, remap_pending=True, uncorrected_errors=1))),
        ),
        Example("before Ampere", WORKS.on(nvml=devices(card("Tesla V100", retired_pages=3, retirement_pending=True)))),
        Example("no spare row is left", WORKS.on(2, nvml=devices(card(), card(remap_failed=True)))),
        Example(
            "repaired", WORKS.on(nvml=devices(card(remapped_rows=4, retired_pages=3, remap_pending=False))), fires=False
        ),
        Example("corrected", WORKS.on(nvml=devices(card(corrected_errors=9000, uncorrected_errors=1))), fires=False),
    ),
    "gpu_memory_not_reported": (
        Example(
            "by NVML 999",
            WORKS.on(2, nvml=devices(card(), replace(card(), memory_total_bytes=0, memory_error="Unknown Error"))),
        ),
        Example(
            "a GPU that shares the host's memory",
            WORKS.on(nvml=devices(replace(card(), memory_total_bytes=0))),
            fires=False,
        ),
    ),
    "temporary_folder_not_writable": (
        Example(
            "as in https://github.com/triton-inference-server/server/issues/4739",
            WORKS.on(tried=written("temporary files", "/tmp", "EROFS")),
        ),
        Example("full", WORKS.on(tried=written("temporary files", "/scratch", "ENOSPC", 0))),
        Example("nearly full", WORKS.on(tried=written("temporary files", "/scratch", None, 1 << 20))),
        Example("files are limited", WORKS.on(tried=written("temporary files", "/tmp", "EFBIG"))),
        Example("it can be written", WORKS.on(tried=written("temporary files", "/tmp", None)), fires=False),
        Example("another folder", WORKS.on(tried=written("CUDA cache", "/tmp", "EROFS")), fires=False),
    ),
    "cuda_cache_not_kept": (
        Example(
            "as in https://github.com/dl-container-registry/furnari-flow/issues/3",
            compiled(written("CUDA cache", "/root/.nv/ComputeCache", "EROFS")),
        ),
        Example("switched off", compiled(TriedFacts(), CUDA_CACHE_DISABLE="1")),
        Example("kept", compiled(written("CUDA cache", "/root/.nv/ComputeCache", None)), fires=False),
        Example("nothing is compiled", WORKS.on(tried=written("CUDA cache", "/root/.nv", "EROFS")), fires=False),
    ),
    "narrow_pcie_link": (
        Example(
            "as in https://github.com/noonghunna/club-3090/pull/895",
            WORKS.on(nvml=devices(card(pcie_width=1, pcie_generation=3))),
        ),
        Example(
            "as in https://github.com/local-inference-lab/rtx6kpro/pull/88",
            WORKS.on(nvml=devices(card(pcie_generation=1, pcie_generation_max=5))),
        ),
        Example(
            "an idle GPU",
            WORKS.on(nvml=devices(card(pcie_generation=1, performance_state=8, slowed_by=("idle",)))),
            fires=False,
        ),
        Example("eight lanes", WORKS.on(nvml=devices(card(pcie_width=8))), fires=False),
        Example("a box of its own", WORKS.on(nvml=devices(card(pcie_width=4, pcie_generation=3))), fires=False),
        Example(
            "of a virtual machine", WORKS.on(nvml=devices(card(pcie_width=1, virtualization="passthrough"))), False
        ),
        Example("a card with one lane", WORKS.on(nvml=devices(card(pcie_width=1, pcie_width_max=1))), fires=False),
    ),
    "hardware_slows_gpu": (
        Example(
            "as in https://github.com/mlfoundations/open_clip/issues/703",
            WORKS.on(nvml=devices(card(slowed_by=("hardware", "power_brake"), clock_mhz=210))),
        ),
        Example("too hot", WORKS.on(nvml=devices(card(slowed_by=("hardware", "hot"))))),
        Example("within its power limit", WORKS.on(nvml=devices(card(slowed_by=("power_cap", "warm")))), fires=False),
        Example(
            "a notebook on its battery",
            WORKS.on(nvml=devices(card("NVIDIA GeForce RTX 4070 Laptop GPU", slowed_by=("power_brake",)))),
            fires=False,
        ),
        Example(
            "by the driver, for heat, as in https://github.com/NVIDIA/nvidia-settings/issues/67",
            WORKS.on(
                nvml=devices(card("NVIDIA GeForce MX330", slowed_by=("warm",), clock_mhz=139, clock_max_mhz=1911))
            ),
        ),
        Example("warm, at nearly all of its clock", WORKS.on(nvml=devices(card(slowed_by=("warm",)))), fires=False),
        Example(
            "a notebook in state 8",
            WORKS.on(
                nvml=devices(card("NVIDIA GeForce MX330", slowed_by=("warm",), clock_mhz=139, performance_state=8))
            ),
            fires=False,
        ),
        Example(
            "a T4 at its own limit of power",
            WORKS.on(nvml=devices(card("Tesla T4", slowed_by=("power_cap",), clock_mhz=585, clock_max_mhz=1590))),
            fires=False,
        ),
        Example(
            "a limit of power",
            WORKS.on(
                nvml=devices(
                    card(slowed_by=("power_cap",), clock_mhz=400, power_limit_watts=100, power_default_watts=400)
                )
            ),
        ),
        Example(
            "a little less power by choice",
            WORKS.on(
                nvml=devices(
                    card(slowed_by=("power_cap",), clock_mhz=600, power_limit_watts=250, power_default_watts=400)
                )
            ),
            fires=False,
        ),
        Example(
            "idle",
            WORKS.on(
                nvml=devices(
                    card(
                        slowed_by=("idle", "power_cap"),
                        clock_mhz=210,
                        performance_state=8,
                        power_limit_watts=100,
                        power_default_watts=400,
                    )
                )
            ),
            fires=False,
        ),
        Example("nothing slows it", WORKS.on(nvml=devices(card(clock_mhz=600))), fires=False),
    ),
    "kernel_time_limit": (
        Example("as in https://github.com/numba/numba/issues/9381", _timed_out(True)),
        Example("the other GPU has no display", _timed_out(True, False)),
        Example("none has a display", _timed_out(False), fires=False),
        Example("NVML knows no display, and CUDA a time limit", _bounded(_timed_out(False))),
        Example("not known", _timed_out(None), fires=False),
        Example("nothing was ended", Evidence(_with_displays(True)), fires=False),
    ),
    "gpu_differs_from_twins": (
        Example(
            "as in https://github.com/Azure/azhpc-diagnostics/issues/73",
            WORKS.on(2, nvml=devices(card(nvlinks=(True,) * 6), card(nvlinks=(True, True, True, False, True, False)))),
        ),
        Example(
            "as in https://github.com/NVIDIA/nccl/issues/1608: the same on every card",
            WORKS.on(2, nvml=devices(*[card("NVIDIA H100 NVL", nvlinks=(True,) * 12 + (False,) * 6)] * 2)),
            fires=False,
        ),
        Example(
            "a card without a bridge beside two with one",
            WORKS.on(3, nvml=devices(*[card(nvlinks=(True,) * 4)] * 2, card(nvlinks=(False,) * 4))),
            fires=False,
        ),
    ),
    "mask_outside_the_allocation": (
        Example(
            "as in https://github.com/ai-dynamo/nixl/pull/2007",
            WORKS.on(4, container=JOB, environment=variables(CUDA_VISIBLE_DEVICES="0", **SLURM, **ALLOCATED)),
        ),
        Example("no mask", WORKS.on(4, container=JOB, environment=variables(**SLURM, SLURM_JOB_GPUS="0-1"))),
        Example(
            "the mask of Slurm",
            WORKS.on(4, container=JOB, environment=variables(CUDA_VISIBLE_DEVICES="2,3", **SLURM, **ALLOCATED)),
            fires=False,
        ),
        Example(
            "the others are kept away",
            WORKS.on(2, container=JOB, environment=variables(CUDA_VISIBLE_DEVICES="0,1", **SLURM, **ALLOCATED)),
            fires=False,
        ),
        Example("no job", WORKS.on(4, environment=variables(CUDA_VISIBLE_DEVICES="0", **ALLOCATED)), fires=False),
    ),
    "ranks_share_gpus": (
        Example(
            "as in https://github.com/horovod/horovod/issues/639",
            Seen(raised=FULL).on(
                2,
                nvml=devices(TAKEN, TAKEN),
                environment=variables(OMPI_COMM_WORLD_LOCAL_SIZE="2", OMPI_COMM_WORLD_LOCAL_RANK="1"),
            ),
        ),
        Example(
            "workers of xdist with one mask",
            Seen(raised=FULL).on(
                4,
                nvml=devices(TAKEN, card(), card(), card()),
                environment=variables(
                    PYTEST_XDIST_WORKER="gw2", PYTEST_XDIST_WORKER_COUNT="4", CUDA_VISIBLE_DEVICES="0"
                ),
            ),
        ),
        Example(
            "each has its own",
            Seen(raised=FULL).on(
                2,
                nvml=devices(TAKEN, card()),
                environment=variables(LOCAL_WORLD_SIZE="2", LOCAL_RANK="1", CUDA_VISIBLE_DEVICES="1"),
            ),
            fires=False,
        ),
        Example("one process", Seen(raised=FULL).on(nvml=devices(TAKEN)), fires=False),
        Example("there is memory", WORKS.on(2, environment=variables(LOCAL_WORLD_SIZE="2")), fires=False),
    ),
    "part_of_allocation_used": (
        Example(
            "the script sets the mask",
            WORKS.on(4, container=JOB, environment=variables(CUDA_VISIBLE_DEVICES="0", **SLURM, **ALL_FOUR)),
        ),
        Example(
            "on a node without control groups",
            WORKS.on(4, container=JOB, environment=variables(CUDA_VISIBLE_DEVICES="2", **SLURM, **ALLOCATED)),
        ),
        Example(
            "four tasks with one GPU each",
            WORKS.on(
                4,
                container=JOB,
                environment=variables(CUDA_VISIBLE_DEVICES="0", SLURM_STEP_TASKS_PER_NODE="4", **SLURM, **ALL_FOUR),
            ),
            fires=False,
        ),
        Example(
            "another process of the script is on the other",
            WORKS.on(
                2,
                nvml=devices(card(), TAKEN),
                container=JOB,
                environment=variables(CUDA_VISIBLE_DEVICES="0", SLURM_JOB_GPUS="0,1", **SLURM),
            ),
            fires=False,
        ),
        Example(
            "all of them",
            WORKS.on(4, container=JOB, environment=variables(CUDA_VISIBLE_DEVICES="0,1,2,3", **SLURM, **ALL_FOUR)),
            fires=False,
        ),
        Example(
            "instances of MIG, which are numbered separately",
            WORKS.on(
                2,
                nvml=devices(*[replace(card(), mig_mode="enabled", mig_uuids=("MIG-0", "MIG-1"))] * 2),
                container=JOB,
                environment=variables(CUDA_VISIBLE_DEVICES="0", SLURM_JOB_GPUS="0,1", **SLURM),
            ),
            fires=False,
        ),
        Example("no job", WORKS.on(4, environment=variables(CUDA_VISIBLE_DEVICES="0")), fires=False),
    ),
    "more_ranks_than_gpus": (
        Example(
            "as in https://github.com/horovod/horovod/issues/1755",
            WORKS.on(1, environment=variables(OMPI_COMM_WORLD_LOCAL_SIZE="2", OMPI_COMM_WORLD_LOCAL_RANK="0")),
        ),
        Example(
            "as in https://github.com/facebookincubator/submitit/issues/1704",
            WORKS.on(1, environment=variables(SLURM_STEP_TASKS_PER_NODE="4(x2)", SLURM_GPUS_ON_NODE="1")),
        ),
        Example(
            "on the CPU alone",
            HIDDEN.on(1, environment=variables(OMPI_COMM_WORLD_LOCAL_SIZE="8", CUDA_VISIBLE_DEVICES="-1")),
            fires=False,
        ),
        Example("as many", WORKS.on(2, environment=variables(OMPI_COMM_WORLD_LOCAL_SIZE="2")), fires=False),
        Example(
            "each task has its own",
            WORKS.on(
                1,
                environment=variables(SLURM_STEP_TASKS_PER_NODE="4", SLURM_GPUS_ON_NODE="1", SLURM_GPUS_PER_TASK="1"),
            ),
            fires=False,
        ),
        Example(
            "they share on purpose",
            WORKS.on(1, environment=variables(LOCAL_WORLD_SIZE="2", TF_FORCE_GPU_ALLOW_GROWTH="true")),
            fires=False,
        ),
    ),
    "container_sees_more_than_given": (
        Example(
            "as in https://github.com/kubernetes/kubernetes/issues/81256",
            WORKS.on(2, container=POD, environment=variables(NVIDIA_VISIBLE_DEVICES=example_gpu(1).uuid)),
        ),
        Example(
            "as in https://github.com/NVIDIA/k8s-device-plugin/issues/1294",
            WORKS.on(2, container=POD, environment=variables(NVIDIA_VISIBLE_DEVICES="1")),
        ),
        Example(
            "what it was given", WORKS.on(1, container=POD, environment=variables(NVIDIA_VISIBLE_DEVICES="3")), False
        ),
        Example("all", WORKS.on(2, container=DOCKER, environment=variables(NVIDIA_VISIBLE_DEVICES="all")), fires=False),
        Example(
            "the mask hides the others",
            WORKS.on(
                2,
                container=POD,
                environment=variables(NVIDIA_VISIBLE_DEVICES=example_gpu(1).uuid, CUDA_VISIBLE_DEVICES="1"),
            ),
            fires=False,
        ),
        Example("no container", WORKS.on(2, environment=variables(NVIDIA_VISIBLE_DEVICES="1")), fires=False),
    ),
    "gpu_switched_off": (
        Example(
            "as in https://github.com/linux-surface/linux-surface/issues/376",
            NO_GPU.on(nvml=EMPTY, device_nodes=bus("0x1c20", asleep=(PCI,))),
        ),
        Example("asleep, and it comes back", WORKS.on(device_nodes=bus("0x1c20", asleep=(PCI,))), fires=False),
        Example("awake", NO_GPU.on(nvml=EMPTY, device_nodes=bus("0x1c20")), fires=False),
    ),
    "installation_interrupted": (
        Example(
            "as in https://github.com/NVIDIA/Stable-Diffusion-WebUI-TensorRT/issues/12",
            HIDDEN.on(tensorflow=tensorflow(LEFT), libraries=libraries(incomplete=GONE, libraries=(NO_CUDNN,))),
        ),
        Example(
            "of a library that TensorFlow does not open",
            WORKS.on(tensorflow=tensorflow(LEFT), libraries=libraries(incomplete=GONE)),
        ),
        Example("nothing lacks", WORKS.on(tensorflow=tensorflow(LEFT)), fires=False),
        Example(
            "what is left of another package",
            HIDDEN.on(tensorflow=tensorflow("~umpy"), libraries=libraries(incomplete=GONE)),
            fires=False,
        ),
        Example("removed by hand", HIDDEN.on(libraries=libraries(incomplete=GONE)), fires=False),
    ),
}
