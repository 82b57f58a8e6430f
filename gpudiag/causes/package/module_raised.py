"""a module raised an error while TensorFlow imported it

The traceback says which module of which package could not be imported. The meaning of the error is given if its words
are in the table of messages: not every such error is the package's fault. Otherwise install that package again, or use
an environment with nothing but TensorFlow in it: this shows whether the package is damaged or does not fit.
"""

from __future__ import annotations

import re
from collections import defaultdict

from gpudiag.cause import Cause, Match, Matches
from gpudiag.causes.shared.advice import says_most
from gpudiag.causes.shared.imports import Traceback, executable, interpreter, version_of
from gpudiag.causes.shared.packages import INSTALLATION, chosen
from gpudiag.fix import Action, Kind, fill_in, install, new_environment
from gpudiag.knowledge.log import recognised
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts, TensorflowFacts

CAUSE = Cause(
    title="{who} raised an error while TensorFlow imported it: {error}",
    fix=(
        install("--force-reinstall", "--no-cache-dir", "PACKAGE", python="python"),
        new_environment("tensorflow[and-cuda]", note="without other packages"),
    ),
    url=INSTALLATION,
    needs_gpu=False,
    last_resort=True,
)
_OF_ANOTHER_RELEASE = ("AttributeError", "ImportError: cannot import name", "ModuleNotFoundError", "SyntaxError")
"""The beginnings of errors of an intact package that is too old or too new for Python or for another package."""
_PATH = re.compile(r"'(/[^'\n]{1,300})'")


def find(facts: Facts, failed: Traceback, installed: TensorflowFacts) -> Matches:
    named = next(iter(failed.distributions), "")
    known = next(
        (requirement for requirement in installed.requirements if requirement.name == named and requirement.version),
        None,
    )
    own = chosen(installed)
    who = version_of(installed, named) if named else f"{own.name} {own.version}".strip()
    which = f"{known.name}=={known.version}" if known else named or f"{own.name}=={own.version}".removesuffix("==")
    python = executable(facts)
    if named and failed.error.startswith(_OF_ANOTHER_RELEASE):
        package = install("--upgrade", named, python=python)
    else:
        package = install("--force-reinstall", "--no-cache-dir", which, python=python)
    seen = [f"import tensorflow raised {failed.error}"]
    seen += [f"it was raised in {failed.where}"] if failed.where else []
    said, advice = _in_the_table(failed.error)
    if named:  # what the table says of packages is for any of them
        advice = tuple(action for action in advice if not action.pip)
    fresh = new_environment("tensorflow[and-cuda]", note="without other packages", python=python)
    yield Match(
        (*seen, *interpreter(facts)),
        Confidence.LIKELY if failed.where else Confidence.POSSIBLE,
        {"who": who, "error": said or failed.error},
        fix=(*(_run_by(python, action) for action in advice), package, fresh),
    )


def _run_by(python: str, action: Action) -> Action:
    """Return the action that uses this interpreter's pip."""
    is_install = action.pip and action.kind is Kind.INSTALL
    return install(*action.pip, note=action.note, role=action.role, python=python) if is_install else action


def _in_the_table(error: str) -> tuple[str, tuple[Action, ...]]:
    """Return the meaning of the error in the table of messages, and the fix; "" and no fix if it is not there."""
    event = says_most(recognised(error))
    if event is None:
        return "", ()
    path = _PATH.search(error)
    figures = defaultdict(str, event.fields, file=path[1] if path else "FILE")
    return event.message.meaning.format_map(figures), tuple(fill_in(action, figures) for action in event.message.fix)
