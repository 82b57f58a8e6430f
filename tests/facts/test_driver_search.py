"""The driver's libraries are found where the loader does not look, each with the place that names its folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpudiag.facts.driver_search import Search

NAME = "libcuda.so.1"
NVML = "libnvidia-ml.so.1"


def put(root: Path, name: str, text: str = "") -> Path:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
    return root / name


def search(root: Path, **environ: str) -> dict[str, str]:
    """Return the files of libcuda below a root with a GPU's device, each with the place that names its folder."""
    put(root, "dev/nvidiactl")
    found = Search(root, [NAME, NVML], environ)
    return {str(file.relative_to(root)): place for file, place in found.files[NAME].items()}


@pytest.mark.parametrize(
    "folder",
    [
        "usr/local/nvidia/lib64",
        ".singularity.d/libs",
        "run/opengl-driver/lib",
        "usr/lib/x86_64-linux-gnu/nvidia/current",
        "usr/lib/x86_64-linux-gnu/GL/nvidia-550-54-14/lib",
        "cvmfs/software.eessi.io/host_injections/nvidia/x86_64/latest/host",
        "opt/udiImage/modules/gpu/lib64",
        "cm/local/apps/cuda/libs/535.54.03/lib64",
        "var/drivers/nvidia/current/lib64",
        "run/nvidia/driver/usr/lib/x86_64-linux-gnu",
        "home/kubernetes/bin/nvidia/lib64",
    ],
)
def test_the_folders_of_runtimes_distributions_and_clusters(folder: str, tmp_path: Path) -> None:
    put(tmp_path, f"{folder}/{NAME}")
    assert search(tmp_path) == {f"{folder}/{NAME}": ""}


def test_a_file_without_the_link_of_its_name_and_a_link_to_nothing(tmp_path: Path) -> None:
    put(tmp_path, "usr/lib/x86_64-linux-gnu/libcuda.so.565.77")
    put(tmp_path, "usr/lib64/libcuda.so.550.54.14")
    (tmp_path / "usr/lib64" / NAME).symlink_to("/nix/store/x/libcuda.so.1")
    assert set(search(tmp_path)) == {"usr/lib/x86_64-linux-gnu/libcuda.so.565.77", f"usr/lib64/{NAME}"}


def test_neither_a_file_for_linking_nor_that_of_forward_compatibility(tmp_path: Path) -> None:
    put(tmp_path, f"usr/local/cuda-12.4/lib64/stubs/{NAME}")
    put(tmp_path, f"usr/local/cuda-12.4/compat/{NAME}")
    assert search(tmp_path) == {}


def test_what_names_a_folder(tmp_path: Path) -> None:
    put(tmp_path, f"srv/profile/{NAME}")
    put(tmp_path, "etc/profile.d/gpu.sh", "\nexport LD_LIBRARY_PATH=/srv/profile:$LD_LIBRARY_PATH\n")
    put(tmp_path, f"srv/image/{NAME}")
    put(tmp_path, "proc/1/environ", "A=b\0LD_LIBRARY_PATH=/srv/image\0")
    put(tmp_path, f"srv/cdi/{NAME}")
    put(tmp_path, "etc/cdi/nvidia.yaml", "- containerPath: /srv/cdi/libcuda.so.550.54.14\n")
    assert search(tmp_path) == {
        f"srv/profile/{NAME}": "/etc/profile.d/gpu.sh line 2",
        f"srv/image/{NAME}": "the first process of this container",
        f"srv/cdi/{NAME}": f"{tmp_path}/etc/cdi/nvidia.yaml",
    }


def test_nothing_is_searched_for_where_no_driver_is(tmp_path: Path) -> None:
    put(tmp_path, f"usr/local/nvidia/lib64/{NAME}")
    assert Search(tmp_path, [NAME]).files == {NAME: {}}
    assert Search(tmp_path, [NAME]).walked == ()


def test_a_mounted_library_names_its_folder(tmp_path: Path) -> None:
    """In a mount namespace of its own, in which a runtime has mounted the host's file."""
    file = put(tmp_path, f"host/{NAME}")
    inside = put(tmp_path, f"srv/inside/{NAME}")
    put(tmp_path, "dev/nvidiactl")
    script = (
        f"mount --bind {file} {inside} && mkdir -p {tmp_path}/proc/self && "
        f"cat /proc/self/mountinfo > {tmp_path}/proc/self/mountinfo"
    )
    done = subprocess.run(["unshare", "--map-root-user", "-m", "sh", "-c", script], check=False)
    if done.returncode:
        pytest.skip("no mount namespace here")
    assert Search(tmp_path, [NAME], {}).files[NAME][inside] == f"{inside} is mounted"


def test_a_folder_that_this_user_may_not_look_into_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "dev/nvidiactl")
    put(tmp_path, "usr/lib/mine/y")
    put(tmp_path, "usr/lib/hers/y")
    scan = os.scandir

    def refuse(folder: str | Path) -> Any:  # root may look into every folder
        if str(folder).endswith("hers"):
            raise PermissionError(13, "Permission denied", str(folder))
        return scan(folder)

    monkeypatch.setattr("gpudiag.facts.driver_search.os.scandir", refuse)
    found = Search(tmp_path, [NAME], {})
    assert (found.walked, found.closed) == (("/usr",), ["/usr/lib/hers"])


def test_the_walk_says_whether_it_came_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "dev/nvidiactl")
    put(tmp_path, "usr/lib/x/y/z")
    assert Search(tmp_path, [NAME], {}).walked == ("/usr",)
    monkeypatch.setattr("gpudiag.facts.driver_search._MOST_FOLDERS", 1)
    assert Search(tmp_path, [NAME], {}).walked == ()
