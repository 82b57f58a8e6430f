"""NVIDIA's libraries by the names that loaders ask for: of which product and release each is, and what brings it.

Every framework's loader has its own words, but all name the file, and its number is the release of CUDA, cuDNN or
TensorRT that the program was built for: another release does not help. Packages and their folders were looked up in
PyPI on 2026-11-28; those of CUDA 13 have no suffix, and share one folder.
"""

from __future__ import annotations

import re

from gpudiag.fix import Action, Kind, check, install, note, run
from gpudiag.record import Record

_OF_CUDA = {
    "cudart": "cuda-runtime",
    "cublas": "cublas",
    "cublasLt": "cublas",
    "cufft": "cufft",
    "curand": "curand",
    "cusolver": "cusolver",
    "cusparse": "cusparse",
    "cupti": "cuda-cupti",
    "nvrtc": "cuda-nvrtc",
    "nvrtc-builtins": "cuda-nvrtc",
    "nvJitLink": "nvjitlink",
    "nvToolsExt": "nvtx",
}
"""The packages of CUDA's libraries, without "nvidia-" and the suffix for the release."""
_ITS_OWN_COUNT = {
    "cufft": {"10": "11", "11": "12", "12": "13"},
    "cusolver": {"12": "13"},
    "cusparse": {"11": "11", "12": "12"},
    "curand": {},
    "nvToolsExt": {},
}
"""Libraries with numbers of their own, each with the release of CUDA that a number belongs to."""
_FIRST_WITH_PACKAGES, _FIRST_WITHOUT_SUFFIX = 11, 13
_FIRST_OF_PYPI, _FIRST_TENSORRT_BY_CUDA = 8, 10
"""The first cuDNN and TensorRT that PyPI has, and the first TensorRT with a package for each CUDA."""
DEFAULT_CUDA = "12"
"""The major version of CUDA that is taken if nothing in a log names one."""
_NAME = re.compile(
    rf"\b(?:lib)?(?P<stem>{'|'.join(sorted(_OF_CUDA, key=len, reverse=True))}|cudnn(?:_[a-z_]{{1,40}})?|nccl|"
    r"nvinfer(?:_\w{1,20})?|nvonnxparser)(?:\.so(?:\.(?P<so>\d[\d.]{0,20}\d|\d))?|(?:64)?_(?P<dll>\d{1,3})(?:_\d)?\.dll)"
)


class NamedLibrary(Record):
    """One of NVIDIA's libraries, as a line names it."""

    name: str
    """As printed, such as ``libcublas.so.12`` or ``cudnn64_8.dll``."""
    stem: str
    product: str
    """``CUDA``, ``cuDNN``, ``NCCL`` or ``TensorRT``."""
    release: str = ""
    """The major version of the product; "" if the name does not tell it."""

    @property
    def of(self) -> str:
        """The product and its release, as far as the name tells it."""
        return f"{self.product} {self.release}".rstrip()

    def requirement(self, cuda: str) -> tuple[str, str]:
        """Return the requirement for pip that brings it, for a major version of CUDA, and the module whose folder
        ``lib`` has it; empty texts if PyPI has none.
        """
        number = int(self.release or 0)
        if int(cuda) < _FIRST_WITH_PACKAGES:
            return "", ""
        if self.product == "CUDA":
            package = _OF_CUDA[self.stem]
            if int(cuda) >= _FIRST_WITHOUT_SUFFIX:
                return f"nvidia-{package}", f"nvidia.cu{cuda}"
            return f"nvidia-{package}-cu{cuda}", f"nvidia.{package.replace('-', '_')}"
        if self.release and number < _FIRST_OF_PYPI:
            return "", ""
        if self.product == "TensorRT":
            of_cuda = number >= _FIRST_TENSORRT_BY_CUDA
            exact = f"=={number}.*" if of_cuda else "==8.6.*"  # the only 8 of PyPI
            return f"tensorrt{f'-cu{cuda}' if of_cuda else ''}{exact}", "tensorrt_libs"
        exact = f"=={number}.*" if self.release else ""
        module = self.product.lower()
        return f"nvidia-{module}-cu{cuda}{exact}", f"nvidia.{module}"

    @property
    def cuda(self) -> str:
        """The major version of CUDA that its name tells; "" if it tells none."""
        return self.release if self.product == "CUDA" else ""

    def actions(self, cuda: str) -> tuple[Action, ...]:
        """Return how to get it for a major version of CUDA, and how its loader finds it."""
        requirement, module = self.requirement(cuda)
        has_two = (self.product, cuda) == ("cuDNN", "12")
        other = f"; for CUDA 11 {requirement.replace('cu12', 'cu11')}" if has_two else ""
        toolkit = "https://developer.nvidia.com/cuda-toolkit-archive"
        if self.product != "CUDA":
            toolkit = f"https://developer.nvidia.com/{'cudnn' if self.product == 'cuDNN' else self.product.lower()}"
        of = self.of if self.release or self.product != "CUDA" else f"CUDA {cuda}"
        brought = (install(requirement, note=f"has {self.name}, of {of}{other}"),) if requirement else ()
        if self.name.endswith(".dll"):
            folder = f"site-packages\\{module}\\bin".replace(".", "\\")
            found = f"{folder} must be on PATH, or: " if brought else ""
            return (*brought, note(f"{found}install {of}, whose folder bin goes on PATH: {toolkit}", kind=Kind.INSTALL))
        if brought:
            folder = "" if module == "tensorrt_libs" else "/lib"
            path = f"$(python -c 'import {module} as m; print(m.__path__[0])'){folder}"
            export = run(
                f"export LD_LIBRARY_PATH={path}:$LD_LIBRARY_PATH",
                "before the program starts, so that the loader finds it",
                kind=Kind.SET_VARIABLE,
            )
            return (*brought, export)
        return (
            note(f"install {of}, and put its folder with {self.name} on LD_LIBRARY_PATH: {toolkit}", kind=Kind.INSTALL),
            check(f"ls -d /usr/local/cuda*; ldconfig -p | grep {self.stem}", "shows which releases are there"),
        )


def named(text: str) -> tuple[NamedLibrary, ...]:
    """Return NVIDIA's libraries that a text names, each once; of those without a number only if no other is named."""
    found: dict[str, NamedLibrary] = {}
    for match in _NAME.finditer(text):
        stem, number = match["stem"], match["so"] or match["dll"] or ""
        product = next((name for name in ("cuDNN", "NCCL") if stem.startswith(name.lower())), "CUDA")
        product = "TensorRT" if stem.startswith(("nvinfer", "nvonnx")) else product
        found.setdefault(match[0], NamedLibrary(match[0], stem, product, _release(product, stem, number)))
    return tuple(library for library in found.values() if library.release) or tuple(found.values())


def _release(product: str, stem: str, number: str) -> str:
    first = number.partition(".")[0]
    if product == "NCCL" or not first:
        return ""
    if stem in _ITS_OWN_COUNT and not (number.count(".") == 1 and int(first) < _FIRST_WITH_PACKAGES):
        return _ITS_OWN_COUNT[stem].get(first, "")
    # cudart64_110.dll and nvrtc64_112_0.dll are of CUDA 11
    return first[:-1] if product == "CUDA" and int(first) > 2 * _FIRST_WITHOUT_SUFFIX else first
