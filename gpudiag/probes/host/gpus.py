"""As many GPUs are in scope as `--require-gpus` demands.

What it does
    Counts the GPUs that NVML reports and that `CUDA_VISIBLE_DEVICES` lets through, and compares the count with
    `--require-gpus`.
Why it matters
    A machine that lost its GPUs runs TensorFlow on the CPU without an error. A deployment or a test run that needs
    GPUs must fail there, not pass slowly.
What to do
    If NVML does not answer, see the findings of `host.driver`. If `CUDA_VISIBLE_DEVICES` hides GPUs, unset or
    correct it. In a container, pass the GPUs in: `docker run --gpus all`, or `nvidia.com/gpu` limits in Kubernetes.
"""

from __future__ import annotations

from gpudiag.model.facts import (
    NVML_ABSENT,
    Facts,
    Unknown,
)
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.probe import Needs, Probe
from gpudiag.text import listed

PROBE = Probe(needs=Needs(tensorflow=False), families=("nvml", "environment"), quick=True)


def figure(facts: Facts) -> str:
    if isinstance(facts.nvml, Unknown):
        return "not known"
    names = sorted({gpu.name for gpu in gpus_in_scope(facts)})
    total = len(facts.nvml.devices)
    if not total:
        return "no GPU" if facts.nvml.error in NVML_ABSENT else "not known"
    counted = ": ".join([f"{len(gpus_in_scope(facts))} of {total} GPUs in scope", *filter(None, [", ".join(names)])])
    bounded = () if isinstance(facts.calls, Unknown) else facts.calls.time_limited
    limited = [f"GPU {gpu.index}" for gpu in gpus_in_scope(facts) if gpu.pci_bus_id in bounded]
    return f"{counted}; the driver limits how long a kernel may run on {listed(limited)}" if limited else counted
