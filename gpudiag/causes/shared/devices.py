"""Shared by causes: the state of the GPUs: held by others, left out, or counted wrongly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpudiag.cause import Evidence, Gpus, Rows
from gpudiag.causes.shared.launchers import allocated
from gpudiag.causes.shared.steps import context_error
from gpudiag.fix import Action, export, note, reset_gpu
from gpudiag.knowledge.log_lines import Log
from gpudiag.knowledge.messages.way import DEVICE_BUSY
from gpudiag.model.facts import Facts, NvmlDevice, Unknown
from gpudiag.model.report import Gpu, Severity
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.probe import LoadReading
from gpudiag.probes.discovery import logical_devices

MASK = "CUDA_VISIBLE_DEVICES"
NO_OTHER_GPU = note("there is no other GPU to choose here")


@dataclass(frozen=True)
class SaidToBeBusy:
    """A report by the driver, or in the log, that a GPU is busy."""

    text: str
    """The source of the report, and its text."""

    @classmethod
    def of(cls, evidence: Evidence) -> SaidToBeBusy | None:
        if busy := Log((context_error(Rows(evidence.rows)),)).first(DEVICE_BUSY):
            return cls(f"creating the devices: {busy.text}")
        return cls(f"the log: {busy.text}") if (busy := evidence.program.first(DEVICE_BUSY)) else None


def computing(device: NvmlDevice) -> list[int]:
    return [process.pid for process in device.processes if process.computes]


@dataclass(frozen=True)
class ChosenGpus:
    """The GPUs in scope: NVML's report on them, those that fail, and those that can be chosen instead."""

    facts: Facts
    gpus: Gpus
    rows: Rows

    @classmethod
    def of(cls, evidence: Evidence) -> ChosenGpus:
        return cls(evidence.facts, Gpus(evidence.gpus), Rows(evidence.rows))

    @property
    def by_nvml(self) -> list[tuple[Gpu, NvmlDevice]]:
        """Each GPU in scope, with NVML's report on it."""
        devices = {device.pci_bus_id: device for device in self.facts.nvml_devices}
        return [(gpu, devices[gpu.pci_bus_id]) for gpu in self.gpus if gpu.pci_bus_id in devices]

    @property
    def ended_under_load(self) -> list[Gpu]:
        """The GPUs whose load ended before its time, for a reason of theirs."""
        loads = self.rows.readings("load.gpus", LoadReading)
        ended = {pci for reading in loads if reading.failed for pci in reading.given}
        return [gpu for gpu in self.gpus if gpu.pci_bus_id in ended]

    @property
    def failing(self) -> list[Gpu]:
        """The GPUs on which TensorFlow failed to make a device or to compute; if it failed as a whole, those on which
        a library failed, or the only GPU in scope. A GPU that ended under load is known whatever fails since."""
        if len(self.ended_under_load) == 1:
            return self.ended_under_load
        for reading in self.rows.readings("discovery.logical_devices", logical_devices.Reading):
            raised = [
                pci for pci, product in zip(reading.given, reading.products.values(), strict=False) if product.raised
            ]
            known = [gpu for gpu in self.gpus if gpu.pci_bus_id in (*reading.refused, *raised)]
            if known or reading.raised is None:
                return known
        failures = (finding for row in self.rows if row.area == "libraries" for finding in row.findings)
        named = {finding.figures.get("device") for finding in failures if finding.severity is Severity.FAIL}
        by_library = [gpu for number, gpu in enumerate(self.gpus) if f"GPU:{number}" in named]
        return by_library or (list(self.gpus) if len(self.gpus) == 1 else [])

    def reset(self, failing: Iterable[int | str]) -> Action:
        """Return how to reset the GPUs of these indices of NVML's; no command if none is known to fail."""
        if indices := ",".join(map(str, failing)):
            return reset_gpu(indices, "or reboot: if its hardware or firmware has failed")
        of = ", ".join(str(gpu.index) for gpu in self.gpus)
        if len(self.gpus) == 1:
            return note(f"dmesg shows whether GPU {of} fails, by its PCI bus id {self.gpus[0].pci_bus_id}")
        return note(f"the GPU that fails is one of {of or 'those of nvidia-smi -L'}; dmesg names it by its PCI bus id")

    def without(self, unusable: list[Gpu], why: str = "") -> Action:
        """Return how to choose the GPUs that remain without the ``unusable`` ones, if any remain."""
        given = allocated(self.facts) or ()
        # A job that sees more GPUs than it was given sees those of the node, by the node's numbers.
        of_others = {gpu.uuid for gpu in self.gpus if gpu.index not in given} if 0 < len(given) < len(self.gpus) else ()
        rest = [gpu.uuid for gpu in self.gpus if gpu not in unusable and gpu.uuid not in of_others]
        if not rest:
            return self.hidden_and_free or NO_OTHER_GPU
        return export(MASK, ",".join(rest), why)

    @property
    def hidden_and_free(self) -> Action | None:
        """The command that chooses GPUs that the mask hides and NVML shows unused; None if there are none.

        None in a job, where the other GPUs belong to other jobs. The command is not tried: they may be somebody
        else's.
        """
        facts = self.facts
        mask = facts.variables.get(MASK)
        if mask is None or isinstance(facts.container, Unknown) or facts.container.slurm_job or allocated(facts):
            return None
        chosen = {gpu.pci_bus_id for gpu in self.gpus or gpus_in_scope(facts)}
        free = [device for device in facts.nvml_devices if device.pci_bus_id not in chosen and _is_free(device)]
        if not free:
            return None
        indices = ", ".join(str(device.index) for device in free)
        uuids = ",".join(device.uuid for device in free)
        of_others = export(MASK, uuids, f"or GPU {indices}, hidden now by {mask!r}, if it is yours to use")
        return of_others.replaced(change=None)


def _is_free(device: NvmlDevice) -> bool:
    little = device.memory_used_bytes < (device.memory_total_bytes / 4 if device.memory_total_bytes else 1)
    open_to_all = device.compute_mode in ("default", None) and device.mig_mode != "enabled"
    return open_to_all and little and not computing(device)
