"""TensorFlow or a package that it needs is incomplete: `import tensorflow` fails

An installation that was interrupted, a full disk, a copy without some files, or a second release that was unpacked over
the first leaves a TensorFlow whose own modules do not find each other.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.imports import Traceback, executable
from gpudiag.causes.shared.packages import INSTALLATION, chosen, reinstall
from gpudiag.fix import Kind, check, run
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts, TensorflowFacts

CAUSE = Cause(
    title="{name} is incomplete: {lacks} is not there: `import tensorflow` fails",
    fix=(
        run("{python} -m pip install --force-reinstall --no-deps --no-cache-dir '{which}'", kind=Kind.INSTALL),
        check("df -h {location}", "shows whether the disk has room"),
    ),
    url=INSTALLATION,
    needs_gpu=False,
    symptom=True,
)


def find(facts: Facts, failed: Traceback, installed: TensorflowFacts) -> Matches:
    module = failed.module
    if not module.startswith("tensorflow.") or not installed.distributions:
        return
    own = chosen(installed)
    name = failed.error.partition("cannot import name '")[2].partition("'")[0]
    yield Match(
        (f"import tensorflow raised {failed.error}", f"it was raised in {failed.where}"),
        Confidence.LIKELY,
        {
            "name": f"{own.name} {own.version}",
            "lacks": f"{module}.{name}" if name else module,
            "python": executable(facts),
            "which": f"{own.name}=={own.version}" if own.version else str(reinstall(installed)["with_cuda"]),
            "location": own.location,
        },
    )
