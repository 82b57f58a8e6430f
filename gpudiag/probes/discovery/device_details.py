"""Each GPU has a compute capability that this TensorFlow brings machine code for.

What it does
    Asks `tf.config.experimental.get_device_details` for the name and the compute capability of each GPU, compares the
    capability with NVML's, and looks it up in the list that the installed TensorFlow was built for. Machine code runs
    on GPUs of the same major version and the same or a later minor one; PTX is compiled by the driver for any GPU that
    is not older. It also reads TensorFlow's log about the capability.
Why it matters
    Without machine code the driver compiles kernels at their first use: a program can stand still for many minutes.
    Without PTX either, no kernel runs, although TensorFlow 2.21 lists the GPU and announces a compilation all the same.
What to do
    For a GPU that is too new, install a later TensorFlow; until then keep what the driver compiled:
    `export CUDA_CACHE_MAXSIZE=4294967296`, and `CUDA_CACHE_PATH` on a disk that stays. For one that is too old, install
    an earlier release. `tf.sysconfig.get_build_info()['cuda_compute_capabilities']` shows the list.
"""

from __future__ import annotations

from gpudiag import fix, probe
from gpudiag.knowledge.cuda_code import code_for
from gpudiag.model.facts import Facts, Unknown
from gpudiag.probe import Context, Findings, fail, warn
from gpudiag.probes.common import without_machine_code
from gpudiag.record import Record

PROBE = probe.Probe(needs=probe.Needs(gpus=1), scope=probe.Scope.ALL_GPUS, quick=True)


class Fault(probe.GpuFaults):
    ptx_only = warn(
        "{name} ({pci_bus_id}) has compute capability {capability}, this TensorFlow was built for {built}: "
        "the driver compiles each kernel from PTX at its first use",
        means="TensorFlow has no machine code for this GPU: the driver compiles each kernel from PTX at its first use.",
        do=fix.export(
            "CUDA_CACHE_MAXSIZE", "4294967296", "install a TensorFlow built for it, or keep the compiled kernels"
        ),
    )
    too_old = fail(
        "{name} ({pci_bus_id}) has compute capability {capability}, this TensorFlow was built for {built}: "
        "no kernel runs on it",
        means="There is neither machine code nor PTX for this GPU, so no kernel of TensorFlow runs on it.",
        do="Hide it (leave its UUID out of CUDA_VISIBLE_DEVICES), or install an earlier TensorFlow built for it.",
    )
    capability_differs = fail(
        "{pci_bus_id} has compute capability {capability} by TensorFlow and {expected} by NVML",
        means="TensorFlow and NVML report two capabilities, so they do not mean the same GPU.",
        do=fix.export(
            "CUDA_VISIBLE_DEVICES", "GPU-...", "choose GPUs by UUID, which no order changes; nvidia-smi -L lists them"
        ),
    )


class Details(Record):
    """TensorFlow's details of one GPU."""

    name: str
    compute_capability: str
    """The compute capability, such as ``8.0``; empty if TensorFlow does not report it."""


class Reading(probe.Reading):
    """The details of each GPU."""

    given: tuple[str, ...]
    """PCI bus ids of the GPUs that the probe was given, in the order of ``CUDA_VISIBLE_DEVICES``."""
    devices: tuple[Details, ...]
    """The details of each GPU, in the order of TensorFlow's numbers."""
    compiled: tuple[str, ...]
    """Compute capabilities for which TensorFlow's log announces kernels compiled from PTX."""

    def figure(self) -> str:
        if len(self.devices) < len(self.given):
            return f"TensorFlow lists {len(self.devices)} of {len(self.given)} GPUs"
        capabilities = dict.fromkeys(device.compute_capability for device in self.devices)
        return f"compute capability {', '.join(filter(None, capabilities)) or 'not known'}"


def measure(ctx: Context) -> Reading:
    config = ctx.tf.config
    with ctx.placements() as log:
        details = [config.experimental.get_device_details(gpu) for gpu in config.list_physical_devices("GPU")]
    return Reading(
        given=tuple(gpu.pci_bus_id for gpu in ctx.gpus),
        devices=tuple(
            Details(detail.get("device_name", ""), ".".join(map(str, detail.get("compute_capability", ()))))
            for detail in details
        ),
        compiled=without_machine_code(log.lines),
    )


def judge(reading: Reading, facts: Facts) -> Findings:
    if len(reading.devices) < len(reading.given):
        yield Fault.gpu_not_seen.found(seen=len(reading.devices), given=len(reading.given))
        return
    by_nvml = {device.pci_bus_id: device.compute_capability for device in facts.nvml_devices}
    built = _built(facts)
    for pci_bus_id, device in zip(reading.given, reading.devices, strict=True):
        capability = device.compute_capability
        expected = by_nvml.get(pci_bus_id)
        if expected is not None and expected != capability:
            found = capability or "(not named)"
            yield Fault.capability_differs.found(pci_bus_id=pci_bus_id, capability=found, expected=expected)
        if not capability:
            continue
        machine_code, ptx = code_for(capability, built) if built else (True, True)
        if machine_code and capability not in reading.compiled:
            continue
        kind = Fault.ptx_only if machine_code or ptx else Fault.too_old
        listed = ", ".join(built) or "others"
        yield kind.found(name=device.name, pci_bus_id=pci_bus_id, capability=capability, built=listed)


def _built(facts: Facts) -> tuple[str, ...]:
    if isinstance(facts.tensorflow, Unknown) or facts.tensorflow.build is None:
        return ()
    return facts.tensorflow.build.compute_capabilities
