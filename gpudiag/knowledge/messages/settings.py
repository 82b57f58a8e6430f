"""Messages about settings that are refused, or come too late."""

from __future__ import annotations

from gpudiag.knowledge.fault import Stage
from gpudiag.knowledge.message import MessageFamily

FAMILY = MessageFamily("settings", stage=Stage.CONFIGURATION)

GROWTH_NOT_PARSED = FAMILY.fault(
    "growth_not_parsed",
    'TF_FORCE_GPU_ALLOW_GROWTH environment variable is set but could not be parsed: "{value:q}"',
)
NO_MEMORY_POOLS = FAMILY.fault(
    "no_memory_pools",
    "TF_GPU_ALLOCATOR=cuda_malloc_async isn't currently supported",
    "Failed to create CUDA pool",
    "Failed to get CUDA pool",
    "Failed to set CUDA pool",
    "Failed to get {:w} CUDA pool",
)
MISALIGNED = FAMILY.fault("misaligned", "Check failed: IsAligned()")
GUARD_IN_USE = FAMILY.sign(
    "guard_in_use",
    "Using memory guard allocator for GPU",
    meaning="TF_GPU_ALLOCATOR=memory_guard is in use",
)
CONFIGURED_TOO_LATE = FAMILY.fault(
    "configured_too_late",
    pattern=r"(?P<what>[A-Z][\w ]{0,40}?) cannot be modified after (?:being initialized|initialization)",
    words=("modified",),
)
SETTINGS_EXCLUDED = FAMILY.fault(
    "settings_excluded",
    "Cannot set memory growth on device when virtual devices configured",
    "It's invalid to set per_process_gpu_memory_fraction when virtual_devices is set",
)
THREAD_MODE_INVALID = FAMILY.fault("thread_mode_invalid", "Invalid gpu_thread_mode: {value:s}")
NO_PLUGGABLE_LIBRARY = FAMILY.fault(
    "no_pluggable_library",
    "to load pluggable device libraries from does not exist.: '{value:q}'",
)
NO_KERAS_BACKEND = FAMILY.fault("no_keras_backend", "Unable to import backend : {value:s}")
NO_CPU_FACTORY = FAMILY.fault(
    "no_cpu_factory",
    "CPU Factory not registered",
)
FLAGS_REFUSED = FAMILY.fault(
    "flags_refused",
    "Unknown flag in {unknown_in:w}: {flags}",
    "Unknown flags in {unknown_in:w}: {flags}",
    'Could not open file "{file:q}" to read flags for environment variable "{file_in:w}"',
    "Couldn't interpret value {value:m} for flag {name:w}",
    "Couldn't interpret value {garbled:m} for",
)
