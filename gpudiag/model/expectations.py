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
    """The last day on which it counts."""


class Expectations(Record):
    """What is expected; None: nothing. The keys of a file are these names with dashes."""

    source: str = ""
    """The file that says so."""
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
    """A range of versions."""
    python: str | None = None
    """A range of versions."""
    compute_capability: str | None = None
    """A range, for each GPU in scope."""
    mig: str | tuple[str, ...] | None = None
    """``disabled``, or the memory of the MIG instances of each GPU, such as ``9728MiB``."""
    peer_access: bool | None = None
    """True: each GPU in scope can read the memory of each other one."""
    pcie_generation: int | None = None
    """The least PCIe generation; of an idle GPU, which lowers it, the most that its link can do."""
    pcie_width: int | None = None
    """Lanes, at least."""
    must_pass: tuple[str, ...] | None = None
    """Areas, probes or globs; each of their rows passes, at most with notes."""
    time_budget: float | None = None
    """Seconds that the run may take."""
    accept: tuple[Waiver, ...] = ()
