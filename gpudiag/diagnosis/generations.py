"""GPUs of a generation that the wheel, or cuDNN, has no code for: too new, or too old."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from gpudiag.diagnosis.machine import (
    example_evidence,
    example_facts,
    example_gpus,
    example_row,
    gpus_by_nvml,
    said,
)
from gpudiag.diagnosis.rule import Evidence, Match, Rule, RuleCase
from gpudiag.hostfacts import Distribution, TensorflowFacts, Unknown, example, example_gpu
from gpudiag.knowledge.log import NO_MACHINE_CODE, PTX_REFUSED, TOO_LOW_CAPABILITY
from gpudiag.model import Broken, Cause, Row, Stage, Sure
from gpudiag.probe import Raised
from gpudiag.probes.discovery import device_details, logical_devices, physical_devices

_MASK = "CUDA_VISIBLE_DEVICES"


def _where_kernels_fail(evidence: Evidence) -> Stage:
    """Return the stage at which a GPU without machine code shows: kernels fail, never end, or are slow at first."""
    if evidence.found("discovery.logical_devices", "product_failed"):
        return Stage.FIRST_OP
    for row in evidence.rows:
        if row.probe == "discovery.logical_devices" and (crash := row.crash) is not None:
            return Stage.CONTEXT if crash.cause is Cause.TIMEOUT else Stage.CONFIGURATION
    return Stage.CONFIGURATION


def _newer_than_wheel(evidence: Evidence) -> Iterator[Match]:
    found = evidence.found("discovery.device_details", "ptx_only")
    in_log = evidence.program.all(NO_MACHINE_CODE)
    if not found and not in_log:
        return
    figures = found[0].figures if found else {"name": "a GPU", "capability": in_log[0]["has"]}
    capability = str(figures["capability"])
    failed = [event.text for event in evidence.log.all(PTX_REFUSED)]
    yield Match(
        evidence=(*(finding.message for finding in found), *(event.text for event in in_log[:1]), *failed[:1]),
        sure=Sure.PROVED if found else Sure.LIKELY,
        figures={
            "name": figures["name"],
            "capability": capability,
            "slow": "kernels fail"
            if failed
            else "each kernel is compiled at its first use, for up to 30 minutes, or fails",
        },
        stage=_where_kernels_fail(evidence),
    )


def _older_than_wheel(evidence: Evidence) -> Iterator[Match]:
    found = evidence.found("discovery.device_details", "too_old")
    ignored = said(evidence, TOO_LOW_CAPABILITY)
    if not found and not ignored:
        return
    name, has = (
        (found[0].figures["name"], found[0].figures["capability"]) if found else (ignored[0]["name"], ignored[0]["has"])
    )
    pci = {str(finding.figures["pci_bus_id"]) for finding in found} | {event["pci"].lower() for event in ignored}
    rest = ",".join(gpu.uuid for gpu in evidence.gpus if gpu.pci_bus_id not in pci)
    yield Match(
        evidence=(*(finding.message for finding in found), *(event.text for event in ignored)),
        figures={
            "name": name,
            "capability": has,
            "hide": f"export {_MASK}={rest}  # the others" if rest else f"export {_MASK}=-1  # the CPU",
        },
        stage=Stage.DEVICE_FILTER if ignored else _where_kernels_fail(evidence),
    )


_LAST_CUDNN = (9, 10)
"""The last cuDNN with code for Maxwell, Pascal and Volta (NVIDIA's support matrices of 9.10 and 9.11)."""
_TURING = (7, 5)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _cudnn_dropped(evidence: Evidence) -> Iterator[Match]:
    readings = [row.reading for row in evidence.rows if row.probe == "discovery.physical_devices" and row.reading]
    loaded = next((str(reading["cudnn"]) for reading in readings if reading.get("cudnn")), None)
    tensorflow = evidence.facts.tensorflow
    companions = () if isinstance(tensorflow, Unknown) else tensorflow.companions
    by_pip = next((one for one in companions if one.name.startswith("nvidia-cudnn-cu")), None)
    version = loaded or (by_pip.version if by_pip else None)
    if version is None or _numbers(version) <= _LAST_CUDNN:
        return
    old = [
        (gpu, device.compute_capability)
        for gpu, device in gpus_by_nvml(evidence)
        if device.compute_capability is not None and _numbers(device.compute_capability) < _TURING
    ]
    if not old:
        return
    strange = loaded and by_pip and not by_pip.version.startswith(loaded)
    yield Match(
        evidence=(
            *(f"GPU {gpu.index} ({gpu.name}): compute capability {capability}" for gpu, capability in old),
            f"cuDNN {loaded} is loaded" if loaded else f"cuDNN {version} is installed",
            *([f"{by_pip.name} {by_pip.version} in {by_pip.location}"] if by_pip else []),
        ),
        sure=Sure.PROVED if loaded else Sure.LIKELY,
        figures={
            "name": old[0][0].name,
            "capability": old[0][1],
            "version": version,
            "package": by_pip.name if by_pip else "nvidia-cudnn-cu12",
            "also": "# take the other cuDNN, which is loaded instead, out of LD_LIBRARY_PATH"
            if strange or (loaded and not by_pip)
            else "pip check  # says whether something else asks for a newer one",
        },
    )


# ---- cases ----

_LINE = (
    "TensorFlow was not built with CUDA kernel binaries compatible with compute capability 12.0a. CUDA kernels will be "
    "jit-compiled from PTX, which could take 30 minutes or longer."
)
_INVALID_PTX = "'cuModuleLoadData(&module, data)' failed with 'CUDA_ERROR_INVALID_PTX'"
_OLD_LINE = (
    "Ignoring visible gpu device (device: 0, name: NVIDIA GeForce GTX 970, pci bus id: 0000:01:00.0, compute "
    "capability: 5.2) with Cuda compute capability 5.2. The minimum required Cuda capability is 6.0."
)
_KERNEL_RAISED = Raised("InternalError", "'cuLaunchKernel' failed with 'CUDA_ERROR_INVALID_HANDLE'")


def _machine(
    *capabilities: str,
    compiled: bool = False,
    cudnn: str | None = None,
    by_pip: str = "",
    outcome: Broken | None = None,
    kernels_fail: bool = False,
    log: tuple[str, ...] = (),
    lines: tuple[str, ...] = (),
) -> Evidence:
    """Return the evidence of a machine with GPUs of these compute capabilities."""
    tensorflow = example().tensorflow
    assert isinstance(tensorflow, TensorflowFacts)
    found = (Distribution("nvidia-cudnn-cu12", by_pip, "/venv/lib"),) if by_pip else ()
    facts = example_facts(
        len(capabilities),
        nvml=example_gpus(*(replace(example_gpu(), compute_capability=one) for one in capabilities)),
        tensorflow=replace(tensorflow, companions=found),
    )
    given = tuple(device.pci_bus_id for device in facts.nvml_devices)
    told = tuple(device_details.Details("NVIDIA GPU", one) for one in capabilities)
    counts = (len(given), len(given))
    rows = [
        example_row(device_details, device_details.Reading(given, told, capabilities if compiled else ()), facts),
        example_row(physical_devices, physical_devices.Reading(*counts, None, {}, (), cudnn), facts),
    ]
    if outcome is not None:
        rows.append(Row("discovery.logical_devices", (), outcome, 0.0))
    if kernels_fail:
        products = {f"GPU:{number}": logical_devices.Product(None, _KERNEL_RAISED) for number in range(len(given))}
        rows.append(example_row(logical_devices, logical_devices.Reading(given, None, products), facts))
    return example_evidence(facts, *rows, log=log, listed=len(given), lines=lines)


RULES = (
    Rule(
        id="gpu_newer_than_wheel",
        stage=Stage.CONFIGURATION,
        cause="{name} has compute capability {capability}, for which this TensorFlow brings no code: {slow}",
        why="""
        TensorFlow's wheels up to 2.21 have machine code for compute capabilities 6.0 to 8.9 and, for everything newer,
        PTX of 9.0 that the driver compiles. On Blackwell (10.0 and 12.0: B200, RTX 50, RTX PRO) the GPU is listed, and
        the first start takes up to 30 minutes, or kernels fail with CUDA_ERROR_INVALID_PTX and
        CUDA_ERROR_INVALID_HANDLE. That the GPU is listed is no proof that it works. Later CUDA libraries or a later
        driver do not help: the code is missing in TensorFlow.
        """,
        fix=(
            "docker run --gpus all -it nvcr.io/nvidia/tensorflow:25.02-tf2-py3  # has Blackwell's; driver 570 on",
            "# or build TensorFlow for it: HERMETIC_CUDA_COMPUTE_CAPABILITIES={capability}, CUDA 12.8 or later",
            "export CUDA_CACHE_MAXSIZE=4294967296  # keeps what was compiled, where compiling works",
        ),
        url="https://github.com/tensorflow/tensorflow/issues/89272",
        find=_newer_than_wheel,
        cases=(
            RuleCase("Blackwell", _machine("12.0", compiled=True)),
            RuleCase(
                "Blackwell, kernels fail", _machine("12.0", compiled=True, kernels_fail=True, log=(_INVALID_PTX,))
            ),
            RuleCase("compiling never ends", _machine("12.0", outcome=Broken(Cause.TIMEOUT, "no result within 60 s"))),
            RuleCase("in a log", _machine("8.0", lines=(f"W0000 gpu_device.cc:2447] {_LINE}", _INVALID_PTX))),
            RuleCase("Hopper", _machine("9.0"), fires=False),
            RuleCase("older than the wheel", _machine("5.2", compiled=True), fires=False),
            RuleCase("kernels fail for another reason", _machine("8.0", kernels_fail=True), fires=False),
        ),
    ),
    Rule(
        id="gpu_older_than_wheel",
        stage=Stage.CONFIGURATION,
        cause="{name} has compute capability {capability}, which is too old for this TensorFlow: no kernel runs on it",
        why="""
        TensorFlow's wheels of 2.18 to 2.21 have code for compute capability 6.0 (Pascal) and later. An older GPU is
        listed; TensorFlow even announces that it will compile kernels for it, which cannot be: PTX runs on newer GPUs
        alone.
        """,
        fix=(
            "{hide}",
            "# or take an earlier TensorFlow that was built for it, as this tells of the one that is installed:",
            "python -c 'import tensorflow as tf; print(tf.sysconfig.get_build_info()[\"cuda_compute_capabilities\"])'",
        ),
        url="https://www.tensorflow.org/install/source#gpu",
        find=_older_than_wheel,
        cases=(
            RuleCase("Maxwell", _machine("5.2", compiled=True)),
            RuleCase("Maxwell, kernels fail", _machine("5.2", compiled=True, kernels_fail=True)),
            RuleCase("beside another", _machine("8.0", "5.2")),
            RuleCase("left out", _machine("8.0", log=(_OLD_LINE,))),
            RuleCase("Pascal", _machine("6.1"), fires=False),
            RuleCase("newer than the wheel", _machine("12.0", compiled=True), fires=False),
        ),
    ),
    Rule(
        id="cudnn_dropped_gpu",
        stage=Stage.CONFIGURATION,
        cause="cuDNN {version} has no code for {name} (compute capability {capability}): convolutions fail",
        why="""
        cuDNN 9.10 is the last with code for Maxwell, Pascal and Volta (compute capability below 7.5). TensorFlow asks
        for cuDNN 9.3 or any later 9, so that pip takes the newest. The GPU is listed and matrix products work;
        convolutions and recurrent layers fail, with CUDNN_STATUS_EXECUTION_FAILED, "no kernel image" or "No algorithm
        worked".
        """,
        fix=("pip install '{package}>=9.3,<9.11'", "{also}"),
        url="https://docs.nvidia.com/deeplearning/cudnn/backend/v9.11.0/reference/support-matrix.html",
        find=_cudnn_dropped,
        cases=(
            RuleCase("Pascal", _machine("6.1", cudnn="9.28.0", by_pip="9.28.0.42")),
            RuleCase("Volta", _machine("7.0", cudnn="9.11.0")),
            RuleCase("one of two", _machine("8.0", "6.1", cudnn="9.28.0")),
            RuleCase("installed, and not known to be loaded", _machine("6.1", by_pip="9.28.0.42")),
            RuleCase("the last that has it", _machine("6.1", cudnn="9.10.2", by_pip="9.10.2.21"), fires=False),
            RuleCase("another one is loaded", _machine("6.1", cudnn="9.3.0", by_pip="9.28.0.42"), fires=False),
            RuleCase("Turing", _machine("7.5", cudnn="9.28.0"), fires=False),
            RuleCase("no cuDNN known", _machine("6.1"), fires=False),
        ),
    ),
)
