"""The report: rows, outcomes, findings, verdict and exit code. Pure: no clock, no file, no process."""

from __future__ import annotations

from collections import Counter
from datetime import date
from enum import Enum

import msgspec

from gpudiag.fix import Action
from gpudiag.knowledge.placement import Placement
from gpudiag.model.change import ReportComparison
from gpudiag.model.diagnosis import Diagnosis, RootCause, Stage
from gpudiag.model.expectations import AREA as EXPECT
from gpudiag.model.expectations import Expectations
from gpudiag.model.facts import Facts, NvmlDevice, Unknown
from gpudiag.model.fate import GpuAccount
from gpudiag.model.health import GpuHealth
from gpudiag.model.missing import missing_gpus, uncounted_gpus
from gpudiag.model.program import ProgramTrace
from gpudiag.model.reading import AnyReading
from gpudiag.record import Record

SCHEMA_VERSION = 2

SIMULATED = "Simulated "
"""The prefix of the name of every simulated GPU."""

Figure = str | int | float | bool | None
"""A measured or expected value that a finding carries beside its message."""


class Severity(str, Enum):
    """How much a finding matters: notes do not change the exit code, and warnings only with ``--strict``."""

    NOTE = "note"
    WARNING = "warning"
    FAIL = "fail"


class Verdict(str, Enum):
    """The overall result of a report. ``PASS`` needs evidence for every GPU; see :func:`verdict`."""

    PASS = "PASS"
    FAIL = "FAIL"
    BROKEN = "BROKEN"
    NOT_VERIFIED = "NOT VERIFIED"


class NoReading(str, Enum):
    """Why a probe gave no reading that could be judged."""

    EXCEPTION = "exception"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    BUSY = "machine busy"
    """The deadline passed, and the probe was kept from running for most of the time."""
    UNKILLABLE = "unkillable"
    NO_RESULT = "no result"
    BAD_RESULT = "bad result"
    OUTPUT_FLOOD = "output flood"
    SERVER_LOST = "fork server lost"
    NOT_STARTED = "not started"
    DISTURBED = "disturbed"
    NO_CONTEXT = "no CUDA context"
    NO_MEMORY = "out of memory"
    NOT_SIMULATED = "not simulated"
    OPERATION_FAILED = "operation failed"
    INTERRUPTED = "interrupted"


class Acceptance(Record):
    """The statement in a deployment's expectations that a finding is accepted; the finding becomes a note."""

    reason: str
    until: date
    """The last day on which the finding is accepted."""
    severity: Severity
    """The finding's severity without the acceptance."""
    source: str
    """The file of the expectations."""


class Finding(Record):
    """A judged fact: what was measured, how much it matters, and what to do next."""

    kind: str
    """Name of the fault within its probe, such as ``cap_ignored``."""
    severity: Severity
    message: str
    fix: tuple[Action, ...] = ()
    """What to do about it; empty if only the cause in the diagnosis has a fix."""
    cause: str = ""
    """The cause of the diagnosis that explains it and has the whole fix; "" if none does."""
    figures: dict[str, Figure] = {}
    accepted: Acceptance | None = None
    """The acceptance of the finding; None if nobody accepted it."""


class Limit(Record):
    """A limit that a probe compares a GPU's memory use with."""

    name: str
    """The setting behind the limit, such as ``fraction 0.25`` or ``TF_PER_DEVICE_MEMORY_LIMIT_MB=512``."""
    bytes: int
    """The limit for the whole device, including what was in use before, so that it can be drawn beside
    :class:`Timeline`."""
    gpu: str = ""
    """PCI bus id of the GPU; empty for every GPU of the row."""


class Timeline(Record):
    """Memory in use on one GPU while a probe ran, by NVML, every process counted."""

    gpu: str
    """UUID of the GPU, as in the row."""
    seconds: float
    """How long the memory was watched, from the beginning of the measurement."""
    samples: tuple[tuple[int, int], ...]
    """Milliseconds since the beginning, and bytes in use: the first sample, and each that differs from the one
    before."""
    looks: tuple[int, ...] = ()
    """Milliseconds at which the probe itself read the memory for its judgement."""


RUN_ENDED = "for the run passed"
"""How the detail of a row ends if the deadline of the whole run ended the probe."""


class Outcome(Record, tag_field="outcome"):
    """Base of the closed union ``AnyOutcome``."""


class Gap(Record):
    """Something that a run did not verify."""

    what: str
    """What was not verified, such as ``14.1 of 14.1 GiB of memory`` or ``convolutions in float64``."""
    why: str = ""
    where: str = ""
    """The GPUs on which it was not verified, such as ``GPU 0-3``; empty for all of them."""
    probe: str = ""
    """The probe that can verify it; empty if none can."""


class Judged(Outcome, tag="judged"):
    """The probe measured and was judged; no findings means that everything is as expected."""

    findings: tuple[Finding, ...] = ()
    verified: tuple[str, ...] = ()
    """PCI bus ids of the GPUs on which this probe ran a kernel whose result was checked."""
    figure: str = ""
    """The key figure, one short line for the table."""
    table: tuple[tuple[str, ...], ...] = ()
    """Details that are best read as a table, headers first; shown with ``--verbose``."""
    limits: tuple[Limit, ...] = ()
    """The limits that memory use was compared with, if the probe measures memory."""
    gaps: tuple[Gap, ...] = ()
    """What the probe usually verifies but left out."""


class Skipped(Outcome, tag="skipped"):
    """The probe could not run here; ``reason`` says what is missing."""

    reason: str


class Broken(Outcome, tag="broken"):
    """The probe gave nothing to judge. It is neither a pass nor a failure of TensorFlow, and never green."""

    cause: NoReading
    detail: str
    """The reason in one line: the exception, the signal's name, or the deadline in seconds."""
    explained_by: str = ""
    """The proved cause of the diagnosis for which the probe broke; "" if none explains it."""

    @property
    def by_the_run(self) -> bool:
        """True if the whole run was ended: that says nothing about the machine.

        It is by the run's deadline, or, in a report of an older gpudiag, by a signal.
        """
        return self.cause is NoReading.INTERRUPTED or self.at_the_deadline

    @property
    def at_the_deadline(self) -> bool:
        """True if the run's deadline passed before this probe ended or began."""
        return self.cause in (NoReading.TIMEOUT, NoReading.BUSY) and self.detail.endswith(RUN_ENDED)


class Interrupted(Outcome, tag="interrupted"):
    """A signal stopped the run before the probe had ended, or before it began."""

    detail: str
    """The signal, in one line."""


AnyOutcome = Judged | Skipped | Broken | Interrupted


class Gpu(Record):
    """A GPU in scope: one that NVML reports and the caller's ``CUDA_VISIBLE_DEVICES`` lets through."""

    index: int
    """NVML's index (PCI order, as ``nvidia-smi`` prints it)."""
    name: str
    uuid: str
    """Its identifier in ``CUDA_VISIBLE_DEVICES``: its UUID, or the UUID of the MIG instance that the caller's mask
    chose."""
    pci_bus_id: str
    memory_total_bytes: int

    @property
    def simulated(self) -> bool:
        """True for a GPU of a simulated machine; its name says so."""
        return self.name.startswith(SIMULATED)

    @classmethod
    def of(cls, device: NvmlDevice, uuid: str) -> Gpu:
        """Return the GPU that NVML reports as ``device`` and that CUDA is given as ``uuid``."""
        return cls(device.index, device.name, uuid, device.pci_bus_id, device.memory_total_bytes)


class Row(Record):
    """One probe on one device, on all GPUs, or on the host."""

    probe: str
    """``<area>.<name>``."""
    devices: tuple[str, ...]
    """UUIDs of the GPUs the probe was given; empty for a host or CPU probe, and if there was no GPU to give."""
    outcome: AnyOutcome
    duration_s: float
    reading: AnyReading | None = None
    """The measurements of the child; ``gpudiag show --rejudge`` judges them again."""
    placements: tuple[Placement, ...] = ()
    """Where operations ran, according to TensorFlow."""
    log: tuple[str, ...] = ()
    """Last lines the child wrote to stdout and stderr."""
    began_s: float | None = None
    """Seconds since the run began; None if no child was started, or an older gpudiag made the report."""
    timelines: tuple[Timeline, ...] = ()
    """The memory in use on each of its GPUs, if the probe measures memory."""

    @property
    def area(self) -> str:
        """The part of the probe's name before the dot."""
        return self.probe.partition(".")[0]

    @property
    def name(self) -> str:
        """The part of the probe's name after the dot."""
        return self.probe.partition(".")[2] or self.probe

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of a judged row; empty for the other outcomes."""
        return self.outcome.findings if isinstance(self.outcome, Judged) else ()

    @property
    def crash(self) -> Broken | None:
        """The reason why the probe itself broke; None if gpudiag or a busy machine is the reason, not the probe."""
        broken = self.outcome if isinstance(self.outcome, Broken) else None
        not_its_fault = (NoReading.NOT_STARTED, NoReading.BUSY)
        if broken is None or broken.by_the_run or broken.cause in not_its_fault or self.reading is not None:
            return None
        return broken

    @property
    def status(self) -> str:
        """One word of :data:`STATUSES`; the most severe finding decides."""
        if isinstance(self.outcome, Skipped):
            return "skipped"
        if isinstance(self.outcome, Broken):
            return "broken"
        if isinstance(self.outcome, Interrupted):
            return "interrupted"
        severities = {finding.severity for finding in self.outcome.findings}
        for severity in (Severity.FAIL, Severity.WARNING, Severity.NOTE):
            if severity in severities:
                return str(severity.value)
        return "pass"


LOAD = "load"
"""The area of the probes of level stress."""
STATUSES = ("pass", "note", "warning", "fail", "broken", "interrupted", "skipped")
"""The possible statuses of a row, in the order in which counts are printed."""


class World(Record):
    """The machine that the probes saw."""

    simulated: bool
    spec: str = ""
    """The simulated machine's specification; empty for the real machine."""


class Settings(Record):
    """The settings that a configuration file made for the run."""

    file: str
    values: dict[str, str] = {}
    """Key to value, without settings that the command line or a variable overrides."""

    @property
    def text(self) -> str:
        """One line, such as ``settings from gpudiag.toml: simulate=2, level=quick``."""
        return (
            f"settings from {self.file}: {', '.join(f'{key}={value}' for key, value in self.values.items()) or 'none'}"
        )


class Level(Record):
    """How much of the catalogue a run should cover."""

    name: str = "full"
    """``quick`` (probes that fill no memory and do not disturb running jobs), ``full``, or ``stress`` (those that load
    all GPUs for a given time)."""
    reason: str = ""
    """The reason why gpudiag chose the level; empty if the caller chose it, or if nothing had to be left out."""


class Limits(Record):
    """The caller's demands; they are part of the report, so that it can be judged again by the same rules."""

    require_gpus: int = 0
    """How many GPUs must be in scope; fewer is a failure."""
    count_simulated: bool = False
    """True if simulated GPUs count towards ``require_gpus``, because the caller asked for both on one command line."""
    allow_no_gpu: bool = False
    """True if a machine that is known to have no GPU ends with status 0 instead of 5."""
    strict: bool = False
    """True if warnings count as failures."""
    by_plugin: bool = False
    """True if pytest's plugin has the demands, whose options begin with ``--gpudiag-``."""

    @property
    def failing(self) -> frozenset[Severity]:
        """The severities that make a report fail."""
        return frozenset({Severity.FAIL, Severity.WARNING} if self.strict else {Severity.FAIL})


class Report(Record):
    """Everything that one run found; every format is rendered from it alone.

    ``verdict`` and ``exit_code`` are derived by :func:`conclude`; a report that was not concluded is not verified.
    """

    schema_version: int
    gpudiag_version: str
    started_at: str
    """The start of the run: UTC, ISO 8601."""
    duration_s: float
    command: tuple[str, ...]
    isolation: str
    """``fork`` or ``spawn``."""
    world: World
    limits: Limits
    facts: Facts
    gpus: tuple[Gpu, ...]
    rows: tuple[Row, ...]
    signal: int | None
    """Number of the signal that ended the run early, or None."""
    verdict: Verdict = Verdict.NOT_VERIFIED
    exit_code: int = 5
    level: Level = Level()
    lines: tuple[str, ...] = ()
    """Lines of the log of the user's own program, if it was given."""
    diagnosis: Diagnosis = Diagnosis()
    settings: Settings | None = None
    """The settings of the configuration file; None if there was none, or none was used."""
    notes: tuple[str, ...] = ()
    """Sentences about what was left out or could not be done, apart from the probes."""
    withheld: tuple[str, ...] | None = None
    """Reasons why the report cannot be a ``PASS``, whatever its rows say: GPUs in scope that cannot be used. None: an
    older gpudiag made the report and did not check this."""
    accounts: tuple[GpuAccount, ...] | None = None
    """The state of each GPU of the machine, in scope or not; None: an older gpudiag made the report."""
    since: ReportComparison | None = None
    """The changes since the last PASS, or since the report that the caller named; None: nothing to compare with."""
    program: ProgramTrace | None = None
    """The trace of a program that ``gpudiag trace`` ran; such a report is about the program and has no rows."""
    expected: Expectations | None = None
    """What the machine was expected to be; the rows of the area ``expect`` say whether it is."""
    codes: dict[str, str] = {}
    """Codes of the driver, of a library or of the operating system that the JSON names, with their meanings; written by
    :func:`gpudiag.model.codec.encode`, and empty in a report that was read."""
    skip: tuple[str, ...] = ()
    """The areas, probes and globs of ``--skip`` that left out a probe that was selected."""
    earlier: dict[str, str] | None = None
    """Probes that did not pass in an earlier run and have not passed since, in this run neither, each with its status
    then. None: the report was not kept as the last run, so ``gpudiag check --failed`` does not know it."""
    earlier_gpus: dict[str, tuple[str, ...]] = {}
    """The UUIDs of the GPUs on which each of ``earlier`` did not pass and has not passed since."""
    health: tuple[GpuHealth, ...] = ()
    """What NVML said of each GPU while it was under load; empty at other levels than stress."""
    not_verified: tuple[Gap, ...] | None = None
    """What the run did not verify, whatever its verdict; None: an older gpudiag made the report, or no probe ran."""

    @property
    def is_log_alone(self) -> bool:
        """True if only a program's log was looked at: nothing is known about a machine."""
        return bool(self.lines) and not self.rows and isinstance(self.facts.system, Unknown)

    @property
    def counts(self) -> dict[str, int]:
        """How many rows have each of :data:`STATUSES`; a status that no row has is left out."""
        row_counts = Counter(row.status for row in self.rows)
        return {status: row_counts[status] for status in STATUSES if row_counts[status]}

    @property
    def severities(self) -> dict[Severity, int]:
        """How many findings the rows have of each severity; 0 for one that no finding has."""
        severity_counts = Counter(finding.severity for row in self.rows for finding in row.findings)
        return {severity: severity_counts[severity] for severity in Severity}

    @property
    def has_load(self) -> bool:
        """True if a probe of level stress has a row."""
        return any(row.area == LOAD for row in self.rows)

    @property
    def areas(self) -> dict[str, tuple[Row, ...]]:
        """The rows of each area, areas and rows in the order of the report."""
        return {
            area: tuple(row for row in self.rows if row.area == area)
            for area in dict.fromkeys(row.area for row in self.rows)
        }

    @property
    def unverified(self) -> tuple[Gpu, ...]:
        """The GPUs in scope on which no row verified a kernel."""
        verified = {pci for row in self.rows if isinstance(row.outcome, Judged) for pci in row.outcome.verified}
        return tuple(gpu for gpu in self.gpus if gpu.pci_bus_id not in verified)

    @property
    def unfit(self) -> tuple[RootCause, ...]:
        """The proved causes that make a GPU in scope unfit, whatever the rows say."""
        scope = {gpu.pci_bus_id.lower() for gpu in self.gpus} | {pci.lower() for pci in uncounted_gpus(self.facts)}
        if not scope and not missing_gpus(self.facts):
            return ()
        return tuple(
            cause
            for cause in self.diagnosis.proved
            if cause.unfit and (not cause.gpus or not scope.isdisjoint(map(str.lower, cause.gpus)))
        )

    @property
    def explained(self) -> tuple[Row, ...]:
        """The rows that broke for a proved cause of the diagnosis."""
        proved = {cause.cause_id for cause in self.diagnosis.proved}
        return tuple(row for row in self.rows if isinstance(row.outcome, Broken) and row.outcome.explained_by in proved)

    @property
    def failed_gpus(self) -> frozenset[str]:
        """PCI bus ids, in lower case, of the GPUs in scope that a cause of a failed stage is about, that a proved cause
        makes unfit, or on which a check failed."""
        scope = {gpu.pci_bus_id.lower() for gpu in self.gpus}
        of_causes = self.diagnosis.causes if self.diagnosis.broken_at is not None else ()
        unfit = {pci.lower() for cause in self.unfit for pci in cause.gpus or scope}
        hit = set(unfit)
        hit |= {pci.lower() for cause in of_causes for pci in cause.gpus}
        for row in self.rows:
            for finding in row.findings:
                if finding.severity is Severity.FAIL:
                    where = self.gpus_of(row, finding)
                    hit |= where & unfit or where
            if row.crash and len(row.devices) == 1:
                hit |= {gpu.pci_bus_id.lower() for gpu in self.gpus if gpu.uuid in row.devices}
        return frozenset(hit & scope)

    def gpus_of(self, row: Row, finding: Finding) -> set[str]:
        """Return the PCI bus ids, in lower case, of the GPUs that a finding is about; empty if that is not known."""
        given = [gpu.pci_bus_id.lower() for uuid in row.devices for gpu in self.gpus if gpu.uuid == uuid]
        causes = (cause for cause in self.diagnosis.all_causes if cause.cause_id == finding.cause)
        of_cause = {pci.lower() for cause in causes for pci in cause.gpus}
        named = (of_cause or {str(finding.figures.get("pci_bus_id", "")).lower()}) & {*given}
        if not named:
            numbers = (
                str(finding.figures.get(name, "")).removeprefix("GPU:") for name in ("device", "source", "target")
            )
            named = {given[int(number)] for number in numbers if number.isdecimal() and int(number) < len(given)}
        verified = row.outcome.verified if isinstance(row.outcome, Judged) else ()
        if not named and (len(given) == 1 or verified):
            return {*given} - ({*map(str.lower, verified)} if len(given) > 1 else set())
        return named

    def device_label(self, row: Row) -> str:
        """Return what ``row`` ran on: ``GPU 0``, ``GPU 0-3`` (NVML's indices), ``host``, ``CPU``, or "" if on none."""
        if row.devices:
            indices = sorted(gpu.index for gpu in self.gpus if gpu.uuid in row.devices)
            return f"GPU {ranges(indices) or '?'}"
        if isinstance(row.outcome, Skipped | Interrupted):
            return ""
        return "host" if row.area in ("host", EXPECT) else "CPU"


def is_affected(row: Row, cause: RootCause, gpus: tuple[Gpu, ...]) -> bool:
    """Return whether a cause affects a GPU that the row was given; True if the row or the cause names none."""
    given = {gpu.pci_bus_id.lower() for gpu in gpus if gpu.uuid in row.devices}
    return not cause.gpus or not given or not given.isdisjoint(map(str.lower, cause.gpus))


def conclude(report: Report) -> Report:
    """Return ``report`` with its verdict and exit code, derived from the rest of it."""
    report = msgspec.structs.replace(report, withheld=reasons_against(report))
    reached = verdict(report)
    return msgspec.structs.replace(report, verdict=reached, exit_code=exit_code(reached, report))


def reasons_against(report: Report) -> tuple[str, ...]:
    """Return the reasons against a ``PASS``: GPUs in scope that are missing or lost, and proved causes."""
    return (*missing_gpus(report.facts), *(f"{cause.cause} ({cause.cause_id})" for cause in causes_against(report)))


def causes_against(report: Report) -> tuple[RootCause, ...]:
    """Return the proved causes that stand against a ``PASS``.

    A cause of the last stages counts only if it makes a GPU unfit: otherwise the GPU is used, but not as intended.
    """
    unfit = report.unfit
    last_stages = (Stage.CONFIGURATION, Stage.PROGRAM)
    return tuple(cause for cause in report.diagnosis.proved if cause in unfit or cause.stage not in last_stages)


def verdict(report: Report) -> Verdict:
    """Return the verdict over the rows of ``report``.

    ``PASS`` needs at least one GPU in scope and, for every one of them, a kernel run whose result and PCI bus id were
    verified. A run in which nothing was verified, or that a signal stopped early, is never a pass, whatever else went
    well; nor is one for which ``withheld`` names a reason. A failed part of the diagnosis might have found such a
    reason, so it breaks a run as a broken probe does. A probe for which the machine was too busy shows nothing. A
    proved cause that makes a GPU in scope unfit is a failure, even if probes broke: the cause explains that, or matters
    more. So is a proved cause that explains every broken probe.
    """
    if any(finding.severity in report.limits.failing for row in report.rows for finding in row.findings):
        return Verdict.FAIL
    if report.unfit:
        return Verdict.FAIL
    explained = report.explained
    unfinished = [row for row in report.rows if isinstance(row.outcome, Broken | Interrupted)]
    broken = [row.outcome for row in unfinished if isinstance(row.outcome, Broken) and row not in explained]
    if report.diagnosis.failed or any(outcome.cause is not NoReading.BUSY for outcome in broken):
        return Verdict.BROKEN
    if explained:
        return Verdict.FAIL
    if not unfinished and report.gpus and not report.unverified and report.signal is None and not report.withheld:
        return Verdict.PASS
    return Verdict.NOT_VERIFIED


def exit_code(reached: Verdict, report: Report) -> int:
    """Return the exit status. If several apply, the order is: signal, failed, broken, not verified, pass."""
    if report.signal is not None:
        return 128 + report.signal
    if reached is Verdict.NOT_VERIFIED:
        unfinished = any(isinstance(row.outcome, Broken | Interrupted) for row in report.rows)
        return 0 if report.limits.allow_no_gpu and report.facts.without_gpu and not unfinished else 5
    return {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.BROKEN: 3}[reached]


NOTHING_WRONG, CAUSE_FOUND, GPUDIAG_BROKE, NOTHING_KNOWN = 0, 1, 3, 5


def why_exit_code(report: Report) -> int:
    """Return the exit status of ``gpudiag why``; it depends on causes, not on what was verified."""
    diagnosis = report.diagnosis
    if report.signal is not None:
        return 128 + report.signal
    if diagnosis.causes:
        return CAUSE_FOUND
    if diagnosis.failed:
        return GPUDIAG_BROKE
    if report.facts.without_gpu:
        return NOTHING_WRONG
    return NOTHING_KNOWN if diagnosis.unexplained or diagnosis.broken_at is not None else NOTHING_WRONG


def ranges(numbers: list[int]) -> str:
    """Return sorted numbers as ``0-3,6``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)
