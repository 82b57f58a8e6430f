"""scripts/keras_suite.py: what it notes of a run of pytest, and the page that it makes of results."""

from __future__ import annotations

import os
from pathlib import Path

from keras_suite import Side, report

TESTS = """
from conftest import skip_if_backend
import pytest

@pytest.fixture
def broken_end():
    yield
    raise ValueError("at the end")

@pytest.mark.requires_trainable_backend
def test_good(): pass

@skip_if_backend("tensorflow", "no")
def test_left_out(): assert False

def test_bad(): assert "a" == "b", "not the same"

def test_end(broken_end): pass

def test_done(): assert False
"""


def test_what_each_test_gave_is_kept(tmp_path: Path) -> None:
    source = tmp_path / "keras" / "src"
    file = source / "ops" / "x_test.py"
    file.parent.mkdir(parents=True)
    file.write_text(TESTS)
    (file.parent / "y_test.py").write_text("import no_such_module")
    side = Side(tmp_path / "notes.jsonl", source, dict(os.environ), "-n", "0")
    side.run(["keras/src/ops"], 60, ["keras/src/ops/x_test.py::test_done"])
    found = {test.removeprefix("keras/src/ops/"): what for test, what in side.given().items()}
    assert found.pop("x_test.py::test_bad").startswith("failed: AssertionError: not the same")
    assert found == {
        "y_test.py": "failed: ModuleNotFoundError: No module named 'no_such_module'",
        "x_test.py::test_good": "passed",
        "x_test.py::test_left_out": "skipped",
        "x_test.py::test_end": "failed: ValueError: at the end",
    }


def test_the_page_counts_what_fails_on_simulated_gpus_alone() -> None:
    place = "keras/src/layers/core/x_test.py::T::test_"
    gpu = {"good": "passed", "left_out": "skipped", "for_cpu": "skipped", "bad": "failed: a", "bad_here": "failed: b|c"}
    gpu |= {"among_others": "failed: d", "needs_gpu": "failed: e"}
    cpu = {"left_out": "skipped", "for_cpu": "passed", "bad": "failed: a", "bad_here": "passed"}
    cpu |= {"among_others": "passed", "needs_gpu": "skipped"}
    alone = {"among_others": "passed", "bad_here": "failed: b|c", "needs_gpu": "failed: e"}
    gpu, cpu, alone = ({place + name: what for name, what in side.items()} for side in (gpu, cpu, alone))
    page = report(gpu, cpu, alone, "A note.")
    assert page.count("\n\nA note.\n\n") == 1
    assert "**2 of 4 pass (50.00 %).**" in page
    assert "| 2 | other | see the example | `layers/core/x_test.py::T::test_bad_here`: b/c |" in page
    assert "| `layers/core` | 2 | 2 | 1 | 1 | 1 |" in page
