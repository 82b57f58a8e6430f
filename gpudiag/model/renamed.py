"""Names that saved reports may have, and what has them today."""

from __future__ import annotations

CAUSES = {
    "device_files_denied": "device_files_kept_by_control_group",
    "nvml_not_opened": "nvml_missing",
}
"""Causes that were found to be one: the earlier name to the one that both have now."""

REMOVED = frozenset(
    {"package_calls_another_release", "said_to_leave_gpu_idle", "said_to_start_slowly", "said_to_switch_off"}
)
"""Causes of earlier versions that are not looked for any more: they were about no GPU and no installation."""
