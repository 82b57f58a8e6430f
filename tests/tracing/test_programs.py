"""Programs with a known misuse, and two that are fine, on two simulated GPUs: what is found in each, at which line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpudiag import causes as catalogue
from gpudiag.model import codec
from gpudiag.model.program import WITHOUT_EFFECT, ProgramTrace, SettingFate
from gpudiag.model.report import Report, Severity

pytestmark = pytest.mark.starts

PROGRAMS = Path(__file__).parents[1] / "programs"
FOUND: dict[str, dict[str, str | tuple[str, ...]]] = {
    "growth_too_late": {"setting_without_effect": "growth_too_late.py:8"},
    "growth_lost": {"setting_without_effect": "growth_lost.py:7"},
    "gpu_that_is_not_there": {"gpu_asked_for_not_used": "gpu_that_is_not_there.py:11"},
    "forks_after_use": {"forked_after_initialisation": "forks_after_use.py:9"},
    "ranks_on_one_gpu": {"processes_on_one_gpu": "LOCAL_RANK=1"},
    "second_session": {"setting_without_effect": "second_session.py:9"},
    "function_replaced": {
        "setting_without_effect": ("function_replaced.py:7", "function_replaced.py:8", "function_replaced.py:10")
    },
    "too_many_replicas": {"replicas_without_own_gpu": "too_many_replicas.py:6"},
    "out_of_memory": {"program_ran_out_of_memory": "out_of_memory.py:9"},
    "values_read_in_a_loop": {"many_small_copies": "values_read_in_a_loop.py:8"},
    "sessions_follow_config": {"forked_after_initialisation": "sessions_follow_config.py:19"},
    "session_pinned": {"gpu_asked_for_not_used": "session_pinned.py:11"},
    "string_in_xla": {"xla_cannot_compile": "AsString"},
    "model_run_eagerly": {"functions_run_eagerly": "model_run_eagerly.py:7"},
    "devices_mixed_up": {
        "function_on_another_gpu": "devices_mixed_up.py:47",
        "computed_in_host_memory": "devices_mixed_up.py:24: Const on tensors of up to 1 MiB, 1 time",
        "no_kernel_for_gpu": "devices_mixed_up.py:27: MatMul, 20 times",
        "dataset_on_gpu": "devices_mixed_up.py:28: MapDataset on CPU:0",
        "copies_between_gpus": "devices_mixed_up.py:36: 120 copies",
    },
    "replicas_repeat": {
        "replicas_given_same_data": "replicas_repeat.py:17: run is given a tensor of shape (8, 8)",
        "variables_on_cpu": "4 variables made in tf.device('/CPU:0')\nreplicas_repeat.py:37: step",
        "functions_run_eagerly": "replicas_repeat.py:8: enable_debug_mode True",
        "no_kernel_for_gpu": "replicas_repeat.py:42: PyFunc, in each run of halve",
    },
    "hidden_by_import": {"every_gpu_hidden": "<string>:5: visible_devices GPU=[]"},
    "model_outside_scope": {"strategy_ran_nothing": "model_outside_scope.py:5"},
    "model_compiled_in_scope": {
        "strategy_ran_nothing": ("model_compiled_in_scope.py:6: made variables outside of every scope", "RuntimeError"),
    },
    "settings_of_each_end": {
        "setting_without_effect": ("settings_of_each_end.py:5", "settings_of_each_end.py:11"),
    },
    "limits_over_the_card": {
        "setting_without_effect": "memory_limit is in MiB",
        "logical_devices_moved_gpu": "no operation ran on GPU:2",
    },
    "fine_training": {},
    "fine_eager": {},
}
"""The causes in each program, and what the evidence of each names; most leave one of the two GPUs idle, besides."""
TOGETHER = (
    "too_many_replicas",
    "values_read_in_a_loop",
    "string_in_xla",
    "model_run_eagerly",
    "forks_after_use",
    "function_replaced",
)
FOUND["one_after_another"] = {cause: named for name in TOGETHER for cause, named in FOUND[name].items()}
ALSO = {"growth_too_late", "growth_lost", "gpu_that_is_not_there", "fine_eager", *TOGETHER}
"""What is found in these is found in others, too."""
LOOKED_INTO = {
    *("session_pinned", "hidden_by_import", "fine_training", "devices_mixed_up", "settings_of_each_end"),
    *("replicas_repeat", "sessions_follow_config"),
}
"""Of these the tests below look at more of the report."""
MARKED = {
    "asked_in_vain": {
        **dict.fromkeys(("COUNT", "JAX", "INVENTED", "CONTAINER", "LIST", "RECORD"), "ignored"),
        **dict.fromkeys(("CALLED", "EMPTY", "THREAD", "PREFETCH"), "ignored"),
        **dict.fromkeys(("LOADER", "FLAGS", "POLICY", "CLUSTER", "DETERMINISM"), "too late"),
        "ABSENT": "refused",
    },
    "given_to_nothing": {
        **dict.fromkeys(("POLICY", "SCALING", "OPTIONS", "LIMIT", "RECORD", "FUNCTION", "DROPPED"), "ignored"),
        **dict.fromkeys(("PREFETCH", "REDUCTION", "SCOPE", "INPUT", "UNREAD", "TABLE"), "ignored"),
        **{"KEPT": "overridden", "UNSCALED": "other effect"},
    },
    "variables_in_vain": {
        **dict.fromkeys(("PUT", "SHELL", "SERVER", "SECOND", "CHANGED", "OUTER"), "ignored"),
        "DASHES": "refused",
    },
    "asked_in_time": {},
}
"""Programs whose lines have names: what becomes of each, and of no other line."""
REASONS = {
    "SERVER": "made by tf.distribute.Server at",
    "CHANGED": "this was set later",
    "OUTER": "the inner one holds",
    "UNSCALED": "no LossScaleOptimizer has scaled",
}
"""Words of why, of lines to which several reasons could apply."""
NAMES = [
    pytest.param(name, marks=[pytest.mark.slow] if name in ALSO else []) for name in FOUND if name not in LOOKED_INTO
]


def _traced(
    name: str, tmp_path: Path, *options: str, **variables: str
) -> tuple[Report, subprocess.CompletedProcess[str]]:
    file = tmp_path / "r.json"
    command = [sys.executable, "-m", "gpudiag", "trace", "--simulate", "2x2GiB", "-o", str(file), *options, "--"]
    done = subprocess.run(
        [*command, sys.executable, str(PROGRAMS / f"{name}.py")],
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
        env={**os.environ, **variables},
    )
    return codec.load(file), done


def _is_as_it_should(name: str, report: Report, done: subprocess.CompletedProcess[str]) -> ProgramTrace:
    """Check what is found in a program, and return what is known of it."""
    causes: dict[str, str] = {}
    for root_cause in (*report.diagnosis.causes, *report.diagnosis.folded):
        causes[root_cause.cause_id] = "\n".join([causes.get(root_cause.cause_id, ""), *root_cause.evidence]).lstrip()
    idle = causes.pop("gpu_never_used", None)
    assert idle is None or "no operation ran on it; NVML: the program holds" in idle
    assert causes.keys() == FOUND[name].keys(), done.stderr
    for cause, named in FOUND[name].items():
        assert all(text in causes[cause] for text in ([named] if isinstance(named, str) else named))
    notes = {
        cause.id for cause in map(catalogue.get, FOUND[name]) if cause and cause.declared.severity is Severity.NOTE
    }
    assert done.returncode == (1 if set(FOUND[name]) - notes else 0)
    assert not report.diagnosis.failed
    program = report.program
    assert program is not None
    assert not [text for process in program.processes for text in process.missing]
    return program


@pytest.mark.parametrize("name", NAMES)
def test_what_a_program_does_wrong_is_found_and_nothing_else(name: str, tmp_path: Path) -> None:
    _is_as_it_should(name, *_traced(name, tmp_path))


def test_of_a_session_the_graphs_are_known_and_the_program_gets_what_it_asked_for(tmp_path: Path) -> None:
    report, done = _traced("session_pinned", tmp_path)
    program = _is_as_it_should("session_pinned", report, done)
    assert done.stdout == "not asked for: 0\nasked for: 2\n"
    assert [(function.name, function.runs) for function in program.functions] == [
        ("Session.run(MatMul)", 1),
        ("Session.run(MatMul, Tanh)", 3),
    ]
    assert all(function.devices["GPU:0"] > 0 and not function.traced for function in program.functions)
    scoped = [(placement.op, placement.device, placement.why) for placement in program.placed if placement.op == "Tanh"]
    assert set(scoped) == {("Tanh", "CPU:0", "scope")}
    copied = {copy.function: copy.bytes for copy in program.copies if copy.direction == "to host"}
    assert set(copied) == {"Session.run(MatMul)", "Session.run(MatMul, Tanh)"}


def test_a_session_without_options_has_those_of_tf_config_and_they_may_be_set_again(tmp_path: Path) -> None:
    report, done = _traced("sessions_follow_config", tmp_path)
    program = _is_as_it_should("sessions_follow_config", report, done)
    assert [setting.fate for setting in program.settings] == ["took effect"] * len(program.settings)
    assert {setting.what for setting in program.settings} == {"memory_growth", "visible_devices"}
    uses = {use.gpu: use for use in program.gpus}
    assert uses[0].unused.startswith("hidden by visible_devices GPU=[GPU:1] at")
    assert (uses[1].devices, uses[1].operations > 0) == (("GPU:0",), True)
    runs = {function.name: function for function in program.functions}
    assert not runs["Session.run(add)"].unknown_runs


@pytest.mark.parametrize("name", MARKED)
def test_of_what_nothing_looks_at_each_line_is_named(name: str, tmp_path: Path) -> None:
    report, done = _traced(name, tmp_path)
    assert report.program is not None, done.stderr
    assert report.program.ended == "exit status 0"
    lines = (PROGRAMS / f"{name}.py").read_text().splitlines()
    marks = {number: line.rpartition("# ")[2] for number, line in enumerate(lines, 1)}
    settings = [
        setting
        for setting in report.program.settings
        if setting.line and setting.fate in (*WITHOUT_EFFECT, SettingFate.OTHER_EFFECT)
    ]
    fates = [(marks[int(setting.line.rpartition(":")[2])], setting.fate) for setting in settings]
    assert sorted(fates) == sorted(MARKED[name].items()), done.stderr
    reasons = {marks[int(setting.line.rpartition(":")[2])]: setting.why for setting in settings}
    assert all(words in reasons[mark] for mark, words in REASONS.items() if mark in reasons)
    assert not [text for process in report.program.processes for text in process.missing]
    found = {cause.cause_id for cause in (*report.diagnosis.causes, *report.diagnosis.folded)}
    assert found == ({"setting_without_effect"} if MARKED[name] else set())


def test_operations_of_every_thread_are_counted_and_those_of_tf_data_are_not(tmp_path: Path) -> None:
    report, done = _traced("devices_mixed_up", tmp_path)
    program = _is_as_it_should("devices_mixed_up", report, done)
    ran = {(placed.op, placed.device): placed.count for placed in program.placed if not placed.function}
    assert ran["Cosh", "GPU:0"] == 20  # by a thread that was there before TensorFlow's devices
    (function,) = (candidate for candidate in program.functions if candidate.runs)
    assert (function.name, function.runs, function.devices) == ("first_gpu", 4, {"GPU:0": 3})
    assert (function.between_gpus, function.copies) == (1, 0)


def test_what_a_strategy_puts_on_the_cpu_the_program_did_not_ask_for_and_the_end_of_the_data_is_no_step(
    tmp_path: Path,
) -> None:
    report, done = _traced("replicas_repeat", tmp_path)
    program = _is_as_it_should("replicas_repeat", report, done)
    sums = {(placed.function, placed.device, placed.why) for placed in program.placed if placed.op == "AddN"}
    assert sums == {("train", "CPU:0", "strategy"), ("", "CPU:0", "strategy")}
    assert {placed.why for placed in program.placed if placed.could_use_gpu} == {"scope"}
    assert [wait.times for wait in program.waited] == [4, 4, 4]


def test_of_each_setting_what_it_did_is_said_and_the_headline_counts_them(tmp_path: Path) -> None:
    report, done = _traced("settings_of_each_end", tmp_path)
    program = _is_as_it_should("settings_of_each_end", report, done)
    assert done.stdout == "Memory growth cannot differ between GPU devices\n4.0\n"
    assert [(setting.what, setting.value, setting.fate) for setting in program.settings if setting.line] == [
        ("CUDA_VISIBLE_DEVICES", "'1,0,2'", "other effect"),
        ("TF_GPU_THREAD_MODE", "'gpu_private'", "not checked"),
        ("visible_devices", "gpu=[]", "ignored"),
        ("memory_growth", "GPU:0=True", "took effect"),
        ("memory_growth", "GPU:1=True", "not checked"),
    ]
    first, second = (device for device in program.processes[0].devices if device.name.startswith("GPU"))
    assert (first.gpu, second.gpu) == ("1", "0"), "in the order of the mask"
    assert "5 settings: 1 took effect, 1 had another effect, 1 had no effect, 2 not checked" in " ".join(
        done.stderr.split()
    )


def test_the_line_that_hides_each_gpu_from_each_process_is_named(tmp_path: Path) -> None:
    report, done = _traced("hidden_by_import", tmp_path)
    program = _is_as_it_should("hidden_by_import", report, done)
    seen = ["\n".join(cause.evidence) for cause in report.diagnosis.causes]
    assert any("hidden_by_import.py:18 imports that file" in text for text in seen)
    parent, first, second = (process.pid for process in program.with_tensorflow)
    assert [(use.process, use.gpu, use.devices, use.line.rpartition("/")[2]) for use in program.gpus] == [
        (parent, 0, (), "hides_gpus.py:5"),
        (parent, 1, (), "hides_gpus.py:5"),
        (first, 0, ("GPU:0",), ""),
        (first, 1, (), "hidden_by_import.py:16"),
        (second, 0, (), "hidden_by_import.py:16"),
        (second, 1, (), "<string>:5"),
    ]


CLUSTERED = """
import tensorflow as tf

@tf.function
def parted(x):
    for _ in range(3):
        x = tf.tanh(x @ x * 0.01)
    return tf.exp(x) + tf.cast(tf.size(tf.unique(tf.reshape(tf.cast(x, tf.int32), [-1])).y), tf.float32)

@tf.function(jit_compile=True)
def whole(x):
    return tf.tanh(x @ x)

matrix = tf.ones([8, 8])
parted(matrix), whole(matrix)
"""


def test_what_xla_compiles_is_known(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    subprocess.run(
        [sys.executable, "-m", "gpudiag", "trace", "-o", str(file), "--", sys.executable, "-c", CLUSTERED],
        check=True,
        capture_output=True,
        timeout=550,
        env={**os.environ, "TF_XLA_FLAGS": "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit", "CUDA_VISIBLE_DEVICES": "-1"},
    )
    program = codec.load(file).program
    assert program is not None
    functions = {function.name: function for function in program.functions}
    assert functions["parted"].clusters == 2
    assert functions["parted"].outside["Unique"] is True
    assert not functions["parted"].compiled
    assert functions["whole"].compiled


def test_of_a_training_the_placement_and_the_memory_are_known(tmp_path: Path) -> None:
    report, done = _traced("fine_training", tmp_path, TF_CPP_MIN_LOG_LEVEL="3")
    program = _is_as_it_should("fine_training", report, done)
    assert done.stdout == "trained\n"
    (process,) = program.with_tensorflow
    gpus = [device for device in process.devices if device.name.startswith("GPU")]
    assert [device.gpu for device in gpus] == ["0", "1"]
    assert gpus[0].peak_bytes > 0
    growth = [(setting.value, setting.fate) for setting in program.settings]
    assert growth == [("GPU:0=True", "took effect"), ("GPU:1=True", "not checked")], "nothing was allocated on GPU:1"
    assert "2 settings: 1 took effect, 1 not checked" in " ".join(done.stderr.split())
    step = max(program.functions, key=lambda function: function.runs)
    assert step.runs == 8
    assert step.devices["GPU:0"] > 0
