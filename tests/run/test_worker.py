"""The far side: what a child captures, what it returns, and when a fork server must stop forking."""

from __future__ import annotations

import ctypes
import json
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from far_side import ABSENT, Children
from gpudiag import catalogue
from gpudiag.isolate import JobResult
from gpudiag.isolate import worker as isolated
from gpudiag.knowledge.placement import Placement
from gpudiag.model.report import NoReading
from gpudiag.run import context, worker

MODULE = "run.test_worker"
"""This file for a child: its ``sys.path`` has the folder of the tests, and none above it."""
CONTEXT = context.ChildContext(())


def test_output_is_captured_where_no_folder_takes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a full TMPDIR: a line that is lost there would be told as a fault of TensorFlow's log."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "not there"))
    with CONTEXT.placements() as log:
        os.write(1, b"a line\n" * 100_000)
    assert log.lines == ("a line",) * 100_000


def call(children: Children, function: Any, **argument: Any) -> JobResult:
    """Call a function of this file in a child."""
    return children.call(f"{MODULE}:{function.__name__}", argument)


def value(ended: JobResult) -> Any:
    assert ended.value is not None, ended
    return json.loads(ended.value)


# What runs in a child


def writes_everywhere(_: dict[str, Any]) -> bytes:
    libc = ctypes.CDLL(None)

    def write(where: str) -> None:
        print(f"python out {where}")
        print(f"python err {where}", file=sys.stderr)
        libc.printf(f"c out {where}\n".encode())  # a pipe makes C hold it back, as it does for a session's placements
        os.write(2, f"descriptor err {where}\n".encode())

    write("before")
    with CONTEXT.placements() as log:
        write("inside")
        os.write(1, b"MatMul: (MatMul): /job:localhost/replica:0/task:0/device:CPU:0\n")
        early = list(log.lines)
    write("after")
    return msgspec.json.encode({"early": early, "lines": log.lines, "placements": log.placements})


def raises_inside(_: dict[str, Any]) -> bytes:
    try:
        with CONTEXT.placements() as log:
            print("written inside")
            raise KeyError("of the probe")
    except KeyError:
        print("written after")
    return msgspec.json.encode(log.lines)


def floods(argument: dict[str, Any]) -> bytes:
    isolated.CAPTURE_BYTES = 1 << 16
    refused = ""
    try:
        with CONTEXT.placements():
            try:
                while True:
                    os.write(1, b"x" * 4095 + b"\n")
            except OSError as error:
                refused = str(error.strerror)
            if argument["raises"]:
                raise KeyError("of the probe")
    except (RuntimeError, KeyError) as error:
        raised = repr(error)
    with tempfile.TemporaryFile() as file:  # the limit is gone again
        file.write(b"x" * (1 << 20))
    return msgspec.json.encode([refused, raised])


def imports(_: dict[str, Any]) -> bytes:
    return msgspec.json.encode(CONTEXT.import_log())


def attempts(_: dict[str, Any]) -> bytes:
    def graph() -> None:
        tf = CONTEXT.tf
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            number = tf.compat.v1.placeholder(tf.int32, [])
            session.run(tf.reshape(tf.constant([1, 2]), [number]), {number: 3})

    return msgspec.json.encode([CONTEXT.attempt(call) for call in (lambda: None, lambda: os.environ["NOT_SET"], graph)])


def asks_for_pci_bus_ids(_: dict[str, Any]) -> bytes:
    return msgspec.json.encode(CONTEXT.pci_bus_ids())


def asks_the_guard(argument: dict[str, Any]) -> bytes:
    guard = worker.preload()
    tf = CONTEXT.tf
    before = guard()
    {
        "lists": lambda: tf.config.list_physical_devices("GPU"),
        "computes": lambda: tf.constant(1.0),
        "sets": lambda: tf.config.set_soft_device_placement(True),
        "defines": lambda: tf.function(lambda: 1),
    }[argument["act"]]()
    return msgspec.json.encode([before, guard()])


def measures_nan(argument: dict[str, Any]) -> bytes:
    module: Any = catalogue.get("placement.log").module
    module.measure = lambda ctx: module.Reading(
        (module.LoggedProgram("eager", {}, argument["sign"] * math.inf - math.inf),)
    )
    return worker.run_probe({"probe": "placement.log", "gpus": []})


def returns_what_it_was_given(argument: dict[str, Any]) -> bytes:
    module: Any = catalogue.get("placement.fallback_causes").module
    run = module.FallbackOperation("", "", "", "", module.OperationCall(), module.OperationCall())
    module.measure = lambda ctx: module.Reading(
        (msgspec.structs.replace(run, op=f"{type(ctx.gpus[0]).__name__} {ctx.gpus[0].uuid}"),)
    )
    return worker.run_probe(argument)


# What is expected of it


def test_streams_of_python_and_c_are_captured_and_passed_on(tensorflow: Children) -> None:
    ended = call(tensorflow, writes_everywhere)
    found = value(ended)
    assert found["early"] == []
    assert sorted(found["lines"]) == [
        "MatMul: (MatMul): /job:localhost/replica:0/task:0/device:CPU:0",
        "c out inside",
        "descriptor err inside",
        "python err inside",
        "python out inside",
    ]
    assert msgspec.convert(found["placements"], tuple[Placement, ...]) == (Placement("MatMul", "CPU:0", "MatMul"),)
    for where in ("before", "inside", "after"):
        assert f"python out {where}\n" in ended.stdout
        assert f"c out {where}\n" in ended.stdout
        assert f"python err {where}\n" in ended.stderr
        assert f"descriptor err {where}\n" in ended.stderr
    assert ended.stdout.count("inside") == 2


def test_an_exception_inside_the_block_restores_the_streams(tensorflow: Children) -> None:
    ended = call(tensorflow, raises_inside)
    assert value(ended) == []
    assert ended.stdout == "written inside\nwritten after\n"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on the size of a file")
def test_a_flood_inside_the_block_is_cut_and_said(tensorflow: Children) -> None:
    ended = call(tensorflow, floods, raises=False)
    refused, raised = value(ended)
    assert refused == "File too large"
    assert raised.startswith("RuntimeError('more than")
    assert len(ended.stdout) == 1 << 16


def test_an_exception_of_the_probe_is_not_hidden_by_a_flood(tensorflow: Children) -> None:
    assert value(call(tensorflow, floods, raises=True))[1] == "KeyError('of the probe')"


def test_what_the_import_printed_is_known_in_a_fork_too(tensorflow: Children) -> None:
    for fresh in (False, True):
        ended = tensorflow.call(f"{MODULE}:{imports.__name__}", {}, fresh=fresh)
        (line,) = [line for line in value(ended) if "cpu_feature_guard.cc" in line]
        assert ended.stderr.count(line) == 1


def test_an_attempt_tells_type_and_text_without_the_stack(tensorflow: Children) -> None:
    nothing, key, graph = value(call(tensorflow, attempts))
    assert nothing is None
    assert key == {"type": "KeyError", "message": "'NOT_SET'"}
    assert graph["type"] == "InvalidArgumentError"
    assert "Input to reshape is a tensor with 2 values" in graph["message"]
    assert "test_worker.py" not in graph["message"]


def test_without_a_gpu_there_are_no_pci_bus_ids(tensorflow: Children) -> None:
    assert value(call(tensorflow, asks_for_pci_bus_ids)) == {}


@pytest.mark.parametrize("act", ["lists", "computes"])
def test_the_guard_forbids_forking_once_a_device_was_queried(act: str, tensorflow: Children) -> None:
    before, after = value(call(tensorflow, asks_the_guard, act=act))
    assert before is None
    assert "queried devices" in after


@pytest.mark.parametrize("act", ["sets", "defines"])
def test_the_guard_allows_what_queries_no_device(act: str, tensorflow: Children) -> None:
    assert value(call(tensorflow, asks_the_guard, act=act)) == [None, None]


@pytest.mark.parametrize("sign", [1, -1], ids=["NaN", "infinity"])
def test_a_reading_that_json_cannot_hold_is_an_error(sign: int, tensorflow: Children) -> None:
    ended = call(tensorflow, measures_nan, sign=sign)
    assert (ended.value, ended.cause) == (None, NoReading.EXCEPTION)
    assert "placement.log measured a NaN or an infinity" in ended.detail


def test_an_unknown_probe_is_an_error_that_names_the_nearest(tensorflow: Children) -> None:
    ended = tensorflow.call("gpudiag.run.worker:run_probe", {"probe": "placement.logs", "gpus": []})
    assert ended.cause is NoReading.EXCEPTION
    assert "placement.log'" in ended.detail


def test_the_gpus_reach_the_probe_as_records(tensorflow: Children) -> None:
    reading = tensorflow.measure("placement.fallback_causes", ABSENT, target=f"{MODULE}:returns_what_it_was_given")
    assert reading.runs[0].op == f"Gpu {ABSENT.uuid}"
    assert (reading.given, reading.seen) == ((ABSENT.pci_bus_id,), 1)


@pytest.mark.slow
def test_a_fresh_interpreter_measures_the_same_as_a_fork(tensorflow: Children) -> None:
    assert tensorflow.measure("placement.log", fresh=True) == tensorflow.measure("placement.log")
