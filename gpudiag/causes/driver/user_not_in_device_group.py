"""permission denied: this user is not in the group that may open NVIDIA's device files

The driver's device files are open to everybody by default; some distributions and clusters give them to a group (video,
render, vglusers). Only members of the group, and root, can then use the GPU. In a container the group's number counts,
and its user has only the groups that the container was started with. nvidia-smi says "Insufficient Permissions".
"""

from __future__ import annotations

from gpudiag.cause import Cause, Matches
from gpudiag.causes.shared.device_files import DRIVER_DOCUMENT
from gpudiag.causes.shared.refusals import Refusals, Refuser
from gpudiag.fix import configure, note

CAUSE = Cause(
    title="permission denied: user {user} may not open {files} (group {group})",
    fix=(configure("sudo usermod -aG video someone"), note("then log in again")),
    url=f"{DRIVER_DOCUMENT}faq.html",
    views=(
        "host.driver.no_access",
        "host.driver.nvml_failed",
    ),
)


def find(files: Refusals) -> Matches:
    if shut := files.by(Refuser.GROUP):
        group, sandbox = shut[0].node.group, files.sandbox
        join = sandbox.join if sandbox is not None else ()
        host = (configure(f"sudo usermod -aG {group} {files.user}"), note("log in again"))
        fix = files.actions(join, shut) or (() if sandbox is not None and sandbox.is_container else host)
        yield files.match(shut, fix, *files.who_asks, group=group, user=files.user)
