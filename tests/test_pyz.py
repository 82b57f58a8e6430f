"""gpudiag.pyz, as a user starts it: packed of what is installed here, so for this Python alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from packed import pack_zipapp
from python_matrix import StepFailed

import pyz
from gpudiag import examined

HERE = Path(sysconfig.get_path("purelib"))
DEADLINE_S = 400

pytestmark = pytest.mark.starts


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive, in a folder with a blank in its name."""
    return pack_zipapp(tmp_path_factory.mktemp("an archive"))


def environment(folder: Path, *, with_tensorflow: bool) -> Path:
    """Make an environment without pip, and without all that only gpudiag needs; return its interpreter."""
    venv.EnvBuilder(symlinks=True).create(folder)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    of_gpudiag = (
        "gpudiag",
        "_gpudiag",
        "pip",
        "msgspec",
        "psutil",
        "click",
        "elftools",
        "pynvml",
        "tabulate",
        "jinja2",
    )
    for path in HERE.iterdir() if with_tensorflow else ():
        if path.suffix != ".pth" and not path.name.startswith(of_gpudiag):
            (site / path.name).symlink_to(path)
    return folder / "bin/python"


def start(
    python: Path, archive: Path, *arguments: str | Path, **variables: str | Path
) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name not in examined.ACTIVE}
    return subprocess.run(
        [python, archive.name, *arguments],
        env={**inherited, **{name: str(value) for name, value in variables.items()}},
        cwd=archive.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def where(folder: Path) -> Mapping[str, Path]:
    return {name: folder / name.lower() for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME")}


def test_a_host_without_pip_is_checked_and_its_environment_gets_nothing(archive: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "host", with_tensorflow=True)
    before = sorted(python.parents[1].rglob("*"))
    done = start(python, archive, "check", "--simulate", "1x4GiB", "-q", "--format", "json", **where(tmp_path))
    assert done.returncode == 0, done
    report = json.loads(done.stdout)
    system = report["facts"]["system"]
    assert (report["verdict"], system["executable"]) == ("PASS", str(python))
    (folder,) = (tmp_path / "xdg_cache_home/gpudiag").iterdir()
    assert str(folder) not in json.dumps([report["facts"]["environment"], report["facts"]["tensorflow"], system])
    (note,) = report["notes"]
    assert note == f"to type the commands of this report: alias gpudiag='{python} '\"'\"'{archive}'\"'\"''"
    assert sorted(python.parents[1].rglob("*")) == before
    inside = "nvidia-smi -L; exec python -c 'import sys; print(len(sys.path), \"gpudiag\" in sys.modules)'"
    simulated = start(python, archive, "simulate", "2", "--", "sh", "-c", inside, **where(tmp_path))
    assert simulated.returncode == 0, simulated
    assert simulated.stdout.count("GPU ") >= 2
    assert simulated.stdout.splitlines()[-1].endswith("False")


def test_the_fix_can_be_typed_without_pip_and_a_report_is_judged_again_to_it(archive: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "host", with_tensorflow=False)
    file = tmp_path / "report.json"
    done = start(python, archive, "why", "-o", file, PATH="/usr/sbin", **where(tmp_path))
    assert done.returncode == 1, done
    assert f"  fix     {python} -m ensurepip && {python} -m pip install 'tensorflow[and-cuda]'\n" in done.stdout
    again = start(python, archive, "show", file, "--rejudge", "--format", "json", **where(tmp_path))
    assert json.loads(again.stdout)["diagnosis"] == json.loads(file.read_text())["diagnosis"]
    program = tmp_path / "train.py"
    program.write_text("import sys\nprint(sys.executable, [path for path in sys.path if 'pyz' in path])\n")
    traced = start(python, archive, "trace", program, **where(tmp_path))
    assert traced.stdout == f"{python} []\n"


def test_it_is_unpacked_once_also_by_two_at_once_and_only_where_nobody_else_writes(
    archive: Path, tmp_path: Path
) -> None:
    def version(**variables: str | Path) -> tuple[int, str]:
        done = start(Path(sys.executable), archive, "--version", **variables)
        assert not done.returncode or not done.stdout
        return done.returncode, done.stderr

    cache, temporary = tmp_path / "cache", tmp_path / "tmp"
    temporary.mkdir()
    command = [sys.executable, str(archive), "--version"]
    variables = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    both = [subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait(DEADLINE_S) for process in both] == [0, 0]
    (folder,) = (cache / "gpudiag").iterdir()
    assert version(XDG_CACHE_HOME=cache) == (0, "")

    (tmp_path / "file").write_text("")
    elsewhere = {"XDG_CACHE_HOME": tmp_path / "file", "TMPDIR": temporary}
    fallback = temporary / f"gpudiag-{os.geteuid()}"
    assert version(**elsewhere) == (0, f"gpudiag: unpacked in {fallback / folder.name}\n")
    assert version(**elsewhere) == (0, "")
    (fallback / folder.name / "click/core.py").unlink()  # as programs do that tidy up a folder for temporary files
    status, said = version(**elsewhere)
    assert status == 3
    assert f"{fallback / folder.name}/click/core.py is not as it was unpacked; remove that folder" in said
    assert said.endswith("Name one: XDG_CACHE_HOME=FOLDER\n")

    cache.chmod(0o777)
    (fallback / folder.name / "click/core.py").write_bytes((folder / "click/core.py").read_bytes())
    assert version(XDG_CACHE_HOME=cache, TMPDIR=temporary) == (0, "")
    fallback.chmod(0o777)
    status, said = version(XDG_CACHE_HOME=cache, TMPDIR=temporary)
    assert (status, said.count("everybody can write to")) == (3, 2)


def test_a_file_that_is_not_complete_says_so(archive: Path, tmp_path: Path) -> None:
    content = archive.read_bytes()
    copy = tmp_path / "gpudiag.pyz"
    copy.write_bytes(content[: len(content) // 2])
    done = start(Path(sys.executable), copy, "--version", **where(tmp_path))
    assert done.returncode == 1
    expected = "This file is not complete: get it again." if sys.version_info >= (3, 11) else "Non-UTF-8 code"
    assert expected in done.stderr
    with zipfile.ZipFile(archive) as packed:
        at = packed.getinfo("gpudiag/simulator/lib/libgpudiag_kernels.so").header_offset + 500
    copy.write_bytes(content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :])
    done = start(Path(sys.executable), copy, "--version", **where(tmp_path))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"gpudiag: error: {copy} is damaged (")
    assert not list((tmp_path / "xdg_cache_home/gpudiag").iterdir())


OLD = sorted(
    path for path in (Path.home() / ".pyenv/versions").glob("[23].*/bin/python") if not path.parts[-3].startswith("3.1")
)


@pytest.mark.parametrize("python", OLD, ids=[path.parts[-3] for path in OLD])
def test_a_python_that_cannot_run_it_names_one_that_can(python: Path, archive: Path, tmp_path: Path) -> None:
    own = f"3.{sys.version_info.minor}"
    needed = (
        f"gpudiag: error: gpudiag.pyz needs Python {own} on {os.uname().machine} Linux with glibc, and this is Python"
    )
    done = start(python, archive, "why", "a log", PATH=tmp_path)
    assert done.returncode == 3
    assert done.stderr.startswith(needed)
    assert done.stderr.endswith("None was found on PATH.\n")
    (tmp_path / f"python{own}").symlink_to(sys.executable)
    done = start(python, archive, "why", "a log", PATH=tmp_path)
    assert done.stderr.endswith(f". Type: {tmp_path}/python{own} '{archive}' why 'a log'\n")


def test_what_is_compiled_for_several_pythons_is_in_one_folder() -> None:
    def wheel(python: str, **files: bytes) -> dict[str, bytes]:
        compiled = f"a/_c.cpython-{python}-x86_64-linux-gnu.so"
        record = f"a/__init__.py,,\n{compiled},,\na-1.dist-info/RECORD,,\n".encode()
        return {"a/__init__.py": b"", compiled: python.encode(), "a-1.dist-info/RECORD": record, **files}

    files = pyz.merge([wheel("310"), wheel("313"), {"b.abi3.so": b""}])
    assert pyz.suffixes(files) == [f".cpython-{python}-x86_64-linux-gnu.so" for python in ("310", "313")]
    assert pyz.modules(files) == ["a", "b"]
    assert list(pyz.strangers(files)) == ["b.abi3.so is of no package"]
    assert list(pyz.strangers({name: b for name, b in files.items() if name != "a/__init__.py"}))[1:] == [
        "a/__init__.py is missing"
    ]
    with pytest.raises(StepFailed, match=r"different files a/__init__\.py"):
        pyz.merge([wheel("310"), {"a/__init__.py": b"x"}])
    other = {**files, "d/_c.cpython-313-x86_64-linux-gnu.so": b""}
    assert pyz.suffixes(other) == [".cpython-313-x86_64-linux-gnu.so"]
