"""fewer GPUs are in scope than required

A machine that lost its GPUs runs TensorFlow on the CPU without an error; --require-gpus makes that a failure. The
evidence lists the places in which GPUs were looked for. The first place without them says what to look at: the PCI bus
the hardware, /proc/driver/nvidia the driver, /dev permissions and containers, NVML the driver's libraries, and
CUDA_VISIBLE_DEVICES what hides GPUs.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.visibility import MASK, PROGRAMMING_GUIDE, slurm_job
from gpudiag.fix import Action, ask, install, kernel_log, note, nvidia_smi, run_container, start, unset
from gpudiag.model.facts import DeviceNodeFacts, DriverFacts, EnvironmentFacts, Facts, NvmlFacts, Unknown
from gpudiag.model.missing import missing_gpus
from gpudiag.model.report import Limits
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.text import counted

CAUSE = Cause(
    title="{shown} in scope, {required} required",
    fix=(
        unset("CUDA_VISIBLE_DEVICES"),
        note("if {shown} will do: {option} {found}"),
        note("if no GPU is needed here: {instead}"),
    ),
    url=PROGRAMMING_GUIDE,
    needs_gpu=False,
    symptom=True,
    finding="host.gpus.too_few",
)


def find(facts: Facts, limits: Limits) -> Matches:
    gpus = gpus_in_scope(facts)
    counting = [gpu for gpu in gpus if limits.count_simulated or not gpu.simulated]
    found = len(counting)
    if found < limits.require_gpus:
        first, seen = _where(facts, limits, simulated=len(gpus) - found)
        yield Match(
            evidence=(
                *seen,
                f"PCI bus: {_pci(facts.device_nodes)}",
                f"/proc/driver/nvidia: {_module(facts.driver)}",
                f"/dev/nvidia*: {_nodes(facts.device_nodes)}",
                f"NVML: {_nvml(facts.nvml)}",
                f"CUDA_VISIBLE_DEVICES: {_mask(facts.environment)}",
            ),
            figures={
                "shown": counted(found, "GPU" if found == len(gpus) else "real GPU"),
                "found": found,
                "required": limits.require_gpus,
                "option": "--gpudiag-require-gpus" if limits.by_plugin else "--require-gpus",
                "instead": "leave --gpudiag-require-gpus out"
                if limits.by_plugin
                else "--allow-no-gpu instead of --require-gpus",
            },
            fix=(first, CAUSE.fix[1 if found else 2]),
        )


def _where(facts: Facts, limits: Limits, *, simulated: int) -> tuple[Action, tuple[str, ...]]:
    """Return how to get the missing GPUs, and further evidence that they are missing."""
    required = limits.require_gpus
    if simulated:
        start_of, option = ("pytest", "--gpudiag-") if limits.by_plugin else ("gpudiag check", "--")
        seen = f"simulated GPUs count only if {option}simulate is on the same command line"
        return ask(f"{start_of} {option}simulate={required} {option}require-gpus={required}"), (seen,)
    if job := slurm_job(facts):
        return start(f"sbatch --gpus-per-node={required} ...", "if the job requests too few"), (f"Slurm job {job}",)
    container = None if isinstance(facts.container, Unknown) else facts.container.name
    if len(facts.nvml_devices) >= required and MASK in facts.variables:
        return unset(MASK, note="makes the hidden GPUs visible"), ()
    if missing := missing_gpus(facts):
        return kernel_log("shows why a GPU is missing"), missing
    nodes = facts.device_nodes
    if not isinstance(nodes, Unknown) and nodes.other_gpus and not nodes.pci_gpus and not nodes.nodes:
        makers = set(nodes.other_gpus.values())
        seen = f"TensorFlow for CUDA uses NVIDIA's GPUs alone, and this machine has {' and '.join(sorted(makers))}'s"
        if "AMD" in makers:
            return install("tensorflow-rocm", note="AMD's build of TensorFlow, if ROCm supports this GPU"), (seen,)
        return note("use a machine with an NVIDIA GPU, or TensorFlow on the CPU"), (seen,)
    if container:
        return run_container("--gpus all", note="or nvidia.com/gpu in the pod's limits"), (f"container: {container}",)
    return nvidia_smi("lists the GPUs of this machine", "-L"), ()


def _nvml(nvml: NvmlFacts | Unknown) -> str:
    if isinstance(nvml, Unknown):
        return nvml.reason
    count = counted(len(nvml.devices), "GPU")
    return count if nvml.error is None else f"{count}, {nvml.error}"


def _nodes(nodes: DeviceNodeFacts | Unknown) -> str:
    if isinstance(nodes, Unknown):
        return nodes.reason
    return " ".join(node.path for node in nodes.nodes) or "none"


def _module(driver: DriverFacts | Unknown) -> str:
    if isinstance(driver, Unknown):
        return driver.reason
    return driver.kernel_module or "not there"


def _pci(nodes: DeviceNodeFacts | Unknown) -> str:
    if isinstance(nodes, Unknown):
        return nodes.reason
    others = ", ".join(f"{maker} GPU {pci}" for pci, maker in nodes.other_gpus.items())
    return " ".join(nodes.pci_gpus) or f"no NVIDIA GPU{f'; {others}' if others else ''}"


def _mask(environment: EnvironmentFacts | Unknown) -> str:
    if isinstance(environment, Unknown):
        return environment.reason
    value = environment.variables.get("CUDA_VISIBLE_DEVICES")
    return "not set" if value is None else f"'{value}'"
