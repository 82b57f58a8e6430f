"""The placement probes on the real TensorFlow, behaving and misbehaving."""

from __future__ import annotations

from far_side import Children, judge


def test_a_missing_device_falls_back_to_the_cpu(tensorflow: Children) -> None:
    reading = tensorflow.measure("placement.soft_fallback")
    assert reading.present == ("CPU:0",)
    assert [(run.mode, run.logged, run.device) for run in reading.runs] == [
        ("eager", ("CPU:0",), "CPU:0"),
        ("tf.function", ("CPU:0",), "CPU:0"),
    ]
    judged = judge("placement.soft_fallback", reading)
    assert (judged.findings, judged.verified) == ((), ())
    assert judged.figure == "/GPU:99 runs on CPU:0"


def test_a_missing_device_raises_under_hard_placement(tensorflow: Children) -> None:
    reading = tensorflow.measure("placement.hard_error")
    assert {run.raised.type for run in reading.runs} == {"InvalidArgumentError"}
    texts = {(run.mode, run.requested, run.soft): run.raised.message for run in reading.runs}
    eager, function = texts["eager", "/GPU:99", False], texts["tf.function", "/GPU:99", False]
    assert "Could not satisfy device specification" in eager
    assert "Unable to find any devices for spec /device:GPU:99" in function
    assert "enable_soft_placement=1" in texts["eager", "/job:worker/device:CPU:0", True]
    assert (
        "Unable to find any devices for spec /job:worker/device:CPU:0"
        in texts["tf.function", "/job:worker/device:CPU:0", False]
    )
    for requested, soft in (
        ("/GPU:99", False),
        ("/job:worker/device:CPU:0", False),
        ("/job:worker/device:CPU:0", True),
    ):
        assert "Cannot assign a device for operation MatMul" in texts["session", requested, soft]
    assert judge("placement.hard_error", reading).findings == ()


def test_the_ways_to_miss_the_switch_are_as_known(tensorflow: Children) -> None:
    reading = tensorflow.measure("placement.soft_switch_ignored")
    assert {attempt.way: attempt.came_to for attempt in reading.attempts} == {
        "eager_config": "CPU:0",
        "session_default": "InvalidArgumentError",
        "session_inherits": "CPU:0",
        "session_config": "InvalidArgumentError",
        "late_config": "CPU:0",
        "assigned": "CPU:0",
        "made_up_type": "CPU:0",
        "old_constant": "CPU:0",
        "switched_off": "InvalidArgumentError",
        "variable": "CPU:1",
    }
    judged = judge("placement.soft_switch_ignored", reading)
    assert judged.findings == ()
    assert judged.figure == "10 of 10 ways as known"


def test_every_operation_is_in_the_placement_log(tensorflow: Children) -> None:
    reading = tensorflow.measure("placement.log")
    assert {run.mode: run.logged for run in reading.runs} == {
        "eager": {"MatMul": ("CPU:1",), "AddV2": ("CPU:0",)},
        "tf.function": {"Mul": ("CPU:1",), "Sum": ("CPU:0",)},
        "session": {"Sub": ("CPU:1",), "Max": ("CPU:0",)},
    }
    judged = judge("placement.log", reading)
    assert judged.findings == ()
    assert judged.figure == "6 of 6 operations in the log"
