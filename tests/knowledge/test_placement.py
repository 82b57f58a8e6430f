"""The parser of TensorFlow's placement lines, on lines that TensorFlow 2.21 wrote."""

from __future__ import annotations

import pytest

from gpudiag.knowledge.placement import (
    Placement,
    created_devices,
    devices_of,
    parse_placements,
    pci_bus_id,
    short_device,
)

JOB = "/job:localhost/replica:0/task:0/device:"
STAMP = "I0000 00:00:1795245621.571280    5320 "

# Eager, a function's placer (on stdout, and again in the log), a session; and lines that hold no placement.
CAPTURED = f"""\
a: (_Arg): {JOB}CPU:0
MatMul: (MatMul): {JOB}CPU:0
{STAMP}placer.cc:162] a: (_Arg): {JOB}CPU:0
{STAMP}placer.cc:162] MatMul: (MatMul): {JOB}CPU:0
{STAMP}execute.cc:1775] Executing op _MklMatMul in device {JOB}CPU:0
{STAMP}execute.cc:1775] Executing op __inference_g_7 in device {JOB}GPU:1
MatMul/a: (Const): {JOB}CPU:0
{STAMP}direct_session.cc:382] Device mapping: no known devices.
E0000 00:00:1795245621.541911    5320 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error
{STAMP}gpu_device.cc:2040] Created device {JOB}GPU:0 with 39424 MB memory:  -> device: 0, name: X, pci bus id: 0000:3B:00.0
"""  # noqa: E501  # as it was written

CREATED = (
    f"{STAMP}gpu_device.cc:2040] Created device {JOB}GPU:1 with 256 MB memory:  -> device: 0, "
    "name: NVIDIA A100-SXM4-40GB, pci bus id: 0000:3B:00.0, compute capability: 8.0"
)


def test_captured_lines_give_placements_in_order() -> None:
    assert parse_placements(CAPTURED.splitlines()) == (
        Placement("_Arg", "CPU:0", "a"),
        Placement("MatMul", "CPU:0", "MatMul"),
        Placement("_MklMatMul", "CPU:0"),
        Placement("__inference_g_7", "GPU:1"),
        Placement("Const", "CPU:0", "MatMul/a"),
    )


def test_eager_operations_are_counted_and_nodes_are_not() -> None:
    lines = [f"Executing op Add in device {JOB}CPU:0", f"x: (Add): {JOB}CPU:0"] * 3
    assert [placement.count for placement in parse_placements(lines)] == [3, 1]


def test_the_time_stamp_of_older_releases_does_not_matter() -> None:
    line = f"2025-01-15 10:00:00.000000: I tensorflow/core/common_runtime/eager/execute.cc:9] Executing op Add in device {JOB}GPU:0"  # noqa: E501
    assert parse_placements([line]) == (Placement("Add", "GPU:0"),)


def test_a_device_of_another_job_keeps_its_name() -> None:
    name = "/job:worker/replica:0/task:1/device:GPU:0"
    assert parse_placements([f"Executing op Add in device {name}"]) == (Placement("Add", name),)


@pytest.mark.parametrize("line", ["", "(MatMul)", "MatMul: (MatMul)", f"MatMul: (MatMul): {JOB}CPU", f"in {JOB}CPU:0"])
def test_half_a_line_is_no_placement(line: str) -> None:
    assert parse_placements([line]) == ()


@pytest.mark.parametrize(
    ("name", "short"),
    [(f"{JOB}GPU:0", "GPU:0"), ("/device:CPU:1", "CPU:1"), ("GPU:0", "GPU:0"), ("/job:w/device:GPU:0",) * 2],
)
def test_names_of_this_process_are_shortened(name: str, short: str) -> None:
    assert short_device(name) == short


def test_devices_of_an_operation_count_its_onednn_form() -> None:
    placements = (Placement("_MklMatMul", "CPU:1"), Placement("MatMul", "CPU:1", "x"), Placement("MatMulX", "CPU:0"))
    assert devices_of("MatMul", placements) == ("CPU:1",)
    assert devices_of("Add", placements) == ()


def test_created_devices_are_tied_to_pci_bus_ids() -> None:
    assert created_devices([CREATED, *CAPTURED.splitlines()]) == {"GPU:1": "0000:3b:00.0", "GPU:0": "0000:3b:00.0"}
    assert created_devices([CREATED.replace("Created device", "Removed device")]) == {}


def test_a_description_without_a_pci_bus_id() -> None:
    assert pci_bus_id("device: 0, name: NVIDIA A100-SXM4-40GB") is None
    assert pci_bus_id("") is None
