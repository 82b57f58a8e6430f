"""The records of a fleet: what was asked for, what each node answered, and what the answers have in common."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import msgspec

from gpudiag.fix import Action
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.report import Verdict
from gpudiag.model.together import Task, Together, Witness
from gpudiag.record import Record

SCHEMA_VERSION = 1


class NoReport(str, Enum):
    """Why a node that was asked for has no report. None of these is a pass or a failure of the node."""

    NOT_USABLE = "not usable"
    """The engine does not give this node to anybody now, or does not know it."""
    NOT_STARTED = "not started"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    """The node answered, and did not let this user in."""
    NO_GPUDIAG = "no gpudiag"
    NO_TENSORFLOW = "no TensorFlow"
    """gpudiag ran, and there is no TensorFlow to check."""
    TIMED_OUT = "timed out"
    LOST = "lost"
    """The check began, and the node or the connection went away."""
    NO_ANSWER = "no answer"
    CUT_SHORT = "cut short"
    NOT_A_REPORT = "not a report"
    OTHER_VERSION = "other version"
    """The gpudiag there is too old for a fleet, or its reports are of a schema that this one does not read."""
    DUPLICATE = "duplicate"
    """Two reports have the name of this node."""
    INTERRUPTED = "interrupted"
    """The collector was stopped before the node had answered."""


class NodeVerdict(str, Enum):
    """What a fleet says of a node: the verdict of its report, or one of two that only a fleet has."""

    FAIL = "FAIL"
    FLAKY = "FLAKY"
    """Checked twice, once with PASS and once without."""
    BROKEN = "BROKEN"
    NOT_VERIFIED = "NOT VERIFIED"
    NO_REPORT = "NO REPORT"
    PASS = "PASS"

    @classmethod
    def of(cls, verdict: Verdict) -> NodeVerdict:
        return cls(verdict.value)


Index = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]
Measured = Annotated[float, msgspec.Meta(ge=-1e30, le=1e30)]
"""What a GPU can have: whatever a report says, nothing overflows that is counted with it."""


class FactKind(str, Enum):
    """Facts whose absence says something: a package is not installed, a variable is not set."""

    PACKAGE = "package"
    VARIABLE = "variable"


class CauseSummary(Record):
    """A cause in the diagnosis of a node."""

    cause_id: str
    cause: str
    """The cause in one sentence."""
    confidence: Confidence
    unfit: bool = False


class Summary(Record):
    """What a fleet keeps of a report: about 3 kB, whatever the report has."""

    gpudiag_version: str
    started_at: str
    """The start of the run: UTC, ISO 8601."""
    duration_s: float
    level: str
    verdict: Verdict
    headline: str
    """The first sentence of the report's answer."""
    hostname: str = ""
    """As the node itself says: for people, never to tell nodes apart."""
    simulated: bool = False
    causes: tuple[CauseSummary, ...] = ()
    findings: tuple[str, ...] = ()
    """The findings that fail, and what broke, such as ``memory.growth.cap_ignored`` or ``libraries.cudnn.broken``."""
    actions: tuple[Action, ...] = ()
    """For each cause its first fix or, if it has none, its first check."""
    gpus: tuple[str, ...] = ()
    """The model of each GPU in scope."""
    indices: tuple[Index, ...] = ()
    """The index of each GPU in scope, as nvidia-smi counts them."""
    facts: dict[str, str] = {}
    """What may set nodes apart: a fact's name and its value. Without what differs in every run, such as times."""
    unread: tuple[FactKind, ...] = ()
    """Kinds of facts that were not read, or not all kept: that one of them is not here says nothing."""
    figures: dict[str, tuple[Measured | None, ...]] = {}
    """For each GPU in scope, in the order of ``gpus``, what was measured under load or read from NVML."""
    together: Witness | None = None
    """What the node saw of the others, if the nodes trained together."""


class Answer(Record):
    """What came back from one node in one attempt: a report, or the reason why there is none."""

    node: str
    attempt: int = 1
    reason: NoReport | None = None
    last_line: str = ""
    """What the node or the engine said last, if there is no report."""
    summary: Summary | None = None
    seconds: float = 0.0
    """From the start of the engine's command to its end."""


class EngineOptions(Record):
    """What the user says of an engine; each engine takes what it needs."""

    options: tuple[str, ...] = ()
    """Arguments for the engine's own program, such as ``-lroot`` for ssh, or ``--partition=gpu`` for Slurm."""
    jobid: str | None = None
    """Slurm: check beside this job of one's own."""
    gpus: int | None = None
    """GPUs to ask the engine for on each node; None: all that it says the node has."""
    hosts: str | None = None
    """ssh: a file with hosts, or an inventory of Ansible."""
    address: str | None = None
    """Dask: the address of the scheduler, or the path of its file."""
    image: str | None = None
    """Kubernetes: the image of the containers that check."""
    manifest: str | None = None
    """Kubernetes: a file with the Job that those of the nodes are made of."""
    run: str = ""
    """The name of the run, by which an engine finds what a collector that was killed has left."""


class Plan(Record):
    """What a fleet check was asked to do; written before anything starts."""

    fleet_version: int
    gpudiag_version: str
    run: str
    """A random name of this run, so that files of another are not mixed with it."""
    started_at: str
    """UTC, ISO 8601."""
    engine: str
    nodes: tuple[str, ...]
    """Every node that was asked for, in order."""
    arguments: tuple[str, ...]
    """The arguments of ``gpudiag check`` on each node."""
    deadline_s: float
    """The most seconds that a node may take; it ends the check itself then."""
    command: tuple[str, ...] = ("gpudiag",)
    """How gpudiag is started on each node."""
    options: EngineOptions = EngineOptions()
    not_usable: dict[str, str] = {}
    """Nodes that the engine gives to nobody now, each with its reason."""
    racks: dict[str, str] = {}
    """The rack of each node, where the engine or the user says it."""
    together: Task | None = None
    """What each node is told, if the nodes train together."""


class NodeRow(Record):
    """A node of the fleet."""

    node: str
    verdict: NodeVerdict
    reason: NoReport | None = None
    """Why there is no report; None if there is one."""
    label: str = ""
    """The first cause or finding; for NO REPORT its reason."""
    text: str = ""
    """The headline of the report, or the last line that was seen."""
    attempts: tuple[str, ...] = ()
    """The verdict or reason of each attempt, if there were several."""
    simulated: bool = False
    """Whether the report is about simulated GPUs."""


class Group(Record):
    """Nodes with the same verdict for the same reason."""

    verdict: NodeVerdict
    label: str
    nodes: str
    """Folded, such as ``node[017,101-102]``."""
    number: int
    text: str = ""
    """The headline of one of them."""


class NearFact(Record):
    """A fact that sets nodes apart nearly as well as the best one."""

    fact: str
    value: str
    bad_with: int
    """Nodes with the cause and the fact."""
    with_fact: int


class Separation(Record):
    """What the nodes with a cause have in common, and others lack."""

    label: str
    """The cause."""
    facts: tuple[tuple[str, str], ...]
    """One fact or a pair: names and values."""
    bad_with: int
    """Nodes with the cause and the facts."""
    with_facts: int
    bad: int
    """Nodes with the cause."""
    others: int
    """Nodes without the cause, with the facts or not."""
    p: float
    """Of Fisher's exact test, one-sided, times the number of tests (Bonferroni), among the nodes that the separations
    of this cause before this one leave."""
    phi: float
    """Matthews' correlation between the facts and the cause, among the same nodes as ``p``."""
    same: tuple[str, ...] = ()
    """Other facts that split the nodes in the same way, each with its value."""
    near: tuple[NearFact, ...] = ()
    """Facts that split them nearly as well."""
    same_labels: tuple[str, ...] = ()
    """Other causes that exactly the same nodes have."""


class Outlier(Record):
    """A figure of one GPU that is far from those of the other GPUs of its model."""

    node: str
    gpu: int
    """Its index, as nvidia-smi counts the GPUs of the node."""
    model: str
    figure: str
    value: float
    median: float
    z: float
    """Modified z score: how many standard deviations of a healthy GPU it is away, of a count on a logarithmic scale."""
    number: int = 0
    """How many GPUs of the model were compared."""
    also: tuple[str, ...] = ()
    """Other figures in which this GPU is far from the others."""


class Drift(Record):
    """A fact in which some nodes differ from the majority."""

    fact: str
    majority: str
    number: int
    """Nodes with the majority's value."""
    others: tuple[tuple[str, str, int], ...]
    """Each other value, the folded nodes that have it ("" if they are too many to be listed), and how many they are;
    the value of the fewest nodes first."""
    among: str = ""
    """Compared were the nodes with these GPUs; "" for all nodes."""
    same: tuple[str, ...] = ()
    """Other facts in which exactly these nodes differ."""


class ActionText(Record):
    """A command or a sentence that says what to do, and how many nodes need it."""

    text: str
    is_command: bool
    number: int


class ActionSum(Record):
    """What has to be done, and the nodes that need it."""

    kind: str
    """A value of :class:`gpudiag.fix.Kind`."""
    where: str
    """A value of :class:`gpudiag.fix.Where`."""
    nodes: str
    number: int
    texts: tuple[ActionText, ...]
    """The most frequent commands, or sentences of what has no command."""


class NodeChange(Record):
    """Nodes whose verdict or cause differs from that in an older folder."""

    old: str
    new: str
    nodes: str
    number: int
    worse: bool


class FigureChange(Record):
    """A figure of the GPUs of a model, before and after."""

    model: str
    figure: str
    old: float
    """The median of the GPUs that were compared."""
    new: float
    change: float
    """The median of the changes of each GPU, as a part of its older value: -0.05 is 5 % less."""
    error: float
    """The standard error of ``change``, by how much the GPUs differ in it."""
    number: int
    """How many GPUs were compared."""
    counts: bool
    """True if the change is larger than noise."""
    worse: bool = False


class FactChange(Record):
    """A fact that changed in the same way on many nodes, such as the driver in an upgrade."""

    fact: str
    old: str
    new: str
    number: int
    """On how many nodes it changed so."""
    had: int
    """How many nodes had the old value, and have a report in both runs."""
    kept: str
    """The folded nodes that have the old value still."""
    kept_number: int
    same: tuple[str, ...] = ()
    """Other facts that changed on exactly these nodes, each with both values."""


class FleetReport(Record):
    """What a merge found; every format is rendered from it alone."""

    schema_version: int
    gpudiag_version: str
    made_at: str
    origin: str
    """The folder or the files that were merged."""
    asked: int
    """How many nodes were asked for."""
    counts: dict[str, int]
    """Nodes by :class:`NodeVerdict`."""
    groups: tuple[Group, ...]
    rows: tuple[NodeRow, ...]
    exit_code: int
    engine: str = ""
    run: str = ""
    separations: tuple[Separation, ...] = ()
    outliers: tuple[Outlier, ...] = ()
    drift: tuple[Drift, ...] = ()
    actions: tuple[ActionSum, ...] = ()
    against: str = ""
    """The older folder that it was compared with."""
    changes: tuple[NodeChange, ...] = ()
    fact_changes: tuple[FactChange, ...] = ()
    figure_changes: tuple[FigureChange, ...] = ()
    racks: dict[str, str] = {}
    """The rack of each node, where a file says so."""
    notes: tuple[str, ...] = ()
    simulated: int = 0
    """Nodes whose GPUs are simulated."""
    expected_by: str = ""
    """The file of expectations of the fleet."""
    met: tuple[str, ...] = ()
    """Expectations of the fleet that are met, each with what was expected and what was seen."""
    unmet: tuple[str, ...] = ()
    """Expectations of the fleet that are not met."""
    together: Together | None = None
    """Whether the nodes train together, if they were asked to."""
