"""{who} raised an error while TensorFlow imported it: {error}

The traceback says which module of which package could not be imported. What the error means is said if its words are in
the table of messages: not every such error is the fault of the package. Otherwise install that package again, or use an
environment with nothing but TensorFlow in it: this shows whether the package is damaged or does not fit.
"""

from __future__ import annotations

import re
from collections import defaultdict

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.advice import says_most
from gpudiag.causes.shared.imports import Traceback, executable, interpreter, version_of
from gpudiag.causes.shared.packages import INSTALLATION, chosen
from gpudiag.knowledge.log import recognised
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts, TensorflowFacts

CAUSE = Cause(
    fix=(
        "python -m pip install --force-reinstall --no-cache-dir 'PACKAGE'",
        "python -m venv fresh && fresh/bin/pip install 'tensorflow[and-cuda]'  # without other packages",
    ),
    url=INSTALLATION,
    needs_gpu=False,
    last_resort=True,
)
_OF_ANOTHER_RELEASE = ("AttributeError", "ImportError: cannot import name", "ModuleNotFoundError", "SyntaxError")
"""How errors begin of a package that is whole, and too old or too new for Python or for another package."""
_PATH = re.compile(r"'(/[^'\n]{1,300})'")


def find(facts: Facts, failed: Traceback, installed: TensorflowFacts) -> Matches:
    named = next(iter(failed.distributions), "")
    known = next((one for one in installed.requirements if one.name == named and one.version), None)
    own = chosen(installed)
    who = version_of(installed, named) if named else f"{own.name} {own.version}".strip()
    which = f"{known.name}=={known.version}" if known else named or f"{own.name}=={own.version}".removesuffix("==")
    if named and failed.error.startswith(_OF_ANOTHER_RELEASE):
        package = f"pip install --upgrade '{named}'"
    else:
        package = f"pip install --force-reinstall --no-cache-dir '{which}'"
    python = executable(facts)
    seen = [f"import tensorflow raised {failed.error}"]
    seen += [f"it was raised in {failed.where}"] if failed.where else []
    said, advice = _in_the_table(failed.error)
    if named:  # what the table says of packages is for any of them
        advice = tuple(line for line in advice if not line.startswith(("pip install", "python ", "conda ")))
    fresh = "venv fresh && fresh/bin/pip install 'tensorflow[and-cuda]'  # without other packages"
    lines = (*advice, package, f"python -m {fresh}")
    yield Match(
        (*seen, *interpreter(facts)),
        Confidence.LIKELY if failed.where else Confidence.POSSIBLE,
        {"who": who, "error": said or failed.error},
        fix=tuple(re.sub(r"^(?:python -m (?=pip|venv)|(?=pip ))", f"{python} -m ", line) for line in lines),
    )


def _in_the_table(error: str) -> tuple[str, tuple[str, ...]]:
    """Return what the error means by the table of messages, and what to type; "" and nothing if it is not there."""
    event = says_most(recognised(error))
    if event is None:
        return "", ()
    figures = defaultdict(str, event.fields)
    path = _PATH.search(error)
    fix = (line.replace(" FILE", f" {path[1]}") if path else line for line in event.message.fix)
    return event.message.meaning.format_map(figures), tuple(line.format_map(figures) for line in fix)
