"""No code of the working directory runs in gpudiag's own processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Gpudiag
from gpudiag.interpreter import SAFE_PATH
from gpudiag.tracing import sampler

LEAVES_A_MARK = """
import os, sys
with open({mark!r}, "a") as mark: print(__name__, sys.orig_argv[:4], file=mark)
raise ImportError("a file of the working directory")
"""


def _imported_by_a_server() -> set[str]:
    """Return the top-level modules that a server imports before its first job, but for those built into Python."""
    program = (
        "import sys, gpudiag.isolate.server, gpudiag.facts; print(*{name.partition('.')[0] for name in sys.modules})"
    )
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split()) - set(sys.builtin_module_names) - {"__main__", "gpudiag"}


def _litter(folder: Path, names: set[str]) -> Path:
    mark = folder / "mark"
    for name in names:
        (folder / f"{name}.py").write_text(LEAVES_A_MARK.format(mark=str(mark)))
    return mark


def test_a_module_of_any_name_in_the_working_directory_is_left_alone(gpudiag: Gpudiag) -> None:
    names = _imported_by_a_server()
    assert {"json", "re", "types", "operator", "collections", "msgspec", "select", "signal"} <= names
    mark = _litter(gpudiag.folder, names)
    # As the command of an installation starts: Python 3.13 itself looks for linecache before the first line of -c.
    # A variable that TensorFlow knows: the environment's facts start one more interpreter then.
    done = gpudiag("check", "host", "--allow-no-gpu", flags=SAFE_PATH, TF_CPP_MIN_LOG_LEVEL="1")
    assert not mark.exists(), mark.read_text()
    assert "not known" not in done.stdout
    assert done.returncode in (0, 5), done.stdout + done.stderr


@pytest.mark.parametrize("flags", [(), ("-P",)] if sys.version_info >= (3, 11) else [()])
def test_a_module_beside_python_m_is_left_alone(gpudiag: Gpudiag, flags: tuple[str, ...]) -> None:
    """But for those that Python itself imports before gpudiag's first line."""
    mark = _litter(gpudiag.folder, {"json", "signal", "tempfile", "click", "msgspec", "psutil"})
    path = os.pathsep.join(gpudiag.path)
    done = subprocess.run(
        [sys.executable, *flags, "-m", "gpudiag", "check", "host", "--allow-no-gpu"],
        cwd=gpudiag.folder,
        env={**gpudiag.environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert not mark.exists(), mark.read_text()
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_watches_beside_a_traced_program_leaves_its_folder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = _litter(tmp_path, {"json", "types", "gpudiag", "runpy"})
    monkeypatch.chdir(tmp_path)
    process = sampler.start(tmp_path, os.environ)
    assert process is not None
    with contextlib.suppress(subprocess.TimeoutExpired):  # it runs on if there is an NVML
        process.wait(20 if not (tmp_path / sampler.FILE).exists() else 0.1)
    sampler.stop(process)
    assert (tmp_path / sampler.FILE).exists()
    assert not mark.exists(), mark.read_text()


def test_a_file_that_hides_one_of_pythons_modules_is_named(gpudiag: Gpudiag) -> None:
    file = gpudiag.folder / "json.py"
    file.write_text("raise ImportError('not that json')")
    done = subprocess.run(
        [sys.executable, "-m", "gpudiag", "show", "report.json"],
        env={**gpudiag.environment, "PYTHONPATH": os.pathsep.join([str(gpudiag.folder), *gpudiag.path])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, "bug" in done.stderr) == (3, False), done.stderr
    assert str(file) in done.stderr


def test_a_folder_that_comes_first_hides_nothing_that_a_server_needs(gpudiag: Gpudiag) -> None:
    """As the folder of a user's tests, which pytest puts first: what it imported before is not looked for there."""
    mark = _litter(gpudiag.folder, {"json", "operator", "types"})
    gpudiag.path.insert(0, str(gpudiag.folder))
    program = (
        f"import sys, json, operator, types; sys.path[:] = {gpudiag.path!r}\n"
        "from gpudiag.isolate import *; from gpudiag.isolate.supervisor import Supervisor\n"
        "with Supervisor({'plain': ServerSpec()}, Bounds()) as supervisor:\n"
        "    supervisor.start(Job('well', 'processes.illbehaved:well', {}, 30, 'plain', fresh=True))\n"
        "    print([one.detail for one in supervisor.wait(30)])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "['']\n", done.stderr
    assert not mark.exists(), mark.read_text()
