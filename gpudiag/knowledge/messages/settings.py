"""Settings that are refused, or come too late."""

from __future__ import annotations

from gpudiag.knowledge.message import Family, Text, Worth

FAMILY = Family("settings", stage="CONFIGURATION")

GROWTH_NOT_PARSED = FAMILY.fault(
    "growth_not_parsed",
    Text(
        'TF_FORCE_GPU_ALLOW_GROWTH environment variable is set but could not be parsed: "{value:q}"',
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_bfc_allocator.cc:56",
    ),
)
NO_MEMORY_POOLS = FAMILY.fault(
    "no_memory_pools",
    Text(
        "TF_GPU_ALLOCATOR=cuda_malloc_async isn't currently supported",
        "tensorflow 2.21 xla/stream_executor/gpu/gpu_cudamallocasync_allocator.cc:171",
    ),
    Text("Failed to create CUDA pool", "tensorflow 2.21 xla/stream_executor/gpu/gpu_cudamallocasync_allocator.cc:191"),
    Text("Failed to get CUDA pool", "tensorflow 2.21 xla/stream_executor/gpu/gpu_cudamallocasync_allocator.cc:485"),
    Text("Failed to set CUDA pool", "tensorflow 2.21 xla/stream_executor/gpu/gpu_cudamallocasync_allocator.cc:209"),
    "Failed to create {:w} CUDA pool",
    Text(
        "Failed to get {:w} CUDA pool", "tensorflow 2.21 xla/stream_executor/gpu/gpu_cudamallocasync_allocator.cc:197"
    ),
    "Failed to set {:w} CUDA pool",
)
MISALIGNED = FAMILY.fault(
    "misaligned", Text("Check failed: IsAligned()", "tensorflow 2.4.4 libtensorflow_framework.so.2")
)
GUARD_IN_USE = FAMILY.sign(
    "guard_in_use",
    Text(
        "Using memory guard allocator for GPU",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_process_state.cc:195",
    ),
    meaning="TF_GPU_ALLOCATOR=memory_guard is in use",
)
CONFIGURED_TOO_LATE = FAMILY.add(
    Worth.FAULT,
    "configured_too_late",
    pattern=r"(?P<what>[A-Z][\w ]{0,40}?) cannot be modified after (?:being initialized|initialization)",
    witness="tensorflow 2.21 tensorflow/python/eager/context.py:1951",
    words=("modified",),
)
SETTINGS_EXCLUDED = FAMILY.fault(
    "settings_excluded",
    Text(
        "Cannot set memory growth on device when virtual devices configured",
        "tensorflow 2.21 tensorflow/python/eager/context.py:1986",
    ),
    Text(
        "It's invalid to set per_process_gpu_memory_fraction when virtual_devices is set",
        "tensorflow 2.21 tensorflow/core/common_runtime/gpu/gpu_device.cc:1054",
    ),
)
THREAD_MODE_INVALID = FAMILY.fault("thread_mode_invalid", "Invalid gpu_thread_mode: {value:s}")
NO_PLUGGABLE_LIBRARY = FAMILY.fault(
    "no_pluggable_library", "to load pluggable device libraries from does not exist.: '{value:q}'"
)
NO_CPU_FACTORY = FAMILY.fault(
    "no_cpu_factory",
    Text("CPU Factory not registered", "tensorflow 2.21 tensorflow/compiler/jit/encapsulate_subgraphs_pass.cc:1182"),
)
FLAGS_REFUSED = FAMILY.fault(
    "flags_refused",
    "Unknown flag in {unknown_in:w}: {flags}",
    Text("Unknown flags in {unknown_in:w}: {flags}", "tensorflow 2.21 xla/parse_flags_from_env_test.cc:241"),
    Text(
        'Could not open file "{file:q}" to read flags for environment variable "{file_in:w}"',
        "tensorflow 2.21 xla/parse_flags_from_env.cc:172",
    ),
    Text(
        "Couldn't interpret value {value:m} for flag {name:w}", "tensorflow 2.21 xla/tsl/util/command_line_flags.cc:55"
    ),
    Text("Couldn't interpret value {garbled:m} for", "tensorflow 2.21 xla/tsl/util/command_line_flags.cc:55"),
)
