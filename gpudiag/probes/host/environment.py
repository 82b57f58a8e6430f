"""The environment variables that reach TensorFlow and CUDA have names and values that take effect.

What it does
    Reads the variables of TensorFlow, the CUDA driver and the container runtime, and compares names and values with
    those that are read.
Why it matters
    A misspelt name or value is not an error anywhere: TensorFlow or the driver ignores it, mostly without a word.
What a failure means
    `all_hidden`: `CUDA_VISIBLE_DEVICES` hides every GPU of this machine.
    `entries_ignored`: `CUDA_VISIBLE_DEVICES` lists GPUs that stay hidden, because an entry is invalid or twice there.
    `entry_cut`: of an entry of `CUDA_VISIBLE_DEVICES` the CUDA driver reads only the number that it begins with.
    `ambiguous_index`: `CUDA_VISIBLE_DEVICES` may name other GPUs than `nvidia-smi` does by the same numbers.
    `index_not_known`: CUDA's own answer does not tell which GPUs those are, so none is known to be the right one.
    `growth_value`: TensorFlow cannot parse `TF_FORCE_GPU_ALLOW_GROWTH` and ignores it.
    `allocator_value`: TensorFlow does not know the value of `TF_GPU_ALLOCATOR` and ignores it.
    `value_ignored`: a variable has a value that is none of those that are read.
    `threads_refused`: TensorFlow cannot create its GPU devices with these `TF_GPU_THREAD_MODE`, `TF_GPU_THREAD_COUNT`.
    `cluster_unreadable`: `TF_CONFIG` is not JSON, so strategies of several workers raise.
    `misspelt`: a variable that nothing reads is spelt nearly like one that is read.
    `log_hidden`: TensorFlow's warnings, often the only reason given for a missing GPU, are switched off.
    `not_gathered`: the variables could not be read, so none of the above was judged.
What to do
    Correct or unset the variable where it is set: shell profile, `.env` file, container image, job script or CI file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from gpudiag.hostfacts import (
    Facts,
    Unknown,
)
from gpudiag.model import Finding, Limits, Severity
from gpudiag.probe import Kind, Needs, Probe
from gpudiag.scope import apply_mask, index_is_ambiguous, mask_in_force
from gpudiag.variables import (
    ALLOCATOR,
    ALLOCATORS,
    CLUSTER,
    FORCE_GROWTH,
    GROWTH_VALUES,
    NO_JSON,
    THREAD_MODE,
    THREAD_MODES,
    WITHHELD,
    allocator_meant_by,
    growth_meant_by,
    misspelling_of,
)

PROBE = Probe(needs=Needs(tensorflow=False), families=("environment",), quick=True)

NOT_GATHERED = Kind(
    "not_gathered",
    Severity.FAIL,
    "the environment variables could not be read: {reason}",
    "Run again with --debug, and report it to gpudiag: reading them needs no device and no network.",
)
ALL_HIDDEN = Kind(
    "all_hidden",
    Severity.WARNING,
    "CUDA_VISIBLE_DEVICES='{value}' hides all {gpus} GPU(s) of this machine{why}",
    "unset CUDA_VISIBLE_DEVICES, or list the indices 0 to {last}, or UUIDs as nvidia-smi -L prints them.",
)
ENTRIES_IGNORED = Kind(
    "entries_ignored",
    Severity.WARNING,
    "CUDA_VISIBLE_DEVICES='{value}' makes {visible} of {gpus} GPU(s) visible: no effect have {ignored}",
    "The list ends at the first invalid entry, and a GPU named twice voids all of it. "
    "List indices from 0 to {last}, or UUIDs as nvidia-smi -L prints them, each once.",
)
ENTRY_CUT = Kind(
    "entry_cut",
    Severity.WARNING,
    "CUDA_VISIBLE_DEVICES='{value}': CUDA reads {cut}, and not a word is said of the rest",
    "Separate indices by commas; there are no ranges: {right}",
)
AMBIGUOUS_INDEX = Kind(
    "ambiguous_index",
    Severity.NOTE,
    "CUDA_VISIBLE_DEVICES='{value}' counts the fastest GPU first, nvidia-smi counts in PCI order: "
    "with unequal GPUs the same number can name another one",
    "export CUDA_DEVICE_ORDER=PCI_BUS_ID, or list UUIDs as nvidia-smi -L prints them.",
)
INDEX_NOT_KNOWN = Kind(
    "index_not_known",
    Severity.FAIL,
    "CUDA_VISIBLE_DEVICES='{value}' counts the fastest GPU first, and what CUDA shows ({shown} GPU(s) of {meant}) does "
    "not tell which it means: your programs may get others than were checked",
    "List UUIDs: export CUDA_VISIBLE_DEVICES={uuids}  # GPU {indices} of nvidia-smi",
)
GROWTH_VALUE = Kind(
    "growth_value",
    Severity.WARNING,
    "TF_FORCE_GPU_ALLOW_GROWTH='{value}' is ignored: TensorFlow reads only 'true' and 'false', in lower case",
    "export TF_FORCE_GPU_ALLOW_GROWTH={meant}",
)
ALLOCATOR_VALUE = Kind(
    "allocator_value",
    Severity.WARNING,
    "TF_GPU_ALLOCATOR='{value}' is ignored without a word: no allocator has that name",
    "{correct}",
)
VALUE_IGNORED = Kind(
    "value_ignored",
    Severity.WARNING,
    "{name}='{value}' is none of the values that are read ({read}): {instead}",
    "{cure}",
)
THREADS_REFUSED = Kind(
    "threads_refused",
    Severity.FAIL,
    "{name}='{value}' keeps TensorFlow from creating its GPU devices: {read} is read, all else refused",
    "unset {name}",
)
CLUSTER_UNREADABLE = Kind(
    "cluster_unreadable",
    Severity.WARNING,
    "TF_CONFIG is not JSON: MultiWorkerMirroredStrategy and ParameterServerStrategy raise JSONDecodeError",
    'Look for single quotes and a comma after the last item: echo "$TF_CONFIG" | python -m json.tool',
)
MISSPELT = Kind(
    "misspelt",
    Severity.WARNING,
    "neither TensorFlow nor CUDA reads {name} ({value}); {known} is meant, probably",
    "Set {known} instead of {name}: {how}",
)
LOG_HIDDEN = Kind(
    "log_hidden",
    Severity.NOTE,
    "TF_CPP_MIN_LOG_LEVEL={value} hides TensorFlow's {hidden}, often the only reason given for a missing GPU",
    "unset TF_CPP_MIN_LOG_LEVEL while you look for a fault. gpudiag's own probes are not affected.",
)

_COUNT = "TF_GPU_THREAD_COUNT"
_READ = {
    # The first two by the CUDA Programming Guide (CUDA Environment Variables), the third measured with 2.21.
    "CUDA_DEVICE_ORDER": (
        "(?:FASTEST_FIRST|PCI_BUS_ID)$",
        "FASTEST_FIRST, PCI_BUS_ID",
        "expect the fastest GPU first, as without it",
        "export CUDA_DEVICE_ORDER=PCI_BUS_ID",
    ),
    "CUDA_MODULE_LOADING": (
        "(?:DEFAULT|LAZY|EAGER)$",
        "DEFAULT, LAZY, EAGER",
        "expect the default, as without it",
        "unset CUDA_MODULE_LOADING",
    ),
    "CUDA_LAUNCH_BLOCKING": (
        "[01]$",
        "0, 1",
        "kernels may run on asynchronously, and errors show at a later operation",
        "export CUDA_LAUNCH_BLOCKING=1",
    ),
    "TF_CPP_MIN_LOG_LEVEL": (
        r"\s*[+-]?\d",
        "a whole number, 0 to 3",
        "TensorFlow reads 0 and hides nothing",
        "export TF_CPP_MIN_LOG_LEVEL=1  # hides lines at level I",
    ),
}
"""Variable to what matches a value that is read, which those are, what happens instead, and the cure."""
_CUT = re.compile(r"[+-]?\d+(?=[^\d])")


def judge(facts: Facts, limits: Limits) -> Iterator[Finding]:
    if isinstance(facts.environment, Unknown):
        yield NOT_GATHERED.found(reason=facts.environment.reason)
    variables = facts.variables
    yield from _judge_mask(facts)
    growth = variables.get(FORCE_GROWTH, "true")
    if growth not in GROWTH_VALUES:
        yield GROWTH_VALUE.found(value=growth, meant=growth_meant_by(growth))
    allocator = variables.get(ALLOCATOR, "")
    if allocator and allocator not in ALLOCATORS:
        near = allocator_meant_by(allocator)
        correct = f"export {ALLOCATOR}={near}" if near else f"unset {ALLOCATOR}"
        yield ALLOCATOR_VALUE.found(value=allocator, correct=correct)
    yield from _judge_values(variables)
    if facts.nvml_devices:
        yield from _judge_threads(variables)
    if variables.get(CLUSTER) == NO_JSON:
        yield CLUSTER_UNREADABLE.found()
    for name in variables:
        if known := misspelling_of(name):
            cure = _cure_of_name(name, known, facts)
            yield MISSPELT.found(name=name, value=variables[name], known=known, cure=cure, how=cure.removeprefix("# "))
    level = variables.get("TF_CPP_MIN_LOG_LEVEL", "")
    if level.isdecimal() and int(level) >= 2:
        yield LOG_HIDDEN.found(value=level, hidden="warnings" if int(level) == 2 else "warnings and errors")


def figure(facts: Facts) -> str:
    if isinstance(facts.environment, Unknown):
        return "not known"
    count = len(facts.environment.variables)
    return f"{count} variable{'' if count == 1 else 's'} set"


def _judge_mask(facts: Facts) -> Iterator[Finding]:
    value = facts.variables.get("CUDA_VISIBLE_DEVICES")
    gpus = facts.nvml_devices
    if value is None or not gpus:
        return
    mask = mask_in_force(facts)
    ignored = [entry for entry in mask.ignored if entry != "-1"]  # -1 ends a list on purpose
    if not mask.devices:
        why = f": {mask.twice} names a GPU for the second time, and CUDA shows none then" if mask.twice else ""
        yield ALL_HIDDEN.found(value=value, gpus=len(gpus), last=len(gpus) - 1, why=why)
    elif ignored:
        yield ENTRIES_IGNORED.found(
            value=value, visible=len(mask.devices), gpus=len(gpus), ignored=", ".join(ignored), last=len(gpus) - 1
        )
    cut = {entry: number[0] for entry in value.split(",") if (number := _CUT.match(entry.strip()))}
    if shortened := {entry.strip(): number for entry, number in cut.items() if entry.strip() not in mask.ignored}:
        yield ENTRY_CUT.found(
            value=value,
            cut=", ".join(f"'{entry}' as {number}" for entry, number in shortened.items()),
            right=f"export CUDA_VISIBLE_DEVICES={_meant_by(value, len(gpus))}",
        )
    shown = 0 if isinstance(facts.cuda, Unknown) else len(facts.cuda.uuids)
    if not index_is_ambiguous(facts):
        return
    if shown:  # where CUDA shows none, that is a failure of its own
        yield INDEX_NOT_KNOWN.found(
            value=value,
            shown=shown,
            meant=len(mask.devices),
            uuids=",".join(mask.uuids),
            indices=", ".join(str(device.index) for device in mask.devices),
        )
    else:
        yield AMBIGUOUS_INDEX.found(value=value)


def _judge_values(variables: dict[str, str]) -> Iterator[Finding]:
    for name, (pattern, read, instead, cure) in _READ.items():
        value = variables.get(name, "")
        if value and not re.match(pattern, value):
            yield VALUE_IGNORED.found(name=name, value=value, read=read, instead=instead, cure=cure)


def _judge_threads(variables: dict[str, str]) -> Iterator[Finding]:
    # Measured, 2.21: the number is read only with threads of the GPUs' own.
    mode, count = variables.get(THREAD_MODE, "global"), variables.get(_COUNT, "2")
    if mode.lower() not in THREAD_MODES:
        yield THREADS_REFUSED.found(name=THREAD_MODE, value=mode, read=" or ".join(THREAD_MODES))
    elif mode.lower() != "global" and not re.fullmatch(r"\s*[+-]?\d+\s*", count):
        yield THREADS_REFUSED.found(name=_COUNT, value=count, read="a whole number")


def _meant_by(mask: str, gpus: int) -> str:
    """Return, by commas, the indices that ``0-2`` or ``0 1`` is meant for; all there are where that is not known."""
    indices: list[int] = []
    if re.fullmatch(r"\s*\d+(?:\s*[-,:;|]\s*\d+|\s+\d+)*\s*", mask):
        for low, high in re.findall(r"(\d+)(?:\s*-\s*(\d+))?", mask):
            indices += range(int(low), min(int(high or low), gpus) + 1)
    meant = indices and len(set(indices)) == len(indices) and max(indices) < gpus
    return ",".join(map(str, indices if meant else range(gpus)))


def _cure_of_name(name: str, known: str, facts: Facts) -> str:
    """Return the line that sets ``known`` in place of ``name``; a sentence where its value would not do."""
    variables = facts.variables
    if known in variables:
        return f"# {known}={variables[known]!r} is set as well, and holds: take {name} away"
    value = variables[name]
    if known == "TF_FORCE_GPU_ALLOW_GROWTH" and value.lower() in ("1", "true", "yes", "on"):
        return f"export {known}=true"
    if value == WITHHELD:
        return f'export {known}="${name}"'
    gpus = facts.nvml_devices
    if known == "CUDA_VISIBLE_DEVICES" and gpus and not apply_mask(value, gpus).devices:
        valid = f"0 to {len(gpus) - 1}" if len(gpus) > 1 else "0"
        return f"# {value!r} names no GPU of this machine, so {known} would hide all; valid indices: {valid}"
    return f"export {known}={shlex.quote(value)}"
