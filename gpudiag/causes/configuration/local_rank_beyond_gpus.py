"""the program uses its local rank as a GPU's number, but fewer GPUs are visible

Horovod, torchrun and mpirun start several processes on a machine and number them: the local rank. Programs take it as
the index of their GPU. If more processes are started than GPUs are visible, or if the launcher already gave each
process its own GPU, which is then GPU:0 for each of them, that index does not exist: "IndexError: list index out of
range", or an invalid visible_device_list.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.causes.shared.launchers import LocalRank
from gpudiag.causes.shared.visibility import MASK, table
from gpudiag.fix import edit_note, start
from gpudiag.knowledge.messages.placement import NO_SUCH_ELEMENT
from gpudiag.knowledge.messages.program import LOCAL_RANK
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts
from gpudiag.model.report import Severity
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.text import counted

CAUSE = Cause(
    title="the program uses {rank} as a GPU's number, but the number of visible GPUs is {gpus}",
    severity=Severity.WARNING,
    fix=(
        start("horovodrun -np {gpus} ...", "start as many processes on each machine as GPUs are visible"),
        edit_note("use gpus[0] instead of gpus[hvd.local_rank()] if each process sees only its own GPU"),
        edit_note("or use another number: {table}"),
    ),
    url="https://horovod.readthedocs.io/en/stable/tensorflow.html",
)
_NOT_OF_GPUS = ("PYTEST_XDIST_WORKER", "SLURM_LOCALID")  # they count workers and tasks of every kind


def find(facts: Facts, program: Program, local: LocalRank | None) -> Matches:
    gpus = len(gpus_in_scope(facts))
    name, rank = (local.variable, local.number) if local else ("", 0)
    fell = program.all(LOCAL_RANK, NO_SUCH_ELEMENT)
    failed = len({event.message for event in fell}) == 2
    # A launcher that gives each process its own GPU masks it: then one is visible, and the rank is not an index.
    own = gpus == 1 and MASK in facts.variables
    beyond = gpus and rank >= gpus and not own and name not in _NOT_OF_GPUS
    if beyond or (failed and gpus):
        yield Match(
            evidence=tuple(
                filter(
                    None,
                    [
                        f"{name}={rank}" if name else None,
                        f"{counted(gpus, 'GPU')} visible, {MASK}={facts.variables.get(MASK, '(not set)')}",
                        f"log: {fell[-1].line.strip()}" if failed else None,
                    ],
                )
            ),
            confidence=Confidence.LIKELY if failed else Confidence.POSSIBLE,
            figures={"gpus": gpus, "rank": f"local rank {rank}" if name else "the local rank", "table": table(facts)},
        )
