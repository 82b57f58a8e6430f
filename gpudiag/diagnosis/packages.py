"""TensorFlow as it is installed: none, several, without CUDA, or beside packages that take its libraries away."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

import msgspec

from gpudiag.diagnosis.rule import TRACE, Evidence, Match, Rule, RuleCase
from gpudiag.hostfacts import (
    Distribution,
    EnvironmentFacts,
    Facts,
    Family,
    SystemFacts,
    TensorflowBuild,
    TensorflowFacts,
    Unknown,
    example,
    example_with_gpus,
)
from gpudiag.knowledge.log import MODULE_LACKS, NOT_TENSORFLOW
from gpudiag.log import Log
from gpudiag.model import Broken, Cause, Judged, Limits, Row, Stage, Sure
from gpudiag.probes.host import packages as host_packages
from gpudiag.probes.host import tensorflow as host_tensorflow
from gpudiag.probes.host.packages import example_packages, folder, out_of_range, sharing_a_folder, wanted

_INSTALLATION = "https://www.tensorflow.org/install/pip"
_PLUGIN = "tensorflow-plugins"
_PATH = "PYTHONPATH"
_OF_AN_IMPORT = (Cause.EXCEPTION, Cause.SIGNAL)


def _installed(facts: Facts) -> TensorflowFacts | None:
    return None if isinstance(facts.tensorflow, Unknown) else facts.tensorflow


def _has_cuda(facts: Facts) -> bool | None:
    """Return whether TensorFlow is built with CUDA; None where that is not known."""
    installed = _installed(facts)
    return None if installed is None or installed.build is None else installed.build.cuda


def _import_error(evidence: Evidence) -> str | None:
    """Return how ``import tensorflow`` ended, where it failed."""
    for row in evidence.rows:
        if row.probe == TRACE and (crash := row.crash) is not None and crash.cause in _OF_AN_IMPORT:
            return f"{crash.cause.value}: {crash.detail}"
    return None


def _names(installed: TensorflowFacts) -> str:
    return " ".join(dict.fromkeys(one.name for one in installed.distributions))


def _chosen(installed: TensorflowFacts) -> Distribution:
    """Return the distribution to keep: the one with CUDA, where it is among them; one of no version for none."""
    named = [one for one in installed.distributions if one.name in ("tensorflow", "tf-nightly")]
    return next(iter((*named, *installed.distributions)), Distribution("tensorflow", "", ""))


def _shown(installed: TensorflowFacts) -> Iterator[str]:
    for one in installed.distributions:
        yield f"{one.name} {one.version} in {one.location}"


def _reinstall(installed: TensorflowFacts) -> dict[str, str | int | float | bool | None]:
    one = _chosen(installed)
    listed = host_tensorflow.providers_of(installed) or installed.distributions  # those elsewhere overwrite nothing
    name = "tensorflow" if one.name.startswith(("tensorflow-cpu", "tensorflow-gpu", "tensorflow-intel")) else one.name
    return {
        "names": _names(installed),
        "listed": " and ".join(dict.fromkeys(f"{one.name} {one.version}" for one in listed)),
        "with_cuda": f"{name}[and-cuda]" + (f"=={one.version}" if one.version else ""),
    }


def _tensorflow_missing(evidence: Evidence) -> Iterator[Match]:
    if evidence.found("host.tensorflow", "missing"):
        system = evidence.facts.system
        executable = "python" if isinstance(system, Unknown) else system.executable
        yield Match((f"{executable} finds no module tensorflow",), figures={"executable": executable})


def _files_deleted(evidence: Evidence) -> Iterator[Match]:
    installed = _installed(evidence.facts)
    if installed is not None and evidence.found("host.tensorflow", "damaged"):
        yield Match((*_shown(installed), "no file tensorflow/__init__.py"), figures=_reinstall(installed))


def _shadowed(evidence: Evidence) -> Iterator[Match]:
    installed = _installed(evidence.facts)
    if installed is None:
        return
    module, sure = installed.module_path, Sure.PROVED
    path = host_tensorflow.shadowing(installed) if evidence.found("host.tensorflow", "shadowed") else None
    said: tuple[str, ...] = ()
    if path is None and evidence.found("host.tensorflow", "hidden_here"):
        # gpudiag is not started from the program's folder: that the program took it, its log must show.
        module, sure = installed.in_working_directory, Sure.LIKELY
        said = evidence.program.said(NOT_TENSORFLOW, most=1)
        path = host_tensorflow.of_module(module) if module and said else None
    if path is None:
        return
    folder = PurePath(path).parent
    entries = evidence.facts.variables.get(_PATH, "").split(":")
    do = _off_the_path(evidence, folder)
    yield Match(
        evidence=(
            f"import tensorflow takes {module}",
            *said,
            f"TensorFlow: {host_tensorflow.hidden(installed)}",
            *([f"{_PATH}={':'.join(entries)}"] if do else []),
        ),
        sure=sure,
        figures={
            "path": path,
            "new": str(PurePath(path).parent / f"my_{PurePath(path).name}"),
            "folder": str(folder),
            "elsewhere": do or f"# or run the program in another folder than {folder}: Python looks there first",
        },
    )


def _rest_of_path(evidence: Evidence, folder: PurePath) -> str | None:
    """Return what of PYTHONPATH is left without ``folder``; None where it is not there."""
    entries = evidence.facts.variables.get(_PATH, "").split(":")
    rest = [entry for entry in entries if PurePath(entry) != folder]
    return ":".join(rest) if len(rest) < len(entries) else None


def _off_the_path(evidence: Evidence, folder: PurePath) -> str:
    rest = _rest_of_path(evidence, folder)
    if rest is None:
        return ""
    return (f"export {_PATH}={rest}" if rest else f"unset {_PATH}") + "  # instead"


_FILE = re.compile(r"(?:File \"|consider renaming ')(?P<file>/[^\"']+\.py)[\"']")
_INSTALLED = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python[\d.]+/")


def _module_shadowed(evidence: Evidence) -> Iterator[Match]:
    installed, error = _installed(evidence.facts), _import_error(evidence)
    found = Log((error,)).first(MODULE_LACKS) if error else None
    if installed is None or found is None or error is None:
        return
    name = found["module"].partition(".")[0]
    log = [line for row in evidence.rows if row.probe == TRACE for line in row.log]
    told = [hit["file"] for line in (error, *log) for hit in _FILE.finditer(line)]
    named = [file for file in told if PurePath(host_tensorflow.of_module(file)).stem == name]
    file = found["file"] or next(iter(named), None) or installed.outside.get(name)
    if name == "tensorflow" or file is None or _INSTALLED.search(file):
        return
    path = host_tensorflow.of_module(file)
    if PurePath(path).stem != name:  # a module below it: the folder of the package is not known
        return
    folder = PurePath(path).parent
    rest = _rest_of_path(evidence, folder)
    real = next((one for one in installed.companions if one.name.replace("-", "_") == name), None)
    yield Match(
        evidence=(
            f"import tensorflow: {error}",
            f"import {name} takes {file}",
            *([f"{real.name} {real.version} is in {real.location}"] if real else []),
            *([f"{_PATH}={evidence.facts.variables[_PATH]}"] if rest is not None else []),
        ),
        sure=Sure.LIKELY,
        figures={
            "name": name,
            "path": path,
            "new": str(PurePath(path).parent / f"my_{PurePath(path).name}"),
            "elsewhere": _off_the_path(evidence, folder)
            or f"# or run the program in another folder than {folder}: Python looks there first",
        },
    )


def _mixture_breaks_import(evidence: Evidence) -> Iterator[Match]:
    installed, error = _installed(evidence.facts), _import_error(evidence)
    if installed is not None and error is not None and evidence.found("host.tensorflow", "several"):
        seen = (*_shown(installed), *_overwritten(installed), f"import tensorflow: {error}")
        yield Match(seen, _sure_of_mixture(installed), figures=_reinstall(installed))


def _distributions_mixed(evidence: Evidence) -> Iterator[Match]:
    installed = _installed(evidence.facts)
    if installed is not None and _import_error(evidence) is None and evidence.found("host.tensorflow", "several"):
        build = f"is_cuda_build of the files in use: {_has_cuda(evidence.facts)}"
        seen = (*_shown(installed), *_overwritten(installed), build)
        yield Match(seen, _sure_of_mixture(installed), figures=_reinstall(installed))


def _overwritten(installed: TensorflowFacts) -> Iterator[str]:
    for name, files in installed.overwritten.items():
        yield from (f"{file} is not the file that {name} installed" for file in files)


def _sure_of_mixture(installed: TensorflowFacts) -> Sure:
    """Metadata of several distributions may be a leftover: what the files are decides, where it is known."""
    if any(installed.overwritten.values()):
        return Sure.PROVED
    compared = {one.name for one in installed.distributions} <= set(installed.overwritten)
    return Sure.POSSIBLE if compared else Sure.LIKELY


def _files_overwritten(evidence: Evidence) -> Iterator[Match]:
    installed = _installed(evidence.facts)
    several = evidence.found("host.tensorflow", "several")  # then another rule tells it
    if installed is not None and installed.distributions and evidence.found("host.packages", "altered") and not several:
        seen = (*_shown(installed), *(f"{file} is not the file that it installed" for file in installed.altered))
        own = installed.distributions[0]
        build = f"is_cuda_build of the files in use: {_has_cuda(evidence.facts)}"
        yield Match((*seen, build), figures={"name": own.name, "version": own.version})


def _is_plain_cpu_build(evidence: Evidence) -> TensorflowFacts | None:
    """Return what is installed where it is one whole distribution without CUDA."""
    found = [("host.tensorflow", "several"), ("host.packages", "altered")]
    installed = _installed(evidence.facts)
    if installed is None or _has_cuda(evidence.facts) is not False or any(evidence.found(*one) for one in found):
        return None
    return installed if installed.distributions else None


def _build_without_cuda(evidence: Evidence) -> Iterator[Match]:
    installed = _is_plain_cpu_build(evidence)
    if installed is None or _system(evidence).os.startswith("Windows") or _system(evidence).machine == "aarch64":
        return
    variables = evidence.facts.variables
    own = installed.distributions[0]
    conda = variables.get("CONDA_PREFIX")
    first = f"pip uninstall -y {_names(installed)}"
    if conda and own.name == "tensorflow" and own.location.startswith(conda):
        first = "conda install 'tensorflow=*=cuda*'  # conda chose the build for the CPU"
    yield Match(
        evidence=(*_shown(installed), "is_cuda_build is False"),
        figures={**_reinstall(installed), "own": f"{own.name} {own.version}", "first": first},
    )


def _aarch64_without_cuda(evidence: Evidence) -> Iterator[Match]:
    installed = _is_plain_cpu_build(evidence)
    if installed is None or _system(evidence).machine != "aarch64":
        return
    packages = [one.name for one in installed.companions if one.name.startswith("nvidia-")]
    if not packages and not evidence.facts.nvml_devices:
        return
    own = installed.distributions[0]
    useless = [f"{len(packages)} packages of NVIDIA beside it, of no use to it"] if packages else []
    yield Match(
        evidence=(*_shown(installed), "machine aarch64", "is_cuda_build is False", *useless),
        figures={"own": f"{own.name} {own.version}"},
    )


def _windows_without_cuda(evidence: Evidence) -> Iterator[Match]:
    installed = _is_plain_cpu_build(evidence)
    if installed is None or not _system(evidence).os.startswith("Windows"):
        return
    own = installed.distributions[0]
    release = re.match(r"(\d+)\.(\d+)", own.version)
    if release is None or (int(release[1]), int(release[2])) < (2, 11):
        return
    yield Match(
        evidence=(_system(evidence).os, *_shown(installed), "is_cuda_build is False"),
        figures={"own": f"{own.name} {own.version}"},
    )


def _system(evidence: Evidence) -> SystemFacts:
    system = evidence.facts.system
    return _NO_SYSTEM if isinstance(system, Unknown) else system


_NO_SYSTEM = SystemFacts("", "", "", "", "", "", "", "", "", "", 0, 0, False)


def _directml(evidence: Evidence) -> Iterator[Match]:
    installed = _installed(evidence.facts)
    if installed is None:
        return
    for finding in evidence.found("host.packages", "directml"):
        error = _import_error(evidence)
        yield Match(
            evidence=(
                f"{finding.figures['plugin']} {finding.figures['found']}",
                *_shown(installed),
                *installed.plugins,
                *([f"import tensorflow: {error}"] if error else []),
            ),
            figures={"plugin": finding.figures["plugin"], "version": finding.figures["version"]},
        )


def _plugin_breaks_import(evidence: Evidence) -> Iterator[Match]:
    installed, error = _installed(evidence.facts), _import_error(evidence)
    if installed is None or error is None or not installed.plugins:
        return
    told = [error, *(line for row in evidence.rows if row.probe == TRACE for line in row.log)]
    guilty = next((file for file in installed.plugins if any(file in line for line in told)), None)
    if guilty is None:
        return
    owners = " ".join(one.name for one in installed.plugin_distributions)
    yield Match(
        evidence=(f"import tensorflow: {error}", f"plug-in {guilty}", *(owners.split())),
        figures={"file": guilty, "remove": f"pip uninstall -y {owners}" if owners else f"rm {guilty}"},
    )


def _package_out_of_range(evidence: Evidence) -> Iterator[Match]:
    installed = _installed(evidence.facts)
    if installed is None or not evidence.found("host.packages", "out_of_range"):
        return
    wrong = list(out_of_range(installed))
    yield Match(
        evidence=tuple(f"{one.name} {one.version}, TensorFlow asks for {installed.ranges[one.name]}" for one in wrong)
        + _beside(installed),
        figures={
            "packages": ", ".join(f"{one.name} {one.version}" for one in wrong),
            "requirements": " ".join(f"'{one.name}{installed.ranges[one.name]}'" for one in wrong),
            "with_cuda": _reinstall(installed)["with_cuda"],
        },
    )


def _packages_share_a_folder(evidence: Evidence) -> Iterator[Match]:
    installed = _installed(evidence.facts)
    if installed is None or not evidence.found("host.packages", "shared_folder"):
        return
    pairs = list(sharing_a_folder(installed))
    yield Match(
        evidence=tuple(f"{folder(pair[0])}: {' and '.join(f'{o.name} {o.version}' for o in pair)}" for pair in pairs)
        + _beside(installed),
        figures={
            "packages": ", ".join(one.name for pair in pairs for one in pair),
            "names": " ".join(one.name for pair in pairs for one in pair),
            "wanted": " ".join(f"'{wanted(installed, pair)}'" for pair in pairs),
            "with_cuda": _reinstall(installed)["with_cuda"],
        },
    )


def _beside(installed: TensorflowFacts) -> tuple[str, ...]:
    return tuple(f"{one.name} {one.version} is installed beside it" for one in installed.frameworks)


# Cases.

_SITE = "/home/someone/venv/lib/python3.11/site-packages"
_CPU = TensorflowBuild(False, None, None, ())
_TWO = (Distribution("tensorflow", "2.21.0", _SITE), Distribution("tensorflow-cpu", "2.21.0", _SITE))
_ONLY_CPU = (Distribution("tensorflow-cpu", "2.21.0", _SITE),)
_BROKEN_IMPORT = Row(TRACE, (), Broken(Cause.EXCEPTION, "AttributeError: module has no attribute 'config'"), 0.0)
_BUILD_INFO = "tensorflow/python/platform/build_info.py"
_NO_TYPING = "ImportError: cannot import name 'typing' from 'numpy' (/home/someone/project/numpy.py)"
_NO_ARRAY = "AttributeError: module 'numpy' has no attribute 'array'"
_DML = f"{_SITE}/{_PLUGIN}/libtfdml_plugin.so"
_BROKEN_BY_PLUGIN = Row(TRACE, (), Broken(Cause.EXCEPTION, f"NotFoundError: {_DML}: undefined symbol"), 0.0)


def _shadowing(error: str, *log: str) -> Row:
    return Row(TRACE, (), Broken(Cause.EXCEPTION, f"import tensorflow raised {error}"), 0.0, log=log)


def _judged(facts: Facts, *rows: Row) -> Evidence:
    """Return evidence with the findings of the host probes that the rules build on."""
    judges = {"host.tensorflow": host_tensorflow.judge, "host.packages": host_packages.judge}
    host = [Row(name, (), Judged(tuple(judge(facts, Limits()))), 0.0) for name, judge in judges.items()]
    return Evidence(facts, rows=(*host, *rows))


def _with(
    *rows: Row,
    gpus: int = 1,
    system: dict[str, str] | None = None,
    variables: dict[str, str] | None = None,
    **changes: object,
) -> Evidence:
    families: dict[str, Family] = {
        "tensorflow": msgspec.structs.replace(example_packages(), **changes),
        "environment": EnvironmentFacts(variables or {}),
    }
    if system is not None:
        ordinary = example().system
        assert isinstance(ordinary, SystemFacts)
        families["system"] = msgspec.structs.replace(ordinary, **system)
    return _judged(example_with_gpus(gpus, **families) if gpus else example(**families), *rows)


def _hiding(*log: str) -> Evidence:
    """Return a machine whose working directory has a module of TensorFlow's name, and the log of a program."""
    found = _with(in_working_directory="/home/someone/project/tensorflow/__init__.py")
    return Evidence(found.facts, rows=found.rows, lines=log)


_NO_CONFIG = "AttributeError: module 'tensorflow' has no attribute 'config'"
_NVIDIA = (Distribution("nvidia-cudnn-cu12", "9.10.2.21", _SITE),)
_WINDOWS = {"os": "Windows 10.0.26100", "machine": "AMD64"}
_INTEL = (Distribution("tensorflow-intel", "2.18.0", _SITE),)
_OF_2_10 = (Distribution("tensorflow", "2.10.1", _SITE),)
_DIRECTML = (Distribution("tensorflow-directml-plugin", "0.4.0.dev230202", _SITE),)

RULES = (
    Rule(
        id="tensorflow_missing",
        stage=Stage.PACKAGE,
        cause="TensorFlow is not installed for {executable}",
        why="""
        A virtual environment that is not activated, or a notebook whose kernel is another Python than the one that pip
        installed into, has no TensorFlow: the interpreter that runs the program counts.
        """,
        fix=("{executable} -m pip install 'tensorflow[and-cuda]'",),
        url=_INSTALLATION,
        find=_tensorflow_missing,
        cases=(
            RuleCase("no module", _with(module_path=None, distributions=(), build=None)),
            RuleCase("installed", _with(), fires=False),
            RuleCase("its files are gone", _with(module_path=None, build=None), fires=False),
        ),
    ),
    Rule(
        id="files_deleted",
        stage=Stage.PACKAGE,
        cause="{listed} is registered as installed, and its files are gone",
        why="""
        tensorflow, tensorflow-cpu, tf-nightly and others all install the folder `tensorflow`. Uninstalling one of them
        deletes the files of the other. What is left is a folder without __init__.py: `import tensorflow` still works,
        and everything fails with "module 'tensorflow' has no attribute ...".
        """,
        fix=("pip uninstall -y {names}", "pip install --force-reinstall '{with_cuda}'"),
        url=_INSTALLATION,
        find=_files_deleted,
        needs_gpu=False,
        cases=(
            RuleCase("after the removal of another", _with(module_path=None, build=None)),
            RuleCase("whole", _with(), fires=False),
            RuleCase("not installed", _with(module_path=None, distributions=(), build=None), fires=False),
        ),
    ),
    Rule(
        id="tensorflow_shadowed",
        stage=Stage.PACKAGE,
        cause="{path} is imported in TensorFlow's place, because it has the same name and comes first",
        why="""
        Python takes the first module of a name on sys.path: the folder of the program (with `python -m` and in
        notebooks the working directory), then PYTHONPATH, and the installed packages last. A file tensorflow.py of
        one's own, a folder tensorflow for data, or a checkout of TensorFlow's sources hides the package. What follows
        is "module 'tensorflow' has no attribute ...", "partially initialized module" or an ImportError.
        """,
        fix=("mv {path} {new}", "{elsewhere}"),
        url="https://docs.python.org/3/library/sys_path_init.html",
        find=_shadowed,
        needs_gpu=False,
        cases=(
            RuleCase("a folder", _with(module_path="/home/someone/project/tensorflow/__init__.py", build=None)),
            RuleCase("a file", _with(module_path="/home/someone/project/tensorflow.py", build=None)),
            RuleCase(
                "on PYTHONPATH",
                _with(
                    module_path="/home/someone/project/tensorflow/__init__.py",
                    build=None,
                    variables={_PATH: "/opt/lib:/home/someone/project/"},
                ),
            ),
            RuleCase("in the working directory, by the log", _hiding(_NO_CONFIG)),
            RuleCase("in the working directory alone", _hiding(), fires=False),
            RuleCase("by the log alone", Evidence(example(), lines=(_NO_CONFIG,)), fires=False),
            RuleCase("the package", _with(), fires=False),
            RuleCase("the package, its build not known", _with(build=None), fires=False),
            RuleCase("a build of one's own", _with(module_path="/src/tensorflow/__init__.py"), fires=False),
        ),
    ),
    Rule(
        id="module_shadowed",
        stage=Stage.PACKAGE,
        cause="TensorFlow cannot be imported, because {path} is imported in the place of {name}",
        why="""
        Python takes the first module of a name on sys.path: the folder of the program, then PYTHONPATH, then its own
        modules and the installed packages. A file numpy.py, keras.py, random.py or logging.py of one's own hides the
        module that TensorFlow, or a package that it needs, asks for. The error names what that file does not have.
        """,
        fix=("mv {path} {new}", "{elsewhere}"),
        url="https://docs.python.org/3/library/sys_path_init.html",
        find=_module_shadowed,
        needs_gpu=False,
        cases=(
            RuleCase("its file is named", _with(_shadowing(_NO_TYPING), variables={_PATH: "/home/someone/project"})),
            RuleCase("in the traceback", _with(_shadowing(_NO_ARRAY, '  File "/home/someone/numpy.py", line 1'))),
            RuleCase("found there", _with(_shadowing(_NO_ARRAY), outside={"numpy": "/home/someone/numpy.py"})),
            RuleCase("a folder", _with(_shadowing(_NO_TYPING.replace("numpy.py", "numpy/__init__.py")))),
            RuleCase("a module of Python's", _with(_shadowing(_NO_TYPING.replace("numpy", "logging")))),
            RuleCase("not known where", _with(_shadowing(_NO_ARRAY)), fires=False),
            RuleCase(
                "in its place",
                _with(_shadowing(_NO_TYPING.replace("/home/someone/project", f"{_SITE}/numpy"))),
                fires=False,
            ),
            RuleCase("another error", _with(_BROKEN_IMPORT, outside={"numpy": "/src/numpy/__init__.py"}), fires=False),
            RuleCase("the import works", _with(outside={"numpy": "/src/numpy/__init__.py"}), fires=False),
        ),
    ),
    Rule(
        id="mixture_breaks_import",
        stage=Stage.PACKAGE,
        cause="{listed} have overwritten each other's files, and TensorFlow cannot be imported",
        why="""
        tensorflow, tensorflow-cpu, tf-nightly and others all install the folder `tensorflow`. Of two releases the files
        that only one has stay, and fit those of the other or not.
        """,
        fix=("pip uninstall -y {names}", "pip install --force-reinstall '{with_cuda}'"),
        url=_INSTALLATION,
        find=_mixture_breaks_import,
        needs_gpu=False,
        cases=(
            RuleCase("it cannot be imported", _with(_BROKEN_IMPORT, distributions=_TWO)),
            RuleCase("it can", _with(distributions=_TWO), fires=False),
            RuleCase("one distribution", _with(_BROKEN_IMPORT), fires=False),
        ),
    ),
    Rule(
        id="distributions_mixed",
        stage=Stage.BUILD,
        cause="{listed} install the same folder, and the one installed last has overwritten the other",
        why="""
        tensorflow, tensorflow-cpu, tf-nightly and others all install the folder `tensorflow`. Most often another
        package asks for tensorflow-cpu: its files replace those of the build with CUDA, no GPU is listed, and not one
        line says why. Uninstalling only one of them deletes files of the other: remove all, then install one.
        """,
        fix=("pip uninstall -y {names}", "pip install --force-reinstall '{with_cuda}'"),
        url=_INSTALLATION,
        find=_distributions_mixed,
        cases=(
            RuleCase("tensorflow-cpu over tensorflow", _with(distributions=_TWO, build=_CPU)),
            RuleCase("the other way round", _with(distributions=_TWO)),
            RuleCase("by the files, too", _with(distributions=_TWO, overwritten={"tensorflow": (_BUILD_INFO,)})),
            RuleCase(
                "a third elsewhere", _with(distributions=(*_TWO, Distribution("tensorflow", "2.20.0", "/usr/lib")))
            ),
            RuleCase("one distribution", _with(), fires=False),
            RuleCase(
                "the other elsewhere on sys.path",
                _with(distributions=(_TWO[0], Distribution("tensorflow-cpu", "2.21.0", "/usr/lib"))),
                fires=False,
            ),
        ),
    ),
    Rule(
        id="files_overwritten",
        stage=Stage.BUILD,
        cause="files of {name} {version} were overwritten by another distribution",
        why="""
        pip recorded the hash of each file that it installed, and files of TensorFlow no longer have theirs. A
        distribution with the same folder was installed over it and its metadata is gone, or somebody edited them.
        """,
        fix=("pip install --force-reinstall --no-deps {name}=={version}",),
        url=_INSTALLATION,
        find=_files_overwritten,
        cases=(
            RuleCase("the build description", _with(altered=(_BUILD_INFO,), build=_CPU)),
            RuleCase(
                "by one that is known: another rule",
                _with(altered=(_BUILD_INFO,), distributions=_TWO, build=_CPU),
                fires=False,
            ),
            RuleCase("as installed", _with(), fires=False),
        ),
    ),
    Rule(
        id="build_without_cuda",
        stage=Stage.BUILD,
        cause="{own} is a build without CUDA, which never looks for a GPU",
        why="""
        tensorflow-cpu, and builds for the CPU of conda and others, list no GPU, and print not one line about it.
        tf.test.is_built_with_cuda() is False there.
        """,
        fix=("{first}", "pip install '{with_cuda}'"),
        url=_INSTALLATION,
        find=_build_without_cuda,
        cases=(
            RuleCase("tensorflow-cpu", _with(distributions=_ONLY_CPU, build=_CPU)),
            RuleCase("with CUDA", _with(), fires=False),
            RuleCase("not known", _with(build=None), fires=False),
            RuleCase("overwritten: another rule", _with(distributions=_TWO, build=_CPU), fires=False),
            RuleCase("on aarch64: another rule", _with(build=_CPU, system={"machine": "aarch64"}), fires=False),
            RuleCase("under Windows: another rule", _with(build=_CPU, system=_WINDOWS), fires=False),
        ),
    ),
    Rule(
        id="aarch64_without_cuda",
        stage=Stage.BUILD,
        cause="{own} is the aarch64 wheel, which is built without CUDA",
        why="""
        The aarch64 wheels on PyPI are for the CPU. The extra [and-cuda] installs gigabytes of NVIDIA's packages beside
        them all the same, and none of them is ever opened: no path and no driver is at fault.
        """,
        fix=(
            "docker run --gpus all -it nvcr.io/nvidia/tensorflow:25.02-tf2-py3  # NVIDIA's container",
            "# on Jetson: NVIDIA's wheels for JetPack; otherwise build TensorFlow from source with --config=cuda",
        ),
        url="https://docs.nvidia.com/deeplearning/frameworks/tensorflow-release-notes/",
        find=_aarch64_without_cuda,
        needs_gpu=False,
        cases=(
            RuleCase("with a GPU", _with(build=_CPU, system={"machine": "aarch64"})),
            RuleCase(
                "NVML silent", _with(gpus=0, build=_CPU, companions=(), system={"machine": "aarch64"}), fires=False
            ),
            RuleCase("x86-64", _with(build=_CPU), fires=False),
            RuleCase("a build with CUDA", _with(system={"machine": "aarch64"}), fires=False),
        ),
    ),
    Rule(
        id="windows_without_cuda",
        stage=Stage.BUILD,
        cause="{own} runs natively under Windows, where TensorFlow has no GPU support since 2.11",
        why="""
        2.10 was the last release with CUDA for native Windows. Later ones install tensorflow-intel, list no GPU and
        print no line about CUDA. Neither a driver nor a CUDA toolkit for Windows changes that.
        """,
        fix=(
            "wsl --install  # in PowerShell",
            "pip install 'tensorflow[and-cuda]'  # in WSL",
            "pip install 'tensorflow<2.11'  # instead, with Python 3.10, CUDA 11.2 and cuDNN 8.1",
        ),
        url="https://www.tensorflow.org/install/pip#windows-native",
        find=_windows_without_cuda,
        cases=(
            RuleCase("2.18", _with(distributions=_INTEL, build=_CPU, system=_WINDOWS)),
            RuleCase("2.10", _with(distributions=_OF_2_10, build=_CPU, system=_WINDOWS), fires=False),
            RuleCase("Linux", _with(distributions=_ONLY_CPU, build=_CPU), fires=False),
            RuleCase("a build with CUDA", _with(system=_WINDOWS), fires=False),
        ),
    ),
    Rule(
        id="directml_plugin",
        stage=Stage.BUILD,
        cause="{plugin} is for TensorFlow 2.10 alone, and {version} is installed",
        why="""
        The development of the DirectML plug-in has stopped. It asks for tensorflow-cpu 2.10 (Python 3.10 at the
        latest): with a later TensorFlow the import fails at its library in the folder tensorflow-plugins, or no
        device appears.
        """,
        fix=(
            "pip uninstall -y {plugin}",
            "pip install 'tensorflow[and-cuda]'  # in WSL2, for NVIDIA GPUs under Windows",
            "pip install tensorflow-cpu==2.10.1  # instead, to keep the plug-in",
        ),
        url="https://github.com/microsoft/tensorflow-directml-plugin",
        find=_directml,
        needs_gpu=False,
        cases=(
            RuleCase("beside 2.21", _with(plugin_distributions=_DIRECTML)),
            RuleCase("beside 2.10", _with(plugin_distributions=_DIRECTML, distributions=_OF_2_10), fires=False),
            RuleCase("not installed", _with(), fires=False),
        ),
    ),
    Rule(
        id="plugin_breaks_import",
        stage=Stage.PACKAGE,
        cause="TensorFlow cannot be imported, because of the plug-in {file}",
        why="""
        `import tensorflow` loads every library in the folder tensorflow-plugins of site-packages. One that was made for
        another release of TensorFlow, or that its distribution left behind, ends the import in a NotFoundError.
        """,
        fix=("{remove}",),
        url="https://github.com/tensorflow/community/blob/master/rfcs/20200624-pluggable-device-for-tensorflow.md",
        find=_plugin_breaks_import,
        needs_gpu=False,
        cases=(
            RuleCase("the import fails in it", _with(_BROKEN_BY_PLUGIN, plugins=(_DML,))),
            RuleCase("the import works", _with(plugins=(_DML,)), fires=False),
            RuleCase("the import fails elsewhere", _with(_BROKEN_IMPORT, plugins=(_DML,)), fires=False),
            RuleCase("no plug-in", _with(_BROKEN_BY_PLUGIN), fires=False),
        ),
    ),
    Rule(
        id="package_out_of_range",
        stage=Stage.CONFIGURATION,
        cause="{packages} is not in the range that TensorFlow's metadata asks for",
        why="""
        PyTorch pins each of NVIDIA's packages exactly, JAX and others have ranges of their own. Whatever is installed
        last replaces the libraries that TensorFlow was tested with; pip says so in one line that scrolls away. What
        comes of it depends on the library: a crash, a failing operation, or nothing.
        """,
        fix=(
            "pip install {requirements}",
            "python -m venv tf && tf/bin/pip install '{with_cuda}'  # where another framework needs the other version",
        ),
        url="https://pip.pypa.io/en/stable/topics/dependency-resolution/",
        find=_package_out_of_range,
        cases=(
            RuleCase("cuDNN 8", _with(companions=(Distribution("nvidia-cudnn-cu12", "8.9.2.26", _SITE),))),
            RuleCase("in range", _with(companions=_NVIDIA), fires=False),
            RuleCase("of no concern to TensorFlow", _with(companions=_NVIDIA, ranges={}), fires=False),
        ),
    ),
    Rule(
        id="packages_share_a_folder",
        stage=Stage.CONFIGURATION,
        cause="{packages} install the same folder: what TensorFlow opens is of the one that was installed last",
        why="""
        nvidia-cudnn-cu12 and nvidia-cudnn-cu13 both install nvidia/cudnn; NCCL and others do likewise. A framework for
        CUDA 13 beside TensorFlow, which needs CUDA 12, replaces the library in place. Uninstalling one of them deletes
        the files of the other.
        """,
        fix=(
            "python -m venv tf && tf/bin/pip install '{with_cuda}'",
            "pip uninstall -y {names}; pip install --force-reinstall --no-deps {wanted}  # or here",
        ),
        url="https://github.com/pytorch/pytorch/issues/119989",
        find=_packages_share_a_folder,
        cases=(
            RuleCase("cuDNN", _with(companions=(*_NVIDIA, Distribution("nvidia-cudnn-cu13", "9.13.0.50", _SITE)))),
            RuleCase("one of them", _with(companions=_NVIDIA), fires=False),
            RuleCase(
                "different libraries",
                _with(companions=(*_NVIDIA, Distribution("nvidia-nccl-cu13", "2.27.7", _SITE))),
                fires=False,
            ),
        ),
    ),
)
