"""The other half of the gate, beside ``pytest``: format, lint, types, import contracts, generated documentation, the
simulator built and free of compilers' warnings, and a short run on the newest Python found.

Run it before every commit, after ``pip install -e '.[tensorflow,test]'``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PYTHONS = ("3.10", "3.11", "3.12", "3.13")

SIMULATED = (
    "from gpudiag.simulator import Machine\ntry: Machine('1')\nexcept Exception as error: raise SystemExit(error)"
)
GENERATOR = "Ninja" if shutil.which("ninja") else "Unix Makefiles"

CHECKS = {
    "format": ["ruff", "format", "--check", "."],
    "lint": ["ruff", "check", "."],
    **{f"types {version}": ["mypy", "--python-version", version] for version in PYTHONS},
    "imports": ["lint-imports"],
    "documentation": [sys.executable, "scripts/docs.py", "--check"],
    "simulator": [sys.executable, "-c", SIMULATED],
    "simulator's warnings": [
        *("ctest", "--build-and-test", "gpudiag/simulator/src", "build/warnings", "--build-generator", GENERATOR),
        *("--build-options", "-DGPUDIAG_WARNINGS_ARE_ERRORS=ON"),
    ],
    "newest Python": [sys.executable, "scripts/python_matrix.py", "--short"],
}

INSTALL = {"ctest": "apt-get install cmake, or pip install cmake", "": "pip install '.[tensorflow,test]'"}


def main() -> int:
    """Run every check, say how each ended, and return 1 where one failed."""
    failed = []
    for name, command in CHECKS.items():
        began = time.monotonic()
        if not shutil.which(command[0]):
            failed.append(name)
            print(f"{name}: failed, {command[0]} is not installed: {INSTALL.get(command[0], INSTALL[''])}", flush=True)
            continue
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        print(f"{name}: {'failed' if done.returncode else 'ok'} ({time.monotonic() - began:.1f} s)", flush=True)
        if done.returncode:
            failed.append(name)
            print(done.stdout + done.stderr, flush=True)
        elif name == "newest Python":
            print(f"  {done.stdout.strip()}", flush=True)
    print(f"{len(CHECKS) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
