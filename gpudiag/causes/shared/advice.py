"""Shared by causes: advice that helps with the release of TensorFlow, and the system, that wrote a log."""

from __future__ import annotations

from collections.abc import Iterable

from gpudiag.fix import (
    Action,
    Kind,
    Role,
    ask,
    check,
    conda_environment,
    distinct,
    export,
    install,
    new_environment,
    note,
    run,
    run_container,
)
from gpudiag.knowledge.fault import Stage
from gpudiag.knowledge.message import Event, Worth
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.releases import (
    COMPILED_WITH,
    DRIVERS,
    FIRST_WITH_EXTRA,
    LAST_FOR_WINDOWS,
    NEW_IN,
    ONE_PACKAGE,
    PTX_DRIVERS,
    Version,
    numbers,
)

BUILT_FOR = "https://www.tensorflow.org/install/source#gpu"
PIP = "https://www.tensorflow.org/install/pip"

_NO_GPU_ON_WINDOWS = note("TensorFlow 2.11 and newer has no GPU support on Windows: use WSL 2, or TensorFlow 2.10 with")
_JETSON = note(
    "Jetson: NVIDIA's own wheel for its JetPack, or its image nvcr.io/nvidia/l4t-tensorflow; those "
    "of PyPI have no "
    "GPU "
    "there: https://docs.nvidia.com/deeplearning/frameworks/install-tf-jetson-platform/"
)
_OF_CONDA = {
    "6": "6.0",
    "7": "7.6",
    "7.4": "7.6",
    "7.6": "7.6",
    "8.0": "8.0",
    "8.1": "8.1.0",
    "8.6": "8.8",
    "8.7": "8.8",
    "8.9": "8.9",
}
"""For each cuDNN that a release was built for, a compatible one that conda-forge has beside the release's CUDA."""
FIRST_OF_ONE_NUMBER, LAST_OF_ONE_NUMBER = Version(2, 6), Version(2, 15)
"""The first and last release of TensorFlow whose Keras has the same version number."""
_OF_COLAB = note("Colab: Runtime, Change runtime type, GPU, Save; then run every cell again")
_GIVES_A_GPU = (Kind.START_CONTAINER, Kind.CHANGE_DRIVER, Kind.RELOAD_DRIVER)
OF_TEGRA = check(
    "free -m; sudo tegrastats",
    "CPU and GPU of a Jetson share this memory: end the desktop (sudo systemctl isolate "
    "multi-user.target) and other programs, add swap",
)
_EXTRA = "tensorflow[and-cuda]"
_NVCC = "nvidia-cuda-nvcc-cu12"
_BLACKWELL = 10
"""The major compute capability of Blackwell; later generations have higher ones."""
_SEVERAL = 4
"""More generations than these are too many to name one by one."""


def built_for(origin: Origin) -> str:
    """Return text such as ``CUDA 11.2 with cuDNN 8.1``, for the newest generation that may have written the log."""
    return f"CUDA {origin.generation.cuda} with cuDNN {origin.generation.cudnn}"


def unfit(origin: Origin) -> tuple[str, str] | None:
    """Return a line that states a CUDA or cuDNN which this TensorFlow does not use, and why; None if none does.

    Up to CUDA 10 the libraries have the minor number in their names, too.
    """
    made = origin.generation
    for name, is_stated, needs in (("CUDA", origin.stated.cuda, made.cuda), ("cuDNN", origin.stated.cudnn, made.cudnn)):
        if is_stated is None or not origin.is_one:
            continue
        has, wants = numbers(is_stated.value), numbers(needs)
        places = 2 if name == "CUDA" and wants < (11,) else 1
        if has[:places] != wants[:places] and len(has) >= places:
            return is_stated.line, f"{name} {is_stated.value} is there, as stated, and {made} opens {built_for(origin)}"
    return None


def libraries(origin: Origin) -> tuple[Action, ...]:
    """Return how to install the CUDA libraries of the TensorFlow that wrote the log."""
    newest = origin.releases[1]
    if origin.mac:
        return (install("tensorflow", "tensorflow-metal", note="Apple's GPU; TensorFlow for macOS uses no NVIDIA GPU"),)
    if origin.jetson:
        return (
            _JETSON,
            run(
                "sudo apt install nvidia-jetpack",
                "CUDA and cuDNN of the board's own release",
                kind=Kind.INSTALL_AS_ROOT,
            ),
        )
    if origin.windows and newest > LAST_FOR_WINDOWS:
        return (
            _NO_GPU_ON_WINDOWS,
            run(f"{_conda('11.2', '8.1.0')}; pip install 'tensorflow<2.11' 'numpy<2'", kind=Kind.INSTALL),
        )
    if newest < FIRST_WITH_EXTRA:
        newer = () if origin.windows else (install("--upgrade", "tensorflow[and-cuda]", note="or a newer one"),)
        return (*toolkit(origin), *_if_older(origin), *newer)
    pin = {Version(2, 15): "==2.15.1", Version(2, 16): "==2.17.*"}.get(newest, f"=={newest}.*")
    why = "; 2.16 does not find them" if newest == Version(2, 16) else ""
    known = origin.named is not None or newest < Version(2, 18)
    line = run(
        f"pip install 'tensorflow[and-cuda]{pin if known else ''}'",
        f"brings its CUDA libraries{why}",
        kind=Kind.INSTALL,
    )
    return (line, *_if_older(origin))


def toolkit(origin: Origin) -> tuple[Action, ...]:
    """Return how to install CUDA and cuDNN themselves, as releases before 2.14 need them."""
    made = origin.generation
    found = (
        note("or NVIDIA's installers of that CUDA and cuDNN, with their folders bin on PATH")
        if origin.windows
        else run(
            "export LD_LIBRARY_PATH=$CONDA_PREFIX/lib:$LD_LIBRARY_PATH",
            "so that they are found",
            kind=Kind.SET_VARIABLE,
        )
    )
    line = _conda(made.cuda, _OF_CONDA.get(made.cudnn, made.cudnn))
    return (run(line, f"{made}: {built_for(origin)}", kind=Kind.INSTALL), found)


def cudnn(origin: Origin, needed: str, exact: bool = False) -> tuple[Action, ...]:
    """Return how to install a cuDNN of ``needed`` or newer, of the same major version; or of the same minor version."""
    major = needed.partition(".")[0]
    least = ".".join(needed.split(".")[:2])
    if origin.jetson:
        return (
            note("flash the JetPack whose cuDNN this wheel was built for, or install NVIDIA's wheel for this JetPack:"),
            note("https://docs.nvidia.com/deeplearning/frameworks/install-tf-jetson-platform-release-notes"),
            check("cat /etc/nv_tegra_release; dpkg -l | grep libcudnn", "which JetPack and cuDNN there are"),
        )
    if int(major) < 8:
        return (
            run(
                f"conda install -c conda-forge 'cudnn{f'={least}' if exact else f'>={least},<{int(major) + 1}'}'",
                f"or cuDNN {least} from NVIDIA's archive, for the CUDA of this TensorFlow",
                kind=Kind.INSTALL,
            ),
            ask(f"where cudnn64_{major}.dll", "which ones are found: another must not come first in PATH")
            if origin.windows
            else check("ldconfig -p | grep libcudnn", "which ones are found: another must not come first"),
            note("on a Jetson cuDNN comes with JetPack: a newer JetPack, or NVIDIA's wheel for the installed one"),
        )
    if origin.windows or origin.is_before_11:
        return (
            run(
                f"conda install -c conda-forge 'cudnn>={least},<{int(major) + 1}'",
                "or NVIDIA's archive of cuDNN",
                kind=Kind.INSTALL,
            ),
            ask(f"where cudnn64_{major}.dll", "take the folder of the older one out of PATH")
            if origin.windows
            else check("ldconfig -p | grep libcudnn", "which ones are found; the older one must not come first"),
        )
    cuda = "cu12" if int(major) >= 9 or not origin.is_before_12 else "cu11"
    return (
        run(
            f"pip install 'nvidia-cudnn-{cuda}>={least},<{int(major) + 1}'",
            f"with a CUDA of conda: conda install -c conda-forge 'cudnn>={least},<{int(major) + 1}'",
            kind=Kind.INSTALL,
        ),
        note("and take the folder of the older one out of LD_LIBRARY_PATH, or remove its package"),
    )


def built_with_cudnn(loaded: str, needed: str) -> Action | None:
    """Return how to install the newest TensorFlow that was built with the ``loaded`` cuDNN, or an older one."""
    least = numbers(loaded)
    fit = [
        release
        for release, of in COMPILED_WITH
        if numbers(of)[0] == least[0] and (numbers(of) <= least[:2] if least >= (7, 1) else numbers(of) == least[:2])
    ]
    if not fit or (least[0] == numbers(needed)[0] and least[:2] >= numbers(needed)[:2]):
        return None
    package = "tensorflow-gpu" if fit[-1] < ONE_PACKAGE else "tensorflow"
    return run(
        f"pip install '{package}=={fit[-1]}.*'",
        "or a TensorFlow that was built with this cuDNN, or an older one",
        kind=Kind.INSTALL,
    )


def libdevice(origin: Origin) -> tuple[Action, ...]:
    """Return how to let XLA find libdevice.10.bc."""
    cuda = origin.generation.cuda
    folder = rf"C:\PROGRA~1\NVIDIA~2\CUDA\v{cuda}"
    windows = (
        run(
            rf"set XLA_FLAGS=--xla_gpu_cuda_data_dir={folder}",
            r"on Windows: the folder of CUDA that has nvvm\libdevice",
            kind=Kind.SET_VARIABLE,
        ),
    )
    if origin.windows:
        return (*windows, note("before Python starts; without spaces in the name of the folder"))
    if origin.is_before_12:
        if numbers(cuda) < (11,):  # conda's packages of the compiler begin with 11
            bring = note(f"the toolkit of CUDA {cuda} has it: https://developer.nvidia.com/cuda-toolkit-archive")
            return (
                export("XLA_FLAGS", f"--xla_gpu_cuda_data_dir=/usr/local/cuda-{cuda}", "it has nvvm/libdevice"),
                run(f"export PATH=/usr/local/cuda-{cuda}/bin:$PATH", kind=Kind.SET_VARIABLE),
                bring,
                *(() if origin.linux else windows),
            )
        return (
            run("conda install -c nvidia cuda-nvcc=11.8", "has it, in $CONDA_PREFIX/nvvm/libdevice", kind=Kind.INSTALL),
            *(() if origin.linux else windows),
            run(
                "export XLA_FLAGS=--xla_gpu_cuda_data_dir=$CONDA_PREFIX",
                "the folder that has nvvm/libdevice",
                kind=Kind.SET_VARIABLE,
            ),
            export(
                "XLA_FLAGS",
                "--xla_gpu_cuda_data_dir=/usr/local/cuda",
                "or that of an installed toolkit; of apt: /usr/lib/cuda",
            ),
        )
    if origin.conda:
        return (
            run(
                "conda install -c conda-forge cuda-nvcc; export "
                "XLA_FLAGS=--xla_gpu_cuda_data_dir=$CONDA_PREFIX/targets/"
                "x86_64-linux",
                "TensorFlow of conda",
                kind=Kind.INSTALL,
            ),
            install("nvidia-cuda-nvcc-cu12", note="TensorFlow of pip: XLA looks there"),
        )
    return (
        install("nvidia-cuda-nvcc-cu12", note="XLA looks there"),
        export("XLA_FLAGS", "--xla_gpu_cuda_data_dir=/usr/local/cuda", "or the folder that has nvvm/libdevice"),
    )


def compiler(origin: Origin, capability: str) -> tuple[Action, ...]:
    """Return how to install a ptxas that supports a compute capability, such as ``8.6``; "" for any."""
    known = NEW_IN.get(capability, "")
    least = f" of CUDA {known} or newer" if known else ""
    if origin.is_before_12:
        cuda = "11.8" if numbers(known or "11.0") <= (11, 8) else known
        return (
            run(
                f"conda install -c nvidia cuda-nvcc={cuda}",
                f"has a ptxas{least}, to be first on PATH",
                kind=Kind.INSTALL,
            ),
        )
    return (install("--upgrade", "nvidia-cuda-nvcc-cu12", note=f"has a ptxas{least}, which XLA finds"),)


OF_BLACKWELL = run_container(
    "--gpus all", "-it", image="nvcr.io/nvidia/tensorflow:25.02-tf2-py3", note="NVIDIA's build, has code for Blackwell"
)
OF_TENSORFLOW_1 = run(
    "pip install nvidia-pyindex; pip install nvidia-tensorflow",
    "NVIDIA's build of 1.15 for CUDA 11, with Python 3.8; or the image nvcr.io/nvidia/tensorflow:23.03-tf1-py3",
    kind=Kind.INSTALL,
)


def newer_release(origin: Origin, capability: str) -> tuple[Action, ...]:
    """Return how to install a TensorFlow with code for a compute capability, such as ``8.6``."""
    if numbers(capability)[0] >= _BLACKWELL:
        return (
            OF_BLACKWELL,
            note(
                f"or build TensorFlow for it: HERMETIC_CUDA_COMPUTE_CAPABILITIES={capability}, CUDA 12.8 or later",
                kind=Kind.INSTALL,
            ),
            install("tf-nightly", note="may have it already"),
        )
    newer = (
        run(
            "conda install -c conda-forge cudatoolkit=11.2 cudnn=8.1.0; pip install 'tensorflow<2.11'",
            "for Windows",
            kind=Kind.INSTALL,
        )
        if origin.windows
        else install("--upgrade", "tensorflow[and-cuda]", note="built for a CUDA that knows this GPU")
    )
    if origin.releases[1] < Version(2, 0):
        return (OF_TENSORFLOW_1, newer.replaced(note=f"{newer.note}; the program must be for TensorFlow 2 then"))
    return (newer, OF_TENSORFLOW_1.replaced(note=f"{OF_TENSORFLOW_1.note}, for programs of TensorFlow 1"))


def driver(origin: Origin, *, ptx: bool = False) -> str:
    """Return, in words, the oldest driver that runs the CUDA of the log's TensorFlow, or that compiles its PTX."""
    if not origin.is_one and len(origin.generations) > _SEVERAL:
        return "the newest that the GPU has"
    linux, windows = DRIVERS[origin.generation.cuda]
    least = PTX_DRIVERS.get(origin.generation.cuda, linux) if ptx else windows if origin.windows else linux
    return f"{least} or newer" + ("" if origin.is_one else f", for {origin.generation}")


def says_most(events: Iterable[Event]) -> Event | None:
    """Return the fault with a fix that explains a line best: the one with the most fixed words."""
    faults = [event for event in events if event.message.fix and event.message.worth is not Worth.HARMLESS]
    return min(faults, key=generality, default=None)


def generality(event: Event) -> tuple[bool, int]:
    """Return a sort key that is least for the most specific event, which has the most fixed words."""
    return event.message.symptom, sum(map(len, event.fields.values())) - len(event.text)


def fitted(fix: Iterable[Action], origin: Origin, stage: Stage | None) -> tuple[Action, ...]:
    """Adapt a fix that was written for Linux and the newest release to the system and release of the log.

    NVIDIA's packages of CUDA 12 do not help an older release, a driver is not installed inside of WSL or of a
    container, and the shell of Windows has neither ``export`` nor ``sudo``. ``stage`` is the one that the fault breaks.
    """
    general = tuple(fix)
    if origin.colab and any(_gives_a_gpu(action) for action in general):
        general = (_OF_COLAB, *(action for action in general if not _gives_a_gpu(action)))
    actions: list[Action] = []
    for action in general:
        if _EXTRA in action.pip and not _has_extra(origin, action):
            actions += _without_extra(origin, action)
        elif _NVCC in action.pip and origin.is_before_12:
            actions += libdevice(origin)
        elif origin.jetson and stage is Stage.MEMORY and action.role is Role.CHECK and action.kind is Kind.NONE:
            actions.append(OF_TEGRA)
        elif action.command and action.kind is Kind.CHANGE_DRIVER and (elsewhere := _driver_elsewhere(origin)):
            actions.append(elsewhere)
        elif origin.windows and action.change and all(action.change.values()):
            actions.append(_of_windows(action))
        elif not (origin.windows and action.command and (action.kind.is_of_linux or action.change)):
            actions.append(action)
    return distinct(actions) or general


def _gives_a_gpu(action: Action) -> bool:
    return bool(action.command) and action.kind in _GIVES_A_GPU


def _has_extra(origin: Origin, action: Action) -> bool:
    """Return True if the release that the action installs, the newest in a new environment, has CUDA as an extra."""
    is_new = action.kind is Kind.NEW_ENVIRONMENT or origin.releases[1] >= FIRST_WITH_EXTRA
    return is_new and not (origin.windows or origin.mac or origin.jetson)


def _without_extra(origin: Origin, action: Action) -> tuple[Action, ...]:
    if action.kind is not Kind.NEW_ENVIRONMENT or origin.jetson:
        return libraries(origin)
    if origin.windows:
        return (conda_environment("tensorflow", note=action.note),)
    return (new_environment("tensorflow", note=action.note, python="python3.12"),)


def _driver_elsewhere(origin: Origin) -> Action | None:
    """Return how to install the driver on Windows, in WSL or on a Jetson board; None elsewhere."""
    if origin.windows or origin.wsl:
        none_inside = "; none in WSL" if origin.wsl else ""
        page = f"https://www.nvidia.com/drivers{none_inside}"
        return note(f"install the newest NVIDIA driver in Windows: {page}", kind=Kind.CHANGE_DRIVER)
    if origin.jetson:
        own = "the driver belongs to the board's own system (L4T)"
        return run("sudo apt install nvidia-jetpack", own, kind=Kind.CHANGE_DRIVER)
    return None


def _of_windows(action: Action) -> Action:
    """Return the action with its variables set in the syntax of Windows's shell."""
    pairs = " && ".join(f"set {name}={value}" for name, value in (action.change or {}).items())
    return action.replaced(command=pairs)


def _conda(cuda: str, version: str) -> str:
    return f"conda install -c conda-forge cudatoolkit={'11.8.0' if cuda == '11.8' else cuda} cudnn={version}"


def _if_older(origin: Origin) -> tuple[Action, ...]:
    """Return a sentence for each older generation that may have written the log, too."""
    older = origin.generations[:-1]
    if not 0 < len(older) < _SEVERAL:
        return ()
    return tuple(
        note(f"if it is {generation}: CUDA {generation.cuda} with cuDNN {generation.cudnn}")
        for generation in reversed(older)
    )
