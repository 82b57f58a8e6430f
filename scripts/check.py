"""The static half of the gate: format, lint, types, import contracts, generated documentation.

Run it before every commit, after ``pip install -e '.[tensorflow,test]'``; the other half is ``pytest``.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PYTHONS = ("3.10", "3.11", "3.12", "3.13")

CHECKS = {
    "format": ["ruff", "format", "--check", "."],
    "lint": ["ruff", "check", "."],
    **{f"types {version}": ["mypy", "--python-version", version] for version in PYTHONS},
    "imports": ["lint-imports"],
    "documentation": [sys.executable, "scripts/docs.py", "--check"],
}


def main() -> int:
    """Run every check, say how each ended, and return 1 where one failed."""
    failed = []
    for name, command in CHECKS.items():
        began = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        print(f"{name}: {'failed' if done.returncode else 'ok'} ({time.monotonic() - began:.1f} s)", flush=True)
        if done.returncode:
            failed.append(name)
            print(done.stdout + done.stderr, flush=True)
    print(f"{len(CHECKS) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
