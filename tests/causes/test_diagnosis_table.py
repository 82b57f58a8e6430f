"""``scripts/diagnosis_table.py`` on two machines."""

from __future__ import annotations

from pathlib import Path

import diagnosis_table
import pytest


@pytest.mark.starts
@pytest.mark.usefixtures("no_child_left")
def test_two_machines(tmp_path: Path) -> None:
    first, second = list(diagnosis_table.rows({5, 135}, tmp_path))
    assert (first.item.number, first.seconds, first.is_right) == (5, None, True)
    assert (second.item.number, second.is_right) == (135, True)
    assert str(first).startswith("| 05 native Windows with TensorFlow after 2.10 | `windows_without_cuda` |")
    assert "](https://github.com/tensorflow/tensorflow/issues/22816) | `mask_hides_all` | proved |" in str(second)
    assert "| `unset CUDA_VISIBLE_DEVICES` | works | yes |" in str(second)
    assert str(tmp_path) not in str(second)
