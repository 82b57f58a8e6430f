"""Specifications and faults as text: what they mean, and what is said about wrong ones."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from gpudiag import docs
from gpudiag.simulator import (
    CATALOGUE,
    PRESETS,
    FaultError,
    Machine,
    SpecError,
    catalogue_text,
    fake_root,
    fault_environment,
    parse_fault,
    parse_spec,
)
from gpudiag.simulator.spec import _GPU_KEYS, _MACHINE_KEYS

from .on_machine import GIB, MIB, MODULES


def test_counts_sizes_and_presets() -> None:
    assert [gpu.memory for gpu in parse_spec("2").gpus] == [16 * GIB] * 2
    assert [gpu.memory for gpu in parse_spec("4x512MiB").gpus] == [512 * MIB] * 4
    mixed = parse_spec("2x80GiB:H100, 1x16g:t4")
    assert [(gpu.name, gpu.memory, gpu.compute_capability) for gpu in mixed.gpus] == [
        ("Simulated NVIDIA H100 80GB HBM3", 80 * GIB, (9, 0)),
        ("Simulated NVIDIA H100 80GB HBM3", 80 * GIB, (9, 0)),
        ("Simulated Tesla T4", 16 * GIB, (7, 5)),
    ]
    assert len({gpu.uuid for gpu in mixed.gpus}) == len({gpu.pci_bus_id for gpu in mixed.gpus}) == 3
    assert "2x Simulated NVIDIA H100 80GB HBM3, 80.0 GiB; 1x Simulated Tesla T4" in mixed.summary()
    assert parse_spec("2") == parse_spec("2"), "the same text gives the same UUIDs"


def test_every_preset_is_a_simulated_card() -> None:
    assert {"T4", "V100", "A10", "L4", "A100-40", "A100-80", "H100", "H200", "B200"} < set(PRESETS)
    for name, preset in PRESETS.items():
        [gpu] = parse_spec(f"1:{name}").gpus
        assert gpu.name == f"Simulated {preset.name}"
        assert (gpu.memory, gpu.multiprocessors) == (preset.memory, preset.multiprocessors)


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("0", 0, "1 to 64 GPUs"),
        ("65", 0, "1 to 64 GPUs"),
        ("-1x4GiB", 0, "1 to 64 GPUs"),
        ("40,25", 3, "65 GPUs are too many"),
        ("2x-4GiB", 2, "-4GiB is not a possible memory size"),
        ("2x0", 2, "0 is not a possible memory size"),
        ("2x4", 2, "4 is not a possible memory size"),
        ("2x5TiB", 2, "1MiB to 4TiB"),
        ("2xmuch", 2, "'much' is not a size"),
        ("1:T5", 2, "Did you mean 'T4'?"),
        ("1:nix", 2, "Known: A10, A100-40"),
        ("2,1:h1000", 4, "Did you mean 'H100'"),
        ("two", 0, "a number of GPUs is missing"),
        ("2,", 2, "a number of GPUs is missing"),
        ("", 0, "a number of GPUs is missing"),
        ("2 GPUs", 2, "'GPUs' is not understood"),
        ("2x4GiB:T4 x", 10, "'x' is not understood"),
    ],
)
def test_wrong_specifications(text: str, column: int, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(text)
    message = str(caught.value)
    assert said in message
    lines = message.splitlines()
    place = lines.index(f"  {text}")
    assert lines[place + 1] == "  " + " " * column + "^"


TOML = """
driver_version = "535.104.05"
cuda_version = "12.2"
cudnn_version = "9.1.0"
faults = ["cuinit=802", "context_creation=46@1"]

[[gpu]]
preset = "A100-40"
pci_bus_id = "0000:C1:00.0"
uuid = "GPU-11111111-2222-3333-4444-555555555555"
mig = 2
compute_mode = "exclusive_process"
context_overhead = 0
taken = "1GiB"
taken_by = 77
numa_node = 1

[[gpu]]
count = 2
name = "Lab card"
memory = "2GiB"
compute_capability = "8.6"
multiprocessors = 20
memory_pools = false
"""


def toml(tmp_path: Path, text: str) -> str:
    path = tmp_path / "machine.toml"
    path.write_text(text)
    return str(path)


def test_toml(tmp_path: Path) -> None:
    spec = parse_spec(toml(tmp_path, TOML))
    assert (spec.driver_version, spec.cuda_version) == ("535.104.05", "12.2")
    assert [str(fault) for fault in spec.faults] == ["cuinit=802", "context_creation=46@1"]
    assert [gpu.name for gpu in spec.gpus] == [
        "Simulated Lab card",
        "Simulated Lab card",
        "Simulated NVIDIA A100-SXM4-40GB",
    ], "in PCI order"
    card = spec.gpus[2]
    assert card.pci_bus_id == "0000:c1:00.0"
    assert (card.taken, card.taken_by, card.context_overhead) == (GIB, 77, 0)
    assert len(set(card.mig_uuids)) == 2
    with Machine(spec) as machine:
        text = (machine.directory / "machine.conf").read_text()
    assert "cuda_version 12020\n" in text
    assert "cudnn_version 90100\n" in text
    assert "fault cuDevicePrimaryCtxRetain,code=46,gpu=1\n" in text


def test_the_example_in_the_manual_has_every_key(tmp_path: Path) -> None:
    blocks = re.findall(
        r"^```toml\n(.*?)^```$", (docs.FOLDER / "simulated-gpus.md").read_text(), re.MULTILINE | re.DOTALL
    )
    [example] = [block for block in blocks if "[[gpu]]" in block]
    spec = parse_spec(toml(tmp_path, example))
    assert [gpu.name.removeprefix("Simulated ") for gpu in spec.gpus] == [
        "NVIDIA A100-SXM4-40GB",
        "NVIDIA A100-SXM4-40GB",
        "Lab card",
        "NVIDIA A100-SXM4-80GB",
    ]
    sections = example.split("[[gpu]]")
    keys = [set(re.findall(r"^(\w+) = ", section, re.MULTILINE)) for section in sections]
    assert keys[0] | {"gpu"} == _MACHINE_KEYS
    assert set().union(*keys[1:]) == _GPU_KEYS
    assert [str(fault) for fault in spec.faults] == ["stream_creation=2@1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[gpu]]\nmemroy = '2GiB'", "unknown key 'memroy' in [[gpu]] number 1. Did you mean 'memory'"),
        ("drivers = '1'\n[[gpu]]", "unknown key 'drivers' at the top"),
        ("cuda_version = '12.4'", "there is no [[gpu]] table"),
        ("[[gpu]]\ncount = 0", "count = 0 is not possible. Write 1 to 64"),
        ("[[gpu]]\ncount = 65", "count = 65 is not possible. Write 1 to 64"),
        ("[[gpu]]\nmemory = '-1GiB'", "not a possible memory size"),
        ("[[gpu]]\npreset = 'H101'", "Did you mean 'H100'"),
        ("[[gpu]]\ncompute_mode = 'shared'", "exclusive_process"),
        ("[[gpu]]\ncompute_mode = ['default']", "compute_mode = ['default'] is not known"),
        ("[[gpu]]\nmig = 8", "mig = 8 is not possible. Write 0 to 7"),
        ("[[gpu]]\npreset = 'T4'\nmig = 2", "mig needs compute capability 8.0"),
        ("[[gpu]]\nuuid = 'GPU-1'", "uuid = 'GPU-1' is not understood"),
        ("[[gpu]]\npci_bus_id = '1'", "pci_bus_id = '1' is not understood"),
        ("[[gpu]]\nname = ''", "1 to 100 printable characters"),
        ("[[gpu]]\ntaken = '17GiB'", "taken is more than memory in [[gpu]] number 1"),
        ("cudnn_version = 9\n[[gpu]]", "cudnn_version = 9 is not understood"),
        ("faults = 'cuinit'\n[[gpu]]", "faults must be a list"),
        ("faults = ['cuint']\n[[gpu]]", "Did you mean 'cuinit'"),
        ("[[gpu", "is not TOML"),
        (
            "[[gpu]]\npci_bus_id='0000:01:00.0'\n[[gpu]]\npci_bus_id='0000:01:00.0'",
            "two GPUs have the same pci_bus_id",
        ),
    ],
)
def test_wrong_toml(tmp_path: Path, text: str, said: str) -> None:
    path = toml(tmp_path, text)
    with pytest.raises((SpecError, FaultError)) as caught:
        parse_spec(path)
    assert said in str(caught.value)
    assert path in str(caught.value)


def test_missing_toml() -> None:
    with pytest.raises(SpecError, match=r"nowhere\.toml cannot be read: No such file"):
        parse_spec("nowhere.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cuint", "no fault is called 'cuint'. Did you mean 'cuinit'"),
        ("cuinit=none", "not an error code: a whole number from 1 on. Write cuinit[=CODE]"),
        ("cuinit=0", "not an error code"),
        ("cuinit@0", "concerns the whole machine"),
        ("nvml_missing=1", "takes no value"),
        ("library_missing", "needs a value"),
        ("library_missing=libfoo.so", "not one of the libraries libcuda.so.1"),
        ("allocation_above=big", "'big' is not a size"),
        ("cudnn_version=9", "not a version of 3 numbers"),
        ("slow_call=cuInit", "not FUNCTION:SECONDS"),
        ("call_fails=ls:1", "not FUNCTION:CODE"),
        ("context_creation@first", "'first' after @ is not the number of a GPU"),
    ],
)
def test_wrong_faults(text: str, said: str) -> None:
    with pytest.raises(FaultError) as caught:
        parse_fault(text)
    assert said in str(caught.value)


def test_catalogue_is_listed_and_each_entry_can_be_written() -> None:
    listed = catalogue_text()
    values = {
        "library_missing": "cudnn",
        "allocation_above": "1GiB",
        "slow_call": "cuInit:0.5",
        "call_fails": "cuMemAlloc_v2:2:3",
    }
    for name, kind in CATALOGUE.items():
        assert kind.usage in listed
        text = f"{name}={values[name]}" if name in values else name
        fault = parse_fault(text)
        assert fault.rules or fault.settings or fault.removed
        if kind.per_gpu:
            assert all(rule.endswith(",gpu=3") for rule in parse_fault(f"{text}@3").rules)


def test_fault_on_a_gpu_that_is_not_there() -> None:
    with pytest.raises(FaultError, match=r"there is no such GPU\. The GPUs are 0 to 1"):
        Machine("2", ["context_creation@2"])


def test_library_cannot_be_removed_for_one_process() -> None:
    with pytest.raises(FaultError, match="needs a separate machine"):
        fault_environment(["nvml_missing"])


def test_more_memory_than_the_process_may_map() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (64 * GIB, before[1]))
    try:
        with pytest.raises(SpecError, match=r"RLIMIT_AS allows \(64\.0 GiB"):
            Machine("4x16GiB")
        Machine("2x16GiB")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_importing_costs_nothing() -> None:
    code = "import sys, gpudiag.simulator; print(*[n for n in sys.modules if n[:7] == 'gpudiag'])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": MODULES},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == ["gpudiag", "gpudiag.simulator"]


def test_permissions_of_a_file(tmp_path: Path) -> None:
    text = '[files]\n"/dev/nvidia0" = { mode = "660" }\n"/etc/new" = { mode = "400" }\n[[gpu]]\n'
    (tmp_path / "machine.toml").write_text(text)
    fake_root.write(tmp_path / "root", parse_spec(str(tmp_path / "machine.toml")))
    found = {name: (tmp_path / "root" / name).stat().st_mode & 0o777 for name in ("dev/nvidia0", "etc/new")}
    assert found == {"dev/nvidia0": 0o660, "etc/new": 0o400}


@pytest.mark.parametrize("value", ['{ mode = "9" }', "{ mode = 660 }", "{ owner = 'root' }", '{ mode = "660", x = 1 }'])
def test_permissions_that_are_not_understood(tmp_path: Path, value: str) -> None:
    (tmp_path / "machine.toml").write_text(f'[files]\n"/dev/nvidia0" = {value}\n[[gpu]]\n')
    with pytest.raises(SpecError, match="permissions"):
        parse_spec(str(tmp_path / "machine.toml"))
