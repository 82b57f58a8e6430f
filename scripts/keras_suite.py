"""Keras' own tests, which its wheel has, on a simulated machine.

    pip install jax scipy pandas scikit-learn pillow tf_keras   # what the tests import beside Keras and TensorFlow
    python scripts/keras_suite.py layers ops losses ...

One session of pytest for all the folders of `keras/src`, as a user would start it: gpudiag's plugin, two workers,
simulated GPUs. What does not pass there runs on the CPU, too, and what fails on simulated GPUs only runs there again,
each test alone. What each test gave is kept (`--results`): the next run leaves out what has a result, and a run may be
ended at any time. The page is written from all of it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "reports" / "keras-suite.md"

Given = dict[str, str]
"""What each test gave: `passed`, `skipped`, or `failed: ` and why."""

# Stands for Keras' own conftest.py, which is not in the wheel, and notes what each test gave. The tests import
# skip_if_backend from it.
CONFTEST = r"""
import json, os
import pytest


def skip_if_backend(backend, reason):
    return pytest.mark.skipif(backend == "tensorflow", reason=reason)


def pytest_configure(config):
    config.addinivalue_line("markers", "requires_trainable_backend: TensorFlow is one")
    config.addinivalue_line("markers", "multi_device: not for TensorFlow")


def pytest_collection_modifyitems(config, items):
    for item in items:
        if "multi_device" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="not for TensorFlow"))
    with open(os.environ["KERAS_SUITE_DONE"]) as file:
        done = set(json.load(file))
    items[:] = [item for item in items if item.nodeid not in done]


def note(test, what):
    if "PYTEST_XDIST_WORKER" not in os.environ:
        with open(os.environ["KERAS_SUITE_NOTES"], "a") as file:
            file.write(json.dumps([test, what]) + "\n")


def pytest_runtest_logreport(report):
    if report.failed:
        note(report.nodeid, "failed: " + str(report.longrepr))
    elif report.skipped:
        note(report.nodeid, "skipped")
    elif report.when == "call":
        note(report.nodeid, "passed")


def pytest_collectreport(report):
    if report.failed:
        note(report.nodeid, "failed: " + str(report.longrepr))
"""

# Why a test fails on simulated GPUs: what its name and reason say, the class, and why. The first that fits.
CLASSES: tuple[tuple[str, str, str], ...] = (
    (
        r"Number of channels in filter|input and filter must have the same depth",
        "convolution in groups, in three dimensions",
        "the function asks for XLA, which computes it; without XLA the CPU's kernel computes, and refuses groups",
    ),
    (
        r"No registered 'MatrixBandPart' OpKernel",
        "band_part of int32",
        "the function asks for XLA, which compiles it for every type; TensorFlow's kernels for GPUs know no int32",
    ),
)

COLUMNS = ("passed", "failed", "skipped", "CPU only", "fails on the CPU")
"""Of a row of the page."""

LEFT_OUT: dict[str, str] = {
    "applications": "It downloads weights.",
    "wrappers": "The names of its tests have addresses in memory, which two workers cannot agree on.",
}


def reason_of(trace: str) -> str:
    """Return what a failure says, on one line: of a traceback of pytest, the lines with E."""
    said = [line[1:].strip() for line in trace.splitlines() if re.match(r"E\s", line)] or trace.splitlines()[-3:]
    text = " ".join(" ".join(said).split())
    return text if len(text) <= 600 else f"{text[:300]} ... {text[-290:]}"


class Side:
    """Where tests run: on simulated GPUs, on the CPU, or on simulated GPUs alone."""

    def __init__(self, notes: Path, source: Path, environment: dict[str, str], *arguments: str) -> None:
        self._notes = notes
        self._root = source.parent.parent
        self._environment = environment
        self._arguments = arguments

    def given(self) -> Given:
        """Return what each test gave last. What follows `failed` in the same run is not noted."""
        found: Given = {}
        for line in self._notes.read_text().splitlines() if self._notes.exists() else ():
            test, what = json.loads(line)
            if test.startswith("keras/"):  # not a worker that could not collect
                found[test] = f"failed: {reason_of(what[8:])}" if what.startswith("failed") else what
        return found

    def run(self, places: Iterable[str], limit_s: float, done: Iterable[str] = ()) -> None:
        """Run the tests of `places` (relative to the root), but not those that are `done`, for `limit_s` at most."""
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "conftest.py").write_text(CONFTEST)
            Path(folder, "pytest.ini").write_text("[pytest]\npython_files = *_test.py\n")
            Path(folder, "done").write_text(json.dumps(sorted(done)))
            own = {name: value for name, value in self._environment.items() if not name.startswith("PYTEST_")}
            environment = own | {
                **{"KERAS_SUITE_NOTES": str(self._notes), "KERAS_SUITE_DONE": str(Path(folder, "done"))},
                **{"KERAS_BACKEND": "tensorflow", "KERAS_HOME": folder, "TF_CPP_MIN_LOG_LEVEL": "2"},
                **{"PYTHONPATH": folder},
            }
            command = [
                *(sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-p", "no:cacheprovider", "--tb=short"),
                *("-c", str(Path(folder, "pytest.ini")), "--rootdir", str(self._root)),
                *("--continue-on-collection-errors", "-o", "faulthandler_timeout=300"),
                *("-o", "faulthandler_exit_on_timeout=true", *self._arguments),
                *(str(self._root / place) for place in places),
            ]
            log = self._notes.with_suffix(".log")
            with log.open("w") as file:
                child = subprocess.Popen(
                    command, env=environment, stdout=file, stderr=file, cwd=folder, start_new_session=True
                )
                try:
                    child.wait(limit_s)
                except subprocess.TimeoutExpired:
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
                    print(f"ended after {limit_s:g} s", flush=True)
            if child.returncode not in (0, 1, 5, -signal.SIGKILL):
                print(log.read_text()[-3000:], flush=True)


def column(gpu: str, cpu: str, alone: str) -> str:
    """Return which of `COLUMNS` a test belongs to, from what it gave; empty if it did not run there."""
    if "passed" in (gpu, alone):
        return "passed"
    if gpu == "skipped":
        return "CPU only" if cpu == "passed" else "skipped"
    return "fails on the CPU" if cpu.startswith("failed") else "failed"  # skipped there: it needs a GPU


def folder_of(test: str) -> str:
    """Return what a row of the page is about: a folder of `keras/src`, or of `layers` and `backend` in it."""
    parts = test.partition("::")[0].split("/")[2:-1]
    return "/".join(parts[:2] if parts[0] in {"layers", "backend"} else parts[:1])


def report(gpu: Given, cpu: Given, alone: Given, note: str) -> str:
    """Return the page."""
    columns = {test: column(what, cpu.get(test, ""), alone.get(test, "")) for test, what in gpu.items()}
    rows = []
    for folder, tests in groupby(sorted(gpu, key=folder_of), folder_of):
        counts = Counter(columns[test] for test in tests)
        rows.append(f"| `{folder}` | " + " | ".join(str(counts[name]) for name in COLUMNS) + " |")
    classes: dict[str, list[str]] = {}
    for test in sorted(test for test, name in columns.items() if name == "failed"):
        kind = next((name for pattern, name, _ in CLASSES if re.search(pattern, f"{test}: {gpu[test]}")), "other")
        classes.setdefault(kind, []).append(test)
    why = {name: reason for _, name, reason in CLASSES}
    versions = " and ".join(f"{name} {importlib.metadata.version(name)}" for name in ("keras", "tensorflow"))
    total = Counter(columns.values())
    counted = total["passed"] + total["failed"]
    lines = [
        "# Keras' own tests on simulated GPUs",
        "",
        f"By `scripts/keras_suite.py`: {versions}.",
        "Counted are the tests that pass on the simulated machine, and those that fail there, but not on the CPU.",
        "`CPU only`: the test passes on the CPU, and Keras itself leaves it out if there is a GPU.",
        *(["", note] if note else []),
        "",
        f"**{total['passed']} of {counted} pass ({100 * total['passed'] / max(counted, 1):.2f} %).**",
        "",
    ]
    if classes:
        lines += ["| failures | class | reason | example |", "| --- | --- | --- | --- |"]
    for kind, names in sorted(classes.items(), key=lambda item: -len(item[1])):
        said = gpu[names[0]].removeprefix("failed: ")[:200].replace("|", "/").replace("`", "'")
        test = names[0].removeprefix("keras/src/")
        lines.append(f"| {len(names)} | {kind} | {why.get(kind, 'see the example')} | `{test}`: {said} |")
    lines += [*([""] if classes else []), *(f"Left out: `{name}`. {reason}\n" for name, reason in LEFT_OUT.items())]
    lines += ["| folder | " + " | ".join(COLUMNS) + " |", "| --- |" + " --- |" * len(COLUMNS), *rows, ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", help="folders or files of keras/src")
    parser.add_argument("--simulate", default="2x16GiB", help="the simulated machine")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "keras_suite", help="kept between runs")
    parser.add_argument("--report", type=Path, default=REPORT)
    parser.add_argument("--note", default="", help="what else a reader of the page must know")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=float, default=3600, help="seconds for a session")
    parser.add_argument("--again", default="$^", help="run tests again whose name or reason this expression finds")
    options = parser.parse_args()
    found = importlib.util.find_spec("keras")
    assert found is not None
    assert found.submodule_search_locations
    source = Path(found.submodule_search_locations[0], "src")
    options.results.mkdir(parents=True, exist_ok=True)
    places = [f"keras/src/{name}" for name in options.folders]
    workers = ("-n", str(options.workers))
    simulated = f"--gpudiag-simulate={options.simulate}"
    no_gpu = dict(os.environ) | {"CUDA_VISIBLE_DEVICES": ""}
    gpu = Side(options.results / "gpu.jsonl", source, dict(os.environ), simulated, *workers)
    cpu = Side(options.results / "cpu.jsonl", source, no_gpu, *workers)
    alone = Side(options.results / "alone.jsonl", source, dict(os.environ), simulated)
    if places:
        done = [test for test, what in gpu.given().items() if not re.search(options.again, f"{test}: {what}")]
        gpu.run(places, options.limit, done)
    given = gpu.given()
    done = [test for test, what in given.items() if what == "passed"] + list(cpu.given())
    others = given.keys() - done
    if others:
        cpu.run(sorted({test.partition("::")[0] for test in others}), options.limit, done)
    on_cpu, again = cpu.given(), alone.given()
    for test, what in given.items():
        if test not in again and column(what, on_cpu.get(test, ""), "") == "failed":
            alone.run([test], options.limit)
    options.report.write_text(report(given, on_cpu, alone.given(), options.note))


if __name__ == "__main__":
    main()
