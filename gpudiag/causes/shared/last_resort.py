"""Shared by causes: CUDA's error code, if nothing else is known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from gpudiag.cause import Match, Rows
from gpudiag.causes.shared.machine import WholeDriver
from gpudiag.causes.shared.steps import FirstFailed, devices_log
from gpudiag.fix import Action, check, fill_in, kernel_log, nvidia_smi, reboot, reload_uvm
from gpudiag.knowledge.codes import code_in, meaning_of
from gpudiag.knowledge.log_lines import is_error, text
from gpudiag.knowledge.message import Event
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.facts import Facts
from gpudiag.model.report import Broken, Row, Severity
from gpudiag.text import counted

IN_USE = (Stage.CONTEXT, Stage.FIRST_OP)
CODE = re.compile(r"CUDA_ERROR_(?P<name>\w+)")


UVM_AGAIN = reload_uvm("if no GPU is in use")
LOOK = check("nvidia-smi -q | grep -i -e error -e pending")
"""The check for a closer look; some codes have another command."""


def texts_of(row: Row) -> Iterator[str]:
    """Yield the failure of a row in words, then the errors of its log."""
    yield from (finding.message for finding in row.findings if finding.severity is Severity.FAIL)
    if isinstance(row.outcome, Broken):
        yield f"{row.outcome.cause.value}: {row.outcome.detail}"
    yield from (line for line in row.log if is_error(line))


def code_in_row(row: Row) -> Event | None:
    """Return the first error of NVIDIA's driver or libraries that a row which failed or broke names."""
    failed = row.status == "fail" or row.crash
    return next(filter(None, map(code_in, texts_of(row))), None) if failed else None


class Meaning(NamedTuple):
    codes: str
    """A pattern for the names of the codes, without ``CUDA_ERROR_``."""
    text: str
    look: Action


MEANINGS = (
    Meaning(
        "NOT_INITIALIZED",
        "CUDA cannot start in this process: forked from one that used CUDA, or a module in a bad state",
        UVM_AGAIN,
    ),
    Meaning(
        "INVALID_DEVICE",
        "there is no GPU of that number or state for this process: a stale mask, MIG instance or device file",
        check(
            "ls -l /dev/nvidia* /proc/driver/nvidia/gpus",
            "compare device files and GPUs; in a container: start it again",
        ),
    ),
    Meaning(
        "NO_DEVICE",
        "this process is given no GPU: a mask, device files, a control group, or a GPU that failed",
        check("ls -l /dev/nvidia* /proc/driver/nvidia/gpus"),
    ),
    Meaning(
        "OUT_OF_MEMORY",
        "it is the host's memory or addresses that the driver lacks here, by a limit most often, or a GPU that failed",
        check("ulimit -v -l; free -m", "shows this shell's limits and the host's free memory"),
    ),
    Meaning(
        "DEVICE_NOT_LICENSED",
        "the vGPU has no licence",
        check("nvidia-smi -q | grep -i licen", "and: sudo systemctl status nvidia-gridd"),
    ),
    Meaning(
        "OPERATING_SYSTEM|NOT_PERMITTED",
        "the operating system refused what the driver asked for: permissions, seccomp, limits",
        check("ls -l /dev/nvidia*; ulimit -a"),
    ),
    Meaning(
        r"ECC_UNCORRECTABLE|NVLINK_UNCORRECTABLE|HARDWARE_STACK_ERROR|CONTAINED",
        "a GPU or its memory has an error",
        nvidia_smi(options="-q -d ECC"),
    ),
    Meaning(
        "UNKNOWN",
        "the driver is in an unknown state: a failed GPU, a module in a bad state, or a sandbox",
        LOOK,
    ),
)
OTHERWISE = Meaning("", "", LOOK)


def match(
    step: FirstFailed, whole: WholeDriver | None, facts: Facts, rows: Rows, *, before: tuple[Action, ...] = ()
) -> Match:
    """Return the match for the failed step; ``before`` are actions to put before the common ones."""
    log = [text(line) for line in devices_log(rows) if CODE.search(line)][:1] if step.stage in IN_USE else []
    said = next((text for text in (step.evidence, *log) if CODE.search(text)), step.evidence)
    code = CODE.search(said)
    meaning = next((entry for entry in MEANINGS if code and re.fullmatch(entry.codes, code["name"])), OTHERWISE)
    event = code_in(said) if meaning is OTHERWISE else None
    words = meaning.text if event is None else meaning_of(event)
    own = () if event is None else tuple(fill_in(action, event.fields) for action in event.message.fix)
    driver = []
    if whole is not None:
        nvml = whole.nvml
        answer = f"fails: {nvml.error}" if nvml.error else f"reports {counted(len(nvml.devices), 'GPU')}"
        driver = [f"kernel module {whole.driver.kernel_module or 'not known'}; NVML {answer}"]
    return Match(
        evidence=(*dict.fromkeys((step.evidence, said)), *driver),
        confidence=Confidence.POSSIBLE,
        figures={
            "code": code[0] if code else step.evidence,
            "meaning": f": {words}" if words else "",
        },
        fix=(*own, *before, FIRST, meaning.look, *LAST),
    )


FIRST = nvidia_smi("must work, and list each GPU")
LAST = (
    kernel_log("shows what the kernel reports about it"),
    reboot("if none of these says more"),
)
CODES = "https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html"
