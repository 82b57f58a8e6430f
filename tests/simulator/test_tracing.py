"""A profiler gets rows of the simulated GPUs: what ran there, and which copies were made."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from .on_machine import Inside


def test_profiles_have_rows_of_each_gpu(inside: Inside, tmp_path: Path) -> None:
    outcome = inside(2, "profiled", folder=str(tmp_path))
    for rows in outcome.check():
        names = {row: [name for name, _, _ in events] for row, events in rows.items()}
        assert names["/device:GPU:0 Stream #7(Compute)"] == ["MatMul:MatMul", "Relu:Relu"]
        assert names["/device:GPU:1 Stream #7(Compute)"] == ["Exp:Exp", "Sum:Sum"]
        assert names["/device:GPU:0 Stream #10(MemcpyD2D)"] == ["MemcpyD2D"]
        assert names["/device:GPU:1 Stream #9(MemcpyD2H)"] == ["MemcpyD2H"]
        for events in rows.values():
            assert all(start < end for _, start, end in events)
            assert all(end <= start for (_, _, end), (_, start, _) in pairwise(events))
    assert "buffer is not initialized" not in outcome.log
    assert "rror" not in outcome.log


def test_run_metadata_has_them_too(inside: Inside) -> None:
    rows, processes = inside(1, "run_metadata").check()
    assert "product:MatMul" in rows["/device:GPU:0/stream:all"]
    assert any("MemcpyD2H" in row for row in rows)
    assert any("/device:GPU:0/stream:all" in process for process in processes)
