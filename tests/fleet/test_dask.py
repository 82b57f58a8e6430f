"""The engine ``dask`` on a real cluster of processes, whose workers have no gpudiag."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from dask_cluster import Dask
from fleets import PreparedNodes, healthy, unfit

from conftest import Gpudiag
from gpudiag.fleet.engines.dask import Engine, _machine_and_mask, _unmasked
from gpudiag.model.fleet import EngineOptions, NoReport

pytestmark = pytest.mark.starts

WORKERS = {f"{name}-1": f"127.0.0.{number}" for number, name in enumerate("abcdefg", 2)}
MASKS = {"a-1": "1,0", "a-2": "0,1,2,10", "b-1": "3", "b-2": "3"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dask]:
    with Dask(tmp_path_factory.mktemp("dask")).running() as cluster:
        workers = {**WORKERS, "a-2": WORKERS["a-1"], "b-2": WORKERS["b-1"]}
        cluster.start_workers(workers, {name: {"CUDA_VISIBLE_DEVICES": mask} for name, mask in MASKS.items()})
        yield cluster


@pytest.fixture
def nodes(tmp_path: Path) -> PreparedNodes:
    return PreparedNodes(tmp_path / "nodes")


def words(cluster: Dask, nodes: PreparedNodes, *names: str) -> tuple[list[str], list[str]]:
    """Return the arguments before and after ``--``."""
    before = ["fleet", "check", *names, "--engine", "dask", "--address", str(cluster.file), "-o", "run"]
    return [*before, "--gpudiag", str(nodes.command), "--format", "json"], ["--", "node={node}"]


def rows(report: str) -> dict[str, tuple[str, str]]:
    return {row["node"]: (row["reason"] or row["verdict"], row["text"]) for row in json.loads(report)["rows"]}


def test_one_worker_of_each_host_checks_it_and_each_loss_has_its_reason(
    gpudiag: Gpudiag, cluster: Dask, nodes: PreparedNodes, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    seen = nodes.folder / "mask"
    nodes.runs("127.0.0.2", f'echo "$CUDA_VISIBLE_DEVICES" > {seen}; echo "$REPORT"')
    nodes.prints("127.0.0.3", unfit())
    nodes.runs("127.0.0.4", "exec sleep 60")
    nodes.prints("127.0.0.5", "no report")
    nodes.runs("127.0.0.6", f"echo $$ > {nodes.folder}/pid; exec sleep 60")
    nodes.prints("127.0.0.7", healthy())
    nodes.runs("127.0.0.8", "exec cat")
    cluster.workers["f-1"].send_signal(signal.SIGSTOP)
    before, after = words(cluster, nodes)
    collector = gpudiag.start(*before, "--deadline", "15", *after)
    wait_until((nodes.folder / "pid").exists)
    cluster.workers["e-1"].kill()
    out, errors = collector.communicate(timeout=200)
    found = rows(out)
    assert {name: reason for name, (reason, _) in found.items()} == {
        "127.0.0.2": "PASS",
        "127.0.0.3": "FAIL",
        "127.0.0.4": "timed out",
        "127.0.0.5": "not a report",
        "127.0.0.6": "lost",
        "127.0.0.7": "no answer",  # a frozen worker
        "127.0.0.8": "no answer",
    }, errors
    assert seen.read_text() == "0,1,2,10\n"
    assert "has not answered within" in found["127.0.0.7"][1]
    cluster.workers["f-1"].send_signal(signal.SIGCONT)


@pytest.mark.parametrize(
    ("masks", "expected"),
    [
        ([None], []),
        (["7"], []),
        (["", ""], []),
        (["1,0", "0,1"], ["env", "CUDA_VISIBLE_DEVICES=0,1"]),
        (["2", "10", "0"], ["env", "CUDA_VISIBLE_DEVICES=0,2,10"]),
        (["0", None], ["env", "-u", "CUDA_VISIBLE_DEVICES"]),
        (["GPU-b", "GPU-a,GPU-b"], ["env", "CUDA_VISIBLE_DEVICES=GPU-b,GPU-a"]),
        (["", "1"], ["env", "CUDA_VISIBLE_DEVICES=1"]),
    ],
)
def test_a_check_gets_the_gpus_that_the_workers_of_its_host_have_together(
    masks: list[str | None], expected: list[str]
) -> None:
    assert _unmasked(masks) == expected


def test_a_collector_that_is_stopped_ends_the_check_on_its_worker(
    gpudiag: Gpudiag, cluster: Dask, nodes: PreparedNodes, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    pid = nodes.folder / "pid"
    nodes.runs("g-1", f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 300")
    before, after = words(cluster, nodes, "g-1", "nobody")
    collector = gpudiag.start(*before, *after)
    wait_until(pid.exists)
    collector.send_signal(signal.SIGINT)
    out, errors = collector.communicate(timeout=60)
    wait_until(lambda: not psutil.pid_exists(int(pid.read_text())))
    assert {name: reason for name, (reason, _) in rows(out).items()} == {
        "g-1": "interrupted",
        "nobody": "not usable",
    }, errors


def test_a_worker_needs_no_gpudiag(gpudiag: Gpudiag, nodes: PreparedNodes, tmp_path: Path) -> None:
    """What is imported there is refused: the function must come by value, and nothing of gpudiag with it."""
    refusal = tmp_path / "refusal.py"
    refusal.write_text(
        "import sys\nclass Refusal:\n    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('gpudiag', 'tensorflow'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}')\nsys.meta_path.insert(0, Refusal())\n"
    )
    (tmp_path / "cluster").mkdir()
    with Dask(tmp_path / "cluster").running() as cluster:
        cluster.start_workers({"0": "127.0.0.2"}, {"0": {"DASK_DISTRIBUTED__WORKER__PRELOAD": f'["{refusal}"]'}})
        nodes.prints("127.0.0.2", healthy())
        before, after = words(cluster, nodes)
        done = gpudiag(*before, *after)
    assert {name: reason for name, (reason, _) in rows(done.stdout).items()} == {"127.0.0.2": "PASS"}, done.stderr


def test_a_scheduler_that_does_not_answer_is_named(gpudiag: Gpudiag, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{}")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{nobody.getsockname()[1]}"
        for words_, message in {
            (): "which scheduler",
            ("--address", "missing.json"): "cannot be read",
            ("--address", "broken.json"): "is not the file of a Dask scheduler",
            ("--address", address): "does not answer",
            ("--address", "what://127.0.0.1:1"): "does not answer",
        }.items():
            done = gpudiag("fleet", "check", "--engine", "dask", "-o", "run", *words_)
            assert done.returncode == 2, done.stderr
            assert message in done.stderr
            assert "Traceback" not in done.stderr


def test_a_scheduler_without_workers_is_no_fleet(gpudiag: Gpudiag, nodes: PreparedNodes, tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    with Dask(tmp_path / "cluster").running() as cluster:
        before, _ = words(cluster, nodes)
        done = gpudiag(*before)
    assert (done.returncode, "has no workers" in done.stderr) == (2, True)


def test_without_distributed_its_package_is_named(gpudiag: Gpudiag) -> None:
    done = gpudiag.without("distributed")("fleet", "check", "--engine", "dask", "--address", "tcp://x:1", "-o", "run")
    assert (done.returncode, "pip install distributed" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("node", "reason", "command"),
    [
        ("tunnel", NoReport.NOT_USABLE, None),
        ("a-1", None, ["env", "CUDA_VISIBLE_DEVICES=0,1", "gpudiag"]),
        ("b-1", None, ["gpudiag"]),
    ],
)
def test_workers_of_several_machines_behind_one_address_are_no_node(
    node: str, reason: NoReport | None, command: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the workers say of themselves is made up here: it takes machines with other names."""
    workers = {"a-1": ("m1", "1"), "a-2": ("m1", "0"), "b-1": ("m2", "0")}
    engine = Engine(EngineOptions(address="tcp://127.0.0.1:1"))
    engine._take({name: {"host": "tunnel", "name": name} for name in workers})
    asked = []

    async def call(worker: str, limit_s: float, function: object, *arguments: object) -> object:
        if function is _machine_and_mask:
            return workers[worker]
        asked.append((worker, arguments[1]))
        return 0, b"", "", 0.1, ""

    monkeypatch.setattr(engine, "_call", call)
    done = asyncio.run(engine.run(node, ["gpudiag"], 5))
    assert done.reason is reason
    assert asked == ([] if command is None else [(node, command)])
    assert reason is None or done.errors == "its workers are on m1 and m2; give the names of workers, one on each"
