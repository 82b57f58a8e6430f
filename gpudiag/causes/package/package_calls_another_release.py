"""{what}

The last frame of the traceback is of a package that pip installed: not of the program, and not of what the package
called. A name that is not there and an argument that nobody expects are what a package meets that was written for
another release of one that it calls.
"""

from __future__ import annotations

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.knowledge.log import recognised
from gpudiag.knowledge.message import Worth
from gpudiag.knowledge.names import ARGUMENTS, Moved, distribution_of
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.requirements import companion, newest_pair
from gpudiag.knowledge.tracebacks import Refused, last_raised, refused_argument
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    fix=(
        "python -m pip install --upgrade PACKAGE  # a release of it that fits what is installed",
        "pip install 'OTHER==VERSION'  # or, of what it calls, a release of its time",
        "python -m pip check  # must say that nothing is broken",
    ),
    url="https://packaging.python.org/en/latest/tutorials/installing-packages/",
    needs_gpu=False,
    general=True,
    symptom=True,
)
_CALLED_BY_PROGRAMS = ("tensorflow", "keras", "tf_keras", "numpy", "pandas", "sklearn", "matplotlib")
_MEASURED = (
    "google",
    "tensorflow",
    "keras",
    "numpy",
    "pandas",
    "matplotlib",
    "scipy",
    "sklearn",
    "h5py",
    "tensorboard",
)
"""Packages that programs call with arguments that come and go; others are called in a wrong way as often."""
_OF_A_RELEASE = (
    "has no attribute",
    "unexpected keyword argument",
    "cannot import name",
    "required positional argument",
    "positional arguments but",
    "positional argument but",
    "got multiple values for argument",
    "is not callable",
    "object is not subscriptable",
    "No module named",
)


def find(program: LogAlone, origin: Origin) -> Matches:
    raised = last_raised(program.lines)
    if (refused := refused_argument(program.lines)) is not None and (raised is None or refused.error == raised.error):
        if refused.argument in ARGUMENTS:
            yield _of_an_argument(refused.error, ARGUMENTS[refused.argument])
            return
        package = raised.package if raised is not None else ""
        if refused.called in _MEASURED and not any(map(_is_known, program.lines)):
            yield _of_a_call(refused, distribution_of(package), origin)
            return
    if raised is not None and raised.package and raised.error.startswith("SyntaxError"):
        yield _of_python(distribution_of(raised.package), raised.error, origin)
        return
    if raised is None or not raised.package or not any(words in raised.error for words in _OF_A_RELEASE):
        return
    if any(_is_known(line) for line in program.lines):
        return
    if raised.package in _CALLED_BY_PROGRAMS and raised.by_program:  # most often it is called in a wrong way
        return
    package = distribution_of(raised.package)
    fits = companion(package, origin.releases[1]) if origin.releases[0] == origin.releases[1] else ""
    if fits:
        bring = f"pip install '{package}=={fits}'  # the release of it for TensorFlow {origin.releases[1]}"
    elif pair := newest_pair(package):
        bring = f"pip install '{package}=={pair[0]}' 'tensorflow=={pair[1]}.*'  # made for each other"
    else:
        bring = f"python -m pip install --upgrade {package}  # a release of it that fits what is installed"
    yield Match(
        (raised.error,),
        Confidence.POSSIBLE,
        {"what": f"{package} fails in its own code: {raised.error}"},
        fix=(bring, f"pip install 'OTHER==VERSION'  # or, of what it calls, a release of the time of {package}", ...),
    )


def _of_python(package: str, error: str, origin: Origin) -> Match:
    python = f" ({origin.python})" if origin.python else ""
    return Match(
        (error,),
        Confidence.LIKELY,
        {"what": f"{package} is written for a newer Python than the one that runs it{python}"},
        fix=(
            f"python3 -m pip install {package}; python3 ...  # and run the program with Python 3",
            f"conda create -n tf python=3.11; conda activate tf; pip install {package}  # or a newer one",
            ...,
        ),
    )


def _of_a_call(refused: Refused, caller: str, origin: Origin) -> Match:
    """Return the match for a call if it is not known which releases take it: most often the called one is older."""
    who = caller or "the program"
    called = distribution_of(refused.called) if refused.called in _MEASURED else ""
    release = f" ({origin.named})" if called == "tensorflow" and origin.named is not None else ""
    of = f"the installed {called}{release}" if called else "the package that has it"
    name = f"{refused.function} " if refused.function not in ("", "__init__") else ""
    return Match(
        (refused.error,),
        Confidence.POSSIBLE,
        {
            "what": f"{who} and {of} are of releases that do not fit each other: it passes {name}the argument "
            f"{refused.argument}, which {of} does not know; it is older than that, most often"
        },
        fix=(
            f"python -m pip install --upgrade {called or 'PACKAGE'}  # "
            + ("" if called else "the package of the last frame of the traceback; ")
            + "a newer one has it, most often",
            f"pip install '{caller}==VERSION'  # or an older one, of the time of {called or 'what it calls'}"
            if caller
            else "# or the program as it was for that release: the tag or branch of its repository; or "
            f"{called or 'PACKAGE'}==VERSION of its documentation, if the argument was dropped",
            ...,
        ),
    )


def _of_an_argument(error: str, known: Moved) -> Match:
    which = f"from {known.came} on" if known.came else f"before {known.went} alone"
    return Match(
        (error,),
        Confidence.LIKELY,
        {
            "what": f"the program is written for another release of {known.distribution}, which knows the argument "
            f"{which}: {error}"
        },
        fix=(
            f"python -m pip install --upgrade '{known.distribution}{known.range}'  # has it",
            "# or an older program: of the time of the installed release" if known.came else "",
            ...,
        ),
    )


def _is_known(line: str) -> bool:
    return any(one.message.worth is Worth.FAULT for one in recognised(line) if one.message.name not in _OF_ANY_NAME)


_OF_ANY_NAME = ("name_not_there", "module_not_there", "module_lacks")
