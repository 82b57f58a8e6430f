"""Examples of causes: the first calls of the driver, slow or never coming back."""

from __future__ import annotations

from examples import Example
from examples.facts import example_with_gpus
from gpudiag.cause import Evidence
from gpudiag.model.facts import Call, CallFacts, Unknown

_OPENED = Call("dlopen(libcuda.so.1)", 0.01)


def _machine(*calls: Call) -> Evidence:
    return Evidence(example_with_gpus(calls=CallFacts((_OPENED, *calls))))


EXAMPLES = {
    "driver_call_hangs": (
        Example("cuInit never returns", _machine(Call("cuInit", None, waited_s=40.0))),
        Example("a GPU never makes a context", _machine(Call("cuDevicePrimaryCtxRetain", None, "GPU-0", 10.0))),
        Example("it returns late", _machine(Call("cuInit", 39.0)), fires=False),
        Example("nobody asked", Evidence(example_with_gpus(calls=Unknown("not asked"))), fires=False),
    ),
    "driver_call_slow": (
        Example("cuInit takes 25 s", _machine(Call("cuInit", 25.02), Call("nvmlInit", 0.02))),
        Example("both are slow", _machine(Call("cuInit", 8.0), Call("nvmlInit", 7.0))),
        Example("two seconds are usual", _machine(Call("cuInit", 2.1), Call("nvmlInit", 0.02)), fires=False),
        Example("it never returns", _machine(Call("cuInit", None, waited_s=40.0)), fires=False),
    ),
}
