"""the loaded cuDNN is older than TensorFlow needs

GPUs are listed and matrix products work; the first convolution or recurrent layer fails with "No DNN in stream
executor". LD_LIBRARY_PATH comes before the folders of NVIDIA's packages, so a module, a base image or a toolkit that
sets it supplies its own cuDNN; a framework that is imported before TensorFlow has loaded one already.
"""

from __future__ import annotations

from pathlib import PurePath
from shlex import quote

from gpudiag.cause import Cause, EveryLog, LogAlone, Match, Matches
from gpudiag.causes.shared import advice
from gpudiag.causes.shared.libraries import PATH, is_packaged, taken_away
from gpudiag.fix import Kind, edit_note, install, run, unset
from gpudiag.knowledge.log_lines import text
from gpudiag.knowledge.messages.code import CUDNN_OLDER
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.releases import numbers
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts
from gpudiag.probes.common import CUDNN_NEEDED
from gpudiag.probes.host.libraries import CUDNN, cudnn_too_old, requirement

CAUSE = Cause(
    title="cuDNN {found} is loaded {where} and TensorFlow needs {needed}",
    fix=(unset("LD_LIBRARY_PATH"), install("{requirement}", note="at least")),
    url="https://www.tensorflow.org/install/source#gpu",
    finding="host.libraries.cudnn_too_old",
    views=("discovery.physical_devices.cudnn_too_old",),
)


def find(facts: Facts, log: EveryLog, alone: LogAlone | None, origin: Origin) -> Matches:
    cudnn = cudnn_too_old(facts)
    told = log.first(CUDNN_OLDER)
    if cudnn is None and told is None:
        return
    shown = [] if told is None else [f"TensorFlow's log: {told.text}"]
    loaded, needs = (_dotted(told["found"]), _dotted(told["needed"])) if told else ("", CUDNN_NEEDED)
    least = f"{needs} or a later one of the same major version"
    exact = numbers(loaded) > numbers(needs)  # up to 7.0 the minor version had to be the same
    if exact:
        least = f"one of {'.'.join(needs.split('.')[:2])}, not a later one"
    figures = {"needed": least, "requirement": quote(requirement(facts, CUDNN))}
    if told is not None and alone is not None:
        yield Match(
            (text(told.line),),
            Confidence.PROVED,
            {**figures, "found": loaded, "where": "where the program ran,"},
            fix=(*advice.cudnn(origin, needs, exact), advice.built_with_cudnn(loaded, needs)),
        )
        return
    if cudnn is None:
        assert told is not None
        shown.append("what the loader finds here is new enough: the program had loaded another one before TensorFlow")
        where = "from elsewhere, most often with a framework that was imported before TensorFlow,"
        first = edit_note("import tensorflow before the other framework, or give each its own virtual environment")
        yield Match(
            tuple(shown), Confidence.LIKELY, {**figures, "found": loaded, "where": where}, fix=(first, CAUSE.fix[1])
        )
        return
    shown.append(f"{cudnn.soname}: {cudnn.path} (from {cudnn.source}) is {cudnn.version}")
    newer = next((copy for copy in cudnn.copies if is_packaged(copy)), None)
    folder = str(PurePath(cudnn.path or "").parent)
    first = run(f"pip install {figures['requirement']}", kind=Kind.INSTALL)
    if cudnn.source == PATH:
        shown += [f"{newer.path}{f' of {newer.owner}' if newer.owner else ''} comes after it"] if newer else []
        first = taken_away(facts, [folder], [str(PurePath(newer.path).parent)] if newer else [])
    where = f"from {folder}{f', by {PATH},' if cudnn.source == PATH else ''}"
    yield Match(
        tuple(shown),
        figures={**figures, "found": cudnn.version, "where": where},
        about=(cudnn.soname, folder),
        tried=first,
        fix=(first, CAUSE.fix[1]),
    )


def _dotted(version: str) -> str:
    """Return a version as cuDNN counts it (up to 8: 7605 is 7.6.5), which TensorFlow printed up to 1.4, with dots."""
    if not version.isdigit():
        return version
    return ".".join(str(int(version) // of % most) for of, most in ((1000, 100), (100, 10), (1, 100)))
