"""What ``sinfo`` prints, read: states, GPUs, limits, and reasons with anything in them."""

from __future__ import annotations

import asyncio
import math

import pytest

from gpudiag.fleet import slurm_nodes
from gpudiag.fleet.engines.slurm import outputs_by_node
from gpudiag.fleet.slurm_nodes import SlurmNode, environment, listed_nodes


def node(monkeypatch: pytest.MonkeyPatch, *records: tuple[str, ...], reserved: bool = False) -> SlurmNode:
    """Return the node that ``sinfo`` lists by these records."""
    printed = "".join("\x1e" + "\x1f".join(record) + "\n" for record in records)

    async def answer(*argv: str) -> str:
        assert argv[0] == "sinfo"
        return printed

    monkeypatch.setattr(slurm_nodes, "answer", answer)
    (found,) = asyncio.run(listed_nodes(reserved=reserved)).values()
    return found


def record(  # in the order of sinfo's format
    state: str = "idle",
    reason: str = "none",
    *,
    gres: str = "gpu:2",
    partition: str = "gpu*",
    available: str = "up",
    limit: str = "infinite",
) -> tuple[str, ...]:
    return ("n1", partition, available, state, gres, "3/5/0/8", limit, "ann" if reason != "none" else "Unknown", reason)


@pytest.mark.parametrize("state", ["idle", "mixed", "planned", "idle-", "completing", "mixed-", "idle+"])
def test_a_node_that_can_be_given_has_no_refusal(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert node(monkeypatch, record(state)).refusal == ""


@pytest.mark.parametrize(
    ("state", "reason", "refusal"),
    [
        ("drained", "a | b\n\x1b[31mc", "drained: a | b c (set by ann)"),
        ("draining", "none", "draining"),
        ("down*", "Not responding", "down, does not respond: Not responding (set by ann)"),
        ("allocated", "none", "allocated"),
        ("idle~", "none", "idle, is powered down"),
        ("idle*", "none", "idle, does not respond"),
        ("mixed@", "update", "mixed, waits for a reboot: update (set by ann)"),
        ("reserved", "none", "reserved"),
        ("inval", "gres/gpu count too low", "inval: gres/gpu count too low (set by ann)"),
    ],
)
def test_any_other_state_is_a_refusal_in_words(
    state: str, reason: str, refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert node(monkeypatch, record(state, reason)).refusal == refusal


@pytest.mark.parametrize("state", ["reserved", "maint", "idle$"])
def test_a_job_in_a_reservation_may_ask_for_reserved_nodes(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert node(monkeypatch, record(state)).refusal
    assert node(monkeypatch, record(state), reserved=True).refusal == ""


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [("gpu:4", 4), ("gpu:a100:4(S:0-1)", 4), ("gpu:a100:2(S:0,2),gpu:v100:1", 3), ("nic:2,gpu:1", 1), ("(null)", 0)],
)
def test_gpus_of_all_types_are_counted(gres: str, gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert node(monkeypatch, record(gres=gres)).gpus == gpus


@pytest.mark.parametrize(
    ("limit", "minutes"),
    [("infinite", math.inf), ("1-00:30:00", 1470), ("2:00:00", 120), ("30:00", 30), ("-", math.inf)],
)
def test_the_limit_of_a_partition_is_in_minutes(limit: str, minutes: float, monkeypatch: pytest.MonkeyPatch) -> None:
    assert node(monkeypatch, record(limit=limit)).most_minutes == minutes


def test_a_node_is_asked_for_in_the_default_partition_or_in_one_that_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    down, other, default = record(partition="a", available="down"), record(partition="b"), record(partition="c*")
    assert node(monkeypatch, down, other).partition == "b"
    assert node(monkeypatch, down, other, default).partition == "c"
    assert node(monkeypatch, down).refusal == "partition a is down"


def test_variables_of_a_job_around_the_collector_do_not_become_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_NODELIST", "SRUN_CPUS_PER_TASK", "SLURM_CONF", "SALLOC_ACCOUNT"):
        monkeypatch.setenv(name, "x")
    kept = {name for name in environment() if name.startswith(("SLURM", "SRUN", "SALLOC"))}
    assert kept == {"SLURM_CONF", "SALLOC_ACCOUNT"}


def test_outputs_of_a_wide_step_are_told_apart() -> None:
    mixed = b" 0: n1\n11: n9\n 0: YWJj\n11: eHh4\n 0: ZGVm\n11: eHg\n 2: n3\n"
    assert outputs_by_node(mixed) == {"n1": b"abcdef", "n9": b"xxx", "n3": b""}
