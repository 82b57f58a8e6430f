"""Health and limits of simulated GPUs, asked through the real pynvml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gpudiag import simulator
from gpudiag.model.facts import NvmlFacts
from gpudiag.simulator.errors import SpecError

GATHER = "from gpudiag.facts import gather_family; print(gather_family({'family': 'nvml'}).decode())"


def gather(tmp_path: Path, *states: str) -> NvmlFacts:
    file = tmp_path / "machine.toml"
    file.write_text("".join(f"[[gpu]]\nstate = {{{state}}}\n" for state in states))
    with simulator.Machine(str(file)) as machine:
        command = [sys.executable, "-W", "error", "-c", GATHER]
        ended = subprocess.run(command, env=machine.environment(), capture_output=True, timeout=60, check=True)
    return msgspec.json.decode(ended.stdout, type=NvmlFacts)


def test_an_ordinary_card_is_healthy(tmp_path: Path) -> None:
    facts = gather(tmp_path, "", "")
    state = facts.devices[0].state
    assert (facts.peers, facts.confidential, facts.confidential_ready) == ({"0 1": "ok"}, False, None)
    assert (state.persistence, state.ecc, state.virtualization, state.licensed) == (True, True, "none", None)
    assert (state.uncorrected_errors, state.retired_pages, state.remap_pending) == (0, 0, False)
    assert (state.pcie_generation, state.pcie_width, state.pcie_width_max) == (4, 16, 16)
    assert (state.slowed_by, state.is_working, state.power_limit_watts) == ((), True, 400)
    assert (state.fabric, state.nvlinks) == ("not_supported", None)


def test_what_a_machine_file_states(tmp_path: Path) -> None:
    facts = gather(
        tmp_path,
        "confidential = 1, confidential_ready = 0, virtualization = 2, licence = 0, peer = 1, throttle = 0x85",
        "ecc_uncorrected = 2, retired_pages = 3, retirement_pending = 1, remapped_rows = 4, remap_failed = 1, "
        "fabric = 3, fabric_status = 999, nvlinks = 4, nvlinks_active = 3, pcie_width = 1, performance_state = 8",
    )
    assert (facts.confidential, facts.confidential_ready) == (True, False)
    assert facts.peers == {"0 1": "chipset not supported"}
    first, second = (device.state for device in facts.devices)
    assert (first.virtualization, first.licensed) == ("vgpu", False)
    assert first.slowed_by == ("idle", "power_cap", "power_brake")
    assert (second.uncorrected_errors, second.retired_pages, second.retirement_pending) == (2, 3, True)
    assert (second.remapped_rows, second.remap_pending, second.remap_failed) == (4, False, True)
    assert (second.fabric, second.fabric_error) == ("completed", 999)
    assert second.nvlinks == (True, True, True, False)
    assert (second.pcie_width, second.is_working) == (1, False)


def test_what_a_card_cannot_answer_is_not_known(tmp_path: Path) -> None:
    keys = [key for key, state in simulator.STATES.items() if state.low == -1]
    facts = gather(tmp_path, ", ".join(f"{key} = -1" for key in keys))
    assert facts.error is None
    assert facts.confidential is None
    state = msgspec.to_builtins(facts.devices[0].state)
    assert {key for key, value in state.items() if value is not None} == {"display"}, "no simulated card has one"


def test_a_state_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="Did you mean 'pcie_width"):
        gather(tmp_path, "pcie_widht = 1")
    with pytest.raises(SpecError, match=r"state\.ecc = 2 is not possible\. Write -1 to 1"):
        gather(tmp_path, "ecc = 2")


def test_a_driver_that_answers_slowly_costs_health_and_not_the_gpus(tmp_path: Path) -> None:
    """Asking about health ends after some seconds: the deadline of the family is 15 s."""
    file = tmp_path / "machine.toml"
    file.write_text('faults = ["slow_call=nvmlDeviceGetEccMode:3"]\n' + "[[gpu]]\n" * 4)
    with simulator.Machine(str(file)) as machine:
        command = [sys.executable, "-c", GATHER]
        ended = subprocess.run(command, env=machine.environment(), capture_output=True, timeout=60, check=True)
    facts = msgspec.json.decode(ended.stdout, type=NvmlFacts)
    assert [device.memory_total_bytes for device in facts.devices] == [16 << 30] * 4
    assert [device.state.persistence for device in facts.devices] == [True, True, None, None]
