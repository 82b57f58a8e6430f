"""Names that saved reports may have, and what has them today."""

from __future__ import annotations

CAUSES = {
    "device_files_denied": "device_files_kept_by_control_group",
    "nvml_not_opened": "nvml_missing",
}
"""Causes that were found to be one: the earlier name to the one that both have now."""
