"""``gpudiag why``: logs of public threads whose cause was settled there, and the command itself.

See ``tests/settled.py`` for the logs.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import textwrap
from itertools import pairwise
from pathlib import Path

import pytest

import settled
from conftest import Gpudiag
from gpudiag.cause import Evidence
from gpudiag.causes import messages
from gpudiag.errors import UsageError
from gpudiag.knowledge.log_lines import unwrapped
from gpudiag.knowledge.origin import Origin
from gpudiag.knowledge.releases import GENERATIONS, Version
from gpudiag.knowledge.stated import StatedFacts
from gpudiag.knowledge.suspicion import suspicion
from gpudiag.model import codec
from gpudiag.model import report as report_model
from gpudiag.model.diagnosis import Diagnosis, Failed
from gpudiag.run import diagnosis, judgement, why
from reports import fix_line, fix_lines
from settled import Settled

LOGS = settled.load()
IN_ENGLISH = "2022-05-05 10:33:01.127918: E tensorflow/stream_executor/cuda/cuda_dnn.cc:361] "
OLD_CUDNN = (
    f"{IN_ENGLISH}Loaded runtime CuDNN library: 8.0.4 but source was compiled with: 8.1.0. CuDNN library needs to have "
    "matching major version and equal or higher minor version."
)
HARMLESS = "W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] TF-TRT Warning: Could not find TensorRT"
ODD = "FrobnicationError: the frobnicator refused its work"


def explained(*lines: str) -> Diagnosis:
    return why.explained(lines, ("gpudiag", "why")).diagnosis


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_a_log_whose_cause_was_settled_is_explained(log: Settled) -> None:
    found = log.diagnosis()
    assert found.failed == ()
    if log.harmless:
        assert found.causes == ()
        assert found.harmless
        assert found.unexplained == ()
        return
    cause, text = settled.answer(found)
    assert cause == log.cause
    assert log.word in text
    assert found.causes[0].evidence


def test_what_a_log_must_say_is_what_was_settled() -> None:
    assert [log.name for log in LOGS if log.word not in f"{log.right} {log.fix}".lower()] == []
    named = [log for log in LOGS if not log.harmless]
    assert len([log for log in named if log.word]) > 0.98 * len(named)


def test_a_third_of_the_threads_is_held_out_by_the_hash_of_the_address() -> None:
    held_out = settled.load(settled.HELD_OUT)
    assert len(held_out) > 250
    assert all(log.is_held_out for log in held_out)
    assert not any(log.is_held_out for log in LOGS)


def wrapped(line: str, columns: int) -> list[str]:
    return [line[at : at + columns] for at in range(0, len(line), columns)] or [""]


@pytest.mark.parametrize("share", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_logs_that_a_terminal_has_wrapped_are_explained(share: int) -> None:
    lost = []
    for log in LOGS[share::3]:
        parts = [part for line in log.log.splitlines() for part in wrapped(line, 80)]
        found = explained(*unwrapped(parts))
        if [cause.cause_id for cause in found.causes[:1]] != [log.cause][: not log.harmless]:
            lost.append(log.name)
    assert lost == []


def test_a_table_is_not_taken_for_wrapped_lines() -> None:
    table = ["+" + "-" * 78 + "+", "|" + " " * 78 + "|", "+" + "-" * 78 + "+"]
    assert list(unwrapped(table)) == table


def test_lines_are_joined_only_if_that_makes_a_message() -> None:
    assert list(unwrapped(wrapped(OLD_CUDNN, 80))) == [OLD_CUDNN]
    first, _, joined, *_, last = unwrapped(["x", *textwrap.wrap(OLD_CUDNN, 72), "y" * 100, "z"])
    assert (first, last) == ("x", "z")
    assert "CuDNN library: 8.0.4 but source was compiled with: 8.1.0." in joined
    apart = [OLD_CUDNN[:100], "", OLD_CUDNN[100:]]
    assert list(unwrapped(apart)) == apart
    two = [OLD_CUDNN[:100], f"2022-05-05 10:33:02.000000: W {OLD_CUDNN[100:]}"]
    assert list(unwrapped(two)) == two


NO_RUNTIME = (
    "2021-04-09 14:02:51.330127: W tensorflow/stream_executor/platform/default/dso_loader.cc:60] Could not load "
    "dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file: No such file "
    "or directory"
)


def test_a_missing_runtime_matters_if_the_machine_was_meant_for_a_gpu() -> None:
    assert explained(NO_RUNTIME).causes == ()
    (cause,) = explained(f"{NO_RUNTIME}; LD_LIBRARY_PATH: /usr/local/nvidia/lib:/usr/local/nvidia/lib64").causes
    assert (cause.cause_id, cause.confidence) == ("cuda_libraries_not_found", "likely")


def test_the_logs_are_many_and_each_has_its_source() -> None:
    sources = [log.source for log in LOGS]
    assert len(LOGS) >= 400
    assert all(source.startswith("https://") for source in sources)
    assert len(set(sources)) == len(sources)


# --- where a log comes from -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (OLD_CUDNN, "TensorFlow 2.5 to 2.8, built for CUDA 11.2 and cuDNN 8.1"),
        ("E external/local_xla/xla/a.cc:1] x", "TensorFlow 2.15 or newer"),
        ("2023-09-04 22:26:30.2: I tensorflow/tsl/cuda/cudart_stub.cc:28] x", "TensorFlow 2.11 to 2.13"),
        ("E0000 00:00:1738697930.202924 7665 cuda_dnn.cc:522] x", "TensorFlow 2.17 or newer"),
        (r'File "C:\Anaconda3\envs\a\lib\tensorflow_core\b.py"', "TensorFlow 1.15 to 2.1, Windows"),
        ("pip install tensorflow==2.13.1", "TensorFlow 2.13, built for CUDA 11.8 and cuDNN 8.6"),
        ("Could not load dynamic library 'libcusolver.so.10'; dlerror: x", "TensorFlow 1.14 to 2.4"),
        ("nothing of the kind", ""),
    ],
)
def test_the_release_is_read_from_the_log(line: str, said: str) -> None:
    assert str(Origin([line])) == said


def test_a_name_that_the_lines_contradict_is_of_something_else() -> None:
    log = ["Successfully installed tensorflow-2.4.1", "E external/local_xla/xla/a.cc:1] x"]
    assert Origin(log).releases == (Version(2, 15), Version(2, 21))


def test_the_machines_own_release_counts_where_the_log_names_none() -> None:
    assert Origin(["x"], "2.16.1").releases == (Version(2, 16), Version(2, 16))
    assert Origin(["tensorflow==2.10.0"], "2.16.1").releases == (Version(2, 10), Version(2, 10))


FORM = """### TensorFlow version

2.14

### OS platform and distribution

Windows 10

### Python version

3.11.1

### CUDA/cuDNN version

11.2/8.1

### GPU model and memory

nvidia GTX 1060 6GB"""
LINES = """- OS Platform and Distribution (e.g., Linux Ubuntu 16.04): Linux Ubuntu 18.04
- **TensorFlow version** (use command below): 2.3.0
- Python version: 3.7
- CUDA/cuDNN version: 10.1/8.0.2.39
- GPU model and memory: NVIDIA GeForce RTX 3090"""
TOOLS = """| NVIDIA-SMI 410.72       Driver Version: 410.72       CUDA Version: 10.0     |
Cuda compilation tools, release 10.2, V10.2.89
Package    Version
tensorflow 1.14.0
cudnn                     7.6.0                cuda10.0_0
GPU: Nvidia 1660 Ti"""


@pytest.mark.parametrize(
    ("text", "values", "card"),
    [
        (FORM, ["2.14", "11.2", "8.1", ""], ("GTX 1060", "6.1")),
        (LINES, ["2.3.0", "10.1", "8.0.2.39", ""], ("RTX 3090", "8.6")),
        (TOOLS, ["1.14.0", "10.2", "7.6.0", "410.72"], ("GTX 1660 Ti", "7.5")),
    ],
)
def test_what_stands_beside_a_log_is_read(text: str, values: list[str], card: tuple[str, str]) -> None:
    statement = StatedFacts(text.splitlines())
    assert [
        each.value if each else "" for each in (statement.tensorflow, statement.cuda, statement.cudnn, statement.driver)
    ] == values
    (named, _), *_ = statement.cards
    assert (named.name, named.capability) == card


def test_a_form_says_which_release_and_which_system_wrote_the_log() -> None:
    origin = Origin(FORM.splitlines())
    assert (origin.named, origin.python, origin.windows) == (Version(2, 14), "3.11", True)


def test_lines_of_a_log_state_nothing() -> None:
    line = "2021-05-01 10:00:00.1: I tensorflow/a.cc:1] CUDA version: 10.2, driver: 450.1"
    assert (StatedFacts([line]).cuda, StatedFacts([line]).driver, StatedFacts([line]).cards) == (None, None, ())


def test_generations_leave_no_release_out() -> None:
    for before, after in pairwise(GENERATIONS):
        assert (before.last.major, before.last.minor + 1) == (after.first.major, after.first.minor) or (
            before.last,
            after.first,
        ) == (Version(2, 0), Version(2, 1))


@pytest.mark.parametrize(
    ("needed", "do"),
    [
        ("7.6.5", "conda install -c conda-forge 'cudnn>=7.6,<8'"),
        ("8.1.0", "pip install 'nvidia-cudnn-cu11>=8.1,<9'"),
        ("9.3.0", "pip install 'nvidia-cudnn-cu12>=9.3,<10'"),
    ],
)
def test_advice_fits_the_release(needed: str, do: str) -> None:
    found = explained(f"Loaded runtime CuDNN library: 7.0.1 but source was compiled with: {needed}.")
    assert fix_line(found.causes[0].fix[0]).startswith(do)


# --- what nobody knows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "first"),
    [
        (["BlasLt is unavailable", "tensorflow==2.8.0"], "conda install -c conda-forge cudatoolkit=11.2 cudnn=8.1.0"),
        (["nvcc: command not found", "tensorflow 2.20"], "pip install 'tensorflow[and-cuda]'"),
        (["nvcc: command not found", "/Users/someone/a.py"], "pip install tensorflow tensorflow-metal"),
        (["nvcc: command not found", "Linux jetson 4.9.253-tegra"], "# Jetson: NVIDIA's own wheel"),
        (["nvcc: command not found", r"C:\Users\someone"], "# TensorFlow 2.11 and"),
        (["This container was built for NVIDIA Driver Release 545.23 or later, but version 5.1 was detected, WSL2"],
         "# install the newest NVIDIA driver in Windows"),
        (["Underlying backend ran out of memory trying to instantiate graph", r"C:\Users\someone"],
         "set XLA_FLAGS=--xla_gpu_enable_command_buffer="),
    ],
    ids=["an older release", "the newest", "macOS", "Jetson", "Windows", "a driver under WSL", "a variable in Windows"],
)  # fmt: skip
def test_a_general_fix_is_fitted_to_where_the_log_is_from(lines: list[str], first: str) -> None:
    (cause, *_) = explained(*lines).causes
    assert cause.cause_id in messages.all_of_them()
    assert any(line.startswith(first) for line in fix_lines(cause)), cause.fix


def test_what_nobody_knows_is_quoted_errors_first_and_no_frames_of_stacks() -> None:
    lines = (
        "Epoch 1/10",
        "W tensorflow/a.cc:1] this may be slow",
        "the frobnicator failed to start",
        "Traceback (most recent call last):",
        '  File "a.py", line 3, in <module>',
        "    frobnicate()",
        ODD,
        HARMLESS,
    )
    assert suspicion(lines).unexplained == (ODD, "the frobnicator failed to start", "a.cc: this may be slow")


def test_a_cause_leaves_no_line_unexplained() -> None:
    assert explained(OLD_CUDNN, ODD).unexplained == ()
    assert explained(ODD).unexplained == (ODD,)


def test_a_cause_that_hangs_on_a_log_costs_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(part: str, evidence: Evidence) -> diagnosis.PartResult:
        if part == "no_room_for_libraries":
            re.search("(a+)+$", "a" * 64 + "b")  # 2 ** 64 ways
        return look(part, evidence)

    look = diagnosis.look
    monkeypatch.setattr(diagnosis, "look", hangs)
    monkeypatch.setattr(judgement, "PART_S", 0.1)
    handler = signal.getsignal(signal.SIGVTALRM)
    found = explained(OLD_CUDNN)
    assert [cause.cause_id for cause in found.causes] == ["cudnn_too_old"]
    assert found.failed == (Failed("no_room_for_libraries", "it took more than 0.1 s"),)
    assert signal.getsignal(signal.SIGVTALRM) is handler
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)


def test_a_line_that_a_cause_shows_is_not_called_harmless_too() -> None:
    found = explained("Could not find cuda drivers on your machine, GPU will not be used.", HARMLESS)
    assert [cause.cause_id for cause in found.causes] == ["cuda_libraries_not_found"]
    assert len(found.harmless) == 1
    assert found.misleading == ()


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "status", "said"),
    [
        (OLD_CUDNN, report_model.CAUSE_FOUND, "The log shows why: cuDNN 8.0.4 is loaded"),
        (HARMLESS, report_model.NOTHING_WRONG, "The log shows no fault"),
        ("Epoch 1/10", report_model.NOTHING_WRONG, "no error line, no traceback"),
        (ODD, report_model.NOTHING_KNOWN, "No cause is known for this log"),
    ],
)
def test_the_exit_status_says_what_came_of_it(
    log: str, status: int, said: str, gpudiag: Gpudiag, tmp_path: Path
) -> None:
    (tmp_path / "app.log").write_text(log)
    done = gpudiag("why", "app.log")
    assert (done.returncode, done.stderr) == (status, "")
    assert said in " ".join(done.stdout.split())


def test_a_log_is_explained_without_tensorflow_and_without_facts(gpudiag: Gpudiag, tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text(OLD_CUDNN)
    done = gpudiag("why", "app.log", flags=("-X", "importtime"))
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "gpudiag.run.why" in imported
    assert not imported & {"tensorflow", "numpy", "pynvml", "gpudiag.facts"}


def test_several_logs_and_standard_input_are_one(gpudiag: Gpudiag, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(HARMLESS)
    command = gpudiag.command("why", "a.log", "-", "--format", "json")
    done = subprocess.run(
        command, input=OLD_CUDNN, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    report = codec.decode(done.stdout, "standard output")
    assert report.lines == (HARMLESS, OLD_CUDNN)
    assert report.is_log_alone
    assert [cause.cause_id for cause in report.diagnosis.causes] == ["cudnn_too_old"]
    assert json.loads(done.stdout)["diagnosis"]["origin"].startswith("TensorFlow 2.5")


def test_markdown_and_masked(gpudiag: Gpudiag, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(OLD_CUDNN)
    done = gpudiag("why", "a.log", "--format", "markdown", "--mask")
    assert done.stdout.startswith("## The log shows why: cuDNN 8.0.4")
    assert "nvidia-cudnn-cu11" in done.stdout


def test_an_empty_log_is_wrong_usage(gpudiag: Gpudiag, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("\n\n")
    done = gpudiag("why", "a.log")
    assert done.returncode == 2
    assert "the log is empty" in done.stderr
    with pytest.raises(UsageError):
        why.explained((), ())


def test_a_reason_inside_of_a_harmless_message_is_no_fault_unless_it_was_raised() -> None:
    # google-deepmind/alphafold3#172, jax-ml/jax#25315
    statement = (
        "Unable to initialize backend 'rocm': module 'jaxlib.xla_extension' has no attribute 'GpuAllocatorConfig'"
    )
    assert explained(f"I1204 13:13:42.884638 139807170155648 xla_bridge.py:895] {statement}").causes == ()
    assert [cause.cause_id for cause in explained(f"RuntimeError: {statement}").causes] == ["jax_platform_demanded"]


def test_an_exception_is_shown_whatever_stands_before_it_or_in_it() -> None:
    # google-deepmind/alphafold#890
    raised = "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Could not find the corresponding function"
    prefixed = f"I0109 12:00:00.123456 140012345 run_docker.py:253] {raised}"
    assert len(explained(prefixed).unexplained) == 1
    assert len(explained(f"RuntimeError: {HARMLESS.partition('] ')[2]}").unexplained) == 1
    assert explained(HARMLESS).unexplained == ()
    assert (
        len(explained("UnknownError                              Traceback (most recent call last)").unexplained) == 1
    )


def test_each_wording_of_an_optional_plugin_is_harmless() -> None:
    # NVIDIA/nccl#1231, #1059, #1504, #162
    missing = "libnccl-net.so: cannot open shared object file: No such file or directory"
    for wording in (
        f"NCCL INFO NET/Plugin : dlerror={missing} No plugin found (libnccl-net.so), using internal implementation",
        f"NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2 : {missing}",
        f"NCCL INFO NET/Plugin: Plugin load returned 2 : {missing} : when loading libnccl-net.so",
        f"NCCL INFO Unable to load libnccl-net.so : {missing}",
    ):
        found = explained(f"678c7278cb2d:26023:26023 [0] {wording}")
        assert (found.causes, found.unexplained) == ((), ())
        assert found.harmless
