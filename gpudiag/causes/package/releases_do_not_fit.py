"""the program or a package needs a module of another release, or one that is not installed

The last line of the traceback names a module or a name that was not found. The frames above show who asked for it: the
program, or a package that was written for another release of the one it imports. A module that does not exist at all
was not installed for this Python. For names of TensorFlow 1, files of a program that hide a package, numpy and protobuf
there are other, more specific causes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.causes.shared.asked_name import MissingName
from gpudiag.fix import (
    Action,
    Kind,
    Role,
    ask,
    check,
    conda_environment,
    edit,
    edit_note,
    export,
    install,
    note,
    run,
    unset,
)
from gpudiag.knowledge.frames import is_installed
from gpudiag.knowledge.log import recognised
from gpudiag.knowledge.log_lines import text
from gpudiag.knowledge.message import Worth
from gpudiag.knowledge.messages.code import MODULE_LACKS, NOT_TENSORFLOW
from gpudiag.knowledge.messages.frameworks import JAX_WITHOUT_CUDA
from gpudiag.knowledge.messages.python_packages import (
    MODULE_NOT_THERE,
    NAME_NOT_THERE,
    NAME_OF_ANOTHER_FILE,
    PARTIAL_MODULE,
    SYMBOL_NOT_THERE,
)
from gpudiag.knowledge.names import NOT_OF_PIP
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.releases import Version
from gpudiag.knowledge.requirements import companion, has_companion
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="{what}",
    fix=(
        install("PACKAGE", python="python"),
        ask("python -c 'import sys; print(sys.executable)'"),
        ask("python -m pip check"),
    ),
    url="https://packaging.python.org/en/latest/tutorials/installing-packages/",
    needs_gpu=False,
    symptom=True,
)

_OURS = (NAME_NOT_THERE, MODULE_NOT_THERE, SYMBOL_NOT_THERE)
_GENERAL = (*_OURS, MODULE_LACKS, NOT_TENSORFLOW, NAME_OF_ANOTHER_FILE, PARTIAL_MODULE)
_BY_FRAMEWORK = ("generic_utils", "get_file", "get_custom_objects")
"""Names that packages for both Keras and tf.keras import from keras.utils."""
_FIRST_WITHOUT_ESTIMATOR = Version(2, 16)
_KERAS_3 = re.compile(r"\b_tf_keras\b|\bkeras[./\\]src\b|\bKeras 3\b|\bkeras[= ]{1,2}3\.")
_LAST_WITH_KERAS_2 = Version(2, 15)
_KERAS = ("tensorflow.keras", "tensorflow._api.v2.keras")
_PRIVATE = ("python", "core", "compiler", "tools")
_PRIVATE_MODULES = tuple(f"tensorflow.{part}." for part in _PRIVATE)
_OWN_KERAS = "tensorflow.python.keras."
_LOWER_CASE = ("tensorflow", "keras", "numpy")
_NAMESPACES = {
    "6google8protobuf": "protobuf",
    "3c10": "torch",
    "5torch": "torch",
    "2cv": "opencv-python",
    "2H5": "h5py",
}
"""The beginnings of C++ names, each with the distribution whose library defines them."""
_MANGLED = re.compile(r"_ZN?K?S?t?(?P<of>6google8protobuf|3c10|5torch|2cv|2H5)")
_OF_STD = re.compile(r"_ZN?K?St\d")
_KERAS_3_ALONE = ("keras.src.legacy", "keras.ops", "keras.random", "keras.KerasTensor", "keras.src.ops", "keras.export")
_KERAS_UP_TO_2_3 = ("keras.legacy", "keras.backend.tensorflow_backend", "keras.engine.topology", "keras.objectives")


_IN_EVERY_KERAS = tuple(
    f"keras.{backend}" for backend in ("models", "layers", "optimizers", "callbacks", "datasets", "losses", "backend")
)


class Explained(NamedTuple):
    """The fault, and its fix."""

    what: str
    fix: tuple[Action, ...]


def find(program: LogAlone, origin: Origin) -> Matches:
    shown: tuple[int, str, Explained] | None = None
    for number, line in enumerate(program.lines):
        events = recognised(line)
        event = next((event for event in events if event.message in _OURS), None)
        if any(event.message is JAX_WITHOUT_CUDA for event in events):  # a name that only the build with CUDA has
            continue
        own = [event["file"] for event in events if event.message is NAME_OF_ANOTHER_FILE]
        if own and not any(map(is_installed, own)):
            continue
        if event is None or (shown and not _was_caught(program.lines[shown[0] : number])):
            continue
        faults = {event.message for event in events if event.message.worth is Worth.FAULT and not event.message.symptom}
        asked = MissingName(event, program.lines[:number], program, origin, not faults <= set(_GENERAL))
        if (explained := next(case.explain(asked) for case in CASES if case.applies(asked))) is not None:
            shown = number, text(line), explained
    if shown is not None:
        _, evidence, (what, fix) = shown
        yield Match((evidence,), Confidence.LIKELY, {"what": what}, fix=fix)


def _was_caught(between: tuple[str, ...]) -> bool:
    """Return whether the program handled the error in the first of these lines, and ended by a later one."""
    return any("During handling of the above exception" in line for line in between) and not any(
        "was the direct cause of the following" in line for line in between
    )


def _upgrade(*packages: str, note: str = "") -> Action:
    return install("--upgrade", *packages, note=note, python="python")


def _explain_moved_name(asked: MissingName) -> Explained:
    """Explain a missing name if it is known which releases have it."""
    known, asker, who, wanted = asked.moved, asked.asker, asked.who, asked.wanted_anywhere
    assert known is not None
    distribution = "Python" if known.distribution == "python" else known.distribution
    if known.went:
        what = f"{who} asks for {wanted}, which {distribution} does not have from {known.went} on"
    else:
        what = f"{who} asks for {wanted}, which {distribution} has from {known.came} on: the installed one is older"
    newer = _upgrade(asker, note="a release of it that does without") if asker else None
    if asker and not known.went:
        newer = install(
            f"{asker}==VERSION",
            note=f"or an older release of it, for the {distribution} that is installed",
            role=Role.ALTERNATIVE,
        )
    change = edit_note(f"in the program, write {known.instead}") if known.instead and not asker else None
    if distribution == "Python":
        major, _, minor = (known.went or known.came).partition(".")
        python = f"{major}.{int(minor) - 1}" if known.went else known.came
        bring = run(
            f"conda create -n tf python={python}; conda activate tf",
            "a Python that has it; and install there",
            kind=Kind.NEW_ENVIRONMENT,
        )
        change = change or (_upgrade(asker, note="a release for this Python") if asker else None)
        return _explained(what, change, bring)
    bring = install(
        *(("--upgrade",) if known.came else ()),
        f"{distribution}{known.range}",
        note="this release has it; in a notebook, restart the kernel afterwards",
        python="python",
    )
    return _explained(
        what,
        *((change, bring) if change and asked.is_shown else (bring, change, newer)),
        ask("python -m pip check", "what does not fit"),
    )


_MOST_ACTIONS = 3


def _explained(what: str, *fix: Action | None) -> Explained:
    return Explained(what, tuple(action for action in fix if action is not None)[:_MOST_ACTIONS])


def _explain_unnamed_module(asked: MissingName) -> Explained | None:
    """Explain a missing name if no line names its module."""
    if not asked.asker:
        return None
    return _explained(
        f"{asked.asker} asks another package for {asked.name}, which the installed release of that does not have",
        _upgrade(asked.asker, note="a release that fits what is installed"),
        note("or an older release of the package that it asks: the line above the error names it", kind=Kind.INSTALL),
        ask("python -m pip check", "must report no broken requirements"),
    )


def _explain_private_part(asked: MissingName) -> Explained:
    """Explain a missing internal part of TensorFlow, which is not meant for programs."""
    return _explained(
        f"{asked.who} uses a part of TensorFlow that is not meant for programs, or what tensorflow.compat.v1 is "
        f"already: this TensorFlow has no {asked.module}.{asked.name}",
        _upgrade(asked.asker or "PACKAGE", note="a release of it that fits this TensorFlow"),
        edit_note(
            "in a program: import tensorflow as tf, without compat.v1 in front, where the code says "
            "tf.compat.v1; "
            "from tensorflow.python... import ... in place of tf.python"
        ),
        install("tensorflow==X.Y", note="or the release that the program was written for"),
    )


def _explain_no_module(asked: MissingName) -> Explained:
    """Explain a module of TensorFlow that is none: a name, a private one, or one of other releases."""
    if asked.module.startswith(_PRIVATE_MODULES):
        public = asked.module.replace(".python.keras", ".keras", 1)
        return _explained(
            f"{asked.who} imports {asked.module}, a private part of TensorFlow that the installed one does not have",
            _upgrade(asked.asker, note="a release of it that fits this TensorFlow") if asked.asker else None,
            edit(f"from {public} import ...", f"in the program, in place of {asked.module}")
            if public != asked.module
            else None,
            install("tensorflow==X.Y", note="or the release that the program was written for"),
        )
    return _explained(
        f"the program imports {asked.module}, which is no module of the TensorFlow that is installed",
        edit(
            f"import tensorflow as tf; tf{asked.module.removeprefix('tensorflow')}",
            "in place of the import: much of TensorFlow is a name, and no module",
        ),
        install("tensorflow==X.Y", note="or the release that the program was written for"),
    )


def _explain_own_file(asked: MissingName) -> Explained:
    """Explain a name that is missing because a file of the program has the name of a package."""
    top, distribution = asked.top, asked.distribution
    return _explained(
        f"a file {top}.py, of your own most likely, is imported in place of the package {distribution}",
        ask(f"python -c 'import {top}; print({top}.__file__)'", "in the same folder: rename the file that it prints"),
        run(f"rm -rf __pycache__/{top}.*", "beside it", kind=Kind.REMOVE),
        _upgrade(distribution, note="if it prints a file of site-packages"),
    )


def _explain_upper_case(asked: MissingName) -> Explained:
    """Explain a missing package whose name is written in lower case."""
    lower = asked.top.lower()
    return _explained(
        f"the module is called {lower}, in lower case",
        edit(f"import {lower}", f"in the program, in place of {asked.top}"),
        install(lower, note="if that is not installed", python="python"),
    )


def _explain_no_keras(asked: MissingName) -> Explained:
    """Explain a missing module that every Keras has: Keras is not installed."""
    top = asked.top
    return _explained(
        f"{top} is not installed for the Python that runs the program: every release of it has {asked.module}",
        install(
            "tensorflow",
            note="brings Keras; for a program of 2019 or older: 'keras<2.4' 'tensorflow<2.2', with Python 3.7",
            python="python",
        ),
        ask("python -c 'import sys; print(sys.executable)'", "is it the Python that it was installed for"),
        note(f"a file {top}.py or a folder {top} of your own hides it: rename that"),
    )


def _explain_not_of_pip(asked: MissingName) -> Explained:
    """Explain a missing module that no distribution of pip provides."""
    lines = NOT_OF_PIP.get(asked.module) or NOT_OF_PIP[asked.top]
    return _explained(f"{asked.module} is not on Python's path: no distribution of pip brings it", *lines)


def _explain_not_installed(asked: MissingName) -> Explained:
    """Explain a package that is not installed."""
    return _explained(
        f"the package {asked.distribution} is not installed for the Python that runs the program",
        _upgrade(asked.distribution),
        install(
            "--upgrade",
            "--force-reinstall",
            asked.asker,
            note="with all that it needs",
            role=Role.ALTERNATIVE,
            python="python",
        )
        if asked.asker
        else None,
        ask("python -c 'import sys; print(sys.executable)'", "is it the Python that the package was installed for"),
    )


def _explain_incomplete_tensorflow(asked: MissingName) -> Explained:
    """Explain a missing part of TensorFlow that every release has."""
    return _explained(
        f"the installation of TensorFlow is not whole, or parts of two releases are mixed: it has no {asked.wanted}",
        run(
            "python -m pip uninstall -y tensorflow tensorflow-gpu tensorflow-cpu tensorflow-intel keras",
            kind=Kind.REMOVE,
        ),
        install(
            "--no-cache-dir",
            "tensorflow",
            note="then; a fresh environment is surest: python -m venv tf",
            python="python",
        ),
        note("and delete the folders tensorflow and tensorflow_core that are left in site-packages", kind=Kind.REMOVE),
    )


def _explain_another_release(asked: MissingName) -> Explained:
    """Explain a name that the installed release of a package does not have."""
    asker, distribution, releases = asked.asker, asked.distribution, asked.origin.releases
    time = f"of the time of {asker}" if asker else "that the program's documentation names, or of its time"
    newer = install(
        f"{distribution}==VERSION", note=f"if it is too new already, a release {time}", role=Role.ALTERNATIVE
    )
    bring = _upgrade(*dict.fromkeys(filter(None, (distribution, asker))), note="releases that fit each other")
    if has_companion(asker) and (fits := companion(asker, releases[1])) and releases[0] > Version(2, 1):
        bring = install(f"{asker}=={fits}", f"tensorflow=={releases[1]}.*", note="made for each other")
    if not asker and distribution != "tensorflow":  # programs are seldom newer than what pip brings them
        bring, newer = newer.replaced(note=f"a release {time}"), bring.replaced(note=f"{bring.note}; or newer")
    return _explained(
        f"{asked.who} asks for {asked.wanted}, which the installed {distribution} does not have: "
        "they are of releases that do not fit each other",
        bring,
        newer,
        ask("python -m pip check", "must report no broken requirements"),
    )


def _explain_estimator(asked: MissingName) -> Explained:
    """Explain tf.estimator, which is in a package of its own."""
    older = run(
        "pip uninstall -y tensorflow-estimator; pip install --force-reinstall 'tensorflow<2.16'",
        "brings the one that fits",
        kind=Kind.REMOVE,
    )
    newer = _upgrade(asked.asker or "PACKAGE", note="a release that does without, for TensorFlow 2.16 and newer")
    is_without = asked.origin.releases[0] >= _FIRST_WITHOUT_ESTIMATOR
    return _explained(
        f"{asked.who} asks for tf.estimator: TensorFlow has it up to 2.15, from the package "
        "tensorflow-estimator, which must be of the same release",
        *((newer, older) if is_without else (older, newer)),
        check("pip list | grep -i -e tensorflow -e estimator", "one TensorFlow, and the estimator of its number"),
    )


def _explain_framework(asked: MissingName) -> Explained:
    """Explain a missing name that packages for either Keras import from keras.utils."""
    return _explained(
        f"{asked.asker or 'the program, or a package that it uses,'} asks for {asked.wanted}, as Keras had it up to "
        "2.3: it is to take the Keras that is in TensorFlow",
        export(
            "SM_FRAMEWORK",
            "tf.keras",
            "segmentation-models, classification-models, efficientnet; before Python starts",
        ),
        edit("from tensorflow.keras import ...", "other programs: in place of: from keras import ..."),
        install("keras<2.4", "tensorflow<2.3", note="or the old pair, on Python up to 3.7"),
    )


def _explain_old_or_new_keras(asked: MissingName) -> Explained | None:
    """Explain a name that only Keras 3, or only Keras up to 2.3, has; None for other parts of Keras."""
    asker, wanted = asked.asker, asked.wanted
    module = wanted.rpartition(" of ")[2]
    if module.startswith(_KERAS_3_ALONE):
        return _explained(
            f"{asked.who} is written for Keras 3: it asks for {wanted}, and the Keras that is installed is of "
            "release 2",
            install("--upgrade", "tensorflow>=2.16", "keras", note="TensorFlow has Keras 3 from 2.16 on"),
            run(
                f"pip install '{asker or 'PACKAGE'}==VERSION'",
                "or a release of it for Keras 2, with the TensorFlow that is installed",
                kind=Kind.INSTALL,
            ),
        )
    if module.startswith(_KERAS_UP_TO_2_3):
        return _explained(
            f"{asked.who} is written for Keras up to 2.3: it asks for {wanted}, which later releases of "
            "Keras do not have",
            install("--upgrade", "PACKAGE", note="a release of what asks for it that is made for tensorflow.keras"),
            conda_environment(
                "keras==2.3.1",
                "tensorflow<2.2",
                note="or the old pair, in its own environment",
                python="3.7",
                name="old",
            ),
        )
    return None


def _explain_keras(asked: MissingName) -> Explained:
    """Explain a missing part of Keras that another release has."""
    if (explained := _explain_old_or_new_keras(asked)) is not None:
        return explained
    asker, wanted, origin = asked.asker, asked.wanted, asked.origin
    is_3 = any(map(_KERAS_3.search, asked.program.lines)) or origin.releases[0] > _LAST_WITH_KERAS_2
    upgrade = _upgrade(*filter(None, ("tensorflow", asker)), note="releases that fit each other")
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
    if is_3:
        fix: tuple[Action, ...] = (older, legacy, upgrade)
    elif not asker:
        fix = (
            own,
            older,
            install("keras==VERSION", note="or the one that the program's documentation names"),
        )
    elif origin.releases[1] < _LAST_WITH_KERAS_2:
        fix = (
            upgrade,
            install(f"{asker}==VERSION", note="or an older one", role=Role.ALTERNATIVE),
        )
    else:
        fix = (older, legacy, upgrade)
    why = (
        "Keras 3 is installed, which has moved or removed it" if is_3 else "it was moved, removed, or is not there yet"
    )
    return _explained(f"{asked.who} is written for another release of Keras: it asks for {wanted}; {why}", *fix)


def _explain_symbol(asked: MissingName) -> Explained | None:
    """Explain a C++ name that a library needs but does not find."""
    mangled = asked.event["symbol"]
    if _OF_STD.match(mangled):
        return _explained(
            f"a library asks for {mangled}, which the libstdc++ that is loaded does not have: it is older than the "
            "compiler that built the library",
            run(
                "conda install -c conda-forge libstdcxx-ng",
                "a newer libstdc++, in an environment of conda",
                kind=Kind.INSTALL,
            ),
            unset("LD_LIBRARY_PATH", "LD_PRELOAD", note="if it puts an old one first"),
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
        install(
            "--force-reinstall", "--no-cache-dir", "tensorflow", distribution, note="releases that fit", python="python"
        ),
        check(
            f"python -m pip list | grep -i {distribution}; ldconfig -p | grep {distribution}", "another may come first"
        ),
        edit_note("in the program, import tensorflow before what else uses it"),
    )


class Case(NamedTuple):
    """A possible fault, with its explanation."""

    applies: Callable[[MissingName], bool]
    explain: Callable[[MissingName], Explained | None]
    """Returns the explanation, or None if there is none."""
    logs: tuple[str, ...]
    """Logs of ``tests/logs`` with this case; without one it is known from an example in ``tests/examples``."""


CASES = (
    Case(
        lambda asked: (asked.module, asked.name) == ("tensorflow", "estimator"),
        _explain_estimator,
        ("hub-no-estimator", "tf-no-estimator"),
    ),
    Case(
        lambda asked: asked.module.startswith("keras.utils") and asked.name in _BY_FRAMEWORK,
        _explain_framework,
        ("sm-get-file",),
    ),
    Case(
        lambda asked: asked.moved is not None,
        _explain_moved_name,
        ("imagematting-config", "no-imp-python-313", "tfp-collections-sequence"),
    ),
    Case(
        lambda asked: asked.is_known_otherwise and not has_companion(asked.asker),
        lambda _: None,
        ("addons-undefined-symbol", "contrib-kgnn", "horovod-status-symbol"),
    ),
    Case(
        lambda asked: asked.event.message is SYMBOL_NOT_THERE,
        _explain_symbol,
        ("horovod-thread-symbol", "protobuf-undefined-symbol-114"),
    ),
    Case(lambda asked: not asked.module, _explain_unnamed_module, ()),
    Case(
        lambda asked: (asked.module == "tensorflow" and asked.name in _PRIVATE) or ".compat.v1.compat" in asked.module,
        _explain_private_part,
        ("tensorflow-python-ranger",),
    ),
    Case(
        lambda asked: asked.lacks_module and "is not a package" in asked.event.line,
        _explain_own_file,
        ("autokeras-not-a-package",),
    ),
    Case(
        lambda asked: asked.lacks_module and asked.top != asked.top.lower() and asked.top.lower() in _LOWER_CASE,
        _explain_upper_case,
        ("capital-tensorflow",),
    ),
    Case(lambda asked: asked.lacks_module and asked.module in _IN_EVERY_KERAS, _explain_no_keras, ()),
    Case(
        lambda asked: asked.module.startswith(_KERAS) or asked.top in ("keras", "tf_keras"),
        _explain_keras,
        ("keras-legacy", "keras-src-legacy", "keras3-breaks-tfp"),
    ),
    Case(
        lambda asked: asked.lacks_module and bool(NOT_OF_PIP.get(asked.module) or NOT_OF_PIP.get(asked.top)),
        _explain_not_of_pip,
        (),
    ),
    Case(
        lambda asked: asked.lacks_module and "." not in asked.module.removeprefix("google."),
        _explain_not_installed,
        ("protobuf-not-there-071", "simple-serving-module"),
    ),
    Case(
        lambda asked: (
            asked.distribution == "tensorflow"
            and asked.lacks_module
            and (asked.is_asked_by_program or (asked.module.startswith(_OWN_KERAS) and asked.asker != "tensorflow"))
        ),
        _explain_no_module,
        (),
    ),
    Case(
        lambda asked: (
            asked.distribution == "tensorflow"
            and (
                (asked.lacks_module and asked.asker in ("", "tensorflow"))
                or (asked.asker == "tensorflow" and asked.module.startswith("tensorflow.python"))
            )
        ),
        _explain_incomplete_tensorflow,
        ("colab-keras-export",),
    ),
    Case(lambda _: True, _explain_another_release, ("autokeras-tuner", "fasterrcnn-pil", "models-backuphandler")),
)
"""The cases; the first that applies is used: known names come first, the general case last."""
