"""Faults of the environment that the bisection finds with the catalogue switched off, each on a simulated machine.

``gpudiag check`` is started as a user starts it, by an interpreter of its own: what is at fault is how Python starts.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from conftest import DEADLINE_S, Gpudiag
from gpudiag.model import codec
from gpudiag.model.diagnosis import Bisection
from gpudiag.run.bisect import attempt
from gpudiag.run.bisect.parts import Variant
from gpudiag.simulator import Machine
from reports import fix_line

pytestmark = pytest.mark.usefixtures("no_child_left")

TESTS = Path(__file__).parents[2]
CONTEXT = "cuDevicePrimaryCtxRetain"
HIDES = "import os; os.environ['CUDA_VISIBLE_DEVICES'] = '-1'\n"
WRONG_NUMPY = "raise ImportError('numpy is another one')\n"
PRELOADED = """
int setenv(const char *, const char *, int);
__attribute__((constructor)) static void hide(void) { setenv("CUDA_VISIBLE_DEVICES", "-1", 1); }
"""
BASHRC = """# mine
export LD_LIBRARY_PATH="$HOME/cudnn${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
alias ll="ls -l"
"""


@dataclass(frozen=True)
class Fault:
    """A fault of the environment."""

    title: str
    found: tuple[str, ...]
    """What must be named; ``{folder}`` is the test's."""
    fix: tuple[str, ...]
    """The lines to type."""
    variables: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    libraries: str = ""
    """``LD_LIBRARY_PATH``; ``{machine}`` is the simulated machine's folder."""
    in_folder: bool = False
    """True: the working directory is on ``sys.path``, as with ``python -m``."""
    build: Callable[[Path], None] | None = None
    """Makes what is not text."""
    venv: bool = False
    """True: the interpreter is that of a virtual environment of the test."""


def preloaded(folder: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler (cc or gcc)")
    (folder / "hide.c").write_text(PRELOADED)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", "libhide.so", "hide.c"], cwd=folder, check=True)


FAULTS = (
    Fault(
        "a mask that hides every GPU",
        ("CUDA_VISIBLE_DEVICES",),
        ("unset CUDA_VISIBLE_DEVICES",),
        {"CUDA_VISIBLE_DEVICES": "-1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "NCCL_DEBUG": "WARN"},
    ),
    Fault(
        "no type of device but the CPU",
        ("TF_ENABLED_DEVICE_TYPES",),
        ("unset TF_ENABLED_DEVICE_TYPES",),
        {"TF_ENABLED_DEVICE_TYPES": "CPU"},
    ),
    Fault(
        "GPUs that are too small",
        ("TF_MIN_GPU_MULTIPROCESSOR_COUNT",),
        ("unset TF_MIN_GPU_MULTIPROCESSOR_COUNT",),
        {"TF_MIN_GPU_MULTIPROCESSOR_COUNT": "1000"},
    ),
    Fault(
        "two variables, each of which is enough",
        ("CUDA_VISIBLE_DEVICES", "TF_ENABLED_DEVICE_TYPES"),
        ("unset CUDA_VISIBLE_DEVICES", "unset TF_ENABLED_DEVICE_TYPES"),
        {"TF_ENABLED_DEVICE_TYPES": "CPU", "CUDA_VISIBLE_DEVICES": "7"},
    ),
    Fault(
        "a mode of threads that TensorFlow does not know",
        ("TF_GPU_THREAD_MODE",),
        ("unset TF_GPU_THREAD_MODE",),
        {"TF_GPU_THREAD_MODE": "nonsense"},
    ),
    Fault(
        "a flag that TensorFlow does not know",
        ("TF_XLA_FLAGS",),
        ("unset TF_XLA_FLAGS",),
        {"TF_XLA_FLAGS": "--nonsense"},
    ),
    Fault(
        "one bad flag of three",
        ("--xla_bogus=1",),
        ("export XLA_FLAGS='--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false'",),
        {"XLA_FLAGS": "--xla_gpu_autotune_level=0 --xla_bogus=1 --xla_gpu_enable_triton_gemm=false"},
    ),
    Fault(
        "a plug-in that is not there",
        ("TF_PLUGGABLE_DEVICE_LIBRARY_PATH",),
        ("unset TF_PLUGGABLE_DEVICE_LIBRARY_PATH",),
        {"TF_PLUGGABLE_DEVICE_LIBRARY_PATH": "/nonexistent"},
    ),
    Fault(
        "a variable of a library that TensorFlow imports",
        ("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION",),
        ("unset PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION",),
        {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "cpp"},
    ),
    Fault(
        "another module of a name, on one entry of three",
        ("{folder}/b",),
        ("export PYTHONPATH={folder}/a:{folder}/c",),
        {"PYTHONPATH": "{folder}/a:{folder}/b:{folder}/c"},
        {"a/one.py": "", "b/numpy.py": WRONG_NUMPY, "c/two.py": ""},
    ),
    Fault(
        "what is left of another TensorFlow",
        ("PYTHONPATH",),
        ("unset PYTHONPATH",),
        {"PYTHONPATH": "{folder}/old"},
        {"old/tensorflow/__init__.py": "__version__ = '1.15'\n"},
    ),
    Fault(
        "a junk C++ library",
        ("{folder}/junk",),
        ("export LD_LIBRARY_PATH={folder}/none:{machine}/lib",),
        {},
        {"junk/libstdc++.so.6": "junk"},
        libraries="{folder}/none:{folder}/junk:{machine}/lib",
    ),
    Fault(
        "a junk driver library",
        ("{folder}/stray",),
        ("export LD_LIBRARY_PATH={folder}/none:{machine}/lib",),
        {},
        {"stray/libcuda.so.1": "junk"},
        libraries="{folder}/stray:{folder}/none:{machine}/lib",
    ),
    Fault(
        "a preloaded library",
        ("LD_PRELOAD",),
        ("unset LD_PRELOAD",),
        {"LD_PRELOAD": "{folder}/libhide.so"},
        build=preloaded,
    ),
    Fault(
        "a file in the working directory",
        ("{folder}",),
        ("cd /",),
        {},
        {"numpy.py": WRONG_NUMPY},
        in_folder=True,
    ),
    Fault(
        "a sitecustomize.py",
        ("{site}/sitecustomize.py",),
        ("mv {site}/sitecustomize.py {site}/sitecustomize.py.off",),
        {},
        {"{site}/sitecustomize.py": HIDES},
        venv=True,
    ),
    Fault(
        "a file .pth",
        ("{site}/hide.pth",),
        ("mv {site}/hide.pth {site}/hide.pth.off",),
        {},
        {"{site}/hide.pth": HIDES, "{site}/other.pth": "/nonexistent\n"},
        venv=True,
    ),
)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with Machine("2") as made:
        yield made


def bisected(fault: Fault, gpudiag: Gpudiag, machine: Machine) -> tuple[Bisection, dict[str, str]]:
    """Bisect the environment with this fault; return what came of it, and what the placeholders stand for."""
    names = made(fault, gpudiag.folder)
    library_path = fault.libraries.format(**names, machine=machine.directory) or f"{machine.directory}/lib"
    variables = {name: value.format(**names) for name, value in fault.variables.items()}
    environment = machine.environment({**gpudiag.environment, "TMPDIR": str(gpudiag.temporary)})
    environment |= {**variables, "LD_LIBRARY_PATH": library_path}
    python = venv(gpudiag.folder, Path(names["site"])) if fault.venv else sys.executable
    leave = "" if fault.in_folder else "sys.path.pop(0); "
    boot = f"import sys; {leave}sys.path.append({str(TESTS)!r}); import bisecting; bisecting.bisect_here()"
    done = subprocess.run(
        [str(python), "-c", boot],
        env=environment,
        cwd=gpudiag.folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.stdout, done.stderr
    return msgspec.json.decode(done.stdout, type=Bisection), names


def made(fault: Fault, folder: Path) -> dict[str, str]:
    """Make the files of a fault."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    names = {"folder": str(folder), "version": version, "site": f"{folder}/venv/lib/python{version}/site-packages"}
    for name, text in fault.files.items():
        file = folder / name.format(**names)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    if fault.build is not None:
        fault.build(folder)
    return names


def venv(folder: Path, site: Path) -> Path:
    """Make a virtual environment of links to what is installed here; return its interpreter."""
    own = next(Path(entry) for entry in sys.path if (Path(entry) / "tensorflow").is_dir())
    site.mkdir(parents=True, exist_ok=True)
    for path in own.iterdir():
        if path.name not in ("sitecustomize.py", "__pycache__") and not (site / path.name).exists():
            (site / path.name).symlink_to(path)
    python = folder / "venv/bin/python"
    python.parent.mkdir()
    python.symlink_to(Path(sys.executable).resolve())
    home = Path(sys.executable).resolve().parent
    (folder / "venv/pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = true\n")
    return python


ALSO = {
    "a file .pth",
    "a file in the working directory",
    "a flag that TensorFlow does not know",
    "a junk driver library",
    "a mode of threads that TensorFlow does not know",
    "a plug-in that is not there",
    "a preloaded library",
    "a sitecustomize.py",
    "another module of a name, on one entry of three",
    "no type of device but the CPU",
    "one bad flag of three",
    "two variables, each of which is enough",
}
"""Each takes the way of another: a file of site-packages, an entry of a path, a variable; or every try of it imports
TensorFlow, and the choice of tries is in ``test_search.py``."""


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, id=fault.title, marks=[pytest.mark.slow] if fault.title in ALSO else []) for fault in FAULTS],
)
def test_what_is_in_the_way_is_found_without_the_catalogue(fault: Fault, gpudiag: Gpudiag, machine: Machine) -> None:
    found, names = bisected(fault, gpudiag, machine)
    assert found.outcome == "found", found
    assert [change.name for change in found.changes] == [name.format(**names) for name in fault.found]
    lines = [fix_line(change.fix) if change.fix else "" for change in found.changes]
    assert lines == [line.format(**names, machine=machine.directory) for line in fault.fix]
    assert found.after == "GPUs listed: 2; a product and a convolution on each came out right"


@pytest.mark.parametrize("on_path", [False, True])
def test_the_working_directory_has_modules_only_if_it_is_on_the_path_here(
    on_path: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    for folder in (tmp_path, there):
        (folder / "tensorflow.py").write_text("raise ImportError(__file__)\n")
        monkeypatch.chdir(folder)
    if not on_path:
        (there / "json.py").write_text("raise ImportError('that of the working directory')\n")
    variant = Variant({"PYTHONPATH": str(tmp_path)}, on_path=on_path)
    reached = msgspec.json.decode(attempt.run(attempt.argument(variant)), type=attempt.Reached)
    assert reached.failed == f"ImportError: {(there if on_path else tmp_path) / 'tensorflow.py'}"


@pytest.mark.parametrize(
    ("faults", "asked", "expected"),
    [
        (["cuinit=999"], True, attempt.Reached(driver_error="cuInit: CUDA_ERROR_UNKNOWN")),
        (["context_creation=46@1"], True, attempt.Reached(driver_error=f"{CONTEXT}: CUDA_ERROR_DEVICE_UNAVAILABLE")),
        (["cuinit=999"], False, attempt.Reached(failed="ImportError: TensorFlow")),
        ([], True, attempt.Reached(failed="ImportError: TensorFlow")),
        (["library_missing=libcuda.so.1"], True, attempt.Reached(failed="ImportError: TensorFlow")),
    ],
)
def test_where_the_driver_refuses_tensorflow_is_not_imported(
    faults: list[str], asked: bool, expected: attempt.Reached, tmp_path: Path
) -> None:
    (tmp_path / "tensorflow.py").write_text("raise ImportError('TensorFlow')\n")
    with Machine("2", faults) as machine:
        variables = machine.environment({"PYTHONPATH": str(tmp_path)})
        answer = attempt.run(attempt.argument(Variant(variables, driver=asked)))
    assert msgspec.json.decode(answer, type=attempt.Reached) == expected


def test_the_faults_are_many() -> None:
    assert len(FAULTS) >= 15


@pytest.mark.slow
def test_the_head_of_a_report_says_it(gpudiag: Gpudiag) -> None:
    (gpudiag.folder / "cudnn").mkdir()
    (gpudiag.folder / ".bashrc").write_text(BASHRC)
    check = ["check", "host", "discovery.trace", "--no-catalogue", "--bisect", "300", "-q", "-v", "-o", "report.json"]
    away = 'mv "$GPUDIAG_SIM_MACHINE/lib/libcudnn.so.9" cudnn; HOME="$PWD" exec "$@"'
    command = gpudiag.command(*check, "--mask")
    done = gpudiag("simulate", "2", "--", "sh", "-c", away, "sh", *command, flags=(), GPUDIAG_BISECT="60")
    said = " ".join(done.stdout.split())
    assert "GPU not used because ~/cudnn in LD_LIBRARY_PATH is not set here: with it TensorFlow gets its GPU" in said
    assert "seen ~/.bashrc line 2 sets it; this process was not started by a shell that read it" in said
    assert "fix export LD_LIBRARY_PATH=~/cudnn:" in said
    report = codec.load(gpudiag.folder / "report.json")
    (cause,) = report.diagnosis.causes
    assert (cause.cause_id, cause.stage) == ("environment_in_the_way", report.diagnosis.broken_at)
    again = gpudiag("show", "report.json", "--rejudge").stdout
    assert "is not set here: with it TensorFlow gets its GPU" in " ".join(again.split())


def test_what_the_catalogue_proves_is_not_tried_again(gpudiag: Gpudiag) -> None:
    check = ("check", "host", "discovery.trace", *gpudiag.simulated("2"), "-q", "-o", "report.json")
    gpudiag(*check, CUDA_VISIBLE_DEVICES="7", GPUDIAG_BISECT="60")
    diagnosis = codec.load(gpudiag.folder / "report.json").diagnosis
    (cause,) = diagnosis.causes
    assert cause.trial is not None
    assert (cause.cause_id, cause.trial.outcome, diagnosis.bisection) == ("mask_hides_all", "works", None)
