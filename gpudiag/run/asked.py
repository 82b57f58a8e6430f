"""What a user asks of a run: each field is an option of ``gpudiag check``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpudiag.option import option


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How to search for the cause."""

    TITLE: ClassVar[str] = "What runs, and how long"

    bisect_s: float = option(
        "If no GPU is used and the cause is not proved: how long to search the environment for it. 0: off.",
        default=60.0,
        minimum=0,
        metavar="SECONDS",
    )
    no_catalogue: bool = option("Let the diagnosis name no cause, for tests.", default=False, hidden=True)


@dataclass(frozen=True, kw_only=True)
class RequestedRun:
    """How to run the probes."""

    TITLE: ClassVar[str] = "What runs, and how long"

    level: str | None = option(
        "quick: only probes that fill no memory and are safe beside running jobs. stress: the probes that load all "
        "GPUs for the time of --for, and no others. [default: full, but quick if other processes use a GPU and no "
        "SELECT is given]",
        choices=("quick", "full", "stress"),
    )
    for_s: float = option(
        "How long to load the GPUs at level stress, such as 20, 5m or 1h.", default=60.0, metavar="DURATION"
    )
    disturb: bool = option("Measure and fill memory on GPUs that other processes use, too.", default=False)
    isolation: str | None = option(
        "How each probe gets a process: forked from one that has imported TensorFlow, or a new interpreter. "
        "[default: fork on Linux, spawn elsewhere]",
        choices=("fork", "spawn"),
    )
    timeout_s: float | None = option(
        "Seconds for each probe, without the time of --for, and for the import of TensorFlow."
    )
    deadline_s: float | None = option("Seconds for the whole run.")
    jobs: int | None = option(
        "Number of probes that run at the same time. [default: as processors and memory allow]",
        flags=("-j",),
        metavar="N",
        minimum=1,
    )
    lock_wait_s: float = option(
        "Seconds that a probe waits for a GPU which another run of gpudiag holds.", default=300.0
    )


@dataclass(frozen=True, kw_only=True)
class Demands:
    """What the caller demands of the machine; see :class:`gpudiag.model.report.Limits`."""

    TITLE: ClassVar[str] = "Verdict and exit status"

    require_gpus: int = option("Fail if fewer than N GPUs are in scope.", default=0, minimum=0, metavar="N")
    allow_no_gpu: bool = option("Exit with 0 if the machine has no GPU.", default=False)
    strict: bool = option("Count warnings as failures.", default=False)
