"""`gpudiag fleet`: checks many machines by an engine that is there, and merges their reports."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click
from click.core import ParameterSource

from gpudiag.cli.binding import takes
from gpudiag.cli.delivery import discard_output, in_color, reserve, width
from gpudiag.cli.help import CHECK_ARGUMENTS, CheckCommand, Command, CommandGroup
from gpudiag.cli.options import ProgressOption, debug_option
from gpudiag.errors import OutputError, UsageError
from gpudiag.option import option
from gpudiag.report.fleet import FORMATS, is_report
from gpudiag.text import put, say

if TYPE_CHECKING:
    from gpudiag.fleet import checking
    from gpudiag.fleet.expecting import FleetExpectations
    from gpudiag.model.fleet import FleetReport

OUTPUT_HELP = "Write the report to a file as well; format by suffix: .txt .json .csv .html .md .prom. May be repeated."
_ENGINES = ("dask", "kubernetes", "local", "slurm", "ssh")


class FleetFile(click.Path):
    """A file for a report of a fleet, in the format of its suffix."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        from gpudiag.report.fleet import format_of

        path = Path(os.fsdecode(value))
        format_of(path)
        return path


RACKS_HELP = "The rack of each node: lines such as 'r1: n[1-18]'."


@dataclass(frozen=True)
class Merging:
    """What a merge is compared with, and what it cannot know."""

    TITLE: ClassVar[str] = "Comparison"

    against: Path | None = option(
        "Say what changed since this older run.", metavar="FOLDER", type=click.Path(path_type=Path, exists=True)
    )
    nodes: str | None = option(
        "The nodes that were asked for, such as n[1-100]: one without a report has a row, too.", metavar="NODES"
    )
    racks: Path | None = option(RACKS_HELP, metavar="FILE")


@dataclass(frozen=True)
class Asking:
    """Which nodes, by which engine, and how."""

    TITLE: ClassVar[str] = "Nodes and engine"

    engine: str = option("What carries the check to the nodes.", choices=_ENGINES, metavar="ENGINE")
    folder: Path | None = option(
        "Folder of this run, which must not have another: plan, answers, reports.",
        flags=("-o",),
        metavar="FOLDER",
        type=click.Path(path_type=Path, file_okay=False),
    )
    resume: Path | None = option(
        "Go on with the run in this folder: ask the nodes that have no report. --deadline, --gpudiag, --ship and "
        "--parallel can be given anew.",
        metavar="FOLDER",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
    )
    confirm: bool = option(
        "Check the nodes that did not pass once more, and as many that passed: some are FLAKY.", default=False
    )
    deadline_s: float | None = option("The most time that a node may take. [default: 600]", metavar="SECONDS")
    parallel: int | None = option("Nodes that are asked at the same time.", minimum=1, metavar="N")
    gpudiag: str | None = option("How gpudiag is started on a node. [default: gpudiag]", metavar="COMMAND")
    ship: Path | None = option("Carry this gpudiag.pyz or wheel to nodes that have none.", metavar="FILE")
    racks: Path | None = option(RACKS_HELP, metavar="FILE")
    engine_option: tuple[str, ...] = option(
        "An argument for the engine's own program, such as -lroot for ssh. May be repeated.",
        default=(),
        metavar="WORD",
        type=str,
    )
    jobid: str | None = option("Slurm: check beside this job of yours.", metavar="JOB")
    gpus: int | None = option("GPUs to ask the engine for on each node. [default: all]", minimum=0, metavar="N")
    hosts: Path | None = option(
        "ssh: a file of hosts, or an inventory of Ansible.",
        metavar="FILE",
        type=click.Path(path_type=Path, exists=True, resolve_path=True),
    )
    address: str | None = option("Dask: the scheduler's address or file.", metavar="ADDRESS")
    image: str | None = option("Kubernetes: an image with TensorFlow and gpudiag.", metavar="IMAGE")
    manifest: Path | None = option(
        "Kubernetes: a file with the Job that those of the nodes are made of; see 'gpudiag fleet manifest job'.",
        metavar="FILE",
    )


@dataclass(frozen=True)
class Training:
    """Whether the nodes train together, and how they reach each other."""

    TITLE: ClassVar[str] = "Train together"

    together: bool = option(
        "Check nothing else: all nodes add vectors by MultiWorkerMirroredStrategy, and say who keeps them from it.",
        default=False,
    )
    port: int = option(
        "The port of each node in TF_CONFIG; nodes of one address take the next ones.",
        default=22220,
        minimum=1,
        metavar="PORT",
    )
    addresses: str | None = option(
        "The address of each node for the others: a pattern such as {node}-ib0, or a file of lines 'n1: 10.0.0.1'.",
        metavar="PATTERN|FILE",
    )
    wait_s: float = option("How long a node waits for the others before it starts.", default=60.0, metavar="SECONDS")
    times: int = option("How often each vector is added.", default=3, minimum=1, metavar="N")


@dataclass(frozen=True)
class FleetJudging:
    """What the fleet must be."""

    TITLE: ClassVar[str] = "Verdict and exit status"

    allow_missing: int = option("Exit with 0 if at most so many nodes have no report.", default=0, minimum=0)
    expect: Path | None = option(
        "Expectations of the fleet (TOML, the table [fleet]); one that is not met is a failure.", metavar="FILE"
    )

    @property
    def expected(self) -> FleetExpectations | None:
        """The expectations in the file; raises :class:`UsageError` if it cannot be used."""
        if self.expect is None:
            return None
        from gpudiag.fleet.expecting import load

        return load(self.expect)


@dataclass(frozen=True)
class FleetRendering:
    """The format of the report, and the files it goes to."""

    TITLE: ClassVar[str] = "Output"

    format: str = option("Format on standard output.", default="table", choices=FORMATS)
    output: tuple[Path, ...] = option(OUTPUT_HELP, default=(), type=FleetFile())


@dataclass(frozen=True)
class MergeRendering(FleetRendering):
    """The format and the files of a merge, which has no other use for ``-o``."""

    output: tuple[Path, ...] = option(OUTPUT_HELP, flags=("-o",), default=(), type=FleetFile())


@click.group(cls=CommandGroup)
def fleet() -> None:
    """Check many machines, and say what the bad ones have in common."""


@fleet.command(cls=CheckCommand)
@click.argument("nodes", nargs=-1)
@takes(
    "FLEET_", asking=Asking, training=Training, judging=FleetJudging, rendering=FleetRendering, progress=ProgressOption
)
@debug_option
@click.pass_context
def check(
    context: click.Context,
    *,
    nodes: tuple[str, ...],
    asking: Asking,
    training: Training,
    judging: FleetJudging,
    rendering: FleetRendering,
    progress: ProgressOption,
) -> int:
    """Check NODES, such as node[001-100], and merge their reports: gpudiag fleet check n[1-8] --engine ssh -o run

    What follows -- are arguments of 'gpudiag check' on each node, such as -- --level quick; {node} in them is its name.

    Exit status: 0 all passed, 1 a node failed or an expectation is not met, 2 wrong usage, 3 a check broke, 5 a node
    has no report or is not verified.
    """
    from gpudiag.fleet import checking
    from gpudiag.fleet.engines import EngineOptions

    reserve(rendering.output)
    arguments: tuple[str, ...] = context.meta[CHECK_ARGUMENTS]
    if asking.resume is not None:
        if nodes or arguments or asking.folder:
            raise UsageError("--resume takes the nodes, the arguments and the folder of the run: leave those out.")
        asking = _resumed(context, asking)
    else:
        _refuse_of_other_engines(asking)
    folder = asking.resume or asking.folder
    if folder is None or (asking.resume is None and asking.engine is None):
        raise UsageError("--engine and -o are needed, such as: gpudiag fleet check n[1-8] --engine ssh -o run")
    hosts = None if asking.hosts is None else str(asking.hosts)
    manifest = None if asking.manifest is None else str(asking.manifest)
    options = EngineOptions(
        asking.engine_option, asking.jobid, asking.gpus, hosts, asking.address, asking.image, manifest
    )
    report = checking.run(
        checking.Request(
            nodes,
            arguments,
            asking.engine,
            folder,
            options,
            resume=asking.resume is not None,
            confirm=asking.confirm,
            deadline_s=asking.deadline_s,
            parallel=asking.parallel,
            words=None if asking.gpudiag is None else tuple(shlex.split(asking.gpudiag)),
            ship=asking.ship,
            racks=asking.racks,
            allow_missing=judging.allow_missing,
            expected=judging.expected,
            together=_together(training),
        ),
        (lambda text: None) if progress.quiet else say,
    )
    _deliver(report, rendering)
    return report.exit_code


@fleet.command(cls=Command)
@click.argument("sources", nargs=-1, type=click.Path(path_type=Path, allow_dash=True, exists=True))
@takes("FLEET_", merging=Merging, judging=FleetJudging, rendering=MergeRendering)
@debug_option
def merge(
    *,
    sources: tuple[Path, ...],
    merging: Merging,
    judging: FleetJudging,
    rendering: MergeRendering,
) -> int:
    """Merge the reports in SOURCES: the folder of a fleet check, reports (NODE.json), or - for lines on standard input.

    Exit status: as of 'gpudiag fleet check'.
    """
    from gpudiag.fleet import sources as reading
    from gpudiag.fleet.merge import merged
    from gpudiag.fleet.names import expand

    reserve(rendering.output)
    if not sources:
        raise UsageError("which reports? Give the folder of a fleet check, files NODE.json, or - for standard input.")
    expected = judging.expected
    report = merged(
        reading.read(sources, reading.racks_in(merging.racks), expand(merging.nodes.split()) if merging.nodes else ()),
        against=None if merging.against is None else reading.read((merging.against,)),
        allow_missing=judging.allow_missing,
        expected=expected,
    )
    _deliver(report, rendering)
    return report.exit_code


_ENGINES_OF = {
    "jobid": ("slurm",),
    "gpus": ("kubernetes", "slurm"),
    "hosts": ("ssh",),
    "address": ("dask",),
    "image": ("kubernetes",),
    "manifest": ("kubernetes",),
    "engine_option": ("kubernetes", "slurm", "ssh"),
}
"""The engines that take an option; others would leave it out without a word."""


def _resumed(context: click.Context, asking: Asking) -> Asking:
    """Return the options for a run that goes on. Environment variables change nothing that the run has already.

    Raises :class:`UsageError` for an option on the command line that cannot be changed any more.
    """

    def is_given(name: str) -> bool:
        return context.get_parameter_source(name) is ParameterSource.COMMANDLINE

    for name in (*_ENGINES_OF, "racks", "together"):
        if is_given(name):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"--resume takes the options of the engine, and the racks, of the run: leave out {flag}.")
    of_run = (*_ENGINES_OF, "racks", "engine", "deadline_s", "gpudiag")
    unset = {name: getattr(Asking, name) for name in of_run if not is_given(name.removesuffix("_s"))}
    return replace(asking, **unset)


def _refuse_of_other_engines(asking: Asking) -> None:
    """Raise :class:`UsageError` for an option that would have no effect, and for a file as the folder of a run."""
    for name, engines in _ENGINES_OF.items():
        if getattr(asking, name) in (None, ()) or asking.engine in engines:
            continue
        flag = f"--{name.replace('_', '-')}"
        if asking.engine is not None:
            raise UsageError(f"{flag} belongs to the engine {' or '.join(engines)}, not to {asking.engine}.")
    if asking.folder is not None and is_report(asking.folder):
        raise UsageError(f"-o is the folder of the run; to write a report as well: --output {asking.folder}")


def _together(training: Training) -> checking.Together | None:
    """Return what the user says of the training; raises :class:`UsageError` if that is for nothing."""
    from gpudiag.fleet.checking import Together

    if training.together:
        return Together(training.port, training.addresses or "", training.wait_s, training.times)
    defaults = Training()
    for name in ("port", "addresses", "wait_s", "times"):
        if getattr(training, name) != getattr(defaults, name):
            raise UsageError(f"--{name.removesuffix('_s')} belongs to --together.")
    return None


@fleet.command(cls=Command, hidden=True)
@click.argument("node")
@click.argument("task")
@debug_option
def member(*, node: str, task: str) -> int:
    """Train with the other nodes of TASK; 'gpudiag fleet check --together' starts it on each of them."""
    from gpudiag.fleet.together.member import report_of

    put(report_of(node, task), "frame")
    return 0


def _deliver(report: FleetReport, rendering: FleetRendering) -> None:
    """Write the report to every file and to standard output; a file that cannot be written does not stop the others."""
    from gpudiag.report.files import write
    from gpudiag.report.fleet import format_of, render

    failures = []
    for path in rendering.output:
        try:
            write(path, render(report, format_of(path), width=80, color=False))
            say(f"gpudiag: report written to {path}")
        except OutputError as error:
            failures.append(str(error))
    color = in_color() and rendering.format == "table"
    try:
        put(render(report, rendering.format, width=width(), color=color), rendering.format, color=color)
    except BrokenPipeError:  # nobody wants to read it, which is not a fault
        discard_output()
    except OSError as error:
        discard_output()
        failures.append(f"standard output: cannot be written: {error.strerror or error}.")
    if failures:
        raise OutputError("\ngpudiag: error: ".join(failures))


def _add_commands() -> None:
    from gpudiag.cli.manifest import manifest
    from gpudiag.cli.node_label import label

    fleet.add_command(manifest)
    fleet.add_command(label)


_add_commands()
