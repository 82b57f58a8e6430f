"""The family ``libraries``: what the loader finds, against what the loader itself opens."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpudiag import simulator
from gpudiag.facts import libraries, loader_cache
from gpudiag.facts.asked_loader import asked
from gpudiag.hardware import elf

CUFFT = "libcufft.so.11"


@pytest.fixture
def source() -> Path:
    return simulator.library_directory()


def gather(*path: Path, **variables: str) -> dict[str, Any]:
    """Return the record that a new process gathers, its libraries by name; ``path`` comes first on ``sys.path``."""
    code = (
        f"import sys; sys.path[:0] = {[str(entry) for entry in path]!r}\n"
        "from gpudiag.facts import gather_family\n"
        "print(gather_family({'family': 'libraries'}).decode())"
    )
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", "XLA_FLAGS")},
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        **variables,
    }
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    record: dict[str, Any] = json.loads(ended.stdout)
    return record | {"libraries": {library["soname"]: library for library in record["libraries"]}}


def faults(library: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the files of a library that do not serve, each with the kind of its fault and the words for it."""
    return {state["path"]: (state["fault"], state["words"]) for state in library["files"]}


def test_the_variable_comes_first_and_its_folders_in_order(source: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / CUFFT).symlink_to(source / CUFFT)
    (tmp_path / "first" / CUFFT).unlink()
    record = gather(LD_LIBRARY_PATH=f"{tmp_path}/first:{tmp_path}/second:{source}")
    assert record["search_path"] == [f"{tmp_path}/first", f"{tmp_path}/second", str(source)]
    found = record["libraries"][CUFFT]
    assert (found["path"], found["source"], found["error"]) == (f"{tmp_path}/second/{CUFFT}", "LD_LIBRARY_PATH", None)
    assert found["file"] == str((source / CUFFT).resolve())
    assert found["own_soname"] == CUFFT


def test_what_is_not_there_has_the_loaders_words() -> None:
    found = gather()["libraries"][CUFFT]
    if found["path"] is not None:
        pytest.skip("this machine has cuFFT")
    assert found["error"] == f"{CUFFT}: cannot open shared object file: No such file or directory"
    assert found["lacks"] == {}


def test_files_that_are_no_library_for_this_machine(source: Path, tmp_path: Path) -> None:
    """A folder that Docker made, a link whose target was removed, the package of another processor."""
    for name in ("mounted", "linked", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "mounted" / CUFFT).mkdir()
    (tmp_path / "linked" / "libcudnn.so.9").symlink_to("libcudnn.so.9.1.0")
    content = bytearray((source / "libcusparse.so.12").read_bytes())
    content[18:20] = b"\xb7\x00"  # e_machine: AArch64
    (tmp_path / "other" / "libcusparse.so.12").write_bytes(content)
    found = gather(LD_LIBRARY_PATH=f"{tmp_path}/mounted:{tmp_path}/linked:{tmp_path}/other")["libraries"]
    assert found[CUFFT]["error"].endswith("cannot read file data: Is a directory")
    assert found[CUFFT]["damaged"] == [f"{tmp_path}/mounted/{CUFFT}"]
    link, other = f"{tmp_path}/linked/libcudnn.so.9", f"{tmp_path}/other/libcusparse.so.12"
    assert faults(found["libcudnn.so.9"])[link] == ("link", "is a link to libcudnn.so.9.1.0, which is not there")
    kind, words = faults(found["libcusparse.so.12"])[other]
    assert (kind, "is for another kind of processor, AArch64" in words) == ("processor", True)


@pytest.mark.parametrize(
    "entry", ["~/cuda/lib64", '"{home}/cuda/lib64"', "HOME/cuda/lib64", "$HOME/cuda/lib64", "${{HOME}}/cuda/lib64"]
)
def test_what_an_entry_of_the_path_means_that_names_no_folder(entry: str, tmp_path: Path) -> None:
    (tmp_path / "cuda" / "lib64").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path))
        meant = list(libraries._meant(f"/nowhere:{entry.format(home=tmp_path)}:/usr/lib", str(tmp_path)))
    assert meant == [tmp_path / "cuda" / "lib64"]


def test_a_library_that_is_needed_in_turn_is_named_with_the_one_that_needs_it(source: Path, tmp_path: Path) -> None:
    (tmp_path / CUFFT).symlink_to(source / "libgpudiag_missing.so")
    found = gather(LD_LIBRARY_PATH=str(tmp_path))["libraries"][CUFFT]
    assert found["error"].startswith("libremoved-by-a-simulated-fault.so: cannot open shared object file")
    assert found["lacks"] == {"libremoved-by-a-simulated-fault.so": f"{tmp_path}/{CUFFT}"}


def test_the_loader_stops_at_a_damaged_file_and_passes_over_another_machines(source: Path, tmp_path: Path) -> None:
    for name in ("damaged", "foreign"):
        (tmp_path / name).mkdir()
    (tmp_path / "damaged" / CUFFT).write_bytes(b"")
    content = bytearray((source / CUFFT).read_bytes())
    content[18] ^= 0xFF  # the processor
    (tmp_path / "foreign" / CUFFT).write_bytes(bytes(content))
    found = gather(LD_LIBRARY_PATH=f"{tmp_path}/damaged:{source}")["libraries"][CUFFT]
    assert found["path"] == f"{tmp_path}/damaged/{CUFFT}"
    assert found["error"].endswith("file too short")
    found = gather(LD_LIBRARY_PATH=f"{tmp_path}/foreign:{source}")["libraries"][CUFFT]
    assert (found["path"], found["error"]) == (str(source / CUFFT), None)


@pytest.mark.parametrize("library", ["libcuda.so.1", CUFFT])
def test_damaged_files_are_told_with_the_good_one_that_comes_after(library: str, source: Path, tmp_path: Path) -> None:
    for name in ("empty", "junk", "lacks"):
        (tmp_path / name).mkdir()
    (tmp_path / "empty" / library).touch()
    (tmp_path / "junk" / library).write_bytes(b"junk" * 100)
    (tmp_path / "lacks" / library).symlink_to(source / "libgpudiag_missing.so")
    path = [str(tmp_path / name) for name in ("empty", "junk", "lacks")]
    found = gather(LD_LIBRARY_PATH=":".join([*path, str(source)]))["libraries"][library]
    assert found["damaged"] == [f"{folder}/{library}" for folder in path]
    assert found["instead"] == str(source / library)
    found = gather(LD_LIBRARY_PATH=":".join([str(source), *path]))["libraries"][library]
    assert (found["error"], found["damaged"], found["instead"]) == (None, [], None)


def test_a_damaged_file_that_a_library_needs_is_told(source: Path, tmp_path: Path) -> None:
    for name in ("damaged", "good"):
        (tmp_path / name).mkdir()
    needed = "libremoved-by-a-simulated-fault.so"
    (tmp_path / "good" / CUFFT).symlink_to(source / "libgpudiag_missing.so")
    (tmp_path / "damaged" / needed).touch()
    (tmp_path / "good" / needed).symlink_to(source / CUFFT)
    found = gather(LD_LIBRARY_PATH=f"{tmp_path}/damaged:{tmp_path}/good:{source}")["libraries"][CUFFT]
    assert (found["path"], found["damaged"]) == (f"{tmp_path}/good/{CUFFT}", [f"{tmp_path}/damaged/{needed}"])
    assert found["instead"] == f"{tmp_path}/good/{needed}"


def compiled(file: Path, source: str, *options: str) -> Path:
    """Compile a shared library, or skip the test where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here")
    file.parent.mkdir(parents=True, exist_ok=True)
    code = file.with_suffix(".c")
    code.write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", *options, "-o", str(file), str(code)], check=True, timeout=60)
    return file


def test_a_library_that_ends_the_process_is_named_and_the_others_are_opened(source: Path, tmp_path: Path) -> None:
    crash = "__attribute__((constructor)) static void start(void) { *(volatile int *)0 = 1; }"
    file = compiled(tmp_path / "crashing" / CUFFT, crash)
    touch = "char big[1 << 22] = {1}; __attribute__((constructor)) static void start(void) { big[(1 << 22) - 5]++; }"
    cut = compiled(tmp_path / "cut" / "libcusparse.so.12", touch)
    os.truncate(cut, 2_000_000)
    found = gather(LD_LIBRARY_PATH=f"{file.parent}:{cut.parent}:{source}")["libraries"]
    assert (found[CUFFT]["crash"], found["libcusparse.so.12"]["crash"]) == ("SIGSEGV", "SIGBUS")
    assert found[CUFFT]["error"] == f"{file}: opening it ended the process with SIGSEGV"
    assert faults(found[CUFFT])[str(file)] == ("crash", "ends the process with SIGSEGV when it is opened")
    assert faults(found["libcusparse.so.12"])[str(cut)][0] == "cut"
    assert (found[CUFFT]["damaged"], found[CUFFT]["instead"]) == ([str(file)], str(source / CUFFT))
    assert found["libcublas.so.12"]["error"] is None


def test_parts_of_cudnn_from_another_folder(source: Path, tmp_path: Path) -> None:
    for name in ("own", "same", "other"):
        (tmp_path / name).mkdir()
    for name in ("libcudnn.so.9", "libgpudiag_cuda.so"):
        shutil.copy((source / name).resolve(), tmp_path / "own")
    for name, content in (("own", b"part"), ("same", b"part"), ("other", b"another part")):
        copied = (source / CUFFT).read_bytes() + content
        (tmp_path / name / "libcudnn_ops.so.9").write_bytes(copied)
    stray, own = tmp_path / "other/libcudnn_ops.so.9", tmp_path / "own/libcudnn_ops.so.9"
    for first, found in (("other", {str(stray): "other build"}), ("same", {})):
        library = gather(LD_LIBRARY_PATH=f"{tmp_path}/{first}:{tmp_path}/own:{source}")["libraries"]["libcudnn.so.9"]
        assert library["error"] is None
        assert {file: kind for file, (kind, _) in faults(library).items()} == found
        assert all(f"in place of {own}" in words for _, words in faults(library).values())


def test_a_package_is_found_by_its_record_and_its_copy_is_opened_where_the_loaders_does_not(
    source: Path, tmp_path: Path
) -> None:
    file = tmp_path / "nvidia" / "cufft" / "lib" / CUFFT
    file.parent.mkdir(parents=True)
    shutil.copy(source / CUFFT, file)
    shutil.copy(source / "libgpudiag_cuda.so", file.parent)
    metadata = tmp_path / "nvidia_cufft_cu12-11.3.0.4.dist-info"
    metadata.mkdir()
    (metadata / "RECORD").write_text(f"nvidia/cufft/lib/{CUFFT},sha256=x,1\n")
    found = gather(tmp_path)["libraries"][CUFFT]
    if found["path"] is not None:
        pytest.skip("this machine has cuFFT")
    assert found["copies"] == [
        {"path": str(file), "version": "11.3.0.4", "owner": "nvidia-cufft-cu12 11.3.0.4", "error": None, "named_by": ""}
    ]
    found = gather(tmp_path, LD_LIBRARY_PATH=str(file.parent))["libraries"][CUFFT]
    assert (found["owner"], found["version"], found["copies"]) == ("nvidia-cufft-cu12 11.3.0.4", "11.3.0.4", [])


def test_a_copy_that_another_user_can_write_is_not_opened(tmp_path: Path) -> None:
    """To open a library is to run its code."""
    for name in ("own", "open"):
        (tmp_path / name).mkdir(mode=0o755)
        (tmp_path / name / CUFFT).write_text("junk")
    (tmp_path / "open").chmod(0o777)
    bashrc = tmp_path / ".bashrc"
    own_first = f"{tmp_path}/own:{tmp_path}/open"
    bashrc.write_text(f"[ -d / ] && export LD_LIBRARY_PATH={own_first}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}; true\n")
    found = gather(HOME=str(tmp_path))["libraries"][CUFFT]
    if found["path"] is not None:
        pytest.skip("this machine has cuFFT")
    own, foreign = found["copies"]
    assert (own["path"], own["error"]) == (f"{tmp_path}/own/{CUFFT}", f"{tmp_path}/own/{CUFFT}: file too short")
    assert foreign["error"] == f"not opened: everybody can write to its folder {tmp_path}/open"
    bashrc.chmod(0o666)
    assert gather(HOME=str(tmp_path))["libraries"][CUFFT]["copies"] == []


def test_no_program_is_run_that_another_user_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty entry of PATH is the working directory."""
    for name in ("cwd", "open", "own"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ldconfig").touch(0o755)
    (tmp_path / "open").chmod(0o777)
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("PATH", f":.:{tmp_path}/open:{tmp_path}/own")
    monkeypatch.setattr(
        os, "access", lambda file, mode: Path(file).is_relative_to(tmp_path) or not Path(file).is_absolute()
    )
    assert loader_cache._ldconfig() == tmp_path / "own/ldconfig"


def test_libdevice_is_found_where_xla_is_told_to_look(tmp_path: Path) -> None:
    for name in ("told", "conda"):
        (tmp_path / name / "nvvm" / "libdevice").mkdir(parents=True)
        (tmp_path / name / "nvvm" / "libdevice" / "libdevice.10.bc").touch()
    record = gather(XLA_FLAGS=f"--xla_gpu_cuda_data_dir={tmp_path}/told", CONDA_PREFIX=str(tmp_path / "conda"))
    assert record["libdevice"][0] == f"{tmp_path}/told/nvvm/libdevice/libdevice.10.bc"
    assert f"{tmp_path}/conda/nvvm/libdevice/libdevice.10.bc" in record["libdevice_elsewhere"]


def test_the_runpath_of_the_installed_tensorflow() -> None:
    record = gather()
    if record["opener"] is None:
        pytest.skip("no TensorFlow here that opens libraries")
    header = elf.read(Path(record["opener"]))
    assert header is not None
    assert header.soname == "libtensorflow_framework.so.2"
    assert len(record["runpath"]) == len(set(record["runpath"]))
    assert any(entry.endswith("/nvidia/cudnn/lib") for entry in record["runpath"])


def test_a_runpath_is_expanded_by_the_folder_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "tensorflow" / "a.so"
    assert libraries._expanded("$ORIGIN/../nvidia/x/lib:${ORIGIN}::$ORIGIN", file) == (
        f"{tmp_path}/nvidia/x/lib",
        f"{tmp_path}/tensorflow",
    )


def test_a_link_to_another_library_is_where_the_link_is(source: Path, tmp_path: Path) -> None:
    link = tmp_path / "libcusolver.so.11"
    link.symlink_to(source / "libcublas.so.12")
    found = gather(LD_LIBRARY_PATH=f"{tmp_path}:{source}")["libraries"]["libcusolver.so.11"]
    assert (found["path"], found["own_soname"]) == (str(link), "libcublas.so.12")


@pytest.mark.parametrize(("release", "found"), [("2.20.0", []), ("2.21.0", ["toolkit", "prefix"])])
def test_since_2_21_xla_looks_in_the_toolkit_of_the_variable_and_in_the_prefix(
    release: str, found: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "prefix" / "lib" / "python3.11" / "site-packages" / "tensorflow"
    (package.parent / f"tensorflow-{release}.dist-info").mkdir(parents=True)
    for name in ("prefix", "toolkit"):
        (tmp_path / name / "nvvm" / "libdevice").mkdir(parents=True)
        (tmp_path / name / "nvvm" / "libdevice" / "libdevice.10.bc").touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    looked_in, _ = libraries._libdevice(package, tmp_path, [])
    assert list(looked_in) == [f"{tmp_path}/{name}/nvvm/libdevice/libdevice.10.bc" for name in found]


def test_a_digest_is_the_same_for_a_copy_and_another_for_another_build(source: Path, tmp_path: Path) -> None:
    file, copy = source / CUFFT, tmp_path / CUFFT
    content = file.resolve().read_bytes()
    assert gather(LD_LIBRARY_PATH=str(source))["libraries"][CUFFT]["digest"] == libraries.digest(file)
    copy.write_bytes(content)
    assert libraries.digest(copy) == libraries.digest(file)
    for other in (content + b"x", b"x" + content[1:], content[:-1] + b"x", b""):
        copy.write_bytes(other)
        assert libraries.digest(copy) != libraries.digest(file)
    assert libraries.digest(tmp_path / "none") is None


def test_the_loader_wins_where_its_rules_are_other(source: Path, tmp_path: Path) -> None:
    """glibc looks for builds for this processor below each folder first (glibc-hwcaps), which the rules leave out."""
    if platform.machine() != "x86_64" or tuple(map(int, platform.libc_ver()[1].split(".")[:2])) < (2, 33):
        pytest.skip("glibc-hwcaps: x86-64, glibc 2.33 or later")
    better = tmp_path / "glibc-hwcaps/x86-64-v2"
    better.mkdir(parents=True)
    shutil.copy(source / CUFFT, better / CUFFT)
    (tmp_path / CUFFT).symlink_to(source / CUFFT)
    record = gather(LD_LIBRARY_PATH=f"{tmp_path}:{source}")
    found = record["libraries"][CUFFT]
    assert (found["path"], found["source"]) == (str(better / CUFFT), "LD_LIBRARY_PATH")
    assert record["corrected"] == {CUFFT: f"{tmp_path}/{CUFFT}"}
    assert gather(LD_LIBRARY_PATH=str(source))["corrected"] == {}


def test_the_loader_is_asked_as_it_searches_for_the_opener(source: Path, tmp_path: Path) -> None:
    (tmp_path / CUFFT).symlink_to(source / CUFFT)
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / CUFFT).symlink_to(source / CUFFT)
    names = [CUFFT, "libnot-here.so.1"]
    second = {**os.environ, "LD_LIBRARY_PATH": f"{tmp_path}/second"}
    assert asked(names, [str(tmp_path)], environ={}) == {CUFFT: tmp_path / CUFFT, names[1]: None}
    assert asked(names, [str(tmp_path)], environ=second)[CUFFT] == tmp_path / "second" / CUFFT
    assert asked(names, [str(tmp_path)], inherited=True, environ=second)[CUFFT] == tmp_path / CUFFT


def test_of_a_damaged_file_the_rules_are_what_is_known(tmp_path: Path) -> None:
    (tmp_path / CUFFT).write_bytes(b"")
    assert asked([CUFFT], [str(tmp_path)], environ={}) == {}


def test_a_distribution_whose_library_is_gone(tmp_path: Path) -> None:
    """Left so by a package that shared its folder and was uninstalled, or by a cleaning of the disk."""
    metadata = tmp_path / "nvidia_cufft_cu12-11.3.3.83.dist-info"
    metadata.mkdir()
    (metadata / "RECORD").write_text(f"nvidia/cufft/lib/{CUFFT},sha256=x,1\nnvidia/cufft/__init__.py,,\n")
    owner = "nvidia-cufft-cu12 11.3.3.83"
    assert gather(tmp_path)["incomplete"] == {owner: f"{tmp_path}/nvidia/cufft/lib/{CUFFT}"}
    (tmp_path / "nvidia/cufft/lib").mkdir(parents=True)
    (tmp_path / "nvidia/cufft/lib" / CUFFT).touch()
    assert gather(tmp_path)["incomplete"] == {}


@pytest.mark.parametrize(
    "folder", ["opt/nvidia/hpc_sdk/Linux_x86_64/24.7/math_libs/12.5/lib64", "opt/conda/envs/tf/lib"]
)
def test_where_toolkits_are_that_the_loader_does_not_search(folder: str, source: Path, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / CUFFT).symlink_to(source / CUFFT)
    assert tmp_path / folder in list(libraries._folders(tmp_path))
