"""Examples of ``host.environment``."""

from __future__ import annotations

import msgspec

from examples.facts import example, example_gpu, example_with_gpus
from examples.hosts import Case
from gpudiag.knowledge.variables import (
    NO_JSON,
)
from gpudiag.model.facts import CudaFacts, EnvironmentFacts, Facts, Unknown


def _with(gpus: int = 0, **variables: str) -> Facts:
    environment = EnvironmentFacts(variables)
    return example_with_gpus(gpus, environment=environment) if gpus else example(environment=environment)


def _unequal(*shown: int, **variables: str) -> Facts:
    """Return the facts of a machine with unequal GPUs, of which CUDA shows those at the indices ``shown``."""
    cuda = CudaFacts(variables["CUDA_VISIBLE_DEVICES"], tuple(example_gpu(index).uuid for index in shown))
    facts = example_with_gpus(2, environment=EnvironmentFacts(variables), cuda=cuda)
    assert not isinstance(facts.nvml, Unknown)
    devices = (example_gpu(0), msgspec.structs.replace(example_gpu(1), name="NVIDIA T4"))
    return msgspec.structs.replace(facts, nvml=msgspec.structs.replace(facts.nvml, devices=devices))


CASES = (
    Case("nothing set", expect=(), facts=example_with_gpus(2)),
    Case(
        "good values",
        expect=(),
        facts=_with(
            2,
            CUDA_VISIBLE_DEVICES="1,0",
            CUDA_DEVICE_ORDER="PCI_BUS_ID",
            TF_FORCE_GPU_ALLOW_GROWTH="true",
            TF_GPU_ALLOCATOR="cuda_malloc_async",
            TF_CPP_MIN_LOG_LEVEL="1",
            TF_CUDNN_RNN_USE_AUTOTUNE="0",
        ),
    ),
    Case("empty mask", expect=("all_hidden",), facts=_with(1, CUDA_VISIBLE_DEVICES="")),
    Case("mask of -1", expect=("all_hidden",), facts=_with(1, CUDA_VISIBLE_DEVICES="-1")),
    Case("mask of Slurm without GPUs", expect=("all_hidden",), facts=_with(1, CUDA_VISIBLE_DEVICES="NoDevFiles")),
    Case("GPU named twice", expect=("all_hidden",), facts=_with(2, CUDA_VISIBLE_DEVICES="0,0")),
    Case("empty mask, no GPU", expect=(), facts=_with(CUDA_VISIBLE_DEVICES="")),
    Case("mask cut short", expect=("entries_ignored",), facts=_with(3, CUDA_VISIBLE_DEVICES="1,7,0")),
    Case("a range", expect=("entry_cut",), facts=_with(3, CUDA_VISIBLE_DEVICES="0-1")),
    Case("indices by spaces", expect=("entry_cut",), facts=_with(3, CUDA_VISIBLE_DEVICES="0 1")),
    Case("a hexadecimal index", expect=("entry_cut",), facts=_with(3, CUDA_VISIBLE_DEVICES="0x1")),
    Case("a fraction", expect=("entry_cut",), facts=_with(3, CUDA_VISIBLE_DEVICES="1, 0.0")),
    Case("spaces about indices", expect=(), facts=_with(3, CUDA_VISIBLE_DEVICES=" 1, +0 ")),
    Case("mask ended by -1", expect=(), facts=_with(3, CUDA_VISIBLE_DEVICES="1,-1")),
    Case("index among unequal GPUs", expect=("ambiguous_index",), facts=_unequal(CUDA_VISIBLE_DEVICES="0")),
    Case(
        "index in PCI order",
        expect=(),
        facts=_unequal(CUDA_VISIBLE_DEVICES="0", CUDA_DEVICE_ORDER="PCI_BUS_ID"),
    ),
    Case("index that CUDA tells", expect=(), facts=_unequal(1, CUDA_VISIBLE_DEVICES="0")),
    Case("CUDA shows fewer", expect=("index_not_known",), facts=_unequal(1, CUDA_VISIBLE_DEVICES="0,1")),
    Case("growth 1", expect=("growth_value",), facts=_with(TF_FORCE_GPU_ALLOW_GROWTH="1")),
    Case("growth True", expect=("growth_value",), facts=_with(TF_FORCE_GPU_ALLOW_GROWTH="True")),
    Case("growth empty", expect=("growth_value",), facts=_with(TF_FORCE_GPU_ALLOW_GROWTH="")),
    Case("allocator misspelt", expect=("allocator_value",), facts=_with(TF_GPU_ALLOCATOR="cuda_malloc_Async")),
    Case("order misspelt", expect=("value_ignored",), facts=_with(2, CUDA_DEVICE_ORDER="PCI_BUSID")),
    Case("blocking by a word", expect=("value_ignored",), facts=_with(2, CUDA_LAUNCH_BLOCKING="true")),
    Case("loading misspelt", expect=("value_ignored",), facts=_with(2, CUDA_MODULE_LOADING="LAZYY")),
    Case("level in words", expect=("value_ignored",), facts=_with(2, TF_CPP_MIN_LOG_LEVEL="three")),
    Case(
        "values that are read, and an empty one",
        expect=(),
        facts=_with(2, CUDA_LAUNCH_BLOCKING="1", CUDA_MODULE_LOADING="LAZY", CUDA_DEVICE_ORDER=""),
    ),
    Case("a mode of threads that there is not", expect=("threads_refused",), facts=_with(1, TF_GPU_THREAD_MODE="own")),
    Case(
        "threads in words",
        expect=("threads_refused",),
        facts=_with(1, TF_GPU_THREAD_MODE="gpu_private", TF_GPU_THREAD_COUNT="abc"),
    ),
    Case("threads in words, not read", expect=(), facts=_with(1, TF_GPU_THREAD_COUNT="abc")),
    Case("threads in words, no GPU", expect=(), facts=_with(TF_GPU_THREAD_MODE="own")),
    Case("a cluster that is no JSON", expect=("cluster_unreadable",), facts=_with(1, TF_CONFIG=NO_JSON)),
    Case("name misspelt", expect=("misspelt",), facts=_with(CUDA_VISIBLE_DEVCIES="(set)")),
    Case("misspelt, and its value is none", expect=("misspelt",), facts=_with(2, CUDA_VISABLE_DEVICES="7")),
    Case(
        "misspelt beside the right one",
        expect=("misspelt",),
        facts=_with(2, CUDA_VISABLE_DEVICES="1", CUDA_VISIBLE_DEVICES="0"),
    ),
    Case("name in lower case", expect=("misspelt",), facts=_with(cuda_visible_devices="(set)")),
    Case("name that nothing reads", expect=("misspelt",), facts=_with(TF_GPU_ALLOW_GROWTH="(set)")),
    Case("a variable of a user's own", expect=(), facts=_with(TF_MODEL_FOLDER="(set)")),
    Case("warnings hidden", expect=("log_hidden",), facts=_with(TF_CPP_MIN_LOG_LEVEL="2")),
    Case("errors hidden", expect=("log_hidden",), facts=_with(TF_CPP_MIN_LOG_LEVEL="3")),
    Case("not gathered", expect=("not_gathered",), facts=example(environment=Unknown("no answer within 10 s"))),
)
