"""Sessions that a test starts: they use what the session that runs the test was given, and wait for nothing of it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gpudiag import folders
from gpudiag.errors import UsageError
from gpudiag.hardware import lending
from gpudiag.hardware.locks import GpuLocks
from gpudiag.model.report import Gpu
from gpudiag.simulator import Machine
from suites import INSTALLED, Session, Suite

ONE, TWO, THREE = (Gpu(number, "A GPU", f"GPU-{number}", "", 8 << 30) for number in range(3))


def killed(folder: folders.Folder) -> None:
    """Do what the kernel does when the process of a folder is killed."""
    assert folder._lock is not None
    os.close(folder._lock[0])
    folder._lock = None


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> folders.Folder:
    """A session that holds two GPUs and has lent the first to this process; another run holds the third."""
    made = lending.session_folder()
    lending.hold(made.path, (ONE.uuid, TWO.uuid), tmp_path)
    for name, value in lending.lend(made.path, "gw0", [ONE.uuid]).items():
        monkeypatch.setenv(name, value)
    return made


def test_what_was_lent_is_locked_among_those_that_it_was_lent_to(session: folders.Folder, tmp_path: Path) -> None:
    outside, first, second = (GpuLocks(tmp_path) for _ in range(3))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(lending.VARIABLE)
        assert outside.take((ONE, TWO, THREE), exclusive=False)
    assert first.take((ONE,), exclusive=False), "the session holds its lock"
    assert not second.take((ONE,), exclusive=False), "another program of the same test has it"
    first.close()
    assert second.take((ONE,), exclusive=False)
    assert not second.take((THREE,), exclusive=False), "another run has it, and that will end"
    for locks in (outside, second):
        locks.close()
    session.close()


def test_what_the_session_has_for_others_is_refused_at_once(session: folders.Folder, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds GPU-1 for other tests; this process may use GPU-0"):
        GpuLocks(tmp_path).take((TWO,), exclusive=False)
    session.close()


def test_a_loan_ends_with_its_session_and_is_of_one_machine(session: folders.Folder, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    assert lending.loan(tmp_path) is not None
    assert lending.loan(tmp_path / "other") is None, "of another machine, such as a simulated one"
    with pytest.MonkeyPatch.context() as patch:
        other = os.geteuid() + 1
        patch.setattr(os, "geteuid", lambda: other)
        assert lending.loan(tmp_path) is None, "of another user, as after sudo -E"
    killed(session)
    assert lending.loan(tmp_path) is None
    lending.session_folder().close()
    assert not session.path.exists(), "the next session removes what one that was killed has left"


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs /dev/shm")
def test_where_no_file_can_be_locked_the_folder_is_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a TMPDIR on Lustre that is mounted without flock."""
    flock = fcntl.flock

    def refuses(file: int, operation: int) -> None:
        if Path(f"/proc/self/fd/{file}").readlink().is_relative_to(tmp_path):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        flock(file, operation)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(fcntl, "flock", refuses)
    made = lending.session_folder()
    lending.hold(made.path, (ONE.uuid,), tmp_path)
    for name, value in lending.lend(made.path, "gw0", [ONE.uuid]).items():
        monkeypatch.setenv(name, value)
    assert lending.loan(tmp_path) is not None
    killed(made)
    lending.session_folder().close()
    assert not made.path.exists(), "there, too, the next session removes what one that was killed has left"
    assert list(tmp_path.iterdir()) == []


NESTED = """
    import json, os, pathlib, subprocess, sys
    import pytest

    @pytest.mark.parametrize("number", range(2))
    def test_starts_a_session(number, tmp_path):
        (tmp_path / "test_inner.py").write_text({inner!r})
        own = os.environ["CUDA_VISIBLE_DEVICES"]
        other = next((uuid for uuid in {uuids!r} if uuid not in own), "")
        changed = {changed!r}
        environment = dict(os.environ, **{{name: value.format(other=other) for name, value in changed.items()}})
        for name in {removed!r}:
            environment.pop(name)
        command = [*json.loads(os.environ["COMMAND"]), "-p", "no:cacheprovider", "--rootdir=.", *{arguments!r}]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
        print(done.stdout + done.stderr)
        assert done.returncode == {status}
        if done.returncode == 0:
            assert (tmp_path / "given").read_text() == own
"""
INNER = """
import json, os, pathlib, subprocess

def test_inner():
    pathlib.Path("given").write_text(os.environ["CUDA_VISIBLE_DEVICES"])

def test_innermost(tmp_path):
    (tmp_path / "test_innermost.py").write_text("def test_nothing(): pass")
    command = [*json.loads(os.environ["COMMAND"]), "-p", "no:cacheprovider", "--rootdir=."]
    assert subprocess.run(command, cwd=tmp_path, timeout=200).returncode == 0
"""


def nested(
    suite: Suite,
    machine: Machine,
    *outer: str,
    inner: str = "",
    changed: dict[str, str] | None = None,
    removed: tuple[str, ...] = (),
    status: int = 0,
) -> Session:
    """Run a session whose test starts another, for both of which the plugin is switched on by a variable.

    Whoever waits for a GPU does so for a second, and is refused then.
    """
    uuids = [gpu.uuid for gpu in machine.spec.gpus]
    given = {"arguments": inner.split(), "changed": changed or {}, "removed": removed, "uuids": uuids}
    source = NESTED.format(inner=INNER, status=status, **given)
    suite.write("test_outer.py", source)
    boot = f"import sys; sys.path[:] = {suite.gpudiag.path!r}; import pytest; sys.exit(pytest.main())"
    command = [sys.executable, "-c", boot, *([] if INSTALLED else ["-p", "gpudiag.pytest_plugin"])]
    on = {name: machine.environment()[name] for name in ("LD_LIBRARY_PATH", "GPUDIAG_SIM_MACHINE")}
    return suite(*outer, **on, COMMAND=json.dumps(command), GPUDIAG_PYTEST_ASSIGN="share", GPUDIAG_PYTEST_WAIT="1")


@pytest.mark.usefixtures("simulated", "no_child_left", "plain")
@pytest.mark.parametrize(
    ("outer", "inner", "removed"),
    [
        ("-k 0", "-n 1", ()),
        ("-n 2", "-k test_inner", ("CUDA_VISIBLE_DEVICES",)),
    ],
    ids=["with a worker and another session in it", "in workers, without a mask"],
)
def test_an_inner_session_uses_what_the_outer_one_was_given(
    outer: str, inner: str, removed: tuple[str, ...], suite: Suite, machine: Callable[[str], Machine]
) -> None:
    here = machine("2x8GiB" if "-n" in outer else "1x8GiB")
    done = nested(suite, here, *outer.split(), inner=inner, removed=removed)
    assert done.status == 0, done
    assert done.outcomes()["test_starts_a_session[0]"] == "passed"


@pytest.mark.usefixtures("simulated", "no_child_left", "plain")
@pytest.mark.parametrize(
    ("inner", "changed", "words"),
    [
        ("-n 2 --gpudiag-assign=device", {}, "there are 2 workers and 1 device. Use -n 1"),
        ("", {"CUDA_VISIBLE_DEVICES": "{other}"}, "for other tests; this process may use GPU-"),
    ],
    ids=["more", "another"],
)
def test_an_inner_session_that_asks_for_more_is_refused_at_once(
    inner: str, changed: dict[str, str], words: str, suite: Suite, machine: Callable[[str], Machine]
) -> None:
    here = machine("2x8GiB")
    done = nested(suite, here, "-n", "2", "-k", "0", "-rP", inner=inner, changed=changed, status=4)
    assert done.status == 0, done
    assert words in done.out, done
