"""CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, asked of the driver alone."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from gpudiag.simulator import Machine, MachineSpec

from .on_machine import cards

LIST = """
import ctypes, json, os, sys
def devices(mask, order):
    for name, value in (("CUDA_VISIBLE_DEVICES", mask), ("CUDA_DEVICE_ORDER", order)):
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    cuda = ctypes.CDLL("libcuda.so.1")
    code = cuda.cuInit(0)
    found, count = [], ctypes.c_int()
    if code == 0:
        cuda.cuDeviceGetCount(ctypes.byref(count))
    for ordinal in range(count.value):
        uuid, text = (ctypes.c_ubyte * 16)(), ctypes.create_string_buffer(32)
        cuda.cuDeviceGetUuid_v2(uuid, ordinal)
        cuda.cuDeviceGetPCIBusId(text, 32, ordinal)
        found.append([bytes(uuid).hex(), text.value.decode()])
    return [code, found]
answers = []
for mask, order in json.loads(sys.argv[1]):
    reader, writer = os.pipe()
    if not os.fork():
        os.write(writer, json.dumps(devices(mask, order)).encode())
        os._exit(0)
    os.close(writer)
    answers.append(json.loads(os.fdopen(reader).read()))
print(json.dumps(answers))
"""


def ask(spec: MachineSpec, *questions: tuple[str | None, str | None]) -> list[list[object]]:
    """For each (mask, order): cuInit's code and the visible devices, as indices in PCI order."""
    with Machine(spec) as machine:
        done = subprocess.run(
            [sys.executable, "-c", LIST, json.dumps(questions)],
            env=machine.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    units = {}
    for number, gpu in enumerate(spec.gpus):
        units[gpu.uuid.split("-", 1)[1].replace("-", "")] = str(number)
        for instance, uuid in enumerate(gpu.mig_uuids):
            units[uuid.split("-", 1)[1].replace("-", "")] = f"{number}/{instance}"
    return [[code, [units[uuid] for uuid, _ in devices]] for code, devices in json.loads(done.stdout)]


THREE = cards(3)
FORMS: dict[str | None, list[str]] = {
    None: ["0", "1", "2"],
    "": [],
    "-1": [],
    "0": ["0"],
    "2,0": ["2", "0"],
    "1,7,0": ["1"],
    "0,-1,1": ["0"],
    "0,0": [],
    "2,1,2": [],
    " 1, 0": ["1", "0"],
    "0,,1": ["0"],
    "+1": ["1"],
    "01": ["1"],
    "1a": ["1"],
    "word": [],
    "0,word,1": ["0"],
    "3": [],
    "NoDevFiles": [],
    THREE.gpus[1].uuid: ["1"],
    f"{THREE.gpus[2].uuid},{THREE.gpus[0].uuid}": ["2", "0"],
    THREE.gpus[1].uuid[:9]: ["1"],
    THREE.gpus[1].uuid.upper().replace("GPU-", "GPU-"): ["1"],
    "GPU-": [],
    "GPU-ffffffff-0000": [],
    f"{THREE.gpus[1].uuid},2": ["1", "2"],
}


def test_forms_of_the_mask() -> None:
    answers = ask(THREE, *((mask, None) for mask in FORMS))
    expected = [[0 if devices else 100, devices] for devices in FORMS.values()]
    assert dict(zip(FORMS, answers, strict=True)) == dict(zip(FORMS, expected, strict=True))


def test_device_order() -> None:
    gpus = [replace(gpu, speed=speed) for gpu, speed in zip(THREE.gpus, (10, 30, 20), strict=True)]
    spec = replace(THREE, gpus=tuple(gpus))
    answers = ask(
        spec,
        (None, None),
        (None, "FASTEST_FIRST"),
        (None, "PCI_BUS_ID"),
        ("0", None),
        ("0", "PCI_BUS_ID"),
        ("2,0", "FASTEST_FIRST"),
    )
    assert [devices for _, devices in answers] == [
        ["1", "2", "0"],
        ["1", "2", "0"],
        ["0", "1", "2"],
        ["1"],
        ["0"],
        ["0", "1"],
    ]


def test_equal_devices_stand_in_pci_order() -> None:
    gpus = [replace(gpu, pci_bus_id=place) for gpu, place in zip(
        cards(2).gpus, ("0001:41:00.0", "0000:c1:00.0"), strict=True
    )]  # fmt: skip
    spec = replace(cards(2), gpus=tuple(sorted(gpus, key=lambda gpu: gpu.pci_key)))
    with Machine(spec) as machine:
        done = subprocess.run(
            [sys.executable, "-c", LIST, json.dumps([[None, None]])],
            env=machine.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    [[_, devices]] = json.loads(done.stdout)
    assert [place for _, place in devices] == ["0000:c1:00.0", "0001:41:00.0"]


@pytest.fixture
def with_mig() -> MachineSpec:
    spec = cards(2)
    return replace(spec, gpus=(replace(spec.gpus[0], mig=2), spec.gpus[1]))


def test_mig_shows_one_instance(with_mig: MachineSpec) -> None:
    first, second = with_mig.gpus[0].mig_uuids
    answers = ask(
        with_mig,
        (None, None),
        (first, None),
        (second, None),
        (f"{second},{first}", None),
        (f"{second},1", None),
        ("0", None),
        ("1", None),
        ("1,0", None),
        (second[:12], None),
        (with_mig.gpus[0].uuid, None),
        (f"{first},{first}", None),
        (f"0,{first}", None),
    )
    assert [devices for _, devices in answers] == [
        ["0/0"],
        ["0/0"],
        ["0/1"],
        ["0/1"],
        ["0/1"],
        ["0/0"],
        ["1"],
        ["1"],
        ["0/1"],
        ["0/0"],
        [],
        [],
    ]


def test_whole_gpus_are_shown_without_the_instances_between_them() -> None:
    spec = cards(3)
    spec = replace(spec, gpus=(spec.gpus[0], replace(spec.gpus[1], mig=2), spec.gpus[2]))
    answers = ask(spec, (None, None), ("2,1,0", None), ("1,2", None), (f"0,{spec.gpus[1].mig_uuids[1]},2", None))
    assert [devices for _, devices in answers] == [["0", "2"], ["2", "0"], ["1/0"], ["0", "2"]]
