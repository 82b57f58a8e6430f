"""Programs on a simulated machine: unmodified, isolated, forked, spawned, signalled."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpudiag.simulator import (
    Machine,
    RealDriverMapped,
    SimulatorError,
    SimulatorMissing,
    fault_environment,
    preload,
)

from .on_machine import MODULES, cards, run_python

RUN = "import sys; from gpudiag.simulator import run; sys.exit(run(sys.argv[2:], sys.argv[1]))"


def simulate(spec: str, *command: str) -> subprocess.CompletedProcess[str]:
    """What `gpudiag simulate SPEC -- COMMAND...` does."""
    environment = {**os.environ, "PYTHONPATH": MODULES}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    return subprocess.run(
        [sys.executable, "-c", RUN, spec, *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_exit_codes() -> None:
    done = simulate("2x16GiB", "sh", "-c", "echo out; exit 7")
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert done.stderr == "gpudiag: 2 simulated GPUs (Simulated GPU, 16.0 GiB)\n"
    assert simulate("1", "sh", "-c", "kill -9 $$").returncode == 128 + 9
    missing = simulate("1", "no-such-command")
    assert missing.returncode == 127
    assert "no-such-command: no such command" in missing.stderr
    assert simulate("1", "/").returncode == 126


def test_signals_reach_the_command(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    script = f"trap 'exit 41' TERM; trap 'exit 42' INT; : > {ready}; while :; do sleep 0.05; done"
    for number, code in ((signal.SIGTERM, 41), (signal.SIGINT, 42)):
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, "1", "sh", "-c", script],
            env={**os.environ, "PYTHONPATH": MODULES},
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 300
        while not ready.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(30) == code
        ready.unlink()


def test_the_machine_is_removed() -> None:
    done = simulate("1", "sh", "-c", "echo $GPUDIAG_SIM_MACHINE; ls $GPUDIAG_SIM_MACHINE/lib")
    directory, *libraries = done.stdout.split()
    assert "libcuda.so.1" in libraries
    assert not Path(directory).exists()


PLACES = """
import sys, multiprocessing
def where(_):
    import tensorflow as tf
    tf.config.set_soft_device_placement(False)
    with tf.device('/GPU:0'):
        x = tf.matmul(tf.ones((2, 2)), tf.ones((2, 2)))
    return [x.device[-5:], float(x[0, 0]), len(tf.config.list_physical_devices('GPU'))]
if __name__ == '__main__':
    if sys.argv[1] == 'spawn':
        with multiprocessing.get_context('spawn').Pool(1) as pool:
            print(pool.map(where, [0])[0])
    elif sys.argv[1] == 'fork':
        import tensorflow
        with multiprocessing.get_context('fork').Pool(2) as pool:
            print(*pool.map(where, [0, 0], chunksize=1), sep=chr(10))
    elif sys.argv[1] == 'thread':
        import threading
        found = []
        threads = [threading.Thread(target=lambda: found.append(where(0))) for _ in range(2)]
        [t.start() for t in threads], [t.join() for t in threads]
        print(*found, sep=chr(10))
    else:
        print(where(0))
"""


@pytest.mark.parametrize(
    "how", [*(pytest.param(how, marks=pytest.mark.slow) for how in ("alone", "thread", "fork")), "spawn"]
)
def test_unmodified_programs(tmp_path: Path, how: str) -> None:
    script = tmp_path / "program.py"
    script.write_text(PLACES)
    done = simulate("2x4GiB", sys.executable, str(script), how)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = set(done.stdout.splitlines())
    assert lines == {"['GPU:0', 2.0, 2]"}


def test_isolated_interpreter_with_a_bare_environment() -> None:
    """No site hook, no PYTHON variable: only the loader's path and the machine's name."""
    spec = importlib.util.find_spec("tensorflow")
    assert spec
    assert spec.origin
    packages = str(Path(spec.origin).parent.parent)
    code = f"import sys; sys.path.append({packages!r}); sys.argv.append('alone')\n{PLACES}"
    with Machine(cards(2)) as machine:
        environment = machine.environment({})
        assert set(environment) == {"LD_LIBRARY_PATH", "PATH", "GPUDIAG_SIM_MACHINE"}
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
    assert done.stdout == "['GPU:0', 2.0, 2]\n", done.stderr[-3000:]


def test_environment_keeps_what_is_there() -> None:
    with Machine("1") as outer, Machine("2") as inner:
        base = outer.environment({"LD_LIBRARY_PATH": "/a:/b", "CUDA_VISIBLE_DEVICES": "0"})
        assert base["LD_LIBRARY_PATH"] == f"{outer.directory}/lib:/a:/b"
        nested = inner.environment(base, faults=["cuinit=3"])
        assert nested["LD_LIBRARY_PATH"] == f"{inner.directory}/lib:/a:/b"
        assert nested["CUDA_VISIBLE_DEVICES"] == "0"
        assert nested["GPUDIAG_SIM_FAULTS"] == "cuInit,code=3"
        assert "GPUDIAG_SIM_FAULTS" not in inner.environment(nested)


def fake_driver(directory: Path) -> Path:
    """A library that has the real driver's name and is not ours."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source = directory / "driver.c"
    source.write_text("int cuInit(unsigned flags) { return (int)flags; }\n")
    library = directory / "libcuda.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, source],
        check=True,
    )
    return library


def test_process_with_the_real_driver_is_refused(tmp_path: Path) -> None:
    driver = fake_driver(tmp_path)
    with Machine("1") as machine:
        with pytest.raises(RealDriverMapped, match="LD_PRELOAD names"):
            machine.environment({"LD_PRELOAD": str(driver)})
        code = (
            f"import ctypes; ctypes.CDLL({str(driver)!r})\n"
            f"core = ctypes.CDLL('{machine.directory}/lib/libgpudiag_cuda.so')\n"
            "print(core.cuInit(0))"
        )
        done = run_python(machine, "-c", code)
        assert done.stdout == "803\n"
        assert f"refused: this process has mapped the real driver, {driver}" in done.stderr
        mapped = (
            f"import ctypes; ctypes.CDLL({str(driver)!r})\n"
            "import tensorflow as tf\n"
            "from gpudiag.simulator import preload\n"
            "try:\n    preload()\n"
            "except Exception as error:\n    print(type(error).__name__)\n"
            "print(len(tf.config.list_physical_devices('GPU')))\n"
        )
        done = run_python(machine, "-c", mapped, PYTHONPATH=MODULES)
        assert done.stdout.split() == ["RealDriverMapped", "0"], done.stderr[-2000:]


def test_a_real_library_in_the_path_is_not_found(tmp_path: Path) -> None:
    fake_driver(tmp_path)
    code = "import ctypes; print(ctypes.CDLL('libcuda.so.1').gpudiag_simulated_stack())"
    with Machine("1") as machine:
        environment = machine.environment({**os.environ, "LD_LIBRARY_PATH": str(tmp_path)})
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
        )
        assert done.stdout == "1\n"
    with Machine("1", ["library_missing=libcuda.so.1"]) as machine:
        environment = machine.environment({**os.environ, "LD_LIBRARY_PATH": str(tmp_path)})
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
        )
        assert "cannot open shared object file" in done.stderr


def test_preload_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUDIAG_SIM_MACHINE", raising=False)
    with pytest.raises(SimulatorError, match="not on a simulated machine"):
        preload()
    monkeypatch.setenv("GPUDIAG_SIM_MACHINE", "/nonexistent")
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    with pytest.raises(SimulatorError, match="import tensorflow first"):
        preload()


def test_ended_machine() -> None:
    with Machine("1") as machine:
        environment = machine.environment()
        library = str(Path(f"{machine.directory}/lib/libcuda.so.1").resolve())
    done = subprocess.run(
        [sys.executable, "-c", f"import ctypes; print(ctypes.CDLL({library!r}).cuInit(0))"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "100\n"
    assert "the simulated machine has ended" in done.stderr


def test_unbuilt_libraries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import importlib.metadata

    from gpudiag import guest
    from gpudiag.simulator import machine

    def none(name: str) -> importlib.metadata.Distribution:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(guest, "folders", lambda: [str(tmp_path)])
    monkeypatch.setattr(importlib.metadata, "distribution", none)
    with pytest.raises(SimulatorMissing, match=r"apt-get install gcc g\+\+"):
        machine.library_directory()


def test_cpu_wheel_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from gpudiag.simulator import CudaWheelMissing, cpu_only_tensorflow, require_cuda_wheel

    assert cpu_only_tensorflow() == ""
    require_cuda_wheel()
    package = tmp_path / "tensorflow"
    (package / "python/platform").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "python/platform/build_info.py").write_text("build_info = [('is_cuda_build', False)]")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    with pytest.raises(CudaWheelMissing, match="the CUDA wheel is needed"):
        require_cuda_wheel()
    (package / "python/platform/build_info.py").unlink()
    with pytest.raises(CudaWheelMissing, match=f"{package} is imported as tensorflow, but is not TensorFlow"):
        require_cuda_wheel()


def test_a_tensorflow_without_its_first_file_is_not_called_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from gpudiag.simulator import CudaWheelMissing, require_cuda_wheel

    (tmp_path / "tensorflow/python").mkdir(parents=True)  # a folder without __init__.py comes after each real package
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    with pytest.raises(CudaWheelMissing, match="pip install tensorflow"):
        require_cuda_wheel()
    (tmp_path / "tensorflow-2.21.0.dist-info").mkdir()
    with pytest.raises(CudaWheelMissing, match=r"files of the installed TensorFlow are missing.*check host"):
        require_cuda_wheel()


def test_faults_of_a_forked_child_are_its_own() -> None:
    code = (
        "import ctypes, os\n"
        "cuda = ctypes.CDLL('libcuda.so.1')\n"
        "reader, writer = os.pipe()\n"
        "if not os.fork():\n"
        f"    os.environ.update({fault_environment(['cuinit=802'])!r})\n"
        "    os.write(writer, str(cuda.cuInit(0)).encode()), os._exit(0)\n"
        "os.close(writer), os.wait()\n"
        "print(os.fdopen(reader).read(), cuda.cuInit(0))\n"
    )
    with Machine("1") as machine:
        assert run_python(machine, "-c", code).stdout == "802 0\n"


def test_what_a_killed_process_left_is_removed_at_the_next_start(tmp_path: Path) -> None:
    code = (
        "import subprocess, time; from gpudiag.simulator import Machine\n"
        "with Machine('1') as machine:\n"
        "    lives = subprocess.Popen(['sleep', '60'], env=machine.environment())\n"
        "    print(machine.directory, lives.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    (tmp_path / "gpudiag-sim-foreign").mkdir()
    (tmp_path / "gpudiag-sim-link").symlink_to(tmp_path)
    environment = {**os.environ, "PYTHONPATH": MODULES, "TMPDIR": str(tmp_path)}

    def another_start() -> None:
        subprocess.run(
            [sys.executable, "-c", "from gpudiag.simulator import Machine\nwith Machine('1'): pass"],
            env=environment,
            timeout=60,
            check=True,
        )

    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment, text=True) as owner:
        assert owner.stdout is not None
        name, _, pid = owner.stdout.readline().partition(" ")
        try:
            another_start()
            assert Path(name).exists(), "its owner lives"
            owner.kill()
            owner.wait()
            another_start()
            assert Path(name).exists(), "a process that was started on it lives"
        finally:
            owner.kill()
            os.kill(int(pid), signal.SIGKILL)
    until = time.monotonic() + 300
    while Path(name).exists():  # the one that was killed last may take a moment to go
        assert time.monotonic() < until
        another_start()
    assert {path.name for path in tmp_path.iterdir()} == {"gpudiag-sim-foreign", "gpudiag-sim-link"}
