"""Examples of causes: the GPUs themselves: kept from others, left out, counted wrongly."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from examples import Example
from examples.facts import example_gpu
from examples.machines import NO_DEVICE, example_evidence, example_facts, example_gpus, example_nodes, example_row
from gpudiag.cause import Evidence
from gpudiag.causes.device_filter.too_few_multiprocessors import _LEAST
from gpudiag.causes.shared.devices import MASK
from gpudiag.model.facts import EnvironmentFacts, GpuProcess, NvmlDevice, ProcessIdentity
from gpudiag.probe import Kernel, Raised
from gpudiag.probes.discovery import logical_devices

_WORDS = "CUDA error: : CUDA_ERROR_DEVICE_UNAVAILABLE: CUDA-capable device(s) is/are busy or unavailable"
_APP = (f"RuntimeError: Bad StatusOr access: INTERNAL: {_WORDS}",)
_IGNORED_LINE = (
    "Ignoring visible gpu device (device: 1, name: NVIDIA T400, pci bus id: 0000:02:00.0, compute capability: 7.5) "
)
_SMALL = _IGNORED_LINE + (
    f"with core count: 6. The minimum required count is 8. You can adjust this requirement with the env var {_LEAST}."
)
_GPU = example_gpu()
_EXCLUSIVE = replace(_GPU, compute_mode="exclusive_process")
_USED = replace(_EXCLUSIVE, processes=(GpuProcess(4711, 1 << 30),))
_DRAWN_ON = replace(_EXCLUSIVE, processes=(GpuProcess(99, 1 << 20, computes=False),))
_HELD = tuple(
    replace(_EXCLUSIVE, processes=(GpuProcess(pid, 8 << 30, holder=ProcessIdentity("someone", "python train.py ...")),))
    for pid in (33, 34)
)
_PROHIBITED = replace(_GPU, compute_mode="prohibited")
_INTEL = {"0000:00:02.0": "Intel"}


def _machine(
    *gpus: NvmlDevice, busy: bool = False, refused: int | None = None, lines: tuple[str, ...] = (), **families: Any
) -> Evidence:
    """Return the evidence of a machine with ``gpus``, on which no device can be created where it is ``busy``.

    ``refused``: on which of them the driver makes no context.
    """
    facts = example_facts(len(gpus), **{"nvml": example_gpus(*gpus), **families})
    given = tuple(device.pci_bus_id for device in facts.nvml_devices)
    refusals = {} if refused is None else {given[refused]: "CUDA_ERROR_DEVICE_UNAVAILABLE"}
    failed = logical_devices.Reading(given, Raised("RuntimeError", _WORDS), {}, refusals)
    rows = [example_row(logical_devices, failed, facts)] if busy else []
    return example_evidence(facts, *rows, listed=len(gpus), lines=lines)


def _failing_machine(nvml_error: str | None = None, words: str = "", gpus: int = 1) -> Evidence:
    facts = example_facts(nvml=replace(example_gpus(*[_GPU] * gpus), error=nvml_error))
    failed = logical_devices.Reading((_GPU.pci_bus_id,), Raised("RuntimeError", words), {})
    rows = [example_row(logical_devices, failed, facts)] if words else []
    return example_evidence(facts, *rows, listed=1)


def _computing_wrong(gpus: int, wrong: int = 1) -> Evidence:
    """Return the evidence of a machine whose last GPUs compute wrong."""
    facts = example_facts(gpus)
    given = tuple(device.pci_bus_id for device in facts.nvml_devices)
    kernels = {f"GPU:{n}": Kernel(f"GPU:{n}", pci, n < gpus - wrong) for n, pci in enumerate(given)}
    products = {name: logical_devices.Product(kernel, None) for name, kernel in kernels.items()}
    reading = logical_devices.Reading(given, None, products)
    return example_evidence(facts, example_row(logical_devices, reading, facts), listed=gpus)


def _left_out(*log: str, lines: tuple[str, ...] = (), bar: str | None = None) -> Evidence:
    facts = example_facts(2, environment=EnvironmentFacts({} if bar is None else {_LEAST: bar}))
    return example_evidence(facts, log=log, listed=1, lines=lines)


def _counted(mask: str | None, *lines: str, gpus: int = 1, others: dict[str, str] = _INTEL) -> Evidence:
    """Return the evidence of a machine with GPUs of NVIDIA and of others."""
    variables = {} if mask is None else {MASK: mask}
    nodes = example_nodes("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl", other_gpus=others)
    facts = example_facts(gpus, environment=EnvironmentFacts(variables), device_nodes=nodes)
    return example_evidence(facts, cuinit=NO_DEVICE if mask else "", listed=0 if mask else gpus, lines=lines)


_NO_GPU_1 = "InvalidArgumentError: /job:localhost/replica:0/task:0/device:GPU:1 unknown device."
EXAMPLES: dict[str, tuple[Example, ...]] = {
    "gpu_held_exclusively": (
        Example("a process is on it", _machine(_USED, busy=True)),
        Example("a process is on one of two", _machine(_EXCLUSIVE, _USED, busy=True)),
        Example("processes on both", _machine(*_HELD, busy=True)),
        Example("none that NVML lists", _machine(_EXCLUSIVE, busy=True)),
        Example(
            "clients of MPS share it",
            _machine(_USED, busy=True, environment=EnvironmentFacts({"CUDA_MPS_PIPE_DIRECTORY": "/mps/pipe"})),
        ),
        Example("a desktop is on it", _machine(_DRAWN_ON, busy=True)),
        Example("in a log", _machine(_EXCLUSIVE, lines=_APP)),
        Example("it works", _machine(_EXCLUSIVE), fires=False),
        Example("used, and TensorFlow has a place on it", _machine(_USED), fires=False),
        Example("mode default", _machine(_GPU, busy=True), fires=False),
    ),
    "compute_mode_prohibited": (
        Example("alone", _machine(_PROHIBITED, busy=True)),
        Example("one of two", _machine(_GPU, _PROHIBITED, busy=True)),
        Example(
            "the other is hidden",
            _machine(_PROHIBITED, _GPU, busy=True, environment=EnvironmentFacts({MASK: "0"})),
        ),
        Example("before anything failed", _machine(_PROHIBITED)),
        Example("mode default", _machine(_GPU, busy=True), fires=False),
        Example("mode exclusive", _machine(_EXCLUSIVE, busy=True), fires=False),
        Example(
            "hidden",
            _machine(_GPU, _PROHIBITED, environment=EnvironmentFacts({MASK: "0"})),
            fires=False,
        ),
    ),
    "gpu_unavailable": (
        Example("creating devices", _machine(_GPU, busy=True)),
        Example("on one of two", _machine(_GPU, _GPU, busy=True, refused=1)),
        Example("on one of two, not known which", _machine(_GPU, _GPU, busy=True)),
        Example("in a log", _machine(_GPU, lines=_APP)),
        Example("it works", _machine(_GPU), fires=False),
        Example("exclusive", _machine(_EXCLUSIVE, busy=True), fires=False),
        Example("prohibited", _machine(_PROHIBITED, busy=True), fires=False),
    ),
    "gpu_lost": (
        Example("by NVML", _failing_machine("GPU 0: GPU is lost")),
        Example("one of two, by NVML", _failing_machine("GPU 2: GPU is lost", gpus=2)),
        Example("when devices are created", _failing_machine(words="CUDA_ERROR_UNKNOWN: unknown error")),
        Example("one of two, not known which", _failing_machine(words="CUDA_ERROR_UNKNOWN: unknown", gpus=2)),
        Example("in a log", _machine(_GPU, lines=("CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error",))),
        Example("another error of NVML's", _failing_machine("GPU 1: Insufficient Permissions"), fires=False),
        Example("busy", _machine(_GPU, busy=True), fires=False),
        Example("it works", _machine(_GPU), fires=False),
    ),
    "gpu_computes_wrong": (
        Example("alone", _computing_wrong(1)),
        Example("one of two", _computing_wrong(2)),
        Example("both right", _computing_wrong(2, wrong=0), fires=False),
        Example("a device cannot be created", _machine(_GPU, busy=True), fires=False),
    ),
    "too_few_multiprocessors": (
        Example("a small card", _left_out(_SMALL)),
        Example("in a log", _left_out(lines=(f"I gpu_device.cc:2399] {_SMALL}",))),
        Example("a bar that was set", _left_out(_SMALL, bar="8")),
        Example("left out for another reason", _left_out(f"{_IGNORED_LINE}with no reason"), fires=False),
        Example("no line", _left_out(), fires=False),
    ),
    "another_makers_gpu_counted": (
        Example("by the mask", _counted("1")),
        Example("by a device's name", _counted(None, _NO_GPU_1)),
        Example(
            "by a device's name, soft placement off",
            _counted(None, "Could not satisfy device specification '/job:localhost/task:0/device:GPU:1'."),
        ),
        Example("no GPU of another maker", _counted("1", others={}), fires=False),
        Example("beyond all of them", _counted("2"), fires=False),
        Example("a valid index", _counted("1", gpus=2), fires=False),
        Example("a device that is there", _counted(None, _NO_GPU_1, gpus=2), fires=False),
        Example("masked, so numbered anew", _counted("0", _NO_GPU_1), fires=False),
        Example("nothing asked for", _counted(None), fires=False),
    ),
}
