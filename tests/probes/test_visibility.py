"""The advice of a visibility probe on a machine with one GPU."""

from __future__ import annotations

import msgspec
import pytest

from examples.facts import example_gpu, example_with_gpus
from gpudiag.model.facts import Facts, NvmlFacts
from gpudiag.model.report import Finding
from gpudiag.probe import FILLED_BYTES, Kernel, Work
from gpudiag.probes.visibility import list_remap
from gpudiag.report import words

_SPLIT = msgspec.structs.replace(example_gpu(1), mig_mode="enabled", mig_uuids=("MIG-0",))
_PCI = example_gpu().pci_bus_id
_DONE = Work(Kernel("GPU:0", _PCI, correct=True), {_PCI: FILLED_BYTES})
_ONE = list_remap.Reading("0", (_DONE,), given=(_PCI,), seen=1)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (example_with_gpus(1), "only a second GPU"),
        (example_with_gpus(nvml=NvmlFacts(None, None, None, (example_gpu(0), _SPLIT))), "only a second GPU"),
        (example_with_gpus(2), f"export CUDA_VISIBLE_DEVICES={example_gpu(0).uuid},{example_gpu(1).uuid}"),
    ],
)
def test_a_second_gpu_is_asked_for_only_where_there_is_one(facts: Facts, said: str) -> None:
    found = [finding for finding in list_remap.judge(_ONE, facts) if isinstance(finding, Finding)]
    assert [finding.kind for finding in found] == ["one_gpu"]
    assert said in words.advice(found[0])
