"""Refresh gpudiag/simulator/src/cuda_names.inc: the names TensorFlow may look up in the CUDA
libraries.

    python scripts/refresh_cuda_names.py [TENSORFLOW_DIRECTORY]

Reads an installed CUDA wheel of TensorFlow (by default the one this Python would import) and adds
what is new; names of older releases stay, because one simulator serves all of them. Needs `nm`
(binutils).
"""

from __future__ import annotations

import importlib.util
import mmap
import re
import subprocess
import sys
from pathlib import Path

OUTPUT = Path(__file__).parent.parent / "gpudiag/simulator/src/cuda_names.inc"

HEAD = "/* Names that TensorFlow may look up in the CUDA libraries. Written by scripts/refresh_cuda_names.py. */"

# Prefix of a name -> macro of fallbacks.c; the first match counts.
FAMILIES = (
    ("__cuda", "RUNTIME"),
    ("cuda", "RUNTIME"),
    ("cublas", "CUBLAS"),
    ("cudnn", "CUDNN"),
    ("cufft", "CUFFT"),
    ("cusolver", "CUSOLVER"),
    ("cusparse", "CUSPARSE"),
    ("cupti", "CUPTI"),
    ("nccl", "NCCL"),
    ("nvml", "NVML"),
    ("cu", "DRIVER"),
)
NAME = re.compile(r"(?:__cuda|cuda|cublas|cudnn|cufft|cusolver|cusparse|cupti|nccl|nvml|cu)[A-Z]\w*\Z")


def exported_names(library: Path) -> set[str]:
    """The stubs that libtensorflow_framework exports, each under the name that it looks up."""
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)],  # noqa: S607  # of binutils, wherever they are
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    words = (line.split()[-1] for line in listing.splitlines() if line)
    names = {word for word in words if NAME.match(word)}
    # Made by nvcc for TensorFlow's own kernels (2.20), not looked up anywhere.
    names = {name for name in names if not name.startswith("__cudaRegisterLinkedBinary")}
    # Up to 2.20 NCCL itself is inside TensorFlow: its names are then no stubs.
    nccl_inside = any(name.startswith("ncclDev") for name in names)
    return {name for name in names if not (nccl_inside and name.startswith("nccl"))}


def cusolver_names(library: Path) -> set[str]:
    """The cuSOLVER stubs are not exported; the names that they look up stand among the library's
    strings."""
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found = re.findall(rb"\0(cusolver(?:Dn|Sp|Rf|Mg|Get)[A-Z]?\w{3,})(?=\0)", data)
    return {name.decode() for name in found}


def entry(name: str) -> str:
    family = next(macro for prefix, macro in FAMILIES if name.startswith(prefix))
    return f"{family}({name})"


def main(arguments: list[str]) -> int:
    if arguments:
        tensorflow = Path(arguments[0])
    else:
        spec = importlib.util.find_spec("tensorflow")
        if spec is None or spec.origin is None:
            print("TensorFlow is not installed here; name its directory", file=sys.stderr)
            return 2
        tensorflow = Path(spec.origin).parent
    names = exported_names(tensorflow / "libtensorflow_framework.so.2")
    names |= cusolver_names(tensorflow / "libtensorflow_cc.so.2")
    if "cuInit" not in names:
        print(f"{tensorflow} is not a CUDA build: it has no stub for cuInit", file=sys.stderr)
        return 2
    known = set(OUTPUT.read_text().splitlines()) - {HEAD} if OUTPUT.exists() else set()
    entries = {entry(name) for name in names}
    OUTPUT.write_text("\n".join([HEAD, *sorted(known | entries)]) + "\n")
    print(f"{OUTPUT.name}: {len(known | entries)} names, {len(entries - known)} of them new")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
