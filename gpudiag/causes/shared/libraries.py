"""Shared by causes: libraries that cannot be opened, or are not those that TensorFlow was built for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from shlex import quote

from gpudiag.cause import Cause, Match
from gpudiag.fix import Action, configure, export, install, prepend, unset
from gpudiag.model.diagnosis import Stage
from gpudiag.model.facts import SLOW_S, Facts, Library, LibraryCopy, TimedCall, Unknown
from gpudiag.model.report import Gpu
from gpudiag.probes.discovery import trace
from gpudiag.probes.host.libraries import PACKAGES, RUNTIME, unopened
from gpudiag.text import counted

PATH = "LD_LIBRARY_PATH"
COMPUTE = "libcuda.so.1"
NVML = "libnvidia-ml.so.1"
LIBRARIES = {
    "cuBLAS": "libcublas.so.12",
    "cuDNN": "libcudnn.so.9",
    "cuFFT": "libcufft.so.11",
    "cuSOLVER": "libcusolver.so.11",
    "cuSPARSE": "libcusparse.so.12",
}
"""The SONAME of each library that a probe tests."""
_BY_CALL = {
    "cublasLt": "cuBLASLt",
    "cublas": "cuBLAS",
    "cudnn": "cuDNN",
    "cufft": "cuFFT",
    "cupti": "CUPTI",
    "curand": "cuRAND",
    "cusolver": "cuSOLVER",
    "cusparse": "cuSPARSE",
    "nccl": "NCCL",
    "nvrtc": "NVRTC",
    "nvJitLink": "nvJitLink",
}
"""The prefixes of a library's function names, the longest first."""
PIP_INSTALLATION = "https://www.tensorflow.org/install/pip"
LOADER = "https://man7.org/linux/man-pages/man8/ld.so.8.html"


def library_of(call: str) -> str:
    """Return the library that a function belongs to, such as ``cuDNN``; "" if that is not known."""
    return next((library for start, library in _BY_CALL.items() if call.startswith(start)), "")


def slowest(calls: Iterable[TimedCall], gpus: tuple[Gpu, ...]) -> dict[str, float]:
    """Return the longest time of each slow call; its key names the GPU if the call is not slow on all GPUs."""
    by_name: dict[str, list[TimedCall]] = {}
    for call in calls:
        if (call.seconds or 0.0) >= SLOW_S:
            by_name.setdefault(call.name, []).append(call)
    indices = {gpu.uuid: str(gpu.index) for gpu in gpus}
    found = {}
    for name, those in by_name.items():
        known = dict.fromkeys(indices.get(call.gpu, "") for call in those)
        everywhere = "" in known or len(known) == len(indices) > 1
        where = "" if everywhere else f" on GPU {' and '.join(known)}"
        found[name + where] = max(call.seconds or 0.0 for call in those)
    return found


def good_copy(library: Library) -> LibraryCopy | None:
    return next((copy for copy in library.copies if copy.error is None), None)


def is_packaged(copy: LibraryCopy) -> bool:
    return copy.owner is not None or "/nvidia/" in copy.path


def lacks_known(library: Library) -> tuple[str, ...]:
    return tuple(name for name in library.lacks if name.partition(".")[0] in PACKAGES)


def seen(library: Library) -> str:
    where = f"{library.path} (from {library.source}): " if library.path else ""
    return f"{library.soname}: {where}{(library.error or '').removeprefix(f'{library.path or library.soname}: ')}"


def problem(libraries: Sequence[Library], otherwise: str) -> str:
    """Return the end of a sentence on libraries without a good copy: the file that does not serve, or ``otherwise``."""
    files = (state for library in libraries for state in library.files if state.owner or state.path == library.path)
    first = next(files, None)
    return otherwise if first is None else f"cannot be used: {first.sentence}"


def secure_loader(facts: Facts) -> tuple[tuple[str, ...], tuple[Action, ...]]:
    """Return evidence and actions if the loader ignores ``LD_LIBRARY_PATH`` for this Python; nothing if it does not."""
    libraries, system = facts.libraries, facts.system
    if isinstance(libraries, Unknown) or not libraries.secure:
        return (), ()
    python = "python" if isinstance(system, Unknown) else system.executable
    program = f'"$(readlink -f {quote(python)})"'
    command = f"sudo setcap -r {program}" if "capabilities" in libraries.secure else f"sudo chmod ug-s {program}"
    said = f"the file of {python} has {libraries.secure}: the loader ignores {PATH} and other variables for it"
    return (said,), (configure(command, f"with it, the loader reads {PATH} again"),)


def put_first(facts: Facts, folders: Sequence[str], why: str = "") -> Action:
    """Return the action that makes the loader search ``folders`` first."""
    libraries = facts.libraries
    old = () if isinstance(libraries, Unknown) else libraries.search_path
    change: dict[str, str | None] = {PATH: ":".join(dict.fromkeys([*folders, *old]))}
    return prepend(PATH, ":".join(folders), why).replaced(change=change)


def taken_away(facts: Facts, folders: list[str], good: list[str]) -> Action:
    """Return the action that removes ``folders`` from ``LD_LIBRARY_PATH``.

    If a library that TensorFlow can open comes from one of them, the action puts ``good`` before them instead.
    """
    libraries = facts.libraries
    known = () if isinstance(libraries, Unknown) else libraries.libraries
    sound = [
        str(PurePath(library.path).parent)
        for library in known
        if library.path and library.error is None and library.source == PATH
    ]
    if good and any(folder in folders for folder in sound):
        return put_first(facts, good)
    return without(() if isinstance(libraries, Unknown) else libraries.search_path, folders)


def without(entries: Iterable[str], folders: Sequence[str]) -> Action:
    """Return the action that leaves ``LD_LIBRARY_PATH`` with its ``entries`` except ``folders``."""
    rest = ":".join(entry for entry in entries if str(PurePath(entry)) not in folders)
    return export(PATH, rest, f"without {' and '.join(folders)}") if rest else unset(PATH)


_ENVIRONMENTS = re.compile(r"/(?:envs|mini(?:conda|forge)\d?|anaconda\d?|conda|mambaforge|(?:site|dist)-packages)/")
"""Folders that environments of Python and conda are in."""
RENEW_CACHE = configure("sudo ldconfig", "makes the loader's cache again")


def stale_cache(facts: Facts, folder: str) -> str:
    """Return evidence that the loader's cache is older than its configuration; "" if that does not name ``folder``.

    The folder has a library that the loader did not find.
    """
    configured = {} if isinstance(facts.libraries, Unknown) else facts.libraries.configured
    if folder not in configured:
        return ""
    return f"{configured[folder]} names {folder}: the loader's cache is older than the library in it"


def off_the_path(facts: Facts, cause: Cause, *, runtime: bool, packaged: bool | None) -> Iterator[Match]:
    """Match libraries of which a good copy is on the machine, where the loader does not look or looks too late."""
    libraries = facts.libraries
    if isinstance(libraries, Unknown):
        return
    found: list[tuple[Library, LibraryCopy]] = []
    for library in unopened(facts):
        copy = good_copy(library)
        if (library.soname == RUNTIME) is not runtime or copy is None or library.instead is not None:
            continue
        on_runpath = str(PurePath(copy.path).parent) in libraries.runpath
        if packaged is None or (is_packaged(copy) and not on_runpath) is packaged:
            found.append((library, copy))
    if not found:
        return
    folders = list(dict.fromkeys(str(PurePath(copy.path).parent) for _, copy in found))
    shown = [seen(library) for library, _ in found]
    shown += [f"{copy.path}{f' of {copy.owner}' if copy.owner else ''} opens by its path" for _, copy in found]
    shown += [
        f"{PATH} has {entry!r}, which names no folder: the loader expands no ~ and no variable, and keeps quotes"
        for entry in libraries.search_path
        if not entry.startswith("/") and _end(entry) in map(_end, folders)
    ]
    if packaged:
        shown.append(f"RUNPATH of {libraries.opener}: no {', no '.join(folders)}")
    first = put_first(facts, folders)
    ignored, secure = secure_loader(facts)
    stale = [line for folder in folders if (line := stale_cache(facts, folder))]
    shown += [*ignored, *stale]
    before = secure or ((RENEW_CACHE,) if len(stale) == len(folders) else ())
    names = [library.soname for library, _ in found]
    rest = (cause.fix[1], another_release(facts, names)) if packaged else () if stale else cause.fix[1:]
    if not packaged and any(is_in_environment(folder, facts) for folder in folders):
        rest = ()  # for all programs, it would put the environment's libssl and libstdc++ before the system's
    yield Match(
        evidence=tuple(shown),
        figures={
            "names": ", ".join(library.soname for library, _ in found),
            "folders": ":".join(folders),
            "path": found[0][1].path,
            "tensorflow": tensorflow_version(facts) or "of unknown version",
        },
        about=(*(library.soname for library, _ in found), *folders),
        fix=(*before, *(() if secure else (first,)), *rest),
        tried=None if secure else first,
        stage=Stage.RUNTIME_LIBRARY if runtime else None,
    )


def is_in_environment(folder: str, facts: Facts) -> bool:
    """Return whether a folder is in an environment of Python or conda, which has copies of the system's libraries."""
    prefixes = [facts.variables.get(name, "") for name in ("CONDA_PREFIX", "VIRTUAL_ENV")]
    return bool(_ENVIRONMENTS.search(folder)) or any(
        f"{folder}/".startswith(f"{prefix}/") for prefix in prefixes if prefix
    )


def _end(folder: str) -> tuple[str, ...]:
    """Return the last names of a path, such as ``cuda/lib64``, without quotes around it."""
    return PurePath(folder.strip("\"' ")).parts[-2:]


def another_release(facts: Facts, names: list[str]) -> Action:
    version = tensorflow_version(facts)
    if version.startswith("2.21.") and names == ["libcusolver.so.11"]:
        return install(
            "tensorflow[and-cuda]==2.20.0", note="or install the previous release, which searches that folder"
        )
    return install("--force-reinstall", with_cuda(facts), note="or both again, so that they fit")


def then_cusolver(facts: Facts) -> Action | None:
    """Return the further action if this TensorFlow does not search for cuSOLVER in the package that it installs."""
    libraries = facts.libraries
    if isinstance(libraries, Unknown) or libraries.opener is None:
        return None
    site = PurePath(libraries.opener).parent.parent
    folder = f"{site}/nvidia/cusolver/lib"
    packaged = any(entry.startswith(f"{site}/nvidia/") for entry in libraries.runpath)
    if folder in libraries.runpath or not packaged:
        return None
    return prepend(PATH, folder, "run it then: this TensorFlow does not search that folder")


def needs_nvml(facts: Facts, traced: trace.Reading | None) -> bool:
    """Return True if this TensorFlow lists no GPU without NVML: 2.21 does not, 2.20 does (measured)."""
    if traced is not None and traced.listed:
        return False
    found = re.match(r"(\d+)\.(\d+)", tensorflow_version(facts))
    return found is None or (int(found[1]), int(found[2])) >= (2, 21)


def answer_of_nvml(facts: Facts) -> str:
    """Return what NVML says of the machine's GPUs, or why it says nothing."""
    nvml = facts.nvml
    if isinstance(nvml, Unknown) or (nvml.error and not nvml.devices):
        return f"NVML: {'not known' if isinstance(nvml, Unknown) else nvml.error}"
    return f"NVML reports {counted(len(nvml.devices), 'GPU')}"


def tensorflow_version(facts: Facts) -> str:
    tensorflow = facts.tensorflow
    return (
        "" if isinstance(tensorflow, Unknown) or not tensorflow.distributions else tensorflow.distributions[0].version
    )


def with_cuda(facts: Facts) -> str:
    """Return pip's argument that installs this TensorFlow with its CUDA libraries."""
    version = tensorflow_version(facts)
    return f"tensorflow[and-cuda]=={version}" if version else "tensorflow[and-cuda]"
