"""Examples of causes: the first calls of the driver, slow or never coming back."""

from __future__ import annotations

from examples import Example
from examples.facts import example_with_gpus
from gpudiag.cause import Evidence
from gpudiag.model.facts import CallFacts, EnvironmentFacts, TimedCall, Unknown

_OPENED = TimedCall("dlopen(libcuda.so.1)", 0.01)


def _machine(*calls: TimedCall) -> Evidence:
    return Evidence(example_with_gpus(calls=CallFacts((_OPENED, *calls))))


EXAMPLES = {
    "driver_call_hangs": (
        Example("cuInit never returns", _machine(TimedCall("cuInit", None, waited_s=40.0))),
        Example("a GPU never makes a context", _machine(TimedCall("cuDevicePrimaryCtxRetain", None, "GPU-0", 10.0))),
        Example("in a probe", _machine(TimedCall("cuMemcpyHtoDAsync", None, "", 35.0, "placement.log"))),
        Example("a library hangs", _machine(TimedCall("cudnnCreate", None, "", 35.0, "libraries.cudnn")), fires=False),
        Example("it returns late", _machine(TimedCall("cuInit", 39.0)), fires=False),
        Example("nobody asked", Evidence(example_with_gpus(calls=Unknown("not asked"))), fires=False),
    ),
    "library_slow_to_start": (
        Example("cuDNN is slow", _machine(TimedCall("cudnnCreate", 25.0, "GPU-0", 0.0, "libraries.cudnn"))),
        Example(
            "it loads all its kernels",
            Evidence(
                example_with_gpus(
                    calls=CallFacts((TimedCall("cublasCreate", 12.0, "", 0.0, "placement.log"),)),
                    environment=EnvironmentFacts({"CUDA_MODULE_LOADING": "EAGER"}),
                )
            ),
        ),
        Example(
            "two seconds are usual", _machine(TimedCall("cudnnCreate", 2.0, "", 0.0, "libraries.cudnn")), fires=False
        ),
        Example("the driver is slow", _machine(TimedCall("cuMemAlloc", 25.0, "", 0.0, "memory.growth")), fires=False),
        Example("it never returns", _machine(TimedCall("cudnnCreate", None, "", 35.0, "libraries.cudnn")), fires=False),
    ),
    "driver_call_slow": (
        Example("in a probe", _machine(TimedCall("cuMemAlloc", 25.0, "", 0.0, "memory.growth"))),
        Example("a library is slow", _machine(TimedCall("cudnnCreate", 25.0, "", 0.0, "libraries.cudnn")), fires=False),
        Example("cuInit takes 25 s", _machine(TimedCall("cuInit", 25.02), TimedCall("nvmlInit", 0.02))),
        Example("both are slow", _machine(TimedCall("cuInit", 8.0), TimedCall("nvmlInit", 7.0))),
        Example("two seconds are usual", _machine(TimedCall("cuInit", 2.1), TimedCall("nvmlInit", 0.02)), fires=False),
        Example("it never returns", _machine(TimedCall("cuInit", None, waited_s=40.0)), fires=False),
    ),
}
