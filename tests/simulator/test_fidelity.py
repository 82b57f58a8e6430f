"""What TensorFlow prints and raises on a simulated machine: its device factory's exact texts.

Texts and numbers are those of TensorFlow 2.21 on its own GPU code; matched without log prefixes
and line numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from .on_machine import GIB, MIB, Inside, cards

INVALID = "listed an invalid Device id"
CREATED = re.compile(
    r"Created device /job:localhost/replica:0/task:0/device:(GPU:\d+) with (\d+) MB memory:"
    r"  -> device: (\d+), name: (.+), pci bus id: (\S+), compute capability: (\d+\.\d+)"
)


def gpu(*options: Mapping[str, object], **config: object) -> list[dict[str, object]]:
    return [{"gpu_options": dict(each), **config} for each in options]


@pytest.mark.parametrize(
    ("vdl", "text"),
    [
        ("0,abc", "Could not parse entry in 'visible_device_list': 'abc'."),
        ("0,", "Could not parse entry in 'visible_device_list': ''."),
        ("100", f"'visible_device_list' {INVALID} '100' but visible device count is 2"),
        ("-2", f"'visible_device_list' {INVALID} '-2' but visible device count is 2"),
        ("0,0", "visible_device_list contained a duplicate entry: 0,0"),
    ],
)  # fmt: skip
def test_bad_visible_device_list(inside: Inside, vdl: str, text: str) -> None:
    outcome = inside(2, "sessions", configurations=gpu({"visible_device_list": vdl}))
    [[kind, message]] = outcome.check()
    assert kind == "InvalidArgumentError"
    assert text in message
    assert text in outcome.log, "TensorFlow prints a session's failure too"


def test_bad_list_without_gpus_is_never_parsed(inside: Inside) -> None:
    bad = gpu(*({"visible_device_list": vdl} for vdl in ("0,abc", "100", "0,0")))
    outcome = inside(
        2,
        "sessions",
        configurations=[{**each, "allow_soft_placement": True} for each in bad],
        run=True,
        environment={"CUDA_VISIBLE_DEVICES": ""},
    )
    assert outcome.check() == [{}, {}, {}]


@pytest.mark.parametrize("vdl", ["1,0", " 1, 0"])
def test_visible_device_list_remaps(inside: Inside, vdl: str) -> None:
    outcome = inside(2, "sessions", configurations=gpu({"visible_device_list": vdl}), run=True)
    assert outcome.check() == [{"GPU:0": 6656 * MIB, "GPU:1": 6656 * MIB}]
    created = [(name, device, place) for name, _, device, _, place, _ in CREATED.findall(outcome.log)]
    assert created == [("GPU:0", "1", "0000:02:00.0"), ("GPU:1", "0", "0000:01:00.0")]


@pytest.mark.parametrize(
    ("vdl", "expected"),
    [
        ("1,0", ["/device:GPU:0", "/device:GPU:1"]),
        ("0,0", ["/device:GPU:0"]),
        ("2", ["ValueError", "Invalid visible device index: 2"]),
        ("a", ["ValueError", "invalid literal for int() with base 10: 'a'"]),
    ],
)
def test_visible_device_list_of_the_eager_context(inside: Inside, vdl: str, expected: list[str]) -> None:
    assert inside(2, "eager_options", visible_device_list=vdl).check() == expected


def virtual(*entries: dict[str, object]) -> dict[str, object]:
    return {"experimental": {"virtual_devices": list(entries)}}


@pytest.mark.parametrize(
    ("options", "config", "kind", "text"),
    [
        (
            {"per_process_gpu_memory_fraction": 0.1, **virtual({})},
            {},
            "InvalidArgumentError",
            "It's invalid to set per_process_gpu_memory_fraction when virtual_devices is set.",
        ),
        (
            {"visible_device_list": "0", **virtual({})},
            {"device_count": {"GPU": 0}},
            "UnknownError",
            "Not enough GPUs to create virtual devices. num_gpus_to_use: 0 #virtual_devices: 1",
        ),
        (
            {"visible_device_list": "0", **virtual({}, {})},
            {},
            "UnknownError",
            "Not enough GPUs to create virtual devices. num_gpus_to_use: 1 #virtual_devices: 2",
        ),
        (
            {"visible_device_list": "0,1", **virtual({})},
            {},
            "InvalidArgumentError",
            "The number of GPUs in visible_device_list doesn't match the number of elements in the "
            "virtual_devices list. #GPUs in visible_device_list: 2 virtual_devices.size(): 1",
        ),
        (
            virtual({"memory_limit_mb": [1, 2], "device_ordinal": [1]}),
            {},
            "InvalidArgumentError",
            "Number of virtual device ordinals specified doesn't match with number of "
            "memory_limit_mb specified for GPU# 0 memory_limit_mb size: 2 and device_ordinal "
            "size: 1",
        ),
        (
            virtual({"memory_limit_mb": [123, 456], "priority": [0]}),
            {},
            "InvalidArgumentError",
            "Number of virtual device priorities specified doesn't match with number of "
            "memory_limit_mb specified for GPU# 0 memory_limit_mb size: 2 and priority size: 1",
        ),
        (
            virtual({"memory_limit_mb": [123, 456], "priority": [-9999, 0]}),
            {},
            "InvalidArgumentError",
            "Priority -9999 is outside the range of supported priorities [-5,0] for virtual device 0 on GPU# 0",
        ),
    ],
)
def test_bad_virtual_devices(
    inside: Inside, options: dict[str, object], config: dict[str, object], kind: str, text: str
) -> None:
    gpus = 2 if options.get("visible_device_list") else 1
    [[found, message]] = inside(gpus, "sessions", configurations=gpu(options, **config)).check()
    assert found == kind
    assert text in message


def test_virtual_devices(inside: Inside) -> None:
    session = inside(1, "sessions", configurations=gpu(virtual({"memory_limit_mb": [123, 456]})))
    assert session.check() == [{"GPU:0": 123 << 20, "GPU:1": 456 << 20}]
    two = inside(
        2,
        "sessions",
        configurations=gpu(
            virtual(
                {"memory_limit_mb": [1, 2], "device_ordinal": [1, 2]},
                {"memory_limit_mb": [3, 4], "device_ordinal": [1, 2]},
            )
        ),
    )
    limits = {"GPU:0": 1 << 20, "GPU:1": 3 << 20, "GPU:2": 2 << 20, "GPU:3": 4 << 20}
    assert two.check() == [limits]
    assert inside(1, "sessions", configurations=gpu(virtual({}))).check() == [{"GPU:0": 6656 * MIB}]


def test_device_count(inside: Inside) -> None:
    none, wrong_case = inside(
        1,
        "sessions",
        configurations=[
            {"device_count": {"GPU": 0}, "allow_soft_placement": True},
            {"device_count": {"gpu": 0}},
        ],
    ).check()
    assert none == {}
    assert wrong_case == {"GPU:0": 6656 * MIB}


@pytest.mark.parametrize(
    ("capability", "free_mib", "limit_mib"),
    [
        ((6, 1), 8192, 7692),
        ((7, 5), 8192, 7142),
        ((8, 0), 8192, 6656),
        ((8, 9), 8192, 6656),
        ((9, 0), 8192, 6392),
        ((12, 0), 8192, 6392),
        ((8, 0), 1500, 1275),
        ((8, 0), 200, 200),
    ],
)
def test_default_memory_limit(inside: Inside, capability: tuple[int, int], free_mib: int, limit_mib: int) -> None:
    spec = cards(1, compute_capability=capability, taken=8 * GIB - free_mib * MIB)
    outcome = inside(spec, "logical")
    assert outcome.check() == ["/device:GPU:0"]
    [(_, limit, *_)] = CREATED.findall(outcome.log)
    assert int(limit) == limit_mib
    jit = "was not built with CUDA kernel binaries compatible with compute capability 12.0"
    assert (jit in outcome.log) == (capability == (12, 0))


@pytest.mark.parametrize(("fraction", "mib"), [(0.0, 6656), (0.1, 819), (0.5, 4096), (1.0, 8192), (1.2, 9830)])
def test_memory_fraction(inside: Inside, fraction: float, mib: int) -> None:
    options = {"per_process_gpu_memory_fraction": fraction}
    outcome = inside(1, "sessions", configurations=gpu(options), run=True)
    [limits] = outcome.check()
    assert limits["GPU:0"] >> 20 == mib


def test_fraction_of_a_busy_gpu_backs_off(inside: Inside) -> None:
    spec = cards(1, taken=6000 * MIB)
    options = {"per_process_gpu_memory_fraction": 0.5}
    outcome = inside(spec, "sessions", configurations=gpu(options), run=True)
    assert outcome.check() == [{"GPU:0": 4096 * MIB}]
    assert (
        "failed to allocate 4.00GiB (4294967296 bytes) from device: RESOURCE_EXHAUSTED: : "
        "CUDA_ERROR_OUT_OF_MEMORY: out of memory" in outcome.log
    )


def test_unified_memory_before_pascal(inside: Inside) -> None:
    spec = cards(1, compute_capability=(5, 2))
    options = {"per_process_gpu_memory_fraction": 1.5}
    [[kind, text]] = inside(spec, "sessions", configurations=gpu(options)).check()
    assert kind == "InternalError"
    assert (
        "Unified memory on GPUs with compute capability lower than 6.0 (pre-Pascal class GPUs) "
        "does not support oversubscription." in text
    )


def test_reserved_system_memory(inside: Inside) -> None:
    options = {"experimental": {"gpu_system_memory_size_in_mb": 1000}}
    outcome = inside(1, "sessions", configurations=gpu(options))
    assert outcome.check() == [{"GPU:0": 7192 * MIB}]
    options = {"experimental": {"gpu_system_memory_size_in_mb": 9000}}
    outcome = inside(1, "sessions", configurations=gpu(options))
    outcome.check()
    assert "The requested reserved device memory" in outcome.log
    assert "is larger than the available memory of" in outcome.log


def test_default_takes_everything_at_once(inside: Inside) -> None:
    found = inside(1, "first_allocation").check()
    assert found["steps"] == [[6656 * MIB, 6656 * MIB]]


def test_growth_takes_two_mib_then_doubles(inside: Inside) -> None:
    outcome = inside(1, "first_allocation", growth=True, mib=100)
    found = outcome.check()
    assert found["steps"] == [[2 * MIB, 2 * MIB], [130 * MIB, 130 * MIB]]
    assert found["info"]["current"] >= 100 * MIB
    [(_, limit, *_)] = CREATED.findall(outcome.log)
    assert limit == "6656", "the limit is shown, not what is taken"


@pytest.mark.parametrize("value", ["true", "false"])
def test_forced_growth(inside: Inside, value: str) -> None:
    growth = value == "false"
    outcome = inside(1, "first_allocation", growth=growth, environment={"TF_FORCE_GPU_ALLOW_GROWTH": value})
    taken = 2 * MIB if value == "true" else 6656 * MIB
    assert outcome.check()["steps"] == [[taken, taken]]
    assert (
        "Overriding orig_value setting because the TF_FORCE_GPU_ALLOW_GROWTH environment variable "
        "is set. Original config value was " in outcome.log
    )


def test_unparsable_forced_growth(inside: Inside) -> None:
    outcome = inside(1, "first_allocation", environment={"TF_FORCE_GPU_ALLOW_GROWTH": "1"})
    assert outcome.check()["steps"] == [[6656 * MIB, 6656 * MIB]]
    assert (
        "The TF_FORCE_GPU_ALLOW_GROWTH environment variable is set but could not be parsed: "
        '"1". Valid values are "true" or "false".' in outcome.log
    )


def test_forced_growth_reaches_logical_devices(inside: Inside) -> None:
    outcome = inside(1, "first_allocation", limits=[2000], environment={"TF_FORCE_GPU_ALLOW_GROWTH": "true"})
    assert outcome.check()["steps"] == [[2 * MIB, 2 * MIB]]
    assert "with 2000 MB memory" in outcome.log


def test_memory_limit_by_environment(inside: Inside) -> None:
    outcome = inside(1, "first_allocation", environment={"TF_PER_DEVICE_MEMORY_LIMIT_MB": "1000"})
    [[used, _]] = outcome.check()["steps"]
    assert 900 * MIB < used <= 1000 * MIB
    assert "within provided limit.  limit=" in outcome.log
    assert "with 6656 MB memory" in outcome.log


def test_growth_with_fraction_is_capped(inside: Inside) -> None:
    options: dict[str, Any] = {"per_process_gpu_memory_fraction": 0.01, "allow_growth": True}
    kind, text = inside(1, "out_of_memory", mib=256, session=True, **options).check()
    assert kind == "ResourceExhaustedError"
    assert "OOM when allocating tensor with shape[256,262144]" in text
    assert inside(1, "out_of_memory", mib=256, session=True, allow_growth=True).check() == 2**26


def test_out_of_memory_after_ten_seconds(inside: Inside) -> None:
    outcome = inside(1, "out_of_memory", mib=2048, limit=1024)
    kind, text = outcome.check()
    assert kind == "ResourceExhaustedError"
    assert "OOM when allocating tensor with shape[2048,262144] and type float on" in text
    assert "device:GPU:0 by allocator GPU_0_bfc" in text
    assert "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.00GiB" in outcome.log
    assert outcome.seconds > 9


def test_growth_and_logical_device_rules(inside: Inside) -> None:
    found = inside(1, "growth_rules").check()
    assert found == {
        "no_limit": ["ValueError", "Setting memory limit is required for GPU virtual devices"],
        "growth_on_logical": [
            "ValueError",
            "Cannot set memory growth on device when virtual devices configured",
        ],
        "limit_later": [
            "RuntimeError",
            "Virtual devices cannot be modified after being initialized",
        ],
        "tuple_later": [
            "RuntimeError",
            "Virtual devices cannot be modified after being initialized",
        ],
        "same_later": None,
    }


def test_modified_after_initialisation(inside: Inside) -> None:
    assert inside(2, "modified_later").check() == {
        "growth": ["RuntimeError", "Physical devices cannot be modified after being initialized"],
        "visible": ["RuntimeError", "Visible devices cannot be modified after being initialized"],
        "listed": 2,
    }


def test_growth_is_lost_silently(inside: Inside) -> None:
    lost = {"getter": True, "used": 6656 * MIB}
    assert inside(1, "growth_lost").check() == lost
    assert inside(2, "growth_lost_by_split").check() == lost


def test_logical_devices_shift_later_gpus(inside: Inside) -> None:
    outcome = inside(2, "logical_split", split=[[100, 200], None])
    assert outcome.check() == ["/device:GPU:0", "/device:GPU:1", "/device:GPU:2"]
    created = [(name, limit, device) for name, limit, device, *_ in CREATED.findall(outcome.log)]
    assert created == [("GPU:0", "100", "0"), ("GPU:1", "200", "0"), ("GPU:2", "6656", "1")]


def test_no_logical_devices(inside: Inside) -> None:
    kind, text = inside(1, "logical_split", split=[[]]).check()
    assert kind == "UnknownError"
    assert "num_gpus_to_use: 0 #virtual_devices: 1" in text


def test_logical_devices_of_both_interfaces_are_joined(inside: Inside) -> None:
    kind, text = inside(1, "split_conflict").check()
    assert kind == "UnknownError"
    assert "num_gpus_to_use: 1 #virtual_devices: 2" in text


def test_visible_devices(inside: Inside) -> None:
    everything_hidden = inside(2, "visible", kept=[]).check()
    assert everything_hidden["logical"] == []
    reversed_order = inside(2, "visible", kept=[1, 0])
    assert reversed_order.check()["visible"] == ["/physical_device:GPU:1", "/physical_device:GPU:0"]
    assert [device for _, _, device, *_ in CREATED.findall(reversed_order.log)] == ["0", "1"]
    second = inside(2, "visible", kept=[1])
    assert second.check()["logical"] == ["/device:GPU:0"]
    assert [device for _, _, device, *_ in CREATED.findall(second.log)] == ["1"]
    kind, text = second.value["beyond"]
    assert kind == "InvalidArgumentError"
    assert "Could not satisfy device specification" in text
    assert "device:GPU:1'. enable_soft_placement=0" in text
    untyped = inside(2, "visible", kept=[0], typed=False).check()
    assert untyped["logical"] == ["NotFoundError", "No CPU devices are available in this process"]


def test_placement(inside: Inside) -> None:
    found = inside(1, "placement").check()
    assert found["soft_beyond"].endswith("device:GPU:0")
    kind, text = found["hard_beyond"]
    assert kind == "InvalidArgumentError"
    assert "Could not satisfy device specification" in text
    kind, text = found["function_beyond"]
    assert kind == "InvalidArgumentError"
    assert "Unable to find any devices for spec /device:GPU:7" in text
    kind, text = found["no_gpu_kernel"]
    assert kind == "InvalidArgumentError"
    assert "Supported device types [CPU]" in text


def test_device_policy(inside: Inside) -> None:
    kind, text = inside(2, "device_policy").check()
    assert kind == "InvalidArgumentError"
    assert text.startswith("Tensors on conflicting devices: cannot compute AddV2 as input #0 was expected to be on")


def test_placement_log(inside: Inside) -> None:
    outcome = inside(2, "placement_log")
    outcome.check()
    place = "/job:localhost/replica:0/task:0/device:GPU:1"
    assert f"Executing op MatMul in device {place}" in outcome.log


@pytest.mark.parametrize(("gpus", "split"), [(2, None), (1, True)])
def test_manual_placement(inside: Inside, gpus: int, split: bool | None) -> None:
    found = inside(gpus, "by_hand").check()
    assert [device[-5:] for device in found["parts"]] == [f"GPU:{n}" for n in range(gpus)]
    assert found["total"][0].endswith("CPU:0")
    assert found["total"][1] == 3.0 * gpus
    assert found["copy"] == [found["parts"][0], 3.0]


def test_graph_placement(inside: Inside) -> None:
    found = inside(1, "graph_placement").check()
    kind, text = found["no_kernel"]
    assert kind == "InvalidArgumentError"
    assert (
        "Could not satisfy explicit device specification '/device:GPU:0' because no supported "
        "kernel for GPU devices is available." in text
    )
    kind, text = found["colocated"]
    assert kind == "InvalidArgumentError"
    assert "Cannot colocate nodes" in text or "no supported kernel for GPU" in text


def test_two_sessions_with_other_mappings(inside: Inside) -> None:
    lists = [{"visible_device_list": vdl} for vdl in ("0", "0,1", "0", "1", "1,0")]
    first, second, third, *failures = inside(2, "sessions", configurations=gpu(*lists), run=True).check()
    assert [len(devices) for devices in (first, second, third)] == [1, 2, 1]
    for kind, text in failures:
        assert kind == "AlreadyExistsError"
        assert (
            "TensorFlow device (GPU:0) is being mapped to multiple devices (1 now, and 0 "
            "previously), which is not supported. This may be the result of providing different "
            "GPU configurations (ConfigProto.gpu_options, for example different "
            "visible_device_list) when creating multiple Sessions in the same process." in text
        )


def test_second_session_keeps_the_first_options(inside: Inside) -> None:
    fractions = [{"per_process_gpu_memory_fraction": fraction} for fraction in (0.1, 0.5)]
    first, second = inside(1, "sessions", configurations=gpu(*fractions)).check()
    assert first == second
    assert first["GPU:0"] >> 20 == 819


def test_early_listing_fixes_the_allocators(inside: Inside) -> None:
    assert inside(1, "early_listing", what="is_gpu_available").check() == 6656 * MIB
    assert inside(1, "early_listing", what="list_local_devices").check() == [6656 * MIB]


def test_mask_is_read_at_the_first_query(inside: Inside) -> None:
    assert inside(2, "visible_late").check() == [["Simulated GPU"], 1]


@pytest.mark.parametrize("mask", ["", "-1", "9", "word"])
def test_everything_masked(inside: Inside, mask: str) -> None:
    outcome = inside(2, "listing", environment={"CUDA_VISIBLE_DEVICES": mask})
    assert outcome.check() == []
    assert (
        "failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: CUDA_ERROR_NO_DEVICE: "
        "no CUDA-capable device is detected" in outcome.log
    )


def test_listing_and_created_devices(inside: Inside) -> None:
    outcome = inside("1x24GiB:H100,1:T4", "listing")
    assert outcome.check() == [
        [
            "/physical_device:GPU:0",
            {"compute_capability": [9, 0], "device_name": "Simulated NVIDIA H100 80GB HBM3"},
        ],
        [
            "/physical_device:GPU:1",
            {"compute_capability": [7, 5], "device_name": "Simulated Tesla T4"},
        ],
    ]
    created = CREATED.findall(inside("1x8GiB:H100,1x4GiB:T4", "logical").log)
    assert [entry[3:] for entry in created] == [
        ("Simulated NVIDIA H100 80GB HBM3", "0000:01:00.0", "9.0"),
        ("Simulated Tesla T4", "0000:02:00.0", "7.5"),
    ]


def test_few_multiprocessors(inside: Inside) -> None:
    from dataclasses import replace

    spec = cards(2)
    small = replace(spec, gpus=(spec.gpus[0], replace(spec.gpus[1], multiprocessors=4)))
    outcome = inside(small, "logical")
    assert outcome.check() == ["/device:GPU:0"]
    assert "with core count: 4. The minimum required count is 8." in outcome.log
    assert inside(cards(1, multiprocessors=4), "logical").check() == ["/device:GPU:0"]
    bad = inside(1, "logical", environment={"TF_MIN_GPU_MULTIPROCESSOR_COUNT": "foo"})
    bad.check()
    assert "Invalid minimum GPU multiprocessor count: [foo]." in bad.log


def test_async_allocator(inside: Inside) -> None:
    environment = {"TF_GPU_ALLOCATOR": "cuda_malloc_async"}
    outcome = inside(1, "first_allocation", mib=100, environment=environment)
    outcome.check()
    assert "Using CUDA malloc Async allocator for GPU: 0" in outcome.log
    aborted = inside(cards(1, memory_pools=False), "first_allocation", environment=environment)
    assert aborted.code == -6
    assert (
        "TF_GPU_ALLOCATOR=cuda_malloc_async isn't currently supported on GPU id 0: Possible "
        "causes: device not supported" in aborted.log
    )


def test_misspelt_allocator_is_ignored(inside: Inside) -> None:
    environment = {"TF_GPU_ALLOCATOR": "cuda_malloc_Async"}
    found = inside(1, "first_allocation", environment=environment).check()
    assert found["steps"] == [[6656 * MIB, 6656 * MIB]]


def test_strategies_choose_collectives(inside: Inside) -> None:
    assert inside(1, "strategies").check() == [2, "CollectiveAllReduce", "ReductionToOneDevice"]
