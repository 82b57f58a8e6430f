"""Texts about a program that `gpudiag trace` has run, for all formats."""

from __future__ import annotations

import re
import shlex
from collections import Counter

from gpudiag.model.program import SMALL_BYTES, WITHOUT_EFFECT, Function, ProgramTrace, Setting, place
from gpudiag.model.program import SettingFate as Fate
from gpudiag.model.report import Report
from gpudiag.text import counted, one_line, size

_MOST = 12
"""Most lines of a section, unless ``verbose``."""
_MIB = 1 << 20
_LEAST_COPIES = 10
_LEAST_WAITED_S = 0.1
"""Less is shown with ``verbose``."""
_EXCEPTION = re.compile(r"[\w.]+(?:Error|Exception|Interrupt|Exit)?(?::|$)")
"""How the last part of a traceback begins."""
_LONGEST_ERROR = 300
_GROUPS = {
    Fate.TOOK_EFFECT: "took effect",
    Fate.OTHER_EFFECT: "had another effect",
    **dict.fromkeys(WITHOUT_EFFECT, "had no effect"),
    Fate.REPLACED: "replaced",
    Fate.NOT_CHECKED: "not checked",
    Fate.NOT_REACHED: "not reached",
}
"""What the headline calls the ends of settings, in its order."""
Section = tuple[str, list[tuple[str, str]]]
"""A heading, and lines: what is named and what is said of it."""


def headline(trace: ProgramTrace, report: Report) -> str:
    """Return the heading of the diagnosis."""
    if not trace.processes:
        return "No Python of the program could be watched: nothing is known of what it did"
    number = len(report.diagnosis.causes)
    settings = f"; {settings_line(trace)}" if trace.settings else ""
    if not trace.with_tensorflow:
        result = f"{counted(number, 'finding')} all the same" if number else "there is nothing to report"
        failed = trace.ended not in ("exit status 0", "part of a program")
        return f"The program {'ended before it imported' if failed else 'did not import'} TensorFlow: {result}"
    if number:
        return f"{counted(number, 'finding')} on how the program uses its GPUs{settings}"
    if not trace.has_gpu:
        if not any(process.devices for process in trace.processes):
            return f"TensorFlow made no devices{settings}"
        hidden = sorted((use for use in trace.gpus if use.is_hidden), key=lambda use: not use.line)
        why = f": GPU {hidden[0].gpu} is {hidden[0].unused}" if hidden else ""
        return f"TensorFlow had no GPU{why}{settings}"
    return f"{_on_the_cpu(trace)}; {settings_line(trace)}"


def settings_line(trace: ProgramTrace) -> str:
    """Return how many GPU options were set, and how many of them ended in which way."""
    if not trace.settings:
        return "none of the options that trace watches was set"
    fates = Counter(_GROUPS[_fate(setting)] for setting in trace.settings)
    order = dict.fromkeys(_GROUPS.values())
    return (
        f"{counted(len(trace.settings), 'setting')}: {', '.join(f'{fates[key]} {key}' for key in order if fates[key])}"
    )


def _fate(setting: Setting) -> Fate:
    """Return how a setting ended; an older gpudiag wrote that it took effect, without a reason, where it was read."""
    return Fate.NOT_CHECKED if setting.fate == Fate.TOOK_EFFECT and not setting.why else setting.fate


def _on_the_cpu(trace: ProgramTrace) -> str:
    """Return one clause: whether operations ran on the CPU for which TensorFlow has a kernel for GPUs."""
    fell = [placement for placement in trace.placed if placement.could_use_gpu]
    by_strategy = any(placement.why == "strategy" for placement in trace.placed)
    if fell:
        asked = " where the CPU was asked for" if all(placement.why == "scope" for placement in fell) else ""
        types = counted(len({placement.op for placement in fell}), "type")
        return f"{types} of operation that a GPU could run ran on the CPU{asked}"
    computed = [process for process in trace.processes if process.devices and process.operations]
    hidden_from = {use.process for use in trace.gpus if use.is_hidden}
    without = [process for process in computed if not process.gpus and process.pid not in hidden_from]
    if without:
        return f"TensorFlow had no GPU in {len(without)} of {counted(len(computed), 'process')}"
    if not any("GPU" in device for process in trace.processes for device in trace.operations(process)):
        return "No operation was seen on a GPU"
    idle = dict.fromkeys(f"GPU {use.gpu}" for use in trace.gpus if use.devices and use.unused)
    unused = f", and none on {' and '.join(idle)}" if idle and len(trace.with_tensorflow) == 1 else ""
    outside = "tf.data and TensorFlow's strategies" if by_strategy else "tf.data"
    apart = sum(not process.gpus for process in computed)
    watched = f", in the {counted(len(computed) - apart, 'process')} with a GPU" if apart else ""
    return (
        f"No floating-point computation that a GPU could run was seen on the CPU outside of {outside}{watched}{unused}"
    )


def head(trace: ProgramTrace) -> list[tuple[str, str]]:
    """Return what was run, as pairs of a heading and its text."""
    pairs = [("program", shlex.join(trace.command)), ("ended", f"{trace.ended}, {trace.seconds:.1f} s")]
    if error := next((line for line in reversed(trace.raised) if _EXCEPTION.match(line)), ""):
        pairs.append(("error", one_line(error)[:_LONGEST_ERROR]))
    first = next(iter(trace.with_tensorflow), None)
    if first is not None:
        pairs.append(("TensorFlow", f"{first.tensorflow}, Python {first.python}"))
    return pairs


def sections(trace: ProgramTrace, *, verbose: bool) -> list[Section]:
    """Return the sections of the report in the order in which they are read."""
    parts = [
        ("settings", _settings(trace)),
        ("GPUs", _gpus(trace)),
        ("placement", _placement(trace)),
        ("functions", _functions(trace)),
        ("traffic", _traffic(trace, verbose=verbose)),
        ("memory", _memory(trace)),
        ("processes", _processes(trace, verbose=verbose)),
        ("clusters", _joined(trace)),
        (
            "strategies",
            [
                (place(replica.line), f"{replica.strategy} on {', '.join(replica.devices)}")
                for replica in trace.replicas
            ],
        ),
        ("not known", _unknown(trace)),
    ]
    return [(heading, _cut(lines, verbose=verbose)) for heading, lines in parts if lines]


def _cut(lines: list[tuple[str, str]], *, verbose: bool) -> list[tuple[str, str]]:
    if verbose or len(lines) <= _MOST:
        return lines
    return [*lines[:_MOST], ("...", f"{len(lines) - _MOST} more with --verbose")]


def _settings(trace: ProgramTrace) -> list[tuple[str, str]]:
    several = len({setting.process for setting in trace.settings}) > 1
    return [(place(setting.line), _setting(setting, named=several)) for setting in trace.settings]


def _setting(setting: Setting, *, named: bool) -> str:
    """Return what became of a setting; ``named``: in which process, because there are several."""
    process = f" in process {setting.process}" if named else ""
    why = f" ({setting.why})" if setting.why else ""
    return one_line(f"{f'{setting.what} {setting.value}'.rstrip()}{process}: {_fate(setting).value}{why}")


def _gpus(trace: ProgramTrace) -> list[tuple[str, str]]:
    """Return what each process did with each GPU of the machine, or why it did nothing with it."""
    several = len({use.process for use in trace.gpus}) > 1
    unknown = {function.process for function in trace.functions if function.unknown_runs}
    lines = []
    for use in trace.gpus:
        process = f"process {use.process}: " if several else ""
        least = "at least " if use.process in unknown else ""  # what some of its functions hold is not known
        ran = f"{', '.join(use.devices)}, {least}{counted(use.operations, 'operation', ',')}"
        lines.append((f"GPU {use.gpu}", f"{process}{f'not used: {use.unused}' if use.unused else ran}"))
    return lines


def _placement(trace: ProgramTrace) -> list[tuple[str, str]]:
    lines = []
    on: dict[str, dict[str, int]] = {}
    for placement in trace.placed:
        if not placement.function:
            ops = on.setdefault(f"{placement.device}, host memory" if placement.why == "host" else placement.device, {})
            ops[placement.op] = ops.get(placement.op, 0) + placement.count
    for device, ops in sorted(on.items()):
        largest = sorted(ops.items(), key=lambda item: -item[1])
        few = ", ".join(f"{op} x{count:,}" for op, count in largest[:4])
        rest = f" and {counted(len(largest) - 4, 'more type')}" if len(largest) > 4 else ""
        lines.append((device or "no device", f"{counted(sum(ops.values()), 'eager operation', ',')}: {few}{rest}"))
    said = {
        "asked": "a GPU was asked for",
        "scope": "the CPU was asked for",
        "variable": "it follows a variable or iterator on the CPU",
        "none": "no device was asked for",
        "host": "TensorFlow's kernel for this type keeps its tensors in the computer's memory",
    }
    for placement in sorted(trace.placed, key=lambda entry: (entry.why != "asked", -entry.count)):
        if placement.why in said and (placement.line or placement.function or placement.why != "host"):
            inside = f" in {placement.function}" if placement.function else ""
            where = place(placement.line) if placement.line else "?"
            lines.append(
                (where, f"{placement.op} x{placement.count:,}{inside} on {placement.device}: {said[placement.why]}")
            )
    apart = {placement.op: placement.why for placement in trace.placed if placement.why in ("cpu only", "type")}
    if apart:
        names = sorted(f"{op} (for its type)" if why == "type" else op for op, why in apart.items())
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        lines.append(("CPU only", f"no kernel for GPUs: {', '.join(names[:8])}{more}"))
    return lines


def _functions(trace: ProgramTrace) -> list[tuple[str, str]]:
    lines = []
    for function in sorted(trace.functions, key=lambda entry: -entry.runs):
        if function.runs or function.devices:
            devices = ", ".join(f"{number:,} on {name}" for name, number in sorted(function.devices.items()) if name)
            least = "if each loop and branch runs once, " if function.has_branches else ""
            least += "at least " if function.varies else ""
            copies = f"; {least}{_copies(function.copies)} between host and GPU in each run" if function.copies else ""
            traced = f", traced {function.traced} times" if function.traced > 1 else ""
            none = "not known" if function.unknown_runs else "none left after optimization"
            where = "compiled by XLA" if function.compiled and not devices else devices or none
            where = f"at most {where}" if function.varies and devices else where
            if devices and function.unknown_runs:
                where += f", not known of {counted(function.unknown_runs, 'run', ',')}"
            runs = counted(function.runs, "run", ",")
            text = f"{function.name}: {runs}{traced}; operations: {where}{copies}{_clusters(function)}"
            lines.append((place(function.line) if function.line else "function", text))
    return lines


def _copies(number: int) -> str:
    return f"{number:,} {'copy' if number == 1 else 'copies'}"


def _clusters(function: Function) -> str:
    """Return what XLA compiles of a function, and why not the rest of it."""
    if function.clusters is None:
        return ""
    without = [op for op, has_kernel in function.outside.items() if not has_kernel]
    left = [op for op, has_kernel in function.outside.items() if has_kernel]
    parts = [counted(function.clusters, "cluster") if function.clusters else "no cluster"]
    if without:
        parts.append(f"XLA has no kernel for {_few(without)}")
    if left:
        parts.append(f"in none, though XLA has a kernel: {_few(left)}")
    return f"; XLA: {'; '.join(parts)}"


def _few(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _traffic(trace: ProgramTrace, *, verbose: bool) -> list[tuple[str, str]]:
    lines = []
    copies = [
        copies_made
        for copies_made in trace.copies
        if verbose or copies_made.count >= _LEAST_COPIES or copies_made.bytes >= _MIB
    ]
    # Many small ones cost more time than a few large ones: each is waited for.
    for copies_made in sorted(copies, key=lambda copy: (copy.bytes / copy.count > SMALL_BYTES, -copy.count)):
        inside = (
            f" by {copies_made.function}" if copies_made.function else "" if copies_made.direct else ", by a library"
        )
        if copies_made.has_branches:
            inside += ", if each of its loops and branches ran once"
        if copies_made.count == copies_made.unsized:
            sizes = "of unknown size"
        else:
            unsized = f", and {_copies(copies_made.unsized)} of unknown size" if copies_made.unsized else ""
            sized = copies_made.count - copies_made.unsized
            mean = f" in all, {size(copies_made.bytes / sized)} on average" if sized > 1 else ""
            sizes = f"{size(copies_made.bytes)}{mean}{unsized}"
        lines.append(
            (
                place(copies_made.line) if copies_made.line else "?",
                f"{_copies(copies_made.count)} {copies_made.direction}{inside}: {sizes}",
            )
        )
    for waited in trace.waited:
        if waited.seconds >= _LEAST_WAITED_S:
            text = (
                f"waited {waited.seconds:.1f} s of {trace.seconds:.1f} for tf.data, in {counted(waited.times, 'step')}"
            )
            lines.append((place(waited.line), text))
    for gpu in trace.booked:
        if gpu.idle_s is not None and gpu.watched_s:
            share = f"{100 * gpu.idle_s / gpu.watched_s:.0f} %"
            text = f"idle in {gpu.idle_s:.1f} s of {gpu.watched_s:.1f} ({share}) since TensorFlow made its devices"
            lines.append((f"card {gpu.index}", text))
    return lines


def _memory(trace: ProgramTrace) -> list[tuple[str, str]]:
    lines = []
    several = len([process for process in trace.processes if process.devices]) > 1
    for process in trace.processes:
        for device in process.devices:
            if device.name.startswith("GPU"):
                name = f"{device.name} {process.pid}" if several else device.name
                room = min(device.limit_bytes, device.total_bytes or device.limit_bytes)
                percent = f" ({100 * device.peak_bytes // room} %)" if room else ""
                peak = f"peak {size(device.peak_bytes)} of {_mib(room)}{percent}"
                unknown = f"may take {_mib(room)}; what its tensors took was not measured"
                lines.append((name, peak + _course(device.samples) if device.samples else unknown))
    for gpu in trace.booked:
        mine = sum(held for pid, held in gpu.processes if pid in {process.pid for process in trace.processes})
        others = f", {_mib(gpu.before_bytes)} before the program began" if gpu.before_bytes else ""
        most = max((held for _, held in gpu.processes), default=0)
        own = f", {_mib(mine)} by the program" if mine else ""
        if mine > gpu.used_bytes:  # its processes held it one after another
            own = f", {_mib(most)} by one process of the program"
        if gpu.used_bytes:
            text = f"NVML: at most {_mib(gpu.used_bytes)} of {_mib(gpu.total_bytes)} in use{own}{others}"
            lines.append((f"card {gpu.index}", text))
    return lines


def _course(samples: tuple[tuple[float, int], ...]) -> str:
    """Return how the memory in use went, in a few points over the time."""
    if len(samples) < 3 or max(used for _, used in samples) < _MIB:
        return ""
    few = [samples[number * (len(samples) - 1) // 4] for number in range(5)] if len(samples) > 5 else list(samples)
    return "; " + ", ".join(f"{used / _MIB:,.0f} MiB at {at:.1f} s" for at, used in few)


def _mib(number: int) -> str:
    return f"{number / _MIB:,.0f} MiB"


def _processes(trace: ProgramTrace, *, verbose: bool) -> list[tuple[str, str]]:
    with_tensorflow = trace.with_tensorflow
    shown = trace.processes if verbose else with_tensorflow
    lines = []
    for process in shown if len(shown) > 1 or verbose else ():
        mask = "" if process.mask is None else f", CUDA_VISIBLE_DEVICES={process.mask!r}"
        fork = (
            f" after TensorFlow was {process.forked_when}" if process.forked_when in ("listed", "initialised") else ""
        )
        gpus = ", ".join(device.name for device in process.gpus)
        devices = gpus or ("no GPU" if process.devices else "no devices were made")
        lines.append(
            (
                str(process.pid),
                f"{process.how}{fork} by {process.parent}{mask}: {devices}, "
                f"{counted(process.operations, 'operation', ',')}",
            )
        )
    for process in with_tensorflow:
        if process.last_operation and trace.ended != "exit status 0":
            at = f", at {process.last_s:.1f} s of {trace.seconds:.1f}" if process.last_s else ""
            lines.append((str(process.pid), f"last operation: {process.last_operation}{at}"))
        lines += [(str(process.pid), error) for error in process.errors[-3:]]
    return lines


def _joined(trace: ProgramTrace) -> list[tuple[str, str]]:
    lines = []
    for cluster in trace.clusters:
        where = place(cluster.line)
        joined = (
            "joined"
            if cluster.joined
            else f"still joining at the end, since {cluster.at_s:.1f} s of {trace.seconds:.1f}"
        )
        lines.append((where, f"{cluster.task} of {len(cluster.peers) + 1} tasks of TF_CONFIG: {joined}"))
        lines += [
            (where, f"{peer.task} at {peer.address} does not accept connections: {peer.answer}")
            for peer in cluster.silent
        ]
    return lines


def _unknown(trace: ProgramTrace) -> list[tuple[str, str]]:
    lines = [("TensorFlow", text) for process in trace.processes[:1] for text in process.missing]
    lost = sum(process.lost for process in trace.processes)
    if lost:
        lines.append(("notes", f"{lost} did not fit: what they said is missing here"))
    return lines
