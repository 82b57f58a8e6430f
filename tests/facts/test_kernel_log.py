"""Lines of NVIDIA's driver in the kernel's log."""

from __future__ import annotations

from pathlib import Path

from gpudiag.facts.kernel_log import kernel_log

_RECORDS = """\
6,338,5140800,-;usb 1-1: new high-speed USB device
4,339,5140900,-;NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release Build
 SUBSYSTEM=pci
3,340,5140950,-;NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
"""


def test_the_last_lines_of_the_driver_without_those_of_every_start(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").write_text(_RECORDS)
    lines = kernel_log(tmp_path)
    assert lines == ("NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",)


def test_a_log_that_may_not_be_read_is_not_an_empty_one(tmp_path: Path) -> None:
    assert kernel_log(tmp_path) is None
    (tmp_path / "dev/kmsg").mkdir(parents=True)
    assert kernel_log(tmp_path) is None
