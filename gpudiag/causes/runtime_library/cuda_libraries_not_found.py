"""TensorFlow does not find its CUDA libraries where the program ran

TensorFlow opens libraries of exactly the CUDA and cuDNN that it was built for, by the number in their name: a newer
CUDA does not help. If one is missing, it lists no GPU ("Cannot dlopen some GPU libraries", "Could not find cuda drivers
on your machine") and goes on with the CPU.
"""

from __future__ import annotations

import re

from gpudiag.cause import Cause, LogAlone, Match, Matches
from gpudiag.causes.shared.advice import BUILT_FOR, libraries, unfit
from gpudiag.causes.shared.without_gpu import MEANT_FOR_A_GPU, RUNTIME, is_without_gpu
from gpudiag.fix import Action, Kind, Role, check, install, note, prepend, run_container
from gpudiag.knowledge.log_lines import text
from gpudiag.knowledge.message import Event
from gpudiag.knowledge.messages.misleading import NO_CUDA_DRIVERS
from gpudiag.knowledge.messages.owners import OF_OTHER_GPUS
from gpudiag.knowledge.messages.way import (
    LIBRARIES_MISSING,
    LIBRARY_ASKED_FOR,
    LIBRARY_NOT_OPENED,
    LIBRARY_OPENED,
    LIBRARY_QUOTED,
)
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.releases import GENERATIONS
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="TensorFlow does not find its CUDA libraries where the program ran: {names}",
    fix=(install("tensorflow[and-cuda]", note="brings its CUDA libraries"),),
    url=BUILT_FOR,
    needs_gpu=False,
    unless={
        "libcuda_not_found": "without the driver's library no other library helps",
    },
)

_OF_CUDA = re.compile(
    r"(?:lib)?(?:cudart|cublas|cublasLt|cufft|curand|cusolver|cusparse|cudnn)(?:\.so[.\d]*|64_[\w.]+\.dll)$"
)
_BEFORE_11 = re.compile(r"libcu(?!dnn)\w+\.so\.([6-9]\.\d|10\.[0-2])$")
_OF_THE_DRIVER = ("libcuda.so.1", "nvcuda.dll")

_BEHIND = re.compile(r"dlerror: (lib\w{1,40}\.so[.\d]{0,20}): cannot open")
_OF_PACKAGES = {"libnvJitLink": "nvjitlink", "libcublasLt": "cublas", "libcublas": "cublas", "libcusparse": "cusparse"}


_OF_A_TOOLKIT = (
    prepend(
        "LD_LIBRARY_PATH",
        "/usr/local/cuda/lib64",
        "or those of a toolkit, if it is the CUDA that this TensorFlow was built for",
    ),
    check(
        "TF_CPP_VMODULE=dso_loader=1 python -c 'import tensorflow as tf; tf.config.list_physical_devices()'",
        "names them",
    ),
)


def _that_brings(name: str) -> Action:
    """Return how to get a library that one of CUDA's libraries needs itself."""
    stem, _, number = name.partition(".so.")
    if (package := _OF_PACKAGES.get(stem)) and number.partition(".")[0] in ("11", "12"):
        why = f"has {name}; put its folder into LD_LIBRARY_PATH, or take the other CUDA out of it"
        return install(f"nvidia-{package}-cu{number.partition('.')[0]}", note=why)
    return check(f"ldconfig -p | grep {stem}", f"where {name} is: put its folder into LD_LIBRARY_PATH")


def find(program: LogAlone, origin: Origin) -> Matches:
    opened = [event for event in program.all(LIBRARY_NOT_OPENED, LIBRARY_QUOTED) if _OF_CUDA.match(_name(event))]
    names = list(dict.fromkeys(map(_name, opened)))
    # TensorFlow up to 1.15 is linked with them, so that its import fails.
    linked = (
        [] if names else [event for event in program.all(LIBRARY_ASKED_FOR) if _is_linked(event.line, event["library"])]
    )
    names += list(dict.fromkeys(f"{event['library']}.so.{event['version']}" for event in linked))
    says = program.all(LIBRARIES_MISSING, NO_CUDA_DRIVERS)
    if not (names or linked or program.first(LIBRARIES_MISSING)) and is_without_gpu(program, origin):
        return
    is_runtime = all(name.startswith(RUNTIME) for name in names)
    only_the_runtime = not (says or linked) and is_runtime
    if program.first(*OF_OTHER_GPUS) and not linked and is_runtime:
        return
    # Every machine without CUDA says so, and it means nothing there; unless it has a GPU, or was set up for one.
    driver = bool(names) and any(event["library"] in _OF_THE_DRIVER for event in program.all(LIBRARY_OPENED))
    named = [line for _, line in origin.stated.cards]
    meant = driver or named or any(MEANT_FOR_A_GPU.search(event.line) for event in opened)
    if only_the_runtime and not (meant and (names or linked)):
        return
    shown = dict.fromkeys(text(event.line) for event in (*opened, *linked, *says))
    needs = f"{', '.join(names)}" if names else "the log does not say which"
    behind = dict.fromkeys(
        found[1] for event in opened if (found := _BEHIND.search(event.line)) and found[1] not in names
    )
    if behind:
        needs += f", which needs {', '.join(behind)}; that is not found"
    wrong = unfit(origin)
    foreign = _of_no_wheel(names)
    yield Match(
        (*tuple(shown)[:4], *([wrong[0]] if wrong else named[:1])),
        Confidence.PROVED if names and not only_the_runtime else Confidence.LIKELY,
        {"names": f"{needs}; {wrong[1]}" if wrong else needs},
        fix=(*map(_that_brings, behind), *(foreign or libraries(origin)), *(() if names else _OF_A_TOOLKIT)),
    )


def _of_no_wheel(names: list[str]) -> tuple[Action, ...]:
    """Return the fix if a library belongs to a CUDA that no wheel on pypi.org was built for; nothing if one was."""
    for name in names:
        if (found := _BEFORE_11.match(name)) and found[1] not in {generation.cuda for generation in GENERATIONS}:
            return (
                run_container(
                    "--runtime nvidia",
                    note="on a Jetson, in a container: brings the CUDA of the board, "
                    f"{found[1]} with the JetPack that the image is for",
                ),
                note(
                    f"elsewhere: CUDA {found[1]}, on LD_LIBRARY_PATH; no wheel of pypi.org, and a build for that CUDA",
                    kind=Kind.INSTALL,
                ),
                install(
                    "--upgrade",
                    "tensorflow[and-cuda]",
                    note="or one of pypi.org; not on a Jetson",
                    role=Role.ALTERNATIVE,
                ),
            )
    return ()


def _name(not_opened: Event) -> str:
    return not_opened["library"] or not_opened["short"]


def _is_linked(line: str, library: str) -> bool:
    return "ImportError" in line and _OF_CUDA.match(f"{library}.so") is not None
