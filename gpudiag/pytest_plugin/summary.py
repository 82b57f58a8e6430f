"""What is reported: JUnit properties of each test, a section of the terminal summary, leaks."""

from __future__ import annotations

DEVICE, PEAK_BYTES, CPU_FALLBACKS = "gpudiag_device", "gpudiag_peak_bytes", "gpudiag_cpu_fallbacks"
"""The names of user properties. Fixtures record the last two, each as a whole number."""
