"""TF_ENABLED_DEVICE_TYPES leaves out the GPU

The variable lists the types of devices that TensorFlow makes, separated by commas, in capitals and without blanks:
'CPU,gpu' and 'CPU, GPU' have no GPU. The list of GPUs is empty then, no library of CUDA is opened, and the line
"Device factory 'GPU' disabled" is of a level that most logs do not show. Without CPU no device can be made. Some
programs set it to keep a worker off the GPU.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Listing, Match, Matches, Program, Variables
from gpudiag.causes.shared.gpu_state import NoneListed
from gpudiag.causes.shared.variables import TYPES, Errors
from gpudiag.fix import edit_note, export, unset
from gpudiag.knowledge.log_lines import Log
from gpudiag.knowledge.messages.settings import NO_CPU_FACTORY
from gpudiag.knowledge.messages.way import GPU_TYPE_DISABLED
from gpudiag.model.diagnosis import Stage

CAUSE = Cause(
    title="TF_ENABLED_DEVICE_TYPES {what}",
    fix=(unset(TYPES), export(TYPES, "CPU,GPU", "instead")),
    url="https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/common_runtime/device_factory.cc",
    needs_gpu=False,
)


def find(variables: Variables, errors: Errors, program: Program, listing: Listing, none: NoneListed | None) -> Matches:
    value = variables.get(TYPES, "")
    enabled = value.split(",")  # as TensorFlow does: letter by letter, blanks included
    if value and "GPU" not in enabled and none is not None:
        said = tuple(event.line for event in listing.all(GPU_TYPE_DISABLED))
        what = "has no entry GPU, so TensorFlow looks for none"
        yield _types(value, (f"{TYPES}={value}", *said), what, Stage.DEVICE_FILTER)
    elif broken := next((error for error in errors if value and Log((error.text,)).first(NO_CPU_FACTORY)), None):
        what = "has no entry CPU, without which TensorFlow makes no device at all"
        yield _types(value, (f"{TYPES}={value}", broken.text), what, broken.stage)
    elif said := program.said(GPU_TYPE_DISABLED, most=1):
        yield Match(
            said,
            figures={
                "what": f"of the program that wrote the log has no entry GPU{'' if value else '; it is not set here'}",
            },
            fix=(
                edit_note(f"remove {TYPES} from the program, and from the environment that starts it"),
                CAUSE.fix[1],
            ),
            stage=Stage.CONFIGURATION,
        )


def _types(value: str, seen: tuple[str, ...], what: str, stage: Stage) -> Match:
    return Match(seen, figures={"what": f"is {value!r}: it {what}"}, tried=CAUSE.fix[0], stage=stage)
