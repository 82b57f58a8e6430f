"""What is known where no other rule finds a cause: the code that CUDA gave, and what it can mean."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from gpudiag.diagnosis.machine import NO_DEVICE, container, example_evidence, example_facts, parts
from gpudiag.diagnosis.rule import Evidence, Match, Rule, RuleCase
from gpudiag.diagnosis.steps import FAILED, devices_log, trace
from gpudiag.log import text
from gpudiag.model import Broken, Cause, Row, Stage, Sure

_IN_USE = (Stage.CONTEXT, Stage.FIRST_OP)
_CODE = re.compile(r"CUDA_ERROR_(?P<name>\w+)")


class _Meaning(NamedTuple):
    codes: str
    """A pattern for the names of the codes, without ``CUDA_ERROR_``."""
    text: str
    look: str


_MEANINGS = (
    _Meaning(
        "NOT_INITIALIZED",
        "CUDA cannot start in this process: forked from one that used CUDA, or a module in a bad state",
        "sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm  # no GPU being in use",
    ),
    _Meaning(
        "INVALID_DEVICE",
        "there is no GPU of that number or state for this process: a stale mask, MIG instance or device file",
        "ls -l /dev/nvidia* /proc/driver/nvidia/gpus  # do files and GPUs fit; in a container: start it anew",
    ),
    _Meaning(
        "NO_DEVICE",
        "this process is given no GPU: a mask, device files, a control group, or a GPU that failed",
        "ls -l /dev/nvidia* /proc/driver/nvidia/gpus",
    ),
    _Meaning(
        "OUT_OF_MEMORY",
        "it is the host's memory or addresses that the driver lacks here, by a limit most often, or a GPU that failed",
        "ulimit -v -l; free -m  # limits of this shell, memory of the host",
    ),
    _Meaning(
        "DEVICE_NOT_LICENSED",
        "the virtual GPU has no licence",
        "nvidia-smi -q | grep -i licen  # and: sudo systemctl status nvidia-gridd",
    ),
    _Meaning(
        r"MPS_\w+",
        "the MPS daemon that this process is to use does not serve it",
        "echo quit | nvidia-cuda-mps-control  # or unset CUDA_MPS_PIPE_DIRECTORY: does without the daemon",
    ),
    _Meaning(
        "OPERATING_SYSTEM|NOT_PERMITTED",
        "the operating system refused what the driver asked for: permissions, seccomp, limits",
        "ls -l /dev/nvidia*; ulimit -a",
    ),
    _Meaning(
        r"ECC_UNCORRECTABLE|NVLINK_UNCORRECTABLE|HARDWARE_STACK_ERROR|CONTAINED",
        "a GPU or its memory has an error",
        "nvidia-smi -q -d ECC",
    ),
    _Meaning(
        "UNKNOWN",
        "the driver met a state that it has no name for: a GPU that failed, a module in a bad state, a sandbox",
        "nvidia-smi -q | grep -i -e error -e pending",
    ),
)
_OTHERWISE = _Meaning("", "", "nvidia-smi -q | grep -i -e error -e pending")


def _failed(stage: Stage, evidence: Evidence) -> Iterator[Match]:
    step = next((step for step in trace(evidence) if step.status == FAILED), None)
    if step is None or step.stage is not stage:
        return
    log = [text(line) for line in devices_log(evidence) if _CODE.search(line)][:1] if stage in _IN_USE else []
    said = next((text for text in (step.evidence, *log) if _CODE.search(text)), step.evidence)
    code = _CODE.search(said)
    known = parts(evidence)
    meaning = next((one for one in _MEANINGS if code and re.fullmatch(one.codes, code["name"])), _OTHERWISE)
    driver = (
        ()
        if known is None
        else (f"kernel module {known[0].kernel_module or 'not known'}; NVML reports {len(known[1].devices)} GPU(s)",)
    )
    yield Match(
        evidence=(*dict.fromkeys((step.evidence, said)), *driver),
        sure=Sure.POSSIBLE,
        figures={
            "code": code[0] if code else step.evidence,
            "meaning": f": {meaning.text}" if meaning.text else "",
            "look": meaning.look,
            "where": ", on the host" if container(evidence) else "",
        },
    )


def _cases(stage: Stage) -> tuple[RuleCase, ...]:
    """Return cases in which the driver's start, or the count of its devices, ends in many a code."""

    def ends_in(error: str) -> Evidence:
        if stage is Stage.DRIVER:
            return example_evidence(example_facts(), cuinit=error)
        return example_evidence(
            example_facts(), log=(f"could not retrieve CUDA device count: INTERNAL: CUDA error: : {error}",)
        )

    return (
        *(
            RuleCase(code, ends_in(f"CUDA_ERROR_{code}: in words"))
            for code in ("NOT_INITIALIZED", "INVALID_DEVICE", "OUT_OF_MEMORY", "MPS_SERVER_NOT_READY", "A_NEW_ONE")
        ),
        RuleCase("no device", ends_in(NO_DEVICE)),
        RuleCase("it works", example_evidence(example_facts(), listed=1), fires=False),
    )


def _in_use(error: str) -> Evidence:
    """Return the evidence of a machine on which a child ended by a signal when it made TensorFlow's devices."""
    log = (f"E0000 00:00:1.2 7 gpu_device.cc:425] Failed to create stream: INTERNAL: {error}",)
    row = Row("discovery.logical_devices", (), Broken(Cause.SIGNAL, "killed by SIGSEGV"), 0.0, log=log)
    return example_evidence(example_facts(), row, listed=1)


_FIX = (
    "nvidia-smi  # does the driver answer, and does it name each GPU",
    "{look}",
    "sudo dmesg | grep -i -e nvrm -e xid  # what the kernel says of it{where}",
    "sudo reboot  # where none of these says more{where}",
)
_CODES = "https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html"

RULES = (
    Rule(
        id="cuinit_fails",
        stage=Stage.DRIVER,
        cause="the CUDA driver does not start: {code}{meaning}",
        why="""
        cuInit is the first call of every CUDA program, and its code is all that the driver says. None of the causes
        that show in facts (modules, versions, device files, masks, containers) is at work, so that the code's general
        meaning is what is left, and the kernel's log: a line with Xid names a fault of the GPU itself.
        """,
        fix=_FIX,
        url=_CODES,
        find=partial(_failed, Stage.DRIVER),
        last_resort=True,
        cases=_cases(Stage.DRIVER),
    ),
    Rule(
        id="device_count_fails",
        stage=Stage.DEVICE_COUNT,
        cause="the CUDA driver starts and does not count its GPUs: {code}{meaning}",
        why="""
        After cuInit TensorFlow asks how many GPUs there are. That this fails, where starting the driver did not, is
        rare: a GPU that failed in between, or a library that stands between the program and the driver.
        """,
        fix=_FIX,
        url=_CODES,
        find=partial(_failed, Stage.DEVICE_COUNT),
        last_resort=True,
        cases=_cases(Stage.DEVICE_COUNT),
    ),
    Rule(
        id="devices_fail",
        stage=Stage.CONTEXT,
        cause="TensorFlow lists the GPU and cannot make its device: {code}{meaning}",
        why="""
        TensorFlow makes a context, streams and a memory pool on each GPU before its first operation. Where one of them
        fails it raises, or the process ends by a signal, as a stream that cannot be made does (measured, 2.21). The
        log of the probe discovery.logical_devices has the driver's words.
        """,
        fix=("gpudiag check -v discovery.logical_devices  # with its log", *_FIX),
        url=_CODES,
        find=partial(_failed, Stage.CONTEXT),
        last_resort=True,
        cases=(
            RuleCase("a signal", _in_use("")),
            RuleCase("a signal, and a code in the log", _in_use("CUDA_ERROR_LAUNCH_FAILED: in words")),
            RuleCase("it works", example_evidence(example_facts(), listed=1), fires=False),
        ),
    ),
)
