"""What counts as a change of the machine, over recorded and made-up facts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from examples.facts import example, example_gpu, example_with_gpus
from gpudiag.comparison import facts
from gpudiag.comparison.likeness import is_same
from gpudiag.model.change import Change
from gpudiag.model.facts import (
    CallFacts,
    ContainerFacts,
    Distribution,
    DriverFacts,
    EnvironmentFacts,
    Facts,
    GpuProcess,
    Library,
    LibraryFacts,
    NvmlFacts,
    TensorflowFacts,
    TimedCall,
    Unknown,
)

HEALTHY = example_with_gpus(2)


def plain(facts: Facts) -> Any:
    return msgspec.json.decode(msgspec.json.encode(facts))


def changes(old: Facts, new: Facts, **plain: Any) -> list[tuple[str, str | None, str | None]]:
    return [(change.name, change.old, change.new) for change in facts.changes(old, new, **plain)]


def variables(**values: str) -> Facts:
    return example_with_gpus(2, environment=EnvironmentFacts(values))


def packages(**versions: str) -> Facts:
    known = example_with_gpus(2).tensorflow
    assert isinstance(known, TensorflowFacts)
    companions = tuple(Distribution(name, version, "/site") for name, version in versions.items())
    return example_with_gpus(2, tensorflow=replace(known, companions=companions))


def library(**fields: Any) -> Facts:
    ordinary = Library(
        "libcudnn.so.9", "/a/libcudnn.so.9", "RUNPATH", "/a/libcudnn.so.9", None, "9.3.0", None, None, {}, ()
    )
    return example_with_gpus(2, libraries=LibraryFacts(None, (), (), (replace(ordinary, **fields),), (), ()))


def gpus(**fields: Any) -> Facts:
    return example_with_gpus(
        2, nvml=NvmlFacts(None, "535.104.05", "12.2", (example_gpu(0), replace(example_gpu(1), **fields)))
    )


def driver(version: str, **fields: Any) -> Facts:
    return example_with_gpus(2, driver=DriverFacts(version, f"/lib/libcuda.so.{version}", None, "12.2", **fields))


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (driver("535.104.05"), driver("550.54"), ("driver", "535.104.05", "550.54")),
        (driver("550.54", kernel_log=()), driver("550.54"), ("kernel log", "empty", None)),
        (variables(), variables(LD_LIBRARY_PATH="/x"), ("LD_LIBRARY_PATH", None, "/x")),
        (variables(TF_X="1"), variables(), ("TF_X", "1", None)),
        (variables(TF_X="1"), variables(TF_X=""), ("TF_X", "1", "")),
        (packages(numpy="1.26.4"), packages(numpy="2.1.0"), ("numpy", "1.26.4", "2.1.0")),
        (packages(), packages(numpy="2.1.0"), ("numpy", None, "2.1.0")),
        (library(), library(version="9.5.1"), ("libcudnn.so.9", "9.3.0", "9.5.1")),
        (library(), library(version=None), ("libcudnn.so.9 version", "9.3.0", None)),
        (library(digest="0x1"), library(digest="0x2"), ("libcudnn.so.9 digest", "0x1", "0x2")),
        (library(), library(lacks={"libz.so": "/a"}), ("libcudnn.so.9 lacks libz.so", None, "/a")),
        (gpus(), gpus(compute_mode="prohibited"), ("GPU 0000:02:00.0 compute mode", "default", "prohibited")),
        (gpus(), gpus(memory_total_bytes=20 << 30), ("GPU 0000:02:00.0 memory total", "40960 MiB", "20480 MiB")),
        (
            HEALTHY,
            example_with_gpus(2, container=ContainerFacts("docker", (), False, None)),
            ("container", None, "docker"),
        ),
        (HEALTHY, replace(HEALTHY, nvml=Unknown("no answer")), ("nvml", "known", "not known: no answer")),
    ],
)
def test_a_change_is_named(old: Facts, new: Facts, found: tuple[str, str | None, str | None]) -> None:
    assert found in changes(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (HEALTHY, HEALTHY),
        (gpus(), gpus(memory_used_bytes=9 << 30, processes=(GpuProcess(7, 1 << 30),))),
        (variables(SLURM_JOB_ID="1"), variables(SLURM_JOB_ID="2")),
        (variables(GPUDIAG_FORMAT="json"), variables()),
        (
            variables(LD_LIBRARY_PATH="/tmp/gpudiag-sim-a1/lib:/x"),
            variables(LD_LIBRARY_PATH="/tmp/gpudiag-sim-b2/lib:/x"),
        ),
        (variables(CUDA_CACHE_PATH="/tmp/tmpab12cd_3"), variables(CUDA_CACHE_PATH="/tmp/tmpxxxxxxxx")),
        (packages(numpy="2", keras="3"), packages(keras="3", numpy="2")),
        (example_with_gpus(2, container=ContainerFacts(None, (), False, "17")), HEALTHY),
    ],
)
def test_noise_is_not_a_change(old: Facts, new: Facts) -> None:
    assert changes(old, new) == []


def test_a_card_that_was_moved_is_the_same_card() -> None:
    moved = gpus(pci_bus_id="0000:81:00.0")
    assert changes(gpus(), moved) == [("GPU 0000:02:00.0 pci bus id", "0000:02:00.0", "0000:81:00.0")]


def test_a_card_that_was_replaced_is_another_card_in_the_same_slot() -> None:
    names = [name for name, *_ in changes(gpus(), gpus(uuid="GPU-new", name="NVIDIA H100"))]
    assert names == ["GPU 0000:02:00.0 name", "GPU 0000:02:00.0 uuid"]


def test_a_first_gpu_that_is_gone_does_not_make_the_second_look_changed() -> None:
    second_gpu = example_with_gpus(2, nvml=NvmlFacts(None, "535.104.05", "12.2", (example_gpu(1),)))
    found = changes(HEALTHY, second_gpu)
    assert found == [("GPU 0000:01:00.0", "NVIDIA A100-SXM4-40GB", None)]


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("~/venv/bin/python", "/home/me/venv/bin/python", True),
        ("/opt/<masked-1>/lib:/usr/lib", "/opt/cuda/lib:/usr/lib", True),
        ("/opt/<masked-1>/lib", "/opt/<masked-7>/lib", True),
        ("/opt/<masked-1>/lib:/a", "/opt/cuda/lib:/b", False),
        ("GPU-uuid-a", "GPU-5b7c1a04-0000-4000-8000-000000000000", True),
        ("GPU-1", "GPU-5b7c1a04-0000-4000-8000-000000000000", True),
        ("GPU-5b7c1a04", "GPU-5b7c1a05", False),
        ("<masked-1><masked-2>", "", True),
        ("9.3.0", "9.5.1", False),
    ],
)
def test_a_masked_value_is_not_a_change(old: str, new: str, same: bool) -> None:
    assert is_same(old, new) is is_same(new, old) is same


def test_a_field_that_an_older_report_has_not_says_nothing() -> None:
    old = plain(HEALTHY)
    del old["tensorflow"]["ranges"]
    known = HEALTHY.tensorflow
    assert isinstance(known, TensorflowFacts)
    newer = replace(HEALTHY, tensorflow=replace(known, ranges={"nvidia-cudnn-cu12": "<10"}))
    assert changes(HEALTHY, newer) == [("ranges nvidia-cudnn-cu12", None, "<10")]
    assert changes(HEALTHY, newer, old_plain=old) == []


def test_every_fact_that_lasts_is_looked_at() -> None:
    """Alter each text and number of the facts, one at a time: it is named, or the table of noise knows it."""
    healthy = plain(example_with_gpus(1))
    silent = [
        path for path, altered in _altered(healthy, "") if not list(facts.changes(_facts(healthy), _facts(altered())))
    ]
    assert set(silent) == {
        "libraries.opener",  # follows from the file of TensorFlow
        "nvml.devices.0.memory_used_bytes",
    }


def _facts(plain: Any) -> Facts:
    return msgspec.convert(plain, Facts)


def _altered(plain: Any, path: str, root: Any = None) -> Any:
    """Yield the path of each leaf, and a function that returns the whole with that leaf altered."""
    root = plain if root is None else root
    items = plain.items() if isinstance(plain, dict) else enumerate(plain) if isinstance(plain, list) else ()
    for key, value in items:
        here = f"{path}.{key}".lstrip(".")
        if isinstance(value, dict | list):
            yield from _altered(value, here, root)
        elif key != "family" and value is not None:
            yield here, lambda here=here, value=value: _with(root, here, _other(value))


def _other(value: Any) -> Any:
    return not value if isinstance(value, bool) else value * 2 + (1 << 30) if isinstance(value, int) else f"{value}x"


def _with(root: Any, path: str, value: Any) -> Any:
    copy = msgspec.json.decode(msgspec.json.encode(root))
    *parts, last = path.split(".") if "." in path else [path]
    inner = copy
    for part in parts:
        inner = inner[int(part)] if isinstance(inner, list) else inner[part]
    inner[int(last) if isinstance(inner, list) else last] = value
    return copy


def test_the_change_says_where_it_is() -> None:
    (found,) = facts.changes(library(), library(digest="0x2"))
    assert isinstance(found, Change)
    assert found.path == "libraries.libraries[libcudnn.so.9].digest"


def test_nothing_is_known_of_a_family_on_either_side() -> None:
    unknown = replace(example(), driver=Unknown("a"))
    assert changes(unknown, unknown) == []


@pytest.mark.parametrize(("old", "new", "same"), [(0.02, 0.04, True), (0.1, 25.0, False), (6.0, 9.0, True)])
def test_a_call_that_took_a_little_longer_is_no_change(old: float, new: float, same: bool) -> None:
    before, after = (example_with_gpus(calls=CallFacts((TimedCall("cuInit", seconds),))) for seconds in (old, new))
    assert (not changes(before, after)) is same
