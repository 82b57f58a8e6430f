"""The account of all GPUs, made from the facts, the probes' measurements and the diagnosis. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from gpudiag.cause import Evidence, Rows
from gpudiag.knowledge.cuda_code import code_for
from gpudiag.knowledge.messages.way import TOO_FEW_CORES, TOO_LOW_CAPABILITY
from gpudiag.model.diagnosis import Diagnosis
from gpudiag.model.facts import ContainerFacts, NvmlDevice, Unknown
from gpudiag.model.fate import Fate, GpuAccount
from gpudiag.model.report import Judged, Skipped
from gpudiag.model.visibility import mask_in_force
from gpudiag.probes.discovery import physical_devices
from gpudiag.text import one_line

MASK = "CUDA_VISIBLE_DEVICES"
_NVIDIA = "nvidia"


def account(evidence: Evidence, diagnosis: Diagnosis) -> tuple[GpuAccount, ...]:
    """Return a record for each GPU that any source shows: NVIDIA's in PCI order, then those of other makers."""
    ledger = _Ledger(evidence, diagnosis)
    own = [*ledger.counted(), *ledger.lost(), *ledger.on_the_bus_alone()]
    return (
        *sorted(own, key=lambda account: (not account.pci_bus_id, account.pci_bus_id, account.nvml or 0)),
        *ledger.of_others(),
    )


class _Ledger:
    """What is known of the GPUs of one machine."""

    def __init__(self, evidence: Evidence, diagnosis: Diagnosis) -> None:
        self._evidence = evidence
        self._facts = evidence.facts
        self._diagnosis = diagnosis
        nodes = evidence.facts.device_nodes
        self._nodes = None if isinstance(nodes, Unknown) else nodes
        self._bus = {pci.lower(): pci for pci in self._nodes.pci_gpus} if self._nodes else {}
        self._scope = {gpu.pci_bus_id.lower(): gpu for gpu in evidence.gpus}

    def counted(self) -> Iterator[GpuAccount]:
        """Yield the GPUs that NVML describes."""
        for device in self._facts.nvml_devices:
            pci = device.pci_bus_id.lower()
            gpu = self._scope.get(pci)
            fate, why = (Fate.HIDDEN, self._hidden_by()) if gpu is None else self._fate(device)
            named = self._named.get(pci)
            yield GpuAccount(
                fate,
                one_line(why),
                name=device.name,
                pci_bus_id=device.pci_bus_id,
                uuid=device.uuid if gpu is None else gpu.uuid,
                on_bus=pci in self._bus,
                nvml=device.index,
                cuda=None if named is None else named.cuda_ordinal,
                tensorflow="" if named is None else named.tensorflow,
                driver=self._driver(pci),
            )

    def lost(self) -> Iterator[GpuAccount]:
        """Yield the GPUs that NVML counts but cannot describe; on the PCI bus they are among the GPUs without a
        name."""
        if isinstance(self._facts.nvml, Unknown):
            return
        errors = self._facts.nvml.undescribed
        known = len(errors) == len(self._unnamed)
        for (index, error), pci in zip(errors.items(), self._unnamed if known else [""] * len(errors), strict=True):
            why = f"NVML says: {error}"
            yield GpuAccount(
                Fate.LOST, one_line(why), pci_bus_id=pci, on_bus=known, nvml=index, driver=self._driver(pci)
            )

    def on_the_bus_alone(self) -> Iterator[GpuAccount]:
        """Yield the GPUs on the PCI bus that NVML does not count."""
        nvml = self._facts.nvml
        uncounted = 0 if isinstance(nvml, Unknown) else len(nvml.undescribed)
        # Which of them NVML counts and cannot describe is not known: as many of the first are taken for those.
        unnamed = self._unnamed[uncounted:]
        for pci in (*unnamed, *self._held):
            fate, why = self._fate_on_the_bus(pci)
            yield GpuAccount(fate, one_line(why), pci_bus_id=pci, on_bus=True, driver=self._driver(pci))

    def of_others(self) -> Iterator[GpuAccount]:
        """Yield the GPUs of other makers."""
        for pci, maker in (self._nodes.other_gpus if self._nodes else {}).items():
            why = "a TensorFlow for CUDA does not use it"
            yield GpuAccount(Fate.OTHER_MAKER, why, maker=maker, pci_bus_id=pci, on_bus=True)

    @cached_property
    def _unnamed(self) -> list[str]:
        """GPUs on the bus that NVML does not describe and no other driver holds."""
        described = {device.pci_bus_id.lower() for device in self._facts.nvml_devices}
        return [device for pci, device in self._bus.items() if pci not in described and not self._is_held(device)]

    @cached_property
    def _held(self) -> list[str]:
        described = {device.pci_bus_id.lower() for device in self._facts.nvml_devices}
        return [device for pci, device in self._bus.items() if pci not in described and self._is_held(device)]

    def _is_held(self, pci: str) -> bool:
        return bool(self._driver(pci)) and not self._driver(pci).startswith(_NVIDIA)

    def _driver(self, pci: str) -> str:
        bound = self._nodes.bound if self._nodes else {}
        return bound.get(self._bus.get(pci.lower(), pci), "")

    @cached_property
    def _named(self) -> dict[str, physical_devices.JoinedDevice]:
        """The names that CUDA and TensorFlow give each GPU, by PCI bus id."""
        readings = Rows(self._evidence.rows).readings("discovery.physical_devices", physical_devices.Reading)
        return {device.pci_bus_id.lower(): device for reading in readings for device in reading.devices}

    @cached_property
    def _verified(self) -> dict[str, str]:
        """The first probe that verified a kernel on each GPU, by PCI bus id."""
        verified: dict[str, str] = {}
        for row in self._evidence.rows:
            for pci in row.outcome.verified if isinstance(row.outcome, Judged) else ():
                verified.setdefault(pci.lower(), row.probe)
        return verified

    @cached_property
    def _unfit(self) -> dict[str, str]:
        """The proved cause that makes a GPU unfit for use, by PCI bus id, for causes that name their GPUs."""
        return {pci.lower(): cause.cause for cause in self._diagnosis.proved if cause.unfit for pci in cause.gpus}

    @cached_property
    def _ignored(self) -> dict[str, tuple[Fate, str]]:
        """TensorFlow's own reason for leaving a GPU out of its list, by PCI bus id."""
        fates: dict[str, tuple[Fate, str]] = {}
        listing = self._evidence.listing
        for event in listing.all(TOO_FEW_CORES, TOO_LOW_CAPABILITY):
            low = event.message is TOO_LOW_CAPABILITY
            measure = f"compute capability {event['has']}" if low else f"{event['cores']} multiprocessors"
            if pci := event["pci"].lower():
                fates[pci] = (Fate.REFUSED, f"by TensorFlow: {measure}, it asks for {event['least']}")
        return fates

    def _hidden_by(self) -> str:
        """Say what keeps a GPU that NVML describes out of scope."""
        value = self._facts.variables.get(MASK)
        if value is None:
            return "by CUDA"
        mask = mask_in_force(self._facts)
        setter = self._facts.set_by_python.get(MASK)
        file = f", which {setter} sets" if setter else ""
        if mask.twice:
            return f"by {MASK}={value!r}{file}: it names {mask.twice} twice, which hides every GPU"
        if mask.ignored:
            return f"by {MASK}={value!r}{file}: its list ends at {mask.ignored[0]!r}, which names no GPU here"
        if mask.beside:
            return f"by {MASK}={value!r}{file}: a process can use whole GPUs or one MIG instance, not both"
        return f"by {MASK}={value!r}{file}"

    def _fate(self, device: NvmlDevice) -> tuple[Fate, str]:
        """Return what became of a GPU in scope."""
        pci = device.pci_bus_id.lower()
        if unfit := self._unfit.get(pci):
            return Fate.UNFIT, unfit
        if probe := self._verified.get(pci):
            parts = len(device.mig_uuids)
            return Fate.USED, f"kernel verified by {probe}{f', on 1 of {parts} MIG instances' if parts else ''}"
        if refused := self._ignored.get(pci):
            return refused
        if device.mig_mode == "enabled" and not device.mig_uuids:
            return Fate.REFUSED, "by the driver: MIG mode is on, and there is no instance"
        if device.compute_mode == "prohibited":
            return Fate.REFUSED, "by the driver: compute mode prohibited"
        busy = [process.pid for process in device.processes if process.computes]
        if (device.compute_mode or "").startswith("exclusive") and busy:
            return Fate.REFUSED, f"by the driver: compute mode {device.compute_mode}, and process {busy[0]} uses it"
        if not self._has_code(device):
            return Fate.NO_KERNEL, f"this TensorFlow has no code for compute capability {device.compute_capability}"
        if self._diagnosis.broken_at is not None and self._diagnosis.causes:
            return Fate.NOT_VERIFIED, self._diagnosis.causes[0].cause
        return Fate.NOT_VERIFIED, self._not_run(pci)

    def _not_run(self, pci: str) -> str:
        """Return the outcomes of the probes that were given a GPU on which no kernel was verified."""
        uuids = {gpu.uuid for place, gpu in self._scope.items() if place == pci}
        rows = [row for row in self._evidence.rows if uuids & set(row.devices)]
        failed = next((row for row in rows if row.status in ("fail", "broken")), None)
        if failed is not None:
            return f"see {failed.probe}"
        if rows and all(isinstance(row.outcome, Skipped) for row in rows):
            return f"skipped: {rows[0].outcome.reason}" if isinstance(rows[0].outcome, Skipped) else ""
        return "no probe ran a kernel on it"

    def _has_code(self, device: NvmlDevice) -> bool:
        """Return False if the build is known to have neither machine code nor PTX for the GPU."""
        facts = self._facts.tensorflow
        build = None if isinstance(facts, Unknown) else facts.build
        if build is None or not build.compute_capabilities or not device.compute_capability:
            return True
        try:
            return any(code_for(device.compute_capability, build.compute_capabilities))
        except ValueError:  # a build or a driver that spells capabilities otherwise
            return True

    def _fate_on_the_bus(self, pci: str) -> tuple[Fate, str]:
        """Return what became of a GPU that NVML does not count."""
        nvml, container = self._facts.nvml, self._facts.container
        if driver := self._driver(pci) if self._is_held(pci) else "":
            return Fate.OTHER_DRIVER, f"by the kernel driver {driver}"
        if hidden := self._kept_out(container):
            return Fate.HIDDEN, hidden
        if not isinstance(self._facts.kernel, Unknown) and pci in self._facts.kernel.excluded:
            return Fate.HIDDEN, "by a parameter of NVIDIA's module: NVreg_ExcludedGpus"
        if isinstance(nvml, Unknown):
            return Fate.NOT_KNOWN, nvml.reason
        module = "" if isinstance(self._facts.driver, Unknown) else self._facts.driver.kernel_module or ""
        if not nvml.devices and nvml.error:
            return Fate.NOT_KNOWN, f"NVML says: {nvml.error}"
        if not module:
            return Fate.LOST, "NVIDIA's kernel module is not loaded"
        return Fate.LOST, "NVML does not count it: sudo dmesg | grep -i -e nvrm -e xid"

    def _kept_out(self, container: ContainerFacts | Unknown) -> str:
        """Return why only the bus shows a GPU; "" if no reason is known."""
        if isinstance(container, Unknown):
            return ""
        if container.slurm_job is not None:
            return f"by Slurm: job {container.slurm_job} was not given it"
        if container.name is None:
            return ""
        visible_devices = self._facts.variables.get("NVIDIA_VISIBLE_DEVICES")
        chosen = f": NVIDIA_VISIBLE_DEVICES={visible_devices!r}" if visible_devices else ""
        return f"by the container ({container.name}){chosen}"
