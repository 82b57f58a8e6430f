"""scripts/tf_suite.py: what it reads from the logs of TensorFlow's tests, and the page that it makes of results."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "tf_suite.py"

LOG = """\
[ RUN      ] PoolTest.testGood
[       OK ] PoolTest.testGood
[ RUN      ] PoolTest.testBad0
[  FAILED  ] PoolTest.testBad0
[ RUN      ] PoolTest.testOther
[  SKIPPED ] PoolTest.testOther
[ RUN      ] PoolTest.testParts
{rest}
======================================================================
ERROR: testBad0 ([1, 2], 'x.y') (__main__.PoolTest.testBad0)
testBad0 ([1, 2], 'x.y')
----------------------------------------------------------------------
Traceback (most recent call last):
  File "x.py", line 1, in testBad0
ValueError: first

During handling of the above exception, another exception occurred:

errors_impl.NotFoundError: simulated GPU: this kernel
has no CPU kernel for it

======================================================================
FAIL: testParts (__main__.PoolTest.testParts) (kind='a')
----------------------------------------------------------------------
Traceback (most recent call last):
AssertionError: UnimplementedError not raised

----------------------------------------------------------------------
Ran 4 tests in 0.1s
"""


@pytest.fixture(scope="module")
def suite() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tf_suite", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_log_says_what_each_test_gave(suite: ModuleType) -> None:
    found = suite.outcomes(LOG.format(rest=""))
    assert found == {
        "PoolTest.testGood": "passed",
        "PoolTest.testBad0": "failed: errors_impl.NotFoundError: simulated GPU: this kernel has no CPU kernel for it",
        "PoolTest.testOther": "skipped",
        "PoolTest.testParts": "failed: AssertionError: UnimplementedError not raised",
    }
    assert suite.class_of(found["PoolTest.testBad0"]) == "no CPU kernel"
    assert suite.class_of(found["PoolTest.testParts"]) == "errors about determinism"


def test_a_log_that_breaks_off_names_the_test_that_ran(suite: ModuleType) -> None:
    log = LOG.partition("{rest}")[0]
    assert suite.outcomes(log)["PoolTest.testParts"] == "ended the process"


def test_the_page_counts_what_fails_on_simulated_gpus_alone(suite: ModuleType) -> None:
    gpu = {
        "T.testGood": "passed",
        "T.testSkipped": "skipped",
        "T.testBadEverywhere": "failed: x",
        "T.testBadHere": "failed: InvalidArgumentError: a|b",
        "T.testNeedsGpu": "failed: no end within 9 s",
        suite.REST: "not run",
    }
    cpu = {"T.testBadEverywhere": "failed: x", "T.testBadHere": "passed", "T.testNeedsGpu": "skipped"}
    sides = {"file": "a_test.py", "machine": "2x8GiB", "build": "1234abcd", "gpu": gpu, "cpu": cpu}
    page = suite.report({"a_test.py 2x8GiB": sides}, "A note.")
    assert page.count("\n\nA note.\n\n") == 1
    assert "**1 of 3 pass (33.3 %).**" in page
    assert "| `a_test.py`, not to its end | 2x8GiB | 1234abcd | 1 | 2 | 1 |" in page
    assert "| 1 | no end | slower than the limit of time | `T.testNeedsGpu`: no end within 9 s |" in page
    assert "| 1 | other | see the example | `T.testBadHere`: InvalidArgumentError: a/b |" in page
