"""The records of what a deployment expects of a machine. They are part of a report that was judged by them."""

from __future__ import annotations

from datetime import date

from gpudiag.record import Record

AREA = "expect"
"""The area of the rows that say whether an expectation is met; they are not probes."""


class Waiver(Record):
    """A finding that is accepted."""

    finding: str
    """``<area>.<probe>.<finding>``, such as ``host.driver.old_driver``."""
    reason: str
    until: date
    """The last day on which the finding is accepted."""


class Expectations(Record):
    """What a deployment expects of a machine; None: no expectation. The keys in a file are these names with dashes."""

    source: str = ""
    """The file of the expectations."""
    gpus: int | str | None = None
    """How many GPUs are in scope: a number, or a range such as ``>=4``."""
    models: tuple[str, ...] | None = None
    """Names or patterns, such as ``NVIDIA H200*``; each GPU in scope has one of them."""
    memory_total: str | None = None
    """Each GPU in scope has at least this, such as ``79GiB``."""
    memory_free: str | None = None
    """Each GPU in scope has at least this free when the run begins, such as ``70GiB``."""
    driver: str | None = None
    """A range of versions of NVIDIA's driver."""
    cuda: str | None = None
    """A range for the newest version of CUDA that the driver supports."""
    tensorflow: str | None = None
    """A range of versions of TensorFlow."""
    python: str | None = None
    """A range of versions of Python."""
    compute_capability: str | None = None
    """A range of compute capabilities, for each GPU in scope."""
    mig: str | tuple[str, ...] | None = None
    """``disabled``, or the memory of the MIG instances of each GPU, such as ``9728MiB``."""
    peer_access: bool | None = None
    """True if each GPU in scope must be able to read the memory of every other one."""
    pcie_generation: int | None = None
    """The lowest allowed PCIe generation. An idle GPU lowers its own, so its link's maximum is compared."""
    pcie_width: int | None = None
    """The lowest allowed number of PCIe lanes."""
    tflops_float32: str | None = None
    """Bounds of the rate of products in float32 under load, for each GPU, such as ``>=40`` TFLOP/s."""
    tflops_tf32: str | None = None
    tflops_float16: str | None = None
    tflops_bfloat16: str | None = None
    host_to_device: str | None = None
    """Bounds of the rate of copies from pinned memory of the host under load, such as ``>=20GB/s``."""
    device_to_host: str | None = None
    slowest_to_median: str | None = None
    """Bounds of the rate of each GPU under load by the median of the others of its model, such as ``>=0.95``."""
    must_pass: tuple[str, ...] | None = None
    """Areas, probes or globs; each of their rows passes, at most with notes."""
    time_budget: float | None = None
    """Seconds that the run may take."""
    accept: tuple[Waiver, ...] = ()
