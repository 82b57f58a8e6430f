"""The record of one GPU in a report's account of all GPUs."""

from __future__ import annotations

from enum import Enum

from gpudiag.record import Record


class Fate(str, Enum):
    """The final state of a GPU in a run."""

    USED = "used"
    """A kernel ran on it, and its result and PCI bus id were verified."""
    NOT_VERIFIED = "not verified"
    """In scope, but no probe verified a kernel on it."""
    UNFIT = "unfit"
    """In scope, but a proved cause says that it must not be relied on, whatever was verified on it."""
    REFUSED = "refused"
    """In scope, but the driver or TensorFlow refuses it."""
    NO_KERNEL = "without kernels"
    """In scope, but this TensorFlow has no code for it."""
    HIDDEN = "hidden"
    """Not in scope: a mask or a container leaves it out."""
    OTHER_DRIVER = "held"
    """Another kernel driver holds it, such as vfio-pci for a virtual machine."""
    LOST = "lost"
    """It does not answer, or the driver does not know it."""
    NOT_KNOWN = "not known"
    """Unknown because NVML could not be asked."""
    OTHER_MAKER = "of another maker"
    """Not NVIDIA's: TensorFlow's CUDA build does not use it."""


class GpuAccount(Record):
    """What became of one GPU."""

    fate: Fate
    why: str
    """The reason in one line, which completes the sentence ``<fate>: ...``."""
    maker: str = "NVIDIA"
    name: str = ""
    """Its name by NVML; empty if NVML does not describe the GPU."""
    pci_bus_id: str = ""
    """Its PCI bus id; empty if NVML only counts the GPU and the bus does not show which one it is."""
    uuid: str = ""
    on_bus: bool = False
    """Whether the PCI bus shows it."""
    nvml: int | None = None
    """NVML's index; None if NVML does not count it."""
    cuda: int | None = None
    """CUDA's number under the mask in force; None if CUDA does not show it, or was not asked."""
    tensorflow: str = ""
    """TensorFlow's name, such as ``GPU:0``; empty if it does not list it, or was not asked."""
    driver: str = ""
    """The kernel driver that it is bound to; empty if there is none, or if that is not known."""
