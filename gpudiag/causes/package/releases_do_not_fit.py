"""{what}

Python's own words at the end of a traceback: a module or a name that is not there. Who asked for it is in the frames
above: a package that was written for another release of the one it imports, or the program. What is not there at all
was not installed for this Python. For names of TensorFlow 1, files of a program that hide a package, numpy and protobuf
there are other causes, which say more.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.fix import Action, Kind, Role, check, edit, export, install, note, run, unset
from gpudiag.knowledge.log import recognised
from gpudiag.knowledge.log_lines import text
from gpudiag.knowledge.message import Event, Worth
from gpudiag.knowledge.messages.code import MODULE_LACKS, NOT_TENSORFLOW
from gpudiag.knowledge.messages.python_packages import (
    MODULE_NOT_THERE,
    NAME_NOT_THERE,
    NAME_OF_ANOTHER_FILE,
    PARTIAL_MODULE,
    SYMBOL_NOT_THERE,
)
from gpudiag.knowledge.names import NOT_OF_PIP, Moved, distribution_of, moved
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.releases import Version
from gpudiag.knowledge.requirements import companion, has_companion
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    fix=(
        run("python -m pip install PACKAGE", kind=Kind.INSTALL),
        check("python -c 'import sys; print(sys.executable)'"),
        check("python -m pip check"),
    ),
    url="https://packaging.python.org/en/latest/tutorials/installing-packages/",
    needs_gpu=False,
    symptom=True,
)

_OURS = (NAME_NOT_THERE, MODULE_NOT_THERE, SYMBOL_NOT_THERE)
_GENERAL = (*_OURS, MODULE_LACKS, NOT_TENSORFLOW, NAME_OF_ANOTHER_FILE, PARTIAL_MODULE)
_INSTALLED = re.compile(r"(?:site|dist)-packages[\\/](?P<package>\w{1,100})(?:[\\/.]|$)")
_DOTTED = re.compile(r"\b([A-Za-z_][\w.]{0,100})\.([A-Za-z_]\w{0,100})")
_PASSED_ON = {"tensorflow_hub.tf_v1": "tensorflow", "tensorflow_hub.tf_utils.tf": "tensorflow"}
"""Modules of packages that are another's: what they lack, that lacks."""
_BY_FRAMEWORK = ("generic_utils", "get_file", "get_custom_objects")
"""What packages that work with Keras and with tf.keras ask keras.utils for."""
_FIRST_WITHOUT_ESTIMATOR = Version(2, 16)
_ALIASES = {"tf": "tensorflow", "np": "numpy", "sp": "scipy", "pd": "pandas", "plt": "matplotlib.pyplot"}
_KERAS_3 = re.compile(r"\b_tf_keras\b|\bkeras[./\\]src\b|\bKeras 3\b|\bkeras[= ]{1,2}3\.")
_LAST_WITH_KERAS_2 = Version(2, 15)
_PRIVATE = ("python", "core", "compiler", "tools")
_LOWER_CASE = ("tensorflow", "keras", "numpy")
_NAMESPACES = {
    "6google8protobuf": "protobuf",
    "3c10": "torch",
    "5torch": "torch",
    "2cv": "opencv-python",
    "2H5": "h5py",
}
"""How names of C++ begin, to the distribution whose library has them."""
_MANGLED = re.compile(r"_ZN?K?S?t?(?P<of>6google8protobuf|3c10|5torch|2cv|2H5)")
_OF_STD = re.compile(r"_ZN?K?St\d")
_FRAME = re.compile(r'(?:File "?|^)(?P<file>[^"]{0,400}\.py)\b')
_KERAS_3_ALONE = ("keras.src.legacy", "keras.ops", "keras.random", "keras.KerasTensor", "keras.src.ops", "keras.export")
_KERAS_UP_TO_2_3 = ("keras.legacy", "keras.backend.tensorflow_backend", "keras.engine.topology", "keras.objectives")


_IN_EVERY_KERAS = tuple(
    f"keras.{one}" for one in ("models", "layers", "optimizers", "callbacks", "datasets", "losses", "backend")
)


def find(program: LogAlone, origin: Origin) -> Matches:
    shown: tuple[int, str, _Explained] | None = None
    for number, line in enumerate(program.lines):
        events = recognised(line)
        found = next((event for event in events if event.message in _OURS), None)
        faults = {one.message for one in events if one.message.worth is Worth.FAULT and not one.message.follows}
        if found is None or (shown and not _was_caught(program.lines[shown[0] : number])):
            continue
        asker = _asker(program.lines[:number], found)
        told: _Explained | None
        if (special := _of_two_homes(*_of(program, number, found), asker, origin)) is not None:
            told = special
        elif (known := _known(program, number, found)) is not None:
            told = _of_moved(_wanted(program, number, found), known, asker, _is_shown(program.lines[:number]))
        elif not faults <= set(_GENERAL) and not has_companion(asker):  # another cause knows that line, and says more
            continue
        elif found.message is SYMBOL_NOT_THERE:
            told = _of_a_symbol(found)
        else:
            told = _told(program, number, found, asker, origin)
        if told is not None:
            shown = number, text(line), told
    if shown is not None:
        _, said, told = shown
        yield Match((said,), Confidence.LIKELY, {"what": told.what}, fix=told.fix)


def _was_caught(between: tuple[str, ...]) -> bool:
    """Return whether the error that the first of these lines says was handled: what ended the program came then."""
    return any("During handling of the above exception" in line for line in between) and not any(
        "was the direct cause of the following" in line for line in between
    )


def _of(program: LogAlone, number: int, found: Event) -> tuple[str, str]:
    """Return the module and the name in it that are asked for."""
    name = found["name"] or found["attribute"] or found["lacked"]
    module = found["module"] or found["of"] or _imported_from(program.lines[:number], name)
    return _PASSED_ON.get(module, module), name


def _wanted(program: LogAlone, number: int, found: Event) -> str:
    module, name = _of(program, number, found)
    if not module:
        module = next((one for one in _called(program, number, name) if moved(one, name)), "")
    return f"{name} of {module}" if name else module


def _called(program: LogAlone, number: int, name: str) -> tuple[str, ...]:
    """Return the modules that a name may be of: that of the statement above which uses it, and TensorFlow."""
    for line in reversed(program.lines[max(number - 12, 0) : number]):
        for module, asked in _DOTTED.findall(line):
            if asked == name:
                top, dot, rest = module.partition(".")
                return (f"{_ALIASES.get(top, top)}{dot}{rest}", "tensorflow")
    return ("tensorflow",)


def _known(program: LogAlone, number: int, found: Event) -> Moved | None:
    module, name = _of(program, number, found)
    if not module and found["lacked"]:  # Python 2 does not name the module
        return next((known for one in _called(program, number, name) if (known := moved(one, name))), None)
    return moved(module, name) if module else None


def _of_moved(wanted: str, known: Moved, asker: str, is_shown: bool) -> _Explained:
    """Return the cause and the fix for a name of which it is known which releases have it."""
    who = asker or "the program"
    distribution = "Python" if known.distribution == "python" else known.distribution
    if known.went:
        what = f"{who} asks for {wanted}, which {distribution} does not have from {known.went} on"
    else:
        what = f"{who} asks for {wanted}, which {distribution} has from {known.came} on: the installed one is older"
    newer = (
        run(f"python -m pip install --upgrade {asker}", "a release of it that does without", kind=Kind.INSTALL)
        if asker
        else None
    )
    if asker and not known.went:
        newer = run(
            f"pip install '{asker}==VERSION'",
            f"or an older release of it, for the {distribution} that is installed",
            kind=Kind.INSTALL,
            role=Role.ALTERNATIVE,
        )
    change = (
        note(f"in the program, write {known.instead}", kind=Kind.EDIT_PROGRAM) if known.instead and not asker else None
    )
    if distribution == "Python":
        major, _, minor = (known.went or known.came).partition(".")
        python = f"{major}.{int(minor) - 1}" if known.went else known.came
        bring = run(
            f"conda create -n tf python={python}; conda activate tf",
            "a Python that has it; and install there",
            kind=Kind.INSTALL,
        )
        change = change or (
            run(f"python -m pip install --upgrade {asker}", "a release for this Python", kind=Kind.INSTALL)
            if asker
            else None
        )
        return _explained(what, change, bring)
    upgrade = "--upgrade " if known.came else ""
    bring = run(
        f"python -m pip install {upgrade}'{distribution}{known.range}'",
        "has it; a notebook: restart the kernel",
        kind=Kind.INSTALL,
    )
    return _explained(
        what,
        *((change, bring) if change and is_shown else (bring, change, newer)),
        check("python -m pip check", "what does not fit"),
    )


def _is_shown(before: tuple[str, ...]) -> bool:
    """Return whether the lines show the place that asked."""
    return any(_FRAME.search(line) for line in before)


_MOST_ACTIONS = 3


class _Explained(NamedTuple):
    what: str
    fix: tuple[Action, ...]


def _explained(what: str, *fix: Action | None) -> _Explained:
    return _Explained(what, tuple(action for action in fix if action is not None)[:_MOST_ACTIONS])


def _told(program: LogAlone, number: int, found: Event, asker: str, origin: Origin) -> _Explained | None:
    """Return the cause and the lines of its fix."""
    module, name = _of(program, number, found)
    top = module.partition(".")[0]
    distribution = distribution_of(top)
    who = asker or "the program"
    if not module:
        return _of_unnamed_module(name, asker) if asker else None
    if (module == "tensorflow" and name in _PRIVATE) or ".compat.v1.compat" in module:
        return _explained(
            f"{who} uses a part of TensorFlow that is not meant for programs, or what tensorflow.compat.v1 is already: "
            f"this TensorFlow has no {module}.{name}",
            run(
                f"python -m pip install --upgrade {asker or 'PACKAGE'}",
                "a release of it that fits this TensorFlow",
                kind=Kind.INSTALL,
            ),
            note(
                "in a program: import tensorflow as tf, without compat.v1 in front, where the code says "
                "tf.compat.v1; "
                "from tensorflow.python... import ... in place of tf.python",
                kind=Kind.EDIT_PROGRAM,
            ),
            run("pip install 'tensorflow==X.Y'", "or the release that the program was written for", kind=Kind.INSTALL),
        )
    if found.message is MODULE_NOT_THERE and "is not a package" in found.line:
        return _explained(
            f"a file {top}.py, of your own most likely, is imported in place of the package {distribution}",
            check(
                f"python -c 'import {top}; print({top}.__file__)'", "in the same folder: rename the file that it prints"
            ),
            run(f"rm -rf __pycache__/{top}.*", "beside it", kind=Kind.REMOVE),
            run(
                f"python -m pip install --upgrade {distribution}",
                "if it prints a file of site-packages",
                kind=Kind.INSTALL,
            ),
        )
    if found.message is MODULE_NOT_THERE and top != top.lower() and top.lower() in _LOWER_CASE:
        return _explained(
            f"the module is called {top.lower()}, in lower case",
            edit(f"import {top.lower()}", f"in the program, in place of {top}"),
            run(f"python -m pip install {top.lower()}", "if that is not installed", kind=Kind.INSTALL),
        )
    if found.message is MODULE_NOT_THERE and module in _IN_EVERY_KERAS:
        return _explained(
            f"{top} is not installed for the Python that runs the program: every release of it has {module}",
            run(
                "python -m pip install tensorflow",
                "brings Keras; for a program of 2019 or older: 'keras<2.4' 'tensorflow<2.2', with Python 3.7",
                kind=Kind.INSTALL,
            ),
            check("python -c 'import sys; print(sys.executable)'", "is it the Python that it was installed for"),
            note(f"a file {top}.py or a folder {top} of your own hides it: rename that"),
        )
    if top in ("keras", "tf_keras") or module.startswith(("tensorflow.keras", "tensorflow._api.v2.keras")):
        return _of_keras(program, f"{name} of {module}" if name else module, asker, origin)
    if found.message is MODULE_NOT_THERE and (lines := NOT_OF_PIP.get(module) or NOT_OF_PIP.get(top)):
        return _explained(f"{module} is not on Python's path: no distribution of pip brings it", *lines)
    if found.message is MODULE_NOT_THERE and "." not in module.removeprefix("google."):
        return _explained(
            f"the package {distribution} is not installed for the Python that runs the program",
            run(f"python -m pip install --upgrade {distribution}", kind=Kind.INSTALL),
            run(
                f"python -m pip install --upgrade --force-reinstall {asker}",
                "with all that it needs",
                kind=Kind.INSTALL,
                role=Role.ALTERNATIVE,
            )
            if asker
            else None,
            check(
                "python -c 'import sys; print(sys.executable)'", "is it the Python that the package was installed for"
            ),
        )
    own = found.message is MODULE_NOT_THERE and asker in ("", "tensorflow")
    if distribution == "tensorflow" and (own or (asker == "tensorflow" and module.startswith("tensorflow.python"))):
        return _explained(
            "the installation of TensorFlow is not whole, or parts of two releases are mixed: it has no "
            f"{f'{name} of {module}' if name else module}",
            run(
                "python -m pip uninstall -y tensorflow tensorflow-gpu tensorflow-cpu tensorflow-intel keras",
                kind=Kind.REMOVE,
            ),
            run(
                "python -m pip install --no-cache-dir tensorflow",
                "then; a fresh environment is surest: python -m venv tf",
                kind=Kind.INSTALL,
            ),
            note(
                "and delete the folders tensorflow and tensorflow_core that are left in site-packages", kind=Kind.REMOVE
            ),
        )
    time = f"of the time of {asker}" if asker else "that the program's documentation names, or of its time"
    newer = run(
        f"pip install '{distribution}==VERSION'",
        f"if it is too new already, a release {time}",
        kind=Kind.INSTALL,
        role=Role.ALTERNATIVE,
    )
    also = f" {asker}" if asker and asker != distribution else ""
    wanted = f"{name} of {module}" if name else module
    bring = run(
        f"python -m pip install --upgrade {distribution}{also}", "releases that fit each other", kind=Kind.INSTALL
    )
    if has_companion(asker) and (fits := companion(asker, origin.releases[1])) and origin.releases[0] > Version(2, 1):
        bring = run(
            f"pip install '{asker}=={fits}' 'tensorflow=={origin.releases[1]}.*'",
            "made for each other",
            kind=Kind.INSTALL,
        )
    if not asker and distribution != "tensorflow":  # programs are seldom newer than what pip brings them
        bring, newer = newer.replaced(note=f"a release {time}"), bring.replaced(note=f"{bring.note}; or newer")
    return _explained(
        f"{who} asks for {wanted}, which the installed {distribution} does not have: "
        "they are of releases that do not fit each other",
        bring,
        newer,
        check("python -m pip check", "must say that nothing is broken"),
    )


def _of_two_homes(module: str, name: str, asker: str, origin: Origin) -> _Explained | None:
    """Return the cause and the fix for a name that is in one of two packages, by the release."""
    if (module, name) == ("tensorflow", "estimator"):
        older = run(
            "pip uninstall -y tensorflow-estimator; pip install --force-reinstall 'tensorflow<2.16'",
            "brings the one that fits",
            kind=Kind.REMOVE,
        )
        newer = run(
            f"python -m pip install --upgrade {asker or 'PACKAGE'}",
            "a release that does without, for TensorFlow 2.16 and newer",
            kind=Kind.INSTALL,
        )
        lines = (newer, older) if origin.releases[0] >= _FIRST_WITHOUT_ESTIMATOR else (older, newer)
        return _explained(
            f"{asker or 'the program'} asks for tf.estimator: TensorFlow has it up to 2.15, from the package "
            "tensorflow-estimator, which must be of the same release",
            *lines,
            check("pip list | grep -i -e tensorflow -e estimator", "one TensorFlow, and the estimator of its number"),
        )
    if module.startswith("keras.utils") and name in _BY_FRAMEWORK:
        return _explained(
            f"{asker or 'the program, or a package that it uses,'} asks for {name} of {module}, as Keras had it up to "
            "2.3: it is to take the Keras that is in TensorFlow",
            export(
                "SM_FRAMEWORK",
                "tf.keras",
                "segmentation-models, classification-models, efficientnet; before Python starts",
            ),
            edit("from tensorflow.keras import ...", "other programs: in place of: from keras import ..."),
            install("keras<2.4", "tensorflow<2.3", note="or the old pair, on Python up to 3.7"),
        )
    return None


def _of_unnamed_module(name: str, asker: str) -> _Explained:
    return _explained(
        f"{asker} asks another package for {name}, which the installed release of that does not have",
        run(f"python -m pip install --upgrade {asker}", "a release that fits what is installed", kind=Kind.INSTALL),
        note("or an older release of the package that it asks: the line above the error names it", kind=Kind.INSTALL),
        check("python -m pip check", "must say that nothing is broken"),
    )


def _of_keras(program: LogAlone, wanted: str, asker: str, origin: Origin) -> _Explained:
    is_3 = any(map(_KERAS_3.search, program.lines)) or origin.releases[0] > _LAST_WITH_KERAS_2
    upgrade = run(
        f"python -m pip install --upgrade tensorflow{f' {asker}' if asker else ''}",
        "releases that fit each other",
        kind=Kind.INSTALL,
    )
    older = install("tensorflow<2.16", "keras<3", note="the last with Keras 2, on Python up to 3.11")
    legacy = run(
        "pip install tf_keras; export TF_USE_LEGACY_KERAS=1",
        "or Keras 2 in a newer TensorFlow, before Python starts",
        kind=Kind.INSTALL,
        role=Role.ALTERNATIVE,
    )
    own = edit(
        "from tensorflow.keras import ...", "not from keras or tensorflow.python.keras; and: import tensorflow as tf"
    )
    asked = wanted.rpartition(" of ")[2]
    if asked.startswith(_KERAS_3_ALONE):
        who = asker or "the program"
        return _explained(
            f"{who} is written for Keras 3: it asks for {wanted}, and the Keras that is installed is of release 2",
            install("--upgrade", "tensorflow>=2.16", "keras", note="TensorFlow has Keras 3 from 2.16 on"),
            run(
                f"pip install '{asker or 'PACKAGE'}==VERSION'",
                "or a release of it for Keras 2, with the TensorFlow that is installed",
                kind=Kind.INSTALL,
            ),
        )
    if asked.startswith(_KERAS_UP_TO_2_3):
        return _explained(
            f"{asker or 'the program'} is written for Keras up to 2.3: it asks for {wanted}, which later releases of "
            "Keras do not have",
            install("--upgrade", "PACKAGE", note="a release of what asks for it that is made for tensorflow.keras"),
            run(
                "conda create -n old python=3.7; conda activate old; pip install keras==2.3.1 'tensorflow<2.2'",
                "or the old pair, in its own environment",
                kind=Kind.INSTALL,
            ),
        )
    if is_3:
        fix: tuple[Action, ...] = (older, legacy, upgrade)
    elif not asker:
        fix = (
            own,
            older,
            run("pip install 'keras==VERSION'", "or the one that the program's documentation names", kind=Kind.INSTALL),
        )
    elif origin.releases[1] < _LAST_WITH_KERAS_2:
        fix = (
            upgrade,
            run(f"pip install '{asker}==VERSION'", "or an older one", kind=Kind.INSTALL, role=Role.ALTERNATIVE),
        )
    else:
        fix = (older, legacy, upgrade)
    why = (
        "Keras 3 is installed, which has moved or removed it" if is_3 else "it was moved, removed, or is not there yet"
    )
    who = asker or "the program"
    return _explained(f"{who} is written for another release of Keras: it asks for {wanted}; {why}", *fix)


def _of_a_symbol(found: Event) -> _Explained | None:
    mangled = found["symbol"]
    if _OF_STD.match(mangled):
        return _explained(
            f"a library asks for {mangled}, which the libstdc++ that is loaded does not have: it is older than the "
            "compiler that built the library",
            run(
                "conda install -c conda-forge libstdcxx-ng",
                "a newer libstdc++, in an environment of conda",
                kind=Kind.INSTALL,
            ),
            unset("LD_LIBRARY_PATH", "LD_PRELOAD", note="if an old one comes first by it"),
            note(
                "or build the library again with the compiler that is installed: pip install --no-cache-dir "
                "--force-reinstall --no-binary :all: PACKAGE"
            ),
        )
    if (mark := _MANGLED.match(mangled)) is None:
        return None
    distribution = _NAMESPACES[mark["of"]]
    return _explained(
        f"a library asks for {mangled}, which is of another release of {distribution} than the one that is loaded",
        run(
            f"python -m pip install --force-reinstall --no-cache-dir tensorflow {distribution}",
            "releases that fit",
            kind=Kind.INSTALL,
        ),
        check(
            f"python -m pip list | grep -i {distribution}; ldconfig -p | grep {distribution}", "another may come first"
        ),
        note("in the program, import tensorflow before what else uses it", kind=Kind.EDIT_PROGRAM),
    )


def _asker(before: tuple[str, ...], found: Event) -> str:
    """Return the distribution whose code asked, from the last frame above the error; "" for the user's program."""
    module = found["module"] or found["of"]
    module = _PASSED_ON.get(module, module)
    for line in reversed(before):
        if (frame := _FRAME.search(line)) is None:
            continue
        inside = _INSTALLED.findall(frame["file"])
        top = inside[-1] if inside else ""
        if top and top != module.partition(".")[0]:
            return distribution_of(top)
        if not top:
            return ""
    return ""


def _imported_from(before: tuple[str, ...], name: str) -> str:
    """Return the module of the statement that asked for ``name``; Python up to 3.6 leaves it out of its error."""
    for line in reversed(before):
        if (found := re.search(r"\bfrom ([A-Za-z_][\w.]{0,200}) import\b", line)) and name in re.split(r"\W", line):
            return found[1]
    return ""
