"""Examples of the cause over the table of messages: lines that name their fault, and lines that do not."""

from __future__ import annotations

from examples import Example
from examples.facts import example_with_gpus
from gpudiag.cause import Evidence


def _said(*log: str) -> Evidence:
    return Evidence(example_with_gpus(1), lines=log)


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "named_in_log": (
        Example(
            "a container's hook",
            _said('docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].'),
        ),
        Example(
            "a GPU that is gone, in the kernel's log",
            _said("NVRM: Xid (PCI:0000:0b:00): 79, GPU has fallen off the bus."),
        ),
        Example("a harmless line", _said("TF-TRT Warning: Could not find TensorRT"), fires=False),
        Example("a line with no fix of its own", _said("failed call to cuInit: something"), fires=False),
    ),
}
