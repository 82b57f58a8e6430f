"""Nodes that train together: real processes with TensorFlow on this machine, and what they say of each other."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil
import pytest
from slurm_cluster import Cluster

from gpudiag.errors import UsageError
from gpudiag.fleet import engines
from gpudiag.fleet.together import blame
from gpudiag.fleet.together.judging import judge
from gpudiag.fleet.together.meeting import Meeting
from gpudiag.fleet.together.member import accused
from gpudiag.fleet.together.planning import addresses_in, packed, planned, unpacked
from gpudiag.fleet.together.surroundings import proxy, variables, without_passwords
from gpudiag.model.fleet import EngineOptions, FleetReport, NodeVerdict
from gpudiag.model.report import Verdict
from gpudiag.model.together import NOT_TRIED, Peer, Place, Stage, Sum, Task, Witness

WAIT_S = 240.0
GPUDIAG = f"{sys.executable} -m gpudiag"


def free_ports(number: int) -> int:
    """Return the first of so many ports that are free one after the other, apart from those of other workers."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    for first in range(23000 + 500 * worker, 23500 + 500 * worker, 10):
        try:
            for port in range(first, first + number):
                with socket.create_server(("", port)):
                    pass
        except OSError:
            continue
        return first
    raise AssertionError("no port is free")


@contextmanager
def fleet_check(
    tmp_path: Path, nodes: str, port: int, *more: str, gpudiag: str = GPUDIAG
) -> Iterator[subprocess.Popen[str]]:
    """Start a fleet check of nodes that train together on this machine."""
    engine = () if "--engine" in more else ("--engine", "local")
    command = [sys.executable, "-m", "gpudiag", "fleet", "check", nodes, *engine, "--together"]
    command += ["--port", str(port), "-o", str(tmp_path / "run"), "--gpudiag", gpudiag, "--format", "json", *more]
    environ = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()


def report_of(process: subprocess.Popen[str]) -> FleetReport:
    output, errors = process.communicate(timeout=WAIT_S)
    assert output, errors
    return msgspec.json.decode(output, type=FleetReport)


def trainer_on(process: subprocess.Popen[str], port: int) -> psutil.Process:
    """Wait until TensorFlow listens on a port of this machine, and return its process. It leads a session; gpudiag on a
    node, which listens there before, does not."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        assert process.poll() is None, process.communicate()
        for other in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if os.getsid(other.pid) == other.pid and "member" in other.cmdline() and _listens(other, port):
                    return other
        time.sleep(0.1)
    raise AssertionError("TensorFlow does not listen")


def _listens(process: psutil.Process, port: int) -> bool:
    connections = process.net_connections("tcp")
    return any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in connections)


def verdicts(report: FleetReport) -> dict[str, NodeVerdict]:
    return {row.node: row.verdict for row in report.rows}


@pytest.mark.starts
def test_two_nodes_add_right(tmp_path: Path) -> None:
    port = free_ports(2)
    simulated = f"{GPUDIAG} simulate 2 -- {GPUDIAG}"
    with fleet_check(tmp_path, "n[1-2]", port, gpudiag=simulated) as process:
        report = report_of(process)
    assert verdicts(report) == {"n1": NodeVerdict.PASS, "n2": NodeVerdict.PASS}
    assert report.exit_code == 0
    assert report.together is not None
    assert report.together.verdict == "PASS"
    assert [place.target for place in report.together.places] == [f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"]
    assert [total.bytes for total in report.together.sums] == [total.bytes for total in report.together.alone]
    assert all(total.wrong == 0 and total.devices == ("GPU:0", "GPU:1") for total in report.together.sums)


@pytest.mark.starts
def test_a_node_that_adds_wrong_values_is_told_from_those_that_get_the_wrong_sum(tmp_path: Path) -> None:
    port = free_ports(2)
    command = tmp_path / "gpudiag-on-node"
    command.write_text(
        "#!/bin/sh\n"
        'case " $* " in *" n2 "*) fault="--fault memory_corrupted=60";; esac\n'  # after it has added alone
        f'exec {GPUDIAG} simulate 1 $fault -- {GPUDIAG} "$@"\n'
    )
    command.chmod(0o755)
    with fleet_check(tmp_path, "n[1-2]", port, "--times", "40", gpudiag=str(command)) as process:
        report = report_of(process)
    assert {row.node: (row.verdict, row.label) for row in report.rows} == {
        "n1": (NodeVerdict.NOT_VERIFIED, "together.others_wrong"),
        "n2": (NodeVerdict.FAIL, "together.wrong_sum"),
    }
    assert "what this node added is right" in report.rows[0].text
    assert report.together is not None
    assert [each.nodes for each in report.together.blames] == [("n2",)]


@pytest.mark.starts
def test_a_port_that_is_taken(tmp_path: Path) -> None:
    """Nobody waits for the node: all know within seconds why it does not come."""
    port = free_ports(3)
    with socket.create_server(("", port + 1)), fleet_check(tmp_path, "n[1-3]", port, "--wait", "200") as process:
        report = report_of(process)
    assert verdicts(report) == {
        "n1": NodeVerdict.NOT_VERIFIED,
        "n2": NodeVerdict.FAIL,
        "n3": NodeVerdict.NOT_VERIFIED,
    }
    rows = {row.node: row for row in report.rows}
    assert rows["n2"].label == "together.port_taken"
    assert f"port {port + 1} is taken by process {os.getpid()}" in rows["n2"].text
    assert f"n2: port {port + 1} is taken" in rows["n1"].text
    assert report.exit_code == 1
    assert report.together is not None
    assert [each.nodes for each in report.together.blames] == [("n2",)]


@pytest.mark.starts
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_ends_or_stops(tmp_path: Path, number: signal.Signals) -> None:
    port = free_ports(3)
    with fleet_check(tmp_path, "n[1-3]", port, "--times", "100000") as process:
        trainer = trainer_on(process, port + 1)
        time.sleep(8)  # in the middle of an exchange, which no file says; earlier is a node that left as they connect
        trainer.send_signal(number)
        report = report_of(process)
    assert report.together is not None
    (guilty,) = report.together.blames
    assert guilty.nodes == ("n2",)
    accusers = {line.partition(",")[0] for line in guilty.evidence}
    assert accusers  # a survivor may end before TensorFlow tells it who left
    assert accusers <= {"n1", "n3"}
    assert verdicts(report)["n2"] is NodeVerdict.FAIL
    assert verdicts(report)["n1"] is NodeVerdict.NOT_VERIFIED
    assert ("SIGKILL" if number is signal.SIGKILL else "is stopped") in guilty.why
    assert report.exit_code == 1


@pytest.mark.starts
@pytest.mark.slow
def test_a_node_that_can_be_reached_by_nobody(tmp_path: Path) -> None:
    """It connects to the others itself, so that they know that it is there, and do not wait for it to start."""
    port = free_ports(3)
    addresses = tmp_path / "addresses"
    addresses.write_text("n1: 127.0.0.1\nn2: 127.0.0.1\nn3: 127.255.255.255\n")
    with fleet_check(tmp_path, "n[1-3]", port, "--addresses", str(addresses), "--wait", "200") as process:
        report = report_of(process)
    assert report.together is not None
    (guilty,) = report.together.blames
    assert guilty.nodes == ("n3",)
    assert len(guilty.evidence) == 2
    assert f"n1 (from 127.0.0.1 (lo)) to 127.255.255.255:{port + 2}: " in guilty.evidence[0]
    assert report.exit_code == 1


@pytest.mark.starts
@pytest.mark.slow
def test_a_proxy_that_grpc_takes(tmp_path: Path) -> None:
    port = free_ports(2)
    own = f"env http_proxy=http://127.0.0.1:9 {GPUDIAG}"
    with fleet_check(tmp_path, "n[1-2]", port, gpudiag=own) as process:
        report = report_of(process)
    assert report.together is not None
    assert "http_proxy=http://127.0.0.1:9" in report.together.blames[0].why
    assert report.together.blames[0].fix[0].command == "export no_grpc_proxy=127.0.0.1"


TASK = Task("r", tuple(Place(f"n{number}", f"10.0.0.{number}", 22220) for number in (1, 2, 3)), 60.0)
RIGHT = tuple(Sum("RING", size, 0.01, 0, ("GPU:0",)) for size in (4096, 1 << 20))


def witness(number: int, stage: Stage, **more: object) -> Witness:
    common: dict[str, object] = {"models": ("A GPU",), "planned": 18, "met_at": (100.0, 160.0)}
    return Witness(f"n{number}", number - 1, stage, **{**common, **more})  # type: ignore[arg-type]


def blamed(*witnesses: Witness, **missing: str) -> list[tuple[str, ...]]:
    found = blame.together(TASK, {each.node: each for each in witnesses}, missing)
    return [each.nodes for each in found.blames]


def test_a_connection_that_is_blocked_is_the_fault_of_both() -> None:
    fault = "cannot connect to n2 at 10.0.0.2:22220: no answer in 3 s"
    one = witness(
        1, Stage.MEETING, fault=fault, kind="cannot_connect", peers=(Peer("n2", "no answer in 3 s", heard=True),)
    )
    others = (witness(2, Stage.MEETING, told={"n1": fault}), witness(3, Stage.MEETING, told={"n1": fault}))
    assert blamed(one, *others) == [("n1", "n2")]


def test_a_node_that_reaches_nobody_is_blamed_alone() -> None:
    refused = "Connection refused"
    silent = (Peer("n2", refused, heard=False), Peer("n3", refused, heard=False))
    of_first = (Peer("n1", refused, heard=False),)
    assert blamed(
        witness(1, Stage.MEETING, peers=silent),
        witness(2, Stage.MEETING, peers=of_first),
        witness(3, Stage.MEETING, peers=of_first),
    ) == [("n1",)]


def test_a_node_that_began_late_is_not_a_blocked_connection() -> None:
    silent = (Peer("n3", "Connection refused", heard=False),)
    late = witness(
        3,
        Stage.MEETING,
        peers=tuple(Peer(name, "Connection refused", heard=False) for name in ("n1", "n2")),
        met_at=(200.0, 260.0),
    )
    found = blame.together(
        TASK,
        {
            "n1": witness(1, Stage.MEETING, peers=silent),
            "n2": witness(2, Stage.MEETING, peers=silent),
            "n3": late,
        },
        {},
    )
    assert [each.why for each in found.blames] == ["began 40 s after the others had given up"]


def test_a_node_whose_clock_is_ahead_is_not_late_if_another_node_heard_of_it() -> None:
    refused = "Connection refused"
    one = witness(1, Stage.MEETING, peers=(Peer("n3", refused, heard=False),))
    three = witness(3, Stage.MEETING, peers=(Peer("n1", refused, heard=False),), met_at=(200.0, 260.0))
    assert blamed(one, witness(2, Stage.MEETING), three) == []


def test_a_connection_that_was_not_tried_to_the_end_is_not_blocked() -> None:
    """The waiting was cut short by the fault of a node whose report was lost."""
    told = {"n2": "port 22220 is taken by process 7 (nc)"}
    one = witness(1, Stage.MEETING, told=told, peers=(Peer("n3", "Connection refused", heard=False),))
    three = witness(3, Stage.MEETING, told=told)
    found = blame.together(TASK, {"n1": one, "n3": three}, {"n2": "lost"})
    assert [each.nodes for each in found.blames] == [("n2",)]
    assert found.blames[0].evidence[0] == f"n1 heard of it: {told['n2']}"
    assert (
        blamed(
            witness(1, Stage.MEETING, peers=(Peer("n3", NOT_TRIED, heard=False),)),
            witness(2, Stage.MEETING),
            witness(3, Stage.MEETING),
        )
        == []
    )
    late = witness(3, Stage.MEETING, met_at=(155.0, 215.0))
    refused = witness(1, Stage.MEETING, peers=(Peer("n3", "Connection refused", heard=False),))
    assert blamed(refused, witness(2, Stage.MEETING), late) == []


def test_a_try_that_the_end_of_the_waiting_cuts_short_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        places = (Place("n1", "127.0.0.1", 1), Place("n2", "127.0.0.1", silent.getsockname()[1]))
        meeting = Meeting(Task("r", places, 60.0), 0)
        asyncio.run(meeting.hold(lambda: 0.0))
        assert [peer.answer for peer in meeting.unanswered()] == [NOT_TRIED]


def test_nodes_that_end_as_a_consequence_are_not_blamed() -> None:
    """The first to fail is named first in an error that is handed on; a node without a report is blamed."""
    errors = {"error": "UnavailableError: Socket closed", "begun": 4, "ready": 4}
    one = witness(1, Stage.SUMS, accused=("n3", "n2"), **errors)
    two = witness(2, Stage.SUMS, accused=("n3",), **errors)
    assert blamed(one, two, n3="lost") == [("n3",)]
    assert blamed(one, two, witness(3, Stage.SUMS, error="killed by SIGSEGV", begun=4, ready=4)) == [("n3",)]
    assert blamed(one, two, witness(3, Stage.SUMS, error="nothing", by_limit=True, begun=4, ready=3)) == [("n3",)]


def test_a_node_whose_gpu_hangs_is_the_one_that_was_not_ready() -> None:
    waits = {"by_limit": True, "error": "nothing happened for 20 s", "begun": 7}
    assert blamed(
        witness(1, Stage.SUMS, ready=7, **waits),
        witness(2, Stage.SUMS, ready=6, **waits),
        witness(3, Stage.SUMS, ready=7, **waits),
    ) == [("n2",)]


def test_a_node_whose_report_is_lost_is_blamed_only_if_others_name_it_or_nothing_else_explains() -> None:
    done = [witness(number, Stage.DONE, sums=RIGHT) for number in (1, 2)]
    found = blame.together(TASK, {each.node: each for each in done}, {"n3": "lost"})
    assert (found.verdict, found.blames) == ("NOT VERIFIED", ())
    assert found.text == "2 of 3 nodes added to the end; no report of n3"
    port = witness(1, Stage.PORT, fault="port 22220 is taken", kind="port_taken")
    assert blamed(port, witness(2, Stage.MEETING, told={"n1": port.fault}), n3="lost") == [("n1",)]
    waits = {"by_limit": True, "error": "nothing happened for 20 s", "begun": 7, "ready": 7}
    assert blamed(witness(1, Stage.SUMS, **waits), witness(2, Stage.SUMS, **waits), n3="lost") == [("n3",)]


def test_a_node_is_not_blamed_for_what_one_without_a_report_may_have_done() -> None:
    ended = witness(1, Stage.SUMS, error="UnavailableError: Socket closed", begun=6, ready=6)
    waits = witness(2, Stage.SUMS, error="nothing happened for 20 s", by_limit=True, begun=7, ready=7)
    assert blamed(ended, waits, n3="lost") == [("n3",)]
    fault = "cannot connect to n3 at 10.0.0.3:22220: no answer in 3 s"
    one = witness(
        1, Stage.MEETING, fault=fault, kind="cannot_connect", peers=(Peer("n3", "no answer in 3 s", heard=True),)
    )
    assert blamed(one, witness(2, Stage.MEETING, told={"n1": fault}), n3="lost") == [("n3",)]


def test_wrong_sums_of_right_values() -> None:
    wrong = (Sum("RING", 4096, 0.01, 3, ("GPU:0",)),)
    first = witness(1, Stage.DONE, sums=wrong)
    assert judge(first, TASK)[:2] == (Verdict.NOT_VERIFIED, "others_wrong")
    others = [witness(number, Stage.DONE, sums=RIGHT) for number in (2, 3)]
    assert blamed(first, *others) == [("n1",)]
    assert blamed(first, others[0], n3="lost") == []  # it may have added wrong values


def test_nobody_stands_out() -> None:
    waits = {"by_limit": True, "error": "nothing happened for 20 s", "begun": 7, "ready": 7}
    found = blame.together(TASK, {f"n{number}": witness(number, Stage.SUMS, **waits) for number in (1, 2, 3)}, {})
    assert (found.verdict, found.blames) == ("NOT VERIFIED", ())


def test_nccl_that_fails_where_grpc_works() -> None:
    log = ("NCCL INFO Bootstrap: Using docker0:172.17.0.1<0>",)
    failed = {"sums": RIGHT, "begun": 10, "ready": 10, "ended": 9, "log": log, "route": "10.0.0.1 (eth1)"}
    errors = {"error": "InternalError: NCCL: unhandled system error", "accused": ()}
    found = blame.together(
        TASK,
        {f"n{number}": witness(number, Stage.SUMS, **failed, **errors) for number in (1, 2, 3)},
        {},
    )
    (failure,) = found.blames
    assert failure.nodes == ("n1", "n2", "n3")
    assert failure.evidence[0] == "n1: Bootstrap: Using docker0:172.17.0.1<0>"
    assert failure.fix[0].command == "export NCCL_SOCKET_IFNAME=eth1"


@pytest.mark.parametrize(
    "third",
    [
        None,
        {"error": "killed by SIGSEGV\nE NCCL"},
        {"error": "InternalError: CUDA_ERROR_ILLEGAL_ADDRESS"},
        {"sums": ()},
        {"begun": 9},
    ],
)
def test_nccl_is_not_to_blame_if_not_all_nodes_say_so(third: dict[str, object] | None) -> None:
    failed = {"sums": RIGHT, "begun": 10, "ready": 10, "error": "InternalError: NCCL: unhandled system error"}
    seen = {f"n{number}": witness(number, Stage.SUMS, **failed) for number in (1, 2)}
    if third is not None:
        seen["n3"] = witness(3, Stage.SUMS, **{**failed, **third})
    found = blame.together(TASK, seen, {} if third else {"n3": "lost"})
    assert not any("NCCL fails" in each.why for each in found.blames)


def test_nccl_is_not_to_blame_if_it_was_not_used() -> None:
    """On simulated GPUs all exchanges are by gRPC: the second half of them is not NCCL's."""
    waits = {"sums": RIGHT, "planned": 9, "begun": 8, "ready": 8, "by_limit": True, "error": "nothing happened"}
    assert blamed(*(witness(number, Stage.SUMS, **waits) for number in (1, 2, 3))) == []


PROXY = "http://10.9.9.9:3128"


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"http_proxy": PROXY}, "http_proxy"),
        ({"HTTP_PROXY": PROXY}, ""),
        ({"http_proxy": "HTTP://me:secret@10.9.9.9:3128"}, "http_proxy"),
        ({"http_proxy": "10.9.9.9:3128"}, ""),
        ({"http_proxy": "http://me@"}, ""),
        ({"https_proxy": "https://10.9.9.9:3128", "http_proxy": PROXY}, ""),
        ({"grpc_proxy": "", "http_proxy": PROXY}, ""),
        ({"http_proxy": PROXY, "no_proxy": "localhost, 10.0.0.0/24"}, ""),
        ({"http_proxy": PROXY, "no_proxy": "10.0.0.2,0.3"}, ""),
        ({"http_proxy": PROXY, "no_proxy": "10.0.0.2"}, "http_proxy"),
        ({"http_proxy": PROXY, "no_proxy": "10.0.0.*,10.0.0.0/255.255.255.0"}, "http_proxy"),
        ({"http_proxy": PROXY, "no_proxy": "10.0.0.0/24", "no_grpc_proxy": ""}, "http_proxy"),
    ],
)
def test_grpc_decides_whether_a_proxy_is_taken(environ: dict[str, str], name: str) -> None:
    assert proxy(["10.0.0.2", "10.0.0.3"], environ) == name


def test_only_a_proxy_that_grpc_takes_is_to_blame() -> None:
    waits = {"by_limit": True, "error": "nothing happened for 20 s", "variables": {"http_proxy": PROXY}}
    assert blamed(*(witness(number, Stage.CLUSTER, **waits) for number in (1, 2, 3))) == []
    by_first = witness(1, Stage.CLUSTER, proxy="http_proxy", **waits)
    others = [witness(number, Stage.CLUSTER, **waits) for number in (2, 3)]
    assert blamed(by_first, *others) == [("n1",)]
    left = {"accused": ("n3",), "error": "TensorFlow does not listen at 10.0.0.3:22220: Connection refused"}
    by_first = witness(1, Stage.CLUSTER, proxy="http_proxy", **{**waits, **left, "by_limit": False})
    ended = witness(3, Stage.CLUSTER, error="killed by SIGSEGV")
    assert blamed(by_first, others[0], ended) == [("n3",)]


@pytest.mark.parametrize("value", ["me:secret@proxy:3128", "http://me:sec/ret@proxy:3128", "http://me:s@secret@proxy"])
def test_passwords_of_proxies_do_not_leave_the_node(value: str) -> None:
    environ = {"http_proxy": value}
    assert "secret" not in without_passwords(f"E cannot parse 'authority' from uri '{value}'", environ)
    kept = variables(environ)["http_proxy"]
    assert "...@proxy" in kept
    assert not any(word in kept for word in ("secret", "sec/ret", "me:"))


def test_addresses_in_errors_are_found_as_grpc_writes_them() -> None:
    places = (
        Place("a", "::1", 22220),
        Place("b", "fd00::2", 22220),
        Place("c", "n1", 22220),
        Place("d", "x-n1", 22220),
    )
    assert accused("failed to connect to ipv6:%5Bfd00::2%5D:22220: refused", places, 0) == ("b",)
    assert accused("failed to connect to dns:///x-n1:22220: refused", places, 0) == ("d",)
    assert accused("failed to connect to n1:222201: refused", places, 0) == ()


def test_gpus_that_are_not_as_many_everywhere() -> None:
    counts = {"n1": 8, "n2": 7, "n3": 8}
    found = [
        witness(number, Stage.MEETING, unlike=counts, models=("A GPU",) * counts[f"n{number}"]) for number in (1, 2, 3)
    ]
    assert blamed(*found) == [("n2",)]


def test_a_task_travels_as_a_word() -> None:
    assert unpacked(packed(TASK)) == TASK
    with pytest.raises(UsageError, match="cannot be read"):
        unpacked("x")


def test_ports_differ_on_one_address() -> None:
    task = planned("r", ["a", "b", "c"], {"a": "10.0.0.1", "b": "10.0.0.1"}, 22220, 60.0)
    assert [place.target for place in task.places] == ["10.0.0.1:22220", "10.0.0.1:22221", "c:22220"]
    loopback = planned("r", ["a", "b"], {"a": "127.0.0.2", "b": "127.0.0.3"}, 22220, 60.0)
    assert [place.port for place in loopback.places] == [22220, 22221]
    with pytest.raises(UsageError, match="two nodes"):
        planned("r", ["a"], {}, 22220, 60.0)
    with pytest.raises(UsageError, match="too high"):
        planned("r", ["a", "b"], {"a": "x", "b": "x"}, 65535, 60.0)


def test_addresses_of_the_user(tmp_path: Path) -> None:
    assert addresses_in("{node}-ib0", ["n1"]) == {"n1": "n1-ib0"}
    file = tmp_path / "addresses"
    file.write_text("n1: 10.0.0.1  # first\nn2: fd00::2\n")
    assert addresses_in(str(file), ["n1", "n2"]) == {"n1": "10.0.0.1", "n2": "fd00::2"}
    with pytest.raises(UsageError, match="has no address of n3"):
        addresses_in(str(file), ["n3"])
    with pytest.raises(UsageError, match="neither a file nor a pattern"):
        addresses_in("eth0", ["n1"])


@pytest.mark.starts
def test_ssh_knows_the_address_of_a_node(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("Host n1\n HostName 10.0.0.1\nHost n2\n HostName fd00::2\n")
    engine = engines.made("ssh", EngineOptions(("-F", str(file))))
    assert isinstance(engine, engines.AddressedEngine)
    expected = {"n1": "10.0.0.1", "n2": "fd00::2", "n3": "n3"}
    assert asyncio.run(engine.addresses(["n1", "n2", "n3"])) == expected


@pytest.mark.starts
@pytest.mark.slow
def test_a_node_of_slurm_that_dies_is_named_by_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(3)
    try:
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        port = free_ports(3)
        options = ("--engine", "slurm", "--times", "100000", "--deadline", "150")
        with fleet_check(tmp_path, "n[1-3]", port, *options) as process:
            trainer_on(process, port + 1)
            time.sleep(8)
            cluster.lose("n2")
            report = report_of(process)
    finally:
        cluster.close()
    assert verdicts(report)["n2"] is NodeVerdict.NO_REPORT
    assert report.together is not None
    (guilty,) = report.together.blames
    assert guilty.nodes == ("n2",)
    accusers = {line.partition(",")[0] for line in guilty.evidence}
    assert accusers
    assert accusers <= {"n1", "n3"}
    assert report.exit_code == 1
