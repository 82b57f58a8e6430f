"""`gpudiag fleet manifest`: files for Kubernetes that users apply themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import click

from gpudiag.cli.binding import takes
from gpudiag.cli.help import CHECK_ARGUMENTS, CheckCommand
from gpudiag.cli.options import debug_option
from gpudiag.errors import UsageError
from gpudiag.option import option
from gpudiag.text import put

if TYPE_CHECKING:
    from gpudiag.fleet.kubernetes.manifests import Settings

KINDS = ("job", "daemonset", "init-container", "rbac")
_COMMENTS = {
    "job": "Checks these nodes, once. The status of each pod has a summary; to merge them:\n"
    "  kubectl get pods -l app=gpudiag -o jsonpath='{range .items[*]}{.spec.nodeName}: "
    '{.status.containerStatuses[0].state.terminated.message}{"\\n"}{end}\' | gpudiag fleet merge -',
    "daemonset": "Checks every node with GPUs again and again; its pod is ready only after a PASS. If the nodes are "
    "labelled:\n  kubectl get nodes -L gpudiag/verdict\n  kubectl get nodes -o jsonpath='{range .items[*]}"
    '{.metadata.name}: {.metadata.annotations.gpudiag/report}{"\\n"}{end}\' | gpudiag fleet merge -',
    "init-container": "A pod whose GPUs are checked before its program starts; put the init container into yours.",
    "rbac": "What a user needs for 'gpudiag fleet check --engine kubernetes', and nothing else.",
}


@dataclass(frozen=True)
class Content:
    """What is written into a manifest."""

    TITLE: ClassVar[str] = "Manifest"

    image: str | None = option("An image with TensorFlow and gpudiag.", metavar="IMAGE")
    gpus: int = option("GPUs of a pod; job and init-container.", default=1, minimum=1, metavar="N")
    deadline_s: float = option("The most time of a check; job and init-container.", default=600.0, metavar="SECONDS")
    period_s: float = option("Time between two checks; daemonset.", default=3600.0, metavar="SECONDS")
    label: bool = option("Write the verdict on the node, by an account that may change nodes; daemonset.", default=True)
    namespace: str = option("The namespace. [default: that of kubectl]", default="", metavar="NAME", type=str)
    user: str | None = option("Who gets the rights, as 'kubectl auth whoami' prints it; rbac.", metavar="NAME")


_KINDS_OF_OPTIONS = {
    "image": ("job", "daemonset", "init-container"),
    "gpus": ("job", "init-container"),
    "deadline_s": ("job", "init-container"),
    "period_s": ("daemonset",),
    "label": ("daemonset",),
    "user": ("rbac",),
}
"""The manifests that an option changes; --namespace changes all of them."""


@click.command(cls=CheckCommand)
@click.argument("kind", type=click.Choice(KINDS), metavar=f"[{'|'.join(KINDS)}]")
@click.argument("nodes", nargs=-1)
@takes("FLEET_MANIFEST_", content=Content)
@debug_option
@click.pass_context
def manifest(context: click.Context, *, kind: str, nodes: tuple[str, ...], content: Content) -> int:
    """Print a manifest for Kubernetes, to apply yourself: gpudiag fleet manifest job node[1-8] --image IMAGE

    job is a Job for each of NODES; daemonset checks every node again and again; init-container is a gate before a
    program; rbac has the rights for 'gpudiag fleet check --engine kubernetes'. What follows -- are arguments of
    'gpudiag check', for job and init-container. Apply what it prints by: kubectl apply -f -
    """
    from gpudiag.fleet.kubernetes.manifests import rendered

    arguments = context.meta[CHECK_ARGUMENTS]
    if nodes and kind != "job":
        raise UsageError(f"{kind} takes no names of nodes: leave out {' '.join(nodes)}.")
    for name, kinds in _KINDS_OF_OPTIONS.items():
        if kind not in kinds and getattr(content, name) != getattr(Content(), name):
            word = "no-label" if name == "label" else name.removesuffix("_s")
            raise UsageError(f"--{word} belongs to {' and '.join(kinds)}: leave it out for {kind}.")
    if arguments and kind not in ("job", "init-container"):
        raise UsageError(f"{kind} takes no arguments of 'gpudiag check': leave out what follows --.")
    put(rendered(_documents(kind, nodes, content, arguments), _COMMENTS[kind]))
    return 0


def _documents(kind: str, nodes: tuple[str, ...], content: Content, arguments: tuple[str, ...]) -> list[dict[str, Any]]:
    from gpudiag.fleet.kubernetes import manifests
    from gpudiag.fleet.names import expand

    if kind == "rbac":
        if content.user is None:
            raise UsageError("--user is needed: who gets the rights, as 'kubectl auth whoami' prints it.")
        return manifests.rbac(content.user, content.namespace)
    settings = _settings(content, arguments)
    if kind == "daemonset":
        return manifests.daemon_set(settings, period_s=int(content.period_s), labels_nodes=content.label)
    if kind == "init-container":
        return manifests.init_container(settings)
    if not nodes:
        raise UsageError("which nodes? Such as: gpudiag fleet manifest job node[1-8] --image registry.example/train:1")
    return manifests.jobs(expand(nodes), settings)


def _settings(content: Content, arguments: tuple[str, ...]) -> Settings:
    from gpudiag.fleet.kubernetes.manifests import Settings

    if content.image is None:
        raise UsageError("--image is needed: an image with TensorFlow and gpudiag, such as registry.example/train:1")
    return Settings(content.image, content.gpus, arguments, int(content.deadline_s), content.namespace)
