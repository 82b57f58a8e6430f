"""A stand-in for the API server of Kubernetes, on loopback, for the real kubectl. It is no cluster.

A Job that is created gets the pod that its node's scenario says. What kubectl asks of it was found by kubectl 1.20 and
1.27 to 1.33.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
VERBS = ["create", "delete", "get", "list", "patch", "watch"]
RESOURCES = {
    "/api/v1": [("nodes", "Node", False), ("pods", "Pod", True), ("pods/log", "Pod", True), ("events", "Event", True)],
    "/apis/batch/v1": [("jobs", "Job", True)],
    "/apis/authorization.k8s.io/v1": [("selfsubjectaccessreviews", "SelfSubjectAccessReview", False)],
}
KINDS = {"nodes": "Node", "pods": "Pod", "events": "Event", "jobs": "Job"}


@dataclass
class Scenario:
    """What becomes of the Job of a node."""

    status: Object | None = None
    """The status of its pod; None: it gets no pod."""
    log: str = ""
    node: str | None = None
    """Where the pod is scheduled, if not on the node that the Job asks for."""
    job: Object = field(default_factory=dict)
    """The status of the Job."""
    refusal: tuple[int, str, str] | None = None
    """Code, reason and message with which the Job is refused."""
    event: str = ""
    runs: bool = False
    """Whether the command of the container is run, as kubelet would."""
    log_refused: bool = False


class Api:
    """The objects of the stand-in, and what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes: dict[str, Object] = {}
        self.scenarios: dict[str, Scenario] = {}
        self.jobs: dict[str, Object] = {}
        self.pods: dict[str, Object] = {}
        self.logs: dict[str, Scenario | str] = {}
        self.events: list[Object] = []
        self.created: list[Object] = []
        self.requests: list[str] = []
        self.denied: set[tuple[str, str]] = set()
        """Verbs and resources that this user may not."""
        self.allowed: set[tuple[str, str]] | None = None
        """Those that this user may; None: all."""
        self.is_broken = False
        self.lock = threading.Lock()
        self._clock = itertools.count()

    def add_node(self, name: str, *, gpus: int = 2, scenario: Scenario | None = None, **changes: Any) -> None:
        """Add a healthy node; ``changes`` are of its ``spec``, ``labels``, ``ready`` and ``allocatable``."""
        resource = {"nvidia.com/gpu": str(gpus)} if gpus else {}
        ready = {
            "type": "Ready",
            "status": changes.get("ready", "True"),
            "reason": changes.get("reason", "KubeletReady"),
        }
        self.nodes[name] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": changes.get("labels", {})},
            "spec": changes.get("spec", {}),
            "status": {
                "conditions": [{"type": "MemoryPressure", "status": "False", "reason": "Enough"}, ready],
                "capacity": {"cpu": "8", **resource},
                "allocatable": {"cpu": "8", **resource, **changes.get("allocatable", {})},
                "images": [{"names": ["registry.example/large:1"], "sizeBytes": 1}],
            },
        }
        if scenario is not None:
            self.scenarios[name] = scenario

    def may(self, verb: str, resource: str) -> bool:
        """Return whether this user may do something."""
        return (verb, resource) not in self.denied and (self.allowed is None or (verb, resource) in self.allowed)

    def create_job(self, job: Object, namespace: str = "default") -> tuple[int, Object]:
        """Take a Job and make its pod."""
        self.created.append(job)
        template = job["spec"]["template"]
        affinity = template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (node,) = affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"]
        scenario = self.scenarios[node]
        name = job["metadata"]["name"]
        if scenario.refusal is not None:
            code, reason, message = scenario.refusal
            return code, failure(code, reason, message.format(name=name))
        if name in self.jobs:
            return 409, failure(409, "AlreadyExists", f'jobs.batch "{name}" already exists')
        number = next(self._clock)
        stamp = f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"
        self.jobs[name] = {**job, "metadata": {**job["metadata"], "namespace": namespace}, "status": scenario.job}
        if scenario.event:
            about = {"kind": "Job", "name": name}
            event = {"metadata": {"name": f"{name}.1"}, "involvedObject": about, "reason": "FailedCreate"}
            self.events.append({**event, "message": scenario.event})
        if scenario.runs:
            scenario = self._run(template["spec"]["containers"][0], node)
        if scenario.status is not None:
            pod = f"{name}-x{number}"
            labels = {**template["metadata"]["labels"], "job-name": name}
            self.pods[pod] = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": pod,
                    "namespace": namespace,
                    "labels": labels,
                    "creationTimestamp": stamp,
                },
                "spec": {**template["spec"], "nodeName": scenario.node or node},
                "status": scenario.status,
            }
            self.logs[pod] = scenario
        return 201, self.jobs[name]

    def _run(self, container: Object, node: str) -> Scenario:
        """Run a container's command here, in a folder of its own, and return what became of it."""
        message = self.folder / f"{node}.termination-log" / "termination-log"
        message.parent.mkdir(exist_ok=True)
        message.touch()
        variables = {variable["name"]: variable["value"] for variable in container["env"]}
        assert variables["GPUDIAG_OUTPUT"] == "/dev/termination-log"
        done = subprocess.run(
            container["command"],
            capture_output=True,
            text=True,
            env={**os.environ, **variables, "GPUDIAG_OUTPUT": str(message)},
            check=False,
        )
        status = terminated(done.returncode, message=message.read_text())
        return Scenario(status, done.stdout + done.stderr)


def terminated(exit_code: int, reason: str = "", message: str = "", **status: Any) -> Object:
    """Return the status of a pod whose container ended."""
    ended = {"exitCode": exit_code, "reason": reason or ("Error" if exit_code else "Completed"), "message": message}
    phase = "Failed" if exit_code else "Succeeded"
    return {"phase": phase, "containerStatuses": [{"name": "gpudiag", "state": {"terminated": ended}}], **status}


def waiting(reason: str, message: str = "") -> Object:
    """Return the status of a pod whose container waits."""
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"name": "gpudiag", "state": state}]}


def running(**status: Any) -> Object:
    """Return the status of a pod whose container runs."""
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    return {"phase": "Running", "containerStatuses": [{"name": "gpudiag", "state": state}], **status}


def condition(type_: str, status: str, reason: str = "", message: str = "") -> Object:
    """Return the part of a pod's status with one condition."""
    return {"conditions": [{"type": type_, "status": status, "reason": reason, "message": message}]}


def failure(code: int, reason: str, message: str) -> Object:
    """Return the answer of the API to a request that it refuses."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }


def _discovery(path: str) -> Object | None:
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        groups = [name.split("/")[2] for name in RESOURCES if name.startswith("/apis/")]
        versions = {group: {"groupVersion": f"{group}/v1", "version": "v1"} for group in groups}
        listed = [
            {"name": group, "versions": [versions[group]], "preferredVersion": versions[group]} for group in groups
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
    if path == "/version":
        return {"major": "1", "minor": "31", "gitVersion": "v1.31.0"}
    if path in RESOURCES:
        resources = [
            {"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": VERBS}
            for name, kind, namespaced in RESOURCES[path]
        ]
        version = path.removeprefix("/apis/").removeprefix("/api/")
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}
    return None


def _object(content: bytes) -> Object:
    """Return what a request brings. Newer kubectls ask what a user may in protobuf: its words are enough here."""
    if not content.startswith(b"k8s\0"):
        return json.loads(content) if content else {}
    words = re.findall(rb"[a-z]+", content)
    verb = next(word for word in words if word.decode() in VERBS)
    resource = next(word for word in words if word in (b"jobs", b"pods"))
    part = "log" if b"log" in words else ""
    asked = {"verb": verb.decode(), "resource": resource.decode(), "subresource": part}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }


def _handler(api: Api) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def answer(self, code: int, content: Object | str) -> None:
            body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain" if isinstance(content, str) else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def handle_all(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            given = _object(content)
            path = urlsplit(self.path)
            with api.lock:
                api.requests.append(f"{self.command} {self.path}")
                found = _discovery(path.path)
                if found is not None:
                    self.answer(200, found)
                elif api.is_broken:
                    self.answer(500, failure(500, "InternalError", "etcdserver: leader changed"))
                else:
                    self.answer(*_resource(api, self.command, path.path, parse_qs(path.query), given))

        do_GET = do_POST = do_PATCH = do_DELETE = handle_all  # noqa: N815  # names of http.server

    return Handler


_PATH = re.compile(r"/(?:api/v1|apis/[\w.]+/v1)(?:/namespaces/([\w-]+))?/(\w+)(?:/([\w.-]+))?(?:/(\w+))?")


def _resource(api: Api, method: str, path: str, query: dict[str, list[str]], given: Object) -> tuple[int, Object | str]:
    found = _PATH.fullmatch(path)
    if found is None:
        return 404, failure(404, "NotFound", "the server could not find the requested resource")
    namespace, resource, name, part = found.groups()
    if resource == "selfsubjectaccessreviews":
        asked = given["spec"]["resourceAttributes"]
        word = "/".join(filter(None, [asked["resource"], asked.get("subresource")]))
        return 201, {**given, "status": {"allowed": api.may(asked["verb"], word)}}
    verb = {"POST": "create", "PATCH": "patch", "DELETE": "delete", "GET": "get" if name else "list"}[method]
    if not api.may(verb, "/".join(filter(None, [resource, part]))):
        where = "at the cluster scope" if resource == "nodes" else 'in the namespace "default"'
        text = f'{resource} is forbidden: User "jane" cannot {verb} resource "{resource}" in API group "" {where}'
        return 403, failure(403, "Forbidden", text)
    if (method, resource) == ("POST", "jobs"):
        return api.create_job(given, namespace)
    if method == "PATCH":
        api.nodes[name]["metadata"].update(given["metadata"])
        return 200, api.nodes[name]
    store: dict[str, Object] = (
        getattr(api, resource) if resource != "events" else {event["metadata"]["name"]: event for event in api.events}
    )
    if name is None:
        selector = query.get("labelSelector", [""])[0]
        items = [item for item in store.values() if _is_selected(item["metadata"].get("labels", {}), selector)]
        return 200, {"kind": f"{KINDS[resource]}List", "apiVersion": "v1", "metadata": {}, "items": items}
    if name not in store:
        return 404, failure(404, "NotFound", f'{resource} "{name}" not found')
    if part == "log":
        scenario = api.logs[name]
        assert isinstance(scenario, Scenario)
        if scenario.log_refused:
            return 500, failure(500, "InternalError", "dial tcp 10.0.0.7:10250: connect: no route to host")
        return 200, scenario.log
    if method == "DELETE":
        for pod in [pod for pod, item in api.pods.items() if item["metadata"]["labels"].get("job-name") == name]:
            del api.pods[pod]
        return 200, store.pop(name)
    return 200, store[name]


def _is_selected(labels: dict[str, str], selector: str) -> bool:
    """Return whether labels fit a selector such as ``a=b`` or ``a in (b,c)``."""
    key, operator, value = re.fullmatch(r"([\w/.-]*)(=| in |)\(?(.*?)\)?", selector).groups()  # type: ignore[union-attr]
    return not operator or labels.get(key) in value.split(",")


@contextmanager
def served(folder: Path) -> Iterator[tuple[Api, dict[str, str]]]:
    """Serve the stand-in on a free port of loopback; yields it and the variables that lead kubectl there."""
    api = Api(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(api))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "stand-in", "cluster": {"server": address}}],
        "contexts": [{"name": "stand-in", "context": {"cluster": "stand-in", "user": ""}}],
        "current-context": "stand-in",
    }
    (folder / "kubeconfig").write_text(json.dumps(config))
    try:
        yield api, {"KUBECONFIG": str(folder / "kubeconfig"), "HOME": str(folder)}
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
