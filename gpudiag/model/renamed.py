"""Former names of causes in saved reports, and what became of them."""

from __future__ import annotations

CAUSES = {
    "glibc_too_old": "system_library_too_old",
    "glibcxx_too_old": "system_library_too_old",
    "metal_without_wheel": "no_wheel_for_this_python",
    "module_key_rejected": "kernel_module_not_running",
    "no_avx": "cpu_lacks_instructions",
    "no_libcuda_link": "cudnn_finds_no_libcuda",
    "no_machine_code": "gpu_newer_than_wheel",
    "no_module_for_kernel": "kernel_module_not_running",
    "not_for_this_python": "no_wheel_for_this_python",
    "nvjitlink_mismatch": "cuda_libraries_mixed",
    "runtime_off_the_path": "library_off_the_path",
    "tensorflow_not_installed": "tensorflow_not_in_interpreter",
    "two_driver_versions": "library_and_module_differ",
    "compat_library_in_program": "compat_library_refused",
    "device_files_denied": "device_files_kept_by_control_group",
    "driver_older_than_cuda": "driver_too_old",
    "driver_upgraded_without_reboot": "library_and_module_differ",
    "nvlink_down": "gpu_differs_from_twins",
    "nvml_not_opened": "nvml_missing",
    "power_limit_slows_gpu": "hardware_slows_gpu",
} | dict.fromkeys(
    (
        *("setting_came_too_late", "setting_misspelt", "setting_overridden", "setting_refused"),
        "setting_with_other_effect",
    ),
    "setting_without_effect",
)
"""Causes that were merged: the former name to the current one."""

_NOT_LOOKED_FOR = "it was about no GPU and no installation, and is not looked for any more; its report explains it"
_NOT_SEEN = "no release and no public thread was found that prints its line; its report explains it"
REMOVED = {
    "named_in_log": "a fault that a line of a log names has its own name now, which 'gpudiag show REPORT.json' gives",
    "package_calls_another_release": _NOT_LOOKED_FOR,
    "said_to_leave_gpu_idle": _NOT_LOOKED_FOR,
    "said_to_start_slowly": _NOT_LOOKED_FOR,
    "said_to_switch_off": _NOT_LOOKED_FOR,
} | dict.fromkeys(
    (
        "library_of_infiniband",
        "library_of_of_codecs",
        "library_of_old_ssl_and_ffi",
    ),
    _NOT_SEEN,
)
"""Removed causes of earlier versions, each with what became of it."""
