"""What becomes of what a program asks for by other ways than an option that exists, from notes alone."""

from __future__ import annotations

from typing import Any

import pytest

from gpudiag.causes.program import setting_without_effect
from gpudiag.model.program import ProgramTrace, Setting
from gpudiag.tracing import settings
from gpudiag.tracing.notes import Note, Notes

GPU = "/physical_device:GPU:0"
START: Note = {"k": "process", "t": 0.0, "how": "started", "pid": 7, "parent": 1, "variables": {}}
IMPORTED: Note = {"k": "tensorflow", "t": 1.0, "version": "2.21.0"}
LISTED: Note = {"k": "listed", "t": 2.0, "line": "a.py:3", "devices": [GPU], "cards": None}
MADE: Note = {
    **{"k": "initialised", "t": 3.0, "line": "a.py:4", "options": {}, "cards": None},
    "devices": [("CPU:0", 0), ("GPU:0", 1 << 30), ("GPU:1", 1 << 30)],
    "gpus": [(GPU, "Old GPU", (6, 1))],
}
RAN = 9
"""Word of the counter of an operation that ran once on GPU:0."""


def _counter(slot: int, what: str, op: str = "", device: str = "", **more: Any) -> Note:
    return {"k": "counter", "t": 5.0, "slot": slot, "what": what, "op": op, "device": device, **more}


OP = _counter(RAN, "op", "MatMul", "GPU:0", asked="", line="", kernel="")


def _set(what: str, value: Any, **more: Any) -> Note:
    return {
        **{"k": "setting", "t": 2.5, "what": what, "value": value, "target": "", "line": "a.py:9", "error": ""},
        **more,
    }


def _variable(name: str, value: str = "1", *, direct: bool = False) -> Note:
    return {"k": "variable", "t": 1.5, "name": name, "value": value, "line": "a.py:9", "direct": direct}


def _read(name: str, by: str, *keys: str) -> Note:
    return {"k": "read", "t": 1.7, "name": name, "by": by, "line": "a.py:5", "keys": list(keys)}


def _unused(what: str, *, dropped: bool = False) -> Note:
    return {"k": "unused", "t": 6.0, "what": what, "value": "", "line": "a.py:9", "dropped": dropped}


def _command(pid: int | None = None, given: Any = None, exported: Any = (), *, is_copy: bool = True) -> Note:
    copied = {"given": given, "copy": given is not None and is_copy}
    return {"k": "command", "t": 1.8, "line": "a.py:7", "pid": pid, "exported": exported, **copied}


def _notes(*notes: Note, words: dict[int, int] | None = None, start: Note = START) -> Notes:
    counters = [0] * 20
    for word, number in {RAN: 1, **(words or {})}.items():
        counters[word] = number
    return Notes((start, *notes, OP), tuple(counters), RAN, 5.0, 0)


def _judged(*notes: Note, words: dict[int, int] | None = None, family: Any = None) -> list[Setting]:
    mine = _notes(*notes, words=words, start={**START, "t": 1.9})
    return list(settings.judged(mine, 7, (), {7: [mine], **(family or {})}))


POLICY = _set("dtype_policy", "mixed_float16", layers={"float32": 2})
LAYERS = _counter(1, "layer", "float32"), _counter(2, "layer", "mixed_float16")
ABSENT: Note = {"k": "absent", "t": 2.5, "name": "tf.config.set_memory_growth", "line": "a.py:9"}
RECORD: Note = {"k": "record", "t": 6.0, "value": {"allow_growth": True}, "line": "a.py:9"}
SCOPE = _counter(1, "scope", device="/gpu:1", line="a.py:9")
DETERMINISM: Note = {"k": "determinism", "t": 6.0, "enabled": False}
SESSION = _set("session", {"allow_growth": True}, given=True)


@pytest.mark.parametrize(
    ("notes", "words", "fates"),
    [
        ((LISTED, _set("list_physical_devices", "gpu"), MADE), {}, ["ignored"]),
        ((LISTED, _set("list_physical_devices", "GPU"), MADE), {}, []),
        ((LISTED, _set("list_physical_devices", "TPU"), MADE), {}, []),
        ((POLICY, *LAYERS, MADE), {1: 2}, ["too late"]),
        ((POLICY, *LAYERS, MADE), {1: 3}, ["other effect"]),
        ((POLICY, *LAYERS, MADE), {1: 2, 2: 1}, ["other effect"]),
        ((POLICY, *LAYERS, {**MADE, "gpus": [(GPU, "New GPU", (8, 0))]}), {1: 2, 2: 1}, ["took effect"]),
        (
            (POLICY, *LAYERS, {"k": "unscaled", "t": 5.0, "line": "a.py:9"}, {**MADE, "gpus": [(GPU, "New", (8, 0))]}),
            {1: 2, 2: 1},
            ["other effect"],
        ),
        ((_set("tensor_float_32", True), MADE), {}, ["ignored"]),
        ((MADE, _set("prefetch_to_device", ["PrefetchDataset", "BatchDataset", "PrefetchDataset"])), {}, ["ignored"]),
        ((MADE, _set("prefetch_to_device", ["OptionsDataset", "PrefetchDataset"])), {}, []),
        ((ABSENT, MADE), {}, ["refused"]),
        ((ABSENT, _set("memory_growth", True, target=GPU), MADE), {}, ["ignored"]),
        ((MADE, RECORD), {}, ["ignored"]),
        ((SESSION, RECORD), {}, ["not checked"]),
        ((MADE, SCOPE), {1: 1}, ["ignored"]),
        ((MADE, SCOPE), {1: 1, 2: 1}, ["ignored"]),
        ((MADE, SCOPE), {1: 1, 2: 1, 3: 1}, ["ignored"]),
        ((MADE, SCOPE), {1: 1, 2: 1, 3: 1, 4: 1}, ["ignored"]),
        ((MADE, SCOPE, _counter(6, "op", "Tanh", "GPU:1", asked="GPU:1")), {1: 1, 2: 1, 3: 1, 6: 1}, []),
        (
            (MADE, SCOPE, _counter(6, "op", "VarHandleOp", "GPU:1", asked="GPU:1")),
            {1: 1, 2: 1, 3: 1, 4: 1, 6: 1},
            ["other effect"],
        ),
        (
            (MADE, SCOPE, _counter(7, "op", "VarHandleOp", "GPU:1", asked="GPU:1")),  # of another scope
            {1: 1, 2: 1, 3: 1, 4: 1, 7: 1},
            [],
        ),
        ((MADE, {**SCOPE, "device": "/GPU:0"}), {1: 1, 2: 1}, []),
        ((_variable("JAX_PLATFORMS"), MADE), {}, ["ignored"]),
        ((_variable("JAX_PLATFORMS"), {"k": "other", "t": 2.0, "name": "jax"}, MADE), {}, []),
        ((_variable("TF_GPU_MEMORY_PERCENT"), MADE), {}, ["ignored"]),
        ((_variable("TF_GPU_MEMORY_PERCENT"), _read("TF_GPU_MEMORY_PERCENT", "program"), MADE), {}, []),
        ((_variable("TF_GPU_MEMORY_PERCENT"), _command(), MADE), {}, []),
        ((_variable("LD_LIBRARY_PATH"), MADE), {}, ["too late"]),
        ((_variable("LD_LIBRARY_PATH"), _command(), MADE), {}, []),
        ((_variable("NVIDIA_VISIBLE_DEVICES"), MADE), {}, ["ignored"]),
        ((_read("TF_CONFIG", "tensorflow"), _variable("TF_CONFIG"), MADE), {}, ["too late"]),
        ((_read("TF_CONFIG", "program"), _variable("TF_CONFIG"), _read("TF_CONFIG", "tensorflow"), MADE), {}, []),
        ((_variable("KERAS_BACKEND", direct=True), _read("KERAS_BACKEND", "keras"), MADE), {}, ["ignored"]),
        ((_command(exported=[("CUDA_VISIBLE_DEVICES", "1", True)]), MADE), {}, ["ignored"]),
        ((_command(exported=[("CUDA_VISIBLE_DEVICES", "1", False)]), MADE), {}, ["ignored"]),
        ((_variable("TF_CONFIG"), _read("TF_CONFIG", "tensorflow", "clusters", "task"), MADE), {}, ["ignored"]),
        ((_variable("TF_CONFIG"), _read("TF_CONFIG", "tensorflow", "cluster", "tasks"), MADE), {}, ["ignored"]),
        ((_variable("TF_CONFIG"), _read("TF_CONFIG", "tensorflow", "cluster", "task"), MADE), {}, []),
        ((MADE, _unused("DTypePolicy"), _unused("DatasetV2.map", dropped=True)), {}, ["ignored"] * 2),
        ((MADE, {**SCOPE, "device": "/CPU:0"}), {1: 1, 2: 1, 3: 1, 5: 2}, ["ignored"]),
        ((MADE, {**SCOPE, "device": "/CPU:0"}), {1: 1, 2: 1, 3: 1, 6: 2}, []),
        (({**POLICY, "apart": True}, *LAYERS, MADE), {1: 3}, ["ignored"]),
        ((_variable("TF_GPU_THREAD_COUNT"), MADE), {}, ["ignored"]),
        ((_variable("TF_DETERMINISTIC_OPS"), MADE), {}, ["not checked"]),
        ((_variable("TF_DETERMINISTIC_OPS"), MADE, {**DETERMINISM, "enabled": True}), {}, ["took effect"]),
        ((_variable("TF_DETERMINISTIC_OPS"), MADE, DETERMINISM), {}, ["too late"]),
        (
            (_variable("TF_GPU_THREAD_MODE", "gpu_private"), _variable("TF_GPU_THREAD_COUNT"), MADE),
            {},
            ["not checked"] * 2,
        ),
        ((_variable("TF_XLA_FLAGS", "--tf_xla_cpu_global_jit"), LISTED, MADE), {}, ["ignored"]),
        ((_variable("TF_XLA_FLAGS", "tf_xla_auto_jit=2"),), {}, ["refused"]),
        ((LISTED, _variable("TF_XLA_FLAGS", "--tf_xla_auto_jit=2"), MADE), {}, ["too late"]),
    ],
)
def test_what_nothing_looks_at_has_no_effect_and_the_rest_is_not_named(
    notes: tuple[Note, ...], words: dict[int, int], fates: list[str]
) -> None:
    before = [note for note in notes if note["k"] in ("variable", "read")]
    others = [note for note in notes if note not in before]
    first = (*before, IMPORTED, *others) if before and notes[0] is not LISTED else (IMPORTED, *notes)
    assert [setting.fate for setting in _judged(*first, words=words)] == fates


def test_a_policy_that_layers_do_not_take_is_not_said_to_have_no_effect() -> None:
    (setting,) = _judged(IMPORTED, POLICY, *LAYERS, MADE, words={1: 10})
    assert setting.why == (
        "8 layers with float32 were made after it, and none that computes with it: each was given another dtype"
    )
    (match,) = setting_without_effect.find(ProgramTrace(("python",), "", 1.0, settings=(setting,)))
    assert match.figures["outcome"] == "does not do what it asks for"


def test_what_os_putenv_set_is_not_in_the_copy_of_os_environ_that_a_child_is_given() -> None:
    start = {**START, "pid": 1, "parent": 0}
    put = _variable("CUDA_VISIBLE_DEVICES", direct=True)
    parents = {1: [_notes(put, _command(7, given={}), start=start)]}
    (lost,) = _judged(IMPORTED, LISTED, MADE, family=parents)
    assert (lost.fate, lost.line, lost.process) == ("ignored", "a.py:9", 7)
    assert lost.instead is not None
    assert lost.instead.command == "os.environ['CUDA_VISIBLE_DEVICES'] = '1'"
    for command in (_command(7), _command(8, given={})):
        assert not _judged(IMPORTED, LISTED, MADE, family={1: [_notes(put, command, start=start)]})


def test_a_library_path_that_a_process_set_before_it_executed_itself_again_is_read() -> None:
    again = _notes(IMPORTED, start={**START, "t": 2.0})
    first = _notes(_variable("LD_LIBRARY_PATH"), IMPORTED)
    assert not list(settings.judged(first, 7, (), {7: [first, again]}))


def test_a_variable_that_a_new_environment_leaves_out_does_not_reach_the_process() -> None:
    start = {**START, "pid": 1, "parent": 0}
    put, command = _variable("CUDA_VISIBLE_DEVICES"), _command(7, given={"CUDA_VISIBLE_DEVICES": None}, is_copy=False)
    parent = Notes((start, put, command), (0,) * 20, 0, 0.0, 0)
    (lost,) = _judged(IMPORTED, LISTED, MADE, family={1: [parent]})
    assert (lost.fate, lost.line) == ("ignored", "a.py:9")
    user = Notes((start, IMPORTED, put, command), (0,) * 20, 0, 0.0, 0)
    assert not _judged(IMPORTED, LISTED, MADE, family={1: [user]}), "the parent set it for itself"


def test_a_variable_that_is_set_after_all_processes_were_started_comes_too_late() -> None:
    start = {**START, "pid": 1, "parent": 0}
    child = _notes(IMPORTED, start={**START, "pid": 8, "parent": 1, "t": 2.0})
    put = {**_variable("CUDA_VISIBLE_DEVICES"), "t": 1.9}
    unset, first = {**put, "value": None}, {**put, "t": 1.7}
    for order, fates in (
        ((_command(8), put), ["too late"]),
        ((first, _command(8)), ["not reached"]),
        ((_command(8), unset), []),  # the process that was started has it so
        ((first, _command(8), unset, put), ["replaced", "not reached"]),
    ):
        parent = Notes((start, *order), (0,) * 20, 0, 0.0, 0)
        assert [setting.fate for setting in settings.judged(parent, 1, (), {1: [parent], 8: [child]})] == fates
