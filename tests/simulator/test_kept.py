"""Simulated machines that outlive a command: processes and users on one machine, and leftovers."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from gpudiag import folders
from gpudiag.cli.simulate import simulate as command
from gpudiag.errors import UsageError
from gpudiag.simulator import SimulatorError, kept, library_directory

HOLD = """
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_void_p()
assert not cuda.cuInit(0)
assert not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
assert not cuda.cuCtxSetCurrent(context)
code = cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(int(sys.argv[1]) << 20))
print(code, flush=True)
time.sleep(float(sys.argv[2]))
"""
"""Holds so many MiB of GPU 0 for so many seconds, once it has said whether it got them."""


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder which stands for /tmp; that of this user's session is in it."""
    tmp_path.chmod(0o755)
    session = tmp_path / "session"
    session.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(session))
    monkeypatch.setattr(kept, "PUBLIC", tmp_path)
    return tmp_path


def hold(environment: Mapping[str, str], mib: int, seconds: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(mib), str(seconds)], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "0\n"
    return process


def apps(environment: Mapping[str, str]) -> set[str]:
    command = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.splitlines())


class Simulate:
    """``gpudiag simulate`` in this process; what it runs is another."""

    def __init__(self, captured: pytest.CaptureFixture[str]) -> None:
        self.captured = captured

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Return the exit status, the output and the messages."""
        try:
            status = command.main(list(arguments), standalone_mode=False)
        except UsageError as error:
            status = 2
            print(error, file=sys.stderr)
        captured = self.captured.readouterr()
        return status, captured.out, captured.err


@pytest.fixture
def simulate(capfd: pytest.CaptureFixture[str]) -> Simulate:
    return Simulate(capfd)


def test_processes_see_the_memory_of_each_other_and_a_killed_one_gives_it_back() -> None:
    machine = kept.keep("lab", "1x8GiB")
    environment = kept.attach(machine)
    first, second = hold(environment, 1024, 60), hold(kept.attach(kept.find("lab")), 2048, 60)
    try:
        context = 400
        both = {f"{first.pid}, {1024 + context}", f"{second.pid}, {2048 + context}"}
        assert apps(environment) == both
        assert kept.find("lab").processes() == sorted((first.pid, second.pid))
        first.kill()
        first.wait()
        assert apps(environment) == {f"{second.pid}, {2048 + context}"}
        assert kept.stop(machine) == [second.pid]
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()
    assert not Path(machine.folder).exists()


def test_from_the_command_line(simulate: Simulate, monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, err = simulate("--keep", "lab", "2x8GiB", "--fault", "stream_creation=2@1")
    said = "gpudiag: lab: 2 simulated GPUs (Simulated GPU, 8.0 GiB), with stream_creation=2@1"
    assert (status, out, err) == (0, "", f"{said}; to use it: gpudiag simulate --attach lab\n")
    status, _, err = simulate("--keep", "lab", "1")
    assert (status, "a machine lab is kept already" in err) == (2, True)
    assert simulate("--attach", "lab", "--", "sh", "-c", "nvidia-smi -L | wc -l; exit 7")[:2] == (7, "2\n")
    monkeypatch.setenv("SHELL", "false")
    assert simulate("--attach", "lab")[0] == 1
    status, out, _ = simulate("--list", "--format", "json")
    (entry,) = json.loads(out)["machines"]
    assert {name: entry[name] for name in ("name", "gpus", "spec", "faults", "shared", "processes")} == {
        "name": "lab",
        "gpus": 2,
        "spec": "2x8GiB",
        "faults": ["stream_creation=2@1"],
        "shared": False,
        "processes": [],
    }
    assert simulate("--keep", "other", "1", "--", "true")[0] == 0
    assert [line.split()[0] for line in simulate("--list")[1].splitlines()] == ["machine", "lab", "other"]
    assert simulate("--stop", "lab")[0] == 0
    for task in ("--attach", "--stop"):
        status, _, err = simulate(task, "lab")
        assert (status, err.strip()) == (
            2,
            "no simulated machine 'lab' is kept here: there is other (1 GPU).",
        )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--keep", "../lab", "2"), "'../lab' cannot be the name of a machine"),
        (("--keep", "", "2"), "'' cannot be the name of a machine"),
        (("--keep", "x" * 65, "2"), "cannot be the name"),
        (("--keep", "lab\n", "2"), "cannot be the name"),
        (("--keep", "lab"), "a SPEC is needed"),
        (("--keep", "lab", "0"), "0 GPUs cannot be simulated"),
        (("--attach", "../../lab"), "no simulated machine '../../lab' is kept here: there is none. Make one"),
        (("--keep", "a", "--stop", "b", "2"), "--keep and --stop cannot be used together"),
        (("--share", "2"), "--share belongs to --keep"),
        (("--format", "json", "2"), "--format belongs to --list"),
        (("--list", "2"), "--list runs no command; remove '2'"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_made(
    arguments: tuple[str, ...], words: str, places: Path, simulate: Simulate
) -> None:
    status, _, err = simulate(*arguments)
    assert (status, words in err) == (2, True), err
    assert not [path for path in places.rglob("*") if path.name not in ("session", own_place(places).name)]


def own_place(places: Path) -> Path:
    return places / f"session/gpudiag-machines-{os.getuid()}"


def remark(folder: Path, **values: str) -> None:
    """Change the mark of a folder."""
    mark = folder / folders.MARK
    mark.write_text(json.dumps(json.loads(mark.read_text()) | values))


def test_leftovers_are_removed(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("good", "old", "damaged", "elsewhere"):
        kept.keep(name, "1")
    place = own_place(places)
    (place / "damaged/kept.json").write_text("{")
    with pytest.raises(OSError, match="not empty"), folders.new(place / "damaged") as folder:
        (folder / "lib").mkdir()
    child = os.fork()
    if not child:
        with folders.new(place / "killed") as folder:
            (folder / "lib").mkdir()
            os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    newer = json.loads((place / "good/kept.json").read_text()) | {"what later versions write": 1}
    (place / "newer").mkdir()
    (place / "newer/kept.json").write_text(json.dumps(newer))
    remark(place / "old", boot="another start of the system")
    remark(place / "elsewhere", boot="that of another system", host="another system")
    everything = {path.name for path in place.iterdir()}
    assert len(everything) == 6
    assert [machine.name for machine in kept.machines()] == ["elsewhere", "good", "old"]
    assert {path.name for path in place.iterdir()} == everything  # who only looks removes nothing
    kept.stop(kept.keep("next", "1"))
    assert {path.name for path in place.iterdir()} == {"good", "damaged", "elsewhere", "newer"}
    for name in ("newer", "damaged"):
        with pytest.raises(SimulatorError, match=f"{name} is in the way: another version of gpudiag keeps a machine"):
            kept.keep(name, "1")
    monkeypatch.setattr(folders, "boot", lambda: "the next start")
    assert kept.machines() == []
    kept.stop(kept.keep("next", "1"))
    assert {path.name for path in place.iterdir()} == {"elsewhere", "newer"}


def test_a_view_goes_with_its_machine(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view is how another user is on a shared machine; this user's own folder has it."""
    machine = kept.keep("lab", "1", shared=True)
    view = kept._view(machine)
    assert kept._view(machine) == view
    lstat = Path.lstat

    def failing(path: Path) -> os.stat_result:
        if str(path) == machine.folder:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return lstat(path)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "lstat", failing)
        kept.stop(kept.keep("other", "1"))
    kept.stop(kept.keep("other", "1"))
    assert view.is_dir(), "its machine is there, or nobody knows"
    kept.stop(machine)
    again = kept.keep("lab", "1", shared=True)
    kept.machines()
    assert view.is_dir()
    kept.stop(kept.keep("other", "1"))
    assert not view.exists(), "another machine has the name of its own"
    view = kept._view(again)
    kept.stop(again)
    kept.stop(kept.keep("other", "1"))
    assert not view.exists()


def test_nothing_that_gpudiag_did_not_make_is_removed(
    places: Path, simulate: Simulate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """$XDG_RUNTIME_DIR is the home folder, as images set it, and a checkout of gpudiag is in it."""
    files = {
        places / "session" / folder / name
        for folder in ("gpudiag", own_place(places).name)
        for name in ("README", "src/a.py", "tests/test_a.py", ".gpudiag-0/x", "0+lab+0123/root/x", "copy/kept.json")
    }
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    own_place(places).chmod(0o700)
    kept.keep("lab", "1")
    shutil.copytree(own_place(places) / "lab", own_place(places) / "copied", symlinks=True)
    for arguments in ("--list", "--keep b 1", "--attach b -- true", "--stop b", "--stop lab"):
        status, _, err = simulate(*arguments.split())
        assert (status, {file for file in files if file.is_file()}) == (0, files), err
    with pytest.raises(SimulatorError, match="src is in the way"):
        kept.keep("src", "1")
    monkeypatch.setattr(folders, "boot", lambda: "the next start")
    kept.keep("next", "1")
    assert {file for file in files if file.is_file()} == files
    assert (own_place(places) / "copied/machine.conf").is_file()


def test_one_that_is_being_made_is_waited_for(places: Path) -> None:
    """What looks like a leftover may be another command's work."""
    first = kept.keep("first", "1")
    child = os.fork()
    if not child:
        with kept._locked(own_place(places)), folders.new(own_place(places) / "second") as folder:
            (places / "ready").touch()
            time.sleep(0.3)
            (folder / "kept.json").write_bytes((own_place(places) / "first/kept.json").read_bytes())
        os._exit(0)
    while not (places / "ready").exists():
        time.sleep(0.01)
    kept.stop(first)
    assert [machine.name for machine in kept.machines()] == ["second"]
    os.waitpid(child, 0)


def test_a_folder_of_somebody_else_is_not_used(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    elsewhere = places / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    folder = places / f"gpudiag-machines-{os.getuid()}"
    folder.symlink_to(elsewhere)
    with pytest.raises(SimulatorError, match="it is not a folder"):
        kept.keep("lab", "1")
    folder.unlink()
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(SimulatorError, match="everybody can write to it"):
        kept.keep("lab", "1")
    assert not list(elsewhere.iterdir())
    folder.rmdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/")  # of root, perhaps; everybody's is /tmp
    monkeypatch.setattr(kept, "_distrust", lambda *_: "it belongs to mallory")
    assert kept._own_place() == folder


def test_a_machine_that_was_made_again_meanwhile_is_not_stopped() -> None:
    first = kept.keep("lab", "1")
    kept.stop(kept.find("lab"))
    with pytest.raises(SimulatorError, match="machine lab has ended meanwhile"):
        kept.stop(first)
    second = kept.keep("lab", "2")
    with pytest.raises(SimulatorError, match="machine lab has ended meanwhile, and another one may have its name"):
        kept.stop(first)
    assert [machine.state.identity for machine in kept.machines()] == [second.state.identity]


def test_another_version_is_refused() -> None:
    kept.keep("lab", "1")
    machine = kept.find("lab")
    file = Path(machine.folder) / "kept.json"
    file.write_text(file.read_text().replace(f'"version":"{machine.state.version}"', '"version":"0.0.1"'))
    with pytest.raises(SimulatorError, match=r"was made by gpudiag 0.0.1, and this is .*--stop lab"):
        kept.attach(kept.find("lab"))


@pytest.fixture
def public(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder that other users can enter, which pytest's are not."""
    if os.getuid():
        pytest.skip("needs root, who can become another user")
    if not all(folder.stat().st_mode & 0o001 for folder in (library_directory(), *library_directory().parents)):
        pytest.skip("other users cannot read the simulated libraries here")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        monkeypatch.setattr(kept, "PUBLIC", Path(folder))
        yield Path(folder)


def test_another_user(public: Path) -> None:
    before = os.umask(0o077)
    kept.keep("private", "1")
    open_to_all = kept.keep("open", "1x8GiB", ["library_missing=libcudnn.so.9"], shared=True)
    os.umask(before)
    (public / "guest").mkdir()
    os.chown(public / "guest", 65534, 65534)
    (public / "guest").chmod(0o700)

    child = os.fork()
    if not child:  # the interpreter may be where only root can execute it, so the same process goes on
        status = 1
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            os.environ["XDG_RUNTIME_DIR"] = str(public / "guest")
            found = kept.machines()
            assert [machine.title for machine in found] == ["root/open"]
            with pytest.raises(SimulatorError, match="no simulated machine 'open'"):
                kept.find("open")
            with pytest.raises(SimulatorError, match="belongs to root, who alone can stop it"):
                kept.stop(found[0])
            environment = kept.attach(found[0])
            view = Path(environment["GPUDIAG_SIM_MACHINE"])
            assert view.parent == public / "guest/gpudiag-machines-65534"
            assert (view / "lib/libcudnn.so.9").resolve().name == "libgpudiag_missing.so"
            assert (view / "lib/libcuda.so.1").resolve().stat().st_uid == 0
            os.environ["GPUDIAG_SIM_MACHINE"] = str(view)
            sys.argv[1:] = ["1024", "0"]
            exec(HOLD.replace('"libcuda.so.1"', repr(str(view / "lib/libcuda.so.1"))))
            (public / "guest/holds").touch()
            time.sleep(30)
            status = 0
        finally:
            os._exit(status)
    try:
        deadline = time.monotonic() + 300
        while not (public / "guest/holds").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert apps(kept.attach(open_to_all)) == {f"{child}, 1424"}
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert apps(kept.attach(open_to_all)) == set()
    kept.stop(open_to_all)
