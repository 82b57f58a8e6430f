"""Keras computes with another backend: its models use nothing of TensorFlow's devices and settings

KERAS_BACKEND, or ~/.keras/keras.json, chooses what Keras 3 computes with. With another backend tf.config, tf.device and
TensorFlow's variables of the environment change nothing for a model, and its operations are not in this report. Whether
such a model uses a GPU depends on how that backend was installed.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches
from gpudiag.fix import Role, export, install
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Distribution, EnvironmentFacts, TensorflowFacts
from gpudiag.model.program import ProgramTrace
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="Keras computes with {backend}{device}: its models use nothing of TensorFlow's devices and settings",
    severity=Severity.NOTE,
    fix=(
        export("KERAS_BACKEND", "tensorflow"),
        install("jax[cuda12]", note="if Keras has to compute with JAX", role=Role.ALTERNATIVE),
    ),
    url="https://keras.io/getting_started/#configuring-your-backend",
    needs_gpu=False,
)
_OTHER_BACKENDS = ("jax", "torch", "numpy", "openvino")
"""The back ends of Keras besides TensorFlow (keras/src/backend/__init__.py of 3.15.1)."""


def find(
    program: ProgramTrace | None, environment: EnvironmentFacts | None, tensorflow: TensorflowFacts | None
) -> Matches:
    for process in program.processes if program else ():
        if process.keras_backend:
            device = f" on {process.keras_device}" if process.keras_device else ""
            jax_on_cpu = (process.keras_backend, process.keras_device) == ("jax", "cpu")
            source = process.keras_backend_from
            named = (f"{source} names {process.keras_backend!r}",) if source else ()
            yield Match(
                evidence=(f"process {process.pid}: keras.config.backend() is {process.keras_backend!r}", *named),
                figures={"backend": process.keras_backend, "device": device},
                fix=CAUSE.fix if jax_on_cpu else CAUSE.fix[:1],
            )
            return
    backend = environment.keras_backend if environment else ""
    if program is not None or environment is None or tensorflow is None or backend not in _OTHER_BACKENDS:
        return  # with a name that Keras does not know nothing computes: it cannot be imported
    if any(package.name == "keras" and package.version.startswith("2.") for package in tensorflow.companions):
        return  # Keras 2 reads no such setting
    device, why = _installed_for(backend, tensorflow.frameworks)
    yield Match(
        evidence=(f"{environment.keras_backend_from} names {backend!r}", *why),
        confidence=Confidence.LIKELY,
        figures={"backend": backend, "device": device},
        fix=CAUSE.fix if (backend, device) == ("jax", " on cpu") else CAUSE.fix[:1],
        about=(environment.keras_backend_from,),
    )


def _installed_for(backend: str, packages: tuple[Distribution, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the device that the installed backend computes on, and the evidence; "" if that is not known."""
    own = next((package for package in packages if package.name == backend), None)
    if backend == "numpy":
        return " on cpu", ()
    if backend not in ("jax", "torch"):
        return "", ()
    if own is None:
        return "", (f"{backend} is not installed: import keras raises ModuleNotFoundError",)
    seen = f"{backend} {own.version} is installed"
    if backend == "torch":
        return (" on cpu" if own.version.endswith("+cpu") else ""), (seen,)
    plugin = next((package for package in packages if package.name.startswith("jax-cuda")), None)
    if plugin is None:
        return " on cpu", (seen, "no package jax-cuda12-plugin or the like is installed: JAX has no CUDA")
    return "", (seen, f"{plugin.name} {plugin.version} is installed")
