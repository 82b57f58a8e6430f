"""A program is as it would be without the watcher, and what it is not must not matter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from conftest import Gpudiag
from gpudiag.model import codec
from gpudiag.model.program import ProgramTrace

pytestmark = pytest.mark.starts


def _trace(*arguments: str, tmp_path: Path, input_: str = "", **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpudiag", "trace", "-o", str(tmp_path / "r.json"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=550, input=input_, check=False, **options)  # type: ignore[call-overload, no-any-return]


Traced = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def trace(gpudiag: Gpudiag) -> Traced:
    """Trace a program as a fork of a process that has imported gpudiag; what the program is given is not its matter."""
    return lambda *arguments: gpudiag("trace", "-o", "r.json", *arguments, flags=())


def _program(tmp_path: Path) -> ProgramTrace:
    program = codec.load(tmp_path / "r.json").program
    assert program is not None
    return program


def _python(code: str) -> tuple[str, ...]:
    return "--", sys.executable, "-c", code


def test_its_output_and_input_are_its_own(tmp_path: Path) -> None:
    done = _trace(*_python("import sys; print(sys.stdin.read()); sys.exit(3)"), tmp_path=tmp_path, input_="given")
    assert (done.returncode, done.stdout) == (0, "given\n")
    assert "ended before it imported TensorFlow" in done.stderr
    assert _program(tmp_path).ended == "exit status 3"


@pytest.mark.parametrize(
    ("code", "ended", "status"),
    [
        ("raise SystemExit(7)", "exit status 7", 7),
        ("this is no python", "exit status 1", 1),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL", 137),
        ("import os; os.abort()", "killed by SIGABRT", 134),
        ("import os; os.close(1); os.close(2); os.close(0)", "exit status 0", 0),
        ("import os; os.chdir('/'); os.closerange(0, 1000); os._exit(4)", "exit status 4", 4),
        ("import os, sys; os.execv(sys.executable, [sys.executable, '-c', 'raise SystemExit(5)'])", "exit status 5", 5),
    ],
)
def test_its_exit_status_is_known_however_it_ends(
    code: str, ended: str, status: int, tmp_path: Path, trace: Traced
) -> None:
    done = trace("--exit-with", "program", *_python(code))
    assert done.returncode == status
    assert _program(tmp_path).ended == ended


def test_the_error_that_ends_it_is_explained(tmp_path: Path, trace: Traced) -> None:
    text = "libcudnn.so.9: cannot open shared object file: No such file or directory"
    done = trace(*_python(f"def load():\n    raise ImportError({text!r})\nload()"))
    report = codec.load(tmp_path / "r.json")
    assert report.program is not None
    assert report.program.raised[-1] == f"ImportError: {text}" == report.lines[-1]
    assert "in load" in "".join(report.program.raised)
    assert "error " in done.stderr.partition("ended ")[2]
    assert report.diagnosis.causes
    assert codec.decode(codec.encode(report), "it").diagnosis == report.diagnosis


@pytest.mark.parametrize(
    "code", ["raise ValueError('the folder of the data is empty')", "raise SystemExit('no data')", "raise KeyError(3)"]
)
def test_an_error_of_its_own_is_no_cause(code: str, tmp_path: Path, trace: Traced) -> None:
    trace(*_python(code))
    assert codec.load(tmp_path / "r.json").diagnosis.causes == ()


def test_it_prints_the_same_errors(tmp_path: Path) -> None:
    code = "import os\ndef f(): os.environ['TF_X'] = 1\nf()"
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert _trace(*_python(code), tmp_path=tmp_path).stderr.startswith(plain.stderr)


def test_its_modules_and_paths_are_those_without_the_watcher(tmp_path: Path) -> None:
    code = (
        "import sys; print(sys.path); print(sorted(name for name in set(sys.modules) - {'mmap', 'sitecustomize'} "
        "if not name.startswith('gpudiag_watch')))"
    )
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert _trace(*_python(code), tmp_path=tmp_path).stdout == plain.stdout


def test_its_own_sitecustomize_is_run(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os\nif 'GPUDIAG_TRACE_FOLDER' in os.environ: print('own')")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = _trace(*_python("print('main')"), tmp_path=tmp_path, env=env)
    assert done.stdout == "own\nmain\n"


def test_a_python_without_the_watcher_is_named(tmp_path: Path) -> None:
    done = _trace("--", sys.executable, "-I", "-c", "print(1)", tmp_path=tmp_path)
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert "could be watched" in done.stderr


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        (("--", "no-such-command"), 127, "no-such-command: no such command"),
        (("--", "/etc"), 126, "/etc: "),
        (("--", "none.ipynb"), 2, "none.ipynb: there is no such notebook"),
        ((), 2, "a COMMAND is needed"),
        (("--fault", "x", "--", "true"), 2, "--fault needs --simulate"),
    ],
)
def test_what_cannot_be_started_is_refused(command: tuple[str, ...], status: int, said: str, trace: Traced) -> None:
    done = trace(*command)
    assert done.returncode == status
    assert said in done.stderr


def test_a_module_a_file_and_a_shell_are_run(tmp_path: Path) -> None:
    (tmp_path / "mod.py").write_text("import sys; print(__name__, sys.argv[1:])")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for command in (("-m", "mod", "-x"), (str(tmp_path / "mod.py"), "-x"), ("sh", "-c", f"{sys.executable} -m mod -x")):
        done = _trace("--", *command, tmp_path=tmp_path, env=env)
        assert done.stdout == "__main__ ['-x']\n"
        assert [process for process in _program(tmp_path).processes if "-x" in process.command]


def test_a_notebook_is_run_cell_by_cell(tmp_path: Path, trace: Traced) -> None:
    first = {"cell_type": "code", "source": ["%load_ext autoreload\n", "x = 20"]}
    second = {"cell_type": "code", "source": "print(x + 1)"}
    notebook = tmp_path / "a.ipynb"
    notebook.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": "x"}, first, second]}))
    done = trace("--", str(notebook))
    assert done.stdout == "21\n"
    notebook.write_text("{")
    assert "not a notebook" in trace("--", str(notebook)).stderr


def test_after_the_time_that_is_given_it_is_ended(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: exit(9)); time.sleep(600)"
    done = _trace("--for", "2", "--exit-with", "program", *_python(code), tmp_path=tmp_path)
    assert done.returncode == 9
    assert _program(tmp_path).ended == "still running after 2 s; ended by gpudiag, exit status 9"


CHILDREN_IGNORED = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, "-m", "gpudiag", *sys.argv[1:]])
"""


@pytest.mark.parametrize("command", [("trace", "--exit-with", "program"), ("simulate", "1")])
def test_where_sigchld_is_ignored_it_ends_with_the_status_of_the_program(command: tuple[str, ...]) -> None:
    code = "import signal; print(signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN); raise SystemExit(7)"
    done = subprocess.run(
        [sys.executable, "-c", CHILDREN_IGNORED, *command, *_python(code)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (7, "True\n"), "the program is given it as gpudiag was"


@pytest.mark.parametrize("path", [":/nowhere", "/nowhere:", ""])
def test_an_empty_entry_of_its_path_is_the_working_directory(path: str, tmp_path: Path) -> None:
    (tmp_path / "project.py").write_text("")
    (tmp_path / "scripts").mkdir()
    program = tmp_path / "scripts" / "run.py"
    program.write_text("import importlib.util; print(importlib.util.find_spec('project') is not None)")
    env = {**os.environ, "PYTHONPATH": path}
    plain = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=True, cwd=tmp_path, env=env
    )
    assert plain.stdout == f"{bool(path)}\n"
    assert _trace("--", sys.executable, str(program), tmp_path=tmp_path, cwd=tmp_path, env=env).stdout == plain.stdout


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_its_signals_are_its_own(sent: signal.Signals, tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        f"signal.signal({int(sent)}, lambda *_: sys.exit(6))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)"
    )
    command = [sys.executable, "-m", "gpudiag", "trace", "--exit-with", "program", *_python(code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(sent)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 6
    assert "exit status 6" in errors


def test_what_it_leaves_behind_goes_on(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    os.closerange(0, 100)\n"
        "    time.sleep(3)\n"
        "    os.environ['TF_X'] = 'noted where the folder is gone'\n"
        f"    open({str(mark)!r}, 'w').close()\n"
        "    os._exit(0)\n"
    )
    done = _trace(*_python(code), tmp_path=tmp_path)
    assert done.returncode == 0
    until = time.monotonic() + 300
    while not mark.exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert mark.exists()


def test_a_full_disk_costs_the_notes_and_not_the_program(trace: Traced) -> None:
    code = "import resource; print('ran')"
    limited = ("sh", "-c", f'ulimit -f 8; {sys.executable} -c "{code}"')
    done = trace("--", *limited)
    assert done.stdout == "ran\n"


NEARLY_FULL = """
import os, subprocess, sys
folder = os.environ["GPUDIAG_TRACE_FOLDER"]
own = os.path.join(folder, next(name for name in os.listdir(folder) if name.startswith(str(os.getpid()))))
print(os.stat(own).st_blocks * 512 < 65_536)
for number in range(1000 - len(os.listdir(folder))):
    open(os.path.join(folder, "none.%d" % number), "w").close()
number_of_own = "print(len([name for name in os.listdir(%r) if name.startswith(str(os.getpid()))]))" % folder
subprocess.run([sys.executable, "-c", "import os; " + number_of_own])
for number in range(200):
    os.environ["TF_FORCE_GPU_ALOW_GROWTH"] = "x" * 290 + str(number)
"""


def test_a_python_without_tensorflow_takes_little_room_and_there_is_a_bound_of_how_many_do(tmp_path: Path) -> None:
    done = _trace(*_python(NEARLY_FULL), tmp_path=tmp_path)
    assert done.stdout == "True\n0\n", "the last was not watched"
    (process,) = _program(tmp_path).processes
    assert not process.lost, "there is room for more notes"
    assert _program(tmp_path).settings[-1].value.endswith("199'")


def test_notes_that_were_damaged_are_read_as_far_as_they_go(trace: Traced) -> None:
    code = (
        "import os, gpudiag_watch\n"
        "folder = os.environ['GPUDIAG_TRACE_FOLDER']\n"
        "own = os.path.join(folder, os.listdir(folder)[0])\n"
        "os.environ['TF_FORCE_GPU_ALOW_GROWTH'] = '1'\n"
        "with open(own, 'r+b') as file:\n"
        "    file.seek(gpudiag_watch.notes.NOTES_AT + 5); file.write(b'\\xff\\n{[(')\n"
        "open(os.path.join(folder, '1.0'), 'w').write('short')\n"
    )
    done = trace(*_python(code))
    assert "internal error" not in done.stderr
    assert done.returncode in (0, 1)


ALLOCATES = """
import ctypes, time
cuda, context, memory = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1), cuda.cuCtxSetCurrent(context)
print(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(300 << 20)), flush=True)
time.sleep(20)
"""


def test_what_nvml_books_on_the_program_is_reported(tmp_path: Path) -> None:
    done = _trace("--simulate", "2x2GiB", "--for", "15", *_python(ALLOCATES), tmp_path=tmp_path)
    assert done.stdout == "0\n"
    program = _program(tmp_path)
    idle, used = program.booked
    (process,) = program.processes
    assert idle.used_bytes == idle.before_bytes == 0
    ((pid, held),) = used.processes
    assert pid == process.pid
    assert used.used_bytes == held >= 300 << 20
    assert "by the program" in done.stderr


@pytest.mark.parametrize(("exit_with", "status", "tag"), [("report", 1, "failure"), ("program", 0, "system-out")])
def test_the_formats_have_the_exit_status_that_gpudiag_has(
    exit_with: str, status: int, tag: str, tmp_path: Path, trace: Traced
) -> None:
    code = "import os; os.environ['TF_FORCE_GPU_ALOW_GROWTH'] = 'true'"
    done = trace("--exit-with", exit_with, "-o", str(tmp_path / "r.xml"), *_python(code))
    assert done.returncode == status
    assert codec.load(tmp_path / "r.json").exit_code == status
    case = ElementTree.parse(tmp_path / "r.xml").find(".//testcase")
    assert case is not None
    (outcome,) = case
    assert (case.get("name"), outcome.tag) == ("program", tag)
    assert f"1 finding; exit status {status}" in outcome.get("message", outcome.text or "")


def test_a_github_annotation_of_a_program_says_nothing_of_a_verdict(trace: Traced) -> None:
    code = "import os; os.environ['TF_FORCE_GPU_ALOW_GROWTH'] = 'true'"
    done = trace("--format", "github", *_python(code))
    assert "::error title=gpudiag%3A program::1 finding; exit status 1" in done.stderr


NAMELESS = """
import types
from gpudiag_watch import hooks

def hidden(hook):
    return lambda module: hook(types.SimpleNamespace(__name__=module.__name__))

tensorflow = hooks.HOOKS.pop("tensorflow")
hooks.HOOKS.update({name: hidden(hook) for name, hook in hooks.HOOKS.items()}, tensorflow=tensorflow)
import os
os.environ["TF_FORCE_GPU_ALOW_GROWTH"] = "true"
import tensorflow as tf
print(float(tf.function(tf.tanh)(tf.zeros([2]))[0]))
"""


def test_without_the_internal_names_the_program_runs_and_the_report_says_what_it_cannot_know(tmp_path: Path) -> None:
    done = _trace(*_python(NAMELESS), tmp_path=tmp_path)
    assert done.stdout == "0.0\n"
    (process,) = _program(tmp_path).processes
    said = "\n".join(process.missing)
    assert "a bug in gpudiag" not in said
    for name in ("eager.context.Context", "AtomicFunction", "BaseSession", "OpError", "OwnedIterator"):
        assert f"{name}" in said
    assert "settings and operations" in done.stderr
    assert "the name is probably misspelled" in " ".join(done.stderr.split()), "what does not need them is reported"


PROFILED = """
import os, signal, sys, tempfile
import tensorflow as tf
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
with tempfile.TemporaryDirectory() as folder:
    tf.profiler.experimental.start(folder)
    with tf.profiler.experimental.Trace("step", step_num=1):
        tf.tanh(tf.ones([8, 8]))
    tf.profiler.experimental.stop()
    print([name for _, _, files in os.walk(folder) for name in files if name.endswith(".xplane.pb")] != [])
sys.stdout.flush()
os.chdir("/")
os.close(1)
if os.fork() == 0:
    os.setsid()
    os._exit(0)
os.wait()
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_program_that_profiles_itself_closes_its_output_and_handles_signals_is_as_without(tmp_path: Path) -> None:
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = _trace("--exit-with", "program", *_python(PROFILED), tmp_path=tmp_path, env=env)
    assert (done.returncode, done.stdout) == (7, "True\n")
    program = _program(tmp_path)
    assert [(placement.op, placement.count) for placement in program.placed if placement.op == "Tanh"] == [("Tanh", 1)]
    assert not [text for process in program.processes for text in process.missing]


STEPS = """
import tensorflow as tf

def held():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon"))

number = tf.zeros([4])
for step in range(20_000):
    tf.tanh(number)
    if step == 5_000:
        before = held()
print(held() - before)
"""


def test_its_memory_does_not_grow_with_its_steps(tmp_path: Path) -> None:
    done = _trace(*_python(STEPS), tmp_path=tmp_path)
    assert int(done.stdout) < 1024, "KiB for 15,000 operations"
    assert [placement.count for placement in _program(tmp_path).placed if placement.op == "Tanh"] == [20_000]
