"""Shared by causes: GPUs of the host that do not reach a container."""

from __future__ import annotations

from dataclasses import dataclass

from gpudiag.cause import Evidence, Fix, Match
from gpudiag.causes.shared.refusals import names, sandbox_of
from gpudiag.fix import Action, fill_in, run_container, start
from gpudiag.knowledge.sandboxes import BY_NAME
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.facts import ContainerFacts, Facts, Unknown, is_gpu_file
from gpudiag.model.report import Figure
from gpudiag.text import counted

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
CONTROL = "/dev/nvidiactl"
UNIFIED_MEMORY = "/dev/nvidia-uvm"
_NONE = ("", "void", "none")
"""Values of NVIDIA_VISIBLE_DEVICES that give no GPU."""
_BY_NV = "/.singularity.d/libs/"
"""Where --nv of Apptainer puts the driver's libraries: what is missing beside them is not given by that option."""
TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"
PODS = "https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/"


@dataclass(frozen=True)
class InContainer:
    """A process that runs in a container."""

    facts: Facts
    container: ContainerFacts
    listed: int
    """The number of GPUs that TensorFlow lists."""

    @classmethod
    def of(cls, evidence: Evidence) -> InContainer | None:
        container = evidence.facts.container
        if isinstance(container, Unknown) or container.name is None:
            return None
        return cls(evidence.facts, container, evidence.trace.listed if evidence.trace else 0)

    @property
    def marks(self) -> str:
        """The signs of the container."""
        return f"in a container: {', '.join([*self.container.evidence, *['Kubernetes'] * self.container.kubernetes])}"

    @property
    def nodes(self) -> tuple[str, ...]:
        """The device files in this container."""
        nodes = self.facts.device_nodes
        return () if isinstance(nodes, Unknown) else tuple(node.path for node in nodes.nodes)

    @property
    def gpus(self) -> list[str]:
        """The device files of GPUs."""
        return [path for path in self.nodes if is_gpu_file(path) or path == "/dev/dxg"]

    @property
    def libcuda(self) -> str | None:
        return None if isinstance(self.facts.driver, Unknown) else self.facts.driver.libcuda_path

    @property
    def given_none(self) -> bool:
        """True if it is known that no device of a GPU is here, and TensorFlow lists none by another name."""
        known = not isinstance(self.facts.device_nodes, Unknown)
        return known and not self.listed and not self.facts.nvml_devices and not self.gpus

    def start(self, **variables: str) -> Action:
        """Return how to start a container with GPUs under this runtime, and with these variables."""
        sandbox = sandbox_of(self.facts) or BY_NAME["docker"]
        if (self.libcuda or "").startswith(_BY_NV):
            clause = "leave out -c, --contain and --containall, which give the container a /dev of its own"
            return start(f"{sandbox.name} exec --nv --bind /dev IMAGE COMMAND", clause)
        if not sandbox.give.container or not variables:
            return fill_in(sandbox.give, names(self.facts))
        options = (f"-e {name}={value}" for name, value in variables.items())
        return run_container("--gpus all", *options, image="IMAGE", note=sandbox.give.note)


@dataclass(frozen=True)
class WithoutGpu(InContainer):
    """A container that was given no GPU, though its host has one, or somebody asked for one."""

    @classmethod
    def of(cls, evidence: Evidence) -> WithoutGpu | None:
        inside = InContainer.of(evidence)
        if inside is None or not inside.given_none:
            return None
        container = cls(inside.facts, inside.container, inside.listed)
        return container if container.host or container.wanted is not None else None

    @property
    def wanted(self) -> str | None:
        return self.facts.variables.get(VISIBLE)

    @property
    def forbidden(self) -> bool:
        """True if the variable that requests GPUs requests none."""
        return self.wanted in _NONE

    @property
    def host(self) -> str:
        """The signs that the host has a GPU: containers see its PCI bus and its kernel modules, too."""
        nodes, driver = self.facts.device_nodes, self.facts.driver
        if not isinstance(nodes, Unknown) and nodes.pci_gpus:
            return f"the host has {counted(len(nodes.pci_gpus), 'GPU')}: PCI {' '.join(nodes.pci_gpus)}"
        if not isinstance(driver, Unknown) and driver.kernel_module:
            return f"the host runs NVIDIA's kernel module {driver.kernel_module}"
        return ""

    def match(self, fix: Fix = (), **figures: Figure) -> Match:
        library = "no libcuda.so.1" if self.libcuda is None else f"{self.libcuda} is here"
        return Match(
            evidence=(
                self.marks,
                f"no /dev/nvidia0 or the like here; {library}",
                *(() if self.wanted is None else (f"{VISIBLE}={self.wanted!r}",)),
                *((self.host,) if self.host else ()),
            ),
            confidence=Confidence.PROVED if self.host else Confidence.LIKELY if self.forbidden else Confidence.POSSIBLE,
            figures=figures,
            fix=fix,
            about=(VISIBLE,) if self.forbidden else (),
            # The toolkit that gives no device brings no library either; an image may.
            stage=Stage.DRIVER_LIBRARY if self.libcuda is None else Stage.DRIVER,
        )
