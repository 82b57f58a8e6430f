"""Limits in force, read from files as the kernel writes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gpudiag.facts.limits import control_group, limits
from gpudiag.model.facts import Limit

_V1 = "35 31 0:32 {root} /sys/fs/cgroup/{name} rw,relatime - cgroup cgroup rw,{name}\n"
_V2 = "41 31 0:38 {root} /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")


def test_the_tightest_group_of_version_2(tmp_path: Path) -> None:
    put(tmp_path / "proc/self", {"cgroup": "0::/user.slice/job", "mountinfo": _V2.format(root="/")})
    put(tmp_path / "sys/fs/cgroup", {"memory.max": "max", "pids.max": "max"})
    user = {"memory.max": "1000", "memory.current": "900", "memory.events": "max 5\noom_kill 2"}
    put(tmp_path / "sys/fs/cgroup/user.slice", user)
    job = {"memory.max": "2000", "pids.max": "64", "pids.current": "9", "pids.events": "max 3"}
    put(tmp_path / "sys/fs/cgroup/user.slice/job", job)
    assert limits(tmp_path) == (
        Limit("memory.max", 1000, "/sys/fs/cgroup/user.slice/memory.max", 900, 2),
        Limit("pids.max", 64, "/sys/fs/cgroup/user.slice/job/pids.max", 9, 3),
    )


def test_version_1_in_a_container_that_sees_its_own_group(tmp_path: Path) -> None:
    mounts = "".join(_V1.format(root="/docker/01", name=name) for name in ("memory", "pids"))
    put(tmp_path / "proc/self", {"cgroup": "4:memory:/docker/01\n8:pids:/docker/01", "mountinfo": mounts})
    unlimited = {"memory.limit_in_bytes": "9223372036854771712", "memory.usage_in_bytes": "4096"}
    put(tmp_path / "sys/fs/cgroup/memory", unlimited)
    put(tmp_path / "sys/fs/cgroup/pids", {"pids.max": "30", "pids.current": "30"})
    assert limits(tmp_path) == (Limit("pids.max", 30, "/sys/fs/cgroup/pids/pids.max", 30),)


def test_ulimits_and_overcommit(tmp_path: Path) -> None:
    lines = (
        "Limit                     Soft Limit           Hard Limit           Units",
        "Max processes             96365                96365                processes",
        "Max open files            1024                 1048576              files",
        "Max address space         unlimited            unlimited            bytes",
    )
    put(tmp_path / "proc", {"self/limits": "\n".join(lines), "sys/vm/overcommit_memory": "2"})
    put(tmp_path / "proc", {"meminfo": "MemTotal: 9 kB\nCommitLimit:   8 kB\nCommitted_AS:  7 kB"})
    processes = Limit("Max processes", 96365, "/proc/self/limits", is_hard=True)
    files = Limit("Max open files", 1024, "/proc/self/limits")
    assert limits(tmp_path) == (processes, files, Limit("vm.overcommit_memory", 8192, "/proc/meminfo", 7168))
    put(tmp_path / "proc", {"sys/vm/overcommit_memory": "0"})
    assert limits(tmp_path) == (processes, files)


def test_the_control_group_of_devices_comes_first(tmp_path: Path) -> None:
    put(tmp_path / "proc/self", {"cgroup": "5:devices:/system.slice/a.service\n0::/other"})
    assert control_group(tmp_path, "devices") == "/system.slice/a.service"
    put(tmp_path / "proc/self", {"cgroup": "5:devices:/\n1:name=systemd:/\n0::/other"})
    assert control_group(tmp_path, "devices") == "/other"
    put(tmp_path / "proc/self", {"cgroup": ""})
    assert control_group(tmp_path, "devices") is None


_READ = """
from pathlib import Path
from gpudiag.facts.limits import limits
from gpudiag.run.bisect.attempt import _raise_limit, low_limits
(limit,) = [limit for limit in limits(Path(ROOT)) if limit.name == "Max address space"]
print(limit.value >> 10, limit.is_hard, limit.since, low_limits())
for name in low_limits():
    _raise_limit(name)
print(low_limits(), *[limit for limit in limits(Path(ROOT)) if limit.name == "Max address space"])
"""


@pytest.mark.parametrize("of_real_machine", [True, False])
def test_a_limit_of_addresses_is_read_with_the_process_that_it_begins_with(
    tmp_path: Path, of_real_machine: bool
) -> None:
    """It holds for the programs of a simulated machine, too, whose files say nothing of limits."""
    program = _READ.replace("ROOT", repr("/" if of_real_machine else str(tmp_path)))
    for option, is_hard in (("-Sv", False), ("-v", True)):
        shell = ["sh", "-c", f'ulimit {option} 4000000; "$0" -c "$1"; exit $?', sys.executable, program]
        with subprocess.Popen(shell, stdout=subprocess.PIPE, text=True) as process:
            before, after = process.communicate()[0].splitlines()
        low = () if is_hard else ("Max address space",)
        assert before == f"4000000 {is_hard} process {process.pid} (sh ...) {low}"
        assert after.startswith("() Limit" if is_hard else "()")
        assert is_hard or after == "()"
