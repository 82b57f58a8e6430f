"""the processor, or the virtual machine's model of it, lacks instructions that this TensorFlow was compiled to use

TensorFlow's wheels need AVX since 1.6. Processors before 2011, many of the Pentium and Celeron lines, and the default
processor of QEMU and Proxmox (kvm64, qemu64) do not have it, or do not show it to the guest. Often only "Illegal
instruction (core dumped)" is printed.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.packages import FailedImport
from gpudiag.fix import Kind, ask, check, note, run
from gpudiag.knowledge.messages.python_packages import ILLEGAL_INSTRUCTION, NO_INSTRUCTIONS
from gpudiag.knowledge.origin import Origin
from gpudiag.model.diagnosis import Confidence

CAUSE = Cause(
    title="the processor, or the virtual machine's model of it, lacks instructions that this TensorFlow was compiled"
    " to use: {name}",
    fix=(
        check("grep -o -m1 -w avx /proc/cpuinfo", "if it prints nothing, there is no AVX"),
        note(
            "set the processor type 'host' instead of kvm64 or qemu64 in a virtual machine; otherwise"
            " use another machine",
            kind=Kind.CONFIGURE,
        ),
        run(
            "conda install -c conda-forge tensorflow",
            "or a build without AVX: conda's of older releases, or your own",
            kind=Kind.INSTALL,
        ),
    ),
    url="https://www.tensorflow.org/install/pip#hardware_requirements",
    needs_gpu=False,
)


_OF_APPLE = (
    ask(
        "python -c 'import platform; print(platform.machine())'",
        "if this prints x86_64 on an Apple processor, Python is built for Intel: that is the fault",
    ),
    note("then a Python for arm64: Miniforge, or python.org's, in a terminal without Rosetta; and TensorFlow with it"),
)


def find(program: Program, origin: Origin, failed: FailedImport | None) -> Matches:
    if failed is not None and "SIGILL" in failed.error:
        seen = "import tensorflow ended with SIGILL (illegal instruction)"
        yield Match((seen,), Confidence.LIKELY, {"name": "most often AVX"})
    elif said := program.first(NO_INSTRUCTIONS):
        yield Match(program.said(NO_INSTRUCTIONS), figures={"name": said["name"] or "SSE4"})
    elif said := program.first(ILLEGAL_INSTRUCTION):
        yield Match(
            program.said(ILLEGAL_INSTRUCTION),
            Confidence.POSSIBLE,
            {"name": "most often AVX"},
            fix=_OF_APPLE if origin.mac else (),
        )
