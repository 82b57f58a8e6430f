"""The engine ``ssh`` on a real sshd: what each kind of node becomes in the report."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from fleets import PreparedNodes, framed, healthy, unfit
from sshd import Sshd

from conftest import Gpudiag
from gpudiag.fleet.engines.ssh import remote_command

pytestmark = pytest.mark.starts


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with Sshd(tmp_path_factory.mktemp("sshd")).running() as server:
        yield server


@pytest.fixture
def nodes(tmp_path: Path) -> PreparedNodes:
    return PreparedNodes(tmp_path / "nodes")


def words(server: Sshd, nodes: PreparedNodes, *names: str) -> list[str]:
    return ["fleet", "check", *names, *server.options, "--gpudiag", str(nodes.command), "-o", "run", "--format", "json"]


def rows(report: str) -> dict[str, tuple[str, str]]:
    """Return the reason or verdict of each node, and its text."""
    return {row["node"]: (row["reason"] or row["verdict"], row["text"]) for row in json.loads(report)["rows"]}


def test_every_way_in_which_a_node_has_no_report_has_its_reason(
    gpudiag: Gpudiag, server: Sshd, nodes: PreparedNodes
) -> None:
    nodes.prints("n1 n2", healthy())
    nodes.prints("n3", unfit())
    nodes.runs("n4", "exec sleep 60")  # a gpudiag that does not keep its deadline
    nodes.runs("n5", "kill -9 $(ps -o ppid= -p $(ps -o ppid= -p $PPID))")  # timeout, the shell, sshd
    nodes.runs("n6", "kill -9 $$")
    nodes.runs("n7", "exit 255")
    server.on_node("n8", "echo 'This account is currently not available.'; exit 1")
    server.on_node("n10", 'SSH_ORIGINAL_COMMAND="nothing of this name"')
    nodes.runs("n11", "exec no-such-gpudiag")
    done = gpudiag(
        *words(server, nodes, "n[1-8,10-11],gone,locked,stranger,silent"),
        *("--deadline", "3", "--parallel", "14", "--engine-option=-oConnectTimeout=2"),
    )
    found = rows(done.stdout)
    assert {name: reason for name, (reason, _) in found.items()} == {
        "n1": "PASS",
        "n2": "PASS",
        "n3": "FAIL",
        "n4": "timed out",
        "n5": "lost",
        "n6": "no answer",
        "n7": "no answer",
        "n8": "refused",
        "n10": "refused",
        "n11": "no gpudiag",
        "gone": "unreachable",
        "locked": "refused",
        "stranger": "refused",
        "silent": "unreachable",
    }, done.stderr
    assert "closed by remote host" in found["n5"][1] or "ended by" in found["n5"][1]
    assert "SIGKILL" in found["n6"][1] or "Killed" in found["n6"][1]
    assert "not available" in found["n8"][1]
    assert "not found" in found["n11"][1]
    assert "Connection refused" in found["gone"][1]
    assert "Permission denied" in found["locked"][1]
    assert "Host key verification failed" in found["stranger"][1]
    assert "timed out" in found["silent"][1]
    assert done.returncode == 1


def test_what_a_login_shell_prints_is_not_of_the_command(gpudiag: Gpudiag, server: Sshd, nodes: PreparedNodes) -> None:
    report = framed(healthy())
    nodes.prints("n21 n22 n23 n24 n25", healthy())
    server.on_node("n21", "echo 'Welcome to node 21!'; printf '\\033[31mmaintenance\\033[0m on Monday, '")
    server.on_node(
        "n22", "echo 'hook: loaded' >&2; trap 'echo bye; echo bye >&2' EXIT; sh -c \"$SSH_ORIGINAL_COMMAND\"; exit"
    )
    server.on_node("n23", "head -c 3000000 /dev/urandom; head -c 300000 /dev/urandom >&2")
    server.on_node("n24", f"echo '{framed(unfit()).strip()}'")
    server.on_node("n25", "yes | head -c 3000000")
    nodes.prints("n26", report + framed(unfit()))
    nodes.prints("n27", report[: len(report) // 2])
    nodes.runs("n28", "head -c 100000 /dev/urandom")
    nodes.runs("n29", "yes; true")
    done = gpudiag(*words(server, nodes, "n[21-29]"), "--parallel", "9")
    found = {name: reason for name, (reason, _) in rows(done.stdout).items()}
    assert found == dict.fromkeys(["n21", "n22", "n23", "n24", "n25"], "PASS") | {
        "n26": "duplicate",
        "n27": "cut short",
        "n28": "not a report",
        "n29": "not a report",
    }, done.stderr
    assert "wrote more than" in rows(done.stdout)["n29"][1]


def test_a_node_that_could_not_be_reached_is_asked_once_more(
    gpudiag: Gpudiag, server: Sshd, nodes: PreparedNodes, tmp_path: Path
) -> None:
    """A jump host that has too many connections closes some of them; the next attempt is let in."""
    nodes.prints("n1", healthy())
    proxy = tmp_path / "proxy"
    proxy.write_text(
        f"#!/bin/bash\necho attempt >> {tmp_path}/attempts\n"
        f"[ $(wc -l < {tmp_path}/attempts) -gt 1 ] || exit 1\n"
        f"exec 3<>/dev/tcp/127.0.0.1/{server.port}; cat <&3 & cat >&3; kill $!\n"
    )
    proxy.chmod(0o755)
    done = gpudiag(*words(server, nodes, "n1"), f"--engine-option=-oProxyCommand={proxy}")
    assert rows(done.stdout)["n1"][0] == "PASS", done.stderr
    assert (tmp_path / "attempts").read_text().count("attempt") == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_check_on_a_node_ends_with_the_collector(
    gpudiag: Gpudiag,
    server: Sshd,
    nodes: PreparedNodes,
    wait_until: Callable[[Callable[[], bool]], None],
    number: signal.Signals,
) -> None:
    nodes.runs("n31", f"echo $$ > {nodes.folder}/pid.new; mv {nodes.folder}/pid.new {nodes.folder}/pid; exec sleep 300")
    pid = nodes.folder / "pid"
    collector = gpudiag.start(*words(server, nodes, "n31"))
    wait_until(pid.exists)
    os.kill(collector.pid, number)
    out, _ = collector.communicate(timeout=60)
    wait_until(lambda: not psutil.pid_exists(int(pid.read_text())))
    if number == signal.SIGINT:
        assert rows(out)["n31"][0] == "interrupted"


def test_a_shared_connection_of_the_user_is_not_used(
    gpudiag: Gpudiag,
    server: Sshd,
    nodes: PreparedNodes,
    tmp_path: Path,
    wait_until: Callable[[Callable[[], bool]], None],
) -> None:
    """Its master would hold the session on the node after Ctrl-C."""
    config = tmp_path / "ssh_config"
    # The socket's path must be short.
    shared = "ControlMaster auto\nControlPersist 60\nControlPath /tmp/gpudiag-%C\n"
    config.write_text(f"{shared}Include {server.config}\n")
    nodes.runs("n32", f"echo $$ > {nodes.folder}/pid.new; mv {nodes.folder}/pid.new {nodes.folder}/pid; exec sleep 300")
    pid = nodes.folder / "pid"
    options = ("--engine", "ssh", f"--engine-option=-F{config}", "--engine-option=-oControlMaster=auto")
    collector = gpudiag.start("fleet", "check", "n32", *options, "--gpudiag", str(nodes.command), "-o", "run")
    wait_until(pid.exists)
    os.kill(collector.pid, signal.SIGINT)
    collector.communicate(timeout=60)
    wait_until(lambda: not psutil.pid_exists(int(pid.read_text())))
    master = ["ssh", "-F", str(config), "-O", "check", "n32"]
    assert subprocess.run(master, capture_output=True, check=False, timeout=60).returncode != 0


def test_fewer_nodes_are_asked_at_once_if_few_files_may_be_open(
    gpudiag: Gpudiag, server: Sshd, nodes: PreparedNodes
) -> None:
    log = nodes.folder / "log"
    nodes.runs("n1 n2 n3 n4 n5 n6", f"echo 1 >> {log}; sleep 2; echo -1 >> {log}; echo $REPORT")
    command = gpudiag.command(*words(server, nodes, "n[1-6]"))
    done = subprocess.run(
        ["sh", "-c", 'ulimit -n 76; exec "$@"', "sh", *command],
        cwd=gpudiag.folder,
        env=gpudiag.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert max(itertools.accumulate(map(int, log.read_text().split()))) <= 3


def test_a_run_with_a_name_that_the_file_lacks_can_go_on(
    gpudiag: Gpudiag, server: Sshd, nodes: PreparedNodes, tmp_path: Path
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("n1\n")
    nodes.runs("n1", "exit 1")
    first = gpudiag(*words(server, nodes, "n1,n2,n3"), "--hosts", str(hosts))
    assert {name: reason for name, (reason, _) in rows(first.stdout).items()} == {
        "n1": "no answer",
        "n2": "not usable",
        "n3": "not usable",
    }, first.stderr
    (nodes.folder / "n1.answer").unlink()
    nodes.prints("n1 n2", healthy())
    hosts.write_text("n1\nn2\n")
    again = gpudiag("fleet", "check", "--resume", "run", "--format", "json")
    assert {name: reason for name, (reason, _) in rows(again.stdout).items()} == {
        "n1": "PASS",
        "n2": "PASS",
        "n3": "not usable",
    }, again.stderr


SHELLS = [shell for shell in ("bash", "dash", "ksh", "zsh", "fish", "tcsh") if shutil.which(shell)]


@pytest.mark.parametrize("shell", ["sh", *SHELLS])
def test_shells_of_users_take_the_command(shell: str) -> None:
    words = ["printf", "%s|", "a b", "c'd", '"$e"', "f\\g", "", "*", "n1;exit"]
    done = subprocess.run([shell, "-c", remote_command(words)], capture_output=True, check=True, timeout=60, text=True)
    assert done.stdout == "gpudiag-fleet-begins\n" + "".join(f"{word}|" for word in words[2:]), done.stderr


def test_bad_options_and_names_are_refused_before_anything_starts(gpudiag: Gpudiag, server: Sshd) -> None:
    for arguments, message in {
        ("n1", "--engine-option=-oNoSuchOption=1"): "ssh cannot be used as it is configured",
        ("n1", "--engine-option=-F/no/such/file"): "ssh cannot be used as it is configured",
        ("n1,-oProxyCommand=x",): "cannot be the name of a node",
        ("n1;rm -rf x",): "cannot be the name of a node",
        ("root@n1",): "cannot be the name of a node",
        (): "which nodes",
    }.items():
        done = gpudiag("fleet", "check", *arguments, "--engine", "ssh", "-o", "run")
        assert done.returncode == 2, done.stderr
        assert message in done.stderr
        assert not (gpudiag.folder / "run").exists()


def test_without_ssh_its_package_is_named(gpudiag: Gpudiag) -> None:
    done = gpudiag("fleet", "check", "n1", "--engine", "ssh", "-o", "run", PATH="")
    assert done.returncode == 2
    assert "openssh-client" in done.stderr
