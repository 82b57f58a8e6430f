"""Simulated GPUs under the unmodified CUDA wheel of TensorFlow.

Driver, CUDA libraries and NVML are replaced by small libraries of our own (src/), found through
LD_LIBRARY_PATH; TensorFlow's GPU kernels are forwarded to its CPU kernels. Everything else is
TensorFlow's own code.

What is not simulated, and what happens instead:

- XLA: what asks for it runs without it, and that is said once a process.
- Hand-written CUDA kernels: the op that launches one raises UnimplementedError with its name. If no
  op launches it, the device is stopped, so that every later read from it raises InternalError.
- Kernels that TensorFlow has for the GPU alone: cuDNN's RNN, NCCL's and some others are computed in
  another way (src/kernels.cc: computed_otherwise); the rest is NotFoundError that says "simulated GPU".
- Collectives of tf.distribute run TensorFlow's CPU ring.
- Keras' own choices of XLA (jit_compile="auto") and cuDNN (LSTM, GRU) are turned off, and said.
- Speed, utilisation, power and temperature (NVML: "not supported"), the memory that contexts and
  libraries really take (a constant is charged), NVLink, ECC, the numerics of TF32 and cuDNN
  (numbers are the CPU's). A profiler gets each operation as one kernel, with the host's times.

Importing this package costs nothing: names are loaded when used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpudiag.simulator.command import run, run_on
    from gpudiag.simulator.errors import (
        CudaWheelMissing,
        FaultError,
        RealDriverMapped,
        SimulatorBroken,
        SimulatorError,
        SimulatorMissing,
        SpecError,
    )
    from gpudiag.simulator.faults import (
        CATALOGUE,
        Fault,
        catalogue_text,
        fault_environment,
        no_effect,
        parse_fault,
    )
    from gpudiag.simulator.machine import (
        COMMAND_VARIABLE,
        MACHINE_VARIABLE,
        SPEC_FILE,
        Machine,
        library_directory,
        require_linux,
    )
    from gpudiag.simulator.spec import PRESETS, STATES, MachineSpec, SimulatedGpu, parse_spec
    from gpudiag.simulator.tensorflow_build import cpu_only_tensorflow, preload, require_cuda_wheel

_HOME = {
    "CudaWheelMissing": "errors",
    "FaultError": "errors",
    "RealDriverMapped": "errors",
    "SimulatorBroken": "errors",
    "SimulatorError": "errors",
    "SimulatorMissing": "errors",
    "SpecError": "errors",
    "CATALOGUE": "faults",
    "Fault": "faults",
    "catalogue_text": "faults",
    "fault_environment": "faults",
    "no_effect": "faults",
    "parse_fault": "faults",
    "COMMAND_VARIABLE": "machine",
    "MACHINE_VARIABLE": "machine",
    "SPEC_FILE": "machine",
    "Machine": "machine",
    "library_directory": "machine",
    "run": "command",
    "run_on": "command",
    "PRESETS": "spec",
    "STATES": "spec",
    "SimulatedGpu": "spec",
    "MachineSpec": "spec",
    "parse_spec": "spec",
    "cpu_only_tensorflow": "tensorflow_build",
    "preload": "tensorflow_build",
    "require_cuda_wheel": "tensorflow_build",
    "require_linux": "machine",
}

__all__ = [
    "CATALOGUE",
    "COMMAND_VARIABLE",
    "MACHINE_VARIABLE",
    "PRESETS",
    "STATES",
    "CudaWheelMissing",
    "Fault",
    "FaultError",
    "SimulatedGpu",
    "Machine",
    "MachineSpec",
    "RealDriverMapped",
    "SimulatorBroken",
    "SimulatorError",
    "SimulatorMissing",
    "SPEC_FILE",
    "SpecError",
    "catalogue_text",
    "cpu_only_tensorflow",
    "fault_environment",
    "library_directory",
    "no_effect",
    "parse_fault",
    "parse_spec",
    "preload",
    "require_cuda_wheel",
    "require_linux",
    "run",
    "run_on",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
