"""{who} raised an error while TensorFlow imported it: {error}

The traceback says which module of which package could not be imported. gpudiag does not know this error. Install that
package again, or use an environment with nothing but TensorFlow in it: this shows whether the package is damaged or
does not fit.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.imports import Traceback, executable, interpreter, version_of
from gpudiag.causes.shared.packages import INSTALLATION, chosen
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts, TensorflowFacts

CAUSE = Cause(
    fix=(
        "{python} -m pip install --force-reinstall --no-cache-dir '{which}'",
        "{python} -m venv fresh && fresh/bin/pip install 'tensorflow[and-cuda]'  # without other packages",
    ),
    url=INSTALLATION,
    needs_gpu=False,
    last_resort=True,
)


def find(facts: Facts, failed: Traceback, installed: TensorflowFacts) -> Matches:
    named = next(iter(failed.distributions), "")
    known = next((one for one in installed.requirements if one.name == named and one.version), None)
    own = chosen(installed)
    who = version_of(installed, named) if named else f"{own.name} {own.version}".strip()
    which = f"{known.name}=={known.version}" if known else named or own.name
    seen = [f"import tensorflow raised {failed.error}"]
    seen += [f"it was raised in {failed.where}"] if failed.where else []
    yield Match(
        (*seen, *interpreter(facts)),
        Confidence.LIKELY if failed.where else Confidence.POSSIBLE,
        {"who": who, "error": failed.error, "which": which, "python": executable(facts)},
    )
