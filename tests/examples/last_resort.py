"""Examples of causes: the code that CUDA gave, where nothing else is known."""

from __future__ import annotations

from examples import Example
from examples.machines import NO_DEVICE, example_evidence, example_facts
from gpudiag.cause import Evidence
from gpudiag.model.diagnosis import Stage
from gpudiag.model.report import Broken, NoReading, Row


def _cases(stage: Stage) -> tuple[Example, ...]:
    """Return cases in which the driver's start, or the count of its devices, ends in many a code."""

    def ends_in(error: str) -> Evidence:
        if stage is Stage.DRIVER:
            return example_evidence(example_facts(), cuinit=error)
        return example_evidence(
            example_facts(), log=(f"could not retrieve CUDA device count: INTERNAL: CUDA error: : {error}",)
        )

    return (
        *(
            Example(code, ends_in(f"CUDA_ERROR_{code}: in words"))
            for code in ("NOT_INITIALIZED", "INVALID_DEVICE", "OUT_OF_MEMORY", "MPS_SERVER_NOT_READY", "A_NEW_ONE")
        ),
        Example("no device", ends_in(NO_DEVICE)),
        Example("it works", example_evidence(example_facts(), listed=1), fires=False),
    )


def _in_use(error: str) -> Evidence:
    """Return the evidence of a machine on which a child ended by a signal when it made TensorFlow's devices."""
    log = (f"E0000 00:00:1.2 7 gpu_device.cc:425] Failed to create stream: INTERNAL: {error}",)
    row = Row("discovery.logical_devices", (), Broken(NoReading.SIGNAL, "killed by SIGSEGV"), 0.0, log=log)
    return example_evidence(example_facts(), row, listed=1)


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "cuinit_fails": _cases(Stage.DRIVER),
    "device_count_fails": _cases(Stage.DEVICE_COUNT),
    "devices_fail": (
        Example("a signal", _in_use("")),
        Example("a signal, and a code in the log", _in_use("CUDA_ERROR_LAUNCH_FAILED: in words")),
        Example("it works", example_evidence(example_facts(), listed=1), fires=False),
    ),
}
