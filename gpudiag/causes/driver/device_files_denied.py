"""the permissions of {files} let this process in, but the kernel's control group keeps it out

Slurm, container runtimes and systemd allow a process only the devices of its job, by a control group, whatever the
permissions of the files are. A job that asked for no GPU has none. In a container that had its GPUs, a `systemctl
daemon-reload` on the host takes them away: nvidia-smi then says "Failed to initialize NVML: Unknown Error".
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.device_files import NoAccess

CAUSE = Cause(
    fix=("{allow}",),
    url="https://slurm.schedmd.com/gres.html",
    unless=("device_files_kept_by_security_module", "device_files_kept_by_control_group"),
    shown={"allow": "systemctl show -p DeviceAllow -p DevicePolicy UNIT  # of the service or slice that this runs in"},
    views=(
        "host.driver.no_access",
        "host.driver.nvml_failed",
    ),
)


def find(files: NoAccess) -> Matches:
    if not files.by_their_mode:
        yield files.match(files.shut)
