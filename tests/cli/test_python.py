"""Another environment than gpudiag's own is examined; in these tests both are real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterable
from importlib.metadata import distribution
from pathlib import Path

import pytest

import gpudiag
from gpudiag import examined
from gpudiag.errors import UsageError
from gpudiag.fix import Action, Where, install, run
from gpudiag.model.facts import PythonEnvironment
from gpudiag.place import Place, fitted
from gpudiag.simulator import library_directory

HERE = Path(sysconfig.get_path("purelib"))
DEADLINE_S = 400
OLD = "raise ImportError('this is not gpudiag's own')\n"
NAMES = {"cpython": "msgspec", "abi3": "psutil", "pure": "tabulate"}

pytestmark = pytest.mark.starts


def environment(folder: Path, packages: Iterable[Path]) -> Path:
    """Make an environment with links to these packages, and return the folder for more of them."""
    venv.EnvBuilder(symlinks=True).create(folder)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    for package in packages:
        (site / package.name).symlink_to(package)
    return site


@pytest.fixture(scope="module")
def of_gpudiag(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment of a gpudiag that was installed as a tool: it has what gpudiag needs, and no TensorFlow."""
    folder = tmp_path_factory.mktemp("tool")
    own = {"gpudiag", "tensorflow", "keras", "__pycache__"}
    packages = [path for path in HERE.iterdir() if path.suffix != ".pth" and path.name not in own]
    site = environment(folder, [path for path in packages if not path.name.startswith(("tensorflow-", "_gpudiag"))])
    for path in Path(gpudiag.__file__).parent.iterdir():
        if path.name not in ("simulator", "__pycache__"):
            (site / "gpudiag").mkdir(exist_ok=True)
            (site / "gpudiag" / path.name).symlink_to(path)
    simulator = site / "gpudiag/simulator"
    simulator.mkdir()
    for path in (Path(gpudiag.__file__).parent / "simulator").iterdir():
        if path.name not in ("lib", "__pycache__"):
            (simulator / path.name).symlink_to(path)
    (simulator / "lib").symlink_to(library_directory())
    return folder


@pytest.fixture
def of_programs(tmp_path: Path) -> Callable[..., Path]:
    """Makes an environment with TensorFlow and a blank in its path; it has neither gpudiag nor what only that needs.

    Files can be added, and packages left out.
    """

    def make(files: dict[str, str] | None = None, without: str = "") -> Path:
        folder = tmp_path / "an environment"
        left_out = ("gpudiag", "_gpudiag", "msgspec", "psutil", "click", "elftools", "pynvml", "tabulate", "jinja2")
        packages = [path for path in HERE.iterdir() if path.suffix != ".pth" and path.name != "__pycache__"]
        site = environment(
            folder, [path for path in packages if not path.name.startswith((*left_out, without or "gpudiag"))]
        )
        for name, text in (files or {}).items():
            (site / name).parent.mkdir(exist_ok=True)
            (site / name).write_text(text)
        return folder

    return make


def gpudiag_of(folder: Path, *arguments: str | Path, **variables: str | Path) -> subprocess.CompletedProcess[str]:
    return python_of(folder, "-m", "gpudiag", *arguments, **variables)


def python_of(folder: Path, *arguments: str | Path, **variables: str | Path) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name not in examined.ACTIVE}
    return subprocess.run(
        [folder / "bin/python", *arguments],
        env={**inherited, **{name: str(value) for name, value in variables.items()}},
        cwd="/",  # not the checkout, from which -m would import gpudiag
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_the_active_environment_is_examined_as_it_is_if_only_that_has_tensorflow(
    of_gpudiag: Path, of_programs: Callable[..., Path], tmp_path: Path
) -> None:
    # It has an old gpudiag and an old click, and a start-up file that prints.
    active = of_programs(
        {"gpudiag/__init__.py": OLD, "click/__init__.py": OLD, "noise.pth": "import sys; print('noise')"}
    )
    done = gpudiag_of(
        *(of_gpudiag, "check", "--simulate", "1x4GiB", "-q", "--format", "json", "host", "discovery"),
        VIRTUAL_ENV=active,
        XDG_STATE_HOME=tmp_path,
    )
    assert done.returncode == 0, done
    report = json.loads(done.stdout)
    facts = report["facts"]
    assert facts["system"]["executable"] == str(active / "bin/python")
    assert facts["system"]["prefix"] == str(active)
    assert facts["tensorflow"]["module_path"].startswith(str(active))
    assert report["notes"] == [
        f"{active}/bin/python (Python {sys.version.split()[0]}) is examined, because it is active (VIRTUAL_ENV) and "
        "has TensorFlow, not the environment in which gpudiag is installed"
    ]
    # The facts name gpudiag's own environment once, for its own pip; the simulated machine's libraries do, too.
    assert facts["system"]["python_environment"].pop("of_gpudiag") == f"{of_gpudiag}/bin/python"
    assert str(of_gpudiag) not in json.dumps([facts["environment"], facts["tensorflow"], facts["system"]])
    assert facts["environment"]["variables"].keys() & {"PYTHONPATH", "PYTHONHOME"} == set()


def test_a_program_that_calls_gpudiag_has_its_own_environment_examined(
    of_gpudiag: Path, of_programs: Callable[..., Path], tmp_path: Path
) -> None:
    program = (
        "import gpudiag; report = gpudiag.check('host.environment'); "
        "print(report.facts.system.executable, *report.command)"
    )
    done = python_of(of_gpudiag, "-c", program, VIRTUAL_ENV=of_programs(), XDG_STATE_HOME=tmp_path)
    expected = f"{of_gpudiag}/bin/python gpudiag check host.environment"
    assert (done.stdout.strip(), done.stderr) == (expected, "")


def test_what_tensorflow_imports_is_of_its_own_environment_and_so_is_the_fix(
    of_gpudiag: Path, of_programs: Callable[..., Path], tmp_path: Path
) -> None:
    folder = of_programs(without="packaging")  # gpudiag brings its own
    for way in ("fork", "spawn"):
        done = gpudiag_of(
            *(of_gpudiag, "check", "-q", "discovery.trace", "--isolation", way, "--bisect", "0"),
            *("--python", folder, "--simulate", "1x4GiB", "--format", "json"),
            XDG_STATE_HOME=tmp_path,
        )
        assert done.returncode == 1, done
        (cause, *_) = json.loads(done.stdout)["diagnosis"]["causes"]
        assert cause["cause_id"] == "requirement_not_met"
        assert "No module named 'packaging'" in cause["evidence"][0]
        assert cause["fix"][0]["command"].startswith(f"'{folder}/bin/python' -m pip install 'packaging")


def test_the_python_on_path_that_has_tensorflow_is_named_where_gpudiag_has_none(
    of_gpudiag: Path, of_programs: Callable[..., Path], tmp_path: Path
) -> None:
    folder = of_programs()
    path = f"{folder}/bin:{os.environ['PATH']}"
    done = gpudiag_of(of_gpudiag, "why", "--format", "json", PATH=path, XDG_STATE_HOME=tmp_path)
    (cause,) = json.loads(done.stdout)["diagnosis"]["causes"]
    assert cause["cause_id"] == "tensorflow_missing"
    assert f"{folder}/bin/python, on PATH, has TensorFlow" in cause["evidence"]
    assert cause["fix"][0]["command"] == f"gpudiag check --python '{folder}/bin/python'"


def test_a_program_is_traced_in_the_environment_that_is_named(
    of_gpudiag: Path, of_programs: Callable[..., Path], tmp_path: Path
) -> None:
    program = tmp_path / "train.py"
    program.write_text("import sys, tensorflow\nprint(sys.executable)\n")
    folder = of_programs()
    done = gpudiag_of(of_gpudiag, "trace", program, GPUDIAG_PYTHON=folder)
    assert done.stdout == f"{folder}/bin/python\n"
    refused = gpudiag_of(of_gpudiag, "trace", "--python", folder, "--", "sh", program)
    assert (refused.returncode, "sh itself says which Python runs" in refused.stderr) == (2, True)


def test_where_the_environment_cannot_be_examined_the_host_is_and_it_is_said_what_to_type(
    of_gpudiag: Path, tmp_path: Path
) -> None:
    old = tmp_path / "bin/python"
    old.parent.mkdir()
    old.write_text("""#!/bin/sh\necho 'a start-up file prints'\necho '{"version": [3, 9, 1], "prefix": "/x"}'\n""")
    old.chmod(0o755)
    done = gpudiag_of(of_gpudiag, "check", "-q", "--format", "json", "--python", tmp_path, XDG_STATE_HOME=tmp_path)
    report = json.loads(done.stdout)
    assert report["facts"]["tensorflow"]["reason"] == f"{old} is not examined"
    assert {row["probe"].partition(".")[0] for row in report["rows"]} == {"host"}
    assert report["diagnosis"]["causes"] == []
    (note,) = report["notes"]
    assert note.startswith(f"{old} (Python 3.9.1) cannot be examined: gpudiag needs Python 3.10 or newer")
    assert f"type: {old} -c 'import tensorflow as tf; " in note
    assert note in done.stderr
    refused = gpudiag_of(of_gpudiag, "why", "--python", tmp_path)
    assert (refused.returncode, refused.stderr.strip()) == (2, f"gpudiag: error: {note}")


OTHERS = sorted(
    {
        file.parts[-3]: str(file)
        for file in (Path.home() / ".pyenv/versions").glob("3.1[0-9].*/bin/python")
        if not file.parts[-3].startswith(f"3.{sys.version_info.minor}.")
    }.values()
)
"""Interpreters of other versions, where pyenv has some."""


@pytest.mark.slow  # asks the package index, once for each version
@pytest.mark.parametrize("python", OTHERS)
def test_another_version_of_python_gets_what_is_compiled_for_it_in_a_folder_of_gpudiag(
    python: str, of_gpudiag: Path, tmp_path: Path
) -> None:
    where = {"XDG_CACHE_HOME": tmp_path / "cache", "XDG_STATE_HOME": tmp_path}
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    refused = gpudiag_of(of_gpudiag, "why", "--python", python, **where, **offline)
    assert refused.returncode == 2
    assert "msgspec>=0.19" in refused.stderr.partition("Type: ")[2]
    assert f"--target {tmp_path}/cache/gpudiag/packages-" in refused.stderr
    for is_first in (True, False):
        done = gpudiag_of(of_gpudiag, "why", "--python", python, "--format", "json", **where)
        assert ("installing" in done.stderr) == is_first
        report = json.loads(done.stdout)
        assert report["facts"]["system"]["executable"] == python
        (cause,) = report["diagnosis"]["causes"]
        assert cause["fix"][0]["command"].startswith((f"{python} -m pip install 'tensorflow", "python3."))


def test_only_what_is_compiled_for_another_python_has_to_be_installed_for_it() -> None:
    tag = f"cpython-3{sys.version_info.minor + 1}-x86_64-linux-gnu"
    this = examined.describe(sys.executable)
    other = examined.Python(
        "/x/python", (3, sys.version_info.minor + 1, 0), "/x", tag, this.system, (f".{tag}.so", ".abi3.so")
    )
    fits = {kind: examined._fits(distribution(name), other) for kind, name in NAMES.items()}
    assert fits == {"cpython": False, "abi3": True, "pure": True}
    assert all(examined._fits(distribution(name), this) for name in NAMES.values())
    of_arm = examined.Python("/x/python", other.version, "/x", tag, "linux-aarch64", other.suffixes)
    assert [examined._fits(distribution(name), of_arm) for name in NAMES.values()] == [False, False, True]
    too_old = examined.Python("/x/python", (3, 6, 0), "/x", tag, this.system, other.suffixes)
    assert not examined._fits(distribution("click"), too_old)


def test_an_environment_is_found_by_its_folder_its_interpreter_or_the_name_that_conda_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    python = tmp_path / "my conda/envs/tf env/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    by_root = {"CONDA_EXE": str(tmp_path / "my conda/bin/conda")}
    assert examined.find("my conda/envs/tf env", {}) == str(python)
    assert examined.find(str(python), {}) == str(python)  # not where the link leads: that is another environment
    assert examined.find("tf env", by_root) == str(python)
    assert examined.find("tf env", {"CONDA_ENVS_PATH": str(python.parents[2])}) == str(python)
    (tmp_path / ".conda").mkdir()
    (tmp_path / ".conda/environments.txt").write_text(f"{tmp_path}/my conda\n{python.parents[1]}\n")
    assert examined.find("tf env", {}) == str(python)
    for named, why in {
        "none": "there is no such command, no folder and no environment of conda",
        "./none": "there is no such file",
        "": "there is no such command",
        "my conda": "the folder is no environment: it has no bin/python",
    }.items():
        with pytest.raises(UsageError, match=why):
            examined.find(named, {})
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho it is broken >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(UsageError, match="broken does not work as Python: it is broken"):
        examined.describe(str(broken))
    with pytest.raises(UsageError, match="cannot be started: Permission denied"):
        examined.describe(str(tmp_path / ".conda"))


def test_the_commands_of_a_fix_name_the_interpreter_that_they_are_for() -> None:
    environment = PythonEnvironment(
        "conda", "/a b/bin/python", has_pip=True, tools=("conda",), of_gpudiag="/g/bin/python"
    )
    place = Place(environment, "/a b/bin/python", "/a b", in_conda=True, variables={"CONDA_PREFIX": "/other"})

    def command(action: Action) -> str:
        there = fitted(action, place)
        assert there is not None
        return there.command

    python = "'/a b/bin/python'"
    lines = {
        "pip uninstall -y x; pip install y": f"{python} -m pip uninstall -y x; {python} -m pip install y",
        "python -m pip check": f"{python} -m pip check",
        "python -m venv tf && tf/bin/pip install x": f"{python} -m venv tf && tf/bin/pip install x",
        "export PIP=pip; echo python3": "export PIP=pip; echo python3",
        "conda install x": "conda install -p '/a b' x",
        "pip list": f"{python} -m pip list",
    }
    assert {line: command(run(line)) for line in lines} == lines
    upgrade = install("--upgrade", "gpudiag[tensorflow]")
    assert command(upgrade).startswith("/g/bin/python -m pip install")
    elsewhere = upgrade.replaced(where=Where.IMAGE)
    assert fitted(elsewhere, place) == elsewhere
