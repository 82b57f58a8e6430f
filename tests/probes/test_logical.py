"""The probes of logical devices on the real TensorFlow, behaving and misbehaving."""

from __future__ import annotations

from far_side import Children, judge


def test_three_logical_cpus_compute(tensorflow: Children) -> None:
    reading = tensorflow.measure("logical.cpu_split")
    assert [(run.op, run.logged) for run in reading.runs] == [
        ("MatMul", ("CPU:0",)),
        ("MatMul", ("CPU:1",)),
        ("MatMul", ("CPU:2",)),
        ("AddN", ("CPU:0",)),
    ]
    judged = judge("logical.cpu_split", reading)
    assert (judged.findings, judged.verified) == ((), ())


def test_late_changes_are_refused(tensorflow: Children) -> None:
    reading = tensorflow.measure("logical.after_init")
    assert [attempt.raised.type for attempt in reading.attempts] == ["RuntimeError"] * 4
    assert [attempt.raised.message.split(" cannot")[0] for attempt in reading.attempts] == [
        "Virtual devices",
        "Visible devices",
        "Intra op parallelism",
        "Inter op parallelism",
    ]
    assert reading.ran_on == ("CPU:1",)
    assert judge("logical.after_init", reading).findings == ()
