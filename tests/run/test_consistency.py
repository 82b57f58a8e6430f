"""What the causes of one report say together: no contradiction, and no harm on weak evidence."""

from __future__ import annotations

import functools
import hashlib
import itertools

import pytest

import settled
from gpudiag.cause import Premise
from gpudiag.fix import Action, check, note, reboot
from gpudiag.knowledge.relevance import evidence_lines
from gpudiag.model.diagnosis import Confidence, Diagnosis, RootCause, Stage
from gpudiag.run import why
from gpudiag.run.consistency import LEFT_OUT, contradict, premise, with_safe_fix, without_contradictions
from reports import fix_lines

LOGS = {log.name: log.log.splitlines() for log in settled.load()}
CREATED = (
    "I0000 00:00:1733000000.1 10 gpu_device.cc:2019] Created device /job:localhost/replica:0/task:0/device:GPU:0 with "
    "13272 MB memory:  -> device: 0, name: NVIDIA H100 80GB HBM3, pci bus id: 0000:2b:00.0, compute capability: 9.0"
)
NOT_READY = (
    "E0000 00:00:1733000000.0 10 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: Failed call to "
    "cuInit: CUDA_ERROR_SYSTEM_NOT_READY: system not yet initialized"
)
STEP = "100/100 [==============================] - 3s 10ms/step - loss: 0.3000"
DEVICE = "/job:localhost/replica:0/task:0/device:"
OOM = "ResourceExhaustedError: OOM when allocating tensor with shape[64,256] and type float"
ON_CPU = f"{OOM} on {DEVICE}CPU:0 by allocator cpu"
ON_GPU = f"{OOM} on {DEVICE}GPU:0 by allocator GPU_0_bfc"
NO_CUDNN = (
    "2021-04-09 14:02:51.330127: W tensorflow/stream_executor/platform/default/dso_loader.cc:60] Could not load "
    "dynamic library 'libcudnn.so.8'; dlerror: libcudnn.so.8: cannot open shared object file: No such file or "
    "directory; LD_LIBRARY_PATH: /usr/local/cuda-11.2/lib64"
)
UNKNOWN = "failed call to cuInit: CUDA_ERROR_UNKNOWN: unknown error"


def explained(*lines: str) -> Diagnosis:
    return why.explained(lines, ("gpudiag", "why")).diagnosis


@functools.cache
def of_log(lines: tuple[str, ...]) -> Diagnosis:
    return explained(*lines)


def shown(*lines: str) -> list[str]:
    return [cause.cause for cause in explained(*lines).causes]


def cause(stage: Stage, confidence: Confidence, *fix: Action, rule: str = "a_cause") -> RootCause:
    return RootCause(rule, stage, confidence, "", (), fix, "")


# --- every pair of causes that the logs give -------------------------------------------------------------------------


def wrong(diagnosis: Diagnosis) -> list[str]:
    """Return what is wrong with the causes of one report."""
    causes = (*diagnosis.causes, *diagnosis.folded)
    surest = min((list(Confidence).index(cause.confidence) for cause in diagnosis.causes), default=0)
    found = [f"{a.cause_id} | {b.cause_id}" for a, b in itertools.combinations(diagnosis.causes, 2) if contradict(a, b)]
    for cause in causes:
        weak = cause.confidence is Confidence.POSSIBLE or (
            cause in diagnosis.causes and list(Confidence).index(cause.confidence) > surest
        )
        found += [
            f"{cause.cause_id} ({cause.confidence.value}): {line.text}"
            for line in cause.fix
            if weak and line.kind.can_harm
        ]
        found += [f"{cause.cause_id}: no line to type"] if not cause.fix else []
    return found


def log_of_each_cause() -> dict[tuple[str, str], list[str]]:
    """Return, for each first cause of a log and its stage, the shortest log that gives it."""
    found: dict[tuple[str, str], list[str]] = {}
    for lines in sorted(LOGS.values(), key=lambda lines: sum(map(len, lines))):
        for cause in of_log(tuple(lines)).causes[:1]:
            found.setdefault((cause.cause_id, cause.stage.value), lines)
    return found


def test_the_causes_of_each_log_are_consistent() -> None:
    assert {name: found for name, lines in LOGS.items() if (found := wrong(of_log(tuple(lines))))} == {}


@pytest.mark.parametrize("parts", [30, pytest.param(1, marks=pytest.mark.slow)])
def test_two_logs_in_one_are_consistent(parts: int) -> None:
    """By default a thirtieth of the ordered pairs of causes, chosen by the hash of their names."""
    logs = log_of_each_cause()
    assert len(logs) > 60
    found = {}
    for first, other in itertools.permutations(logs, 2):
        if int(hashlib.sha256(f"{first} {other}".encode()).hexdigest(), 16) % parts == 0:
            found[first, other] = wrong(explained(*logs[first], *logs[other]))
    assert {pair: said for pair, said in found.items() if said} == {}


# --- contradictions --------------------------------------------------------------------------------------------------


def test_memory_of_a_gpu_and_missing_libraries_are_not_shown_together() -> None:
    assert shown(NO_CUDNN) != []
    assert shown(ON_GPU) != []
    causes = explained(NO_CUDNN, ON_GPU).causes
    assert [cause.cause_id for cause in causes] == ["cuda_libraries_not_found"]


def test_the_more_certain_of_two_that_contradict_stays() -> None:
    no_gpu, full = cause(Stage.DRIVER, Confidence.LIKELY), cause(Stage.MEMORY, Confidence.PROVED)
    other = cause(Stage.CONFIGURATION, Confidence.POSSIBLE)
    ours = [RootCause("cuinit_says_unknown", *_rest(no_gpu)), RootCause("tensors_do_not_fit", *_rest(full)), other]
    assert [premise(cause) for cause in ours] == [Premise.NO_GPU, Premise.GPU_IN_USE, Premise.NONE]
    assert without_contradictions(ours) == ours[1:]


def _rest(cause: RootCause) -> tuple[Stage, Confidence, str, tuple[str, ...], tuple[Action, ...], str]:
    return cause.stage, cause.confidence, cause.cause, cause.evidence, cause.fix, cause.url


# --- harm ------------------------------------------------------------------------------------------------------------


def test_harm_needs_a_likely_cause_and_none_that_is_more_certain() -> None:
    fix = (check("nvidia-smi"), reboot())
    likely, possible = (
        cause(Stage.DRIVER, confidence, *fix) for confidence in (Confidence.LIKELY, Confidence.POSSIBLE)
    )
    proved = cause(Stage.DRIVER, Confidence.PROVED)
    assert with_safe_fix(likely, (likely, possible)).fix == fix
    assert with_safe_fix(likely, (likely, proved)).fix == (
        check("nvidia-smi"),
        note(LEFT_OUT),
    )
    assert with_safe_fix(possible, (possible,)).fix == (
        check("nvidia-smi"),
        note(LEFT_OUT),
    )
    harmless = cause(Stage.DRIVER, Confidence.POSSIBLE, check("nvidia-smi"))
    assert with_safe_fix(harmless, (harmless, proved)) == harmless
    alone = cause(Stage.DRIVER, Confidence.POSSIBLE, reboot(), rule="cuinit_fails")
    (line,) = with_safe_fix(alone, (alone,)).fix
    assert "gpudiag explain cuinit_fails" in line.note


# --- whose memory ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("allocator", ["cpu", "mklcpu", "cuda_host_bfc", "gpu_host_bfc"])
def test_the_computers_memory_is_not_the_gpus(allocator: str) -> None:
    hint = "Hint: If you want to see a list of allocated tensors when OOM happens, add report_tensor_allocations"
    (cause,) = explained(f"{OOM} on {DEVICE}CPU:0 by allocator {allocator}", OOM, hint).causes
    assert cause.cause.startswith("a tensor does not fit into the computer's memory")
    assert not any(
        word in line for line in fix_lines(cause) for word in ("mixed_float16", "TF_GPU_ALLOCATOR", "nvidia-smi")
    )


def test_an_error_that_names_no_allocator_is_about_the_gpu_that_another_names() -> None:
    rules = [cause.cause_id for cause in explained(ON_CPU, ON_GPU, OOM).causes]
    assert "tensors_do_not_fit" in rules
    assert [cause.cause_id for cause in explained(OOM).causes] == ["tensors_do_not_fit"]


def test_the_reason_of_the_operating_system_comes_before_what_a_program_concludes() -> None:
    full = (
        "E0000 ptxas exited with non-zero error code 65280, output: ptxas fatal   : Could not open output file "
        "'/tmp/tempfile-host-abc': No space left on device"
    )
    assert shown(full) == ["the disk is full, or your quota is used up"]
    assert "ptxas" in shown(full.replace(": No space left on device", ""))[0]
    assert "/dev/shm" in shown("OSError: [Errno 28] No space left on device: '/dev/shm/pym-12-abc'")[0]


# --- what is no evidence ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "after",
    [[CREATED], [CREATED, "Epoch 1/3", STEP]],
    ids=["devices", "devices and steps"],
)
def test_a_fault_that_was_overcome_is_history(after: list[str]) -> None:
    assert shown(NOT_READY) != []
    assert shown(NOT_READY, *after) == []
    assert shown(*after, NOT_READY) != []


@pytest.mark.parametrize(
    "after",
    [["Epoch 1/3", STEP], [f"[1,0]<stderr>:{CREATED}", f"[1,0]<stdout>:{STEP}"]],
    ids=["on the CPU", "in another process"],
)
def test_success_without_a_gpu_or_of_another_process_overcomes_nothing(after: list[str]) -> None:
    assert shown(NOT_READY, *after) != []


def test_memory_that_ran_out_before_the_last_step_is_history() -> None:
    assert shown(CREATED, ON_GPU, STEP) == []
    assert shown(CREATED, STEP, ON_GPU) != []
    assert shown(CREATED, ON_GPU, "Epoch 1/3") != [], "the head of an epoch comes before its first step"


@pytest.mark.parametrize(
    "line",
    [
        f'If you see "{UNKNOWN}" reboot.',
        f"When TensorFlow logs `{UNKNOWN}`, load the module again.",
        f"grep -q '{UNKNOWN}' app.log",
        f'watch.py:14:    if "{UNKNOWN}" in line: os.system("sudo reboot")',
        f'    assert "{UNKNOWN}" in caught.value.args',
        f'    if re.search("{UNKNOWN}", text):',
        f"echo 'hint: {UNKNOWN}'",
        f"tests/test_gpu.py::test_message[{UNKNOWN}] PASSED",
    ],
)
def test_a_quotation_is_no_evidence(line: str) -> None:
    assert shown(UNKNOWN) != []
    assert evidence_lines((line, "Training finished OK on GPU.")) == ("", "Training finished OK on GPU.")
    assert shown(line, "Training finished OK on GPU.") == []
    assert shown(line, UNKNOWN) != []


@pytest.mark.parametrize("line", [UNKNOWN, f"'{UNKNOWN}'", f"I get `{UNKNOWN}` since today", f"# {UNKNOWN}"])
def test_a_message_that_somebody_reports_is_evidence(line: str) -> None:
    assert evidence_lines((line,)) == (line,)
