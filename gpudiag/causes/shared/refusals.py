"""Shared by causes: who refuses to open a device file, derived in one place from all that is known of the refusal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from gpudiag.cause import Evidence, Match
from gpudiag.causes.shared.gpu_state import meaning
from gpudiag.causes.shared.machine import stage_of_driver
from gpudiag.causes.shared.signs import Signs
from gpudiag.fix import Action, fill_in
from gpudiag.knowledge.sandboxes import BY_NAME, Sandbox
from gpudiag.model.diagnosis import Confidence, Stage
from gpudiag.model.facts import (
    ContainerFacts,
    DeviceNode,
    DeviceNodeFacts,
    Facts,
    SystemFacts,
    TriedFacts,
    Unknown,
    is_gpu_file,
)

CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/dxg")
"""The device files without which no GPU can be used."""
_NOBODY = ("nobody", "nogroup", "65534")
_FILE_TYPES = {"d": "a folder", "-": "a plain file", "l": "a link to a file that does not exist"}
_CHAR_DRIVERS = {"/dev/nvidia-uvm": ("nvidia-uvm",)}
_OF_GPUS = ("nvidia", "nvidiactl", "nvidia-frontend")
"""The names in /proc/devices of the driver of all other files; they changed with the releases of the driver."""
_DRIVERS = (*_OF_GPUS, "nvidia-uvm")


UNKNOWN_SANDBOX = replace(BY_NAME["bubblewrap"], words="the sandbox that started this process")
"""Stands for one that leaves no sign but a /dev of its own; bubblewrap, which many use, gives an example."""


class Refuser(Enum):
    """Who refuses to open a device file."""

    CONTROL_GROUP = "its device control group"
    SECURITY_MODULE = "a security module"
    GROUP = "its permissions, which let the members of its group in"
    PERMISSIONS = "its permissions"
    USER_NAMESPACE = "the user namespace, in which its owner has no number"
    CAPABILITY = "its permissions, which bind root, too, without the capability CAP_DAC_OVERRIDE"
    MOUNT = "the mount option nodev"
    FILE_TYPE = "it is no device"
    NUMBER = "no driver has its number"
    DRIVER = "the driver"


@dataclass(frozen=True)
class Refusal:
    """A device file that cannot be opened."""

    node: DeviceNode
    error: str
    """The name of the error number of open(2)."""
    tried: bool
    """False if the file was not opened, and its permissions say so."""
    by: Refuser

    @property
    def words(self) -> str:
        """The error, and the permissions, owner and driver number of the file, as several files may have them."""
        node = self.node
        if self.by is Refuser.FILE_TYPE:
            return f" is {_FILE_TYPES[node.mode[0]]}, not a device: {node.mode}"
        number = "" if node.major is None else f", driver number {node.major}"
        owner = f"{node.owner}:{node.group}" if node.owner else f"of the group {node.group or '?'}"
        error = f"{meaning(self.error)}; " if self.tried else ""
        return f": {error}{node.mode} {owner}{number}{', on a file system mounted nodev' if node.nodev else ''}"


@dataclass(frozen=True)
class Refusals:
    """The device files that this process needs and cannot open, while TensorFlow lists no GPU."""

    facts: Facts
    nodes: DeviceNodeFacts
    every: tuple[Refusal, ...]
    stage: Stage

    @classmethod
    def of(cls, evidence: Evidence) -> Refusals | None:
        facts = evidence.facts
        if isinstance(facts.device_nodes, Unknown) or (evidence.trace is not None and evidence.trace.listed):
            return None
        nodes, errors = facts.device_nodes, _errors(evidence)
        known = {node.path: node for node in nodes.nodes}
        found = [
            Refusal(known.get(path, DeviceNode(path, "?", False, False)), error, tried, by)
            for path, (error, tried) in errors.items()
            if (by := _refuser(known.get(path), error, tried, facts, nodes)) is not None
        ]
        found += [Refusal(node, "", False, Refuser.FILE_TYPE) for node in nodes.nodes if _file_type(node, nodes)]
        found += [
            Refusal(node, "", False, Refuser.NUMBER)
            for node in nodes.nodes
            if node.path not in errors and None not in (node.major, number := _registered(node, nodes))
            if number != node.major
        ]
        refused = {refusal.node.path for refusal in found}
        gpus = {path for path in {*known, *errors} if is_gpu_file(path)}
        # A job is kept from the GPUs of others in the same way; that is no fault while it has one of its own.
        needed = tuple(
            refusal
            for refusal in found
            if refusal.node.path in CONTROL or (is_gpu_file(refusal.node.path) and gpus <= refused)
        )
        return cls(facts, nodes, needed, stage_of_driver(evidence.listing)) if needed else None

    def by(self, *refusers: Refuser) -> tuple[Refusal, ...]:
        """Return the refusals by one of ``refusers``."""
        return tuple(refusal for refusal in self.every if refusal.by in refusers)

    @property
    def user(self) -> str:
        """The user of this process."""
        return "$USER" if isinstance(self.facts.system, Unknown) else self.facts.system.user

    @property
    def who_asks(self) -> tuple[str]:
        """The user and the groups of this process, as a line of evidence."""
        groups = f" and in {', '.join(self.nodes.groups)}" if self.nodes.groups else ""
        return (f"this process is of the user {self.user}{groups}",)

    @property
    def sandbox(self) -> Sandbox | None:
        """What confines this process."""
        return sandbox_of(self.facts)

    def actions(self, actions: tuple[Action, ...], refusals: tuple[Refusal, ...]) -> tuple[Action, ...]:
        """Return actions of a sandbox, filled in."""
        majors = {number for refusal in refusals if (number := self.expected(refusal.node)) is not None}
        rules = [f"lxc.cgroup2.devices.allow = c {number}:* rwm" for number in sorted(majors)]
        drivers = [name for name, number in self.nodes.majors.items() if number in majors] or _DRIVERS
        units = [f"DeviceAllow=char-{name} rw" for name in drivers]
        group, system = refusals[0].node.group_id, self.facts.system
        mapped = getattr(self.facts.container, "user_namespace", None)
        figures = {
            **names(self.facts),
            "files": " ".join(refusal.node.path for refusal in refusals),
            "group": refusals[0].node.group,
            "group_id": "$(stat -c %g /dev/nvidiactl)" if group is None or mapped else group,
            "machine": "NAME" if isinstance(system, Unknown) else system.hostname,
            "properties": " ".join(f"'{unit}'" for unit in units),
            "units": ", ".join(units),
            "allow": ", ".join(rules) or "lxc.cgroup2.devices.allow = c NUMBER:* rwm",
        }
        return tuple(fill_in(action, figures) for action in actions)

    def expected(self, node: DeviceNode) -> int | None:
        """Return the number of the file's driver in /proc/devices, or else its own."""
        return _registered(node, self.nodes) if self.nodes.majors else node.major

    def match(
        self,
        refusals: tuple[Refusal, ...],
        fix: tuple[Action | None, ...],
        *more: str,
        confidence: Confidence = Confidence.PROVED,
        **figures: str,
    ) -> Match:
        """Return the match of a cause about some of the refusals."""
        return Match(
            evidence=(*_evidence(refusals), *more),
            confidence=confidence,
            figures={"files": " ".join(refusal.node.path for refusal in refusals), **figures},
            fix=fix,
            stage=self.stage,
        )


def _evidence(refusals: tuple[Refusal, ...]) -> list[str]:
    """Return a line for all files that are refused alike: a screen shows few lines."""
    alike: dict[tuple[bool, str], list[str]] = {}
    for refusal in refusals:
        alike.setdefault((refusal.tried, refusal.words), []).append(refusal.node.path)
    return [f"{'open ' if tried else ''}{' '.join(paths)}{words}" for (tried, words), paths in alike.items()]


def sandbox_of(facts: Facts) -> Sandbox | None:
    """Return what confines this process: the innermost sandbox, or else the container."""
    inside = facts.container
    if isinstance(inside, Unknown):
        return None
    if inside.name is not None and inside.sandbox != "gvisor":
        return BY_NAME.get("kubernetes" if inside.kubernetes else inside.name)
    return BY_NAME.get(inside.sandbox or "")


def names(facts: Facts) -> dict[str, str]:
    """Return the fields of a sandbox's actions that do not depend on a device."""
    inside = facts.container
    if not isinstance(inside, ContainerFacts):
        return {"unit": "UNIT", "systemctl": "sudo systemctl"}
    of_user = "/user@" in (inside.control_group or "")
    systemctl = "systemctl --user" if of_user else "sudo systemctl"
    return {"unit": inside.sandbox_name or "NAME", "systemctl": systemctl}


def _errors(evidence: Evidence) -> dict[str, tuple[str, bool]]:
    """Return the error of each device file that cannot be opened, and whether opening it was tried."""
    tried = evidence.facts.tried
    signs = Signs.of(evidence)
    shut = dict.fromkeys(signs.shut_files if signs is not None else (), ("EACCES", False))
    if not isinstance(tried, TriedFacts):
        return shut
    return shut | {attempt.path: (attempt.error, True) for attempt in tried.opened if attempt.error is not None}


def _refuser(node: DeviceNode | None, error: str, tried: bool, facts: Facts, nodes: DeviceNodeFacts) -> Refuser | None:
    if error == "EPERM":
        return Refuser.CONTROL_GROUP
    if error in ("ENXIO", "ENODEV"):
        registered = _registered(node, nodes) if node is not None else None
        same = node is not None and registered is not None and registered == node.major
        return Refuser.DRIVER if same else Refuser.NUMBER
    if error in ("ENOENT", "EISDIR") or node is None:
        return None
    if error != "EACCES":
        return Refuser.DRIVER
    if node.nodev:
        return Refuser.MOUNT
    inside = facts.container
    inside = ContainerFacts(None, (), False, None) if isinstance(inside, Unknown) else inside
    # The file of another machine has no groups, and nobody is root there.
    root = bool(nodes.groups) and isinstance(facts.system, SystemFacts) and facts.system.user == "root"
    if permitted(node, nodes, facts):
        # access(2) alone knows it on some systems, if open(2) was not tried.
        return Refuser.SECURITY_MODULE if tried else Refuser.CONTROL_GROUP
    # Nothing of it is known of another machine; a device of nobody's is found nowhere else.
    may_be_mapped = inside.user_namespace is not None or inside.overrides_permissions is None
    if may_be_mapped and {node.owner, node.group} & set(_NOBODY):
        return Refuser.USER_NAMESPACE
    if root:
        bound = inside.overrides_permissions is False
        return Refuser.CAPABILITY if bound else Refuser.SECURITY_MODULE if tried else Refuser.CONTROL_GROUP
    return Refuser.GROUP if node.mode[4:6] == "rw" and node.group not in ("root", "") else Refuser.PERMISSIONS


def _registered(node: DeviceNode, nodes: DeviceNodeFacts) -> int | None:
    """Return the number that the driver of a file has in /proc/devices; None if it is not there."""
    drivers = _CHAR_DRIVERS.get(node.path, _OF_GPUS)
    return next((nodes.majors[name] for name in drivers if name in nodes.majors), None)


def permitted(node: DeviceNode, nodes: DeviceNodeFacts, facts: Facts) -> bool:
    """Return whether the permissions of ``node`` let this process read and write it."""
    own = isinstance(facts.system, SystemFacts) and bool(nodes.groups) and node.owner == facts.system.user
    return (
        node.mode[7:9] == "rw"
        or (node.mode[4:6] == "rw" and node.group in nodes.groups)
        or (own and node.mode[1:3] == "rw")
    )


def _file_type(node: DeviceNode, nodes: DeviceNodeFacts) -> str:
    """Return what lies in the place of a device file; "" for a device. Of another machine all files are plain ones."""
    kind = node.mode[:1]
    return "" if kind == "-" and not nodes.groups else _FILE_TYPES.get(kind, "")
