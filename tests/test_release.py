"""What a wheel has beside the sources, and what scripts/release.py refuses to build or to publish."""

from __future__ import annotations

import importlib.metadata
import io
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
import yaml
from python_matrix import PYTHONS, StepFailed

import gpudiag
import release
from gpudiag.cli import describe, explanation
from gpudiag.simulator import library_directory

ROOT = Path(__file__).parent.parent
ADDRESS = "https://git.example/team/gpudiag"
PROJECT = {
    "README.md": "![Page](page.png) [manual](gpudiag/docs/start.md#first) [site](https://example.org) [up](#up)\n",
    "gpudiag/__init__.py": '__version__ = "1.2.3"\n',
    "gpudiag/docs/changes.md": "# Changes\n\n## 1.2.3\n",
    "pyproject.toml": f'[build-system]\nrequires = ["x"]\n[project]\nurls.Repository = "{ADDRESS}"\n',
}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a release that may be published."""
    folder = tmp_path / "checkout"
    write(folder, PROJECT)
    git(folder, "init", "--quiet")
    commit(folder)
    monkeypatch.setattr(release, "ROOT", folder)
    return folder


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def git(folder: Path, *arguments: str) -> None:
    names = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *names, *arguments], cwd=folder, check=True, capture_output=True, timeout=60)


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "x")


def obstacles() -> list[str]:
    return list(release.obstacles(release.described()))


def test_nothing_keeps_a_complete_release_from_being_published(checkout: Path) -> None:
    assert obstacles() == []
    git(checkout, "tag", "v1.2.3")
    assert obstacles() == [], "the tag of this commit"
    write(checkout, {"gpudiag/more.py": ""})
    commit(checkout)
    assert obstacles() == ["v1.2.3 is a tag of another commit: raise __version__ in gpudiag/__init__.py"]


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        (
            "pyproject.toml",
            "[build-system]\nrequires = []\n[project]\n",
            "the repository has no address: write it into",
        ),
        (
            "pyproject.toml",
            PROJECT["pyproject.toml"].replace("git.example", "<host>"),
            "Repository in pyproject.toml is",
        ),
        (
            "gpudiag/docs/changes.md",
            "## 1.2.3 (not yet released)\n",
            "gpudiag/docs/changes.md has no heading '## 1.2.3'",
        ),
    ],
)
def test_what_keeps_a_release_from_being_published(file: str, text: str, sentence: str, checkout: Path) -> None:
    write(checkout, {file: text})
    commit(checkout)
    assert obstacles()[0].startswith(sentence)


def test_a_release_is_of_the_commit_and_not_of_what_else_lies_in_the_checkout(checkout: Path, tmp_path: Path) -> None:
    write(checkout, {"README.md": "changed", "gpudiag/stray.py": "", "build/old.so": ""})
    assert obstacles() == ["the checkout differs from its commit in README.md and 2 more: commit or remove that"]
    release.export(release.described(), tmp_path / "export")
    files = {file.relative_to(tmp_path / "export").as_posix() for file in (tmp_path / "export").rglob("*.*")}
    assert files == {*PROJECT}


def test_the_links_of_the_readme_are_absolute_in_a_package(checkout: Path, tmp_path: Path) -> None:
    release.export(release.described(), tmp_path / "export")
    assert (tmp_path / "export/README.md").read_text().split() == [
        f"![Page]({ADDRESS}/raw/v1.2.3/page.png)",
        f"[manual]({ADDRESS}/blob/v1.2.3/gpudiag/docs/start.md#first)",
        "[site](https://example.org)",
        "[up](#up)",
    ]


def test_without_git_there_is_no_release(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(StepFailed, match="a release is made of a commit, and git does not know one of"):
        release.described()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StepFailed, match="No such file or directory: 'git'"):
        release.described()


def test_a_compiler_that_is_missing_is_named_by_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StepFailed, match=r"\(apt-get install g\+\+-s390x-linux-gnu\)"):
        release.compilers("s390x", Path(sys.executable), tmp_path)


def package(file: Path, names: tuple[str, ...]) -> Path:
    if file.suffix == ".whl":
        with zipfile.ZipFile(file, "w") as archive:
            for name in names:
                archive.writestr(name, name)
    else:
        with tarfile.open(file, "w:gz") as tar:
            for name in names:
                tar.addfile(tarfile.TarInfo(f"gpudiag-1.2.3/{name}"), io.BytesIO())
    return file


def test_a_package_has_the_files_of_the_commit_and_what_the_build_makes(tmp_path: Path) -> None:
    committed = ("gpudiag/a.py", "gpudiag/simulator/src/b.c", "gpudiag/CMakeLists.txt", "tests/c.py")
    made = ("gpudiag/simulator/lib/libcuda.so.1", "gpudiag-1.2.3.dist-info/METADATA")
    wheel = package(tmp_path / "gpudiag-1.2.3.whl", ("gpudiag/a.py", *made))
    sdist = package(tmp_path / "gpudiag-1.2.3.tar.gz", (*committed, "PKG-INFO"))
    assert not list(release.strangers(wheel, committed))
    assert not list(release.strangers(sdist, committed))
    wheel = package(wheel, ("gpudiag/simulator/src/b.c", "tests/c.py", "gpudiag/.cache", *made))
    assert list(release.strangers(wheel, committed)) == [
        "gpudiag-1.2.3.whl has gpudiag/.cache, which is not of the commit",
        "gpudiag-1.2.3.whl has gpudiag/simulator/src/b.c, which is not of the commit",
        "gpudiag-1.2.3.whl has tests/c.py, which is not of the commit",
        "gpudiag-1.2.3.whl lacks gpudiag/a.py",
    ]
    sdist = package(sdist, ("PKG-INFO", *committed[1:], "notes.txt"))
    assert list(release.strangers(sdist, committed)) == [
        "gpudiag-1.2.3.tar.gz has notes.txt, which is not of the commit",
        "gpudiag-1.2.3.tar.gz lacks gpudiag/a.py",
    ]


def test_two_builds_must_be_the_same_bytes(tmp_path: Path) -> None:
    first, second = (package(tmp_path / f"{name}.whl", ("a", name)) for name in ("one", "two"))
    assert not list(release.differences([first], [first]))
    assert list(release.differences([first], [second])) == ["one.whl differs between two builds: one, two"]


def test_the_metadata_name_the_pythons_that_are_tested() -> None:
    project = msgspec.toml.decode((ROOT / "pyproject.toml").read_text())["project"]
    named = [
        name.rpartition(" ")[2]
        for name in project["classifiers"]
        if name.startswith("Programming Language :: Python :: 3.")
    ]
    assert named == list(PYTHONS)
    assert project["requires-python"] == f">={PYTHONS[0]}"


def test_a_library_for_the_oldest_system_is_accepted() -> None:
    assert not list(release.library_faults((library_directory() / "libcuda.so.1").read_bytes(), "x86_64"))


def test_what_a_library_needs_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    core = (library_directory() / "libgpudiag_cuda.so").read_bytes()
    assert next(iter(release.library_faults(core, "aarch64"))) == "it is for EM_X86_64"
    monkeypatch.setattr(release, "GLIBC", (2, 1))
    assert "it needs GLIBC_2.2.5" in list(release.library_faults(core, "x86_64"))
    monkeypatch.setattr(release, "ALLOWED", ())
    assert "it needs libc.so.6" in list(release.library_faults(core, "x86_64"))


def test_a_wheel_lacks_nothing_that_the_build_makes(tmp_path: Path) -> None:
    file = tmp_path / "gpudiag.whl"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("gpudiag/simulator/lib/not-built.txt", "no compiler")
    assert list(release.faults(file, "x86_64")) == [
        "there are no simulated GPUs in it: they could not be built (not-built.txt in it says why)",
        "gpudiag/cli/explanations.json is not in it: 'gpudiag explain' imports every cause",
        "gpudiag/py.typed is not in it: who imports the package has no types",
    ]


def test_the_build_writes_what_explain_says(tmp_path: Path) -> None:
    def cmake(*arguments: str) -> None:
        subprocess.run(["cmake", *arguments], check=True, capture_output=True, timeout=120)

    build = str(tmp_path / "build")
    cmake("-S", str(Path(__file__).parent.parent / "gpudiag/cli"), "-B", build, f"-DPYTHON_EXECUTABLE={sys.executable}")
    cmake("--install", build, "--prefix", str(tmp_path / "wheel"))
    index = tmp_path / "wheel/gpudiag/cli/explanations.json"
    assert [explanation.indexed(entry.name, index) for entry in describe.explanations()] == describe.explanations()


def test_an_installed_wheel_has_the_index_and_an_editable_installation_reads_its_sources() -> None:
    where = json.loads(importlib.metadata.distribution("gpudiag").read_text("direct_url.json") or "{}")
    editable = where.get("dir_info", {}).get("editable", False)
    assert explanation.INDEX.exists() is not editable


def test_the_recipe_for_conda_has_the_requirements_and_the_metadata_of_the_project() -> None:
    recipe = yaml.safe_load((ROOT / "conda/recipe.yaml").read_text())
    project = msgspec.toml.decode((ROOT / "pyproject.toml").read_text())
    own, needed = project["project"], recipe["requirements"]
    run = [line if isinstance(line, str) else f"{line['then']}; {line['if']}" for line in needed["run"]]
    marked = {"tomli>=2.0; python_version < '3.11'": 'tomli >=2.0; match(python, "<3.11")'}
    expected = [marked.get(line, re.sub(r"(?=[<>=])", " ", line, count=1)) for line in own["dependencies"]]
    assert run == [f"python {own['requires-python']}", *expected]
    host = [re.sub(r"(?=[<>=])", " ", line, count=1) for line in project["build-system"]["requires"]]
    assert needed["host"] == ["python", "pip", *host]
    assert recipe["context"]["version"] == gpudiag.__version__
    assert recipe["build"]["python"]["entry_points"] == [f"gpudiag = {own['scripts']['gpudiag']}"]
    assert (recipe["about"]["summary"], recipe["about"]["license"]) == (own["description"], own["license"])
