"""Runs the whole test suite on each supported Python that is found here, and writes ``reports/pythons.md``.

Each Python gets a fresh virtual environment with TensorFlow (about 2 GB), one at a time; the suite takes some ten
minutes in each. A Python that is not found is a row that says so. ``python scripts/python_matrix.py 3.13`` runs only
that one and keeps the other rows of the report. ``--short`` writes nothing and takes a minute: the oldest and the
newest Python found, without TensorFlow, run the tests that need none and ``gpudiag check host``. ``--checks``, for the
gate, runs that and the checks of ``scripts/check.py`` that need none. Exit status 1 if a test or a check failed, or
could not be run on a Python that is there.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "reports/pythons.md"
PYTHONS = ("3.10", "3.11", "3.12", "3.13")

NOT_RUN = "not run"

INSTALL_S = 1800
SUITE_S = 3600

PURE = (
    "tests/model/test_codec.py",
    "tests/model/test_report.py",
    "tests/knowledge/test_placement.py",
    "tests/test_text.py",
    "tests/model/test_visibility.py",
    "tests/report",
)
"""Tests that need neither TensorFlow nor a fixture of tests/conftest.py."""


class Row(NamedTuple):
    """A row of the report; ``commit`` is what was tested, with ``+`` if files of the checkout differed from it."""

    python: str
    tensorflow: str = ""
    passed: str = ""
    failed: str = ""
    skipped: str = ""
    seconds: str = ""
    commit: str = ""
    remark: str = ""


HEADERS = ("Python", "TensorFlow", *Row._fields[2:])


class StepFailed(Exception):  # noqa: N818  # the name states the fault
    """A step of one Python's row failed; the text says which."""


def run(*command: str, timeout: int, cwd: Path = ROOT, allowed: tuple[int, ...] = (0,)) -> str:
    """Run a command, and return its output; StepFailed where its exit status is another than ``allowed``."""
    others = ("PYTEST_", "PYTHON", "VIRTUAL_ENV", "GPUDIAG_")  # settings of the Python that runs this
    environment = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StepFailed(str(error)) from error
    if done.returncode not in allowed:
        raise StepFailed(f"{' '.join(command[:4])} ...: exit status {done.returncode}\n{done.stdout[-4000:]}")
    return done.stdout


@functools.cache
def find_python(version: str) -> str:
    """Return an interpreter of this version that can make environments, of PATH, of pyenv or this one; "" for none."""
    places = [shutil.which(f"python{version}")]
    pyenv = shutil.which("pyenv")
    if pyenv:
        root = Path(run(pyenv, "root", timeout=60).strip())
        places += map(str, sorted(root.glob(f"versions/{version}.*/bin/python{version}"), reverse=True))
    for place in filter(None, [*places, sys.executable]):
        try:
            run(
                place,
                "-c",
                f"import ensurepip, ssl, sys, venv; assert sys.version.startswith('{version}.')",
                timeout=60,
            )
        except StepFailed:
            continue  # such as a shim of pyenv for a version that is not switched on
        return place
    return ""


def make_environment(version: str, folder: Path, *packages: str) -> Path:
    """Make a virtual environment with this checkout and ``packages``; return its folder of programs."""
    run(find_python(version), "-m", "venv", str(folder), timeout=INSTALL_S)
    run(str(folder / "bin/pip"), "install", "-q", *packages, timeout=INSTALL_S)
    return folder / "bin"


def tested() -> str:
    """Return the commit of this checkout."""
    try:
        return run("git", "describe", "--always", "--dirty=+", timeout=60).strip()
    except StepFailed:
        return "not a checkout"


def suite(version: str) -> Row:
    """Run the whole suite on one Python; return its row."""
    if not find_python(version):
        return Row(version, remark=f"{NOT_RUN}: no such Python on PATH or in pyenv")
    began = time.monotonic()
    print(f"Python {version}: {find_python(version)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="gpudiag-python-") as temporary:
        results = Path(temporary) / "results.xml"
        try:
            programs = make_environment(version, Path(temporary) / "venv", f"{ROOT}[tensorflow,test]")
            command = [str(programs / "pytest"), "-q", "-n", "auto", "-p", "no:cacheprovider", f"--junitxml={results}"]
            run(*command, timeout=SUITE_S, allowed=(0, 1))
            shown = run(str(programs / "pip"), "show", "tensorflow", timeout=60)
        except StepFailed as failure:
            print(failure, file=sys.stderr, flush=True)
            seconds = f"{time.monotonic() - began:.0f}"
            return Row(version, seconds=seconds, commit=tested(), remark=f"broken: {str(failure).splitlines()[0]}")
        cases = list(ElementTree.parse(results).iter("testcase"))  # noqa: S314  # our own file
    failed = [case for case in cases if any(part.tag in {"failure", "error"} for part in case)]
    skipped = sum(case.find("skipped") is not None for case in cases)
    names = [f"{case.get('classname')}::{case.get('name')}" for case in failed]
    print(*names, sep="\n", flush=True)
    return Row(
        version,
        re.search(r"^Version: (.+)$", shown, re.MULTILINE)[1],  # type: ignore[index]
        passed=str(len(cases) - len(failed) - skipped),
        failed=str(len(failed)),
        skipped=str(skipped),
        seconds=f"{time.monotonic() - began:.0f}",
        commit=tested(),
        remark="; ".join(names[:3]),
    )


def short(*, checks: bool) -> int:
    """Run on the oldest and the newest Python found what needs no TensorFlow."""
    found = [version for version in PYTHONS if find_python(version)]
    if not found:
        print(f"no Python of {', '.join(PYTHONS)} was found on PATH or in pyenv: nothing was run")
        return int(checks)
    oldest, newest = found[0], found[-1]
    current = "{}.{}".format(*sys.version_info[:2])  # runs the suite
    with tempfile.TemporaryDirectory(prefix="gpudiag-python-") as temporary:
        try:
            for version in dict.fromkeys((oldest, newest)):
                if version != current or (checks and version == newest):
                    programs = without_tensorflow(version, Path(temporary) / version)
        except StepFailed as failure:
            print(f"Python {version}: {failure}")
            return 1
        if not checks:
            return 0
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        command = [str(programs / "python"), "scripts/check.py", "--static"]
        return subprocess.run(command, cwd=ROOT, env={**os.environ, "PATH": path}, check=False).returncode


def without_tensorflow(version: str, folder: Path) -> Path:
    """Run on one Python what needs no TensorFlow; return the folder of programs of its environment."""
    # Nor the simulator, which takes the most time and knows no Python.
    programs = make_environment(version, folder, "--config-settings=wheel.cmake=false", f"{ROOT}[test]")
    said = run(str(programs / "pytest"), "-q", "--noconftest", "-p", "no:cacheprovider", *PURE, timeout=600)
    # 1: without TensorFlow the verdict is FAIL; 3 would be a server or a child that broke.
    run(str(programs / "gpudiag"), "check", "host", timeout=120, cwd=folder, allowed=(1,))
    run(str(programs / "gpudiag"), "docs", "start", timeout=60, cwd=folder)
    print(f"Python {version}: {said.splitlines()[-1]}; gpudiag check host ran", flush=True)
    return programs


def written() -> dict[str, Row]:
    """Return the rows of the report as it stands, by version."""
    lines = REPORT.read_text().splitlines() if REPORT.exists() else []
    rows = [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in lines if line.startswith("| 3.")]
    return {row.python: row for row in rows}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; return 1 if a test failed."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--short", action="store_true", help="what needs no TensorFlow, on the oldest and the newest Python found"
    )
    parser.add_argument(
        "--checks",
        action="store_true",
        help="what --short runs, and the checks of scripts/check.py that need no TensorFlow",
    )
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"of {', '.join(PYTHONS)}; all by default")
    asked = parser.parse_args(arguments)
    if asked.short or asked.checks:
        return short(checks=asked.checks)
    from tabulate import tabulate  # here: the short run begins before anything is installed

    from gpudiag import __version__

    rows = written()
    for version in asked.versions or PYTHONS:
        rows[version] = suite(version)
        table = tabulate(
            [rows[python] for python in PYTHONS if python in rows], HEADERS, "github", disable_numparse=True
        )
        REPORT.write_text(
            f"# The test suite on each Python\n\ngpudiag {__version__}, `python scripts/python_matrix.py`: "
            f"the whole suite in a fresh environment each, on simulated GPUs.\n\n{table}\n"
        )
    print(REPORT.read_text())
    done = [rows[version] for version in asked.versions or PYTHONS]
    return 0 if all(row.failed == "0" or row.remark.startswith(NOT_RUN) for row in done) else 1


if __name__ == "__main__":
    sys.exit(main())
