"""Examples of ``host.tensorflow``."""

from __future__ import annotations

import msgspec

from examples.facts import example, example_with_gpus
from examples.hosts import Case
from gpudiag.model.facts import Distribution, SystemFacts, TensorflowBuild, TensorflowFacts, Unknown

_SITE = "/home/someone/venv/lib/python3.11/site-packages"


_MODULE = f"{_SITE}/tensorflow/__init__.py"


_CUDA = TensorflowBuild(True, "12.5.1", "9", ("sm_80",))


_CPU = TensorflowBuild(False, None, None, ())


def _installed(*versions: str, build: TensorflowBuild | None = _CUDA, module: str | None = _MODULE) -> TensorflowFacts:
    found = (version.split() for version in versions)
    return TensorflowFacts(module, tuple(Distribution(name, number, _SITE) for name, number in found), build, ())


def _system(**changes: str) -> SystemFacts:
    ordinary = example().system
    assert isinstance(ordinary, SystemFacts)
    return msgspec.structs.replace(ordinary, **changes)


CASES = (
    Case("CUDA build, no GPU", expect=(), facts=example()),
    Case("CUDA build, GPU", expect=(), facts=example_with_gpus(2)),
    Case("not installed", expect=("missing",), facts=example(tensorflow=_installed(build=None, module=None))),
    Case(
        "files gone",
        expect=("damaged",),
        facts=example(tensorflow=_installed("tensorflow 2.21.0", build=None, module=None)),
    ),
    Case(
        "tensorflow-cpu over tensorflow",
        expect=("several",),
        facts=example(tensorflow=_installed("tensorflow 2.21.0", "tensorflow-cpu 2.21.0", build=_CPU)),
    ),
    Case(
        "a hidden copy elsewhere on sys.path",
        expect=(),
        facts=example(
            tensorflow=TensorflowFacts(
                _MODULE,
                (Distribution("tensorflow", "2.21.0", _SITE), Distribution("tensorflow-cpu", "2.17.0", "/usr/lib")),
                _CUDA,
                (),
            )
        ),
    ),
    Case("CPU build, no GPU", expect=(), facts=example(tensorflow=_installed("tensorflow-cpu 2.21.0", build=_CPU))),
    Case(
        "CPU build, GPU",
        expect=("no_cuda",),
        facts=example_with_gpus(tensorflow=_installed("tensorflow-cpu 2.21.0", build=_CPU)),
    ),
    Case(
        "CPU build on aarch64, GPU",
        expect=("no_cuda",),
        facts=example_with_gpus(
            tensorflow=_installed("tensorflow 2.21.0", build=_CPU), system=_system(machine="aarch64")
        ),
    ),
    Case("2.17", expect=("old_version",), facts=example(tensorflow=_installed("tensorflow 2.17.1"))),
    Case("2.9", expect=("old_version",), facts=example(tensorflow=_installed("tensorflow 2.9.0"))),
    Case(
        "nightly", expect=("untested_version",), facts=example(tensorflow=_installed("tf-nightly 2.22.0.dev20260101"))
    ),
    Case(
        "no build_info.py",
        expect=("build_unknown",),
        facts=example(tensorflow=_installed("tensorflow 2.21.0", build=None)),
    ),
    Case(
        "a folder of the same name comes first",
        expect=("shadowed",),
        facts=example(
            tensorflow=TensorflowFacts(
                "/home/someone/project/tensorflow/__init__.py", (Distribution("tensorflow", "2.21.0", _SITE),), None, ()
            )
        ),
    ),
    Case(
        "a file of the same name, and no TensorFlow",
        expect=("shadowed",),
        facts=example(tensorflow=_installed(build=None, module="/home/someone/project/tensorflow.py")),
    ),
    Case(
        "a folder of the same name, beside the program alone",
        expect=("hidden_here",),
        facts=example(
            tensorflow=msgspec.structs.replace(
                _installed("tensorflow 2.21.0"), in_working_directory="/home/someone/project/tensorflow.py"
            )
        ),
    ),
    Case("built from source, without metadata", expect=(), facts=example(tensorflow=_installed())),
    Case("Python 3.14", expect=("unsupported_python",), facts=example(system=_system(python="3.14.0"))),
    Case("not gathered", expect=("not_gathered",), facts=example(tensorflow=Unknown("no answer within 10 s"))),
)
