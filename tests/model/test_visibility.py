"""Which GPUs CUDA_VISIBLE_DEVICES leaves in scope."""

from __future__ import annotations

import msgspec
import pytest

from examples.facts import example, example_gpu, example_with_gpus
from gpudiag.model.facts import CudaFacts, EnvironmentFacts, Facts, NvmlDevice, NvmlFacts, Unknown
from gpudiag.model.visibility import apply_mask, choices, gpus_in_scope, index_is_ambiguous, least_visible

GPUS = tuple(example_gpu(index) for index in range(3))
UUIDS = [gpu.uuid for gpu in GPUS]


def visible(value: str | None, gpus: tuple[NvmlDevice, ...] = GPUS) -> list[int]:
    return [device.index for device in apply_mask(value, gpus).devices]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("3", []),
        ("NoDevFiles", []),
        ("2,0", [2, 0]),
        ("1,7,0", [1]),
        ("0,-1,1", [0]),
        ("0,0", []),
        ("0,1,0", []),
        (" 1, 0", [1, 0]),
        ("0,,1", [0]),
        ("0,", [0]),
        ("+1", [1]),
        ("01", [1]),
        ("1a", [1]),
        ("99999999999999999999", []),
        (UUIDS[2], [2]),
        (f"{UUIDS[2]},0", [2, 0]),
        (f"{UUIDS[1]},1", []),
        ("GPU-00000001", [1]),
        ("GPU-0000000", []),
        ("GPU-ffff", []),
    ],
)
def test_forms_of_the_variable(value: str | None, expected: list[int]) -> None:
    assert visible(value) == expected


@pytest.mark.parametrize(
    ("value", "ignored"),
    [("1,7,0", ("7", "0")), ("0,,1", ("1",)), ("0,", ()), ("0,0", ("0", "0")), ("1,0", ()), ("", ()), (None, ())],
)
def test_entries_without_effect(value: str | None, ignored: tuple[str, ...]) -> None:
    assert apply_mask(value, GPUS).ignored == ignored


def test_a_mig_instance_counts_as_its_gpu() -> None:
    split = msgspec.structs.replace(GPUS[1], mig_mode="enabled", mig_uuids=("MIG-aa", "MIG-ab"))
    gpus = (GPUS[0], split)
    assert visible("MIG-ab", gpus) == [1]
    assert apply_mask("MIG-ab", gpus).uuids == ("MIG-ab",), "a child must not be given the whole GPU"
    assert visible("MIG-aa,MIG-aa", gpus) == []
    assert visible("MIG-a", gpus) == []


def test_an_entry_that_names_a_gpu_again_voids_the_mask() -> None:
    assert apply_mask("0,+0", GPUS).twice == "+0"
    assert apply_mask(f"1,{UUIDS[1]}", GPUS).twice == UUIDS[1]
    assert apply_mask("0,7,0", GPUS).twice == "", "the list ends before it"


SPLIT = tuple(
    msgspec.structs.replace(gpu, mig_mode="enabled", mig_uuids=(f"MIG-{gpu.index}0", f"MIG-{gpu.index}1"))
    for gpu in GPUS
)


@pytest.mark.parametrize(
    ("value", "gpus", "uuids", "beside", "least"),
    [
        (None, GPUS[:2], UUIDS[:2], [], 2),
        (None, (SPLIT[0],), ["MIG-00"], [], 1),
        (None, SPLIT[:2], ["MIG-00"], ["MIG-10"], 1),
        (None, (GPUS[0], SPLIT[1], GPUS[2]), [UUIDS[0], UUIDS[2]], ["MIG-10"], 1),
        (None, (SPLIT[0], GPUS[1]), ["MIG-00"], [UUIDS[1]], 1),
        ("MIG-01,MIG-00", (SPLIT[0], GPUS[1]), ["MIG-01"], ["MIG-00"], 1),
        ("MIG-01,1", (SPLIT[0], GPUS[1]), ["MIG-01"], [UUIDS[1]], 1),
        ("1,MIG-01", (SPLIT[0], GPUS[1]), [UUIDS[1]], ["MIG-01"], 1),
        ("2,1,0", (GPUS[0], SPLIT[1], GPUS[2]), [UUIDS[2], UUIDS[0]], ["MIG-10"], 1),
        ("2,0", (GPUS[0], SPLIT[1], GPUS[2]), [UUIDS[2], UUIDS[0]], [], 2),
        (UUIDS[0], (SPLIT[0], GPUS[1]), ["MIG-00"], [], 1),
        ("0,MIG-00", (SPLIT[0], GPUS[1]), [], [], 0),
    ],
)
def test_a_process_has_whole_gpus_or_one_mig_instance(
    value: str | None, gpus: tuple[NvmlDevice, ...], uuids: list[str], beside: list[str], least: int
) -> None:
    mask = apply_mask(value, gpus)
    assert (list(mask.uuids), list(mask.beside)) == (uuids, beside)
    variables = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    nvml = NvmlFacts(None, "535.104.05", "12.2", gpus)
    facts = example_with_gpus(nvml=nvml, environment=EnvironmentFacts(variables))
    assert [gpu.uuid for gpu in gpus_in_scope(facts)] == uuids
    assert least_visible(facts) == least


def test_processes_of_their_own_may_each_have_an_instance() -> None:
    assert list(choices(None, (SPLIT[0], GPUS[1]))) == ["MIG-00", "MIG-01", UUIDS[1]]
    assert list(choices("1,MIG-01", (SPLIT[0], GPUS[1]))) == [UUIDS[1], "MIG-01"]
    assert list(choices("0", (SPLIT[0], GPUS[1]))) == ["MIG-00"]


def test_gpus_in_scope_keep_their_identity_and_follow_the_order_of_the_mask() -> None:
    facts = example_with_gpus(3, environment=EnvironmentFacts({"CUDA_VISIBLE_DEVICES": "2,0"}))
    assert [(gpu.index, gpu.uuid) for gpu in gpus_in_scope(facts)] == [(2, UUIDS[2]), (0, UUIDS[0])]
    assert len(gpus_in_scope(example_with_gpus(3))) == 3


def test_no_gpu_is_in_scope_where_nvml_gave_no_answer() -> None:
    assert gpus_in_scope(example()) == ()
    assert gpus_in_scope(example(nvml=Unknown("no answer within 10 s"))) == ()


@pytest.mark.parametrize(
    ("variables", "ambiguous"),
    [
        ({}, False),
        ({"CUDA_VISIBLE_DEVICES": "0"}, True),
        ({"CUDA_VISIBLE_DEVICES": f"{UUIDS[0]}, 1"}, True),
        ({"CUDA_VISIBLE_DEVICES": UUIDS[0]}, False),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, False),
        ({"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, False),
        ({"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, True),
    ],
)
def test_an_index_among_unequal_gpus_is_ambiguous(variables: dict[str, str], ambiguous: bool) -> None:
    unequal = (GPUS[0], msgspec.structs.replace(GPUS[1], name="NVIDIA T4"))
    environment = EnvironmentFacts(variables)
    facts = example_with_gpus(nvml=NvmlFacts(None, "535.104.05", "12.2", unequal), environment=environment)
    assert index_is_ambiguous(facts) is ambiguous
    assert not index_is_ambiguous(example_with_gpus(2, environment=environment))


def told_by_cuda(mask: str, asked: str, *shown: int) -> Facts:
    """Return facts of unequal GPUs, of which CUDA shows some for the mask that it was asked under."""
    slow = (GPUS[0], msgspec.structs.replace(GPUS[1], name="NVIDIA T4"), GPUS[2])
    return example_with_gpus(
        nvml=NvmlFacts(None, "535.104.05", "12.2", slow),
        environment=EnvironmentFacts({"CUDA_VISIBLE_DEVICES": mask}),
        cuda=CudaFacts(asked, tuple(UUIDS[index] for index in shown)),
    )


@pytest.mark.parametrize(
    ("mask", "asked", "shown", "scope", "ambiguous"),
    [
        ("0", "0", (2,), [2], False),
        ("1,0", "1,0", (0, 2), [0, 2], False),
        ("0", "1", (2,), [0], True),
        ("0,1", "0,1", (2,), [0, 1], True),
        ("0", "0", (), [0], True),
        ("7", "7", (), [], True),
    ],
)
def test_where_indices_are_ambiguous_cuda_tells(
    mask: str, asked: str, shown: tuple[int, ...], scope: list[int], ambiguous: bool
) -> None:
    facts = told_by_cuda(mask, asked, *shown)
    assert [gpu.index for gpu in gpus_in_scope(facts)] == scope
    assert index_is_ambiguous(facts) is ambiguous
