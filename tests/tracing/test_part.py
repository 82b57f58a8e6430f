"""A part of a program is traced, and nothing of the watcher is left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpudiag
from gpudiag.errors import UsageError
from gpudiag.tracing.inside.gpudiag_watch.hooks import Finder
from gpudiag.tracing.inside.gpudiag_watch.notes import guarded

PART = """
import sys
import tensorflow as tf
from tensorflow.python.eager import context, execute
import gpudiag

model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
before = tf.ones([8, 4])

def parts():
    cls = context.Context
    return cls.set_memory_growth, cls.__init__, execute.execute, type(tf.config), list(context.context().op_callbacks)

kept = parts()
with gpudiag.trace() as report:
    tf.tanh(before)
    tf.config.set_soft_device_placement = False
assert parts() == kept
assert [cause.cause_id for cause in report.causes] == ["setting_without_effect"], report
assert [(placement.op, placement.count) for placement in report.program.placed] == [("Tanh", 1)]
with gpudiag.trace() as report:
    pass
assert not report.causes and not report.program.placed
with gpudiag.trace() as report:
    context.context().enable_graph_collection()
    tf.function(tf.tanh)(before)
    own = context.context().export_run_metadata()
assert own.function_graphs, "the graphs that the program collects are its own"
assert "collects graphs itself" in str(report), report
model.fit(before, tf.zeros([8, 1]), verbose=0, callbacks=[gpudiag.keras_callback("trace.json")])
assert parts() == kept
print("GPU" in str(report), "done")
"""


@pytest.mark.starts
def test_a_part_of_a_program_and_a_training(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpudiag", "simulate", "1x2GiB", "--", sys.executable, "-c", PART],
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
        cwd=tmp_path,
    )
    assert done.stdout == "True done\n", done.stderr
    from gpudiag.model import codec

    program = codec.load(tmp_path / "trace.json").program
    assert program is not None
    assert [function for function in program.functions if function.runs]


def test_without_tensorflow_there_is_nothing_to_report() -> None:
    putenv = os.putenv
    with gpudiag.trace() as report:
        assert os.putenv is not putenv
        os.environ["TF_FORCE_GPU_ALOW_GROWTH"] = "true"
    del os.environ["TF_FORCE_GPU_ALOW_GROWTH"]
    assert os.putenv is putenv
    assert not [finder for finder in sys.meta_path if finder is Finder]
    assert [(cause.cause_id) for cause in report.causes] == ["setting_without_effect"]
    assert "test_part.py:" in report.causes[0].evidence[0]


def test_two_at_once_are_refused_and_an_error_goes_on() -> None:
    with gpudiag.trace() as report, pytest.raises(UsageError, match="cannot be nested"), gpudiag.trace():
        pass
    with pytest.raises(UsageError, match="has not ended"), gpudiag.trace() as report:
        _ = report.report
    assert report.program.ended == "part of a program, by UsageError"


def test_what_goes_wrong_in_the_watcher_is_named_once_with_its_number() -> None:
    def broken() -> None:
        raise LookupError("no such thing")

    with gpudiag.trace() as report:
        for _ in range(3):
            guarded(broken)
    (process,) = report.program.processes
    assert process.missing == ("a bug in gpudiag, at broken: LookupError: no such thing (3 times)",)
