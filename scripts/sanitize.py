"""Builds the simulator with AddressSanitizer, UndefinedBehaviorSanitizer and assertions on, and runs its tests on it.

Those that speak to the driver alone: handles, forks and hostile surroundings. It needs gcc, CMake and Ninja, and takes
some two minutes. Exit status 1 if a test fails, or a sanitizer finds something.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CMAKE, GCC = shutil.which("cmake") or "cmake", shutil.which("gcc") or "gcc"
ROOT = Path(__file__).resolve().parent.parent
FLAGS = "-g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"
TESTS = ("test_handles.py", "test_forks.py", "test_hostile.py")
# The copy is taken, also where gpudiag is an editable installation, whose finder comes before sys.path.
PYTEST = (
    "import sys, pytest; sys.path.insert(0, '.'); "
    "sys.meta_path[:] = [one for one in sys.meta_path if not type(one).__module__.startswith('_editable_')]; "
    "sys.exit(pytest.main(sys.argv[1:]))"
)


def main() -> int:
    """Build, and run the tests."""
    with tempfile.TemporaryDirectory(prefix="gpudiag-sanitize-") as temporary:
        build, copy = Path(temporary) / "build", Path(temporary) / "copy"
        for name in ("gpudiag", "tests", "scripts"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "lib"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        # Not Release: that would leave the assertions out.
        options = ("-G", "Ninja", "-DCMAKE_BUILD_TYPE=None", f"-DCMAKE_C_FLAGS={FLAGS}", "-DCMAKE_C_COMPILER=gcc")
        for step in (
            ["-S", str(copy / "gpudiag/simulator/src"), "-B", str(build), *options],
            ["--build", str(build)],
            ["--install", str(build), "--prefix", str(copy / "gpudiag/simulator/lib")],
        ):
            subprocess.run([CMAKE, *step], stdout=subprocess.DEVNULL, timeout=600, check=True)
        runtime = subprocess.run(
            [GCC, "-print-file-name=libasan.so"], capture_output=True, text=True, timeout=60, check=True
        )
        # Python itself is not built with it, so its runtime must come first in every process; and Python leaks at exit.
        sanitized = {"LD_PRELOAD": runtime.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0"}
        tests = [f"tests/simulator/{name}" for name in TESTS]
        # A path beyond what the sanitizer's own buffers hold, and a disk that is too small for it.
        command = [sys.executable, "-c", PYTEST, "-q", "-p", "no:cacheprovider", "-k", "not long and not full", *tests]
        return subprocess.run(command, cwd=copy, env={**os.environ, **sanitized}, timeout=1800, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
