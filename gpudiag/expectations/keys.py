"""The list of all expectations: the value in a report, its comparison, and the line written for a good machine."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpudiag.expectations import seen, values
from gpudiag.expectations.comparisons import (
    Comparison,
    Least,
    LeastBytes,
    Mig,
    Most,
    NamePatterns,
    Number,
    Passing,
    Quantity,
    Range,
    Yes,
)
from gpudiag.expectations.seen import Seen
from gpudiag.model.report import Report
from gpudiag.report.load import GpuLoad


@dataclass(frozen=True)
class Key:
    """An expectation that a file can set."""

    name: str
    """The key in an expectations file."""
    comparison: Comparison
    what: str
    """The meaning of the key in a sentence, for the manual and for files that are written."""
    seen: Callable[[Report, Any], Seen]
    advice: str
    written: Callable[[Report], str]
    """Returns the value that a good machine meets, as TOML; "" if the report does not know it."""
    beyond_level: Callable[[Report, Any], tuple[str, ...]] = lambda _report, _value: ()
    """Returns the parts of the expectation about which the level of the run says nothing."""
    not_judged: Callable[[Report], str] = lambda _report: ""
    """Returns why the run says nothing about the expectation; "" if it does."""

    @property
    def field(self) -> str:
        """The name of the key's field in :class:`gpudiag.model.expectations.Expectations`."""
        return self.name.replace("-", "_")


_RANGE = Range()
_DRIVER_ADVICE = "Install a driver of this range on the host, or correct {key} in {file}."
_CARD_ADVICE = "This is not the machine that is expected: choose another, or correct {key} in {file}."

_FASTER = "Run gpudiag check --level stress --for 5m, and see what load.gpus finds; or correct {key} in {file}."


def _rate_key(name: str, comparison: Quantity, what: str, rate: Callable[[GpuLoad], float | None]) -> Key:
    """Return the key of a rate under load of each GPU; those of simulated GPUs are not judged."""
    found = partial(seen.load_rates, rate=rate)
    return Key(
        name,
        comparison,
        what,
        found,
        _FASTER,
        lambda report: "" if seen.no_load_rates(report) else values.least_rate(found(report), comparison.unit),
        not_judged=seen.no_load_rates,
    )


def _products(name: str, work: str) -> Key:
    return _rate_key(
        f"tflops-{name.lower()}",
        Quantity(">=600", "TFLOP/s", is_unit_known=True),
        f"products in {name} on each GPU under load (`--level stress`)",
        partial(seen.teraflops, work=work),
    )


KEYS = (
    Key(
        "gpus",
        Number(),
        "the number of GPUs in scope",
        seen.gpus,
        "See host.gpus, and the GPUs at the top of the report; or correct {key} in {file}.",
        lambda report: str(len(report.gpus)) if report.gpus else "",
    ),
    Key(
        "models",
        NamePatterns(),
        "each GPU in scope is one of these",
        seen.models,
        _CARD_ADVICE,
        lambda report: values.listed(dict.fromkeys(gpu.name for gpu in report.gpus)) if report.gpus else "",
    ),
    Key(
        "memory-total",
        LeastBytes(),
        "each GPU in scope has at least this much memory",
        seen.memory_total,
        _CARD_ADVICE,
        lambda report: values.size(seen.memory_total(report)),
    ),
    Key(
        "memory-free",
        LeastBytes(),
        "each GPU in scope has at least this much memory that no process uses",
        seen.memory_free,
        "End what uses the memory (nvidia-smi lists the processes), or correct {key} in {file}.",
        lambda report: values.size(seen.memory_free(report)),
    ),
    Key(
        "driver",
        _RANGE,
        "versions of NVIDIA's driver",
        seen.driver,
        _DRIVER_ADVICE,
        lambda report: values.at_least_version(seen.driver(report)[""]),
    ),
    Key(
        "cuda",
        _RANGE,
        "the newest version of CUDA that the driver supports",
        seen.cuda,
        _DRIVER_ADVICE,
        lambda report: values.at_least_version(seen.cuda(report)[""]),
    ),
    Key(
        "tensorflow",
        _RANGE,
        "versions of TensorFlow",
        seen.tensorflow,
        "pip install 'tensorflow{value}', or correct {key} in {file}.",
        values.tensorflow,
    ),
    Key(
        "python",
        _RANGE,
        "versions of Python",
        seen.python,
        "Use a Python of this range, or correct {key} in {file}.",
        lambda report: values.at_least_version(seen.python(report)[""]),
    ),
    Key(
        "compute-capability",
        _RANGE,
        "the compute capability of each GPU in scope",
        seen.capability,
        _CARD_ADVICE,
        values.capability,
    ),
    Key(
        "mig",
        Mig(),
        "the MIG layout of each GPU in scope",
        seen.mig,
        "Create the instances that are expected, or correct {key} in {file}. nvidia-smi mig -lgi lists what is there.",
        values.mig,
    ),
    Key(
        "peer-access",
        Yes(),
        "each GPU in scope can read the memory of each other one",
        seen.peers,
        "See host.collectives, or remove {key} from {file}. nvidia-smi topo -p2p r shows each pair.",
        values.peers,
    ),
    Key(
        "pcie-generation",
        Least(9, "a whole number, such as 4"),
        "the PCI Express generation of each GPU in scope, at least; of an idle one, which lowers it, what it can be",
        seen.generation,
        "Put the GPU into another slot, see the firmware's setting of that slot, or correct {key} in {file}.",
        lambda report: values.least(seen.generation(report)),
    ),
    Key(
        "pcie-width",
        Least(32, "a whole number of lanes, such as 16"),
        "the PCI Express lanes of each GPU in scope, at least",
        seen.width,
        "Put the GPU into a slot with more lanes, without a riser, or correct {key} in {file}.",
        lambda report: values.least(seen.width(report)),
    ),
    *(_products(name, f"{name} product") for name in ("float32", "TF32", "float16", "bfloat16")),
    _rate_key(
        "host-to-device",
        Quantity(">=20GB/s", "GB/s"),
        "copies from pinned memory of the host to each GPU under load (`--level stress`)",
        seen.to_device,
    ),
    _rate_key(
        "device-to-host",
        Quantity(">=20GB/s", "GB/s"),
        "copies from each GPU to pinned memory of the host under load (`--level stress`)",
        seen.to_host,
    ),
    Key(
        "slowest-to-median",
        Quantity(">=0.95"),
        "rate of each GPU by the median of the other GPUs of its model under load (`--level stress`)",
        seen.shares,
        _FASTER,
        lambda report: "" if seen.no_shares(report) else values.least_rate(seen.shares(report), ""),
        not_judged=seen.no_shares,
    ),
    Key(
        "must-pass",
        Passing(),
        "probes that must pass, at most with notes; skipped is not passed",
        seen.passing,
        "Fix what these rows name, and run what has no row; or correct {key} in {file}.",
        values.passing,
        seen.beyond_level,
    ),
    Key(
        "time-budget",
        Most(),
        "seconds that the run may take",
        seen.seconds,
        "Run fewer probes (--level quick, SELECT), or correct {key} in {file}.",
        lambda report: str(max(10, 10 * math.ceil(report.duration_s / 5))),
    ),
)
