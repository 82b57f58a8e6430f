"""Kubernetes: the real kubectl against a stand-in for the API (:mod:`kubernetes_api`). No cluster was there.

Manifests are validated by Kubernetes's published schemas.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fleets
import kubernetes_api
import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner
from kubernetes_api import Api, Scenario, condition, running, terminated, waiting

from conftest import Gpudiag
from gpudiag.cli import cli
from gpudiag.errors import UsageError
from gpudiag.fleet import checking
from gpudiag.fleet.digest import MOST, digest
from gpudiag.fleet.engines import kubernetes as engine
from gpudiag.fleet.kubernetes import manifests, node_label
from gpudiag.fleet.summary import summaries_in, summarized
from gpudiag.model import codec
from gpudiag.model.fleet import EngineOptions, FactKind, FleetReport, NodeRow, NoReport
from gpudiag.model.frame import framed

REPORTS = Path(__file__).parents[2] / "reports"
IMAGE = "registry.example/train:1"
VERSIONS = ("1.29", "1.31", "1.33", "1.37")
pytestmark = pytest.mark.starts


def report_frame(name: str = "healthy") -> str:
    """Return a saved report as the line that a node prints."""
    return framed(codec.encoded(codec.load(REPORTS / f"{name}.json")))


def healthy(name: str = "healthy", message: str = "") -> Scenario:
    """Return a pod that prints a report between lines of others, as kubelet mixes the streams."""
    return Scenario(terminated(0, message=message), f"a line of the image\n{report_frame(name)}another one\n")


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    fleets.require("kubectl:kubernetes-client")
    monkeypatch.setattr(engine.Engine, "poll_s", 0.1)
    monkeypatch.setattr(engine.Engine, "patience_s", 0.5)
    (tmp_path / "api").mkdir()
    with kubernetes_api.served(tmp_path / "api") as (stand_in, variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield stand_in


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., FleetReport]:
    """Run a fleet check in this process."""

    def run(*nodes: str, arguments: tuple[str, ...] = (), **more: Any) -> FleetReport:
        options = EngineOptions(
            more.pop("options", ()), image=IMAGE, gpus=more.pop("gpus", None), manifest=more.pop("manifest", None)
        )
        request = checking.Request(nodes, arguments, "kubernetes", tmp_path / "run", options, **more)
        return checking.run(request, lambda _: None)

    return run


def row_of(report: FleetReport, node: str) -> NodeRow:
    """Return the row of a node."""
    return next(row for row in report.rows if row.node == node)


REASONS = {
    "unschedulable": (
        Scenario(
            {
                "phase": "Pending",
                **condition("PodScheduled", "False", "Unschedulable", "1 Insufficient gpu."),
            }
        ),
        NoReport.NOT_STARTED,
        "Unschedulable: 1 Insufficient gpu.",
    ),
    "image": (
        Scenario(waiting("ImagePullBackOff", 'Back-off pulling image "registry.example/train:1"')),
        NoReport.NOT_STARTED,
        "ImagePullBackOff: Back-off pulling image",
    ),
    "config": (
        Scenario(waiting("CreateContainerConfigError", 'secret "login" not found')),
        NoReport.NOT_STARTED,
        'CreateContainerConfigError: secret "login" not found',
    ),
    "evicted": (
        Scenario({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}),
        NoReport.LOST,
        "Evicted: The node was low on resource: memory.",
    ),
    "preempted": (
        Scenario(running(**condition("DisruptionTarget", "True", "PreemptionByScheduler", "preempting for another"))),
        NoReport.LOST,
        "PreemptionByScheduler: preempting for another",
    ),
    "oom": (Scenario(terminated(137, "OOMKilled")), NoReport.NO_ANSWER, "OOMKilled: the container used more memory"),
    "deadline": (
        Scenario({"phase": "Failed", "reason": "DeadlineExceeded", "message": "Pod was active on the node longer"}),
        NoReport.TIMED_OUT,
        "DeadlineExceeded: Pod was active on the node longer",
    ),
    "job's deadline": (
        Scenario(job=condition("Failed", "True", "DeadlineExceeded", "Job was active longer than specified deadline")),
        NoReport.TIMED_OUT,
        "DeadlineExceeded: Job was active longer",
    ),
    "node lost": (
        Scenario({"phase": "Failed", "reason": "NodeLost", "message": "Node n1 which was running pod is unresponsive"}),
        NoReport.LOST,
        "NodeLost: Node n1 which was running pod is unresponsive",
    ),
    "node silent": (Scenario(running(**condition("Ready", "False"))), NoReport.LOST, "{node} stopped answering"),
    "device plugin": (
        Scenario({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy devices present"}),
        NoReport.NOT_STARTED,
        "UnexpectedAdmissionError: no healthy devices present",
    ),
    "no program": (
        Scenario(terminated(127), "timeout: failed to run command 'gpudiag': No such file or directory\n"),
        NoReport.NO_GPUDIAG,
        "Error, exit status 127; timeout: failed to run command 'gpudiag'",
    ),
    "no shell": (
        Scenario(terminated(128, "StartError", 'exec: "timeout": executable file not found in $PATH')),
        NoReport.NOT_STARTED,
        'exec: "timeout": executable file not found',
    ),
    "quota": (
        Scenario(refusal=(403, "Forbidden", 'jobs.batch "{name}" is forbidden: exceeded quota: jobs')),
        NoReport.REFUSED,
        "exceeded quota: jobs",
    ),
    "no pod": (
        Scenario(event="pods is forbidden: violates PodSecurity"),
        NoReport.NOT_STARTED,
        "FailedCreate: pods is forbidden: violates PodSecurity",
    ),
    "other node": (Scenario(terminated(0), report_frame(), node="n7"), NoReport.NOT_STARTED, "scheduled on n7"),
    "cut short": (Scenario(terminated(0), report_frame()[:900]), NoReport.CUT_SHORT, "more were announced"),
}


def test_each_loss_has_its_reason(api: Api, check: Callable[..., FleetReport]) -> None:
    nodes = {name: f"n{number}" for number, name in enumerate(REASONS, 1)}
    for name, (scenario, _, _) in REASONS.items():
        api.add_node(nodes[name], scenario=scenario)
    api.add_node("good", scenario=healthy())
    report = check()
    for name, (_, reason, text) in REASONS.items():
        row = row_of(report, nodes[name])
        assert row.reason is reason, (name, row)
        assert text.format(node=nodes[name]) in row.text, (name, row)
    assert row_of(report, "good").verdict.value == "PASS"
    assert report.exit_code == 5
    assert not api.jobs, "all Jobs are deleted"


def test_nodes_that_cannot_be_used_are_rows_before_anything_starts(api: Api, check: Callable[..., FleetReport]) -> None:
    rack = {"topology.kubernetes.io/rack": "r7", "topology.kubernetes.io/zone": "west"}
    tolerated = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    api.add_node("gpu-1", scenario=healthy(), labels=rack, spec={"taints": [tolerated]})
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    api.add_node("gpu-2", spec={"unschedulable": True, "taints": [cordon]})
    api.add_node("gpu-3", ready="Unknown", reason="NodeStatusUnknown")
    api.add_node("gpu-4", gpus=0, labels={"nvidia.com/gpu.present": "true"})
    api.add_node("gpu-5", spec={"taints": [{"key": "team", "value": "a", "effect": "NoExecute"}]})
    api.add_node("gpu-6", scenario=healthy(), spec={"taints": [{"key": "team", "effect": "PreferNoSchedule"}]})
    report = check("gpu-[1-6]", "gpu-l")
    texts = {row.node: row.text for row in report.rows if row.reason is NoReport.NOT_USABLE}
    assert texts == {
        "gpu-2": "cordoned: kubectl uncordon ends that",
        "gpu-3": "NotReady: NodeStatusUnknown",
        "gpu-4": "0 nvidia.com/gpu are allocatable, 1 needed: is its device plugin running?",
        "gpu-5": "tainted, and the check does not tolerate it: team=a:NoExecute",
        "gpu-l": texts["gpu-l"],
    }
    assert texts["gpu-l"].startswith("the cluster has no node of this name. Did you mean 'gpu-")
    assert report.counts == {"PASS": 2, "NO REPORT": 5}
    assert report.racks == {"gpu-1": "r7"}
    assert len(api.created) == 2


def test_without_names_the_nodes_with_gpus_are_checked(api: Api, check: Callable[..., FleetReport]) -> None:
    api.add_node("control", gpus=0)
    api.add_node("gpu", gpus=8, scenario=healthy())
    assert [row.node for row in check().rows] == ["gpu"]
    (job,) = api.created
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 8, "all that are allocatable"


def test_a_cluster_without_gpus_is_an_error(api: Api, check: Callable[..., FleetReport]) -> None:
    api.add_node("control", gpus=0)
    with pytest.raises(UsageError, match=r"none of the 1 nodes of this cluster has nvidia\.com/gpu"):
        check()


def test_the_summary_counts_if_the_log_cannot_be_read(api: Api, check: Callable[..., FleetReport]) -> None:
    message = digest(codec.load(REPORTS / "diagnosis-library.json"))
    api.add_node("n1", scenario=Scenario(terminated(1, message=message), log_refused=True))
    row = row_of(check(), "n1")
    assert (row.verdict.value, row.label) == ("FAIL", "library_missing")


def test_the_command_of_a_job_gives_a_report_and_a_termination_message(
    api: Api, check: Callable[..., FleetReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in runs what the container would."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    api.add_node("n1", scenario=Scenario(runs=True))
    row = row_of(check(arguments=("--simulate", "2", "host")), "n1")
    assert row.verdict.value == "NOT VERIFIED"
    kept = codec.load(tmp_path / "run/reports/n1.json.gz")
    assert len(kept.gpus) == 2
    message = (tmp_path / "api/n1.termination-log/termination-log").read_bytes()
    assert message.startswith(b"NOT VERIFIED")
    assert summaries_in(message) == [summarized(kept)]


def test_a_job_ends_and_goes_away_without_its_collector(api: Api, check: Callable[..., FleetReport]) -> None:
    api.add_node("n1", scenario=healthy())
    check(deadline_s=100.0)
    (job,) = api.created
    assert 145 < job["spec"]["activeDeadlineSeconds"] < 300
    assert job["spec"]["ttlSecondsAfterFinished"] == 600
    assert job["spec"]["backoffLimit"] == 0
    pod = job["spec"]["template"]["spec"]
    assert pod["containers"][0]["command"][:4] == ["timeout", "-k", "5", "115"], "the check has its own limit, too"
    assert pod["restartPolicy"] == "Never"
    assert pod["automountServiceAccountToken"] is False
    for version in VERSIONS:
        kubernetes_validate.validate(job, version, strict=True)


def test_the_printed_role_has_all_rights_that_a_check_uses(api: Api, check: Callable[..., FleetReport]) -> None:
    roles = [document for document in manifests.rbac("jane", "") if document["kind"].endswith("Role")]
    api.allowed = {
        (verb, resource)
        for role in roles
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    for number in range(1, 5):
        api.add_node(f"n{number}", scenario=healthy() if number > 1 else Scenario(event="a quota"))
    report = check("n[1-4]", parallel=1, options=("--namespace=gpu",))
    assert report.counts == {"PASS": 3, "NO REPORT": 1}, report.rows
    assert row_of(report, "n1").text == "FailedCreate: a quota"
    assert not api.jobs
    used = {request.split("?")[0].split("/")[-1] for request in api.requests if request.startswith("DELETE")}
    assert len(used) == 4, "Jobs are deleted as soon as their answer is taken"


@pytest.mark.parametrize(
    ("denied", "words"),
    [
        (("list", "nodes"), 'cannot list resource "nodes"'),
        (("create", "jobs"), "this user of the cluster may not create jobs.batch in this namespace"),
        (("get", "pods/log"), "may not get pods/log in this namespace"),
    ],
)
def test_a_missing_right_is_an_error_before_anything_starts(
    api: Api, check: Callable[..., FleetReport], denied: tuple[str, str], words: str
) -> None:
    api.add_node("n1", scenario=healthy())
    api.denied = {denied}
    with pytest.raises(UsageError, match=re.escape(words)) as caught:
        check("n1")
    assert "'gpudiag fleet manifest rbac' prints the role" in str(caught.value)
    assert not api.created


def test_errors_of_kubectl_say_what_to_do(
    api: Api, check: Callable[..., FleetReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.is_broken = True
    with pytest.raises(UsageError, match="etcdserver: leader changed"):
        check("n1")
    config = json.loads((tmp_path / "api/kubeconfig").read_text())
    config["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:9"
    (tmp_path / "other").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "other"))
    with pytest.raises(UsageError, match="the API server does not answer: 'kubectl cluster-info'"):
        check("n1")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    with pytest.raises(UsageError, match="kubectl knows no cluster: set KUBECONFIG"):
        check("n1")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="install kubectl, such as by 'apt-get install kubernetes-client'"):
        check("n1")
    assert not (tmp_path / "run").exists()


def test_an_api_that_breaks_during_the_check_costs_no_row(
    api: Api, check: Callable[..., FleetReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    api.add_node("n1", scenario=Scenario(running()))
    monkeypatch.setattr("gpudiag.fleet.carrying.GRACE_S", 0.0)
    monkeypatch.setattr("gpudiag.fleet.carrying.COLLECTOR_GRACE_S", 0.0)
    create_job = api.create_job

    def create_and_break(*arguments: Any) -> Any:
        api.is_broken = True
        return create_job(*arguments)

    monkeypatch.setattr(api, "create_job", create_and_break)
    row = row_of(check("n1", deadline_s=2.0), "n1")
    assert row.reason is NoReport.LOST
    assert row.text.startswith("kubectl does not answer any more: ")
    assert "etcdserver: leader changed" in row.text


def test_a_check_that_runs_too_long_has_timed_out(
    api: Api, check: Callable[..., FleetReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpudiag.fleet.carrying.GRACE_S", 0.0)
    monkeypatch.setattr("gpudiag.fleet.carrying.COLLECTOR_GRACE_S", 0.0)
    api.add_node("n1", scenario=Scenario(running(), "2026: loading cuDNN\n"))
    row = row_of(check("n1", deadline_s=1.5), "n1")
    assert row.reason is NoReport.TIMED_OUT
    assert row.text == "the check runs; 2026: loading cuDNN"
    assert not api.jobs


def started(gpudiag: Gpudiag, *arguments: str) -> subprocess.Popen[str]:
    """Start a fleet check in a process of its own."""
    command = ("fleet", "check", "n[1-2]", "--engine", "kubernetes", "--image", IMAGE, "-o", "run", *arguments)
    gpudiag.environment |= {name: os.environ[name] for name in ("KUBECONFIG", "HOME")}
    return gpudiag.start(*command)


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait for an event of another process."""
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_signal_deletes_the_jobs_and_leaves_a_report(api: Api, gpudiag: Gpudiag) -> None:
    api.add_node("n1", scenario=healthy())
    api.add_node("n2", scenario=Scenario(running()))
    process = started(gpudiag)
    answers = gpudiag.folder / "run/answers.jsonl"
    wait_for(lambda: answers.exists() and b"PASS" in answers.read_bytes())
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM, errors
    assert "NO REPORT" in output
    assert "interrupted" in output
    assert "Traceback" not in errors
    assert not api.jobs


def test_jobs_of_a_collector_that_was_killed_are_deleted_by_the_one_that_goes_on(api: Api, gpudiag: Gpudiag) -> None:
    api.add_node("n1", scenario=healthy())
    api.add_node("n2", scenario=Scenario(running()))
    process = started(gpudiag)
    answers = gpudiag.folder / "run/answers.jsonl"
    wait_for(lambda: answers.exists() and b"PASS" in answers.read_bytes())
    process.kill()
    process.communicate(timeout=120)
    left = {*api.jobs}
    assert left, "nobody deleted it"
    del api.nodes["n1"]  # it has its row
    api.scenarios["n2"] = healthy("diagnosis-library")
    done = gpudiag("fleet", "check", "--resume", "run")
    assert "1 PASS" in done.stdout, done.stderr
    assert "1 FAIL" in done.stdout
    assert "library_missing" in done.stdout
    assert not api.jobs
    (_, of_n2, again) = (job["metadata"]["name"] for job in api.created)
    assert of_n2 in left
    assert again not in left


@pytest.mark.parametrize(("options", "namespace"), [((), "gpu"), (("--namespace=other",), "other")])
def test_jobs_are_created_watched_and_deleted_in_the_namespace_of_their_file(
    api: Api, check: Callable[..., FleetReport], tmp_path: Path, options: tuple[str, ...], namespace: str
) -> None:
    job = yaml.safe_load(printed("job", "any", "--image", IMAGE, "--namespace", "gpu"))
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    api.add_node("n1", scenario=healthy())
    report = check("n1", manifest=str(tmp_path / "job.yaml"), options=options)
    assert report.counts == {"PASS": 1}, report.rows
    assert not api.jobs
    used = {request.split("/namespaces/")[1].split("/")[0] for request in api.requests if "/namespaces/" in request}
    assert used == {namespace}


def test_a_job_of_the_user_is_the_base_of_all(api: Api, check: Callable[..., FleetReport], tmp_path: Path) -> None:
    job = yaml.safe_load(printed("job", "any", "--image", "mine:2"))
    pod = job["spec"]["template"]["spec"]
    pod["imagePullSecrets"] = [{"name": "login"}]
    pod["tolerations"] = [{"operator": "Exists"}]
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    api.add_node("n1", scenario=healthy(), spec={"unschedulable": True, "taints": [cordon]})
    report = check("n1", manifest=str(tmp_path / "job.yaml"), gpus=0)
    assert report.counts == {"PASS": 1}, "a Job that tolerates it runs on a node that is cordoned"
    (created,) = api.created
    pod = created["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "login"}]
    assert pod["containers"][0]["image"] == IMAGE, "of --image"
    assert "nvidia.com/gpu" not in pod["containers"][0]["resources"]["limits"]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"} in pod["containers"][0]["env"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: Pod", "has no Job with a container named 'gpudiag'"),
        ("- 1", "has no Job with a container named 'gpudiag'"),
        ("kind: Job\nspec: {template: {spec: {containers: [{name: other}]}}}", "has no Job with a container named"),
        ("a: [", "is not YAML with one document"),
        ("a: 1\n---\nb: 2", "is not YAML with one document"),
    ],
)
def test_a_file_that_is_no_job_is_an_error(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=re.escape(words)):
        manifests.base_job(IMAGE, file)


def test_nothing_is_shipped_to_a_pod(check: Callable[..., FleetReport], tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "gpudiag.pyz", "w") as file:
        file.writestr("gpudiag/__main__.py", "")
    with pytest.raises(UsageError, match="--ship cannot be used with kubernetes: its image must have gpudiag"):
        check("n1", ship=tmp_path / "gpudiag.pyz")


def test_an_image_is_needed() -> None:
    with pytest.raises(UsageError, match="--image is needed"):
        engine.Engine(EngineOptions())
    with pytest.raises(UsageError, match="is not the name of an image"):
        engine.Engine(EngineOptions(image="--privileged"))


def printed(*arguments: str) -> str:
    """Return what ``gpudiag fleet manifest`` prints."""
    done = CliRunner().invoke(cli, ["fleet", "manifest", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


MANIFESTS = {
    "job": ("job", "n[1-3]", "--image", IMAGE, "--gpus", "8", "--namespace", "gpu", "--", "--level", "quick"),
    "daemonset": ("daemonset", "--image", IMAGE, "--period", "900", "--namespace", "gpu"),
    "no label": ("daemonset", "--image", IMAGE, "--no-label"),
    "init-container": ("init-container", "--image", IMAGE, "--gpus", "4"),
    "rbac": ("rbac", "--user", "jane@example.org", "--namespace", "gpu"),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_fits_the_schemas_of_kubernetes(name: str) -> None:
    documents = [*yaml.safe_load_all(printed(*MANIFESTS[name]))]
    assert documents
    for document in documents:
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)


def test_a_job_is_placed_on_its_node_alone() -> None:
    jobs = [*yaml.safe_load_all(printed(*MANIFESTS["job"]))]
    assert [job["metadata"]["name"] for job in jobs] == ["gpudiag-n1", "gpudiag-n2", "gpudiag-n3"]
    affinity = jobs[1]["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}
    (container,) = jobs[1]["spec"]["template"]["spec"]["containers"]
    assert container["command"][1:3] == ["check", "--require-gpus=8"]
    assert container["command"][-3:] == ["--level", "quick", "--deadline=600"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}


def test_names_of_jobs_are_labels_and_differ() -> None:
    names = ["a.b", "a-b", "x" * 63, "x" * 64, f"{'y' * 50}.example.org", "n1"]
    made = [manifests.job_name(name) for name in names]
    assert len({*made}) == len(names)
    for name in made:
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name), name
    with pytest.raises(UsageError, match="cannot be the name of a node of Kubernetes"):
        manifests.job_name("Node_1")


def test_the_account_of_the_daemon_may_only_change_nodes() -> None:
    account, role, binding, daemon = yaml.safe_load_all(printed(*MANIFESTS["daemonset"]))
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]}]
    (subject,) = binding["subjects"]
    pod = daemon["spec"]["template"]["spec"]
    assert subject["name"] == account["metadata"]["name"] == pod["serviceAccountName"]
    assert subject["namespace"] == account["metadata"]["namespace"] == daemon["metadata"]["namespace"] == "gpu"
    variables = {variable["name"]: variable for variable in pod["containers"][0]["env"]}
    assert variables["SECONDS_BETWEEN"]["value"] == "900"
    assert variables["GPUDIAG_NODE"]["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert 'gpudiag fleet label "$STATE/gpudiag.json"' in pod["containers"][0]["args"][0]
    (alone,) = yaml.safe_load_all(printed(*MANIFESTS["no label"]))
    assert alone["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("job", "n1"), "--image is needed"),
        (("job", "--image", IMAGE), "which nodes?"),
        (("daemonset", "n1", "--image", IMAGE), "daemonset takes no names of nodes"),
        (("daemonset", "--image", IMAGE, "--", "-v"), "daemonset takes no arguments of 'gpudiag check'"),
        (("rbac",), "--user is needed"),
        (("rbac", "--user", "jane", "--image", IMAGE), "--image belongs to job and daemonset and init-container"),
        (("job", "n1", "--image", IMAGE, "--no-label"), "--no-label belongs to daemonset"),
        (("daemonset", "--image", IMAGE, "--gpus", "2"), "--gpus belongs to job and init-container"),
        (("job", "N_1", "--image", IMAGE), "cannot be the name of a node of Kubernetes"),
        (("init-container", "--image", "a b"), "is not the name of an image"),
    ],
)
def test_a_manifest_that_cannot_be_made_is_an_error(arguments: tuple[str, ...], words: str) -> None:
    done = CliRunner().invoke(cli, ["fleet", "manifest", *arguments])
    assert isinstance(done.exception, UsageError)
    assert words in str(done.exception)
    assert done.stdout == ""


@pytest.mark.parametrize("name", ["healthy", "diagnosis-library", "diagnosis-mask", "eight-gpus", "trace", "cpu-only"])
def test_a_digest_fits_into_a_termination_message(name: str) -> None:
    report = codec.load(REPORTS / f"{name}.json")
    line = digest(report)
    assert len(line.encode()) <= MOST
    assert line.count("\n") == 1
    assert line.startswith(report.verdict.value)
    (summary,) = summaries_in(line.encode())
    assert (summary.verdict, summary.causes) == (report.verdict, summarized(report).causes)


def test_a_digest_leaves_out_what_it_has_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    report = codec.load(REPORTS / "diagnosis-library.json")
    noise = {f"fact {number}": os.urandom(32).hex() for number in range(200)}
    monkeypatch.setattr("gpudiag.fleet.digest.summarized", lambda report: whole(report, noise))

    def whole(report: Any, facts: dict[str, str]) -> Any:
        from msgspec.structs import replace

        return replace(summarized(report), facts=facts)

    line = digest(report)
    assert len(line.encode()) <= MOST
    (summary,) = summaries_in(line.encode())
    assert summary.facts == {}
    assert set(summary.unread) == set(FactKind)
    assert summary.causes


@pytest.mark.parametrize("device", ["this", "another"])
def test_the_termination_log_is_written_where_it_is_mounted(gpudiag: Gpudiag, device: str, tmp_path: Path) -> None:
    """kubelet mounts a file there, which cannot be replaced."""
    log = gpudiag.folder / "termination-log"
    mounted = tmp_path / "of-kubelet" if device == "this" else Path(f"/dev/shm/gpudiag-test-{os.getpid()}")
    for file in (mounted, log):
        file.touch()
    command = gpudiag.command("show", str(REPORTS / "diagnosis-library.json"), "-o", str(log))
    script = 'mount --bind "$1" "$2" || exit 77; shift 2; exec "$@"'
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", str(mounted), str(log), *command],
        env=gpudiag.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    text = mounted.read_text()
    mounted.unlink()
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"nothing can be mounted here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert text.startswith("FAIL library_missing: ")
    assert log.read_text() == ""


def kubectl(*arguments: str) -> str:
    """Return what the real kubectl prints."""
    return subprocess.run(["kubectl", *arguments], capture_output=True, text=True, check=True).stdout


def comment_command(kind: str) -> str:
    """Return the last command in the comment of a manifest."""
    lines = [line.removeprefix("#   ") for line in printed(*MANIFESTS[kind]).splitlines() if line.startswith("#   ")]
    return lines[-1]


@pytest.mark.parametrize("kind", ["job", "daemonset"])
def test_the_command_in_a_manifest_merges_what_the_pods_left(api: Api, gpudiag: Gpudiag, kind: str) -> None:
    for number, name in enumerate(("healthy", "diagnosis-library"), 1):
        report = REPORTS / f"{name}.json"
        api.add_node(f"n{number}", scenario=Scenario(terminated(0, message=digest(codec.load(report)))))
        change = node_label.change_for(report, "now")
        if kind == "daemonset":
            api.nodes[f"n{number}"]["metadata"].update(change["metadata"])
    api.add_node("n3")
    if kind == "job":
        for job in manifests.jobs(["n1", "n2"], manifests.Settings(IMAGE)):
            api.create_job(job)
    command = comment_command(kind).replace("gpudiag fleet merge", " ".join(gpudiag.command("fleet", "merge")))
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # as printed
    assert "2 nodes · 1 FAIL · 1 PASS" in done.stdout, done.stdout + done.stderr
    assert re.search(r"FAIL +1 +n2 +library_missing", done.stdout)


class Patches(http.server.BaseHTTPRequestHandler):
    """Takes the request for a label."""

    code = 200
    taken: list[tuple[str, str | None, str | None, Any]] = []

    def do_PATCH(self) -> None:
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.taken.append((self.path, self.headers["Authorization"], self.headers["Content-Type"], content))
        self.send_response(self.code)
        self.end_headers()
        self.wfile.write(b'{"message": "nodes \\"n1\\" is forbidden: cannot patch resource"}')

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def account(tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """The account of a pod and its variables, with a server by TLS that its certificate belongs to."""
    folder = tmp_path / "account"
    folder.mkdir()
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=kubernetes"
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(tmp_path / "key"), "-out", str(folder / "ca.crt")]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    (folder / "token").write_text("secret\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.crt", tmp_path / "key")
    Patches.taken, Patches.code = [], 200
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Patches)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    variables = {
        "GPUDIAG_NODE": "n1",
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(server.server_address[1]),
        "HTTPS_PROXY": "http://127.0.0.1:9",  # of an image: the API server is never behind it
    }
    yield folder, variables
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_pod_writes_the_verdict_on_its_node(account: tuple[Path, dict[str, str]]) -> None:
    folder, variables = account
    report = REPORTS / "diagnosis-library.json"
    assert node_label.write(node_label.change_for(report, "now"), variables, folder) == "n1"
    ((path, authorization, content_type, change),) = Patches.taken
    assert path.partition("?")[0] == "/api/v1/nodes/n1"
    assert authorization == "Bearer secret"
    assert content_type == "application/merge-patch+json"
    assert {*change} == {"metadata"}, "it taints and cordons nothing"
    assert change["metadata"]["labels"] == {"gpudiag/verdict": "FAIL"}
    annotations = change["metadata"]["annotations"]
    assert annotations["gpudiag/cause"].startswith("library_missing: ")
    assert annotations["gpudiag/checked-at"] == codec.load(report).started_at
    assert summaries_in(annotations["gpudiag/report"].encode()) == [summarized(codec.load(report))]


def test_a_node_whose_check_left_no_report_does_not_keep_its_label(tmp_path: Path) -> None:
    change = node_label.change_for(tmp_path / "gpudiag.json", "2026-01-01T00:00:00+00:00")
    assert change["metadata"]["labels"] == {"gpudiag/verdict": "NO_REPORT"}
    assert change["metadata"]["annotations"]["gpudiag/report"] is None
    assert change["metadata"]["annotations"]["gpudiag/checked-at"] == "2026-01-01T00:00:00+00:00"


def test_a_label_that_cannot_be_written_is_an_error(account: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    folder, variables = account
    change = node_label.change_for(REPORTS / "healthy.json", "now")
    assert change["metadata"]["labels"] == {"gpudiag/verdict": "PASS"}
    assert change["metadata"]["annotations"]["gpudiag/cause"] is None, "that of an earlier check goes"
    Patches.code = 403
    with pytest.raises(node_label.LabelError, match='refused the label: 403 nodes "n1" is forbidden: cannot patch'):
        node_label.write(change, variables, folder)
    with pytest.raises(node_label.LabelError, match="could not be asked"):
        node_label.write(change, {**variables, "KUBERNETES_SERVICE_PORT": "9"}, folder)
    with pytest.raises(UsageError, match="GPUDIAG_NODE is not set"):
        node_label.write(change, {}, folder)
    with pytest.raises(UsageError, match="this pod has no token"):
        node_label.write(change, variables, tmp_path / "nothing")
