"""A fleet check from the plan to the merged report, by the engine ``local``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from fleets import PreparedNodes, framed, healthy, unfit

from conftest import Gpudiag
from gpudiag.fleet.folder import RunFolder
from gpudiag.model import codec


@pytest.fixture
def nodes(tmp_path: Path) -> PreparedNodes:
    return PreparedNodes(tmp_path / "nodes")


def check(gpudiag: Gpudiag, nodes: PreparedNodes, names: str, *more: str) -> tuple[int, dict[str, Any], str]:
    """Return the exit status, the report and the messages of a check by the engine ``local``."""
    done = gpudiag("fleet", "check", *words(nodes, names), "--format", "json", *more)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def words(nodes: PreparedNodes, names: str) -> list[str]:
    return [names, "--engine", "local", "--gpudiag", str(nodes.command), "-o", "run"]


def outcomes(report: dict[str, Any]) -> dict[str, str]:
    return {row["node"]: row["reason"] or row["verdict"] for row in report["rows"]}


def test_every_node_has_a_verdict_or_a_reason(gpudiag: Gpudiag, nodes: PreparedNodes) -> None:
    nodes.prints("n1 n2", healthy())
    nodes.prints("n3", unfit())
    nodes.prints("n4", "Welcome!\n" + framed(healthy()) + "bye\n")
    nodes.prints("n5", "what?\n")
    nodes.prints("n6", framed(healthy())[:200])
    nodes.prints("n7", framed(healthy()) + framed(unfit()))
    nodes.prints("n8", framed(healthy()).replace("report 1", "report 9"))
    nodes.runs("n9", "exec sleep 60")
    nodes.runs("n10", "echo 'sh: 1: gpudiag: not found' >&2; exit 127")
    nodes.runs("n11", "echo '/usr/bin/python3: No module named gpudiag' >&2; exit 1")
    nodes.runs("n12", "exit 0")
    nodes.runs("n13", "kill -9 $$")
    status, report, errors = check(gpudiag, nodes, "n[1-13]", "--parallel", "13", "--deadline", "0.5")
    assert outcomes(report) == {
        "n1": "PASS",
        "n2": "PASS",
        "n3": "FAIL",
        "n4": "PASS",
        "n5": "not a report",
        "n6": "cut short",
        "n7": "duplicate",
        "n8": "other version",
        "n9": "timed out",
        "n10": "no gpudiag",
        "n11": "no gpudiag",
        "n12": "no answer",
        "n13": "no answer",
    }, errors
    assert status == 1
    rows = {row["node"]: row["text"] for row in report["rows"]}
    assert rows["n5"] == "what?"
    assert "hides all GPUs" in rows["n3"]
    assert codec.load(gpudiag.folder / "run" / "reports" / "n1.json.gz") == healthy()


def test_what_was_not_answered_when_the_collector_was_killed_is_asked_by_the_next(
    gpudiag: Gpudiag, nodes: PreparedNodes, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    nodes.prints("n1 n2 n4", healthy())
    nodes.runs("n3", f"echo $$ > {nodes.folder}/pid; exec sleep 60")
    answers = gpudiag.folder / "run" / "answers.jsonl"
    with gpudiag.start("fleet", "check", *words(nodes, "n[1-4]"), "--parallel", "1") as collector:
        wait_until(lambda: (nodes.folder / "pid").exists() and answers.read_bytes().count(b"\n") == 2)
        refused = gpudiag("fleet", "check", "--resume", "run")
        collector.kill()
        collector.communicate(timeout=30)
    assert (refused.returncode, "another 'gpudiag fleet check'" in refused.stderr) == (2, True)
    pid = int((nodes.folder / "pid").read_text())
    wait_until(lambda: not psutil.pid_exists(pid))  # a check ends with its collector
    with answers.open("ab") as file:
        file.write(b'{"node":"n3","att')  # killed while it wrote
    early = gpudiag("fleet", "merge", "run", "--format", "json")
    assert outcomes(json.loads(early.stdout)) == {"n1": "PASS", "n2": "PASS", "n3": "no answer", "n4": "no answer"}
    assert early.returncode == 5
    assert json.loads(early.stdout)["notes"] == ["2 nodes left to ask; go on: gpudiag fleet check --resume run"]
    nodes.prints("n3", healthy())
    (nodes.folder / "n3.answer").chmod(0o644)
    done = gpudiag("fleet", "check", "--resume", "run", "--format", "json")
    assert (done.returncode, set(outcomes(json.loads(done.stdout)).values())) == (0, {"PASS"})
    assert "2 nodes to check" in done.stderr
    assert len(list(RunFolder.open(gpudiag.folder / "run").answers())) == 4
    (note,) = json.loads(done.stdout)["notes"]
    assert note == "1 line of run/answers.jsonl cannot be read as an answer"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_a_merged_report_of_what_is_there(
    number: signal.Signals, gpudiag: Gpudiag, nodes: PreparedNodes, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    nodes.prints("n1", healthy())
    nodes.runs("n2", f"echo $$ > {nodes.folder}/pid; exec sleep 60")
    command = [*words(nodes, "n[1-3]"), "--parallel", "1", "--format", "json"]
    with gpudiag.start("fleet", "check", *command) as collector:
        wait_until(lambda: (nodes.folder / "pid").exists() and bool((nodes.folder / "pid").read_text()))
        collector.send_signal(number)
        out, err = collector.communicate(timeout=30)
    assert collector.returncode == 128 + number, err
    assert outcomes(json.loads(out)) == {"n1": "PASS", "n2": "interrupted", "n3": "interrupted"}
    report = json.loads(out)
    assert report["exit_code"] == collector.returncode
    assert report["notes"] == ["2 nodes left to ask; go on: gpudiag fleet check --resume run"]
    pid = int((nodes.folder / "pid").read_text())
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_nodes_that_fail_are_checked_once_more_and_as_many_that_pass(gpudiag: Gpudiag, nodes: PreparedNodes) -> None:
    nodes.prints("n1 n2 n3", healthy())
    nodes.prints("n4", unfit())
    bad = nodes.folder / "bad"
    bad.write_text(framed(unfit()))
    nodes.runs(
        "n5", f'if [ -e {nodes.folder}/again ]; then echo "$REPORT"; else : > {nodes.folder}/again; cat {bad}; fi'
    )
    status, report, errors = check(gpudiag, nodes, "n[1-5]", "--confirm", "--parallel", "2")
    assert outcomes(report) == {"n1": "PASS", "n2": "PASS", "n3": "PASS", "n4": "FAIL", "n5": "FLAKY"}, errors
    attempts = {row["node"]: row["attempts"] for row in report["rows"]}
    reports = sorted(path.name for path in (gpudiag.folder / "run/reports").iterdir())
    assert [name for name in reports if name.startswith(("n3", "n5"))] == [
        *("n3.json.gz", "n5.json.gz", "n5@2.json.gz"),
    ]
    merged = json.loads(gpudiag("fleet", "merge", "run/reports", "--format", "json").stdout)
    assert outcomes(merged) == outcomes(report)
    assert attempts == {"n1": ["PASS"] * 2, "n2": ["PASS"] * 2, "n3": [], "n4": ["FAIL"] * 2, "n5": ["FAIL", "PASS"]}
    assert status == 1


def test_the_node_has_the_deadline_too(
    gpudiag: Gpudiag, nodes: PreparedNodes, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    nodes.runs("n1", f'echo "$@" > {nodes.folder}/arguments; trap "" TERM; sleep 60')
    with gpudiag.start("fleet", "check", *words(nodes, "n1"), "--deadline", "0.2", "--", "--skip={node}") as collector:
        wait_until((nodes.folder / "arguments").exists)
        (of_node,) = Path(f"/proc/{collector.pid}/task/{collector.pid}/children").read_text().split()
        limit = Path(f"/proc/{of_node}/cmdline").read_bytes().split(b"\0")
        collector.kill()
        collector.communicate(timeout=30)
        os.kill(int(of_node), signal.SIGKILL)
    assert limit[:4] == [b"timeout", b"-k", b"5", b"15.2"]
    given = (nodes.folder / "arguments").read_text().split()
    assert given == ["check", "--skip=n1", "--deadline", "0.2", "--format", "frame", "--quiet"]


def test_a_full_disk_costs_no_answer_that_was_kept(gpudiag: Gpudiag, nodes: PreparedNodes) -> None:
    nodes.prints("n1 n3", healthy())
    nodes.runs("n2", 'cat /dev/zero > filler 2>/dev/null; echo "$REPORT"')
    on_a_small_disk = (
        "mkdir small && mount -t tmpfs -o size=64k none small && cd small || exit\n"
        '"$@"; status=$?; cp -r run ..; exit $status'
    )
    check = gpudiag.command("fleet", "check", *words(nodes, "n[1-3]"), "--parallel", "1")
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", on_a_small_disk, "sh", *check],
        cwd=gpudiag.folder,
        env=gpudiag.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "cannot be kept: No space left on device" in done.stderr
    assert "--resume run" in done.stderr
    kept = (gpudiag.folder / "run" / "answers.jsonl").read_text().splitlines()
    assert [json.loads(line)["node"] for line in kept] == ["n1"]
    (nodes.folder / "n2.answer").chmod(0o644)
    nodes.prints("n2", healthy())
    resumed = gpudiag("fleet", "check", "--resume", "run")
    assert (resumed.returncode, "3 nodes · 3 PASS" in resumed.stdout) == (0, True), resumed.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["n1"], "--engine and -o are needed"),
        (["n1", "--engine", "local"], "--engine and -o are needed"),
        (["--engine", "local", "-o", "run"], "which nodes?"),
        (["n1", "--engine", "slrm", "-o", "run"], "'slrm' is not one of"),
        (["n1", "--engine", "local", "-o", "other"], "has files of something else"),
        (["n1", "--engine", "local", "-o", "run", "--", "--format", "json"], "--format is set by the fleet check"),
        (["n1", "--engine", "local", "-o", "run", "--", "--deadline=3"], "--deadline is set by the fleet check"),
        (["n[1-", "--engine", "local", "-o", "run"], "is not a list of nodes"),
        (["n1", "--engine", "local", "-o", "run", "--ship", "other/x"], "cannot be shipped"),
        (["n1", "--engine", "local", "-o", "run", "--parallel", "99999999"], "raise 'ulimit -n', or take --parallel"),
        (["--resume", "other"], "is not the folder of a fleet check"),
        (["n1", "--resume", "other"], "--resume takes the nodes"),
        (["n1", "--engine", "local", "-o", "run", "--racks", "other/x"], "line 1 is not 'RACK: NODES'"),
        (["n1", "--engine", "local", "-o", "run", "--output", "fleet.doc"], "the format of a report follows from"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(arguments: list[str], said: str, gpudiag: Gpudiag) -> None:
    other = gpudiag.folder / "other"
    other.mkdir()
    (other / "x").write_text("nonsense\n")
    done = gpudiag("fleet", "check", *arguments)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert said in " ".join(done.stderr.split())
    assert not (gpudiag.folder / "run").exists()


def test_a_folder_of_another_run_is_not_used_again(gpudiag: Gpudiag, nodes: PreparedNodes) -> None:
    nodes.prints("n1", healthy())
    assert check(gpudiag, nodes, "n1")[0] == 0
    status, _, errors = check(gpudiag, nodes, "n1")
    assert (status, "has another run" in errors) == (2, True)


def test_a_collector_that_nohup_started_outlives_its_terminal(
    gpudiag: Gpudiag, nodes: PreparedNodes, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    nodes.runs("n1", f'echo > {nodes.folder}/begun; sleep 2; echo "$REPORT"')
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        collector = gpudiag.start("fleet", "check", *words(nodes, "n1"), "--format", "json")
    finally:
        signal.signal(signal.SIGHUP, before)
    wait_until((nodes.folder / "begun").exists)
    collector.send_signal(signal.SIGHUP)
    out, err = collector.communicate(timeout=60)
    assert (collector.returncode, outcomes(json.loads(out))) == (0, {"n1": "PASS"}), err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["-o", "run", "--", "--levle", "quick"],
            "no option of 'gpudiag check' is called '--levle'. Did you mean '--level'",
        ),
        (["-o", "run", "--", "--level", "quik"], "'quik' is not one of"),
        (["-o", "run", "--", "memory.grwth"], "no probe or area matches 'memory.grwth'. Did you mean 'memory.growth'"),
        (["-o", "run", "--", "placement", "--skip", "x.y"], "no probe or area matches 'x.y'"),
        (["-o", "run", "--", "--timeout", "long"], "'long' is not a number of seconds above 0"),
        (["-o", "run", "--hosts", "/dev/null"], "--hosts belongs to the engine ssh, not to local."),
        (["-o", "run", "--gpus", "2"], "--gpus belongs to the engine kubernetes or slurm, not to local."),
        (["-o", "run.html"], "-o is the folder of the run; to write a report as well: --output run.html"),
        (["-o", "run", "@gpu"], "'@gpu' is a group of ClusterShell"),
        (["-o", "run", "n[1-3],@gpu"], "'n[1-3],@gpu' is a group of ClusterShell"),
    ],
)
def test_what_would_do_nothing_is_refused_before_it_starts(
    gpudiag: Gpudiag, arguments: list[str], message: str
) -> None:
    done = gpudiag("fleet", "check", "n1", "--engine", "local", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert not (gpudiag.folder / "run").exists()


def test_values_of_the_check_are_those_of_the_node(gpudiag: Gpudiag, nodes: PreparedNodes) -> None:
    nodes.prints("n1", healthy())
    done = gpudiag("fleet", "check", *words(nodes, "n1"), "--", "--expect", "/on/the/node.toml", "gpu.{node}")
    assert done.returncode == 0, done.stderr


def test_a_run_that_goes_on_has_its_options(gpudiag: Gpudiag, nodes: PreparedNodes) -> None:
    nodes.prints("n1", healthy())
    assert gpudiag("fleet", "check", *words(nodes, "n1")).returncode == 0
    for option, value in (("--image", "x"), ("--racks", "/dev/null"), ("--together", None)):
        done = gpudiag("fleet", "check", "--resume", "run", option, *filter(None, [value]))
        assert done.returncode == 2
        assert f"the racks, of the run: leave out {option}." in done.stderr
    done = gpudiag("fleet", "check", "--resume", "run", "--engine", "ssh")
    assert (done.returncode, "was begun by --engine local" in done.stderr) == (2, True)
    assert gpudiag("fleet", "check", "--resume", "run", "--engine", "local").returncode == 0


def test_a_run_goes_on_with_another_deadline_or_program_and_not_with_a_variable(
    gpudiag: Gpudiag, nodes: PreparedNodes
) -> None:
    nodes.runs("n1", "sleep 60")
    begun = [*words(nodes, "n1"), "--format", "json"]
    begun[begun.index("--gpudiag") + 1] = "nowhere"
    assert outcomes(json.loads(gpudiag("fleet", "check", *begun).stdout)) == {"n1": "no gpudiag"}
    anew = ["--gpudiag", str(nodes.command), "--deadline", "0.1"]
    variables = {"GPUDIAG_FLEET_ENGINE": "slurm", "GPUDIAG_FLEET_GPUDIAG": "nowhere", "GPUDIAG_FLEET_DEADLINE": "0.1"}

    def resume(*more: str) -> dict[str, str]:
        done = gpudiag("fleet", "check", "--resume", "run", "--format", "json", *more, flags=(), **variables)
        return outcomes(json.loads(done.stdout))

    assert resume(*anew) == {"n1": "timed out"}
    nodes.runs("n1", 'echo "$REPORT"')
    assert resume() == {"n1": "no gpudiag"}, "what was given anew holds for one time"
    assert resume(*anew[:2], "--deadline", "60") == {"n1": "PASS"}


def test_nodes_that_did_not_pass_are_named_while_it_runs(gpudiag: Gpudiag, nodes: PreparedNodes) -> None:
    nodes.prints(" ".join(f"n{number}" for number in range(1, 61)), healthy())
    nodes.prints("n4 n10", unfit())
    _, _, errors = check(gpudiag, nodes, "n[1-60]", "--parallel", "4")
    lines = [line for line in errors.splitlines() if line.startswith("[")]
    assert {"n4", "n10"} <= {line.split()[1].rstrip(":") for line in lines}
    assert len(lines) <= 22
