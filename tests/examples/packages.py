"""Examples of causes: TensorFlow as it is installed."""

from __future__ import annotations

import msgspec

from examples import Example
from examples.facts import example, example_with_gpus
from examples.hosts.packages import example_packages
from gpudiag.cause import TRACE, Evidence
from gpudiag.causes.shared.packages import PATH
from gpudiag.model.facts import (
    Distribution,
    EnvironmentFacts,
    FactFamily,
    FileFault,
    FileState,
    LibraryFacts,
    Requirement,
    SystemFacts,
    TensorflowBuild,
)
from gpudiag.model.report import Broken, NoReading, Row

_PLUGIN = "tensorflow-plugins"
_SITE = "/home/someone/venv/lib/python3.11/site-packages"
_CPU = TensorflowBuild(False, None, None, ())
_TWO = (Distribution("tensorflow", "2.21.0", _SITE), Distribution("tensorflow-cpu", "2.21.0", _SITE))
_ONLY_CPU = (Distribution("tensorflow-cpu", "2.21.0", _SITE),)
_BROKEN_IMPORT = Row(TRACE, (), Broken(NoReading.EXCEPTION, "AttributeError: module has no attribute 'config'"), 0.0)
_BUILD_INFO = "tensorflow/python/platform/build_info.py"
_NO_TYPING = "ImportError: cannot import name 'typing' from 'numpy' (/home/someone/project/numpy.py)"
_NO_ARRAY = "AttributeError: module 'numpy' has no attribute 'array'"
_DML = f"{_SITE}/{_PLUGIN}/libtfdml_plugin.so"
_BROKEN_BY_PLUGIN = Row(TRACE, (), Broken(NoReading.EXCEPTION, f"NotFoundError: {_DML}: undefined symbol"), 0.0)


def _shadowing(error: str, *log: str) -> Row:
    return Row(TRACE, (), Broken(NoReading.EXCEPTION, f"import tensorflow raised {error}"), 0.0, log=log)


def _with(
    *rows: Row,
    gpus: int = 1,
    system: dict[str, str] | None = None,
    variables: dict[str, str] | None = None,
    **changes: object,
) -> Evidence:
    families: dict[str, FactFamily] = {
        "tensorflow": msgspec.structs.replace(example_packages(), **changes),
        "environment": EnvironmentFacts(variables or {}),
    }
    if system is not None:
        ordinary = example().system
        assert isinstance(ordinary, SystemFacts)
        families["system"] = msgspec.structs.replace(ordinary, **system)
    return Evidence(example_with_gpus(gpus, **families) if gpus else example(**families), rows=rows)


def _lacking(error: str) -> Evidence:
    """Return a machine with a plug-in that needs a missing library, and the error of the import."""
    found = _with(Row(TRACE, (), Broken(NoReading.EXCEPTION, error), 0.0), plugins=(_DML,))
    libraries = LibraryFacts(None, (), (), (), (), (), plugins_lack={"libimf.so": _DML})
    return Evidence(msgspec.structs.replace(found.facts, libraries=libraries), rows=found.rows)


def _hiding(*log: str) -> Evidence:
    """Return a machine whose working directory has a module of TensorFlow's name, and the log of a program."""
    found = _with(in_working_directory="/home/someone/project/tensorflow/__init__.py")
    return Evidence(found.facts, rows=found.rows, lines=log)


_H5PY = f'  File "{_SITE}/h5py/__init__.py", line 25, in <module>'
_KERAS = f'  File "{_SITE}/tensorflow/python/keras/saving/hdf5_format.py", line 40, in <module>'
_ABI = "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88"
_NO_ABSL = "ModuleNotFoundError: No module named 'absl'"
_NO_OWN = "ImportError: cannot import name '_pywrap_tf2' from 'tensorflow.python.platform' (/x/__init__.py)"


def _needs(name: str, version: str | None = "1.0", **fields: object) -> Requirement:
    ordinary = Requirement(name, ">=1.0", "tensorflow", version, _SITE if version else "", in_range=bool(version))
    return msgspec.structs.replace(ordinary, **fields)


_CUT = FileState(
    f"{_SITE}/tensorflow/libtensorflow_framework.so.2", FileFault.CUT, "is cut short", owner="tensorflow 2.21.0"
)
_SHUT = FileState(f"{_SITE}/numpy", FileFault.SHUT, "may not be entered", f"{_SITE}/numpy")
_NO_CONFIG = "AttributeError: module 'tensorflow' has no attribute 'config'"
_NVIDIA = (Distribution("nvidia-cudnn-cu12", "9.10.2.21", _SITE),)
_WINDOWS = {"os": "Windows 10.0.26100", "machine": "AMD64"}
_INTEL = (Distribution("tensorflow-intel", "2.18.0", _SITE),)
_OF_2_10 = (Distribution("tensorflow", "2.10.1", _SITE),)
_DIRECTML = (Distribution("tensorflow-directml-plugin", "0.4.0.dev230202", _SITE),)
EXAMPLES: dict[str, tuple[Example, ...]] = {
    "tensorflow_missing": (
        Example("no module", _with(module_path=None, distributions=(), build=None)),
        Example("without a GPU", _with(gpus=0, module_path=None, distributions=(), build=None)),
        Example(
            "a folder is left, and another environment is active",
            _with(
                module_path=None,
                distributions=(),
                build=None,
                without_init=("/src/tensorflow",),
                variables={"VIRTUAL_ENV": "/home/someone/tf"},
            ),
        ),
        Example("installed", _with(), fires=False),
        Example(
            "for a Python that there are no wheels for",
            _with(module_path=None, distributions=(), build=None, system={"python": "3.14.0"}),
        ),
        Example("its files are gone", _with(module_path=None, build=None), fires=False),
    ),
    "files_deleted": (
        Example("after the removal of another", _with(module_path=None, build=None)),
        Example("whole", _with(), fires=False),
        Example("not installed", _with(module_path=None, distributions=(), build=None), fires=False),
    ),
    "tensorflow_shadowed": (
        Example("a folder", _with(module_path="/home/someone/project/tensorflow/__init__.py", build=None)),
        Example("a file", _with(module_path="/home/someone/project/tensorflow.py", build=None)),
        Example(
            "on PYTHONPATH",
            _with(
                module_path="/home/someone/project/tensorflow/__init__.py",
                build=None,
                variables={PATH: "/opt/lib:/home/someone/project/"},
            ),
        ),
        Example("in the working directory, by the log", _hiding(_NO_CONFIG)),
        Example("in the working directory alone", _hiding(), fires=False),
        Example("by the log alone", Evidence(example(), lines=(_NO_CONFIG,)), fires=False),
        Example("the package", _with(), fires=False),
        Example("the package, its build not known", _with(build=None), fires=False),
        Example("a build of one's own", _with(module_path="/src/tensorflow/__init__.py"), fires=False),
    ),
    "tensorflow_hidden_here": (
        Example("in the working directory", _hiding()),
        Example("which a program has taken", _hiding(_NO_CONFIG), fires=False),
        Example("none", _with(), fires=False),
    ),
    "module_shadowed": (
        Example("its file is named", _with(_shadowing(_NO_TYPING), variables={PATH: "/home/someone/project"})),
        Example("in the traceback", _with(_shadowing(_NO_ARRAY, '  File "/home/someone/numpy.py", line 1'))),
        Example("found there", _with(_shadowing(_NO_ARRAY), outside={"numpy": "/home/someone/numpy.py"})),
        Example("a folder", _with(_shadowing(_NO_TYPING.replace("numpy.py", "numpy/__init__.py")))),
        Example("a module of Python's", _with(_shadowing(_NO_TYPING.replace("numpy", "logging")))),
        Example("not known where", _with(_shadowing(_NO_ARRAY)), fires=False),
        Example(
            "in its place",
            _with(_shadowing(_NO_TYPING.replace("/home/someone/project", f"{_SITE}/numpy"))),
            fires=False,
        ),
        Example("another error", _with(_BROKEN_IMPORT, outside={"numpy": "/src/numpy/__init__.py"}), fires=False),
        Example("the import works", _with(outside={"numpy": "/src/numpy/__init__.py"}), fires=False),
    ),
    "requirement_not_met": (
        Example("not installed", _with(_shadowing(_NO_ABSL), requirements=(_needs("absl-py", None),))),
        Example("files are gone", _with(_shadowing(_NO_ABSL), requirements=(_needs("absl-py", gone=("absl/a.py",)),))),
        Example(
            "a part of the metadata is left",
            _with(_shadowing(_NO_ABSL), requirements=(_needs("absl-py", "", location=_SITE),)),
        ),
        Example(
            "for another Python",
            _with(_shadowing(_ABI, _KERAS, _H5PY), requirements=(_needs("h5py", foreign_tag="cp39-cp39-x"),)),
        ),
        Example(
            "too old", _with(_shadowing(_ABI, _KERAS, _H5PY), requirements=(_needs("h5py", "0.9", in_range=False),))
        ),
        Example(
            "too old, in a folder that comes first",
            _with(
                _shadowing(_ABI, _KERAS, _H5PY),
                requirements=(_needs("h5py", "0.9", in_range=False, location="/home/someone/.local/lib"),),
            ),
        ),
        Example(
            "of a package that it requires",
            _with(_shadowing(_NO_ABSL), requirements=(_needs("absl-py", "0.9", in_range=False, by="keras"),)),
        ),
        Example("all fit", _with(_shadowing(_ABI, _KERAS, _H5PY), requirements=(_needs("h5py"),)), fires=False),
        Example("the import works", _with(requirements=(_needs("h5py", None),)), fires=False),
    ),
    "own_modules_missing": (
        Example("a module of TensorFlow's", _with(_shadowing(_NO_OWN))),
        Example("of another package", _with(_shadowing(_NO_ABSL)), fires=False),
        Example("overwritten: another rule", _with(_shadowing(_NO_OWN), distributions=_TWO), fires=False),
        Example("the import works", _with(), fires=False),
    ),
    "file_not_usable": (
        Example("cut short", _with(_shadowing("signal: killed by SIGBUS"), damaged=(_CUT,))),
        Example("closed to this user", _with(_shadowing(f"PermissionError: {_SHUT.path}"), damaged=(_SHUT,))),
        Example("the import works", _with(damaged=(_CUT,)), fires=False),
        Example("whole", _with(_shadowing("RuntimeError: x")), fires=False),
    ),
    "module_raised": (
        Example("in a package", _with(_shadowing("RuntimeError: x", _KERAS, _H5PY))),
        Example("not known where", _with(_shadowing("RuntimeError: x"))),
        Example("the import works", _with(), fires=False),
    ),
    "mixture_breaks_import": (
        Example("it cannot be imported", _with(_BROKEN_IMPORT, distributions=_TWO)),
        Example("it can", _with(distributions=_TWO), fires=False),
        Example("one distribution", _with(_BROKEN_IMPORT), fires=False),
    ),
    "distributions_mixed": (
        Example("tensorflow-cpu over tensorflow", _with(distributions=_TWO, build=_CPU)),
        Example("the other way round", _with(distributions=_TWO)),
        Example("by the files, too", _with(distributions=_TWO, overwritten={"tensorflow": (_BUILD_INFO,)})),
        Example("a third elsewhere", _with(distributions=(*_TWO, Distribution("tensorflow", "2.20.0", "/usr/lib")))),
        Example("one distribution", _with(), fires=False),
        Example(
            "the other elsewhere on sys.path",
            _with(distributions=(_TWO[0], Distribution("tensorflow-cpu", "2.21.0", "/usr/lib"))),
            fires=False,
        ),
    ),
    "files_overwritten": (
        Example("the build description", _with(altered=(_BUILD_INFO,), build=_CPU)),
        Example(
            "by one that is known: another rule",
            _with(altered=(_BUILD_INFO,), distributions=_TWO, build=_CPU),
            fires=False,
        ),
        Example("as installed", _with(), fires=False),
    ),
    "build_without_cuda": (
        Example("tensorflow-cpu", _with(distributions=_ONLY_CPU, build=_CPU)),
        Example("with CUDA", _with(), fires=False),
        Example("not known", _with(build=None), fires=False),
        Example("overwritten: another rule", _with(distributions=_TWO, build=_CPU), fires=False),
        Example("on aarch64: another rule", _with(build=_CPU, system={"machine": "aarch64"}), fires=False),
        Example("under Windows: another rule", _with(build=_CPU, system=_WINDOWS), fires=False),
    ),
    "aarch64_without_cuda": (
        Example("with a GPU", _with(build=_CPU, system={"machine": "aarch64"})),
        Example("NVML silent", _with(gpus=0, build=_CPU, companions=(), system={"machine": "aarch64"}), fires=False),
        Example("x86-64", _with(build=_CPU), fires=False),
        Example("a build with CUDA", _with(system={"machine": "aarch64"}), fires=False),
    ),
    "windows_without_cuda": (
        Example("2.18", _with(distributions=_INTEL, build=_CPU, system=_WINDOWS)),
        Example("2.10", _with(distributions=_OF_2_10, build=_CPU, system=_WINDOWS), fires=False),
        Example("Linux", _with(distributions=_ONLY_CPU, build=_CPU), fires=False),
        Example("a build with CUDA", _with(system=_WINDOWS), fires=False),
    ),
    "directml_plugin": (
        Example("beside 2.21", _with(plugin_distributions=_DIRECTML)),
        Example("beside 2.10", _with(plugin_distributions=_DIRECTML, distributions=_OF_2_10), fires=False),
        Example("not installed", _with(), fires=False),
    ),
    "plugin_breaks_import": (
        Example("the import fails in it", _with(_BROKEN_BY_PLUGIN, plugins=(_DML,))),
        Example(
            "a library that it needs is not found", _lacking("NotFoundError: libimf.so: cannot open shared object")
        ),
        Example(
            "another library is not found", _lacking("ImportError: libz.so: cannot open shared object"), fires=False
        ),
        Example("the import works", _with(plugins=(_DML,)), fires=False),
        Example("the import fails elsewhere", _with(_BROKEN_IMPORT, plugins=(_DML,)), fires=False),
        Example("no plug-in", _with(_BROKEN_BY_PLUGIN), fires=False),
    ),
    "package_out_of_range": (
        Example("cuDNN 8", _with(companions=(Distribution("nvidia-cudnn-cu12", "8.9.2.26", _SITE),))),
        Example("in range", _with(companions=_NVIDIA), fires=False),
        Example("of no concern to TensorFlow", _with(companions=_NVIDIA, ranges={}), fires=False),
    ),
    "packages_share_a_folder": (
        Example("cuDNN", _with(companions=(*_NVIDIA, Distribution("nvidia-cudnn-cu13", "9.13.0.50", _SITE)))),
        Example("one of them", _with(companions=_NVIDIA), fires=False),
        Example(
            "different libraries",
            _with(companions=(*_NVIDIA, Distribution("nvidia-nccl-cu13", "2.27.7", _SITE))),
            fires=False,
        ),
    ),
}
