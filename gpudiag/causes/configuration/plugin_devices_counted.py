"""devices of a plug-in are counted among the visible GPUs, so there are more numbers than GPUs

A package for another maker's device (tensorflow-plugins) registers devices of another kind. With some releases
TensorFlow puts their numbers into the list of visible GPUs, which then names a GPU that is not there.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import Kind, Role, edit, run
from gpudiag.knowledge.messages.placement import INDEX_NOT_VISIBLE
from gpudiag.knowledge.messages.programs_and_drivers import PLUGIN_DEVICE
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.report import Severity

CAUSE = Cause(
    title="devices of a plug-in ({kinds}) are counted among the visible GPUs, so there are more numbers than GPUs",
    severity=Severity.WARNING,
    fix=(
        run("pip uninstall PLUGIN", "name the package that brings {kinds}; or hide its devices", kind=Kind.REMOVE),
        edit(
            "tf.config.set_visible_devices([], '{kind}')", "must come before the first operation", role=Role.ALTERNATIVE
        ),
    ),
    url="https://www.tensorflow.org/install/gpu_plugins",
    needs_gpu=False,
)


def find(program: Program) -> Matches:
    said = program.said(INDEX_NOT_VISIBLE, most=1)
    kinds = list(dict.fromkeys(event["kind"] for event in program.all(PLUGIN_DEVICE)))
    if said and kinds:
        listed = program.said(PLUGIN_DEVICE, most=1)
        yield Match((*said, *listed), Confidence.LIKELY, {"kinds": ", ".join(kinds), "kind": kinds[0]})
