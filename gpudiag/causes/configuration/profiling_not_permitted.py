"""permission denied: the driver lets only administrators read the GPU's counters, so the profiler cannot; everything
else works

Since the drivers of 2019 (418.43, on Windows 419.17) the module's option NVreg_RestrictProfilingToAdminUsers is on.
TensorFlow's profiler, and the TensorBoard callback with profile_batch, then trace nothing of the GPU, and say so once
for each function of CUPTI. In a container the capability SYS_ADMIN does it, for root there.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import Kind, Where, edit_note, note, run, run_container
from gpudiag.knowledge.messages.programs_and_drivers import PROFILING_NOT_PERMITTED
from gpudiag.knowledge.origin import Origin
from gpudiag.model.report import Severity

CAUSE = Cause(
    severity=Severity.WARNING,
    fix=(
        run(
            "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee /etc/modprobe.d/nv-prof.conf",
            kind=Kind.CHANGE_DRIVER,
        ),
        run_container("--cap-add=SYS_ADMIN"),
        edit_note("or switch profiling off: TensorBoard(profile_batch=0)"),
    ),
    url="https://developer.nvidia.com/nvidia-development-tools-solutions-err_nvgpuctrperm-permission-issue-"
    "performance-counters",
    needs_gpu=False,
)
_FOR_ALL = run(
    "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee "
    "/etc/modprobe.d/nv-prof.conf && sudo "
    "update-initramfs -u && sudo reboot",
    "on Fedora: dracut --force",
    kind=Kind.CHANGE_DRIVER,
    where=Where.HOST,
)
_IN_CONTAINER = run_container("--cap-add=SYS_ADMIN", note="if it runs in a container, as root")
_ON_WINDOWS = note(
    "NVIDIA Control Panel, Desktop, Enable Developer Settings; Manage GPU Performance Counters: all users"
)


def find(program: Program, origin: Origin) -> Matches:
    if said := program.said(PROFILING_NOT_PERMITTED):
        first, second = (_ON_WINDOWS, None) if origin.windows else (_FOR_ALL, _IN_CONTAINER)
        yield Match(said, fix=(first, second, CAUSE.fix[2]))
