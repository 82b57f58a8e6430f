"""Shared by causes: why a program has no GPU, judged by the release, system, GPU and packages where it ran."""

from __future__ import annotations

from dataclasses import dataclass

from gpudiag.causes.shared.advice import libraries, unfit
from gpudiag.fix import Action, Kind, Role, ask, check, export, install, note, nvidia_smi, run, run_container
from gpudiag.knowledge.log_lines import Log
from gpudiag.knowledge.messages.placement import NEEDS_GPU
from gpudiag.knowledge.messages.programs_and_drivers import BUILT_WITH_CUDA, BUILT_WITHOUT_CUDA, SMI_TABLE
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.releases import (
    LAST_FOR_WINDOWS,
    ONE_PACKAGE,
    generation,
    last_for,
    numbers,
    oldest_capability,
)
from gpudiag.model.diagnosis import Confidence


@dataclass(frozen=True)
class Why:
    text: str
    fix: tuple[Action, ...]
    confidence: Confidence = Confidence.LIKELY


_ASK = ask("python -c 'import tensorflow as tf; print(tf.__version__, tf.test.is_built_with_cuda())'")
_DECIDES = check(
    'TF_CPP_VMODULE=dso_loader=1 python -c "import tensorflow as tf; print(tf.__version__, '
    "tf.test.is_built_with_cuda(), tf.config.list_physical_devices('GPU'))\"",
    "False: the build; else it names the libraries that it does not find",
)
_SEE = nvidia_smi("must list the GPU, in the same container")
WINDOWS = Why(
    "TensorFlow 2.11 and newer has no GPU support on Windows",
    (
        run("wsl --install", "then TensorFlow in WSL 2: pip install 'tensorflow[and-cuda]'", kind=Kind.INSTALL),
        run(
            "conda install -c conda-forge cudatoolkit=11.2 cudnn=8.1.0; pip install 'tensorflow<2.11'",
            kind=Kind.INSTALL,
            role=Role.ALTERNATIVE,
        ),
    ),
)


def of_xla_alone(origin: Origin) -> Why:
    return Why(
        "it knows the GPU (XLA_GPU), and did not find all of its CUDA libraries",
        (*libraries(origin), note("the lines at the start of the log name the library: Could not load dynamic ...")),
    )


def without_gpu(program: Log, origin: Origin) -> Why:
    """Return the most likely reason why no GPU is listed, if no line of the log names one."""
    oldest, newest = origin.releases
    packages = origin.stated.packages
    if origin.windows and oldest > LAST_FOR_WINDOWS:
        return WINDOWS
    if any("XLA_GPU" in line or "/xla_gpu:" in line for line in program.lines):
        return of_xla_alone(origin)
    if too_old := _of_an_old_card(origin):
        return too_old
    if program.first(NEEDS_GPU) and any("<no registered kernels>" in line for line in program.lines):
        return Why(
            "it is a build without GPU support, which does not have that operation at all",
            (_other_build(origin), *libraries(origin)),
        )
    if any("SystemError: GPU device not found" in line for line in program.lines):  # the test of Colab's notebooks
        return _in_colab(has_gpu=program.first(SMI_TABLE) is not None)
    gpu_package = "tensorflow-gpu" in packages or any("tensorflow-gpu" in line for line in program.lines)
    if newest < ONE_PACKAGE and not gpu_package:
        return Why(
            "most likely it is a build without GPU support, installed beside or in place of tensorflow-gpu",
            (
                run(
                    "pip uninstall tensorflow tensorflow-gpu; pip install tensorflow-gpu",
                    "of the same release; in conda: conda install tensorflow-gpu",
                    kind=Kind.REMOVE,
                ),
                _ASK,
            ),
        )
    text, fix = _likeliest(program, origin)
    return Why(text, (*fix, _DECIDES), Confidence.POSSIBLE)


def _in_colab(*, has_gpu: bool) -> Why:
    other = "another TensorFlow was installed there, which does not find its CUDA"
    anew = note(
        "Runtime, Disconnect and delete runtime: a new machine, without what pip installed; its "
        "TensorFlow "
        "fits its CUDA"
    )
    kind = note("Colab: Runtime, Change runtime type, GPU, Save")
    return Why(
        f"in Colab, {other}" if has_gpu else f"in Colab, the notebook runs on a machine without GPU, or {other}",
        (*((anew, kind) if has_gpu else (kind, anew)), run("!nvidia-smi", "must list the GPU"), _ASK),
    )


def _of_an_old_card(origin: Origin) -> Why | None:
    """Return the reason that the only named GPU is too old for the release, if it is."""
    cards = origin.stated.cards
    if not cards or origin.named is None or origin.jetson:
        return None
    card, last = cards[0][0], last_for(cards[0][0].capability)
    if numbers(card.capability) >= numbers(oldest_capability(origin.named)):
        return None
    instead = (
        install(f"tensorflow=={last}.*", note=f"the last whose wheels run on it, with CUDA {generation(last).cuda}")
        if last
        else export("CUDA_VISIBLE_DEVICES", "-1", "the CPU: no release runs on it")
    )
    return Why(
        f"{card.name} has compute capability {card.capability}, and its wheels run on "
        f"{oldest_capability(origin.named)} and newer",
        (instead, note("or a build of TensorFlow for that capability")),
    )


def _likeliest(program: Log, origin: Origin) -> tuple[str, tuple[Action, ...]]:
    """Return the causes of an empty list whose reason the log does not show, the likeliest first, with the fix."""
    bring = libraries(origin)
    if origin.stated.is_cpu_build:
        return "it is a build without GPU support, as the list of packages shows", (_other_build(origin), *bring)
    if wrong := unfit(origin):
        return f"it does not find its CUDA libraries, most likely: {wrong[1]}", (*bring, _SEE)
    if origin.windows and _is_fit(origin):
        return (
            "the CUDA that is stated is the right one, so its folder bin, or cuDNN's, is not on the PATH of this "
            "program, or the driver is not ready",
            (
                note(
                    "sign out and in again, or restart: a program that was started before sees neither a new PATH "
                    "nor a new driver"
                ),
                check("where cudart64_*.dll cudnn64_*.dll", "must find them in the folders of that CUDA and cuDNN"),
                _SEE,
            ),
        )
    smi = program.first(SMI_TABLE) is not None
    if program.first(BUILT_WITHOUT_CUDA):
        return "it is a build without GPU support", (_other_build(origin), *bring)
    if origin.jetson:
        return "on a Jetson the wheels of PyPI have no GPU support", bring
    if origin.mac:
        return "there, it uses Apple's GPU with tensorflow-metal alone, which is not installed or does not fit", bring
    if origin.container and not smi:
        return (
            "most likely the container was given no GPU; else its CUDA libraries are not found, or it is a build "
            "without GPU support",
            (
                run_container("--gpus all", note="with the NVIDIA container toolkit on the host"),
                _SEE,
                *bring,
            ),
        )
    if origin.conda and not smi and not program.first(BUILT_WITH_CUDA):
        return (
            "it does not find its CUDA libraries, or it is conda's build without GPU support; the third possibility is "
            "the driver",
            (*bring, _other_build(origin), _SEE),
        )
    if smi:
        return "the driver works; it does not find its CUDA libraries, or it is a build without GPU support", (
            *bring,
            _other_build(origin),
        )
    if program.first(BUILT_WITH_CUDA):
        return "it does not find its CUDA libraries; else the driver, or a mask (CUDA_VISIBLE_DEVICES)", (*bring, _SEE)
    return (
        "it does not find its CUDA libraries, most likely; else there is no driver that it can use, or it is a build "
        "without GPU support",
        (*bring, _SEE),
    )


def _is_fit(origin: Origin) -> bool:
    """Return whether the stated CUDA is the one that the release was built for."""
    has = origin.stated.cuda
    return has is not None and origin.is_one and numbers(has.value)[:2] == numbers(origin.generation.cuda)[:2]


def _other_build(origin: Origin) -> Action:
    if origin.releases[1] < ONE_PACKAGE and origin.conda and origin.stated.is_cpu_build:
        exact = f"={origin.named}" if origin.named else ""
        return run(
            f"conda create -n tf-gpu tensorflow-gpu{exact}",
            "a new environment: conda's build with CUDA, and its CUDA",
            kind=Kind.NEW_ENVIRONMENT,
        )
    if origin.releases[1] < ONE_PACKAGE:
        return run(
            "pip uninstall -y tensorflow tensorflow-gpu; pip install tensorflow-gpu",
            "of the same release",
            kind=Kind.REMOVE,
        )
    if origin.conda:
        return run(
            "conda install -c conda-forge 'tensorflow=*=cuda*'",
            "conda's build with CUDA, in place of the other",
            kind=Kind.INSTALL,
        )
    return run(
        "pip uninstall -y tensorflow tensorflow-cpu; pip install 'tensorflow[and-cuda]'",
        "a build with CUDA",
        kind=Kind.REMOVE,
    )
