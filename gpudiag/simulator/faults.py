"""The faults that can be injected into a simulated machine, and their translation for the
simulated libraries.

A fault is written NAME[=VALUE][@GPU]; GPU is a number in PCI order, if the fault concerns GPUs.
Diagnosis and isolation are tested with the effects on TensorFlow: it may hang, flood the log or crash.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from gpudiag.errors import nearest, sentences
from gpudiag.simulator.errors import FaultError, SpecError
from gpudiag.simulator.sizes import parse_size

SONAMES = (
    "libcuda.so.1",
    "libcudart.so.12",
    "libcublas.so.12",
    "libcublasLt.so.12",
    "libcufft.so.11",
    "libcusolver.so.11",
    "libcusparse.so.12",
    "libcudnn.so.9",
    "libnvidia-ml.so.1",
    "libnccl.so.2",
    "libcupti.so.12",
)

UNNEEDED = {
    "libnccl.so.2": "simulated GPUs exchange data without NCCL's library",
    "libcupti.so.12": "only its profiler opens this library",
}
"""Libraries that TensorFlow can do without, each with the reason."""


PACE = {"kernel_us": 8000, "copy_mb_s": 200}
"""The keys of a GPU's pace, each with a value that two processors can keep for some GPUs."""


@dataclass(frozen=True)
class Fault:
    """A fault that is ready to inject."""

    name: str
    value: str = ""
    gpu: int | None = None
    rules: tuple[str, ...] = ()  # for src/faults.c
    settings: tuple[tuple[str, str], ...] = ()  # lines of machine.conf that are replaced
    removed: tuple[str, ...] = ()  # sonames that cannot be opened

    def __str__(self) -> str:
        value = f"={self.value}" if self.value else ""
        return f"{self.name}{value}" + ("" if self.gpu is None else f"@{self.gpu}")


@dataclass(frozen=True)
class FaultKind:
    """A kind of fault in the catalogue."""

    name: str
    value: str  # what VALUE is; empty: none
    default: str  # empty: VALUE is required, if there is one
    summary: str
    build: Callable[[str], Fault]
    per_gpu: bool = False
    pace: tuple[str, ...] = ()  # of PACE, what a GPU must have for it

    @property
    def usage(self) -> str:
        if not self.value:
            usage = self.name
        elif self.default:
            usage = f"{self.name}[={self.value}]"
        else:
            usage = f"{self.name}={self.value}"
        return usage + ("[@GPU]" if self.per_gpu else "")


def _integer(text: str, low: int, what: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise FaultError(f"{text!r} is not {what}: a whole number from {low} on.") from None
    if number < low:
        raise FaultError(f"{text!r} is not {what}: a whole number from {low} on.")
    return number


def _code(function: str) -> Callable[[str], Fault]:
    def build(value: str) -> Fault:
        return Fault("", rules=(f"{function},code={_integer(value, 1, 'an error code')}",))

    return build


def _library(value: str) -> Fault:
    wanted = value.lower().removeprefix("lib")
    matches = [name for name in SONAMES if name.lower() == f"lib{wanted}"] or [
        name for name in SONAMES if name.lower().removeprefix("lib").split(".so")[0] == wanted
    ]
    if len(matches) != 1:
        raise FaultError(f"{value!r} is not one of the libraries {', '.join(SONAMES)}.")
    return Fault("", removed=(matches[0],))


def _version(key: str, parts: int) -> Callable[[str], Fault]:
    def build(value: str) -> Fault:
        if not re.fullmatch(rf"\d+(\.\d+){{{parts - 1}}}", value):
            raise FaultError(f"{value!r} is not a version of {parts} numbers joined by dots.")
        return Fault("", settings=((key, version_number(key, value)),))

    return build


def version_number(key: str, version: str) -> str:
    """Return the version in the libraries' notation: CUDA 12.4 is 12040; cuDNN 9.3.0 is 90300, and 8.9.7 was 8907."""
    numbers = [int(part) for part in version.split(".")]
    if key == "cuda_version":
        return str(numbers[0] * 1000 + numbers[1] * 10)
    factor = 10000 if numbers[0] >= 9 else 1000
    return str(numbers[0] * factor + numbers[1] * 100 + numbers[2])


_ALLOCATIONS = ("cuMemAlloc_v2", "cuMemAllocFromPoolAsync")


def _allocation_from(value: str) -> Fault:
    first = _integer(value, 1, "the number of a call")
    return Fault("", rules=tuple(f"{name},code=2,from={first}" for name in _ALLOCATIONS))


def _allocation_above(value: str) -> Fault:
    try:
        size = parse_size(value)
    except SpecError as error:
        raise FaultError(str(error)) from None
    return Fault("", rules=tuple(f"{name},code=2,above={size}" for name in _ALLOCATIONS))


def _lost(value: str) -> Fault:
    calls = _integer(value, 0, "a number of calls")
    return Fault("", rules=(f"lost,code=999,from={calls + 1}",))


def _function(value: str, form: str, pattern: str) -> re.Match[str]:
    match = re.fullmatch(r"(?P<function>(?:__)?(?:cu|nv|nccl)\w+):" + pattern, value)
    if not match:
        raise FaultError(f"{value!r} is not {form}, for instance cuMemAlloc_v2:2.")
    from gpudiag.simulator.calls import nearest_call  # it needs the libraries, which few faults do

    if nearest := nearest_call(match["function"]):
        raise FaultError(f"nothing calls {match['function']} on a simulated machine. The nearest call is {nearest}.")
    return match


def _slow_call(value: str) -> Fault:
    match = _function(value, "FUNCTION:SECONDS", r"(?P<seconds>\d+(?:\.\d+)?)")
    return Fault("", rules=(f"{match['function']},seconds={match['seconds']}",))


def _call_fails(value: str) -> Fault:
    match = _function(value, "FUNCTION:CODE[:FROM]", r"(?P<code>\d+)(?::(?P<first>\d+))?")
    return Fault("", rules=(f"{match['function']},code={match['code']},from={match['first'] or 1}",))


def _amount(name: str, what: str, low: float, high: float) -> Callable[[str], Fault]:
    def build(value: str) -> Fault:
        try:
            amount = float(value)
        except ValueError:
            amount = -1.0
        if not low <= amount <= high:
            raise FaultError(f"{value!r} is not {what}: a number from {low:g} to {high:g}.")
        return Fault("", rules=(f"{name},amount={amount:g}",))

    return build


def _dies(value: str) -> Fault:
    seconds = _amount("", "a number of seconds", 0.1, 1e6)(value).rules[0].partition("=")[2]
    return Fault("", rules=(f"lost,code=999,after={seconds}",))


def _corrupted(value: str) -> Fault:
    return Fault("", rules=(f"copy,from={_integer(value, 1, 'the number of a copy')}",))


def _peer_corrupted(value: str) -> Fault:
    return Fault("", rules=(f"peer_copy,from={_integer(value, 1, 'the number of a copy')}",))


CATALOGUE: Mapping[str, FaultKind] = {
    kind.name: kind
    for kind in (
        FaultKind("library_missing", "LIBRARY", "", "a library cannot be opened", _library),
        FaultKind(
            "nvml_missing",
            "",
            "",
            "libnvidia-ml.so.1 cannot be opened",
            lambda _: _library("libnvidia-ml.so.1"),
        ),
        FaultKind(
            "nvml_init",
            "CODE",
            "18",
            "nvmlInit fails; 18 is a driver/library version mismatch, 9 no driver",
            _code("nvmlInit_v2"),
        ),
        FaultKind(
            "cuinit",
            "CODE",
            "100",
            "cuInit fails; 100 no device, 802 not ready, 803 driver mismatch, 999 unknown",
            _code("cuInit"),
        ),
        FaultKind(
            "driver_too_old",
            "CUDA_VERSION",
            "11.4",
            "the driver supports only an older CUDA than TensorFlow's runtime",
            _version("cuda_version", 2),
        ),
        FaultKind(
            "cudnn_version",
            "VERSION",
            "8.9.7",
            "another cuDNN than TensorFlow was built with",
            _version("cudnn_version", 3),
        ),
        FaultKind(
            "context_creation",
            "CODE",
            "46",
            "no context can be created on the GPU; 46 busy or unavailable, 2 out of memory",
            _code("cuDevicePrimaryCtxRetain"),
            per_gpu=True,
        ),
        FaultKind(
            "stream_creation",
            "CODE",
            "2",
            "no stream can be created on the GPU",
            _code("cuStreamCreate"),
            per_gpu=True,
        ),
        FaultKind(
            "allocation_from",
            "N",
            "1",
            "the N-th and all later allocations of device memory fail",
            _allocation_from,
            per_gpu=True,
        ),
        FaultKind(
            "allocation_above",
            "SIZE",
            "",
            "allocations of more than SIZE fail",
            _allocation_above,
            per_gpu=True,
        ),
        FaultKind(
            "device_lost_after",
            "N",
            "200",
            "after N calls the GPU has fallen off the bus: all calls fail, also NVML's",
            _lost,
            per_gpu=True,
        ),
        FaultKind(
            "slow_call",
            "FUNCTION:SECONDS",
            "",
            "every call of a CUDA, NVML or library function takes this long",
            _slow_call,
            per_gpu=True,
        ),
        FaultKind(
            "call_fails",
            "FUNCTION:CODE[:FROM]",
            "",
            "a function returns an error code, from its FROM-th call on",
            _call_fails,
            per_gpu=True,
        ),
        FaultKind(
            "memory_corrupted",
            "N",
            "1",
            "the N-th and all later copies to the GPU have a flipped bit",
            _corrupted,
            per_gpu=True,
        ),
        FaultKind(
            "slow_gpu",
            "FACTOR",
            "1.5",
            "the GPU needs so many times as long for its work; it must have a pace",
            _amount("slow", "a factor", 1.0, 100.0),
            per_gpu=True,
            pace=("kernel_us",),
        ),
        FaultKind(
            "narrow_link",
            "LANES",
            "4",
            "the GPU's link to the host has so many lanes of 16, by NVML, too; it must have a pace",
            _amount("narrow", "a number of lanes", 1.0, 8.0),
            per_gpu=True,
            pace=("kernel_us", "copy_mb_s"),
        ),
        FaultKind(
            "bit_flips",
            "N",
            "100",
            "a bit of every N-th product, convolution or pattern is wrong; the GPU must have a pace",
            _amount("flip", "a number of results", 1.0, 1e9),
            per_gpu=True,
            pace=("kernel_us",),
        ),
        FaultKind(
            "bit_flips_above",
            "DEGREES",
            "60",
            "above this temperature a bit of every tenth result is wrong; the GPU must have a pace",
            _amount("flip_hot", "a temperature", 36.0, 120.0),
            per_gpu=True,
            pace=("kernel_us",),
        ),
        FaultKind(
            "dies_after",
            "SECONDS",
            "10",
            "so long after its first work the GPU falls off the bus; it must have a pace",
            _dies,
            per_gpu=True,
            pace=("kernel_us",),
        ),
        FaultKind(
            "overheats",
            "SECONDS",
            "5",
            "the GPU gets too hot under load, with this time constant, and slows down; it must have a pace",
            _amount("heat", "a number of seconds", 0.1, 1e4),
            per_gpu=True,
            pace=("kernel_us",),
        ),
        FaultKind(
            "ecc_counts",
            "N",
            "2",
            "so many errors of memory are corrected in each second of work; the GPU must have a pace",
            _amount("ecc", "a number of errors", 0.01, 1e6),
            per_gpu=True,
            pace=("kernel_us",),
        ),
        FaultKind(
            "peer_copies_corrupted",
            "N",
            "1",
            "the N-th and all later copies from GPU to GPU have a flipped bit",
            _peer_corrupted,
            per_gpu=True,
        ),
    )
}


_LIST = "See 'gpudiag simulate --list-faults'."


def parse_fault(text: str) -> Fault:
    """Return the fault that NAME[=VALUE][@GPU] describes; raises FaultError with the allowed forms."""
    rest, at, gpu = text.strip().rpartition("@")
    if not at:
        rest, gpu = gpu, ""
    name, equals, value = rest.partition("=")
    name = name.strip().replace("-", "_")
    kind = CATALOGUE.get(name)
    if kind is None:
        raise FaultError(sentences(f"no fault is called {name!r}.", nearest(name, CATALOGUE), _LIST))
    if at and not kind.per_gpu:
        raise FaultError(f"{name} concerns the whole machine, not GPU {gpu!r}. Write {kind.usage}.")
    if at and not gpu.isdigit():
        raise FaultError(f"{gpu!r} after @ is not the number of a GPU. Write {kind.usage}.")
    if equals and not kind.value:
        raise FaultError(f"{name} takes no value. Write {kind.usage}.")
    value = value.strip() or kind.default
    if kind.value and not value:
        raise FaultError(f"{name} needs a value. Write {kind.usage}.")
    try:
        built = kind.build(value)
    except FaultError as error:
        raise FaultError(f"{name}: {error} Write {kind.usage}.") from None
    rules = tuple(f"{rule},gpu={gpu}" if at else rule for rule in built.rules)
    number = int(gpu) if at else None
    return Fault(name, value, number, rules, built.settings, built.removed)


def parse_faults(faults: Iterable[str | Fault]) -> tuple[Fault, ...]:
    return tuple(parse_fault(fault) if isinstance(fault, str) else fault for fault in faults)


def fault_words(faults: Iterable[str | Fault]) -> list[str]:
    """Return the options of the command line that inject these faults."""
    return [word for fault in faults for word in ("--fault", str(fault))]


def fault_environment(faults: Iterable[str | Fault]) -> dict[str, str]:
    """Return variables that give these faults to one process of a machine, if set before its first CUDA call.

    A library cannot be removed for one process alone: the loader's path is the machine's.
    """
    lines: list[str] = []
    for fault in parse_faults(faults):
        if fault.removed:
            raise FaultError(
                f"{fault} removes a library, which needs a separate machine. Give the fault to the machine."
            )
        lines += [f"{key} {value}" for key, value in fault.settings]
        lines += fault.rules
    return {"GPUDIAG_SIM_FAULTS": ";".join(lines)}


def no_effect(fault: Fault) -> str:
    """Return the message about a fault that no call has met, or about a missing library that no program needs."""
    if fault.removed:
        return f"the fault {fault} had no effect on TensorFlow: {UNNEEDED[fault.removed[0]]}"
    if CATALOGUE[fault.name].pace:
        return f"the fault {fault} had no effect: the GPU had too little work, or none"
    functions = dict.fromkeys(rule.partition(",")[0] for rule in fault.rules)
    named = fault.name in ("slow_call", "call_fails")
    calls = f"nothing called {' or '.join(functions)}" if named else "there was no such call"
    which = (
        ", so often or on that GPU"
        if fault.gpu is not None or any(re.search(r"from=(?!1\b)", rule) for rule in fault.rules)
        else ""
    )
    return f"the fault {fault} had no effect: {calls}{which}"


def catalogue_text() -> str:
    """Return the output of `gpudiag simulate --list-faults`."""
    width = max(len(kind.usage) for kind in CATALOGUE.values())
    lines = []
    for kind in CATALOGUE.values():
        default = f" (without a value: {kind.default})" if kind.default else ""
        lines.append(f"{kind.usage:<{width}}  {kind.summary}{default}")
    return "\n".join(lines)
