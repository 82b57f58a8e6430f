"""Examples of ``host.libraries``."""

from __future__ import annotations

import msgspec

from examples.facts import example, example_with_gpus
from examples.hosts import Case
from gpudiag.model.facts import EnvironmentFacts, Facts, Library, LibraryCopy, LibraryFacts, TensorflowFacts, Unknown
from gpudiag.probes.host.libraries import CUDNN, PACKAGES, RUNTIME

_SITE = "/home/someone/venv/lib/python3.11/site-packages"


_VERSIONS = {"libcudart": "12.5.82", "libcudnn": "9.3.0", "libcufft": "11.2.3.61", "libcusolver": "11.6.3.83"}


_FOLDERS = {"libcudart": "cuda_runtime"}


NOT_THERE = "cannot open shared object file: No such file or directory"


def example_library(soname: str, **changes: object) -> Library:
    """Return a library as ``pip install tensorflow[and-cuda]`` gives it, ``changes`` made."""
    stem = soname.partition(".")[0]
    folder = f"{_SITE}/nvidia/{_FOLDERS.get(stem, stem.removeprefix('lib').removesuffix('Lt'))}/lib"
    version = _VERSIONS.get(stem, "12.5.3.2")
    ordinary = Library(
        soname=soname,
        path=f"{folder}/{soname}",
        source="RUNPATH",
        file=f"{folder}/{soname}",
        own_soname=soname,
        version=version,
        owner=f"{PACKAGES[stem]} {version}",
        error=None,
        lacks={},
        copies=(),
    )
    return msgspec.structs.replace(ordinary, **changes)


def example_absent(soname: str, *copies: LibraryCopy) -> Library:
    """Return a library that the loader does not find."""
    return Library(soname, None, "", None, None, None, None, f"{soname}: {NOT_THERE}", {}, copies)


def example_facts(*changed: Library, gpus: int = 1, variables: dict[str, str] | None = None) -> Facts:
    """Return a machine with ``tensorflow[and-cuda]`` on which all is well but ``changed``."""
    sonames = (RUNTIME, "libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11", "libcusolver.so.11", CUDNN)
    libraries = {name: example_library(name) for name in sonames} | {library.soname: library for library in changed}
    runpath = tuple(f"{_SITE}/nvidia/{name}/lib" for name in ("cuda_runtime", "cublas", "cufft", "cudnn"))
    tensorflow = example().tensorflow
    assert isinstance(tensorflow, TensorflowFacts)
    ranges = {"nvidia-cufft-cu12": "<12.0,>=11.2.3.61", "nvidia-cudnn-cu12": "<10.0,>=9.3.0.75"}
    return example_with_gpus(
        gpus,
        environment=EnvironmentFacts(variables or {}),
        tensorflow=msgspec.structs.replace(tensorflow, ranges=ranges),
        libraries=LibraryFacts(
            opener=f"{_SITE}/tensorflow/libtensorflow_framework.so.2",
            runpath=runpath,
            search_path=(),
            libraries=tuple(libraries.values()),
            libdevice=(f"{_SITE}/nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc",),
            libdevice_elsewhere=(),
        ),
    )


def example_copy(soname: str, folder: str, version: str | None = None, owner: str | None = None) -> LibraryCopy:
    """Return a copy that opens by its path."""
    return LibraryCopy(f"{folder}/{soname}", version, owner, None)


def example_without_libdevice(*changed: Library, **options: object) -> Facts:
    """Return :func:`example_facts` without libdevice."""
    facts = example_facts(*changed)
    assert isinstance(facts.libraries, LibraryFacts)
    changes = {"libdevice": (), **options}
    return msgspec.structs.replace(facts, libraries=msgspec.structs.replace(facts.libraries, **changes))


OLD_CUDNN = example_library(
    CUDNN, path="/opt/cudnn/lib/libcudnn.so.9", source="LD_LIBRARY_PATH", version="9.1.0", owner=None
)


CASES = (
    Case("no GPU", expect=(), facts=example()),
    Case("all open", expect=(), facts=example_facts()),
    Case("all open, eight GPUs", expect=(), facts=example_facts(gpus=8)),
    Case(
        "nothing open, and no GPU given",
        expect=(),
        facts=msgspec.structs.replace(example(), libraries=example_facts(example_absent("libcufft.so.11")).libraries),
    ),
    Case("cuFFT absent", expect=("unopened",), facts=example_facts(example_absent("libcufft.so.11"))),
    Case(
        "a damaged cuFFT before a good one",
        expect=("unopened",),
        facts=example_facts(
            example_library(
                "libcufft.so.11",
                path="/opt/x/libcufft.so.11",
                source="LD_LIBRARY_PATH",
                error="/opt/x/libcufft.so.11: file too short",
                damaged=("/opt/x/libcufft.so.11",),
                instead=f"{_SITE}/nvidia/cufft/lib/libcufft.so.11",
            )
        ),
    ),
    Case(
        "two absent",
        expect=("unopened", "unopened"),
        facts=example_facts(example_absent("libcufft.so.11"), example_absent(CUDNN)),
    ),
    Case("NCCL absent", expect=(), facts=example_facts(example_absent("libnccl.so.2"))),
    Case("the driver's own: host.driver says so", expect=(), facts=example_facts(example_absent("libcuda.so.1"))),
    Case("an old cuDNN", expect=("cudnn_too_old",), facts=example_facts(OLD_CUDNN)),
    Case("a later cuDNN 9", expect=(), facts=example_facts(msgspec.structs.replace(OLD_CUDNN, version="9.10.2"))),
    Case(
        "an older cuBLAS before that of the package",
        expect=("older_first",),
        facts=example_facts(
            example_library(
                "libcublas.so.12",
                path="/usr/local/cuda/lib64/libcublas.so.12",
                source="LD_LIBRARY_PATH",
                version="12.2.5.6",
                owner=None,
                copies=(
                    example_copy(
                        "libcublas.so.12", f"{_SITE}/nvidia/cublas/lib", "12.5.3.2", "nvidia-cublas-cu12 12.5.3.2"
                    ),
                ),
            )
        ),
    ),
    Case(
        "the same cuDNN twice",
        expect=(),
        facts=example_facts(
            msgspec.structs.replace(
                OLD_CUDNN,
                version="9.3.0",
                copies=(example_copy(CUDNN, f"{_SITE}/nvidia/cudnn/lib", "9.3.0.75", "nvidia-cudnn-cu12 9.3.0.75"),),
            )
        ),
    ),
    Case(
        "a link to another release",
        expect=("other_soname",),
        facts=example_facts(example_library("libcusolver.so.11", own_soname="libcusolver.so.12")),
    ),
    Case(
        "another library under this name",
        expect=("other_soname",),
        facts=example_facts(example_library("libcufft.so.11", own_soname="libz.so.1")),
    ),
    Case("no nvcc package", expect=("no_libdevice",), facts=example_without_libdevice()),
    Case(
        "libraries of unknown origin without libdevice",
        expect=(),
        facts=example_without_libdevice(example_library(RUNTIME, path=f"/srv/lib/{RUNTIME}", owner=None)),
    ),
    Case(
        "not gathered",
        expect=("not_gathered",),
        facts=example_with_gpus(libraries=Unknown("no answer within 15 s")),
    ),
)
