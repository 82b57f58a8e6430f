"""Logs of programs that need no GPU, or were done without one, and of trainings, which wanted one."""

from __future__ import annotations

from gpudiag.knowledge.relevance import ended_without_gpu

_FAULT = (
    "2024-05-01 10:00:00.000000: E external/local_xla/xla/stream_executor/cuda/cuda_driver.cc:274] "
    "failed call to cuInit: CUDA_ERROR_UNKNOWN: unknown error"
)
_SERVED = "TensorBoard 2.13.0 at http://localhost:6006/ (Press CTRL+C to quit)"
_SAVED = "Results saved to out.csv"


def test_a_server_of_pages_and_work_that_is_done_need_no_gpu() -> None:
    assert ended_without_gpu((_FAULT, _SERVED)) == 1
    assert ended_without_gpu((_FAULT, "reading reads.bam", _SAVED)) == 2


def test_a_training_wanted_one_and_an_error_is_no_good_end() -> None:
    assert not ended_without_gpu((_FAULT, "Epoch 1/2", "10/10 - 12s 1s/step - accuracy: 0.5", _SAVED))
    assert not ended_without_gpu((_FAULT, "step 100: loss = 0.5", _SAVED))
    assert not ended_without_gpu((_FAULT, "using the CPU, no CUDA here", _SAVED))
    assert not ended_without_gpu((_FAULT, _SERVED, "ValueError: too few reads"))
