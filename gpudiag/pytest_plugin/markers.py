"""``@pytest.mark.gpudiag_gpus``: what a test needs, checked when it is collected, and given to it when it runs."""

from __future__ import annotations

LINES = (
    'gpudiag_gpus(count=1, memory="8GiB", capability=(8, 0)): needs so many GPUs, each with so much memory and at '
    "least this compute capability; skipped where the machine lacks them, failed under --gpudiag-require-gpus",
)
