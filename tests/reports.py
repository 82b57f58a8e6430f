"""Reports for tests: builders, and a sample that has everything a report can have."""

from __future__ import annotations

import ast
import shlex

from examples.facts import example, example_gpu, example_with_gpus
from gpudiag.fix import Action, Where, note
from gpudiag.knowledge.placement import Placement
from gpudiag.model.diagnosis import RootCause
from gpudiag.model.facts import EnvironmentFacts, Facts, Unknown
from gpudiag.model.reading import SavedReading
from gpudiag.model.report import (
    SCHEMA_VERSION,
    AnyOutcome,
    Broken,
    Finding,
    Gpu,
    Interrupted,
    Judged,
    Limits,
    NoReading,
    Report,
    Row,
    Severity,
    Skipped,
    World,
    conclude,
)


def fix_lines(cause: RootCause) -> tuple[str, ...]:
    """Return the fix of a cause as lines for a shell."""
    return tuple(map(fix_line, cause.fix))


def fix_line(action: Action) -> str:
    """Return an action as a line for a shell: the clause follows as a comment."""
    return "  # ".join(filter(None, (action.command, action.clause))) if action.command else f"# {action.clause}"


def unreadable(action: Action) -> str:
    """Return what Python or a shell says of a command that cannot be pasted; "" if it can."""
    try:
        if action.where is Where.PROGRAM:
            code = action.command.replace("...", "x")
            ast.parse(f"{code} pass" if code.endswith(":") else f"{code}\ndef f(): pass")
        else:
            shlex.split(action.command)
    except (SyntaxError, ValueError) as error:
        return f"{action.command}: {error}"
    return ""


GPUS = tuple(Gpu.of(device, device.uuid) for device in map(example_gpu, range(2)))

CAP_IGNORED = Finding(
    "cap_ignored",
    Severity.FAIL,
    "took 2048 MiB, the cap was 1024 MiB",
    (note("Unset TF_FORCE_GPU_ALLOW_GROWTH, which overrides the options of the session."),),
    figures={"taken_mib": 2048.0, "cap_mib": 1024.0},
)
MISSPELT = Finding(
    "misspelt",
    Severity.WARNING,
    "TF_FORCE_GPU_ALLOW_GROWHT=true has no effect: TensorFlow reads no such variable",
    (note("Did you mean TF_FORCE_GPU_ALLOW_GROWTH?"),),
    figures={"name": "TF_FORCE_GPU_ALLOW_GROWHT"},
)
OVERRIDDEN = Finding(
    "overridden", Severity.NOTE, "growth is forced by a variable", (note("Nothing, if that is meant."),)
)


def passed(figure: str = "", *findings: Finding, on: tuple[Gpu, ...] = ()) -> Judged:
    """Return a judged outcome that verified a kernel on each of ``on``."""
    return Judged(tuple(findings), tuple(gpu.pci_bus_id for gpu in on), figure)


def row(probe: str, outcome: AnyOutcome, *gpus: Gpu, s: float = 0.0, log: tuple[str, ...] = ()) -> Row:
    return Row(probe, tuple(gpu.uuid for gpu in gpus), outcome, s, log=log)


def report(
    *rows: Row,
    gpus: tuple[Gpu, ...] = (),
    limits: Limits | None = None,
    signal: int | None = None,
    facts: Facts | None = None,
    world: World | None = None,
) -> Report:
    """Return a concluded report."""
    return conclude(
        Report(
            schema_version=SCHEMA_VERSION,
            gpudiag_version="0.1.0",
            started_at="2026-01-31T12:00:00+00:00",
            duration_s=4.25,
            command=("gpudiag", "check"),
            isolation="fork",
            world=world or World(simulated=False),
            limits=limits or Limits(),
            facts=facts or (example_with_gpus(len(gpus)) if gpus else example()),
            gpus=gpus,
            rows=rows,
            signal=signal,
        )
    )


def sample(world: World | None = None, limits: Limits | None = None) -> Report:
    """Return a report of 30 rows on two GPUs: every outcome, every severity, every cause, placements and logs."""
    first, second = GPUS
    matmul = Row(
        "placement.log",
        (),
        passed("8 of 8 operations in the log"),
        0.31,
        reading=SavedReading(runs=[{"mode": "eager", "result": 12.0, "raised": None}]),
        placements=(Placement("MatMul", "GPU:0", count=3), Placement("AddV2", "CPU:0", "add")),
    )
    broken = tuple(
        row(f"stress.{cause.name.lower()}", Broken(cause, f"the {cause.value}, in a line"), s=1.5, log=("one", "two"))
        for cause in NoReading
        if cause is not NoReading.SIGNAL
    )
    return report(
        row("host.tensorflow", passed("2.21.0 for CUDA 12.5.1")),
        row("host.driver", passed("535.104.05, CUDA up to 12.2")),
        row("host.environment", passed("3 variables", MISSPELT, OVERRIDDEN)),
        matmul,
        row("placement.soft_fallback", passed("/GPU:99 runs on CPU:0"), s=0.12),
        row("placement.hard_error", passed("InvalidArgumentError, eager and in tf.function"), s=0.11),
        row("visibility.list_remap", passed("0,1 seen as 1,0", on=GPUS), *GPUS, s=1.9),
        row(
            "visibility.list_invalid",
            Broken(NoReading.SIGNAL, "SIGSEGV"),
            *GPUS,
            s=0.8,
            log=("2026-01-31 12:00:01.5: I gpu_device.cc:2020] Created device", "*** Segmentation fault", "  @ 0x7f3a"),
        ),
        row("memory.fraction", passed("took 2048 MiB of 1024 MiB", CAP_IGNORED), first, s=2.2),
        row("memory.fraction", passed("took 1010 MiB of 1024 MiB"), second, s=2.1),
        row("memory.growth", passed("grew from 2 to 258 MiB", OVERRIDDEN, on=(first,)), first, s=1.2),
        row("memory.growth", passed("grew from 2 to 258 MiB", on=(second,)), second, s=1.2),
        row("logical.cpu_split", passed("3 logical CPUs, the sum is right"), s=0.2),
        *(row(f"logical.split_{number}", Skipped("needs 4 GPUs, 2 here")) for number in range(5)),
        *(row(f"distribution.mirrored_{number}", Skipped("needs MIG")) for number in range(3)),
        *broken,
        row("stress.stopped", Interrupted("not run: stopped by SIGTERM")),
        gpus=GPUS,
        limits=limits,
        world=world,
        facts=example_with_gpus(
            2,
            environment=EnvironmentFacts({"TF_FORCE_GPU_ALLOW_GROWHT": "true"}),
            container=Unknown("no answer within 15 s"),
        ),
    )


HOSTILE = (
    "\x1b[31mred\x1b[0m \x07\x00 | pipe \r\n## new line\t`code` <b>&amp; ]]> \u202edroll "
    + "漢字" * 60
    + " "
    + "x" * 300
)
"""What other programs may write: escape sequences, control characters, markup, wide characters, words without end."""


def hostile() -> Report:
    """Return a report with :data:`HOSTILE` in every text that comes from elsewhere."""
    finding = Finding("hostile", Severity.FAIL, HOSTILE, (note(HOSTILE),))
    return report(
        row(f"host.{HOSTILE}", passed(HOSTILE, finding)),
        row("placement.log", Broken(NoReading.EXCEPTION, HOSTILE), log=(HOSTILE, HOSTILE)),
        Row("placement.other", (), passed(HOSTILE), 0.1, placements=(Placement(HOSTILE, HOSTILE),), log=(HOSTILE,)),
        row("memory.growth", Skipped(HOSTILE)),
        gpus=(Gpu(0, HOSTILE, "GPU-0", "0000:01:00.0", 0),),
        world=World(simulated=True, spec=HOSTILE),
    )
