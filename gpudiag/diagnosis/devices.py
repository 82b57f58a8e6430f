"""The GPUs themselves: kept from others, left out, or counted wrongly."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from gpudiag.diagnosis.machine import (
    NO_DEVICE,
    example_evidence,
    example_facts,
    example_gpus,
    example_nodes,
    example_row,
    failing_gpus,
    gpus_by_nvml,
    hidden_and_free,
    reset_command,
    said,
)
from gpudiag.diagnosis.rule import Evidence, Match, Rule, RuleCase
from gpudiag.diagnosis.steps import FAILED, context_error, devices_log, trace
from gpudiag.hostfacts import EnvironmentFacts, GpuProcess, NvmlDevice, Unknown, example_gpu
from gpudiag.knowledge.log import (
    CUDA_UNKNOWN,
    DEVICE_BUSY,
    DEVICE_NOT_SATISFIED,
    DEVICE_UNKNOWN,
    GPU_FAILED,
    TOO_FEW_CORES,
)
from gpudiag.log import Log, text
from gpudiag.missing import lost_gpus
from gpudiag.model import Gpu, Stage, Sure
from gpudiag.probe import Raised
from gpudiag.probes.common import Kernel
from gpudiag.probes.discovery import logical_devices
from gpudiag.scope import apply_mask

_MASK = "CUDA_VISIBLE_DEVICES"

# ---- compute mode ----


def _busy(evidence: Evidence) -> str:
    """Return who said that a GPU is busy, and what; "" where nobody did."""
    if busy := Log((context_error(evidence),)).first(DEVICE_BUSY):
        return f"creating the devices: {busy.text}"
    return f"the log: {busy.text}" if (busy := evidence.program.first(DEVICE_BUSY)) else ""


def _computing(device: NvmlDevice) -> list[int]:
    return [process.pid for process in device.processes if process.computes]


def _others(evidence: Evidence, unusable: list[Gpu]) -> tuple[str, dict[str, str | None] | None]:
    """Return how to choose the GPUs that are left without those that are ``unusable``."""
    rest = [gpu.uuid for gpu in evidence.gpus if gpu not in unusable]
    if not rest:
        return hidden_and_free(evidence) or "# there is no other GPU to choose here", None
    chosen = ",".join(rest)
    return f"export {_MASK}={chosen}", {_MASK: chosen}


def _named(gpus: list[Gpu]) -> str:
    return " and ".join(f"GPU {gpu.index}" for gpu in gpus)


def _held_exclusively(evidence: Evidence) -> Iterator[Match]:
    words = _busy(evidence)
    held = [pair for pair in gpus_by_nvml(evidence) if (pair[1].compute_mode or "").startswith("exclusive")]
    if not words or not held:
        return
    used = [pair for pair in held if _computing(pair[1])]
    gpu, device = (used or held)[0]
    pids = ", ".join(map(str, _computing(device)))
    other, change = _others(evidence, [gpu for gpu, _ in used or held])
    yield Match(
        evidence=(
            f"GPU {gpu.index} ({gpu.name}): compute mode {device.compute_mode}",
            f"processes on it: {pids or 'none that NVML lists'}",
            words,
        ),
        sure=Sure.PROVED if pids else Sure.LIKELY,
        figures={
            "index": gpu.index,
            "holder": f"process {pids} uses it" if pids else "another process uses or used it",
            "show": f"ps -o user,etime,args -p {pids.replace(' ', '')}" if pids else f"nvidia-smi -i {gpu.index}",
            "other": other,
        },
        change=change,
    )


def _prohibited(evidence: Evidence) -> Iterator[Match]:
    shut = [gpu for gpu, device in gpus_by_nvml(evidence) if device.compute_mode == "prohibited"]
    if not shut:
        return
    other, change = _others(evidence, shut)
    words = _busy(evidence)
    yield Match(
        evidence=(
            *(f"GPU {gpu.index} ({gpu.name}): compute mode prohibited" for gpu in shut),
            *([words] if words else []),
        ),
        figures={"index": shut[0].index, "other": other},
        change=change,
    )


def _unavailable(evidence: Evidence) -> Iterator[Match]:
    words = _busy(evidence)
    devices = gpus_by_nvml(evidence)
    if not words or any(device.compute_mode not in ("default", None) for _, device in devices):
        return
    failing = failing_gpus(evidence)
    reset = reset_command(evidence, [gpu.index for gpu in failing])
    other, change = _others(evidence, failing) if failing else ("", None)
    yield Match(
        evidence=(
            words,
            "compute mode: default",
            f"processes: {sum(len(_computing(device)) for _, device in devices)}",
        ),
        sure=Sure.POSSIBLE,
        figures={"who": _named(failing) or "a GPU", "reset": reset, "other": other},
        change=change,
    )


# ---- failing ----

_LOST = re.compile("lost|Unknown Error|reset|fallen")
_WHERE_IT_SHOWS = (Stage.DRIVER, Stage.NVML, Stage.DEVICE_COUNT, Stage.DEVICE_FILTER, Stage.CONTEXT, Stage.FIRST_OP)


def _failing(evidence: Evidence) -> Iterator[Match]:
    traced = evidence.trace
    lost = {index: why for index, why in lost_gpus(evidence.facts).items() if _LOST.search(why)}
    failed = [finding.message for finding in evidence.found("discovery.logical_devices", "product_failed")]
    raised = traced.raised.brief if traced is not None and traced.raised is not None else ""
    own = (raised, context_error(evidence), *failed, *map(text, devices_log(evidence)))
    errors = Log((*own, *evidence.lines))
    words = list(dict.fromkeys(event.line for event in errors.all(GPU_FAILED, CUDA_UNKNOWN)))
    if not lost and not words:
        return
    broken_at = next((step.stage for step in trace(evidence) if step.status == FAILED), None)
    failing = [] if lost or not (raised or context_error(evidence) or failed) else failing_gpus(evidence)
    indices: list[int | str] = [*lost, *(gpu.index for gpu in failing)]
    unusable = [gpu for gpu in evidence.gpus if str(gpu.index) in map(str, indices)]
    other, change = _others(evidence, unusable) if indices else ("", None)
    does = "does not answer" if lost else "fails when it is used"
    named = bool(lost) or errors.first(GPU_FAILED) is not None
    yield Match(
        evidence=(*(f"NVML: GPU {index}: {why}" for index, why in lost.items()), *words[:1]),
        sure=Sure.PROVED if lost else Sure.LIKELY if named else Sure.POSSIBLE,
        figures={
            "who": f"GPU {' and '.join(map(str, indices))} {does}" if indices else f"a GPU {does}",
            "what": "it, its power or its connection has failed"
            if named
            else "CUDA has no name for the error, and a GPU, power or connection that has failed is the first suspect",
            "other": other,
            "reset": reset_command(evidence, indices),
        },
        change=change,
        stage=broken_at if broken_at in _WHERE_IT_SHOWS else Stage.CONFIGURATION,
    )


def _wrong(evidence: Evidence) -> Iterator[Match]:
    found = evidence.found("discovery.logical_devices", "wrong_result")
    buses = [str(one.figures["pci_bus_id"]) for one in found]
    wrong = [gpu for gpu in evidence.gpus if gpu.pci_bus_id in buses]
    if not wrong:
        return
    others, change = _others(evidence, wrong)
    yield Match(
        evidence=tuple(one.message for one in found),
        figures={
            "which": " and ".join(f"GPU {gpu.index} ({gpu.name}, {gpu.pci_bus_id})" for gpu in wrong),
            "verb": "computes" if len(wrong) == 1 else "compute",
            "others": f"{others}  # until it is repaired" if change else "",
            "errors": f"nvidia-smi -q -d ECC,ROW_REMAPPER -i {','.join(str(gpu.index) for gpu in wrong)}",
        },
        change=change,
    )


# ---- left out ----

_LEAST = "TF_MIN_GPU_MULTIPROCESSOR_COUNT"


def _too_few_multiprocessors(evidence: Evidence) -> Iterator[Match]:
    found = said(evidence, TOO_FEW_CORES)
    if not found:
        return
    left_out = {event["pci"].lower() for event in found}
    rest = [gpu.uuid for gpu in evidence.gpus if gpu.pci_bus_id not in left_out]
    cores = str(min(int(event["cores"]) for event in found))
    bar = evidence.facts.variables.get(_LEAST)
    yield Match(
        evidence=(*(event.text for event in found), *([f"{_LEAST}={bar}"] if bar is not None else [])),
        figures={
            "names": " and ".join(f"{event['name']} ({event['pci']})" for event in found),
            "cores": cores,
            "least": found[0]["least"],
            "hide": f"export {_MASK}={','.join(rest)}  # or: hides it" if rest else f"unset {_LEAST}  # or",
        },
        change={_LEAST: cores},
    )


# ---- counted wrongly ----


def _other_makers_counted(evidence: Evidence) -> Iterator[Match]:
    nodes, devices = evidence.facts.device_nodes, evidence.facts.nvml_devices
    if isinstance(nodes, Unknown) or not devices or not nodes.other_gpus:
        return
    mask = evidence.facts.variables.get(_MASK)
    counted = range(len(devices), len(devices) + len(nodes.other_gpus))
    makers = " and ".join(sorted(set(nodes.other_gpus.values())))
    others = tuple(f"PCI bus: {maker} GPU {pci}" for pci, maker in nodes.other_gpus.items())
    figures: dict[str, Any] = {"makers": makers, "gpus": len(devices), "last": len(devices) - 1}
    if mask is not None and mask.strip().isdecimal() and int(mask) in counted and not apply_mask(mask, devices).devices:
        yield Match(
            evidence=(f"{_MASK}={mask}", *others, f"NVML reports {len(devices)} GPU(s), which CUDA counts from 0"),
            figures={**figures, "asked": f"{_MASK}={mask}", "cure": f"export {_MASK}={len(devices) - 1}"},
            change={_MASK: str(len(devices) - 1)},
        )
    elif mask is None:
        for asked in evidence.program.all(DEVICE_UNKNOWN, DEVICE_NOT_SATISFIED):
            number = asked["number"]
            if int(number) in counted:
                yield Match(
                    evidence=(
                        asked.text,
                        *others,
                        f"NVML reports {len(devices)} GPU(s), which TensorFlow counts from 0",
                    ),
                    sure=Sure.LIKELY,
                    figures={
                        **figures,
                        "asked": f"/GPU:{number}",
                        "cure": f"with tf.device('/GPU:{len(devices) - 1}'):",
                    },
                    stage=Stage.CONFIGURATION,
                )
                return


# ---- cases ----

_WORDS = "CUDA error: : CUDA_ERROR_DEVICE_UNAVAILABLE: CUDA-capable device(s) is/are busy or unavailable"
_APP = (f"RuntimeError: Bad StatusOr access: INTERNAL: {_WORDS}",)
_IGNORED_LINE = (
    "Ignoring visible gpu device (device: 1, name: NVIDIA T400, pci bus id: 0000:02:00.0, compute capability: 7.5) "
)
_SMALL = _IGNORED_LINE + (
    f"with core count: 6. The minimum required count is 8. You can adjust this requirement with the env var {_LEAST}."
)
_GPU = example_gpu()
_EXCLUSIVE = replace(_GPU, compute_mode="exclusive_process")
_USED = replace(_EXCLUSIVE, processes=(GpuProcess(4711, 1 << 30),))
_DRAWN_ON = replace(_EXCLUSIVE, processes=(GpuProcess(99, 1 << 20, computes=False),))
_PROHIBITED = replace(_GPU, compute_mode="prohibited")
_INTEL = {"0000:00:02.0": "Intel"}


def _machine(
    *gpus: NvmlDevice, busy: bool = False, refused: int | None = None, lines: tuple[str, ...] = (), **families: Any
) -> Evidence:
    """Return the evidence of a machine with ``gpus``, on which no device can be created where it is ``busy``.

    ``refused``: on which of them the driver makes no context.
    """
    facts = example_facts(len(gpus), **{"nvml": example_gpus(*gpus), **families})
    given = tuple(device.pci_bus_id for device in facts.nvml_devices)
    refusals = {} if refused is None else {given[refused]: "CUDA_ERROR_DEVICE_UNAVAILABLE"}
    failed = logical_devices.Reading(given, Raised("RuntimeError", _WORDS), {}, refusals)
    rows = [example_row(logical_devices, failed, facts)] if busy else []
    return example_evidence(facts, *rows, listed=len(gpus), lines=lines)


def _failing_machine(nvml_error: str | None = None, words: str = "", gpus: int = 1) -> Evidence:
    facts = example_facts(nvml=replace(example_gpus(*[_GPU] * gpus), error=nvml_error))
    failed = logical_devices.Reading((_GPU.pci_bus_id,), Raised("RuntimeError", words), {})
    rows = [example_row(logical_devices, failed, facts)] if words else []
    return example_evidence(facts, *rows, listed=1)


def _computing_wrong(gpus: int, wrong: int = 1) -> Evidence:
    """Return the evidence of a machine whose last GPUs compute wrong."""
    facts = example_facts(gpus)
    given = tuple(device.pci_bus_id for device in facts.nvml_devices)
    kernels = {f"GPU:{n}": Kernel(f"GPU:{n}", pci, n < gpus - wrong) for n, pci in enumerate(given)}
    products = {name: logical_devices.Product(kernel, None) for name, kernel in kernels.items()}
    reading = logical_devices.Reading(given, None, products)
    return example_evidence(facts, example_row(logical_devices, reading, facts), listed=gpus)


def _left_out(*log: str, lines: tuple[str, ...] = (), bar: str | None = None) -> Evidence:
    facts = example_facts(2, environment=EnvironmentFacts({} if bar is None else {_LEAST: bar}))
    return example_evidence(facts, log=log, listed=1, lines=lines)


def _counted(mask: str | None, *lines: str, gpus: int = 1, others: dict[str, str] = _INTEL) -> Evidence:
    """Return the evidence of a machine with GPUs of NVIDIA and of others."""
    variables = {} if mask is None else {_MASK: mask}
    nodes = example_nodes("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl", other_gpus=others)
    facts = example_facts(gpus, environment=EnvironmentFacts(variables), device_nodes=nodes)
    return example_evidence(facts, cuinit=NO_DEVICE if mask else "", listed=0 if mask else gpus, lines=lines)


_NO_GPU_1 = "InvalidArgumentError: /job:localhost/replica:0/task:0/device:GPU:1 unknown device."

RULES = (
    Rule(
        id="gpu_held_exclusively",
        stage=Stage.CONTEXT,
        cause="GPU {index} lets one process in at a time (compute mode exclusive_process), and {holder}",
        why="""
        In the compute mode exclusive_process, which clusters set, the second process that makes a context on the GPU is
        refused. TensorFlow lists the GPU all the same; then creating its devices fails with "busy or unavailable", and
        in 2.21 every later call into TensorFlow in that process blocks for ever. The second process is often one's own:
        a notebook that is still open, a second worker, pytest -n. Under MPS the mode is right, and programs must find
        the daemon (CUDA_MPS_PIPE_DIRECTORY).
        """,
        fix=(
            "{show}  # who it is: end it, or wait for it",
            "{other}",
            "sudo nvidia-smi -i {index} -c 0  # or: lets several in; on a cluster its administrators decide",
        ),
        url="https://docs.nvidia.com/deploy/mps/index.html",
        tried=1,
        find=_held_exclusively,
        cases=(
            RuleCase("a process is on it", _machine(_USED, busy=True)),
            RuleCase("a process is on one of two", _machine(_EXCLUSIVE, _USED, busy=True)),
            RuleCase("none that NVML lists", _machine(_EXCLUSIVE, busy=True)),
            RuleCase("a desktop is on it", _machine(_DRAWN_ON, busy=True)),
            RuleCase("in a log", _machine(_EXCLUSIVE, lines=_APP)),
            RuleCase("it works", _machine(_EXCLUSIVE), fires=False),
            RuleCase("used, and TensorFlow has a place on it", _machine(_USED), fires=False),
            RuleCase("mode default", _machine(_GPU, busy=True), fires=False),
        ),
    ),
    Rule(
        id="compute_mode_prohibited",
        stage=Stage.CONTEXT,
        cause="GPU {index} lets no program compute (compute mode prohibited)",
        why="""
        An administrator can close a GPU to CUDA, for instance the one that drives the screens. TensorFlow lists it all
        the same, and fails when it creates its devices, on all GPUs: "device(s) is/are busy or unavailable".
        """,
        fix=("{other}", "sudo nvidia-smi -i {index} -c 0  # or: opens it"),
        url="https://docs.nvidia.com/deploy/nvidia-smi/index.html",
        find=_prohibited,
        cases=(
            RuleCase("alone", _machine(_PROHIBITED, busy=True)),
            RuleCase("one of two", _machine(_GPU, _PROHIBITED, busy=True)),
            RuleCase(
                "the other is hidden",
                _machine(_PROHIBITED, _GPU, busy=True, environment=EnvironmentFacts({_MASK: "0"})),
            ),
            RuleCase("before anything failed", _machine(_PROHIBITED)),
            RuleCase("mode default", _machine(_GPU, busy=True), fires=False),
            RuleCase("mode exclusive", _machine(_EXCLUSIVE, busy=True), fires=False),
            RuleCase(
                "hidden",
                _machine(_GPU, _PROHIBITED, environment=EnvironmentFacts({_MASK: "0"})),
                fires=False,
            ),
        ),
    ),
    Rule(
        id="gpu_unavailable",
        stage=Stage.CONTEXT,
        cause="the driver refuses a context on {who} as busy or unavailable, and its compute mode is not the reason",
        why="""
        CUDA_ERROR_DEVICE_UNAVAILABLE comes from the compute mode most often. In mode DEFAULT it comes from a GPU that
        failed and waits for a reset, from a GPU in MIG mode that is used as a whole, from an MPS daemon that is in
        trouble, from a GPU that a hypervisor or a container shares badly, and from a mode that was changed meanwhile.
        """,
        fix=(
            "nvidia-smi -q -d COMPUTE,PIDS  # who is on the GPU, and its mode now",
            "sudo dmesg | grep -i -e nvrm -e xid",
            "{other}",
            "{reset}",
        ),
        tried=2,
        url="https://docs.nvidia.com/deploy/xid-errors/index.html",
        find=_unavailable,
        cases=(
            RuleCase("creating devices", _machine(_GPU, busy=True)),
            RuleCase("on one of two", _machine(_GPU, _GPU, busy=True, refused=1)),
            RuleCase("on one of two, not known which", _machine(_GPU, _GPU, busy=True)),
            RuleCase("in a log", _machine(_GPU, lines=_APP)),
            RuleCase("it works", _machine(_GPU), fires=False),
            RuleCase("exclusive", _machine(_EXCLUSIVE, busy=True), fires=False),
            RuleCase("prohibited", _machine(_PROHIBITED, busy=True), fires=False),
        ),
    ),
    Rule(
        id="gpu_lost",
        stage=Stage.CONTEXT,
        cause="{who}: {what}",
        why="""
        A GPU that has fallen off the bus, or has an error that its memory cannot correct, is still counted. NVML says
        "GPU is lost" or "Unknown Error", listing devices raises an exception, creating them ends in
        CUDA_ERROR_UNKNOWN, and one such GPU keeps TensorFlow from all the others. The kernel log has an Xid that names
        the fault: 79 fallen off the bus, 48, 63, 64, 94 and 95 memory errors, 62 and 119 its firmware.
        """,
        fix=(
            "sudo dmesg | grep -i xid  # which fault",
            "{other}",
            "{reset}",
            "# where a reset does not help: switch the machine off and on, then look at power and slot",
        ),
        tried=1,
        url="https://docs.nvidia.com/deploy/xid-errors/index.html",
        find=_failing,
        cases=(
            RuleCase("by NVML", _failing_machine("GPU 0: GPU is lost")),
            RuleCase("one of two, by NVML", _failing_machine("GPU 2: GPU is lost", gpus=2)),
            RuleCase("when devices are created", _failing_machine(words="CUDA_ERROR_UNKNOWN: unknown error")),
            RuleCase("one of two, not known which", _failing_machine(words="CUDA_ERROR_UNKNOWN: unknown", gpus=2)),
            RuleCase("in a log", _machine(_GPU, lines=("CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error",))),
            RuleCase("another error of NVML's", _failing_machine("GPU 1: Insufficient Permissions"), fires=False),
            RuleCase("busy", _machine(_GPU, busy=True), fires=False),
            RuleCase("it works", _machine(_GPU), fires=False),
        ),
    ),
    Rule(
        id="gpu_computes_wrong",
        stage=Stage.FIRST_OP,
        cause="{which} {verb} wrong results",
        why="""
        A product of small matrices of whole numbers has one right result, and the GPU gave another one, without an
        error. Its memory, its power or its clock is at fault most often, or what lies between it and the host; a
        library that is damaged is rarer. Models train on such a GPU, and come to nothing or to NaN.
        """,
        fix=(
            "{others}",
            "{errors}  # errors of its memory",
            "sudo dmesg | grep -i -e nvrm -e xid",
            "sudo dcgmi diag -r 3  # NVIDIA's own test; without overclocking and with the power it needs",
        ),
        url="https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html",
        find=_wrong,
        cases=(
            RuleCase("alone", _computing_wrong(1)),
            RuleCase("one of two", _computing_wrong(2)),
            RuleCase("both right", _computing_wrong(2, wrong=0), fires=False),
            RuleCase("a device cannot be created", _machine(_GPU, busy=True), fires=False),
        ),
    ),
    Rule(
        id="too_few_multiprocessors",
        stage=Stage.DEVICE_FILTER,
        cause="TensorFlow leaves out {names}: {cores} multiprocessors, and it asks for {least}",
        why="""
        TensorFlow takes no GPU with fewer multiprocessors than the best one of the machine or 8, whichever is less: a
        small card for the screens beside a large one is left out, with a line at level I as the only sign. Alone, the
        same card is taken. TF_MIN_GPU_MULTIPROCESSOR_COUNT sets the bar.
        """,
        fix=("export TF_MIN_GPU_MULTIPROCESSOR_COUNT={cores}", "{hide}"),
        url="https://www.tensorflow.org/api_docs/python/tf/config/list_physical_devices",
        find=_too_few_multiprocessors,
        cases=(
            RuleCase("a small card", _left_out(_SMALL)),
            RuleCase("in a log", _left_out(lines=(f"I gpu_device.cc:2399] {_SMALL}",))),
            RuleCase("a bar that was set", _left_out(_SMALL, bar="8")),
            RuleCase("left out for another reason", _left_out(f"{_IGNORED_LINE}with no reason"), fires=False),
            RuleCase("no line", _left_out(), fires=False),
        ),
    ),
    Rule(
        id="another_makers_gpu_counted",  # this comes before mask_hides_all, which is true too and says less
        stage=Stage.DRIVER,
        cause="{asked} counts the GPUs of {makers} too; CUDA and TensorFlow count NVIDIA's alone, from 0 to {last}",
        why="""
        Windows's Task Manager, desktops and system monitors number all display adapters, and often show the integrated
        GPU as 0 and NVIDIA's as 1. CUDA_VISIBLE_DEVICES and TensorFlow's /GPU:0 count NVIDIA's GPUs alone. TensorFlow
        never uses an integrated GPU of Intel or AMD: where that one seems busy, it draws the screen, and TensorFlow
        runs on the CPU.
        """,
        fix=(
            "{cure}",
            "tf.config.experimental.get_device_details(tf.config.list_physical_devices('GPU')[0])  # names the GPU",
        ),
        url="https://www.tensorflow.org/guide/gpu",
        find=_other_makers_counted,
        cases=(
            RuleCase("by the mask", _counted("1")),
            RuleCase("by a device's name", _counted(None, _NO_GPU_1)),
            RuleCase(
                "by a device's name, soft placement off",
                _counted(None, "Could not satisfy device specification '/job:localhost/task:0/device:GPU:1'."),
            ),
            RuleCase("no GPU of another maker", _counted("1", others={}), fires=False),
            RuleCase("beyond all of them", _counted("2"), fires=False),
            RuleCase("a valid index", _counted("1", gpus=2), fires=False),
            RuleCase("a device that is there", _counted(None, _NO_GPU_1, gpus=2), fires=False),
            RuleCase("masked, so numbered anew", _counted("0", _NO_GPU_1), fires=False),
            RuleCase("nothing asked for", _counted(None), fires=False),
        ),
    ),
)
