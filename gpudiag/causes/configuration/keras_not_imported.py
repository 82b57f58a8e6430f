"""tf.keras cannot be used: the package that it needs cannot be imported

TensorFlow loads Keras when a program first names tf.keras, and not before: GPUs are listed, operations compute on them,
and every program that uses a layer ends with an error. Keras imports its backend, which the variable KERAS_BACKEND or
~/.keras/keras.json chooses; TF_USE_LEGACY_KERAS takes tf_keras, Keras 2, which is another package.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Rows
from gpudiag.fix import Role, ask, check, export, install, unset
from gpudiag.model.facts import EnvironmentFacts, TensorflowFacts

CAUSE = Cause(
    title="tf.keras cannot be used: {package} cannot be imported ({error})",
    fix=(
        install("--force-reinstall", "keras"),
        ask("python -c 'import keras'", "shows the whole error"),
    ),
    url="https://keras.io/getting_started/",
    views=("libraries.mixed_precision.keras_not_imported",),
)
_BACKEND, _LEGACY = "KERAS_BACKEND", "TF_USE_LEGACY_KERAS"


def find(rows: Rows, environment: EnvironmentFacts, tensorflow: TensorflowFacts) -> Matches:
    variables = environment.variables
    for found in rows.found("libraries.mixed_precision", "keras_not_imported"):
        package = str(found.figures["package"])
        backend = environment.keras_backend or variables.get(_BACKEND, "tensorflow")
        source = environment.keras_backend_from or _BACKEND
        release = ".".join(tensorflow.distributions[0].version.split(".")[:2]) if tensorflow.distributions else ""
        if package == "tf_keras":
            lines = (
                install(f"tf-keras~={release}.0") if release else install("tf-keras"),
                unset(_LEGACY, note="Keras 3", role=Role.ALTERNATIVE),
            )
        elif backend != "tensorflow":
            away = unset(_BACKEND) if source == _BACKEND else export(_BACKEND, "tensorflow", f"in place of {source}")
            lines = (
                away,
                install(backend, note="installs the backend that Keras is set to use", role=Role.ALTERNATIVE),
            )
        else:
            lines = (
                install("--force-reinstall", "keras"),
                check("cat ~/.keras/keras.json", "look whether it names another backend"),
            )
        seen = [f"{name}={variables[name]}" for name in (_BACKEND, _LEGACY) if name in variables]
        if source != _BACKEND and backend != "tensorflow":
            seen.append(f"{source} names the backend {backend!r}")
        yield Match(
            evidence=(found.message, *seen),
            figures=found.figures,
            about=tuple(name for name in (_BACKEND, _LEGACY) if name in variables),
            fix=(*lines, ask(f"python -c 'import {package}'", "shows the whole error")),
        )
