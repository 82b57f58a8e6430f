"""The family ``driver`` with a kernel module and a driver library made by the test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpudiag.facts import driver

CLOSED = """NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)
"""
OPEN = """NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build  (dvs-builder@U16)  Thu Feb
GCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04)
"""
ABSENT = "libgpudiag-is-not-there.so.1"


@pytest.mark.parametrize(
    ("text", "version"), [(CLOSED, "535.104.05"), (OPEN, "550.54.14"), ("something new\n", "something new")]
)
def test_version_of_the_kernel_module(tmp_path: Path, text: str, version: str) -> None:
    file = tmp_path / "proc/driver/nvidia/version"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert driver.gather(tmp_path, ABSENT).kernel_module == version


def test_without_module_and_library(tmp_path: Path) -> None:
    facts = driver.gather(tmp_path, ABSENT)
    assert (facts.kernel_module, facts.libcuda_path, facts.cuda_version) == (None, None, None)
    assert facts.libcuda_error is not None
    assert facts.libcuda_error.startswith(f"{ABSENT}: cannot open shared object file")


def library(folder: Path, version: int, status: int) -> Path:
    """Return a link to a driver library of which ``cuDriverGetVersion`` is the only function."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler (cc or gcc) to make a driver library")
    source, real = folder / "cuda.c", folder / f"libcudatest{version}.so.535.104.05"
    source.write_text(f"int cuDriverGetVersion(int *version) {{ *version = {version}; return {status}; }}\n")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(real), str(source)], check=True)
    link = folder / f"libcudatest{version}.so.1"
    link.symlink_to(real)
    return link


def test_a_library_that_answers(tmp_path: Path) -> None:
    link = library(tmp_path, 12050, 0)
    facts = driver.gather(tmp_path, str(link))
    assert (facts.libcuda_error, facts.cuda_version) == (None, "12.5")
    assert facts.libcuda_path == str(link.resolve())


def test_a_stub_library(tmp_path: Path) -> None:
    link = library(tmp_path, 11040, 34)
    facts = driver.gather(tmp_path, str(link))
    assert facts.libcuda_error == "cuDriverGetVersion returned CUDA error 34"
    assert (facts.libcuda_path, facts.cuda_version) == (str(link.resolve()), None)


def put(root: Path, path: str, text: str = "") -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_nothing_is_said_to_be_there_that_is_not(tmp_path: Path) -> None:
    facts = driver.gather(tmp_path, ABSENT)
    assert (facts.modules, facts.packages, facts.fabric_manager) == ((), {}, "absent")
    assert (facts.module_installed, facts.secure_boot, facts.prime) == (None, None, None)
    assert (facts.wsl_library, facts.windows_driver) == (None, None)


def test_modules_of_the_kernel(tmp_path: Path) -> None:
    put(tmp_path, "proc/modules", "nvidia_uvm 1 0 - Live 0\nnouveau 2 1 - Live 0\nvideo 3 1 nouveau, Live 0\n")
    put(tmp_path, "proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
    put(tmp_path, "lib/modules/6.1.0-18-amd64/modules.dep", "kernel/fs/ext4.ko: kernel/lib/crc16.ko\n")
    facts = driver.gather(tmp_path, ABSENT)
    assert facts.modules == ("nvidia_uvm", "nouveau")
    assert (facts.module_installed, facts.module_file) == (False, None)
    put(tmp_path, "lib/modules/6.1.0-18-amd64/updates/dkms/nvidia.ko.xz", "")
    assert driver.gather(tmp_path, ABSENT).module_file == "/lib/modules/6.1.0-18-amd64/updates/dkms/nvidia.ko.xz"


@pytest.mark.parametrize(
    "line",
    ["updates/dkms/nvidia.ko.xz: kernel/x.ko", "updates/dkms/nvidia-current.ko:", "kernel/nvidia-535/nvidia.ko:"],
)
def test_a_module_that_was_built(tmp_path: Path, line: str) -> None:
    put(tmp_path, "proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
    put(tmp_path, "lib/modules/6.1.0-18-amd64/modules.dep", f"kernel/fs/ext4.ko:\n{line}\n")
    assert driver.gather(tmp_path, ABSENT).module_installed is True


@pytest.mark.parametrize("on", [True, False])
def test_secure_boot(tmp_path: Path, on: bool) -> None:
    name = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    put(tmp_path, f"sys/firmware/efi/efivars/{name}", f"\x06\0\0\0{chr(on)}")
    assert driver.gather(tmp_path, ABSENT).secure_boot is on


def test_installed_packages_of_the_driver(tmp_path: Path) -> None:
    state = {
        "libnvidia-compute-535": "install ok",
        "nvidia-container-toolkit": "install ok",
        "libcuda1": "deinstall ok",
    }
    text = "\n".join(
        f"Package: {name}\nStatus: {status} installed\nPriority: optional\nVersion: 535.104.05-0ubuntu1\n"
        for name, status in state.items()
    )
    put(tmp_path, "var/lib/dpkg/status", text)
    facts = driver.gather(tmp_path, ABSENT)
    assert (facts.packages, facts.unfinished) == ({"libnvidia-compute-535": "535.104.05-0ubuntu1"}, {})


def test_an_upgrade_that_dpkg_has_not_ended(tmp_path: Path) -> None:
    states = {
        "nvidia-kernel-dkms": "install ok half-configured",
        "nvidia-driver": "install reinstreq half-installed",
        "nvidia-smi": "hold ok installed",
        "libcuda1": "install ok config-files",
    }
    text = "\n".join(f"Package: {name}\nStatus: {state}\nVersion: 525.85.12-1\n" for name, state in states.items())
    put(tmp_path, "var/lib/dpkg/status", text)
    facts = driver.gather(tmp_path, ABSENT)
    assert set(facts.packages) == {"nvidia-kernel-dkms", "nvidia-driver", "nvidia-smi"}
    assert facts.unfinished == {"nvidia-kernel-dkms": "half-configured", "nvidia-driver": "half-installed"}


def test_the_module_that_dkms_has_built(tmp_path: Path) -> None:
    put(tmp_path, "proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
    folder = tmp_path / "var/lib/dkms/nvidia"
    folder.mkdir(parents=True)
    assert driver.gather(tmp_path, ABSENT).rebuilt == ""
    for kernel, version in (("6.1.0-18-amd64", "520.56.06"), ("6.1.0-21-amd64", "525.85.12")):
        (folder / f"kernel-{kernel}-x86_64").symlink_to(f"{version}/{kernel}/x86_64")
    assert driver.gather(tmp_path, ABSENT).rebuilt == "520.56.06"


_OVERLAY = "500 400 0:60 / / rw - overlay overlay rw,lowerdir=/a\n"
_AT = "501 500 8:1 /usr/lib64/x {} ro - ext4 /dev/sda1 ro\n"


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        ("", None),
        (_OVERLAY, False),
        (_OVERLAY + _AT.format("/etc/hosts") + _AT.format("/dev"), False),
        (_OVERLAY + _AT.format("{file}"), True),
        (_OVERLAY + _AT.format("{folder}"), True),
        (_AT.format("{file}"), None),
    ],
)
def test_whose_the_library_in_a_container_is(tmp_path: Path, mounts: str, expected: bool | None) -> None:
    file = library(tmp_path, 12050, 0).resolve()
    put(tmp_path, "proc/self/mountinfo", mounts.format(file=file, folder=file.parent))
    assert driver.gather(tmp_path, str(file)).libcuda_mounted is expected


def test_fabric_manager(tmp_path: Path) -> None:
    put(tmp_path, "usr/bin/nv-fabricmanager")
    assert driver.gather(tmp_path, ABSENT).fabric_manager == "stopped"
    put(tmp_path, "proc/4242/comm", "nv-fabricmanage\n")
    assert driver.gather(tmp_path, ABSENT).fabric_manager == "running"
    assert driver.gather(tmp_path, ABSENT).fabric_manager_version is None
    # https://github.com/dstackai/dstack/issues/2348
    said = "fabric manager NVIDIA GPU driver interface version 535.183.01 don't match with driver version 550.127.05.\n"
    put(tmp_path, "var/log/fabricmanager.log", f"[ERROR] {said}")
    assert driver.gather(tmp_path, ABSENT).fabric_manager_version == "535.183.01"


def test_wsl(tmp_path: Path) -> None:
    put(tmp_path, "usr/lib/wsl/lib/libcuda.so.1")
    put(tmp_path, "mnt/c/Windows/System32/nvidia-smi.exe")
    assert driver.gather(tmp_path, ABSENT).windows_driver is None  # a disk with Windows on it
    put(tmp_path, "proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n")
    facts = driver.gather(tmp_path, ABSENT)
    assert facts.wsl_library == "/usr/lib/wsl/lib/libcuda.so.1"
    assert facts.windows_driver == "/mnt/c/Windows/System32/nvidia-smi.exe"


def test_a_library_that_is_loaded_before_the_driver_is_named(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler (cc or gcc)")
    (tmp_path / "hook.c").write_text("int cuInit(unsigned flags) { return 100; }\n")
    hook = tmp_path / "libhook.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(hook), str(tmp_path / "hook.c")], check=True)
    gather = "from gpudiag.facts import driver; print(driver.gather().interposed)"
    found = [
        subprocess.run([sys.executable, "-c", gather], env={**os.environ, **more}, stdout=subprocess.PIPE, check=True)
        for more in ({"LD_PRELOAD": str(hook)}, {})
    ]
    assert [done.stdout.decode() for done in found] == [f"('{hook}',)\n", "()\n"]


def test_what_ld_so_preload_names_and_that_a_stranger_cannot_read_it(tmp_path: Path) -> None:
    put(tmp_path, "etc/ld.so.preload", "/a.so:/b.so c.so # of HAMi\n")
    facts = driver.gather(tmp_path, ABSENT)
    assert (facts.preloaded, facts.preload_error) == (("/a.so", "/b.so", "c.so"), "")
    if os.geteuid():
        (tmp_path / "etc/ld.so.preload").chmod(0)
        assert driver.gather(tmp_path, ABSENT).preload_error == "EACCES"
        return
    script = (
        "import os; from pathlib import Path; from gpudiag.facts import driver; os.setuid(65534);"
        " facts = driver.gather(Path('/'), 'libabsent.so'); print(facts.preloaded, facts.preload_error)"
    )
    stage = 'mount -t tmpfs none "$0" && mkdir "$0/u" "$0/w" && chmod 755 "$0" && '
    stage += 'mount -t overlay -o "lowerdir=/etc,upperdir=$0/u,workdir=$0/w" none /etc && '
    stage += 'touch /etc/ld.so.preload && chmod 600 /etc/ld.so.preload && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", stage, str(tmp_path), sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip("no mounts here")
    assert done.stdout == "() EACCES\n", done.stderr
