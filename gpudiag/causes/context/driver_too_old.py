"""the driver supports CUDA {supported} at most, but this TensorFlow was built with CUDA {built}

A driver runs every CUDA of its major version and older ones. TensorFlow lists the GPUs with an older driver too,
without a warning; then creating its devices fails with "CUDA driver version is insufficient for CUDA runtime
version". The CUDA libraries that pip installs do not help: the driver is what is too old.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, EveryLog, Match, Matches
from gpudiag.causes.shared.machine import install_command
from gpudiag.causes.shared.signs import Signs
from gpudiag.fix import Kind, note, run
from gpudiag.knowledge.messages.way import DRIVER_TOO_OLD
from gpudiag.model.facts import Facts

CAUSE = Cause(
    unfit=True,
    fix=(
        run("sudo ubuntu-drivers install", "{needed} or newer, then reboot", kind=Kind.CHANGE_DRIVER),
        run(
            "sudo apt install cuda-compat-12-5; export LD_LIBRARY_PATH=/usr/local/cuda-12.5/compat:$LD_LIBRARY_PATH",
            "instead, as this is a data-centre GPU",
            kind=Kind.INSTALL_AS_ROOT,
        ),
    ),
    url="https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
    finding="host.driver.old_driver",
)
_DATA_CENTRE = re.compile(r"\b(Tesla|[ABHLPTV]\d{1,3}S?|GB?\d{3}|GH\d{3})\b")
_NEEDED = {11: "450.80", 12: "525.60", 13: "580.65"}
"""The oldest driver for a major version of CUDA, by minor version compatibility (release notes of the CUDA Toolkit)."""


def find(facts: Facts, log: EveryLog, signs: Signs) -> Matches:
    if signs.too_old is None:
        return
    supported, built = signs.too_old
    major, minor = [*built.split("."), "0"][:2]
    said = [event.line for event in log.all(DRIVER_TOO_OLD)]
    folder = f"/usr/local/cuda-{major}.{minor}/compat"
    keep = f"sudo apt install cuda-compat-{major}-{minor}; export LD_LIBRARY_PATH={folder}:$LD_LIBRARY_PATH"
    needed = _NEEDED.get(int(major) if major.isdecimal() else 0, f"for CUDA {built}")
    update = install_command(facts)
    yield Match(
        evidence=(f"the driver supports CUDA {supported}, TensorFlow was built with CUDA {built}", *said[:1]),
        figures={
            "supported": supported,
            "built": built,
            "needed": needed,
        },
        fix=(
            update.replaced(note=f"{needed} or newer, then reboot" + (f"; {update.note}" if update.note else "")),
            run(keep, "instead, as this is a data-centre GPU")
            if any(_DATA_CENTRE.search(device.name) for device in facts.nvml_devices)
            else note("the package cuda-compat, which spares that, is for data-centre GPUs alone"),
        ),
    )
