"""The other half of the gate, beside ``pytest``: format, lint, types, import contracts, generated documentation, the
simulator built and free of compilers' warnings, and a short run on the oldest and the newest Python found.

Run it before every commit, after ``pip install -e '.[tensorflow,test]'``. All checks run, or those that are named;
``other Pythons`` needs nothing that is installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PYTHONS = {"3.10": (), "3.13": ("gpudiag",)}
"""The oldest and the newest, and of what the types are checked, all by default: a name that came in between is missing
in the one, and one that went in the other. Tests and scripts run on the newest, too."""

SIMULATED = (
    "from gpudiag.simulator import Machine\ntry: Machine('1')\nexcept Exception as error: raise SystemExit(error)"
)
GENERATOR = "Ninja" if shutil.which("ninja") else "Unix Makefiles"

STATIC = {
    **{f"types {version}": ["mypy", "--python-version", version, *of] for version, of in PYTHONS.items()},
    "documentation": [sys.executable, "scripts/docs.py", "--check"],
    "imports": ["lint-imports"],
    "format": ["ruff", "format", "--check", "."],
    "lint": ["ruff", "check", "."],
}
"""Those that need neither TensorFlow nor the simulator, the longest first."""

CHECKS = {
    "other Pythons": [sys.executable, "scripts/python_matrix.py", "--short"],
    **STATIC,
    "simulator": [sys.executable, "-c", SIMULATED],
    "simulator's warnings": [
        *("ctest", "--build-and-test", "gpudiag/simulator/src", "build/warnings", "--build-generator", GENERATOR),
        *("--build-options", "-DGPUDIAG_WARNINGS_ARE_ERRORS=ON"),
    ],
}

INSTALL = {"ctest": "apt-get install cmake, or pip install cmake", "": "pip install '.[tensorflow,test]'"}


def run(name: str) -> tuple[bool, str]:
    """Run the check called ``name``; return whether it passed, and what is to be said of it."""
    command = CHECKS[name]
    began = time.monotonic()
    if not shutil.which(command[0]):
        install = INSTALL.get(command[0], INSTALL[""])
        return False, f"{name}: failed, {command[0]} is not installed: {install}"
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    said = f"{name}: {'failed' if done.returncode else 'ok'} ({time.monotonic() - began:.1f} s)"
    if done.returncode:
        said += f"\n{done.stdout}{done.stderr}"
    elif name == "other Pythons":
        said += f"\n  {done.stdout.strip()}"
    return not done.returncode, said


def main() -> int:
    """Run the checks, two at a time, say how each ended, and return 1 if one failed."""
    if "WARNINGS_ARE_ERRORS=ON" in os.environ.get("SKBUILD_CMAKE_DEFINE", ""):
        del CHECKS["simulator's warnings"]  # it was installed so
    parser = argparse.ArgumentParser(description="Run the checks that are not tests.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CHECKS)}; all by default")
    parser.add_argument("--static", action="store_true", help=f"{', '.join(STATIC)}: they need no TensorFlow")
    asked = parser.parse_args()
    if unknown := set(asked.names) - set(CHECKS):
        parser.error(f"no check {', '.join(sorted(unknown))}: there are {', '.join(CHECKS)}")
    names = [*asked.names, *(STATIC if asked.static else () if asked.names else CHECKS)]
    passed = 0
    with ThreadPoolExecutor(2) as workers:
        for well, said in workers.map(run, names):
            passed += well
            print(said, flush=True)
    print(f"{passed} passed, {len(names) - passed} failed")
    return 0 if passed == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
