"""Examples of causes: GPUs of a generation that the wheel or cuDNN has no code for."""

from __future__ import annotations

from msgspec.structs import replace

from examples import Example
from examples.facts import example, example_gpu
from examples.machines import example_evidence, example_facts, example_gpus, example_row
from gpudiag.cause import Evidence
from gpudiag.model.facts import Distribution, EnvironmentFacts, TensorflowFacts
from gpudiag.model.report import Broken, NoReading, Row
from gpudiag.probe import Raised
from gpudiag.probes.discovery import device_details, logical_devices, physical_devices

_LINE = (
    "TensorFlow was not built with CUDA kernel binaries compatible with compute capability 12.0a. CUDA kernels will be "
    "jit-compiled from PTX, which could take 30 minutes or longer."
)
_INVALID_PTX = "'cuModuleLoadData(&module, data)' failed with 'CUDA_ERROR_INVALID_PTX'"
_OLD_LINE = (
    "Ignoring visible gpu device (device: 0, name: NVIDIA GeForce GTX 970, pci bus id: 0000:01:00.0, compute "
    "capability: 5.2) with Cuda compute capability 5.2. The minimum required Cuda capability is 6.0."
)
_KERNEL_RAISED = Raised("InternalError", "'cuLaunchKernel' failed with 'CUDA_ERROR_INVALID_HANDLE'")


def _machine(
    *capabilities: str,
    compiled: bool = False,
    cudnn: str | None = None,
    by_pip: str = "",
    outcome: Broken | None = None,
    kernels_fail: bool = False,
    log: tuple[str, ...] = (),
    lines: tuple[str, ...] = (),
    **variables: str,
) -> Evidence:
    """Return the evidence of a machine with GPUs of these compute capabilities."""
    tensorflow = example().tensorflow
    assert isinstance(tensorflow, TensorflowFacts)
    found = (Distribution("nvidia-cudnn-cu12", by_pip, "/venv/lib"),) if by_pip else ()
    facts = example_facts(
        len(capabilities),
        nvml=example_gpus(*(replace(example_gpu(), compute_capability=capability) for capability in capabilities)),
        tensorflow=replace(tensorflow, companions=found),
        environment=EnvironmentFacts(variables),
    )
    given = tuple(device.pci_bus_id for device in facts.nvml_devices)
    told = tuple(device_details.Details("NVIDIA GPU", capability) for capability in capabilities)
    counts = (len(given), len(given))
    rows = [
        example_row(device_details, device_details.Reading(given, told, capabilities if compiled else ()), facts),
        example_row(physical_devices, physical_devices.Reading(*counts, None, {}, (), cudnn), facts),
    ]
    if outcome is not None:
        rows.append(Row("discovery.logical_devices", (), outcome, 0.0))
    if kernels_fail:
        products = {f"GPU:{number}": logical_devices.Product(None, _KERNEL_RAISED) for number in range(len(given))}
        rows.append(example_row(logical_devices, logical_devices.Reading(given, None, products), facts))
    return example_evidence(facts, *rows, log=log, listed=len(given), lines=lines)


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "compiled_kernels_not_kept": (
        Example("Blackwell", _machine("12.0", CUDA_CACHE_DISABLE="1")),
        Example("one of two GPUs", _machine("8.0", "10.0", CUDA_CACHE_DISABLE="1")),
        Example("with the cache", _machine("12.0", CUDA_CACHE_DISABLE="0"), fires=False),
        Example("no variable", _machine("12.0"), fires=False),
        Example("machine code is there", _machine("8.0", CUDA_CACHE_DISABLE="1"), fires=False),
        Example(
            "the other GPU is chosen",
            _machine("8.0", "10.0", CUDA_CACHE_DISABLE="1", CUDA_VISIBLE_DEVICES="0", CUDA_DEVICE_ORDER="PCI_BUS_ID"),
            fires=False,
        ),
    ),
    "gpu_newer_than_wheel": (
        Example("Blackwell", _machine("12.0", compiled=True)),
        Example("Blackwell, kernels fail", _machine("12.0", compiled=True, kernels_fail=True, log=(_INVALID_PTX,))),
        Example("compiling never ends", _machine("12.0", outcome=Broken(NoReading.TIMEOUT, "no result within 60 s"))),
        Example("in a log", _machine("8.0", lines=(f"W0000 gpu_device.cc:2447] {_LINE}", _INVALID_PTX))),
        Example("Hopper", _machine("9.0"), fires=False),
        Example("older than the wheel", _machine("5.2", compiled=True), fires=False),
        Example("kernels fail for another reason", _machine("8.0", kernels_fail=True), fires=False),
    ),
    "gpu_older_than_wheel": (
        Example("Maxwell", _machine("5.2", compiled=True)),
        Example("Maxwell, kernels fail", _machine("5.2", compiled=True, kernels_fail=True)),
        Example("beside another", _machine("8.0", "5.2")),
        Example("left out", _machine("8.0", log=(_OLD_LINE,))),
        Example("Pascal", _machine("6.1"), fires=False),
        Example("newer than the wheel", _machine("12.0", compiled=True), fires=False),
    ),
    "cudnn_dropped_gpu": (
        Example("Pascal", _machine("6.1", cudnn="9.28.0", by_pip="9.28.0.42")),
        Example("Volta", _machine("7.0", cudnn="9.11.0")),
        Example("one of two", _machine("8.0", "6.1", cudnn="9.28.0")),
        Example("installed, and not known to be loaded", _machine("6.1", by_pip="9.28.0.42")),
        Example("the last that has it", _machine("6.1", cudnn="9.10.2", by_pip="9.10.2.21"), fires=False),
        Example("another one is loaded", _machine("6.1", cudnn="9.3.0", by_pip="9.28.0.42"), fires=False),
        Example("Turing", _machine("7.5", cudnn="9.28.0"), fires=False),
        Example("no cuDNN known", _machine("6.1"), fires=False),
    ),
}
