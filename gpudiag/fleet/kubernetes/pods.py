"""The state of a pod: whether its check ended, and what keeps it from beginning or going on.

The words are those of https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/ and of kubelet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from gpudiag.model.fleet import NoReport
from gpudiag.text import one_line

CONTAINER = "gpudiag"


class _Metadata(msgspec.Struct):
    name: str
    labels: dict[str, str] = {}
    creationTimestamp: str = ""  # noqa: N815  # as the API has it, here and below
    deletionTimestamp: str = ""  # noqa: N815


class _Spec(msgspec.Struct):
    nodeName: str = ""  # noqa: N815


class _Waiting(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Terminated(msgspec.Struct):
    exitCode: int = 0  # noqa: N815
    reason: str = ""
    message: str = ""


class _ContainerState(msgspec.Struct):
    waiting: _Waiting | None = None
    running: dict[str, str] | None = None
    terminated: _Terminated | None = None


class _Container(msgspec.Struct):
    name: str
    state: _ContainerState = msgspec.field(default_factory=_ContainerState)


class _Condition(msgspec.Struct):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[_Condition] = []
    containerStatuses: list[_Container] = []  # noqa: N815


class Item(msgspec.Struct):
    """A Job or a pod, as far as the collector reads it."""

    kind: str
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    def condition(self, type_: str) -> _Condition | None:
        """Return its condition of a type, or None."""
        return next((condition for condition in self.status.conditions if condition.type == type_), None)

    @property
    def container(self) -> _ContainerState:
        """The state of the container with the check."""
        statuses = (status.state for status in self.status.containerStatuses if status.name == CONTAINER)
        return next(statuses, _ContainerState())

    @property
    def has_begun(self) -> bool:
        """Whether the check began, so that there is a log."""
        return self.container.running is not None or self.container.terminated is not None


class _Items(msgspec.Struct):
    items: list[Item]


@dataclass(frozen=True)
class PodState:
    """What a pod does."""

    text: str
    """In a line, with the word of Kubernetes first."""
    reason: NoReport | None = None
    """Why it gives no report, if it gives none; None: its exit status and its log say so."""
    is_over: bool = False
    is_stuck: bool = False
    """Whether something keeps it from going on that seldom passes by itself."""
    exit_status: int | None = None


_STUCK = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RegistryUnavailable",
        "RunContainerError",
    }
)
"""Reasons for which a container waits and that seldom pass by themselves."""
_LOST = frozenset({"Evicted", "NodeLost", "NodeShutdown", "Preempting", "Shutdown", "Terminated"})
"""Reasons of a pod that was taken from its node, or whose node went away."""


def items_in(output: bytes) -> list[Item]:
    """Return the Jobs and pods in a list of kubectl; raises :class:`msgspec.MsgspecError`."""
    return msgspec.json.decode(output, type=_Items).items


def newest(pods: Iterable[Item]) -> dict[str, Item]:
    """Return the newest pod of each Job, by the Job's name."""
    pod_of_job: dict[str, Item] = {}
    for pod in sorted(pods, key=lambda pod: pod.metadata.creationTimestamp):
        pod_of_job[pod.metadata.labels.get("job-name", "")] = pod
    return pod_of_job


def state_of(pod: Item) -> PodState:
    """Return the state of a pod."""
    status, container = pod.status, pod.container
    if status.reason == "DeadlineExceeded":
        return PodState(_line(status.reason, status.message), NoReport.TIMED_OUT, is_over=True)
    if status.reason in _LOST:
        return PodState(_line(status.reason, status.message), NoReport.LOST, is_over=True)
    disruption = pod.condition("DisruptionTarget")
    if disruption is not None and disruption.status == "True":
        return PodState(_line(disruption.reason, disruption.message), NoReport.LOST, is_over=True)
    if container.terminated is not None:
        return _ended(container.terminated)
    if status.phase == "Failed":
        return PodState(_line(status.reason, status.message), NoReport.NOT_STARTED, is_over=True)
    if pod.metadata.deletionTimestamp:
        return PodState("its pod was deleted", NoReport.LOST, is_over=True)
    if container.running is not None:
        return _running(pod)
    return _pending(pod)


def _ended(terminated: _Terminated) -> PodState:
    last = next((line for line in reversed(terminated.message.splitlines()) if line.strip()), "")
    text = _line(f"{terminated.reason}, exit status {terminated.exitCode}", last)
    reason = None
    if terminated.reason == "OOMKilled":
        text = _line("OOMKilled", "the container used more memory than its limit, or than the node has")
        reason = NoReport.NO_ANSWER
    elif terminated.reason in ("ContainerCannotRun", "StartError"):
        reason = NoReport.NOT_STARTED
    elif terminated.reason in ("ContainerStatusUnknown", "NodeLost"):
        reason = NoReport.LOST
    return PodState(text, reason, is_over=True, exit_status=terminated.exitCode)


def _running(pod: Item) -> PodState:
    """Return the state of a pod that runs: without a probe of readiness it is not ready only if its node is not."""
    ready = pod.condition("Ready")
    if pod.status.phase == "Unknown" or (ready is not None and ready.status != "True"):
        return PodState(f"{pod.spec.nodeName} stopped answering while the check ran", NoReport.LOST, is_stuck=True)
    return PodState("the check runs", NoReport.TIMED_OUT)


def _pending(pod: Item) -> PodState:
    scheduled = pod.condition("PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return PodState(_line(scheduled.reason, scheduled.message), NoReport.NOT_STARTED, is_stuck=True)
    waiting = pod.container.waiting or _Waiting("Pending")
    return PodState(_line(waiting.reason, waiting.message), NoReport.NOT_STARTED, is_stuck=waiting.reason in _STUCK)


def _line(word: str, message: str) -> str:
    return one_line(": ".join(filter(None, [word, message])))[:500]
