"""Texts that TensorFlow 2.18 to 2.20 print and 2.21 does not are recognised like their successors.

They were found by comparing what ``strings`` prints of the shared libraries of the four wheels, and are whole lines
here: a library holds them in pieces. The other texts say nothing of a fault of a GPU: steps of a compiler, checks of
XLA on itself, devices of AMD, the progress of a profile, and lines of NCCL, which ``reports/messages.md`` counts.
"""

from __future__ import annotations

import pytest

from gpudiag.knowledge.log import recognised
from gpudiag.knowledge.message import Worth

FAULTS = {
    "no_ptxas": (
        "F0000 nvptx_compiler.cc:712] Can't find ptxas binary.  You can pass the flag "
        "--xla_gpu_unsafe_fallback_to_driver_on_ptxas_not_found to use the GPU driver for compiling ptx instead.",
        "W0000 nvptx_compiler.cc:120] Can't find ptxas binary in ${CUDA_DIR}/bin.  Custom ptxas "
        "location can be specified using $PATH.",
    ),
    "driver_link_failed": ("cuLinkAddData fails. This is usually caused by stale driver version.",),
    "graphs_too_large": (
        "RESOURCE_EXHAUSTED: CUDA driver ran out of memory trying to instantiate CUDA graph with 40 nodes and 0 "
        "conditionals (total of 12 alive CUDA graphs in the process). You can try to (a) Give more memory",
        "Underlying backend ran out of memory trying to instantiate graph with 40 nodes and 0 conditionals",
    ),
    "dst_not_initialised": ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4294967296 bytes.",),
    "memory_for_pinning": (
        "could not allocate pinned host memory of size: 17179869184",
        "Failed to allocate HostMemory of size 1073741824",
    ),
    "launch_failed": (
        "failed to synchronous memcpy from device to host host dst: 0x7f0a; GPU src: 0x7f0b; size: 4=0x4",
        "failed to synchronous memcpy from host to device: GPU dst: 0x7f0a; host src: 0x7f0b; size: 4=0x4",
        "stream did not block host until done; was already in an error state",
        "Failed to synchronize GPU for autotuning.",
        "stream->BlockHostUntilDone failed: INTERNAL: stream error",
    ),
    "blas_failed": ("INTERNAL: No BLAS support for stream",),
    "dnn_not_there": ("INTERNAL: Creation of local cudnn handle failed.",),
    "solver_failed": (
        "cuSolver allocation failed",
        "cuSolver architecture mismatch error",
        "cuSolver execution failed",
        "cuSolver has not been initialized",
        "cuSolver internal error",
        "cuSolver mapping error",
    ),
    "no_workspace": (
        "Failed to determine best cudnn convolution algorithm for:",
        "To ignore this failure and try to use a fallback algorithm (which may have suboptimal performance), use "
        "XLA_FLAGS=--xla_gpu_strict_conv_algorithm_picker=false.  Please also file a bug for the root cause",
        "cudnnGetConvolutionForwardAlgorithm_v7 returned no suitable algorithms. This could be a cudnn bug.",
        "cudnnGetConvolutionBackwardDataAlgorithm_v7 returned no suitable algorithms. This could be a cudnn bug.",
        "The primary convolution algorithm failed memory allocation, while a secondary algorithm is not provided.",
        "None of the algorithms provided by cuDNN heuristics worked; trying fallback algorithms.",
    ),
    "wrong_results": (
        "Detected cudnn out-of-bounds write in conv output buffer! This is likely a cudnn bug.",
        "Results mismatch between different convolution algorithms.",
    ),
    "too_low_capability": (
        "StreamExecutor cuda device (0) is of insufficient compute capability: 3.5 required, device is 3.0",
    ),
    "profiling_not_permitted": ("PERMISSION_DENIED: CUPTI need root access!",),
    "nccl_nvml": (
        "NVML init failed.",
        "Failed to initialize NVML library.",
    ),
    "nccl_result": (
        "Terminating process due to async NCCL error: INTERNAL: NCCL operation ncclCommInitRank failed: remote error",
        "NCCL async error (rank 1): unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
    ),
    "rendezvous_stuck": (
        "This thread has been waiting for 5000ms for and may be stuck: participant "
        "AllReduceParticipantData{rank=27} waiting for all participants to arrive at rendezvous Key{run_id=1}",
        "Termination timeout for `acquire clique` of 30 seconds exceeded. Exiting to ensure a consistent state",
    ),
    "worker_restarted": (
        "UNAVAILABLE: Task /job:worker/replica:0/task:1 heartbeat timeout. This indicates that the remote task has "
        "failed, got preempted, or crashed unexpectedly. Check the task logs for an earlier error to debug further.",
        "/job:worker/replica:0/task:1 has been set to ERROR in coordination service: UNAVAILABLE: it ended",
        "Coordination agent is set to ERROR: UNAVAILABLE: it ended",
        "Failed to send RPC to coordination service. Either the leader task died/restarted unexpectedly",
        "Leader incarnation ID mismatch: the coordination leader has restarted.",
        "Shutdown barrier in coordination service has failed. This usually implies an earlier error that caused "
        "coordination service to shut down before the workers disconnect gracefully.",
    ),
    "cluster_not_reached": ("DEADLINE_EXCEEDED: Barrier timed out. This usually happens because a task",),
}
HARMLESS = {
    "driver_compiles": (
        "Can't find ptxas binary in ${CUDA_DIR}/bin.  Will back to the GPU driver for PTX -> sass compilation.  "
        "This is OK so long as you don't see a warning below about an out-of-date driver version.",
    ),
    "old_driver_jit": ("Relying on driver to perform ptx compilation. ",),
    "older_than_ptx_compiler": (
        "W external/xla/xla/service/gpu/nvptx_compiler.cc:893] The NVIDIA driver's CUDA version is 12.3 which is older "
        "than the PTX compiler version 12.5.82. Because the driver is older than the PTX compiler version, XLA is "
        "disabling parallel compilation, which may slow down compilation.",
    ),
    "no_autotune_memory": (
        "Autotuning candidate failed with out of memory error. Consider disabling correctness checking",
        "Failed to find best cuBLAS algorithm, GEMM performance might be suboptimal: INTERNAL: it failed",
    ),
    "cpu_notices": ("Could not determine NUMA node of device ordinal 0",),
}


@pytest.mark.parametrize(
    ("name", "worth", "text"),
    [
        pytest.param(name, worth, text, id=f"{name} {number}")
        for worth, known in ((Worth.FAULT, FAULTS), (Worth.HARMLESS, HARMLESS))
        for name, texts in known.items()
        for number, text in enumerate(texts)
    ],
)
def test_a_text_of_an_older_release_is_recognised(name: str, worth: Worth, text: str) -> None:
    found = recognised(text)
    assert name in {event.message.name for event in found}, found
    if worth is Worth.HARMLESS:
        assert {event.message.worth for event in found} == {worth}, found
