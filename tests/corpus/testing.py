"""Tests that use GPUs, and tests that only seem to; and lines that look like errors and are none."""

from __future__ import annotations

from collections.abc import Callable

from conftest import Gpudiag
from corpus import Item

_LOG = ("--log", "app.log", "host", "discovery")
_MACHINE = "2x16GiB"
_HIDDEN = {"CUDA_VISIBLE_DEVICES": "-1"}
_PYTEST = ("-m", "pytest", "-p", "no:cacheprovider", "-v", "-rA", "app.py")
_TWO_TESTS = """
import pytest
import tensorflow as tf

@pytest.mark.parametrize("number", range(2))
def test_on_a_gpu(number):
    assert tf.reduce_sum(tf.ones([2, 2])) == 4
"""
_SKIPPED_TESTS = """
import pytest
import tensorflow as tf

@pytest.mark.skipif(not tf.config.list_physical_devices("GPU"), reason="no GPU")
@pytest.mark.parametrize("number", range(3))
def test_on_a_gpu(number):
    assert False
"""
_REGISTERED_TWICE = """\
2024-05-03 14:51:51.684995: E external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:9261] Unable to register cuDNN \
factory: Attempting to register factory for plugin cuDNN when one has already been registered
2024-05-03 14:51:51.685011: W external/local_xla/xla/service/computation_placer.cc:177] computation placer already \
registered. Please check linkage and avoid linking the same target more than once.
"""
_NO_TENSORRT = "2024-05-03 14:51:52.684995: W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] TF-TRT Warning: \
Could not find TensorRT\n"
_NO_COUNTERS = "2024-05-03 14:51:53.684995: E external/local_xla/xla/backends/profiler/gpu/cupti_error_manager.cc:135] \
cuptiSubscribe: error 35: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES\n"


def _tested(source: str, *options: str, **variables: str) -> Callable[[Gpudiag], None]:
    def prepare(gpudiag: Gpudiag) -> None:
        gpudiag.run_program(_MACHINE, source, *_PYTEST, *options, **variables)

    return prepare


def _logged(text: str) -> Callable[[Gpudiag], None]:
    def prepare(gpudiag: Gpudiag) -> None:
        (gpudiag.folder / "app.log").write_text(text)

    return prepare


def _harmless(number: int, title: str, log: str, said: str) -> Item:
    return Item(
        number,
        title,
        rule="",
        fix="",
        machine=_MACHINE,
        options=_LOG,
        prepare=_logged(log),
        harmless=said,
        log_recorded=True,
    )


ITEMS = (
    Item(
        75,
        "pytest-xdist: every worker sees every GPU and takes its memory",
        rule="workers_share_gpus",
        fix="pytest -n 2",
        machine=_MACHINE,
        options=_LOG,
        prepare=_tested(_TWO_TESTS, "-n", "2"),
    ),
    Item(
        75,
        "pytest-xdist: gpudiag in a worker",
        rule="workers_share_gpus",
        fix="os.environ['CUDA_VISIBLE_DEVICES'] = ['GPU-",
        machine=_MACHINE,
        variables={"PYTEST_XDIST_WORKER": "gw1", "PYTEST_XDIST_WORKER_COUNT": "4"},
    ),
    Item(
        77,
        "GPU tests skipped because the runner has no working GPU",
        rule="gpu_tests_skipped",
        fix="gpudiag check --require-gpus 1",
        after="mask_hides_all",
        machine=_MACHINE,
        variables=_HIDDEN,
        options=_LOG,
        prepare=_tested(_SKIPPED_TESTS, **_HIDDEN),
    ),
    _harmless(78, "Unable to register cuDNN factory", _REGISTERED_TWICE, "the first one is used"),
    _harmless(80, "TF-TRT Warning: Could not find TensorRT", _NO_TENSORRT, "TensorRT is optional"),
    Item(
        80,
        "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
        rule="profiling_not_permitted",
        fix="NVreg_RestrictProfilingToAdminUsers=0",
        machine=_MACHINE,
        options=_LOG,
        prepare=_logged(_NO_COUNTERS),
        log_recorded=True,
    ),
)
