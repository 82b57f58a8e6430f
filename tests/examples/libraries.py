"""Examples of causes: libraries that cannot be opened, or are not those that TensorFlow was built for."""

from __future__ import annotations

import msgspec

from examples import Example
from examples import machines as machine
from examples.facts import example_with_gpus
from examples.hosts.libraries import (
    NOT_THERE,
    OLD_CUDNN,
    example_absent,
    example_copy,
    example_facts,
    example_library,
    example_without_libdevice,
)
from gpudiag.cause import Evidence
from gpudiag.causes.shared.libraries import COMPUTE, NVML, PATH
from gpudiag.model.facts import (
    ContainerFacts,
    DriverFacts,
    FactFamily,
    Library,
    LibraryFacts,
    NvmlFacts,
    TensorflowFacts,
)
from gpudiag.model.report import Judged, Row
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.probes.discovery import trace
from gpudiag.probes.host.libraries import COLLECTIVES, CUDNN, OPTIONAL, PROFILER, RUNTIME

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


def _configured(*changed: Library) -> Evidence:
    """Return a machine whose loader's configuration names the toolkit's folder, and whose cache is older."""
    facts = example_facts(*changed)
    assert isinstance(facts.libraries, LibraryFacts)
    configured = {"/usr/local/cuda-12.6/lib64": "/etc/ld.so.conf.d/cuda.conf line 1"}
    libraries = msgspec.structs.replace(facts.libraries, configured=configured)
    return Evidence(msgspec.structs.replace(facts, libraries=libraries))


def _several(*changed: Library, gpus: int = 2) -> Evidence:
    """Return a machine of several GPUs, all in scope."""
    facts = example_facts(*changed, gpus=gpus)
    return Evidence(facts, gpus_in_scope(facts))


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
    reading = trace.read_log((), listed, None)
    return Evidence(facts, rows=(Row("discovery.trace", (), Judged(), 0.0, reading=reading),))


_NO_NVML = NvmlFacts("NVML Shared Library Not Found", None, None, ())
_UBUNTU = machine.example_facts().system
_DOCKER = ContainerFacts("docker", ("/.dockerenv",), False, None)


def _without_compute(*changed: Library, **families: FactFamily) -> Evidence:
    """Return a machine whose driver runs without ``libcuda.so.1``, judged by ``host.driver``."""
    ordinary: dict[str, FactFamily] = {
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


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "package_not_on_runpath": (
        Example("cuSOLVER of 2.21.0", _evidence(example_absent(_CUSOLVER, _PACKAGED))),
        Example("it opens", _evidence(), fires=False),
        Example("no copy of it", _evidence(example_absent(_CUSOLVER)), fires=False),
        Example(
            "the copy does not open",
            _evidence(example_absent(_CUSOLVER, msgspec.structs.replace(_PACKAGED, error="file too short"))),
            fires=False,
        ),
        Example(
            "its folder is on the RUNPATH",
            _on_runpath(_evidence(example_absent(_CUSOLVER, _PACKAGED)), f"{_SITE}/nvidia/cusolver/lib"),
            fires=False,
        ),
    ),
    "library_off_the_path": (
        Example("in a toolkit", _evidence(example_absent("libcufft.so.11", _TOOLKIT_COPY))),
        Example(
            "the runtime in a toolkit",
            _evidence(example_absent(RUNTIME, example_copy(RUNTIME, "/usr/local/cuda-12.6/lib64", "12.6.77"))),
        ),
        Example(
            "in a folder that is not in the cache yet", _configured(example_absent("libcufft.so.11", _TOOLKIT_COPY))
        ),
        Example("no copy of it", _evidence(example_absent("libcufft.so.11")), fires=False),
        Example("no copy of the runtime", _evidence(example_absent(RUNTIME)), fires=False),
        Example("it opens", _evidence(), fires=False),
    ),
    "runtime_missing": (
        Example("without the extra", _evidence(example_absent(RUNTIME))),
        Example("it opens", _evidence(), fires=False),
        Example("another one is missing", _evidence(example_absent("libcufft.so.11")), fires=False),
        Example(
            "it is elsewhere",
            _evidence(example_absent(RUNTIME, example_copy(RUNTIME, "/usr/local/cuda-12.6/lib64"))),
            fires=False,
        ),
    ),
    "library_missing": (
        Example("cuFFT", _evidence(example_absent("libcufft.so.11"))),
        Example("two", _evidence(example_absent("libcufft.so.11"), example_absent(CUDNN))),
        Example("all open", _evidence(), fires=False),
        Example("an optional one", _evidence(*map(example_absent, OPTIONAL)), fires=False),
        Example("it is elsewhere", _evidence(example_absent("libcufft.so.11", _TOOLKIT_COPY)), fires=False),
        Example("a library that it needs is missing", _evidence(_NVJITLINK), fires=False),
        Example("the runtime", _evidence(example_absent(RUNTIME)), fires=False),
    ),
    "nccl_not_opened": (
        Example("missing on two GPUs", _several(example_absent(COLLECTIVES))),
        Example("a damaged one, and no other", _several(msgspec.structs.replace(_damaged(COLLECTIVES), instead=None))),
        Example("one GPU", _several(example_absent(COLLECTIVES), gpus=1), fires=False),
        Example("another library", _several(example_absent(PROFILER)), fires=False),
        Example("it opens", _several(), fires=False),
    ),
    "damaged_library_first": (
        Example("libcuda", _evidence(_damaged(COMPUTE))),
        Example("NVML", _evidence(_damaged(NVML))),
        Example("cuDNN", _evidence(_damaged(CUDNN))),
        Example("NCCL, which few need", _evidence(_damaged(OPTIONAL[0]))),
        Example("two", _evidence(_damaged(COMPUTE), _damaged(CUDNN))),
        Example("one that others need", _evidence(_damaged(_CUSOLVER, "libnvJitLink.so.12"))),
        Example(
            "beside good ones",
            _evidence(_damaged(CUDNN), example_library(RUNTIME, path=f"/opt/x/{RUNTIME}", source=PATH)),
        ),
        Example("no good one after it", _evidence(msgspec.structs.replace(_damaged(CUDNN), instead=None)), fires=False),
        Example("nothing is found", _evidence(example_absent(CUDNN)), fires=False),
        Example("all open", _evidence(), fires=False),
    ),
    "dependency_missing": (
        Example("nvJitLink", _evidence(_NVJITLINK)),
        Example("it opens", _evidence(), fires=False),
        Example(
            "nothing that is known is lacking",
            _evidence(msgspec.structs.replace(_NVJITLINK, lacks={})),
            fires=False,
        ),
    ),
    "cudnn_too_old": (
        Example("by LD_LIBRARY_PATH", _evidence(OLD_CUDNN)),
        Example("by the package", _evidence(example_library(CUDNN, version="9.1.0"))),
        Example("in the log of a program", _evidence(lines=(_OWN_WORDS,))),
        Example("new enough", _evidence(example_library(CUDNN, version="9.3.0")), fires=False),
        Example("it does not open", _evidence(msgspec.structs.replace(OLD_CUDNN, error="no")), fires=False),
    ),
    "older_library_first": tuple(
        Example(
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
    "other_soname": (
        Example("another release", _evidence(example_library(_CUSOLVER, own_soname="libcusolver.so.12"))),
        Example("the right one", _evidence(), fires=False),
        Example("a file without a name", _evidence(example_library(_CUSOLVER, own_soname=None)), fires=False),
        Example(
            "another library altogether",
            _evidence(example_library(_CUSOLVER, own_soname="libz.so.1")),
        ),
    ),
    "compute_library_missing": (
        Example("NVML works", _without_compute()),
        Example("it is damaged", _without_compute(msgspec.structs.replace(_damaged(COMPUTE), instead=None, source=""))),
        Example("on Ubuntu", _without_compute(system=_UBUNTU)),
        Example(
            "it is where the loader does not look",
            _without_compute(example_absent(COMPUTE, example_copy(COMPUTE, "/usr/local/nvidia/lib64"))),
        ),
        Example("in a container: another rule", _without_compute(container=_DOCKER), fires=False),
        Example("a damaged one comes first", _without_compute(_damaged(COMPUTE)), fires=False),
        Example(
            "no module either",
            _without_compute(driver=DriverFacts(None, None, "not there", None), nvml=_NO_NVML),
            fires=False,
        ),
        Example("it is here", _with_driver(NvmlFacts(None, "535.104.05", "12.2", ())), fires=False),
    ),
    "nvml_missing": (
        Example("in a container", _with_driver(_NO_NVML, container=_DOCKER)),
        Example("on a host", _with_driver(_NO_NVML)),
        Example("TensorFlow 2.20", _with_driver(_NO_NVML, version="2.20.0"), fires=False),
        Example("TensorFlow lists GPUs all the same", _with_driver(_NO_NVML, listed=1), fires=False),
        Example(
            "no driver library either",
            _with_driver(_NO_NVML, driver=DriverFacts("535.104.05", None, "not there", None)),
            fires=False,
        ),
        Example(
            "a damaged one comes first",
            _with_driver(_NO_NVML, libraries=example_facts(_damaged(NVML)).libraries),
            fires=False,
        ),
    ),
    "nvml_fails": (
        Example("unknown error", _with_driver(NvmlFacts("Unknown Error", None, None, ()))),
        Example("driver not loaded", _with_driver(NvmlFacts("Driver Not Loaded", None, None, ()))),
        Example("it answers", Evidence(example_with_gpus(2)), fires=False),
        Example(
            "TensorFlow 2.20 does without",
            _with_driver(NvmlFacts("Unknown Error", None, None, ()), version="2.20.0"),
            fires=False,
        ),
        Example(
            "versions of the driver differ: another rule",
            _with_driver(NvmlFacts("Driver/library version mismatch", None, None, ())),
            fires=False,
        ),
    ),
    "libdevice_missing": (
        Example("packages without nvcc", Evidence(example_without_libdevice())),
        Example(
            "in conda's folder",
            Evidence(example_without_libdevice(libdevice_elsewhere=("/opt/conda/nvvm/libdevice/libdevice.10.bc",))),
        ),
        Example(
            "in the log of a program",
            _evidence(lines=("INTERNAL: libdevice not found at ./libdevice.10.bc",)),
        ),
        Example("it is there", _evidence(), fires=False),
        Example(
            "CUDA of unknown origin",
            Evidence(example_without_libdevice(example_library(RUNTIME, path=f"/srv/lib/{RUNTIME}", owner=None))),
            fires=False,
        ),
    ),
}
