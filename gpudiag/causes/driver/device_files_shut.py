"""this user may not read and write NVIDIA's device files

Every use of a GPU opens these files. Their owner, group and permissions decide, and in a container or a job of Slurm
its control group.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.signs import Signs
from gpudiag.fix import check

CAUSE = Cause(
    title="this user may not read and write {nodes}",
    fix=(
        check(
            "ls -l /dev/nvidia*", "join the group that owns the files, and log in again; in a container: --group-add"
        ),
    ),
    url="https://download.nvidia.com/XFree86/Linux-x86_64/535.104.05/README/faq.html",
    finding="host.driver.no_access",
    row_only=True,
)


def find(signs: Signs) -> Matches:
    if nodes := " ".join(signs.shut_files):
        yield Match(evidence=(nodes,), figures={"nodes": nodes})
