"""Shared by causes: several GPUs, several workers, and what stands between them."""

from __future__ import annotations

from gpudiag.cause import Evidence
from gpudiag.knowledge.message import Message
from gpudiag.knowledge.messages.collectives import NCCL_WARNING
from gpudiag.model import Finding

NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"


def finding_here(evidence: Evidence, kind: str) -> Finding | None:
    """Return what ``host.collectives`` finds of this kind."""
    return next(iter(evidence.found("host.collectives", kind)), None)


def first(evidence: Evidence, message: Message) -> str | None:
    said = evidence.log.first(message)
    return None if said is None else said.line.strip()


def warned(evidence: Evidence, *words: str) -> str | None:
    """Return the first line in which NCCL warns of one of these."""
    warnings = evidence.log.all(NCCL_WARNING)
    return next((one.line.strip() for one in warnings if any(word in one["what"].lower() for word in words)), None)


SHARED_MEMORY = ("dev/shm", "shared memory segment", "posix_fallocate")
