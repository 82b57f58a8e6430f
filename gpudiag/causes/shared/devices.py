"""Shared by causes: the GPUs themselves: kept from others, left out, counted wrongly."""

from __future__ import annotations

from gpudiag.cause import Evidence
from gpudiag.causes.shared.machine import hidden_and_free
from gpudiag.causes.shared.steps import context_error
from gpudiag.knowledge.log_lines import Log
from gpudiag.knowledge.messages.way import DEVICE_BUSY
from gpudiag.model.facts import NvmlDevice
from gpudiag.model.report import Gpu

MASK = "CUDA_VISIBLE_DEVICES"


def said_to_be_busy(evidence: Evidence) -> str:
    """Return who said that a GPU is busy, and what; "" if nobody did."""
    if busy := Log((context_error(evidence),)).first(DEVICE_BUSY):
        return f"creating the devices: {busy.text}"
    return f"the log: {busy.text}" if (busy := evidence.program.first(DEVICE_BUSY)) else ""


def computing(device: NvmlDevice) -> list[int]:
    return [process.pid for process in device.processes if process.computes]


def choose_others(evidence: Evidence, unusable: list[Gpu]) -> tuple[str, dict[str, str | None] | None]:
    """Return how to choose the GPUs that are left without those that are ``unusable``."""
    rest = [gpu.uuid for gpu in evidence.gpus if gpu not in unusable]
    if not rest:
        return hidden_and_free(evidence) or "# there is no other GPU to choose here", None
    chosen = ",".join(rest)
    return f"export {MASK}={chosen}", {MASK: chosen}
