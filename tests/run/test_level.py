"""How much of the catalogue runs, above all on GPUs that other processes use."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace as changed
from pathlib import Path

import pytest
from msgspec.structs import replace

from conftest import Gpudiag
from examples.facts import example_gpu, example_with_gpus
from gpudiag import catalogue, cli
from gpudiag.hardware.locks import GpuLocks
from gpudiag.model import codec
from gpudiag.model.facts import (
    Distribution,
    EnvironmentFacts,
    Facts,
    GpuProcess,
    NvmlDevice,
    NvmlFacts,
    TensorflowFacts,
    Unknown,
)
from gpudiag.model.report import SIMULATED, Judged, Level, Report, Row, Skipped
from gpudiag.model.visibility import IDLE_BYTES, gpus_in_scope, other_use
from gpudiag.probe import CONTEXT_BYTES, Needs
from gpudiag.run import plan, runner, servers
from gpudiag.run.machine import ExaminedMachine
from gpudiag.run.options import Options
from gpudiag.run.rows import row_without_child
from reports import report

QUICK = {entry.name for entry in catalogue.entries() if entry.probe.quick}
EXCLUSIVE = "memory.growth"
ONE_TAKEN = """
[[gpu]]
taken = "2GiB"
taken_by = 4242

[[gpu]]
"""
BY_4242 = "GPU 0 is used by process 4242"

# ---- End to end ----


@pytest.fixture
def machine(gpudiag: Gpudiag) -> Gpudiag:
    """A machine of two simulated GPUs, the first of which another process uses."""
    (gpudiag.folder / "machine.toml").write_text(ONE_TAKEN)
    return gpudiag


def checked(machine: Gpudiag, *arguments: str, simulate: str = "machine.toml", **variables: str) -> Report:
    done = machine("check", "--simulate", simulate, "--format", "json", *arguments, flags=(), **variables)
    assert done.returncode in {0, 5}, done.stderr
    return codec.decode(done.stdout, "standard output")


def outcomes(found: Report, probe: str) -> dict[str, Row]:
    return {found.device_label(row): row for row in found.rows if row.probe == probe}


@pytest.mark.usefixtures("no_child_left")
def test_a_gpu_that_others_use_gets_what_is_safe_beside_them_and_the_report_says_so(machine: Gpudiag) -> None:
    found = checked(machine, "-o", "r.txt", "-o", "r.md")
    assert found.level == Level("quick", BY_4242)
    assert {row.probe for row in found.rows} == QUICK
    assert all(isinstance(row.outcome, Judged) for row in found.rows), "none of them minds the other process"
    assert found.exit_code == 0, "a kernel was verified on every GPU"
    for name in ("r.txt", "r.md"):
        text = " ".join((machine.folder / name).read_text().split())
        assert BY_4242 in text, name
        assert "quick" in text, name


@pytest.mark.usefixtures("no_child_left")
def test_whoever_names_probes_gets_them_but_not_on_a_gpu_that_others_use(machine: Gpudiag) -> None:
    found = checked(machine, EXCLUSIVE, "discovery.logical_devices")
    assert found.level == Level("full")
    rows = outcomes(found, EXCLUSIVE)
    assert rows["GPU 0"].outcome == Skipped(f"{BY_4242}; to run this probe on it anyway, add --disturb")
    assert rows["GPU 1"].status == "pass"
    assert outcomes(found, "discovery.logical_devices")["GPU 0-1"].status == "pass", "it is not exclusive"


@pytest.mark.usefixtures("no_child_left")
def test_level_full_leaves_the_others_in_peace(machine: Gpudiag) -> None:
    found = checked(machine, "--level", "full", EXCLUSIVE, CUDA_VISIBLE_DEVICES="0")
    assert found.level == Level("full")
    assert [row.outcome for row in found.rows] == [
        Skipped(f"{BY_4242}; to run this probe on it anyway, add --disturb"),
    ]


@pytest.mark.usefixtures("no_child_left")
def test_disturb_measures_on_the_gpu_that_others_use(machine: Gpudiag) -> None:
    found = checked(machine, "--disturb", EXCLUSIVE)
    assert {label: row.status for label, row in outcomes(found, EXCLUSIVE).items()} == {
        "GPU 0": "pass",
        "GPU 1": "pass",
    }


@pytest.mark.usefixtures("no_child_left")
def test_level_quick_is_not_explained_to_who_asked_for_it(machine: Gpudiag) -> None:
    found = checked(machine, "--level", "quick", "host", "memory", simulate="2")
    assert found.level == Level("quick")
    assert {row.probe for row in found.rows} == {name for name in QUICK if name.startswith(("host.", "memory."))}


@pytest.mark.usefixtures("no_child_left")
def test_what_does_not_fit_beside_others_is_skipped_with_the_figures(machine: Gpudiag) -> None:
    (machine.folder / "machine.toml").write_text(ONE_TAKEN.replace("2GiB", "15900MiB"))
    found = checked(machine, "--disturb", "placement.manual", "distribution.reduction", "memory.shared_gpu")
    assert [row.outcome for row in found.rows if not isinstance(row.outcome, Judged)] == [
        Skipped("needs 1536 MiB free, GPU 0 has 484 MiB")
    ]
    assert {row.status for row in found.rows} == {"pass", "skipped"}


def test_level_quick_that_leaves_nothing_is_refused_before_anything_runs(gpudiag: Gpudiag) -> None:
    done = gpudiag("check", "--level", "quick", EXCLUSIVE, flags=())
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--level quick leaves nothing of {EXCLUSIVE}" in done.stderr
    assert "host facts" not in done.stderr


# ---- What the command line asks of a run ----


@pytest.mark.parametrize(
    ("arguments", "level", "disturb"),
    [
        ([], None, False),
        (["--level", "full"], "full", False),
        (["--level", "quick"], "quick", False),
        ([EXCLUSIVE], "full", False),
        (["--disturb"], "full", True),
        (["--disturb", "--level", "quick"], "quick", True),
        (["--level", "quick", "host"], "quick", False),
    ],
)
def test_naming_probes_or_disturbing_means_full(
    arguments: list[str], level: str | None, disturb: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Options] = []

    def run_on(_: object, options: Options, *__: object) -> Report:
        asked.append(options)
        return report()

    monkeypatch.chdir(tmp_path)
    for name in ("GPUDIAG_LEVEL", "GPUDIAG_DISTURB", "GPUDIAG_SELECT", "GPUDIAG_SIMULATE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(servers, "begun", lambda *_, **__: nullcontext())
    monkeypatch.setattr(runner, "run_on", run_on)
    cli.cli.main(["check", "-q", *arguments], prog_name="gpudiag", standalone_mode=False)
    assert [(options.level, options.disturb) for options in asked] == [(level, disturb)]


# ---- Who else uses a GPU, and what is lacking ----


def facts_of(*devices: NvmlDevice, **variables: str) -> Facts:
    return example_with_gpus(
        nvml=NvmlFacts(None, "535.104.05", "12.2", devices), environment=EnvironmentFacts(variables)
    )


def used(index: int = 0, used_bytes: int = 0, *processes: GpuProcess) -> NvmlDevice:
    return replace(example_gpu(index), memory_used_bytes=used_bytes, processes=processes)


@pytest.mark.parametrize(
    ("device", "other"),
    [
        (used(), None),
        (used(0, 600 << 20), None),  # the driver's own
        (used(0, IDLE_BYTES), None),
        (used(0, 3 << 30), "a process that NVML does not list (3.0 GiB in use)"),
        (used(0, 3 << 30, GpuProcess(7, 3 << 30)), "process 7"),
        (used(0, 0, GpuProcess(7, None)), "process 7"),  # MIG and WSL tell no figure
        (used(0, 3 << 30, GpuProcess(7, 1 << 30), GpuProcess(9, 2 << 30)), "process 7 and 1 more"),
        (used(0, 2 << 30, GpuProcess(5, 2 << 30, computes=False)), None),  # a desktop
        (used(0, 2 << 30, GpuProcess(5, 1, computes=False), GpuProcess(7, 1)), "process 7"),
    ],
)
def test_who_else_computes_on_a_gpu(device: NvmlDevice, other: str | None) -> None:
    facts = facts_of(device, used(1, 5 << 30, GpuProcess(11, 5 << 30)))
    first, second = gpus_in_scope(facts)
    assert other_use(first, facts) == other
    assert other_use(second, facts) == "process 11"


def level(asked: str | None, facts: Facts) -> Level:
    return plan.chosen_level(asked, gpus_in_scope(facts), facts)


def test_the_level_follows_the_gpus_in_scope() -> None:
    taken = used(1, 5 << 30, GpuProcess(11, 5 << 30))
    assert level(None, facts_of(used(0), taken)) == Level("quick", "GPU 1 is used by process 11")
    assert level(None, facts_of(used(0), taken, CUDA_VISIBLE_DEVICES="0")) == Level("full")
    assert level(None, facts_of(used(0))) == Level("full")
    assert level(None, facts_of()) == Level("full")
    assert level("full", facts_of(taken)) == Level("full")
    assert level("quick", facts_of(used(0))) == Level("quick")
    assert level(None, example_with_gpus(nvml=Unknown("no answer within 15 s"))) == Level("full")


def test_lack_of_peace_names_the_gpu_and_the_way_round_it() -> None:
    facts = facts_of(used(0), used(1, 5 << 30, GpuProcess(11, 5 << 30)))
    gpus = gpus_in_scope(facts)
    assert plan.lack_of_peace(gpus[:1], facts) == ""
    assert plan.lack_of_peace(gpus, facts) == (
        "GPU 1 is used by process 11; to run this probe on it anyway, add --disturb"
    )
    assert plan.lack_of_peace((), facts) == ""


def test_what_simulated_gpus_cannot_do_needs_real_ones() -> None:
    [real] = gpus_in_scope(facts_of(used(0)))
    simulated = replace(real, name=f"{SIMULATED} A100")
    assert plan.lack_of_real_gpus(True, (real,)) == ""
    assert plan.lack_of_real_gpus(True, (real, simulated)) == "needs real GPUs, these are simulated"
    assert plan.lack_of_real_gpus(False, (simulated,)) == ""
    assert plan.lack_of_real_gpus(True, ()) == ""


def test_lack_of_memory_is_that_of_the_first_gpu_with_too_little() -> None:
    facts = facts_of(used(0), used(1, 39 << 30))  # of 40 GiB each
    gpus = gpus_in_scope(facts)
    assert plan.lack_of_memory(1 << 30, gpus, facts) == "", "exactly enough"
    assert plan.lack_of_memory(2 << 30, gpus, facts) == "needs 2048 MiB free, GPU 1 has 1024 MiB"
    assert plan.lack_of_memory(2 << 30, gpus[:1], facts) == ""
    assert plan.lack_of_memory(0, gpus, facts) == ""
    shared = facts_of(replace(used(0), memory_total_bytes=0))  # the host's memory: NVML does not tell
    assert plan.lack_of_memory(2 << 30, gpus_in_scope(shared), shared) == ""


@pytest.mark.parametrize(
    ("gpu", "room"),
    [
        (used(0), 40),
        (used(0, 38 << 30), 2),
        (used(0, (40 << 30) - 1), 1),
        (replace(used(0), compute_mode="exclusive_process"), 1),
        (replace(used(0), memory_total_bytes=0), plan.MOST_CHILDREN),
        (replace(used(0, 10 << 30), mig_mode="enabled", mig_uuids=("MIG-0", "MIG-1", "MIG-2")), 10),
    ],
)
def test_as_many_children_share_a_gpu_as_its_memory_holds(gpu: NvmlDevice, room: int) -> None:
    [given] = gpus_in_scope(facts_of(gpu))
    assert plan.room_on(given, gpu) == room


def test_a_gpu_is_given_to_no_more_than_it_has_room_for(tmp_path: Path) -> None:
    gpus = gpus_in_scope(facts_of(used(0), used(1)))
    devices = GpuLocks(tmp_path)
    devices.room = {gpus[0].uuid: 2}
    assert [devices.take(gpus, exclusive=False) for _ in range(3)] == [True, True, False]
    assert devices.take(gpus[1:], exclusive=False), "there the room is not limited"
    devices.release(gpus)
    assert devices.take(gpus[:1], exclusive=False)
    devices.close()


def test_a_probe_needs_its_memory_and_a_context_for_each_of_its_processes() -> None:
    shared = catalogue.get("memory.shared_gpu")
    assert shared.peered
    assert plan.bytes_needed(shared) == shared.probe.needs.free_bytes + 2 * CONTEXT_BYTES
    assert plan.bytes_needed(catalogue.get("placement.log")) == 0


def tensorflow(version: str) -> Facts:
    installed = example_with_gpus().tensorflow
    assert isinstance(installed, TensorflowFacts)
    return example_with_gpus(tensorflow=replace(installed, distributions=(Distribution("tensorflow", version, "/"),)))


@pytest.mark.parametrize(
    ("versions", "installed", "lack"),
    [
        ("", "2.18.1", ""),
        (">=2.19", "2.21.0", ""),
        (">=2.19", "2.18.1", "needs TensorFlow >=2.19, 2.18.1 is installed"),
        ("<2.21", "2.21.0", "needs TensorFlow <2.21, 2.21.0 is installed"),
        (">=2.19,<2.21", "2.20.0", ""),
        (">=2.19", "2.20.0rc0", ""),
        (">=2.18", "2.18.0+nv25.3", ""),
        (">=2.19", "of the house", ""),
    ],
)
def test_lack_of_version(versions: str, installed: str, lack: str) -> None:
    assert plan.lack_of_version(versions, tensorflow(installed)) == lack


def test_a_version_that_is_not_known_is_not_held_against_a_probe() -> None:
    built = example_with_gpus().tensorflow
    assert isinstance(built, TensorflowFacts)
    assert plan.lack_of_version(">=2.19", example_with_gpus(tensorflow=replace(built, distributions=()))) == ""
    assert plan.lack_of_version(">=2.19", example_with_gpus(tensorflow=Unknown("no answer"))) == ""


@pytest.mark.parametrize(
    ("needs", "disturb", "outcome"),
    [
        (Needs(gpus=1), True, None),
        (Needs(gpus=1), False, Skipped("GPU 0 is used by process 7; to run this probe on it anyway, add --disturb")),
        (Needs(gpus=1, free_bytes=512 << 20), True, None),
        (Needs(gpus=1, free_bytes=513 << 20), True, Skipped("needs 1025 MiB free, GPU 0 has 1024 MiB")),
        (Needs(gpus=1, versions="<2.21"), True, Skipped("needs TensorFlow <2.21, 2.21.0 is installed")),
        (Needs(gpus=2, versions="<2.21"), True, Skipped("needs 2 GPUs, 1 here")),
        (Needs(gpus=1, real_gpus=True), True, None),
    ],
)
def test_what_is_lacking_is_why_a_probe_is_skipped(
    needs: Needs, disturb: bool, outcome: Skipped | None, tmp_path: Path
) -> None:
    entry = catalogue.get(EXCLUSIVE)
    entry = changed(entry, probe=replace(entry.probe, needs=needs))
    facts = facts_of(used(0, 39 << 30, GpuProcess(7, 39 << 30)))
    gpus = gpus_in_scope(facts)
    options = Options((entry,), disturb=disturb, machine=ExaminedMachine(locks=tmp_path))
    row = row_without_child(plan.Task(EXCLUSIVE, entry, gpus), facts, gpus, options)
    assert (row and row.outcome) == outcome


def test_tasks_without_a_gpu_run_beside_those_that_need_all_gpus_alone(gpudiag: Gpudiag) -> None:
    alone, shared, without = "memory.limit", "placement.manual", "placement.hard_error"
    report = checked(gpudiag, "--jobs", "2", "discovery.device_order", alone, shared, without, simulate="2")

    rows = {row.probe: row for row in report.rows}
    assert list(rows) == [entry.name for entry in catalogue.entries() if entry.name in rows]  # in the report
    began = {name: row.began_s or 0.0 for name, row in rows.items()}
    assert max(began, key=lambda name: began[name]) == shared
    assert began[without] < began[alone] + rows[alone].duration_s <= began[shared]
