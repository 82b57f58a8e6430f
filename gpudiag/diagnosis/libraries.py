"""Dynamic libraries that TensorFlow cannot open, or that are not those it was built for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath

import msgspec

from gpudiag.diagnosis import machine
from gpudiag.diagnosis.machine import INSTALLATION, container
from gpudiag.diagnosis.rule import Evidence, Match, Rule, RuleCase
from gpudiag.diagnosis.steps import cuinit_error
from gpudiag.hostfacts import (
    ContainerFacts,
    DriverFacts,
    Facts,
    Family,
    Library,
    LibraryCopy,
    LibraryFacts,
    NvmlFacts,
    TensorflowFacts,
    Unknown,
    example_with_gpus,
)
from gpudiag.knowledge.log import CUDNN_OLDER, NO_LIBDEVICE
from gpudiag.model import Judged, Row, Stage, Sure
from gpudiag.probes.common import CUDNN_NEEDED
from gpudiag.probes.discovery import trace
from gpudiag.probes.host import driver as host_driver
from gpudiag.probes.host.libraries import (
    CUDNN,
    NOT_THERE,
    OLD_CUDNN,
    OPTIONAL,
    PACKAGES,
    RUNTIME,
    cudnn_too_old,
    example_absent,
    example_copy,
    example_facts,
    example_library,
    example_without_libdevice,
    installed,
    is_another_release,
    older_first,
    requirement,
    unopened,
    with_other_soname,
    without_libdevice,
)

PATH = "LD_LIBRARY_PATH"
COMPUTE = "libcuda.so.1"
NVML = "libnvidia-ml.so.1"

_INSTALLATION = "https://www.tensorflow.org/install/pip"
_LOADER = "https://man7.org/linux/man-pages/man8/ld.so.8.html"
_TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"

# Where a library is that cannot be opened.


def _good_copy(one: Library) -> LibraryCopy | None:
    return next((copy for copy in one.copies if copy.error is None), None)


def _is_packaged(copy: LibraryCopy) -> bool:
    return copy.owner is not None or "/nvidia/" in copy.path


def _lacks_known(one: Library) -> tuple[str, ...]:
    return tuple(name for name in one.lacks if name.partition(".")[0] in PACKAGES)


def _seen(one: Library) -> str:
    where = f"{one.path} (from {one.source}): " if one.path else ""
    return f"{one.soname}: {where}{(one.error or '').removeprefix(f'{one.path or one.soname}: ')}"


def _put_first(evidence: Evidence, folders: Iterable[str]) -> dict[str, str | None]:
    """Return the change that makes the loader look into ``folders`` first."""
    libraries = evidence.facts.libraries
    old = () if isinstance(libraries, Unknown) else libraries.search_path
    return {PATH: ":".join(dict.fromkeys([*folders, *old]))}


def _taken_away(evidence: Evidence, folders: list[str], good: list[str]) -> tuple[str, dict[str, str | None]]:
    """Return the line and the change that take ``folders`` out of the path; ``good`` first, where they are needed."""
    libraries = evidence.facts.libraries
    known = () if isinstance(libraries, Unknown) else libraries.libraries
    sound = [str(PurePath(one.path).parent) for one in known if one.path and one.error is None and one.source == PATH]
    if good and any(folder in folders for folder in sound):
        return f"export {PATH}={':'.join(good)}:${PATH}", _put_first(evidence, good)
    entries = () if isinstance(libraries, Unknown) else libraries.search_path
    rest = ":".join(entry for entry in entries if str(PurePath(entry)) not in folders)
    if not rest:
        return f"unset {PATH}", {PATH: None}
    return f"export {PATH}={rest}  # without {' and '.join(folders)}", {PATH: rest}


def _off_the_path(evidence: Evidence, *, runtime: bool, packaged: bool | None) -> Iterator[Match]:
    """Match libraries of which a good copy is on the machine, where the loader does not look or looks too late."""
    libraries = evidence.facts.libraries
    if isinstance(libraries, Unknown):
        return
    found: list[tuple[Library, LibraryCopy]] = []
    for one in unopened(evidence.facts):
        copy = _good_copy(one)
        if (one.soname == RUNTIME) is not runtime or copy is None or one.instead is not None:
            continue
        on_runpath = str(PurePath(copy.path).parent) in libraries.runpath
        if packaged is None or (_is_packaged(copy) and not on_runpath) is packaged:
            found.append((one, copy))
    if not found:
        return
    folders = list(dict.fromkeys(str(PurePath(copy.path).parent) for _, copy in found))
    shown = [_seen(one) for one, _ in found]
    shown += [f"{copy.path}{f' of {copy.owner}' if copy.owner else ''} opens by its path" for _, copy in found]
    if packaged:
        shown.append(f"RUNPATH of {libraries.opener}: no {', no '.join(folders)}")
    yield Match(
        evidence=tuple(shown),
        figures={
            "names": ", ".join(one.soname for one, _ in found),
            "folders": ":".join(folders),
            "path": found[0][1].path,
            "tensorflow": _version(evidence.facts) or "of unknown version",
            "another": _another_release(evidence.facts, [one.soname for one, _ in found]),
        },
        change=_put_first(evidence, folders),
    )


def _another_release(facts: Facts, names: list[str]) -> str:
    version = _version(facts)
    if version.startswith("2.21.") and names == ["libcusolver.so.11"]:
        return "pip install 'tensorflow[and-cuda]==2.20.0'  # or the release before, which names that folder"
    return f"pip install --force-reinstall {_with_cuda(facts)}  # or both again, so that they fit"


def _package_not_on_runpath(evidence: Evidence) -> Iterator[Match]:
    yield from _off_the_path(evidence, runtime=False, packaged=True)


def _library_off_the_path(evidence: Evidence) -> Iterator[Match]:
    yield from _off_the_path(evidence, runtime=False, packaged=False)


def _runtime_off_the_path(evidence: Evidence) -> Iterator[Match]:
    yield from _off_the_path(evidence, runtime=True, packaged=None)


def _runtime_missing(evidence: Evidence) -> Iterator[Match]:
    facts = evidence.facts
    for one in unopened(facts):
        if one.soname != RUNTIME or _good_copy(one) is not None or one.instead is not None:
            continue
        package = installed(facts, RUNTIME)
        command = f"pip install {_with_cuda(facts)}"
        if package is not None:
            command = f"pip install --force-reinstall --no-deps {package.name}=={package.version}"
        yield Match(
            evidence=(
                _seen(one),
                f"{PACKAGES['libcudart']}: {f'{package.version}, but not its file' if package else 'not installed'}",
                *_of_the_driver(evidence),
            ),
            figures={"command": command, "then": _then_cusolver(facts)},
        )


def _of_the_driver(evidence: Evidence) -> Iterator[str]:
    """Yield what is known of the driver, which TensorFlow's line for this fault names; more than that is not."""
    facts = evidence.facts
    if facts.nvml_devices and not isinstance(facts.nvml, Unknown):
        yield f"NVML of the driver answers: {facts.nvml.driver_version}, {len(facts.nvml_devices)} GPU(s)"
    if error := cuinit_error(evidence):
        yield f"cuInit of the driver fails, too: {error}"


def _then_cusolver(facts: Facts) -> str:
    """Return what is left to do where this TensorFlow does not look for cuSOLVER in the package that it installs."""
    libraries = facts.libraries
    if isinstance(libraries, Unknown) or libraries.opener is None:
        return ""
    site = PurePath(libraries.opener).parent.parent
    folder = f"{site}/nvidia/cusolver/lib"
    packaged = any(entry.startswith(f"{site}/nvidia/") for entry in libraries.runpath)
    if folder in libraries.runpath or not packaged:
        return ""
    return f"export {PATH}={folder}:${PATH}  # then, because this TensorFlow does not look there"


def _library_missing(evidence: Evidence) -> Iterator[Match]:
    facts = evidence.facts
    missing = [
        one
        for one in unopened(facts)
        if one.soname != RUNTIME and not _good_copy(one) and one.instead is None and not _lacks_known(one)
        if one.soname.partition(".")[0] in PACKAGES
    ]
    if not missing:
        return
    damaged = [package for one in missing if (package := installed(facts, one.soname)) is not None]
    absent = [one for one in missing if installed(facts, one.soname) is None]
    commands = []
    if absent and not any(installed(facts, name) for name in PACKAGES):
        commands.append(f"pip install {_with_cuda(facts)}")
    elif absent:
        commands.append(f"pip install {' '.join(dict.fromkeys(requirement(facts, one.soname) for one in absent))}")
    if damaged:
        again = " ".join(dict.fromkeys(f"{package.name}=={package.version}" for package in damaged))
        commands.append(f"pip install --force-reinstall --no-deps {again}")
    first = [folder for one in missing for folder in one.damaged_folders]
    yield Match(
        evidence=tuple(map(_seen, missing)),
        figures={
            "names": ", ".join(one.soname for one in missing),
            "packages": ", ".join(dict.fromkeys(PACKAGES[one.soname.partition(".")[0]] for one in missing)),
            "commands": "; ".join(commands),
            "then": _then_cusolver(facts) if any(one.soname.startswith("libcusolver") for one in absent) else "",
            "also": f"# take {first[0]} out of {PATH}: the file in it is damaged, and comes first" if first else "",
        },
    )


def _damaged_first(evidence: Evidence) -> Iterator[Match]:
    libraries = evidence.facts.libraries
    if isinstance(libraries, Unknown):
        return
    found = [one for one in libraries.libraries if one.instead is not None]
    if not found:
        return
    damaged = list(dict.fromkeys(folder for one in found for folder in one.damaged_folders))
    good = list(dict.fromkeys(str(PurePath(one.instead or "").parent) for one in found))
    without, change = _taken_away(evidence, damaged, good)
    yield Match(
        evidence=(*map(_seen, found), *(f"{file} opens" for file in dict.fromkeys(one.instead for one in found))),
        figures={
            "files": ", ".join(dict.fromkeys(file for one in found for file in one.damaged)),
            "good": ", ".join(dict.fromkeys(one.instead or "" for one in found)),
            "without": without,
        },
        change=change,
        stage=_stage([one.soname for one in found]),
    )


_STAGES = {RUNTIME: Stage.RUNTIME_LIBRARY, COMPUTE: Stage.DRIVER_LIBRARY, NVML: Stage.NVML}
"""The stage that a library breaks, where it is not that of the others; the earliest first."""


def _stage(sonames: list[str]) -> Stage:
    """Return the first stage that these libraries break; of those that are opened only when they are used, none."""
    later = Stage.CONFIGURATION if set(sonames) <= set(OPTIONAL) else Stage.LIBRARIES
    return next((stage for soname, stage in _STAGES.items() if soname in sonames), later)


def _dependency_missing(evidence: Evidence) -> Iterator[Match]:
    facts = evidence.facts
    for one in unopened(facts):
        lacking = _lacks_known(one)
        if _good_copy(one) is not None or one.instead is not None or not lacking:
            continue
        yield Match(
            evidence=(_seen(one), *(f"{name} is needed by {one.lacks[name]} and found nowhere" for name in lacking)),
            figures={
                "library": one.soname,
                "names": ", ".join(lacking),
                "requirements": " ".join(dict.fromkeys(requirement(facts, name) for name in lacking)),
            },
        )


# Versions.


def _cudnn_too_old(evidence: Evidence) -> Iterator[Match]:
    facts = evidence.facts
    cudnn = cudnn_too_old(facts)
    told = evidence.log.first(CUDNN_OLDER)
    if cudnn is None and told is None:
        return
    shown = [] if told is None else [f"TensorFlow's log: {told.text}"]
    figures = {"needed": told["needed"] if told else CUDNN_NEEDED, "requirement": requirement(facts, CUDNN)}
    if cudnn is None:
        assert told is not None
        shown.append("what the loader finds here is new enough: the program had loaded another one before TensorFlow")
        where = "from elsewhere, most often with a framework that was imported before TensorFlow,"
        first = "# import tensorflow before the other framework, or give each a virtual environment of its own"
        yield Match(tuple(shown), Sure.LIKELY, {**figures, "found": told["found"], "where": where, "first": first})
        return
    shown.append(f"{cudnn.soname}: {cudnn.path} (from {cudnn.source}) is {cudnn.version}")
    newer = next((copy for copy in cudnn.copies if _is_packaged(copy)), None)
    folder = str(PurePath(cudnn.path or "").parent)
    first = f"pip install {figures['requirement']}"
    change = None
    if cudnn.source == PATH:
        shown += [f"{newer.path}{f' of {newer.owner}' if newer.owner else ''} comes after it"] if newer else []
        first, change = _taken_away(evidence, [folder], [str(PurePath(newer.path).parent)] if newer else [])
    where = f"from {folder}{f', by {PATH},' if cudnn.source == PATH else ''}"
    yield Match(
        tuple(shown), figures={**figures, "found": cudnn.version, "where": where, "first": first}, change=change
    )


def _older_library_first(evidence: Evidence) -> Iterator[Match]:
    old = cudnn_too_old(evidence.facts)
    pairs = [(one, copy) for one, copy in older_first(evidence.facts) if one != old]
    if not pairs:
        return
    folders = list(dict.fromkeys(str(PurePath(one.path or "").parent) for one, _ in pairs))
    good = list(dict.fromkeys(str(PurePath(copy.path).parent) for _, copy in pairs))
    yield Match(
        evidence=tuple(
            f"{one.soname}: {one.path} is {one.version}, and {copy.owner} comes after it" for one, copy in pairs
        ),
        figures={
            "names": ", ".join(one.soname for one, _ in pairs),
            "folders": ", ".join(folders),
            "good": ":".join(good),
        },
        change=_put_first(evidence, good),
    )


def _other_soname(evidence: Evidence) -> Iterator[Match]:
    for one in with_other_soname(evidence.facts):
        link = f", a link to {one.file}" if one.file != one.path else ""
        keep = f"mv {one.path} {one.path}.away  # unless it passes all calls on to the right one"
        yield Match(
            evidence=(f"{one.path}{link}: DT_SONAME is {one.own_soname}",),
            # A library that passes calls on to the right one has a name of its own, too.
            sure=Sure.PROVED if is_another_release(one) else Sure.LIKELY,
            figures={
                "library": one.soname,
                "path": one.path,
                "own": one.own_soname,
                "remove": f"rm {one.path}" if is_another_release(one) else keep,
                "requirement": requirement(evidence.facts, one.soname),
            },
        )


# NVML.


def _needs_nvml(evidence: Evidence) -> bool:
    """Return True where this TensorFlow lists no GPU without NVML: 2.21 does not, 2.20 does (measured)."""
    if evidence.trace is not None and evidence.trace.listed:
        return False
    found = re.match(r"(\d+)\.(\d+)", _version(evidence.facts))
    return found is None or (int(found[1]), int(found[2])) >= (2, 21)


def _nvml_missing(evidence: Evidence) -> Iterator[Match]:
    facts = evidence.facts
    if not evidence.found("host.driver", "no_nvml") or not _needs_nvml(evidence):
        return
    one = facts.library(NVML)
    if one is not None and one.instead is not None:
        return
    capabilities = facts.variables.get("NVIDIA_DRIVER_CAPABILITIES")
    shown = [f"{NVML}: {one.error}" if one and one.error else f"{NVML} cannot be opened"]
    shown += [] if capabilities is None else [f"NVIDIA_DRIVER_CAPABILITIES={capabilities}"]
    copy = _good_copy(one) if one and one.error else None
    yield Match(
        evidence=tuple(shown),
        figures={"tensorflow": _version(facts), "cure": _cure_of_nvml(facts, copy)},
        change=_put_first(evidence, [str(PurePath(copy.path).parent)]) if copy else None,
    )


def _cure_of_nvml(facts: Facts, copy: LibraryCopy | None) -> str:
    if copy is None and not isinstance(facts.container, Unknown) and facts.container.runtime is not None:
        if facts.container.kubernetes:
            return "# set NVIDIA_DRIVER_CAPABILITIES=compute,utility in the pod's env, or in its image"
        return (
            "docker run -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...  # or: "
            """--gpus 'all,"capabilities=compute,utility"'"""
        )
    return _cure_of_the_driver(facts, NVML, copy)


def _cure_of_the_driver(facts: Facts, soname: str, copy: LibraryCopy | None) -> str:
    """Return the command that brings a library of the driver, or that points to a good ``copy``."""
    if copy is not None:
        return f"export {PATH}={PurePath(copy.path).parent}:${PATH}"
    module = None if isinstance(facts.driver, Unknown) else facts.driver.kernel_module
    system = "" if isinstance(facts.system, Unknown) else facts.system.os
    if module and "Ubuntu" in system:
        return f"sudo apt-get install libnvidia-compute-{module.partition('.')[0]}"
    if "Debian" in system:
        return f"sudo apt-get install {'libnvidia-ml1' if soname == NVML else 'libcuda1'}"
    return f"# install {soname} of the driver {module or ''}".strip() + ", from where the driver was installed"


def _compute_library_missing(evidence: Evidence) -> Iterator[Match]:
    facts, one = evidence.facts, evidence.facts.library(COMPUTE)
    driver = facts.driver
    if isinstance(driver, Unknown) or not evidence.found("host.driver", "no_libcuda"):
        return
    runs = driver.kernel_module is not None or bool(facts.nvml_devices)
    if not runs or container(evidence) or (one is not None and one.instead is not None):
        return  # not loaded, given to a container, or hidden: each is told by another rule
    copy = _good_copy(one) if one else None
    where = f"is in {PurePath(copy.path).parent}, where the loader does not look" if copy else "is not here"
    if copy is None and one is not None and one.path is not None:
        where = f"cannot be opened ({one.path})"
    yield Match(
        evidence=(
            _seen(one) if one and one.error else f"{COMPUTE}: {driver.libcuda_error}",
            f"kernel module {driver.kernel_module or 'not known'}; NVML reports {len(facts.nvml_devices)} GPU(s)",
        ),
        figures={
            "module": driver.kernel_module or "",
            "cure": _cure_of_the_driver(facts, COMPUTE, copy),
            "where": where,
        },
        change=_put_first(evidence, [str(PurePath(copy.path).parent)]) if copy else None,
    )


def _nvml_fails(evidence: Evidence) -> Iterator[Match]:
    facts = evidence.facts
    named = any(evidence.found("host.driver", kind) for kind in ("version_mismatch", "no_access", "no_module"))
    if isinstance(facts.nvml, Unknown) or facts.nvml.devices or named or not _needs_nvml(evidence):
        return
    error = facts.nvml.error
    if error is None or not _driver_is_here(facts) or evidence.found("host.driver", "no_nvml"):
        return
    if error == "NVML Shared Library Not Found":
        return
    module = None if isinstance(facts.driver, Unknown) else facts.driver.kernel_module
    cure = next((cure for words, cure in _CURES_OF_NVML.items() if words in error), _CURE_OF_OTHERS)
    if module is not None and "Not Loaded" in error:
        cure = f"sudo nvidia-modprobe -c 0 -u  # module {module} is loaded: this makes /dev/nvidiactl and the others"
    yield Match(evidence=(f"NVML: {error}",), figures={"error": error, "cure": cure, "tensorflow": _version(facts)})


_CURES_OF_NVML = {
    "version mismatch": "sudo reboot  # or unload and load the nvidia modules: the driver was upgraded under them",
    "Not Loaded": "sudo modprobe nvidia  # where that fails look at dmesg, and install the driver again",
    "Permission": "ls -l /dev/nvidia*  # join the group that owns them, and log in again",
    "lost": "sudo dmesg | grep -i xid  # names the GPU by its PCI bus id; switch the machine off and on",
}
_CURE_OF_OTHERS = "nvidia-smi; sudo dmesg | grep -i -e nvrm -e xid  # most often a reboot helps"


def _driver_is_here(facts: Facts) -> bool:
    return not isinstance(facts.driver, Unknown) and facts.driver.libcuda_path is not None


# libdevice.


def _libdevice_missing(evidence: Evidence) -> Iterator[Match]:
    facts = evidence.facts
    libraries = facts.libraries
    said = evidence.log.first(NO_LIBDEVICE)
    line = said.line if said is not None else None
    silent = without_libdevice(facts)
    if line is None and not silent:
        return
    elsewhere = () if isinstance(libraries, Unknown) else libraries.libdevice_elsewhere
    shown = [f"log: {line.strip()[:200]}"] if line else []
    if silent or not isinstance(libraries, Unknown):
        known = () if isinstance(libraries, Unknown) else libraries.libdevice
        shown.append(f"libdevice.10.bc where XLA looks: {', '.join(known) or 'none'}")
    shown += [f"{path} is where it does not look" for path in elsewhere]
    flags = facts.variables.get("XLA_FLAGS")
    shown += [f"XLA_FLAGS={flags}"] if flags else []
    base = str([*PurePath(elsewhere[0]).parents, PurePath()][:3][-1]) if elsewhere else ""
    added = f"{flags} " if flags and "xla_gpu_cuda_data_dir" not in flags else ""
    point = f"export XLA_FLAGS='{added}--xla_gpu_cuda_data_dir={base}'"
    install = f"pip install {requirement(facts, 'libdevice')}"
    yield Match(
        evidence=tuple(shown),
        sure=Sure.PROVED if line else Sure.LIKELY,
        figures={"first": point if elsewhere else install, "second": f"{install}  # or" if elsewhere else ""},
    )


def _version(facts: Facts) -> str:
    tensorflow = facts.tensorflow
    return (
        "" if isinstance(tensorflow, Unknown) or not tensorflow.distributions else tensorflow.distributions[0].version
    )


def _with_cuda(facts: Facts) -> str:
    """Return what installs this TensorFlow with its CUDA libraries, as a word of a shell."""
    version = _version(facts)
    return f"'tensorflow[and-cuda]=={version}'" if version else "'tensorflow[and-cuda]'"


# Cases.

_SITE = "/home/someone/venv/lib/python3.11/site-packages"
_CUSOLVER = "libcusolver.so.11"
_PACKAGED = example_copy(_CUSOLVER, f"{_SITE}/nvidia/cusolver/lib", "11.7.5.82", "nvidia-cusolver-cu12 11.7.5.82")
_TOOLKIT_COPY = example_copy("libcufft.so.11", "/usr/local/cuda-12.6/lib64", "11.3.0.4")
_NVJITLINK = example_library(
    _CUSOLVER,
    error="libnvJitLink.so.12: cannot open shared object file: No such file or directory",
    lacks={"libnvJitLink.so.12": f"{_SITE}/nvidia/cusparse/lib/libcusparse.so.12"},
)
_OWN_WORDS = (
    "E0000 00:00:1795261972.775117   16176 cuda_dnn.cc:1] Loaded runtime CuDNN library: 9.1.0 but source was compiled "
    "with: 9.3.0.  CuDNN library needs to have matching major version and equal or higher minor version."
)


def _evidence(*changed: Library, gpus: int = 1, lines: tuple[str, ...] = (), **variables: str) -> Evidence:
    return Evidence(example_facts(*changed, gpus=gpus, variables=variables), lines=lines)


def _on_runpath(evidence: Evidence, folder: str) -> Evidence:
    libraries = evidence.facts.libraries
    assert isinstance(libraries, LibraryFacts)
    changed = msgspec.structs.replace(libraries, runpath=(*libraries.runpath, folder))
    return Evidence(msgspec.structs.replace(evidence.facts, libraries=changed))


def _with_driver(nvml: NvmlFacts, *, version: str = "2.21.0", listed: int = 0, **families: object) -> Evidence:
    """Return a machine with one GPU whose NVML is ``nvml``, judged by ``host.driver``."""
    facts = msgspec.structs.replace(example_with_gpus(1, nvml=nvml), **families)
    assert isinstance(facts.tensorflow, TensorflowFacts)
    (own,) = facts.tensorflow.distributions
    renamed = msgspec.structs.replace(facts.tensorflow, distributions=(msgspec.structs.replace(own, version=version),))
    facts = msgspec.structs.replace(facts, tensorflow=renamed)
    findings = tuple(host_driver.judge(facts, _LIMITS))
    reading = msgspec.to_builtins(trace.read_log((), listed, None))
    rows = (
        Row("host.driver", (), Judged(findings), 0.0),
        Row("discovery.trace", (), Judged(), 0.0, reading=reading),
    )
    return Evidence(facts, rows=rows)


_LIMITS = host_driver.CASES[0].limits
_NO_NVML = NvmlFacts("NVML Shared Library Not Found", None, None, ())
_UBUNTU = machine.example_facts().system
_DOCKER = ContainerFacts("docker", ("/.dockerenv",), False, None)


def _without_compute(*changed: Library, **families: Family) -> Evidence:
    """Return a machine whose driver runs without ``libcuda.so.1``, judged by ``host.driver``."""
    ordinary: dict[str, Family] = {
        "driver": DriverFacts("535.104.05", None, f"{COMPUTE}: {NOT_THERE}", None),
        "libraries": example_facts(*changed or (example_absent(COMPUTE),)).libraries,
    }
    return machine.example_evidence(example_with_gpus(1, **{**ordinary, **families}))


def _damaged(soname: str, needed: str = "") -> Library:
    """Return a library that opens, but for a damaged file that comes before it, or before one that it needs."""
    file = f"/opt/x/{needed or soname}"
    return Library(
        soname,
        path=f"{_SITE}/nvidia/lib/{soname}" if needed else file,
        source="RUNPATH" if needed else PATH,
        file=None,
        own_soname=None,
        version=None,
        owner=None,
        error=f"{file}: file too short",
        lacks={},
        copies=(),
        damaged=(file,),
        instead=f"{_SITE}/nvidia/lib/{needed or soname}",
    )


_WHY_NAMELESS = """
        TensorFlow opens seven CUDA libraries when it first looks for GPUs, and uses no GPU unless all of them open. Its
        log says "Cannot dlopen some GPU libraries" and speaks of "the missing libraries mentioned above", but none is
        mentioned at the default level. TF_CPP_VMODULE=dso_loader=1 names them; gpudiag opens each itself.
        """

RULES = (
    Rule(
        id="package_not_on_runpath",
        stage=Stage.LIBRARIES,
        cause="{names} is installed in {folders}, where TensorFlow {tensorflow} does not look",
        why="""
        TensorFlow's file libtensorflow_framework.so.2 tells the loader in which folders of site-packages NVIDIA's
        packages put their libraries (its RUNPATH). In the wheel of 2.21.0 nvidia/cusolver/lib is not among them, so a
        clean `pip install tensorflow[and-cuda]` has every package and still uses no GPU; 2.20.0 names it. The log says
        "Cannot dlopen some GPU libraries" and not which. LD_LIBRARY_PATH is searched as well, and the loader reads it
        when the process starts: setting it in Python comes too late.
        """,
        fix=(
            "export LD_LIBRARY_PATH={folders}:$LD_LIBRARY_PATH",
            "import ctypes; ctypes.CDLL('{path}', mode=ctypes.RTLD_GLOBAL)  # or: first thing in the program",
            "{another}",
        ),
        url=_INSTALLATION,
        find=_package_not_on_runpath,
        cases=(
            RuleCase("cuSOLVER of 2.21.0", _evidence(example_absent(_CUSOLVER, _PACKAGED))),
            RuleCase("it opens", _evidence(), fires=False),
            RuleCase("no copy of it", _evidence(example_absent(_CUSOLVER)), fires=False),
            RuleCase(
                "the copy does not open",
                _evidence(example_absent(_CUSOLVER, msgspec.structs.replace(_PACKAGED, error="file too short"))),
                fires=False,
            ),
            RuleCase(
                "its folder is on the RUNPATH",
                _on_runpath(_evidence(example_absent(_CUSOLVER, _PACKAGED)), f"{_SITE}/nvidia/cusolver/lib"),
                fires=False,
            ),
        ),
    ),
    Rule(
        id="library_off_the_path",
        stage=Stage.LIBRARIES,
        cause="{names} cannot be opened, although a good copy is in {folders}: the loader does not get there",
        why=f"""{_WHY_NAMELESS.rstrip()} Here the library is on the machine (a CUDA toolkit, conda, a package), in a
        folder that is neither in LD_LIBRARY_PATH nor in the loader's cache, or after a damaged copy.
        """,
        fix=(
            "export LD_LIBRARY_PATH={folders}:$LD_LIBRARY_PATH",
            "echo {folders} | tr : '\\n' | sudo tee /etc/ld.so.conf.d/cuda.conf && sudo ldconfig  # or, for all users",
        ),
        url=_LOADER,
        find=_library_off_the_path,
        cases=(
            RuleCase("in a toolkit", _evidence(example_absent("libcufft.so.11", _TOOLKIT_COPY))),
            RuleCase("no copy of it", _evidence(example_absent("libcufft.so.11")), fires=False),
            RuleCase("it opens", _evidence(), fires=False),
        ),
    ),
    Rule(
        id="runtime_off_the_path",
        stage=Stage.RUNTIME_LIBRARY,
        cause="{names} is in {folders}, where TensorFlow {tensorflow} does not look",
        why="""
        libcudart.so.12 is the first library that TensorFlow opens. Where it cannot be opened the log says "Could not
        find cuda drivers on your machine", which is wrong: the driver has nothing to do with it. Here the library is on
        the machine, in a folder that the loader does not search.
        """,
        fix=(
            "export LD_LIBRARY_PATH={folders}:$LD_LIBRARY_PATH",
            "echo {folders} | tr : '\\n' | sudo tee /etc/ld.so.conf.d/cuda.conf && sudo ldconfig  # or, for all users",
        ),
        url=_LOADER,
        find=_runtime_off_the_path,
        cases=(
            RuleCase(
                "in a toolkit",
                _evidence(example_absent(RUNTIME, example_copy(RUNTIME, "/usr/local/cuda-12.6/lib64", "12.6.77"))),
            ),
            RuleCase("no copy of it", _evidence(example_absent(RUNTIME)), fires=False),
            RuleCase("it opens", _evidence(), fires=False),
        ),
    ),
    Rule(
        id="runtime_missing",
        stage=Stage.RUNTIME_LIBRARY,
        cause="the CUDA runtime (libcudart.so.12) is not in this environment",
        why="""
        Since 2.14 `pip install tensorflow` brings no CUDA libraries: they come with the extra, `tensorflow[and-cuda]`.
        Without them the log says "Could not find cuda drivers on your machine, GPU will not be used", although
        nvidia-smi works. Reinstalling the driver changes nothing; a CUDA 13 or CUDA 11 on the system does not help
        either, because the name of the library has the release in it.
        """,
        fix=("{command}", "{then}"),
        url=_INSTALLATION,
        find=_runtime_missing,
        cases=(
            RuleCase("without the extra", _evidence(example_absent(RUNTIME))),
            RuleCase("it opens", _evidence(), fires=False),
            RuleCase("another one is missing", _evidence(example_absent("libcufft.so.11")), fires=False),
            RuleCase(
                "it is elsewhere",
                _evidence(example_absent(RUNTIME, example_copy(RUNTIME, "/usr/local/cuda-12.6/lib64"))),
                fires=False,
            ),
        ),
    ),
    Rule(
        id="library_missing",
        stage=Stage.LIBRARIES,
        cause="{names} cannot be opened: the library of {packages} is not here",
        why=_WHY_NAMELESS,
        fix=("{commands}", "{then}", "{also}"),
        url=_INSTALLATION,
        find=_library_missing,
        cases=(
            RuleCase("cuFFT", _evidence(example_absent("libcufft.so.11"))),
            RuleCase("two", _evidence(example_absent("libcufft.so.11"), example_absent(CUDNN))),
            RuleCase("all open", _evidence(), fires=False),
            RuleCase("an optional one", _evidence(*map(example_absent, OPTIONAL)), fires=False),
            RuleCase("it is elsewhere", _evidence(example_absent("libcufft.so.11", _TOOLKIT_COPY)), fires=False),
            RuleCase("a library that it needs is missing", _evidence(_NVJITLINK), fires=False),
            RuleCase("the runtime", _evidence(example_absent(RUNTIME)), fires=False),
        ),
    ),
    Rule(
        id="damaged_library_first",
        stage=Stage.LIBRARIES,
        cause="LD_LIBRARY_PATH puts {files}, which cannot be opened, before the good {good}",
        why="""
        The loader takes the first file of the right name that it finds, and LD_LIBRARY_PATH comes before all else. It
        passes over a file for another processor; at one that is damaged, empty or lacks a library of its own it stops,
        and never comes to the good one. A copy that was cut short or a half-removed toolkit is enough. TensorFlow's log
        says that the library is missing, or names none at all.
        """,
        fix=("{without}",),
        url=_LOADER,
        find=_damaged_first,
        cases=(
            RuleCase("libcuda", _evidence(_damaged(COMPUTE))),
            RuleCase("NVML", _evidence(_damaged(NVML))),
            RuleCase("cuDNN", _evidence(_damaged(CUDNN))),
            RuleCase("NCCL, which few need", _evidence(_damaged(OPTIONAL[0]))),
            RuleCase("two", _evidence(_damaged(COMPUTE), _damaged(CUDNN))),
            RuleCase("one that others need", _evidence(_damaged(_CUSOLVER, "libnvJitLink.so.12"))),
            RuleCase(
                "beside good ones",
                _evidence(_damaged(CUDNN), example_library(RUNTIME, path=f"/opt/x/{RUNTIME}", source=PATH)),
            ),
            RuleCase(
                "no good one after it", _evidence(msgspec.structs.replace(_damaged(CUDNN), instead=None)), fires=False
            ),
            RuleCase("nothing is found", _evidence(example_absent(CUDNN)), fires=False),
            RuleCase("all open", _evidence(), fires=False),
        ),
    ),
    Rule(
        id="dependency_missing",
        stage=Stage.LIBRARIES,
        cause="{library} is here and cannot be opened, because it needs {names}",
        why=f"""{_WHY_NAMELESS.rstrip()} Here a library is found, and one that it needs in turn is not: cuSPARSE and
        cuSOLVER, for instance, need libnvJitLink.so.12 of a package of its own.
        """,
        fix=("pip install {requirements}",),
        url=_INSTALLATION,
        find=_dependency_missing,
        cases=(
            RuleCase("nvJitLink", _evidence(_NVJITLINK)),
            RuleCase("it opens", _evidence(), fires=False),
            RuleCase(
                "nothing that is known is lacking",
                _evidence(msgspec.structs.replace(_NVJITLINK, lacks={})),
                fires=False,
            ),
        ),
    ),
    Rule(
        id="cudnn_too_old",
        stage=Stage.FIRST_OP,
        cause="cuDNN {found} is loaded {where} and TensorFlow needs {needed} or a later one of the same major version",
        why="""
        GPUs are listed and matrix products work; the first convolution or recurrent layer fails with "No DNN in stream
        executor". LD_LIBRARY_PATH comes before the folders of NVIDIA's packages, so a module, a base image or a toolkit
        that sets it supplies its own cuDNN; a framework that is imported before TensorFlow has loaded one already.
        """,
        fix=("{first}", "pip install {requirement}  # at least"),
        url="https://www.tensorflow.org/install/source#gpu",
        find=_cudnn_too_old,
        cases=(
            RuleCase("by LD_LIBRARY_PATH", _evidence(OLD_CUDNN)),
            RuleCase("by the package", _evidence(example_library(CUDNN, version="9.1.0"))),
            RuleCase("in the log of a program", _evidence(lines=(_OWN_WORDS,))),
            RuleCase("new enough", _evidence(example_library(CUDNN, version="9.3.0")), fires=False),
            RuleCase("it does not open", _evidence(msgspec.structs.replace(OLD_CUDNN, error="no")), fires=False),
        ),
    ),
    Rule(
        id="older_library_first",
        stage=Stage.CONFIGURATION,
        cause="LD_LIBRARY_PATH supplies older copies ({names}, from {folders}) than this environment's own packages",
        why="""
        LD_LIBRARY_PATH comes before the folders of NVIDIA's packages. A shell profile, a module or a base image that
        sets it makes TensorFlow load the CUDA of the system, which may lack functions that TensorFlow was built with:
        that shows late, in a crash or an error of a single operation.
        """,
        fix=("export LD_LIBRARY_PATH={good}:$LD_LIBRARY_PATH", "# or take {folders} out of LD_LIBRARY_PATH"),
        url=_LOADER,
        find=_older_library_first,
        cases=tuple(
            RuleCase(
                name,
                _evidence(
                    example_library(
                        "libcublas.so.12",
                        path="/usr/local/cuda/lib64/libcublas.so.12",
                        source=source,
                        version=version,
                        owner=None,
                        copies=(
                            example_copy(
                                "libcublas.so.12",
                                f"{_SITE}/nvidia/cublas/lib",
                                "12.5.3.2",
                                "nvidia-cublas-cu12 12.5.3.2",
                            ),
                        )
                        if copied
                        else (),
                    )
                ),
                fires=fires,
            )
            for name, source, version, copied, fires in (
                ("cuBLAS 12.2", PATH, "12.2.5.6", True, True),
                ("the same version", PATH, "12.5.3.2", True, False),
                ("no package that it hides", PATH, "12.2.5.6", False, False),
                ("not by the variable", "ld.so.cache", "12.2.5.6", True, False),
            )
        ),
    ),
    Rule(
        id="other_soname",
        stage=Stage.LIBRARIES,
        cause="{path} is really {own}: a link made by hand, or a renamed file",
        why="""
        Forums advise to satisfy a missing library by a link from another release: `ln -s libcusolver.so.12
        libcusolver.so.11`. The number in the name is the promise of an interface: TensorFlow opens the file, and then
        finds functions missing or with other arguments. That ends in a crash, or in wrong results.
        """,
        fix=("{remove}", "pip install {requirement}"),
        url="https://tldp.org/HOWTO/Program-Library-HOWTO/shared-libraries.html",
        find=_other_soname,
        cases=(
            RuleCase("another release", _evidence(example_library(_CUSOLVER, own_soname="libcusolver.so.12"))),
            RuleCase("the right one", _evidence(), fires=False),
            RuleCase("a file without a name", _evidence(example_library(_CUSOLVER, own_soname=None)), fires=False),
            RuleCase(
                "another library altogether",
                _evidence(example_library(_CUSOLVER, own_soname="libz.so.1")),
            ),
        ),
    ),
    Rule(
        id="compute_library_missing",
        stage=Stage.DRIVER_LIBRARY,
        cause="the driver's compute library libcuda.so.1 {where}, though the driver's kernel module {module} runs",
        why="""
        Distributions split NVIDIA's driver into packages, and the one with libcuda.so.1 may be left out: a server or a
        desktop that only draws does without. nvidia-smi works, because it needs NVML alone; cuInit fails with "UNKNOWN
        ERROR (303)". The CUDA libraries that pip installs do not contain it, and must not: it belongs to the driver.
        """,
        fix=("{cure}",),
        url=INSTALLATION,
        find=_compute_library_missing,
        needs_gpu=False,
        cases=(
            RuleCase("NVML works", _without_compute()),
            RuleCase(
                "it is damaged", _without_compute(msgspec.structs.replace(_damaged(COMPUTE), instead=None, source=""))
            ),
            RuleCase("on Ubuntu", _without_compute(system=_UBUNTU)),
            RuleCase(
                "it is where the loader does not look",
                _without_compute(example_absent(COMPUTE, example_copy(COMPUTE, "/usr/local/nvidia/lib64"))),
            ),
            RuleCase("in a container: another rule", _without_compute(container=_DOCKER), fires=False),
            RuleCase("a damaged one comes first", _without_compute(_damaged(COMPUTE)), fires=False),
            RuleCase(
                "no module either",
                _without_compute(driver=DriverFacts(None, None, "not there", None), nvml=_NO_NVML),
                fires=False,
            ),
            RuleCase("it is here", _with_driver(NvmlFacts(None, "535.104.05", "12.2", ())), fires=False),
        ),
    ),
    Rule(
        id="nvml_missing",
        stage=Stage.NVML,
        cause="NVML (libnvidia-ml.so.1) is not here, and TensorFlow {tensorflow} lists no GPU without it",
        why="""
        Since 2.21 TensorFlow asks NVML before it lists GPUs. Where the library is missing it lists none and prints no
        line at all; 2.18 to 2.20 did without. The library belongs to the driver. In containers NVIDIA's runtime brings
        it with the capability `utility`: images that ask for `compute` alone do not get it.
        """,
        fix=("{cure}",),
        url=_TOOLKIT,
        find=_nvml_missing,
        needs_gpu=False,
        cases=(
            RuleCase("in a container", _with_driver(_NO_NVML, container=_DOCKER)),
            RuleCase("on a host", _with_driver(_NO_NVML)),
            RuleCase("TensorFlow 2.20", _with_driver(_NO_NVML, version="2.20.0"), fires=False),
            RuleCase("TensorFlow lists GPUs all the same", _with_driver(_NO_NVML, listed=1), fires=False),
            RuleCase(
                "no driver library either",
                _with_driver(_NO_NVML, driver=DriverFacts("535.104.05", None, "not there", None)),
                fires=False,
            ),
            RuleCase(
                "a damaged one comes first",
                _with_driver(_NO_NVML, libraries=example_facts(_damaged(NVML)).libraries),
                fires=False,
            ),
        ),
    ),
    Rule(
        id="nvml_fails",
        stage=Stage.NVML,
        cause="NVML does not start ({error}), and TensorFlow {tensorflow} lists no GPU without it",
        why="""
        Since 2.21 TensorFlow asks NVML before it lists GPUs. Where nvmlInit fails it lists none and prints no line at
        all. nvidia-smi fails with the same words: what makes it work makes TensorFlow work.
        """,
        fix=("{cure}", "nvidia-smi  # must work first"),
        url="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html",
        find=_nvml_fails,
        needs_gpu=False,
        cases=(
            RuleCase("unknown error", _with_driver(NvmlFacts("Unknown Error", None, None, ()))),
            RuleCase("driver not loaded", _with_driver(NvmlFacts("Driver Not Loaded", None, None, ()))),
            RuleCase("it answers", Evidence(example_with_gpus(2)), fires=False),
            RuleCase(
                "TensorFlow 2.20 does without",
                _with_driver(NvmlFacts("Unknown Error", None, None, ()), version="2.20.0"),
                fires=False,
            ),
            RuleCase(
                "versions of the driver differ: another rule",
                _with_driver(NvmlFacts("Driver/library version mismatch", None, None, ())),
                fires=False,
            ),
        ),
    ),
    Rule(
        id="libdevice_missing",
        stage=Stage.FIRST_OP,
        cause="XLA finds no libdevice.10.bc, which it needs to compile for the GPU",
        why="""
        XLA compiles models for the GPU where Keras or the program asks for it (jit_compile, which Keras 3 sets by
        itself on GPUs), and needs NVIDIA's library of mathematical functions. It comes with nvcc, not with the CUDA
        libraries, and XLA looks in /usr/local/cuda, in the package nvidia-cuda-nvcc-cu12 and where XLA_FLAGS says;
        since 2.21 also in CUDA_HOME and in the environment itself, but not where apt puts it. GPUs are listed and plain
        operations work; the first `fit` fails.
        """,
        fix=("{first}", "{second}"),
        url="https://github.com/tensorflow/tensorflow/issues/58681",
        find=_libdevice_missing,
        cases=(
            RuleCase("packages without nvcc", Evidence(example_without_libdevice())),
            RuleCase(
                "in conda's folder",
                Evidence(example_without_libdevice(libdevice_elsewhere=("/opt/conda/nvvm/libdevice/libdevice.10.bc",))),
            ),
            RuleCase(
                "in the log of a program",
                _evidence(lines=("INTERNAL: libdevice not found at ./libdevice.10.bc",)),
            ),
            RuleCase("it is there", _evidence(), fires=False),
            RuleCase(
                "CUDA of unknown origin",
                Evidence(example_without_libdevice(example_library(RUNTIME, path=f"/srv/lib/{RUNTIME}", owner=None))),
                fires=False,
            ),
        ),
    ),
)
