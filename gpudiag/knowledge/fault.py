"""What is said of every fault, by a message of a log or by a cause: the stage that it breaks, and how certain it is."""

from __future__ import annotations

from enum import Enum


class Stage(str, Enum):
    """The steps of TensorFlow's way to a GPU, in its order; the first that fails is why no GPU is used."""

    PACKAGE = "package"
    BUILD = "CUDA build"
    RUNTIME_LIBRARY = "runtime library"
    DRIVER_LIBRARY = "driver library"
    DRIVER = "cuInit"
    NVML = "NVML"
    DEVICE_COUNT = "device count"
    LIBRARIES = "library check"
    DEVICE_FILTER = "device filter"
    CONTEXT = "context"
    MEMORY = "memory"
    FIRST_OP = "first op"
    CONFIGURATION = "configuration"
    """The stage after all others: the GPU is used, but not as the user meant."""
    PROGRAM = "program"
    """The stage of faults in the program itself, as `gpudiag trace` saw them."""


class Confidence(str, Enum):
    """How certain a cause is."""

    PROVED = "proved"
    LIKELY = "likely"
    POSSIBLE = "possible"
