"""a call of a library never returns

TensorFlow opens NVIDIA's libraries when it lists the GPUs, and each sets itself up at the first operation that needs
it: it starts threads, loads its kernels from its own file, asks the driver to compile some, measures algorithms. What
it waits for may be a file system that does not answer, a lock in a cache folder that another program holds, or a GPU
that does not get through with its work. gpudiag ended the process; a program of yours would wait for ever.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Rows
from gpudiag.causes.shared.libraries import library_of
from gpudiag.fix import check, export
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import CallFacts

CAUSE = Cause(
    title="a call of {library} never returns: {what}",
    unfit=True,
    fix=(
        check(
            "ps -eo pid,stat,wchan:32,args | grep ' D'",
            "shows shows processes that wait in the kernel: for a disk, a network or the driver",
        ),
        export("CUDA_CACHE_DISABLE", "1", "if it then returns, the driver's cache of compiled kernels is at fault"),
        check("sudo dmesg | grep -i -e nvrm -e xid -e 'blocked for more' -e 'not responding'"),
    ),
    url="https://docs.nvidia.com/deploy/xid-errors/index.html",
    unless={
        "driver_call_hangs": "the library waits for a call of the driver",
    },
    views=tuple(
        f"libraries.{library}.operation_hangs"
        for library in ("copies", "cublas", "cudnn", "cudnn_layers", "cufft", "cusolver", "cusparse", "nccl", "xla")
    ),
)
_LIBRARIES = {
    "cublas": "cuBLAS",
    "cudnn": "cuDNN",
    "cudnn_layers": "cuDNN",
    "cufft": "cuFFT",
    "cusolver": "cuSOLVER",
    "cusparse": "cuSPARSE",
    "nccl": "NCCL",
    "xla": "XLA",
}


def find(rows: Rows, calls: CallFacts | None) -> Matches:
    hung = [(row, finding) for row in rows for finding in row.findings if finding.kind == "operation_hangs"]
    named = [(row, finding) for row, finding in hung if row.name in _LIBRARIES] or hung
    evidence = tuple(f"{other.probe}: {found.message}" for other, found in hung[:3])
    for call in [pending for pending in (calls.hung if calls else ()) if not pending.of_driver][:1]:
        own = next((found.message for row, found in hung if row.probe == call.probe), "")
        what = own or f"{call.name} did not return within {call.waited_s:.0f} s"
        waits = (f"the process waits in {call.file}",) if call.file and call.file != call.name else ()
        yield Match(
            evidence=(*(evidence or (f"{call.probe}: {what}" if call.probe else what,)), *waits),
            figures={
                "library": library_of(call.name) or "a library",
                "what": what,
            },
        )
        return
    for row, finding in named[:1]:
        yield Match(
            evidence=evidence,
            confidence=Confidence.PROVED if row.name in _LIBRARIES else Confidence.LIKELY,
            figures={"library": _LIBRARIES.get(row.name, "a library"), "what": finding.message},
        )
