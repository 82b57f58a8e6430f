"""The engine ``slurm`` on a real Slurm: slurmctld and a slurmd for each node, on loopback.

The check on a node is a script that prints the frame of a saved report, but for one test with the real one.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from slurm_cluster import Cluster, SlurmFleet, texts, verdicts

from conftest import DEADLINE_S, Gpudiag
from gpudiag.errors import UsageError
from gpudiag.fleet.engines import slurm as engine
from gpudiag.model.fleet import EngineOptions

pytestmark = pytest.mark.starts

NAMES = ("n1", "n2", "n3", "n4")


@pytest.fixture(scope="module")
def started() -> Iterator[Cluster]:
    cluster = Cluster(len(NAMES))
    yield cluster
    cluster.close()


@pytest.fixture
def cluster(started: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    started.enter(monkeypatch)
    yield started
    started.mend()


@pytest.fixture
def fleet(tmp_path: Path) -> SlurmFleet:
    return SlurmFleet(tmp_path)


def later(cluster: Cluster, file: Path, action: Callable[[], object]) -> threading.Thread:
    """Do something as soon as a file is there, which a check makes when it begins."""

    def wait() -> None:
        cluster.wait(file.exists, "the check does not begin")
        action()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_every_node_is_checked_with_its_gpus_and_no_job_is_left(cluster: Cluster, fleet: SlurmFleet) -> None:
    fleet.write(f'echo "$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES $SLURM_JOB_NAME" >> {fleet.folder}/seen')
    report = fleet()
    assert (verdicts(report), report.exit_code) == (dict.fromkeys(NAMES, "PASS"), 0)
    assert sorted((fleet.folder / "seen").read_text().splitlines()) == [f"{name} 0,1 gpudiag-fleet" for name in NAMES]
    assert "gpudiag-fleet" not in cluster.jobs()


def test_nodes_that_nobody_may_get_are_rows_at_once(cluster: Cluster, fleet: SlurmFleet) -> None:
    cluster.drain("n2", "a fan | is\nbroken")
    with cluster.job("-w", "n3", "--exclusive"):
        report = fleet("n[1-3] n44 nn3")
    assert verdicts(report) == {"n1": "PASS", **dict.fromkeys(("n2", "n3", "n44", "nn3"), "not usable")}
    assert report.exit_code == 5
    said = texts(report)
    assert said["n2"].startswith("drained: a fan | is broken (set by ")
    assert said["n3"] == "allocated"
    assert said["n44"] == "Slurm does not know this name. Did you mean 'n4'?"
    assert cluster.reason("n2") == "a fan | is\nbroken", "a check changes no reason"


def test_a_node_whose_gpus_others_use_keeps_nobody_waiting(cluster: Cluster, fleet: SlurmFleet) -> None:
    with cluster.job("-w", "n2", "--gres=gpu:1", "-n1"), cluster.job("-w", "n3", "-n1"):
        assert cluster.states()["n2"] == cluster.states()["n3"] == "mixed"
        report = fleet("n[1-3]", "--immediate=2")
    assert verdicts(report) == {"n1": "PASS", "n2": "not usable", "n3": "PASS"}
    assert "gpudiag-fleet" not in cluster.jobs()


def test_without_a_limit_of_the_user_the_engine_has_its_own(
    cluster: Cluster, fleet: SlurmFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "WAIT_S", 2.0)
    with cluster.job("-w", "n2", "--gres=gpu:1", "-n1"):
        report = fleet("n2")
    assert verdicts(report) == {"n2": "not usable"}
    assert texts(report)["n2"] == "mixed: Slurm did not give it within 2 s"
    assert "gpudiag-fleet" not in cluster.jobs()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_node_that_dies_or_freezes_harms_no_other(
    number: signal.Signals, cluster: Cluster, fleet: SlurmFleet
) -> None:
    fleet.write(f'touch {fleet.folder}/$SLURMD_NODENAME\n[ "$SLURMD_NODENAME" != n2 ] || sleep 60')
    thread = later(cluster, fleet.folder / "n2", lambda: cluster.lose("n2", number))
    report = fleet("n[1-3]")
    thread.join()
    assert verdicts(report) == {"n1": "PASS", "n2": "lost", "n3": "PASS"}
    assert texts(report)["n2"] == "srun: error: Node failure on n2"


def test_a_node_whose_death_slurm_has_not_noticed_is_unreachable(cluster: Cluster, fleet: SlurmFleet) -> None:
    cluster.lose("n2")
    report = fleet("n[1-3]")
    assert verdicts(report) == {"n1": "PASS", "n2": "unreachable", "n3": "PASS"}
    assert "Communication connection failure" in texts(report)["n2"]


def test_a_check_that_takes_too_long_is_ended_on_its_node(
    cluster: Cluster, fleet: SlurmFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpudiag.fleet.carrying.GRACE_S", 0.0)
    fleet.write(f'[ "$SLURMD_NODENAME" != n1 ] || {{ echo $$ > {fleet.folder}/pid; sleep 61; }}')
    report = fleet("n[1-2]", deadline_s=1)
    assert verdicts(report) == {"n1": "timed out", "n2": "PASS"}
    assert not psutil.pid_exists(int((fleet.folder / "pid").read_text()))


def test_a_node_without_gpudiag_says_so(cluster: Cluster, fleet: SlurmFleet) -> None:
    fleet.script.unlink()
    report = fleet("n1")
    assert verdicts(report) == {"n1": "no gpudiag"}
    assert "No such file or directory" in texts(report)["n1"]


def test_beside_a_job_of_the_user_nothing_is_allocated(cluster: Cluster, fleet: SlurmFleet) -> None:
    fleet.write(f'echo "$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES $SLURM_JOB_ID" >> {fleet.folder}/seen')
    with cluster.job("-w", "n[1-2]", "-N2", "--gres=gpu:2", "--exclusive") as number:
        report = fleet(jobid=number)
        assert verdicts(report) == {"n1": "PASS", "n2": "PASS"}
        report = fleet("n2 n4", jobid=number)
        assert verdicts(report) == {"n2": "PASS", "n4": "not usable"}
        assert texts(report)["n4"] == f"is not a node of job {number}"
        assert len(cluster.jobs()) == 1
    assert sorted(set((fleet.folder / "seen").read_text().splitlines())) == [f"n1 0,1 {number}", f"n2 0,1 {number}"]


@pytest.mark.parametrize(
    ("number", "message"),
    [("999999", "Slurm has no job 999999"), ("4;id", "a job of Slurm has a number"), ("-h", "a job of Slurm has a")],
)
def test_a_job_that_is_none_is_refused(number: str, message: str, cluster: Cluster, fleet: SlurmFleet) -> None:
    with pytest.raises(UsageError, match=message):
        fleet(jobid=number)


def test_a_partition_that_is_none_is_refused(cluster: Cluster, fleet: SlurmFleet) -> None:
    with pytest.raises(UsageError, match=r"no node in a partition 'gpus'\. Did you mean 'gpu'\?"):
        fleet("n1", "-p", "gpus")


def test_without_a_controller_nothing_starts(cluster: Cluster, fleet: SlurmFleet) -> None:
    cluster.stop_controller()
    try:
        with pytest.raises(UsageError, match=r"Unable to contact slurm controller.* scontrol ping"):
            fleet("n1")
    finally:
        cluster.start_controller()
        cluster.wait(lambda: set(cluster.states().values()) == {"idle"}, "the nodes do not register")
    assert not list(fleet.folder.glob("run*"))


def test_a_configuration_that_is_not_there_is_named_at_once(fleet: SlurmFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "/no/slurm.conf")
    began = time.monotonic()
    with pytest.raises(UsageError, match=r"SLURM_CONF is /no/slurm\.conf, which does not exist"):
        fleet("n1")
    assert time.monotonic() - began < 30, "Slurm's commands try for a minute"


def test_without_slurm_the_package_is_named(fleet: SlurmFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(fleet.folder))
    with pytest.raises(UsageError, match=r"needs sinfo, squeue, .* apt-get install slurm-client"):
        fleet("n1")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--bogus",), "salloc does not take --bogus: salloc: unrecognized option '--bogus'"),
        (("--time=soon",), "salloc does not take --time=soon: salloc: error: Invalid --time specification"),
        (("--mem", "sleep"), "Invalid --mem specification"),
        (("gpu",), "An --engine-option is one word"),
    ],
)
def test_options_that_slurm_does_not_take_are_refused_before_anything_starts(
    cluster: Cluster, fleet: SlurmFleet, options: tuple[str, ...], text: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(text)):
        fleet("n1", *options)
    assert cluster.jobs() == []
    assert not list(fleet.folder.glob("run*"))


def test_the_address_of_a_node_is_not_what_an_administrator_wrote(cluster: Cluster, fleet: SlurmFleet) -> None:
    fields = ("comment", "extra", "reason")
    cluster("scontrol", "update", "nodename=n2", *(f"{field}=see NodeAddr=9.9.9.9 NodeName=n1" for field in fields))
    found = asyncio.run(engine.Engine(EngineOptions()).addresses(NAMES))
    cluster("scontrol", "update", "nodename=n2", *(f"{field}=" for field in fields))
    assert found == dict.fromkeys(NAMES, "127.0.0.1")


def collector(gpudiag: Gpudiag, cluster: Cluster, fleet: SlurmFleet) -> subprocess.Popen[str]:
    """Start the command on checks that do not end, and wait until they have begun."""
    fleet.write(f"touch {fleet.folder}/$SLURMD_NODENAME; sleep 300")
    process = gpudiag.start(
        *("fleet", "check", "n[1-2]", "--engine", "slurm", "-o", str(fleet.folder / "run")),
        *("--gpudiag", str(fleet.script)),
        flags=(),
        **cluster.environment,
    )
    cluster.wait(lambda: all((fleet.folder / name).exists() for name in ("n1", "n2")), "the checks do not begin")
    assert cluster.jobs() == ["gpudiag-fleet"]
    return process


def test_ctrl_c_leaves_a_merged_report_and_no_job(cluster: Cluster, fleet: SlurmFleet, gpudiag: Gpudiag) -> None:
    process = collector(gpudiag, cluster, fleet)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, errors
    assert " ".join(output.split()).count("n[1-2] interrupted") == 1
    cluster.wait(lambda: "gpudiag-fleet" not in cluster.jobs(), "a job is left")


def test_a_collector_that_is_killed_leaves_no_job_and_can_be_resumed(
    cluster: Cluster, fleet: SlurmFleet, gpudiag: Gpudiag
) -> None:
    process = collector(gpudiag, cluster, fleet)
    process.kill()
    process.communicate(timeout=DEADLINE_S)
    cluster.wait(lambda: "gpudiag-fleet" not in cluster.jobs(), "a job is left")
    fleet.write()
    done = gpudiag("fleet", "check", "--resume", str(fleet.folder / "run"), flags=(), **cluster.environment)
    assert done.returncode == 0, done.stdout
    assert "2 nodes · 2 PASS" in done.stdout


def test_a_job_that_somebody_cancels_is_not_asked_for_again(cluster: Cluster, fleet: SlurmFleet) -> None:
    fleet.write(f"touch {fleet.folder}/$SLURMD_NODENAME; sleep 60")
    thread = later(cluster, fleet.folder / "n2", lambda: cluster("scancel", "--name=gpudiag-fleet"))
    report = fleet("n[1-2]")
    thread.join()
    assert verdicts(report) == {"n1": "lost", "n2": "lost"}
    assert "was cancelled" in texts(report)["n1"]


@pytest.mark.parametrize("lost", [False, True])
def test_wide_steps_ask_the_nodes_of_a_large_fleet(
    lost: bool, cluster: Cluster, fleet: SlurmFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "WIDE", 3)
    monkeypatch.setattr(engine, "WIDE_ABOVE", 2)
    note = f'echo "$SLURMD_NODENAME $SLURM_STEP_NUM_NODES" >> {fleet.folder}/seen'
    fleet.write(f'{note}; [ "$SLURMD_NODENAME" != n4 ] || exit 3')
    if lost:
        cluster.lose("n2")
    report = fleet()
    assert verdicts(report) == {"n1": "PASS", "n2": "unreachable" if lost else "PASS", "n3": "PASS", "n4": "no answer"}
    seen = (fleet.folder / "seen").read_text().splitlines()
    assert "n4 1" in seen
    if not lost:
        assert sorted(seen) == ["n1 3", "n2 3", "n3 3", "n4 1"]


def test_the_real_check_runs_on_a_node(cluster: Cluster, gpudiag: Gpudiag) -> None:
    command = " ".join(gpudiag.command())
    options = ("--engine", "slurm", "-o", "run", "--gpudiag", command, "--", "--simulate", "2", "host")
    done = gpudiag("fleet", "check", "n1", *options, flags=(), **cluster.environment)
    assert "NOT VERIFIED" in done.stdout
    assert done.returncode == 5


LOSSES = """\
#!/bin/sh
case $SLURMD_NODENAME in
n4) touch {folder}/begun; sleep 300 ;;
n5) sleep 300 ;;
n6) exec /no/such/folder/gpudiag ;;
n7) exec {gpudiag} "$@" --fault library_missing=libcudnn.so.9 ;;
n8) head -c 500 {frame} ;;
*) exec {gpudiag} "$@" ;;
esac
"""


@pytest.mark.slow
def test_eight_nodes_with_a_loss_of_each_kind_after_a_kill_of_the_collector(
    gpudiag: Gpudiag, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = SlurmFleet(tmp_path)
    command = " ".join(gpudiag.command())
    fleet.script.write_text(LOSSES.format(folder=tmp_path, gpudiag=command, frame=fleet.frame))
    run = tmp_path / "run"
    cluster = Cluster(8)
    try:
        cluster.enter(monkeypatch)
        cluster.drain("n2", "a bad fan")
        with cluster.job("-w", "n3", "--exclusive"):
            thread = later(cluster, tmp_path / "begun", lambda: cluster.lose("n4"))
            options = ("--engine", "slurm", "-o", str(run), "--gpudiag", str(fleet.script), "--deadline", "30")
            checked = ("--simulate", "2", "discovery.logical_devices", "host")
            process = gpudiag.start(
                *("fleet", "check", "n[1-8],m1", *options, "--", *checked), flags=(), **cluster.environment
            )
            answers = run / "answers.jsonl"
            cluster.wait(lambda: answers.exists() and '"node":"n4"' in answers.read_text(), "n4 is not lost")
            before = answers.read_text()
            process.kill()
            process.communicate(timeout=DEADLINE_S)
            thread.join()
            assert '"node":"n5"' not in before
            report = run / "report.json"
            resume = ("--resume", str(run), "--output", str(report))
            done = gpudiag("fleet", "check", *resume, flags=(), **cluster.environment)
        found = {row["node"]: row["reason"] or row["verdict"] for row in json.loads(report.read_text())["rows"]}
        assert found.pop("n4") in ("not usable", "unreachable", "lost"), "it is asked again, and is dead"
        assert found == {
            **{"n1": "PASS", "n2": "not usable", "n3": "not usable", "n5": "timed out", "n6": "no gpudiag"},
            **{"n7": "FAIL", "n8": "cut short", "m1": "not usable"},
        }
        assert '"reason":"lost"' in before
        assert done.returncode == 1
    finally:
        cluster.close()


@pytest.mark.slow
def test_wide_steps_on_64_nodes(fleet: SlurmFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "WIDE_ABOVE", 32)
    cluster = Cluster(64)
    try:
        cluster.enter(monkeypatch)
        fleet.write(f'echo "$SLURM_STEP_NUM_NODES" >> {fleet.folder}/seen; [ "$SLURMD_NODENAME" != n40 ] || exit 3')
        report = fleet()
        assert report.counts == {"PASS": 63, "NO REPORT": 1}
        assert verdicts(report)["n40"] == "no answer"
        assert sorted((fleet.folder / "seen").read_text().split()) == ["1", *["64"] * 64]
        assert "gpudiag-fleet" not in cluster.jobs()
    finally:
        cluster.close()
