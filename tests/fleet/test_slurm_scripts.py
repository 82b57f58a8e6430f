"""The scripts that Slurm calls, and the one that users submit: each as the manual prints it, called by a real Slurm."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_cluster import Cluster, SlurmFleet, texts, verdicts

from conftest import Gpudiag
from gpudiag import docs

pytestmark = pytest.mark.starts

CHECK = """\
#!/bin/sh
cat {root}/label-$SLURMD_NODENAME
case $(cat {root}/label-$SLURMD_NODENAME) in PASS) exit 0 ;; FAIL*) exit 1 ;; *) exit 5 ;; esac
"""
"""In the place of gpudiag: prints what a test wrote for the node."""
HEALTH = "HealthCheckProgram={root}/health-check\nHealthCheckInterval=3\nHealthCheckNodeState=ANY"
"""A resumed node is idle after the next ping, for which a check in each second leaves no time."""


def script(name: str) -> str:
    """Return a file of the manual, changed as it says: where gpudiag, the reports and slurm.conf are."""
    text = docs.file([f"slurm-{name}.sh"])
    assert text
    for old, new in (
        ("/opt/gpudiag/bin", "{root}/bin"),
        ("/var/log/gpudiag", "{root}/log"),
        ("# If slurm.conf is not where Slurm looks for it: export", "export"),
        ("/path/of/slurm.conf", "{root}/slurm.conf"),
    ):
        text = text.replace(old, new)
    return text


def installed() -> list[str]:
    """Return how the command is started that is installed here."""
    return [str(Path(sys.executable).with_name("gpudiag"))]


def tell(cluster: Cluster, label: str, *nodes: str) -> None:
    """Let the check on these nodes print a label."""
    for node in nodes or cluster.nodes:
        file = cluster.root / f"label-{node}"
        file.with_suffix(".new").write_text(f"{label}\n")
        file.with_suffix(".new").rename(file)


@pytest.fixture
def watched() -> Iterator[Cluster]:
    files = {"health-check": script("health-check"), "bin/gpudiag": CHECK, **{f"label-n{n}": "" for n in range(1, 5)}}
    cluster = Cluster(4, HEALTH, files=files)
    yield cluster
    cluster.close()


def test_the_health_check_drains_and_resumes_only_its_own(watched: Cluster) -> None:
    others = {"n2": "a bad fan | says Ann", "n3": "gpudiag: FAIL load.gpus.wrong (epilog)"}
    tell(watched, "NOT VERIFIED")
    for node, reason in others.items():
        watched.drain(node, reason)
    tell(watched, "FAIL mask_hides_all")
    watched.wait(lambda: watched.states()["n1"] == "drained", "n1 is not drained")
    watched.wait(lambda: watched.states()["n4"] == "drained", "n4 is not drained")
    assert watched.reason("n1") == "gpudiag: FAIL mask_hides_all (health check)"
    tell(watched, "FAIL driver_mismatch", "n1")
    watched.wait(lambda: "driver_mismatch" in watched.reason("n1"), "the reason stays")
    tell(watched, "PASS")
    watched.wait(lambda: watched.states()["n1"] == watched.states()["n4"] == "idle", "they are not resumed")
    assert {node: watched.reason(node) for node in others} == others
    assert {watched.states()[node] for node in others} == {"drained"}


@pytest.fixture
def guarded() -> Iterator[Cluster]:
    extra = "PrologFlags=Alloc\nProlog={root}/prolog\nEpilog={root}/epilog"
    files = {"prolog": script("prolog"), "epilog": script("epilog"), "bin/gpudiag": CHECK}
    cluster = Cluster(3, extra, files=files)
    tell(cluster, "PASS")
    yield cluster
    cluster.close()


def test_a_prolog_that_finds_a_fault_drains_the_node_and_its_job_does_not_start(guarded: Cluster) -> None:
    tell(guarded, "FAIL mask_hides_all", "n2")
    ran = guarded.root / "ran"
    options = ("-o", "/dev/null", "--gres=gpu:2", "--wrap", f"touch {ran}-$SLURMD_NODENAME")
    guarded("sbatch", "-w", "n2", *options)
    guarded.wait(lambda: guarded.states()["n2"].startswith("drain"), "n2 is not drained")
    assert guarded.reason("n2") == "gpudiag: FAIL mask_hides_all (prolog)"
    guarded("sbatch", "-w", "n1", *options)
    guarded.wait(Path(f"{ran}-n1").exists, "the job on n1 does not run")
    assert not Path(f"{ran}-n2").exists()


@pytest.mark.parametrize("label", ["FAIL load.gpus.wrong", "BROKEN"])
def test_an_epilog_drains_for_a_fault_only(label: str, guarded: Cluster) -> None:
    guarded.write("begin", "#!/bin/sh\ntouch {root}/begun\nuntil [ -e {root}/go ]; do sleep 0.1; done\n")
    guarded("sbatch", "-w", "n1", "-o", "/dev/null", "--gres=gpu:2", str(guarded.root / "begin"))
    guarded.wait((guarded.root / "begun").exists, "the job does not begin")
    tell(guarded, label, "n1")
    (guarded.root / "go").touch()
    guarded.wait(lambda: not guarded.jobs() and guarded.states()["n1"] in ("idle", "drained"), "the job does not end")
    assert guarded.reason("n1") == (f"gpudiag: {label} (epilog)" if label.startswith("FAIL") else "none")


def test_an_epilog_leaves_the_reason_of_others(guarded: Cluster) -> None:
    guarded.drain("n1", "a bad fan")
    tell(guarded, "FAIL load.gpus.wrong", "n1")
    environment = {**guarded.environment, "SLURMD_NODENAME": "n1", "SLURM_JOB_GPUS": "0", "SLURM_JOB_ID": "7"}
    guarded("env", "-i", *(f"{name}={value}" for name, value in environment.items()), str(guarded.root / "epilog"))
    assert guarded.reason("n1") == "a bad fan"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "state"), [("", "idle"), ("--fault bit_flips=20@1", "drained")], ids=["healthy", "bit flips"]
)
def test_an_epilog_loads_the_gpus_of_a_job(fault: str, state: str, guarded: Cluster, gpudiag: Gpudiag) -> None:
    command = shlex.join(gpudiag.command())
    guarded.write("bin/gpudiag", f'#!/bin/sh\nexec {command} "$@" --simulate {{root}}/machine.toml {fault}\n')
    guarded.write("machine.toml", "[[gpu]]\ncount = 2\nkernel_us = 8000\ncopy_mb_s = 200\n")
    guarded.write("epilog", script("epilog").replace("--for 20", "--for 6"))
    guarded.write("prolog", "#!/bin/sh\n")
    guarded("srun", "-w", "n1", "--gres=gpu:2", "true")
    guarded.wait(lambda: guarded.states()["n1"] in ("idle", "drained"), "the epilog does not end")
    assert guarded.states()["n1"] == state, guarded.reason("n1")
    assert re.fullmatch(r"gpudiag: FAIL \S+ \(epilog\)" if fault else "none", guarded.reason("n1"))
    (report,) = (guarded.root / "log").glob("*.epilog.json")
    assert f'"verdict": "{"FAIL" if fault else "PASS"}"' in report.read_text()
    assert '"probe": "load.gpus"' in report.read_text()


def test_a_user_submits_the_check_of_a_job(guarded: Cluster, tmp_path: Path) -> None:
    fleet = SlurmFleet(tmp_path)
    guarded.write("prolog", "#!/bin/sh\n")
    guarded.write("epilog", "#!/bin/sh\n")
    text = script("batch").replace("exec gpudiag", f"exec {shlex.join(installed())}")
    guarded.write("batch", text.replace("--engine slurm", f"--engine slurm --gpudiag {fleet.script}"))
    options = ("--nodelist=n[1-2]", "--gres=gpu:2", f"--chdir={tmp_path}", f"--output={tmp_path}/output")
    guarded("sbatch", "--wait", *options, str(guarded.root / "batch"), "host", "--simulate", "2")
    assert "2 nodes · 2 PASS" in (tmp_path / "output").read_text()
    (folder,) = tmp_path.glob("gpudiag-*")
    assert sorted(file.name for file in (folder / "reports").iterdir()) == ["n1.json.gz", "n2.json.gz"]


def test_a_prolog_that_fails_on_one_node_keeps_no_other_from_being_checked(
    guarded: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded.enter(monkeypatch)
    tell(guarded, "FAIL mask_hides_all", "n2")
    report = SlurmFleet(tmp_path)()
    assert verdicts(report) == {"n1": "PASS", "n2": "not usable", "n3": "PASS"}
    assert texts(report)["n2"].startswith("drained: gpudiag: FAIL mask_hides_all (")
