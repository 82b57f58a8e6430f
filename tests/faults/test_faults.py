"""What gpudiag lacks is no verdict on the machine: part of the campaign whose whole table is ``reports/faults.md``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Gpudiag
from faults import campaign
from gpudiag.model import codec

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="fork servers need Linux")

CHOSEN = (
    "supervisor: socket.socketpair EMFILE, every time",
    "supervisor: os.pipe2 EMFILE, once",
    "supervisor: os.memfd_create ENOMEM, every time",
    "supervisor: subprocess.Popen EAGAIN, every time",
    "supervisor: socket.send_fds EMSGSIZE, every time",
    "server: os.fork EAGAIN, once",
    "server: os.mkdir ENOSPC, every time",
    "server: os.open EMFILE, every time",
    "server: select.select ENOMEM, every time",
)
"""Of the injected faults, one of each kind."""


def test_the_campaign_knows_what_is_chosen() -> None:
    assert set(CHOSEN) <= {fault.name for fault in campaign.injected()}


@pytest.mark.parametrize(
    "fault", [fault for fault in campaign.injected() if fault.name in CHOSEN], ids=lambda fault: fault.name
)
def test_a_call_that_fails_is_no_verdict(fault: campaign.Fault, tmp_path: Path) -> None:
    outcome = campaign.run(fault, tmp_path, "host.gpus host.driver")
    assert outcome.faults == []
    assert outcome.status == 3 or "once" in fault.name


ALSO = {1, 3, 6, 7, 9, 11, 14, 15}
"""Limits between others (2 and 5 processes, 20, 24 and 40 files, 600 MiB); no inodes, which fails as a full disk does;
no folder for temporary files, of which the test of a container is."""


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=[pytest.mark.slow] if number in ALSO else [])
        for number in range(len(list(campaign.real(Path()))))
    ],
)
def test_a_lack_is_no_verdict(number: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    mounts, folder = tmp_path_factory.mktemp("mounts"), tmp_path_factory.mktemp("run")
    fault = list(campaign.real(mounts))[number]
    if why := campaign.possible(fault):
        pytest.skip(f"{fault.name}: {why}")
    assert campaign.run(fault, folder, "host.gpus host.driver").faults == []


def test_a_container_without_a_folder_for_temporary_files_is_checked_all_the_same(gpudiag: Gpudiag) -> None:
    """As with a read-only root file system: only /dev/shm can be written to."""
    places = [place for place in ("/tmp", "/var/tmp", "/usr/tmp") if Path(place).is_dir()]
    read_only = "; ".join(f"mount --bind {place} {place} && mount -o remount,ro,bind {place}" for place in places)
    mounted = ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'{read_only}; cd /sys; exec "$@"', "sh"]
    if why := campaign.possible(campaign.Fault("read-only", before=tuple(mounted))):
        pytest.skip(why)
    done = subprocess.run(
        [*mounted, *gpudiag.command("check", "host", "--format", "json")],
        env=gpudiag.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    report = codec.decode(done.stdout, "standard output")
    assert report.diagnosis.failed == ()
    assert report.counts.keys() <= {"pass", "note", "warning"}, done.stderr
