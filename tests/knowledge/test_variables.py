"""Which values of a variable are read, and what is meant by others."""

from __future__ import annotations

import pytest

from gpudiag.knowledge.variables import ACCEPTED


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_named_is_read_and_what_is_meant_too(name: str) -> None:
    accepted = ACCEPTED[name]
    for value in (*accepted.words, *accepted.meanings.values(), *filter(None, [accepted.usual])):
        assert accepted.reads(value)
    assert not accepted.reads("no such value")
    assert all(accepted.meant_by(word.lower()) == word for word in accepted.words)


@pytest.mark.parametrize(
    ("name", "value", "read", "meant"),
    [
        ("TF_FORCE_GPU_ALLOW_GROWTH", "True", False, "true"),
        ("TF_FORCE_GPU_ALLOW_GROWTH", "0", False, "false"),
        ("TF_FORCE_GPU_ALLOW_GROWTH", "", False, "true"),
        ("TF_FORCE_GPU_ALLOW_GROWTH", "maybe", False, None),
        ("TF_GPU_ALLOCATOR", "", True, None),
        ("TF_GPU_ALLOCATOR", "cuda-malloc-async", False, "cuda_malloc_async"),
        ("TF_GPU_THREAD_MODE", "GPU_PRIVATE", True, "gpu_private"),
        ("TF_GPU_THREAD_MODE", "", False, None),
        ("CUDA_DEVICE_ORDER", "PCI", False, "PCI_BUS_ID"),
        ("CUDA_DEVICE_ORDER", "0,1", False, None),
        ("CUDA_LAUNCH_BLOCKING", "off", False, "0"),
        ("TF_CPP_MIN_LOG_LEVEL", " 2", True, None),
        ("TF_CPP_MIN_LOG_LEVEL", "ERROR", False, None),
    ],
)
def test_what_is_read_and_what_is_meant(name: str, value: str, read: bool, meant: str | None) -> None:
    assert ACCEPTED[name].reads(value) is read
    assert ACCEPTED[name].meant_by(value) == meant
