"""the program ended at a line that cannot work

The traceback names the line. ``gpudiag lint`` reads it, and says that the line raises this exception wherever it runs:
the TensorFlow that is installed does not have a name that it asks for, or it takes a GPU that the program itself hides.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import check
from gpudiag.knowledge.messages.python_packages import NAME_OF_TENSORFLOW_1
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.program import ProgramTrace, place

CAUSE = Cause(
    title="the program ended at {where}: {what}",
    fix=(check("gpudiag lint PROGRAM", "names the line, and what to write instead"),),
    url="https://www.tensorflow.org/guide/gpu",
    needs_gpu=False,
)


def find(program: ProgramTrace, log: Program) -> Matches:
    if log.first(NAME_OF_TENSORFLOW_1):  # program_for_tensorflow_1 says which name has taken its place
        return
    for failed in program.failed_lines[:1]:
        yield Match(
            evidence=(f"{place(failed.line)}: {failed.text}", program.raised[-1]),
            confidence=Confidence.LIKELY,
            figures={"where": place(failed.line), "what": failed.message},
            fix=failed.fix,
        )
