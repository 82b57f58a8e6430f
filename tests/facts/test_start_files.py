"""Files that set variables, and who set the variables of an environment."""

from __future__ import annotations

import json
from pathlib import Path

from gpudiag.facts import start_files

Where = dict[tuple[str, str], str]


def places(environ: dict[str, str], root: Path) -> Where:
    """Return the place of each variable and entry, with the kind of place."""
    found = start_files.provenance(environ, root)
    return {(place.name, place.entry): f"{place.provenance.kind.value}: {place.provenance.place}" for place in found}


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_start_up_files_of_shells_and_what_they_source(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write(home / ".bashrc", f"# mine\n\n. {home}/env.sh\nexport LD_LIBRARY_PATH=/opt/old/lib:$LD_LIBRARY_PATH\n")
    write(home / "env.sh", "export XLA_FLAGS=--xla_x=1\nexport CUDA_VISIBLE_DEVICES=3\n")
    write(tmp_path / "etc/profile.d/cuda.sh", "export LD_LIBRARY_PATH=/opt/cuda/lib64/\n")
    environ = {
        "HOME": str(home),
        "LD_LIBRARY_PATH": "/opt/old/lib:/opt/cuda/lib64:/typed/here",
        "XLA_FLAGS": "--xla_x=1",
        "CUDA_VISIBLE_DEVICES": "0",
    }
    assert places(environ, tmp_path) == {
        ("LD_LIBRARY_PATH", "/opt/cuda/lib64"): "login: /etc/profile.d/cuda.sh line 1",
        ("LD_LIBRARY_PATH", "/opt/old/lib"): f"shell: {home}/.bashrc line 4",
        ("XLA_FLAGS", "--xla_x=1"): f"shell: {home}/env.sh line 1",
    }


def test_a_file_that_another_user_can_write_says_nothing(tmp_path: Path) -> None:
    write(tmp_path / "home/.bashrc", "export CUDA_VISIBLE_DEVICES=3\n")
    environ = {"HOME": str(tmp_path / "home"), "CUDA_VISIBLE_DEVICES": "3"}
    assert places(environ, tmp_path) != {}
    (tmp_path / "home/.bashrc").chmod(0o666)
    assert places(environ, tmp_path) == {}


def test_conda_and_environment_modules(tmp_path: Path) -> None:
    prefix = tmp_path / "conda"
    write(prefix / "conda-meta/state", json.dumps({"env_vars": {"CUDA_VISIBLE_DEVICES": "-1"}}))
    write(prefix / "etc/conda/activate.d/vars.sh", "export LD_LIBRARY_PATH=$CONDA_PREFIX/extra:$LD_LIBRARY_PATH\n")
    write(
        tmp_path / "cuda.lua",
        'local base = "/apps/cuda/11.8"\nprepend_path("LD_LIBRARY_PATH", pathJoin(base, "lib64"))\n',
    )
    write(tmp_path / "gcc.lua", 'prepend_path("LD_LIBRARY_PATH", "/apps/gcc/12/lib64")\n')
    environ = {
        "CONDA_PREFIX": str(prefix),
        "CUDA_VISIBLE_DEVICES": "-1",
        "LD_LIBRARY_PATH": f"{prefix}/extra:/apps/cuda/11.8/lib64:/apps/cuda/11.80",
        "LOADEDMODULES": "gcc/12:cuda/11.8",
        "_LMFILES_": f"{tmp_path}/gcc.lua:{tmp_path}/cuda.lua",
    }
    assert places(environ, tmp_path / "root") == {
        ("LD_LIBRARY_PATH", f"{prefix}/extra"): f"conda: {prefix}/etc/conda/activate.d/vars.sh line 1",
        ("CUDA_VISIBLE_DEVICES", ""): f"conda variables: {prefix}",
        ("LD_LIBRARY_PATH", "/apps/cuda/11.8/lib64"): "module: cuda/11.8",
    }


def test_the_first_process_of_a_container_and_not_of_a_host(tmp_path: Path) -> None:
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/environ").write_bytes(b"CUDA_VISIBLE_DEVICES=7\0LD_LIBRARY_PATH=/a:/b\0")
    environ = {"CUDA_VISIBLE_DEVICES": "7", "LD_LIBRARY_PATH": "/a:/b", "XLA_FLAGS": "--x"}
    of_container = {("CUDA_VISIBLE_DEVICES", ""), ("LD_LIBRARY_PATH", "/a"), ("LD_LIBRARY_PATH", "/b")}
    for command, found in (("tini", of_container), ("systemd", set())):
        (tmp_path / "proc/1/comm").write_text(f"{command}\n")
        assert set(places(environ, tmp_path)) == found
