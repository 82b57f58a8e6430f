"""What the notes of processes say, from notes alone, and how long a GPU was idle, from what NVML said."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gpudiag.causes.program import processes_on_one_gpu, program_ran_out_of_memory
from gpudiag.model.program import (
    Booked,
    Copies,
    GpuUse,
    MadeDevice,
    OutOfMemory,
    Process,
    ProgramTrace,
    Setting,
    SettingFate,
)
from gpudiag.report import program as texts
from gpudiag.tracing import gather, notes, report, sampler
from gpudiag.tracing.inside.gpudiag_watch import copies, graphs, operations
from gpudiag.tracing.inside.gpudiag_watch import notes as watcher
from gpudiag.tracing.inside.gpudiag_watch.notes import HEAD, MOST_FILES
from gpudiag.tracing.notes import Note, Notes
from reports import fix_line

START: Note = {"k": "process", "t": 0.0, "how": "started", "pid": 7, "parent": 1, "command": ["python"], "python": "3"}
FAILED = (
    "Detected unsupported operations when trying to compile graph __inference_step_45[_XlaMustCompile=true,"
    "config_proto=13,executor_type=11] on XLA_GPU_JIT: AsString (No registered 'AsString' OpKernel for XLA_GPU_JIT "
    "devices compatible with node {{node AsString}}){{node AsString}}, StringLength (No registered 'StringLength' "
    "OpKernel for XLA_GPU_JIT devices compatible with node {{node StringLength}})"
)


def _gathered(*notes: Note, counters: tuple[int, ...] = ()) -> Any:
    read = Notes((START, *notes), (0,) * HEAD + counters, 0, 0.0, 0)
    return gather.gathered([read], ("python",), "exit status 0", 0.0, 9.0)


def _counter(slot: int, what: str, op: str, kernel: str = "") -> Note:
    return {"k": "counter", "t": 1.0, "slot": HEAD + slot, "what": what, "op": op, "line": "a.py:3", "kernel": kernel}


def _graph(function: str, **more: Any) -> Note:
    none = {"to host": [0, 0, 0], "to device": [0, 0, 0], "between GPUs": [0, 0, 0]}
    plain: Note = {"scope": "", "devices": {"GPU:0": 3}, "copies": none, "clusters": None, "outside": {}, "cpu": []}
    return {"k": "graph", "t": 2.0, "function": function, "number": 0, **plain, **more}


def test_of_more_processes_than_are_watched_it_is_said() -> None:
    def said(number: int) -> tuple[str, ...]:
        read = [Notes((START,), (0,) * HEAD, 0, 0.0, 0)] * number
        return gather.gathered(read, ("python",), "exit status 0", 0.0, 9.0).processes[0].missing

    assert said(MOST_FILES) == ("1,000 processes of Python are watched: not known is what later ones did",)
    assert not said(MOST_FILES - 1)


def test_copies_of_a_function_are_those_of_each_graph_times_its_runs() -> None:
    program = _gathered(
        _counter(0, "traced", "step"),
        _counter(1, "function", "__inference_step_1"),
        _counter(2, "function", "__inference_step_2"),
        _graph("__inference_step_1", copies={"to host": [2, 8, 1], "to device": [0, 0, 0], "between GPUs": [3, 9, 0]}),
        _graph(
            "__inference_step_2", copies={"to host": [1, 100, 0], "to device": [0, 0, 0], "between GPUs": [0, 0, 0]}
        ),
        counters=(2, 10, 3),
    )
    copied, between = program.copies
    assert between == Copies("between GPUs", "a.py:3", 30, 90, "step", process=7)
    assert copied == Copies("to host", "a.py:3", 23, 380, "step", 10, process=7)
    (step,) = program.functions
    assert (step.runs, step.traced, step.copies, step.between_gpus) == (13, 2, 1, 3)
    assert step.ran == {"GPU:0": 39}
    ((_, text),) = dict(texts.sections(program, verbose=False))["functions"]
    assert "13 runs, traced 2 times; operations: at most 3 on GPU:0; at least 1 copy between" in text


def test_each_line_that_calls_a_function_has_its_own_runs_and_copies() -> None:
    train, test, lost = (_counter(number, "function", f"__inference_step_{number}") for number in (0, 1, 2))
    program = _gathered(
        train,
        {**test, "line": "a.py:4"},
        {**lost, "line": "a.py:4"},
        {**_counter(3, "function", "__inference_step_0"), "asked": "GPU:0"},
        _graph("__inference_step_0", copies={"to host": [2, 8, 0], "to device": [0, 0, 0], "between GPUs": [0, 0, 0]}),
        _graph("__inference_step_1", devices={"GPU:0": 1}),
        counters=(10, 5, 2, 1),
    )
    assert dict(texts.sections(program, verbose=False))["functions"] == [
        ("a.py:3", "step: 11 runs; operations: 3 on GPU:0; 2 copies between host and GPU in each run"),
        ("a.py:4", "step: 7 runs; operations: 1 on GPU:0, not known of 2 runs"),
    ]
    assert program.copies == (Copies("to host", "a.py:3", 22, 88, "step", process=7),)
    assert program.operations(program.processes[0]) == {"GPU:0": 38}


def test_copies_in_a_loop_are_said_to_be_counted_once() -> None:
    copied = {"to host": [12, 48, 0], "to device": [0, 0, 0], "between GPUs": [0, 0, 0]}
    step = _counter(0, "function", "__inference_step_0")
    program = _gathered(step, _graph("__inference_step_0", copies=copied, branches=True), counters=(1,))
    sections = dict(texts.sections(program, verbose=False))
    assert sections["functions"][0][1].endswith(
        "; if each loop and branch runs once, 12 copies between host and GPU in each run"
    )
    assert sections["traffic"][0][1] == (
        "12 copies to host by step, if each of its loops and branches ran once: 48 bytes in all, 4 bytes on average"
    )


def _node(name: str, op: str, device: str, *inputs: str, **attributes: Any) -> SimpleNamespace:
    return SimpleNamespace(name=name, op=op, device=f"/device:{device}", input=inputs, attr=attributes)


def test_a_copy_has_the_size_of_its_own_output_and_a_control_edge_is_none() -> None:
    kinds = {"edge_1": 1, "edge_2": 1, "edge_3": 1}
    keys = {
        key: {"tensor_name": SimpleNamespace(s=key), "tensor_type": SimpleNamespace(type=kinds[key])} for key in kinds
    }
    empty = SimpleNamespace(tensor=SimpleNamespace(tensor_shape=SimpleNamespace(dim=[SimpleNamespace(size=0)])))
    host = [
        _node("Next", "IteratorGetNext", "CPU:0"),
        _node("Next/ctrl/_3", "Const", "CPU:0", "^Next", value=empty),
        *(
            _node(key, "_Send", "CPU:0", source, **keys[key])
            for key, source in zip(kinds, ("Next", "Next:1", "Next/ctrl/_3"), strict=True)
        ),
    ]
    gpu = [_node(key, "_Recv", "GPU:0", **keys[key]) for key in kinds]

    def output(elements: int | None) -> SimpleNamespace:
        shape, dtype = SimpleNamespace(num_elements=lambda: elements), SimpleNamespace(as_datatype_enum=1, size=4)
        return SimpleNamespace(shape=shape, dtype=dtype)

    def to_device(*elements: int | None) -> list[int]:
        operation = SimpleNamespace(name="Next", outputs=[output(number) for number in elements])
        parts = [SimpleNamespace(node=nodes) for nodes in (host, gpu)]
        found: list[int] = graphs.copies_in(parts, {"Next": operation}.get)["to device"]
        return found

    assert to_device(1000, 10) == [2, 4040, 0]
    assert to_device(1000, None) == [2, 4000, 1]
    assert to_device(1000) == [2, 4000, 1]


def test_a_function_is_named_by_the_line_that_ran_it_and_a_setting_once_however_often_its_line_runs() -> None:
    run = {**_counter(1, "function", "__inference_step_1"), "line": "a.py:9"}
    again = {"k": "variable", "t": 1.0, "name": "CUDA_VISIBLE_DEVICE", "value": "0", "line": "a.py:2", "stage": ""}
    program = _gathered(_counter(0, "traced", "step"), run, again, {**again, "t": 2.0}, counters=(3, 1))
    assert [(function.line, function.traced, function.runs) for function in program.functions] == [("a.py:9", 3, 1)]
    assert [setting.fate for setting in program.settings] == ["misspelt"]


def test_single_copies_and_waiting_have_two_words_each() -> None:
    program = _gathered(
        _counter(0, "copy", "to host", "direct"),
        _counter(2, "copy", "to device"),
        _counter(4, "waited", ""),
        counters=(5, 20, 0, 0, 3, 1_500_000),
    )
    assert program.copies == (Copies("to host", "a.py:3", 5, 20, process=7),)
    assert [(wait.times, wait.seconds) for wait in program.waited] == [(3, 1.5)]
    assert not program.processes[0].operations


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Path]:
    """A folder into which the watcher writes notes of this process."""
    assert watcher.open_file(str(tmp_path))
    yield tmp_path
    watcher.state.reset()


def _tensor(elements: Callable[[], int] = lambda: 4) -> SimpleNamespace:
    dtype = SimpleNamespace(size=4, name="float32", is_floating=True)
    device = "/job:localhost/replica:0/task:0/device:GPU:0"
    return SimpleNamespace(
        dtype=dtype, shape=SimpleNamespace(num_elements=elements), device=device, backing_device=device
    )


def test_no_copy_or_operation_is_lost_if_another_thread_counts_at_the_same_time(watching: Path) -> None:
    def count(*elements: Callable[[], int]) -> int:
        copies.count_copy("to device", _tensor(*elements), 2)
        return 4

    count()
    count(count)  # while its size is computed, another copy is counted
    watcher.state.counting.acquire()
    watcher.state.busy = 1
    operation = Thread(target=operations.any_operation, args=("MatMul", [], (), [_tensor()]))
    operation.start()
    operation.join(0.05)
    watcher.state.busy = 0
    watcher.state.counting.release()
    operation.join()
    (read,) = notes.read(watching)
    words = {note["what"]: (read.count(note), read.count(note, 1)) for note in read.of("counter")}
    assert words["copy"] == (3, 48)
    assert words["op"][0] == 1


def test_why_xla_left_operations_out_is_said() -> None:
    program = _gathered(
        _counter(0, "function", "__inference_step_1"),
        _graph("__inference_step_1", clusters=2, outside={"AsString": False, "Unique": True}),
        counters=(4,),
    )
    ((_, text),) = dict(texts.sections(program, verbose=False))["functions"]
    assert "XLA: 2 clusters; XLA has no kernel for AsString; in none, though XLA has a kernel: Unique" in text


def test_what_xla_could_not_compile_is_read_from_its_error() -> None:
    error = {"k": "error", "t": 2.0, "error": "InvalidArgumentError", "message": FAILED, "line": "a.py:5"}
    (function,) = _gathered(error).not_compiled
    assert (function.function, function.line, function.device) == ("step", "a.py:5", "XLA_GPU_JIT")
    assert function.operations == ("AsString", "StringLength")


def test_many_small_copies_come_before_few_large_ones() -> None:
    program = _gathered(
        _counter(0, "copy", "to device"),
        _counter(2, "copy", "to host"),
        counters=(50, 50 << 20, 20, 80),
    )
    lines = [text for _, text in dict(texts.sections(program, verbose=False))["traffic"]]
    assert lines == [
        "20 copies to host, by a library: 80 bytes in all, 4 bytes on average",
        "50 copies to device, by a library: 50 MiB in all, 1 MiB on average",
    ]


def test_a_gpu_is_idle_for_the_share_of_the_time_in_which_it_computed_nothing(tmp_path: Path) -> None:
    def busy(now: float, percent: int | None) -> str:
        return json.dumps([now, [[0, 100, 10, {"7": 5}, percent, "0000:01:00.0"]]])

    lines = [busy(100.0, 0), busy(110.0, 0), busy(112.0, 50), busy(120.0, 100), "[121.0, [[0, 100"]
    (tmp_path / sampler.FILE).write_text("\n".join(lines))
    (gpu,) = sampler.read(tmp_path, since=108.0)
    assert (gpu.idle_s, gpu.watched_s) == (3.0, 12.0)
    assert (gpu.used_bytes, gpu.processes) == (10, ((7, 5),))
    assert sampler.read(tmp_path)[0].idle_s is None
    (tmp_path / sampler.FILE).write_text(busy(100.0, None) + "\n" + busy(110.0, None))
    assert sampler.read(tmp_path, since=90.0)[0].idle_s is None


def _of_settings(*settings: Setting, total_bytes: int = 0) -> ProgramTrace:
    made = MadeDevice("GPU:0", 1 << 51, peak_bytes=1 << 30, samples=((1.0, 1 << 30),), total_bytes=total_bytes)
    return ProgramTrace(
        ("python",),
        "",
        1.0,
        processes=(Process(7, 1, "started", (), "3", 0.0, "2.21.0", devices=(made,)),),
        settings=settings,
    )


def test_the_headline_speaks_of_computations_because_others_are_not_looked_at() -> None:
    passed = _counter(0, "op", "Identity", "plain") | {"device": "CPU:0", "asked": ""}
    computed = _counter(1, "op", "MatMul") | {"device": "GPU:0", "asked": ""}
    made = {
        "k": "initialised",
        "t": 1.0,
        "line": "a.py:2",
        "options": {},
        "devices": [("CPU:0", 0), ("GPU:0", 1 << 30)],
    }
    program = _gathered({"k": "tensorflow", "t": 0.5, "version": "2.21.0"}, made, passed, computed, counters=(16, 1))
    assert texts.headline(program, report.made(program, ("trace",))).startswith(
        "No floating-point computation that a GPU could run was seen on the CPU outside of tf.data;"
    )


def test_the_headline_counts_how_settings_ended_and_never_says_more() -> None:
    ends = ("took effect", "ignored", "too late", "other effect", "not checked", "not reached", "replaced")
    settings = tuple(Setting("memory_growth", "True", "a.py:1", SettingFate(end), "seen") for end in ends)
    assert texts.settings_line(_of_settings(*settings)) == (
        "7 settings: 1 took effect, 1 had another effect, 2 had no effect, 1 replaced, 1 not checked, 1 not reached"
    )
    assert texts.settings_line(_of_settings()) == "none of the options that trace watches was set"
    read = Setting("memory_growth", "True", "a.py:1", SettingFate.TOOK_EFFECT)  # as an older gpudiag wrote
    assert texts.settings_line(_of_settings(read)) == "1 setting: 1 not checked"


def test_a_process_that_made_no_devices_is_not_said_to_have_no_gpu() -> None:
    started = [Process(pid, 1, "started", (), "3", 0.0, "2.21.0") for pid in (7, 8)]
    on_cpu = Process(9, 1, "started", (), "3", 0.0, "2.21.0", devices=(MadeDevice("CPU:0", 0),))
    lines = dict(texts.sections(ProgramTrace(("python",), "", 1.0, (*started, on_cpu)), verbose=False))["processes"]
    assert [line.partition(": ")[2].partition(",")[0] for _, line in lines] == [*["no devices were made"] * 2, "no GPU"]


@pytest.mark.parametrize(
    ("gpus", "mask", "headline"),
    [
        ((False,), "'0'", "TensorFlow had no GPU; 1 setting: 1 replaced"),
        ((False,), "'-1'", "TensorFlow had no GPU: GPU 0 is hidden by it; 1 setting: 1 replaced"),
        ((True, False), "'0'", "TensorFlow had no GPU in 1 of 2 processes; 1 setting: 1 replaced"),
        ((True, False), "'-1'", "No operation was seen on a GPU; 1 setting: 1 replaced"),
        ((True,), "'0'", "No operation was seen on a GPU; 1 setting: 1 replaced"),
    ],
)
def test_the_headline_says_whether_a_gpu_was_lacking(gpus: tuple[bool, ...], mask: str, headline: str) -> None:
    processes = tuple(
        Process(pid, 1, "started", (), "3", 0.0, "2.21.0", operations=3, devices=(MadeDevice(name, 1 << 30),))
        for pid, name in enumerate("GPU:0" if has_gpu else "CPU:0" for has_gpu in gpus)
    )
    setting = Setting("CUDA_VISIBLE_DEVICES", mask, "a.py:1", SettingFate.REPLACED, "seen")
    hidden = (GpuUse(0, len(gpus) - 1, unused="hidden by it", is_hidden=True),) if mask == "'-1'" else ()
    trace = ProgramTrace(("python",), "exit status 0", 1.0, processes, (setting,), gpus=hidden)
    assert texts.headline(trace, report.made(trace, ())) == headline


def test_only_processes_that_use_a_gpu_share_it_and_a_parent_that_does_is_to_hide_it() -> None:
    def process(pid: int, parent: int, *used: int, mask: str | None = None) -> Process:
        made = [MadeDevice(f"GPU:{number}", 1 << 34, str(number), peak_bytes=number in used) for number in range(2)]
        return Process(pid, parent, "started", (), "3", 0.0, "2.21.0", made_s=1.0, devices=tuple(made), mask=mask)

    idle, first, second = process(7, 1), process(8, 7, 0), process(9, 7, 0)
    (match,) = processes_on_one_gpu.find(ProgramTrace(("python",), "exit status 0", 9.0, (idle, first, second)))
    assert match.figures == {"count": 2, "gpu": "0"}
    assert not any("process 7" in line or "likewise" in line for line in match.evidence)
    (match,) = processes_on_one_gpu.find(ProgramTrace(("python",), "exit status 0", 9.0, (process(7, 1, 0), first)))
    assert match.fix[0] is not None
    assert match.fix[0].command == "tf.config.set_visible_devices([], 'GPU')"
    assert not list(processes_on_one_gpu.find(ProgramTrace(("python",), "exit status 0", 9.0, (idle, first))))
    ended = msgspec.structs.replace(first, seen_s=1.3)
    for began, matches in ((1.2, 1), (1.4, 0)):  # one worker of a pool after another
        then = msgspec.structs.replace(second, began_s=began, made_s=1.6, seen_s=1.9)
        found = processes_on_one_gpu.find(ProgramTrace(("python",), "exit status 0", 9.0, (idle, ended, then)))
        assert len(list(found)) == matches


def test_a_peak_is_told_of_what_the_card_has_if_the_limit_is_more() -> None:
    memory = dict(texts.sections(_of_settings(total_bytes=8 << 30), verbose=False))["memory"]
    assert memory == [("GPU:0", "peak 1,024 MiB of 8,192 MiB (12 %)")]


FULL = OutOfMemory("OOM", "a.py:9", "GPU:0", 512 << 20, 64 << 20, 256 << 20, process=7)
CARD = Booked(0, 2 << 30, 0, 300 << 20)
PROCESS = Process(7, 1, "started", ("python",), "3", 0.0, "2.21.0", devices=(MadeDevice("GPU:0", 256 << 20, "0"),))


@pytest.mark.parametrize(
    ("settings", "card", "change"),
    [
        ((("logical_devices", "GPU:0=[256]"),), CARD, "# a.py:3: a memory_limit of 576 MiB or more"),
        (
            (("session", "per_process_gpu_memory_fraction=0.1"),),
            CARD,
            "# a.py:3: per_process_gpu_memory_fraction of 0.29 or more",
        ),
        ((), CARD, "# this tensor is larger than all of GPU:0: make it in parts of at most 192 MiB"),
        (
            (("logical_devices", "GPU:0=[256]"),),
            Booked(0, 512 << 20, 0, 300 << 20),
            "# this tensor is larger than all of GPU:0: make it in parts of at most 192 MiB",
        ),
    ],
)
def test_the_smallest_change_that_fits_is_named(settings: Any, card: Booked, change: str) -> None:
    made = tuple(Setting(what, value, "a.py:3", SettingFate.TOOK_EFFECT, process=7) for what, value in settings)
    trace = ProgramTrace(
        ("python",), "", 1.0, processes=(PROCESS,), settings=made, out_of_memory=(FULL,), booked=(card,)
    )
    (match,) = program_ran_out_of_memory.find(trace)
    assert match.fix[0] is not None
    assert fix_line(match.fix[0]) == change
    assert len(match.evidence) <= 5


def test_of_memory_that_another_process_holds_it_is_said() -> None:
    trace = ProgramTrace(
        ("python",),
        "",
        1.0,
        processes=(PROCESS,),
        out_of_memory=(FULL,),
        booked=(Booked(0, 2 << 30, 1 << 30, 2 << 30),),
    )
    (match,) = program_ran_out_of_memory.find(trace)
    assert (
        match.evidence[-1]
        == "before the program began, 1,024 MiB of 2,048 MiB of card 0 were in use: by another process"
    )


@pytest.mark.parametrize(
    ("message", "asked"),
    [
        ("OOM when allocating tensor with shape[128,1024] and type half on /job:x by allocator GPU_0_bfc", 262144),
        ("Out of memory while trying to allocate 4294967296 bytes.", 1 << 32),
        ("failed", 0),
    ],
)
def test_how_much_was_asked_for_is_read_from_the_error(message: str, asked: int) -> None:
    error = {"k": "error", "t": 2.0, "error": "ResourceExhaustedError", "message": message, "line": "a.py:5"}
    (allocation,) = _gathered(error).out_of_memory
    assert allocation.asked_bytes == asked
