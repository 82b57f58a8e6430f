"""The nodes of Slurm as ``sinfo`` lists them: which of them Slurm can give now, and why not the others."""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpudiag.errors import UsageError, nearest, sentences
from gpudiag.fleet.launcher import Done, launch
from gpudiag.text import listed, one_line

PROGRAMS = ("sinfo", "squeue", "scontrol", "salloc", "srun", "scancel")
ANSWER_S = 30.0
"""How long Slurm's controller may take to answer: its own limit, MessageTimeout, is 10 s, and it may have a backup."""
_RECORD, _FIELD = "\x1e", "\x1f"
"""Between nodes and between fields: a reason may have any other character, '|' and newlines among them."""
_FIELDS = ("%N", "%P", "%a", "%T", "%G", "%C", "%l", "%u", "%E")
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,(]+)?:(\d+)")
_USABLE = {"idle", "mixed", "planned", "completing"}
_FLAGS = {
    "*": "does not respond",
    "~": "is powered down",
    "#": "is being powered up",
    "!": "is about to be powered down",
    "%": "is being powered down",
    "$": "is in a reservation for maintenance",
    "@": "waits for a reboot",
    "^": "is being rebooted",
}
"""What follows a state and takes the node away; '-' (planned for another job) and '+' do not."""
_OTHERS = re.compile(r"SLURM_(?!CONF$|CONF_SERVER$|CLUSTERS$|JWT$)|SLURMD_|SRUN_")
"""Variables of a job that the collector may itself run in: they would become options of srun."""


@dataclass(frozen=True)
class SlurmNode:
    """A node in the partition in which it is asked for."""

    name: str
    partition: str
    state: str
    gpus: int
    """How many GPUs Slurm says it has; 0 also where Slurm does not know of GPUs."""
    idle_cpus: int
    most_minutes: float
    """The longest job in the partition."""
    refusal: str = ""
    """Why Slurm gives it to nobody now; empty if it may be asked for."""

    @property
    def is_idle(self) -> bool:
        """Whether no job uses a part of it."""
        return self.state.rstrip("-") in ("idle", "planned")


def environment() -> dict[str, str]:
    """Return the environment for Slurm's commands: without the variables of a job around the collector."""
    return {name: value for name, value in os.environ.items() if not _OTHERS.match(name)}


async def ask(*argv: str) -> Done:
    """Run a command of Slurm that only asks or ends something."""
    return await launch(argv, ANSWER_S, environ=environment())


def refuse_without_slurm() -> None:
    """Raise :class:`UsageError` if Slurm's commands or the file in SLURM_CONF are missing."""
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing:
        raise UsageError(
            f"the engine 'slurm' needs {listed(missing, 6)}, which {'is' if len(missing) == 1 else 'are'} not "
            "installed here. Run gpudiag where you submit jobs, or install them: apt-get install slurm-client "
            "(Debian, Ubuntu), dnf install slurm (Red Hat)."
        )
    file = os.environ.get("SLURM_CONF")
    if file and not os.path.exists(file):  # noqa: PTH110  # the commands would look for it again for a minute
        raise UsageError(f"SLURM_CONF is {one_line(file)}, which does not exist: correct or unset it.")


async def answer(*argv: str) -> str:
    """Return what a command of Slurm prints; raises :class:`UsageError` if Slurm does not answer."""
    done = await ask(*argv)
    if done.timed_out:
        raise UsageError(f"Slurm does not answer: '{argv[0]}' had not ended after {ANSWER_S:g} s. Try: scontrol ping")
    if done.status != 0:
        raise UsageError(f"Slurm does not answer: {done.last_line or f'{argv[0]} failed'}. Try: scontrol ping")
    return done.output.decode(errors="replace")


async def listed_nodes(partitions: Iterable[str] = (), *, reserved: bool = False) -> dict[str, SlurmNode]:
    """Return the nodes that ``sinfo`` lists, by name, in its order.

    ``partitions`` are those of the job: without them, each node is asked for in the default partition if it is there,
    or else in the first that is up. A node outside them has a refusal. ``reserved``: the job names a reservation, so
    that reserved nodes may be asked for. Raises :class:`UsageError` if Slurm does not answer, or has no such partition.
    """
    text = await answer("sinfo", "--all", "-h", "-N", "-o", _RECORD + _FIELD.join(_FIELDS))
    wanted = set(partitions)
    best: dict[str, tuple[tuple[bool, ...], SlurmNode]] = {}
    known: dict[str, None] = {}
    for record in text.split(_RECORD)[1:]:
        fields = record.rstrip("\n").split(_FIELD, len(_FIELDS) - 1)
        if len(fields) != len(_FIELDS):
            continue
        values = dict(zip(_FIELDS, fields, strict=True))
        partition, is_default, is_up = values["%P"].rstrip("*"), values["%P"].endswith("*"), values["%a"] == "up"
        known[partition] = None
        outside = bool(wanted) and partition not in wanted
        rank = (outside, not is_up, not is_default)
        name = values["%N"]
        if name not in best or rank < best[name][0]:
            refusal = _refusal(values, reserved=reserved)
            if outside:
                refusal = f"is not in partition {listed(sorted(wanted))}, but in {partition}"
            elif not is_up:
                refusal = f"partition {partition} is {values['%a']}"
            node = SlurmNode(
                name,
                partition,
                values["%T"],
                sum(map(int, _GPUS.findall(values["%G"]))),
                _idle_cpus(values["%C"]),
                _minutes(values["%l"]),
                refusal,
            )
            best[name] = (rank, node)
    for partition in sorted(wanted - known.keys()):
        raise UsageError(
            sentences(f"Slurm has no node in a partition {one_line(partition)!r}.", nearest(partition, known))
        )
    return {name: node for name, (_, node) in best.items()}


def unknown_name(name: str, known: Mapping[str, object], *, suggest: bool) -> str:
    """Return the refusal of a name that Slurm does not know, with the nearest names that it does."""
    near = nearest(name, known) if suggest else ""
    return sentences("Slurm does not know this name.", near if near.startswith("Did you mean") else "")


def _refusal(values: Mapping[str, str], *, reserved: bool) -> str:
    state = values["%T"]
    word = state.rstrip("".join(_FLAGS) + "-+")
    flags = [meaning for flag, meaning in _FLAGS.items() if flag in state[len(word) :]]
    if reserved:
        flags = [meaning for meaning in flags if meaning != _FLAGS["$"]]
    if not flags and (word in _USABLE or (reserved and word in ("reserved", "maint"))):
        return ""
    reason, user = one_line(values["%E"]), values["%u"]
    why = f": {reason}" if reason.lower() not in ("", "none") else ""
    by = f" (set by {user})" if why and user.lower() not in ("", "unknown") else ""
    return f"{word}{f', {listed(flags)}' if flags else ''}{why}{by}"


def _idle_cpus(counts: str) -> int:
    """Return the second of ``allocated/idle/other/total``."""
    parts = counts.split("/")
    return int(parts[1]) if len(parts) == 4 and parts[1].isdigit() else 0


def _minutes(text: str) -> float:
    """Return the minutes in ``infinite`` or ``[days-]hours:minutes:seconds``."""
    if not re.fullmatch(r"(?:\d+-)?(?:\d+:)*\d+", text):
        return math.inf
    days, _, clock = text.rpartition("-")
    seconds = 0
    for part in clock.split(":"):
        seconds = seconds * 60 + int(part)
    return int(days or 0) * 1440 + seconds / 60
