"""The manifests of a check: Jobs, a DaemonSet, an init container and the rights that they need.

Each is the file of the manual (``gpudiag docs kubernetes-job.yaml``) with the user's image, GPUs and arguments in it.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpudiag import docs
from gpudiag.errors import UsageError, shortage
from gpudiag.fleet.kubernetes.nodes import GPU
from gpudiag.fleet.kubernetes.pods import CONTAINER
from gpudiag.text import one_line

Document = dict[str, Any]

RUN_LABEL, JOB_LABEL = "gpudiag/run", "gpudiag/job"
COLLECTOR, ACCOUNT = "gpudiag-collector", "gpudiag-node"
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_LONGEST_NAME = 63
"""The most characters of a Job's name: it becomes a label of its pods."""


@dataclass(frozen=True)
class Settings:
    """What a user says of a manifest."""

    image: str
    gpus: int = 1
    arguments: tuple[str, ...] = ()
    """Arguments of ``gpudiag check``."""
    deadline_s: int = 600
    namespace: str = ""

    @property
    def check(self) -> list[str]:
        """The command of a container that checks its GPUs."""
        required = [f"--require-gpus={self.gpus}", "--strict"]
        return ["gpudiag", "check", *required, *self.arguments, f"--deadline={self.deadline_s}"]


def base_job(image: str | None, manifest: Path | None) -> Document:
    """Return the Job that those of the nodes are made of: the manual's, or the user's own in a file.

    Raises :class:`UsageError` for a file that has no Job with a container named ``gpudiag``, and without an image.
    """
    if manifest is None:
        job: Any = _file("kubernetes-job.yaml")
    else:
        try:
            job = _yaml().safe_load(manifest.read_text())
        except OSError as error:
            raise UsageError(f"{manifest}: cannot be read: {shortage(error)}") from None
        except (_yaml().YAMLError, ValueError) as error:
            raise UsageError(f"{manifest}: is not YAML with one document: {one_line(str(error))}.") from None
    try:
        container = _container(job)
    except (KeyError, TypeError, StopIteration):
        container = None
    if container is None or job.get("kind") != "Job":
        raise UsageError(
            f"{manifest}: has no Job with a container named {CONTAINER!r}: begin with 'gpudiag fleet manifest job'."
        )
    if image is not None:
        container["image"] = image_name(image)
    elif manifest is None:
        raise UsageError("--image is needed: an image with TensorFlow and gpudiag, such as registry.example/train:1")
    document: Document = job
    return document


def image_name(image: str) -> str:
    """Return the name of an image; raises :class:`UsageError` for what cannot be one."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.:/@+-]*", image):
        raise UsageError(f"{one_line(image)!r} is not the name of an image, such as registry.example/train:1.")
    return image


def placed(
    base: Document, name: str, node: str, command: Sequence[str], *, gpus: int, labels: Mapping[str, str] | None = None
) -> Document:
    """Return the Job of one node, whose pod is scheduled there or nowhere. ``gpus`` 0 asks for none and sees all."""
    job = copy.deepcopy(base)
    pod = job["spec"]["template"]
    job["metadata"]["name"] = name
    for owner in (job, pod):
        metadata = owner.setdefault("metadata", {})
        metadata["labels"] = {**metadata.get("labels", {}), **(labels or {})}
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    pod["spec"].setdefault("affinity", {})["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    container = _container(job)
    container.pop("args", None)
    container["command"] = list(command)
    _set_gpus(container, gpus)
    return job


def tolerations(job: Document) -> list[dict[str, Any]]:
    """Return the tolerations of a Job's pod."""
    return list(job["spec"]["template"]["spec"].get("tolerations", []))


def jobs(nodes: Sequence[str], settings: Settings) -> list[Document]:
    """Return a Job for each node."""
    base = base_job(settings.image, None)
    base["spec"]["activeDeadlineSeconds"] = settings.deadline_s + 300
    return [
        _in_namespace(placed(base, job_name(node), node, settings.check, gpus=settings.gpus), settings)
        for node in nodes
    ]


def job_name(node: str) -> str:
    """Return the name of the Job of a node: ``gpudiag-NODE``, with a checksum if that is no label.

    Raises :class:`UsageError` for what cannot be the name of a node of Kubernetes.
    """
    if not _NAME.fullmatch(node):
        raise UsageError(
            f"{one_line(node)!r} cannot be the name of a node of Kubernetes: small letters, digits, '.' and '-' only."
        )
    name = f"gpudiag-{node}"
    if "." not in node and len(name) <= _LONGEST_NAME:
        return name
    checksum = hashlib.sha256(node.encode()).hexdigest()[:8]
    return f"{name.replace('.', '-')[: _LONGEST_NAME - 9].rstrip('-')}-{checksum}"


def init_container(settings: Settings) -> list[Document]:
    """Return a pod whose GPUs are checked before its program starts."""
    pod = _file("kubernetes-init-container.yaml")
    (gate,) = pod["spec"]["initContainers"]
    gate["command"] = [*gate["command"][:2], "--level=quick", *settings.check[2:]]
    for container in (gate, *pod["spec"]["containers"]):
        container["image"] = image_name(settings.image)
        _set_gpus(container, settings.gpus)
    return [_in_namespace(pod, settings)]


def daemon_set(settings: Settings, *, period_s: int, labels_nodes: bool) -> list[Document]:
    """Return a DaemonSet that checks every node again and again; before it, if it labels nodes, what that needs.

    Its account may change any node and nothing else: Kubernetes' roles cannot say "the node of this pod".
    """
    daemon = _in_namespace(_file("kubernetes-daemonset.yaml"), settings)
    spec = daemon["spec"]["template"]["spec"]
    container = _container(daemon)
    container["image"] = image_name(settings.image)
    variables = {variable["name"]: variable for variable in container["env"]}
    variables["SECONDS_BETWEEN"]["value"] = str(period_s)
    if not labels_nodes:
        return [daemon]
    namespace = settings.namespace or "default"
    container["env"].append({"name": "GPUDIAG_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})
    spec["serviceAccountName"] = ACCOUNT
    spec["automountServiceAccountToken"] = True
    account = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": namespace}},
        _role("ClusterRole", ACCOUNT, [("", ["nodes"], ["patch"])]),
        _binding("ClusterRole", ACCOUNT, account),
        daemon,
    ]


def rbac(user: str, namespace: str) -> list[Document]:
    """Return what a user needs for ``gpudiag fleet check --engine kubernetes``: nodes to read, Jobs of a namespace."""
    namespace = namespace or "default"
    subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
    return [
        _role("ClusterRole", COLLECTOR, [("", ["nodes"], ["list"])]),
        _binding("ClusterRole", COLLECTOR, subject),
        _role(
            "Role",
            COLLECTOR,
            [
                ("batch", ["jobs"], ["create", "delete", "get", "list"]),
                ("", ["pods", "events"], ["get", "list"]),
                ("", ["pods/log"], ["get"]),
            ],
            namespace,
        ),
        _binding("Role", COLLECTOR, subject, namespace),
    ]


def rendered(documents: Sequence[Document], comment: str) -> str:
    """Return documents as YAML below a comment."""
    yaml = _yaml()

    class Dumper(yaml.SafeDumper):  # type: ignore[misc,name-defined]  # yaml is imported when it is used
        """Writes texts of several lines as blocks, and no aliases."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def block(dumper: Any, text: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Dumper.add_representer(str, block)
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    return head + "---\n".join(
        yaml.dump(document, Dumper=Dumper, sort_keys=False, width=116, allow_unicode=True) for document in documents
    )


def _role(
    kind: str, name: str, rules: Sequence[tuple[str, list[str], list[str]]], namespace: str | None = None
) -> Document:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "rules": [{"apiGroups": [group], "resources": resources, "verbs": verbs} for group, resources, verbs in rules],
    }


def _binding(kind: str, name: str, subject: Document, namespace: str | None = None) -> Document:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": f"{kind}Binding",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [subject],
    }


def _container(workload: Document) -> Document:
    """Return the container named ``gpudiag`` of a Job or a DaemonSet."""
    containers = workload["spec"]["template"]["spec"]["containers"]
    container: Document = next(each for each in containers if each["name"] == CONTAINER)
    return container


def _set_gpus(container: Document, gpus: int) -> None:
    limits = container.setdefault("resources", {}).setdefault("limits", {})
    if gpus:
        limits[GPU] = gpus
        return
    limits.pop(GPU, None)
    names = [variable["name"] for variable in container.setdefault("env", [])]
    if "NVIDIA_VISIBLE_DEVICES" not in names:
        container["env"].append({"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"})


def _in_namespace(document: Document, settings: Settings) -> Document:
    if settings.namespace:
        document["metadata"]["namespace"] = settings.namespace
    return document


def _file(name: str) -> Document:
    document: Document = _yaml().safe_load(docs.file([name]))
    return document


def _yaml() -> Any:
    """Return PyYAML, which ClusterShell brings; raises :class:`UsageError` if it is not installed."""
    try:
        import yaml
    except ModuleNotFoundError:
        raise UsageError("manifests need the package PyYAML: pip install pyyaml") from None
    return yaml
