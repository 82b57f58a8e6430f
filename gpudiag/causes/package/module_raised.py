"""{who} raised an error while TensorFlow imported it: {error}

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
from gpudiag.fix import Action, Kind, fill_in, run
from gpudiag.knowledge.log import recognised
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts, TensorflowFacts

CAUSE = Cause(
    fix=(
        run("python -m pip install --force-reinstall --no-cache-dir 'PACKAGE'", kind=Kind.INSTALL),
        run(
            "python -m venv fresh && fresh/bin/pip install 'tensorflow[and-cuda]'",
            "without other packages",
            kind=Kind.INSTALL,
        ),
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
        package = run(f"{python} -m pip install --upgrade '{named}'", kind=Kind.INSTALL)
    else:
        package = run(f"{python} -m pip install --force-reinstall --no-cache-dir '{which}'", kind=Kind.INSTALL)
    seen = [f"import tensorflow raised {failed.error}"]
    seen += [f"it was raised in {failed.where}"] if failed.where else []
    said, advice = _in_the_table(failed.error)
    if named:  # what the table says of packages is for any of them
        advice = tuple(action for action in advice if not _installs_by_pip(action))
    fresh = run(
        f"{python} -m venv fresh && fresh/bin/pip install 'tensorflow[and-cuda]'",
        "without other packages",
        kind=Kind.INSTALL,
    )
    yield Match(
        (*seen, *interpreter(facts)),
        Confidence.LIKELY if failed.where else Confidence.POSSIBLE,
        {"who": who, "error": said or failed.error},
        fix=(*(_run_by(python, action) for action in advice), package, fresh),
    )


def _installs_by_pip(action: Action) -> bool:
    return action.kind is Kind.INSTALL and action.command.startswith("pip ")


def _run_by(python: str, action: Action) -> Action:
    """Return the action that uses this interpreter's pip."""
    if not action.command.startswith("pip "):
        return action
    return action.replaced(command=f"{python} -m {action.command}")


def _in_the_table(error: str) -> tuple[str, tuple[Action, ...]]:
    """Return the meaning of the error in the table of messages, and the fix; "" and no fix if it is not there."""
    event = says_most(recognised(error))
    if event is None:
        return "", ()
    figures = defaultdict(str, event.fields)
    path = _PATH.search(error)
    fix = (fill_in(action, figures) for action in event.message.fix)
    if path:
        fix = (action.replaced(command=action.command.replace(" FILE", f" {path[1]}")) for action in fix)
    return event.message.meaning.format_map(figures), tuple(fix)
