"""As many GPUs are in scope as `--require-gpus` demands.

What it does
    Counts the GPUs that NVML reports and that `CUDA_VISIBLE_DEVICES` lets through, and compares the count with
    `--require-gpus`.
Why it matters
    A machine that lost its GPUs runs TensorFlow on the CPU without an error. A deployment or a test run that needs
    GPUs must fail there, not pass slowly.
What a failure means
    `not_known`: NVML did not answer, or with an error, so nobody knows how many GPUs there are.
    `too_few`: fewer GPUs are in scope than were demanded; the message says where they were looked for.
What to do
    Where NVML does not answer, see the findings of `host.driver`. Where `CUDA_VISIBLE_DEVICES` hides GPUs, unset or
    correct it. In a container, pass the GPUs in: `docker run --gpus all`, or `nvidia.com/gpu` limits in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.hostfacts import (
    NVML_ABSENT,
    DeviceNodeFacts,
    DriverFacts,
    EnvironmentFacts,
    Facts,
    NvmlFacts,
    Unknown,
)
from gpudiag.missing import lost_gpus
from gpudiag.model import SIMULATED, Finding, Limits, Severity
from gpudiag.probe import Kind, Needs, Probe
from gpudiag.scope import gpus_in_scope

PROBE = Probe(needs=Needs(tensorflow=False), families=("nvml", "environment"), quick=True)

TOO_FEW = Kind(
    "too_few",
    Severity.FAIL,
    "{found} GPU(s) in scope, {required} required. Looked for in: NVML ({nvml}); /dev/nvidia* ({nodes}); "
    "/proc/driver/nvidia ({module}); PCI bus ({pci}); CUDA_VISIBLE_DEVICES ({mask})",
    "Find the first place in that list where the GPUs are lacking and cure that; "
    "'gpudiag explain host.gpus' says how. With fewer on purpose: require no more than there are.",
)
NOT_KNOWN = Kind(
    "not_known",
    Severity.WARNING,
    "how many GPUs there are is not known: {reason}",
    "Make `nvidia-smi` answer first; see the findings of host.driver.",
)


def judge(facts: Facts, limits: Limits) -> Iterator[Finding]:
    nvml = facts.nvml
    if isinstance(nvml, Unknown):
        yield NOT_KNOWN.found(reason=nvml.reason)
    elif nvml.error not in NVML_ABSENT and (lost_gpus(facts) or not nvml.undescribed):
        yield NOT_KNOWN.found(reason=f"NVML answers {nvml.error!r}")
    found = sum(limits.count_simulated or not gpu.simulated for gpu in gpus_in_scope(facts))
    if found < limits.require_gpus:
        yield TOO_FEW.found(
            found=found,
            required=limits.require_gpus,
            nvml=_nvml(facts.nvml, count_simulated=limits.count_simulated),
            nodes=_nodes(facts.device_nodes),
            module=_module(facts.driver),
            pci=_pci(facts.device_nodes),
            mask=_mask(facts.environment),
        )


def figure(facts: Facts) -> str:
    if isinstance(facts.nvml, Unknown):
        return "not known"
    names = sorted({gpu.name for gpu in gpus_in_scope(facts)})
    total = len(facts.nvml.devices)
    if not total:
        return "no GPU" if facts.nvml.error in NVML_ABSENT else "not known"
    return ": ".join([f"{len(gpus_in_scope(facts))} of {total} GPUs in scope", *filter(None, [", ".join(names)])])


def _nvml(nvml: NvmlFacts | Unknown, *, count_simulated: bool) -> str:
    if isinstance(nvml, Unknown):
        return nvml.reason
    count = f"{len(nvml.devices)} GPU(s)"
    if not count_simulated and any(device.name.startswith(SIMULATED) for device in nvml.devices):
        count += ", simulated ones, which count only where the simulation is asked for on the same command line"
    return count if nvml.error is None else f"{count}, {nvml.error}"


def _nodes(nodes: DeviceNodeFacts | Unknown) -> str:
    if isinstance(nodes, Unknown):
        return nodes.reason
    return " ".join(node.path for node in nodes.nodes) or "none"


def _module(driver: DriverFacts | Unknown) -> str:
    if isinstance(driver, Unknown):
        return driver.reason
    return driver.kernel_module or "not there"


def _pci(nodes: DeviceNodeFacts | Unknown) -> str:
    if isinstance(nodes, Unknown):
        return nodes.reason
    return " ".join(nodes.pci_gpus) or "no NVIDIA GPU"


def _mask(environment: EnvironmentFacts | Unknown) -> str:
    if isinstance(environment, Unknown):
        return environment.reason
    value = environment.variables.get("CUDA_VISIBLE_DEVICES")
    return "not set" if value is None else f"'{value}'"
