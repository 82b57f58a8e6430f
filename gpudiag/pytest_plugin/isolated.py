"""``@pytest.mark.gpudiag_isolated``: a test in a fresh process, reported as if it had run here."""

from __future__ import annotations

LINES = (
    "gpudiag_isolated(timeout=60): runs the test in a fresh process, where TensorFlow is configured anew; a crash or a "
    "hang is this test's failure and no other's",
)
