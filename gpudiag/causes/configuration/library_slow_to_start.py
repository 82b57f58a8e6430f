"""a library is slow to start: each process waits for it when it first uses the library

A library of NVIDIA's sets itself up at the first operation that needs it: it reads its kernels from its own file, has
the driver load or compile them, starts threads and measures algorithms. That takes tenths of a second, and some
seconds from a cold disk. If it takes longer, its file is on a slow disk or network, all its kernels are loaded at
once, the driver compiles kernels whose result it cannot keep, or a lock or a GPU keeps it waiting. A program seems to
hang at its first step, in every process again.
"""

from __future__ import annotations

import re
from shlex import quote

from gpudiag.cause import Cause, Gpus, Match, Matches, Rows, Variables
from gpudiag.causes.shared.libraries import LIBRARIES, library_of, slowest
from gpudiag.fix import check, export, unset
from gpudiag.model.facts import SLOW_S, CallFacts, Facts
from gpudiag.model.report import Severity
from gpudiag.probes.comparison import LibraryFaults

CAUSE = Cause(
    title="{calls}: each process waits for it when it first uses {library}",
    severity=Severity.WARNING,
    fix=(
        export("CUDA_MODULE_LOADING", "LAZY", "loads each kernel when it is first used"),
        check(
            "dd if={file} of=/dev/null bs=1M",
            "shows how fast the file is read: if it is below 100 MB/s, install it on a local disk",
        ),
        check(
            "ls -ld ~/.nv/ComputeCache; df -h ~",
            "must be writable: the driver keeps compiled kernels here",
        ),
        check("sudo dmesg | grep -i -e nvrm -e xid -e 'blocked for more' -e 'not responding'"),
    ),
    url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#lazy-loading",
    unless={
        "driver_call_hangs": "the library waits for a call of the driver",
        "library_hangs": "the library does not return at all",
        "driver_call_slow": "the library waits for a call of the driver",
    },
    views=tuple(
        f"libraries.{library}.slow"
        for library in ("cublas", "cudnn", "cudnn_layers", "cufft", "cusolver", "cusparse", "nccl", "xla")
    ),
)


def find(calls: CallFacts | None, rows: Rows, facts: Facts, gpus: Gpus, variables: Variables) -> Matches:
    where = {gpu.uuid: f" on GPU {gpu.index}" for gpu in gpus} | {"": ""}
    slow = [call for call in (calls.calls if calls else ()) if not call.of_driver and (call.seconds or 0.0) >= SLOW_S]
    took = slowest(slow, gpus)
    met = [(row, finding) for row in rows for finding in row.findings if finding.kind == LibraryFaults.slow.name]
    if slow:
        longest = max(slow, key=lambda call: call.seconds or 0.0)
        library = library_of(longest.name)
        said = " and ".join(f"{name} takes {seconds:.0f} s" for name, seconds in took.items())
        evidence = (
            *(f"{call.probe}: {call.name}{where.get(call.gpu, '')} took {call.seconds:.1f} s" for call in slow),
            *dict.fromkeys(
                f"the process waits in {call.file}" for call in slow if call.file and call.file != call.name
            ),
        )
    elif met:
        _, first = met[0]
        figures = first.figures
        library, first_s = str(figures.get("library") or ""), float(figures.get("first_s") or 0.0)
        said = f"the first computation on {figures.get('device')} ({figures.get('what')}) takes {first_s:.0f} s"
        evidence = tuple(f"{row.probe}: {found.message}" for row, found in met[:3])
    else:
        return
    known = facts.library(LIBRARIES.get(library.removesuffix("Lt"), ""))
    file = known.path if known is not None and known.path else ""
    eager = re.fullmatch("eager", variables.get("CUDA_MODULE_LOADING", ""), re.IGNORECASE)
    kept = variables.get("CUDA_CACHE_DISABLE", "0") in ("", "0")
    yield Match(
        evidence=(*evidence, *(["CUDA_MODULE_LOADING=EAGER"] if eager else [])),
        figures={"calls": said, "library": library or "it", "file": quote(file)},
        fix=(
            None if kept else unset("CUDA_CACHE_DISABLE"),
            CAUSE.fix[0] if eager else None,
            CAUSE.fix[1] if file else None,
            *CAUSE.fix[2:],
        ),
    )
