"""The hand-written layouts and numbers, asserted against the headers in the installed wheel."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from .on_machine import ROOT

SOURCES = ROOT / "gpudiag/simulator/src"

# Ours -> theirs, with the fields that the simulation fills or reads.
STRUCTURES = {
    "struct device_properties": (
        "struct cudaDeviceProp",
        {
            "name": "name",
            "uuid": "uuid",
            "total_memory": "totalGlobalMem",
            "shared_memory_per_block": "sharedMemPerBlock",
            "registers_per_block": "regsPerBlock",
            "warp_size": "warpSize",
            "memory_pitch": "memPitch",
            "max_threads_per_block": "maxThreadsPerBlock",
            "max_threads_dim": "maxThreadsDim",
            "max_grid_size": "maxGridSize",
            "clock_khz": "clockRate",
            "constant_memory": "totalConstMem",
            "major": "major",
            "minor": "minor",
            "texture_alignment": "textureAlignment",
            "device_overlap": "deviceOverlap",
            "multiprocessors": "multiProcessorCount",
            "can_map_host_memory": "canMapHostMemory",
            "compute_mode": "computeMode",
            "surface_alignment": "surfaceAlignment",
            "concurrent_kernels": "concurrentKernels",
            "pci_bus": "pciBusID",
            "pci_device": "pciDeviceID",
            "pci_domain": "pciDomainID",
            "async_engines": "asyncEngineCount",
            "unified_addressing": "unifiedAddressing",
            "memory_clock_khz": "memoryClockRate",
            "memory_bus_width": "memoryBusWidth",
            "l2_cache_bytes": "l2CacheSize",
            "max_threads_per_multiprocessor": "maxThreadsPerMultiProcessor",
            "stream_priorities": "streamPrioritiesSupported",
            "shared_memory_per_multiprocessor": "sharedMemPerMultiprocessor",
            "registers_per_multiprocessor": "regsPerMultiprocessor",
            "managed_memory": "managedMemory",
            "max_blocks_per_multiprocessor": "maxBlocksPerMultiProcessor",
            "memory_pools": "memoryPoolsSupported",
        },
    ),
    "struct pointer_attributes": (
        "struct cudaPointerAttributes",
        {
            "type": "type",
            "device": "device",
            "device_pointer": "devicePointer",
            "host_pointer": "hostPointer",
        },
    ),
    "struct memory_location": ("CUmemLocation", {"type": "type", "id": "id"}),
    "struct pool_properties": (
        "CUmemPoolProps",
        {"allocation_type": "allocType", "handle_types": "handleTypes", "location": "location"},
    ),
    "struct nvml_pci": (
        "nvmlPciInfo_t",
        {
            "legacy_id": "busIdLegacy",
            "domain": "domain",
            "bus": "bus",
            "device": "device",
            "device_id": "pciDeviceId",
            "subsystem_id": "pciSubSystemId",
            "id": "busId",
        },
    ),
    "struct nvml_memory": ("nvmlMemory_t", {"total": "total", "free": "free", "used": "used"}),
    "struct nvml_memory_v2": (
        "nvmlMemory_v2_t",
        {
            "version": "version",
            "total": "total",
            "reserved": "reserved",
            "free": "free",
            "used": "used",
        },
    ),
    "struct nvml_fabric": (
        "nvmlGpuFabricInfo_t",
        {"cluster": "clusterUuid", "status": "status", "clique": "cliqueId", "state": "state"},
    ),
    "struct nvml_confidential": (
        "nvmlConfComputeSystemState_t",
        {"environment": "environment", "feature": "ccFeature", "development": "devToolsMode"},
    ),
    "struct nvml_licence_expiry": (
        "nvmlGridLicenseExpiry_t",
        {
            "year": "year",
            "month": "month",
            "day": "day",
            "hour": "hour",
            "minute": "min",
            "second": "sec",
            "status": "status",
        },
    ),
    "struct nvml_licence": (
        "nvmlGridLicensableFeature_t",
        {
            "code": "featureCode",
            "state": "featureState",
            "info": "licenseInfo",
            "product": "productName",
            "enabled": "featureEnabled",
            "expiry": "licenseExpiry",
        },
    ),
    "struct nvml_licences": (
        "nvmlGridLicensableFeatures_t",
        {
            "supported": "isGridLicenseSupported",
            "count": "licensableFeaturesCount",
            "features": "gridLicensableFeatures",
        },
    ),
    "struct nvml_process": (
        "nvmlProcessInfo_t",
        {
            "pid": "pid",
            "bytes": "usedGpuMemory",
            "gpu_instance": "gpuInstanceId",
            "compute_instance": "computeInstanceId",
        },
    ),
}
PARTIAL = {"struct pool_properties"}  # the head of a longer structure


def assertions() -> list[str]:
    lines = []
    for ours, (theirs, members) in STRUCTURES.items():
        if ours not in PARTIAL:
            lines.append(f"sizeof({ours}) == sizeof({theirs})")
        for mine, other in members.items():
            lines.append(f"offsetof({ours}, {mine}) == offsetof({theirs}, {other})")
            lines.append(f"sizeof((({ours} *)0)->{mine}) == sizeof((({theirs} *)0)->{other})")
    constants = re.findall(r"^    ([A-Za-z_0-9]+) = (\d+),", (SOURCES / "constants.h").read_text(), re.MULTILINE)
    assert len(constants) > 60
    lines += [f"{name} == {value}" for name, value in [*constants, ("cudaErrorInsufficientDriver", 35)]]
    errors = re.findall(r"^ERROR\((\d+), (\w+),", (SOURCES / "errors.inc").read_text(), re.MULTILINE)
    assert len(errors) > 90
    lines += [f"{name} == {code}" for code, name in errors]
    lines += ["sizeof(struct cudaFuncAttributes) == 144", "sizeof(CUuuid) == 16"]
    return lines


def tensorflow_directory() -> Path:
    spec = importlib.util.find_spec("tensorflow")
    assert spec
    assert spec.origin
    return Path(spec.origin).parent


def header_directories() -> list[Path]:
    include = tensorflow_directory() / "include/third_party/gpus/cuda"
    return [include / "include", include / "nvml/include"]


def test_layouts_agree_with_the_headers_of_the_wheel(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    directories = header_directories()
    if compiler is None or not all(directory.is_dir() for directory in directories):
        pytest.skip("needs a C compiler, and a TensorFlow wheel with CUDA headers")
    source = tmp_path / "layouts.c"
    checks = assertions()
    source.write_text(
        "#include <stddef.h>\n#include <cuda.h>\n#include <cuda_runtime_api.h>\n#include <nvml.h>\n"
        f'#include "{SOURCES}/layouts.h"\n' + "".join(f'_Static_assert({check}, "{check}");\n' for check in checks)
    )
    command = [compiler, "-std=c11", "-fsyntax-only", *(f"-I{d}" for d in directories), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert len(checks) > 250


def test_every_name_tensorflow_may_ask_for_is_there() -> None:
    """The committed list against the installed wheel, and each name against the built library."""
    if shutil.which("nm") is None:
        pytest.skip("needs nm (binutils)")
    script = ROOT / "scripts/refresh_cuda_names.py"
    spec = importlib.util.spec_from_file_location("refresh_cuda_names", script)
    assert spec
    assert spec.loader
    refresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(refresh)
    wanted = refresh.exported_names(tensorflow_directory() / "libtensorflow_framework.so.2")
    listed = set((SOURCES / "cuda_names.inc").read_text().splitlines())
    assert {refresh.entry(name) for name in wanted} <= listed, f"run {script.name}"

    from gpudiag.simulator import library_directory

    built = refresh.exported_names(library_directory() / "libgpudiag_cuda.so")
    assert wanted <= built
    assert len(wanted) > 3000
