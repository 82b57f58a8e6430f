"""Machines for examples."""

from __future__ import annotations

from typing import Any

import msgspec

from examples.facts import example, example_gpu, example_with_gpus
from gpudiag.cause import Evidence
from gpudiag.knowledge.log_lines import Line
from gpudiag.model.facts import (
    ContainerFacts,
    DeviceNode,
    DeviceNodeFacts,
    DriverFacts,
    FactFamily,
    Facts,
    NvmlDevice,
    NvmlFacts,
    SystemFacts,
)
from gpudiag.model.report import Finding, Judged, Row
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.probe import Reading
from gpudiag.probes.discovery import trace

PCI = "0000:01:00.0"
MODULE = "535.104.05"
LIBCUDA = f"/usr/lib/x86_64-linux-gnu/libcuda.so.{MODULE}"
NO_DEVICE = "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"
DOCKER = ContainerFacts("docker", ("/.dockerenv",), False, None)


def example_facts(count: int = 1, os: str = "Ubuntu 22.04.3 LTS", **families: FactFamily) -> Facts:
    """Return the facts of an ordinary machine that runs this distribution."""
    system = example().system
    assert isinstance(system, SystemFacts)
    return example_with_gpus(count, **{"system": msgspec.structs.replace(system, os=os), **families})


def example_gpus(*gpus: NvmlDevice) -> NvmlFacts:
    """Return what NVML says of ``gpus``, each at a place of its own."""
    ordinary = map(example_gpu, range(len(gpus)))
    devices = tuple(
        msgspec.structs.replace(gpu, index=place.index, uuid=place.uuid, pci_bus_id=place.pci_bus_id)
        for gpu, place in zip(gpus, ordinary, strict=True)
    )
    return NvmlFacts(None, MODULE, "12.2", devices)


def example_driver(module: str | None = MODULE, libcuda: str | None = LIBCUDA, **changes: Any) -> DriverFacts:
    error = None if libcuda else "libcuda.so.1: cannot open shared object file: No such file or directory"
    facts = DriverFacts(module, libcuda, error, "12.2" if libcuda else None)
    return msgspec.structs.replace(facts, **changes)


def example_nodes(*paths: str, mode: str = "crw-rw-rw-", group: str = "root", **changes: Any) -> DeviceNodeFacts:
    """Return device files of one GPU that is on the PCI bus; this process may open them if ``mode`` lets others."""
    others = mode.endswith("rw-")
    nodes = tuple(DeviceNode(path, mode, others, others, group) for path in paths)
    return msgspec.structs.replace(DeviceNodeFacts(nodes, (PCI,)), **changes)


def example_evidence(
    facts: Facts,
    *rows: Row,
    cuinit: str = "",
    log: tuple[str, ...] = (),
    listed: int = 0,
    lines: tuple[str, ...] = (),
) -> Evidence:
    """Return what ``gpudiag check`` gathers on a machine of these facts, ``rows`` besides.

    ``cuinit`` is what the driver says where ``cuInit`` fails; ``log`` and ``listed`` are of ``discovery.trace``.
    """
    failure = (f"failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: {cuinit}",) if cuinit else ()
    said = tuple(Line("E", "cuda_platform.cc", text) for text in (*failure, *log))
    traced = example_row(trace, trace.Reading(listed, None, (), {}, said), facts)
    return Evidence(facts, gpus_in_scope(facts), (traced, *rows), lines)


def example_row(probe: Any, reading: Reading, facts: Facts) -> Row:
    """Return the row that this reading of the module ``probe``, of the area discovery, comes to."""
    found = tuple(finding for finding in probe.judge(reading, facts) if isinstance(finding, Finding))
    name = f"discovery.{probe.__name__.rpartition('.')[2]}"
    return Row(name, (), Judged(found), 0.0, reading)
