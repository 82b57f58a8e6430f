"""What is computed with channels first on a simulated GPU equals what the CPU computes with channels last."""

from __future__ import annotations

import itertools

import pytest

from .on_machine import Inside

ROUNDING = {"float32": 1e-5, "float64": 1e-12, "float16": 5e-2, "bfloat16": 5e-2}

WITHOUT_AMX = {"bfloat16": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}}
"""On a processor with AMX, oneDNN in TensorFlow 2.21.0 computes a bfloat16 conv3d with strides of 2 and no padding
wrong, by 0.9 of the largest number, on plain CPU tensors, too. Float16 needs the instructions that this limit takes."""

ALSO = {(2, "bfloat16", True), (3, "float16", True), (3, "float64", False)}
"""Beside float32 alone: each type, both dimensions and both ways once; the rest are slow tests."""


@pytest.mark.parametrize(
    ("dimensions", "kind", "graph"),
    [
        pytest.param(
            *which,
            id="-".join((str(which[0]), which[1], "graph" if which[2] else "eager")),
            marks=[] if which[1:] == ("float32", False) or which in ALSO else [pytest.mark.slow],
        )
        for which in itertools.product((2, 3), ROUNDING, (False, True))
    ],
)
def test_channels_first_equals_channels_last(inside: Inside, dimensions: int, kind: str, graph: bool) -> None:
    found = inside(
        1,
        "channels_first",
        dimensions=dimensions,
        kind=kind,
        graph=graph,
        deadline=240,
        environment=WITHOUT_AMX.get(kind, {}),
    ).check()
    assert len(found) >= 5
    assert {
        name: error for name, error in found.items() if not isinstance(error, float) or error > ROUNDING[kind]
    } == {}


def test_kernels_that_only_a_gpu_has(inside: Inside) -> None:
    found = inside(1, "only_on_gpus").check()
    kind, text = found.pop("refused")
    assert kind == "InvalidArgumentError", "as on a GPU"
    assert "out of range for an int32" in text
    assert found == {
        "pool": True,
        "space": True,
        "depth": True,
        "second gradient": True,
        "second gradient of a batch": True,
        "in place": [True, True],
        "dilated": [True, True, True],
        "dilated filter": [True, True],
        "empty batch": [[0, 6, 3, 3], [0, 6, 3, 3]],
        "fused": [[], []],
    }
