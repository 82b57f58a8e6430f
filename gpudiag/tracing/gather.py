"""The notes of all processes of a program as one record: pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gpudiag.knowledge.placement import short_device
from gpudiag.model.program import (
    Booked,
    Cluster,
    ClusterTask,
    Copies,
    DeviceBlock,
    Function,
    Holder,
    MadeDevice,
    NotCompiled,
    OutOfMemory,
    Placed,
    Process,
    ProgramTrace,
    Replicas,
    Setting,
    Waited,
    place,
)
from gpudiag.model.program import SettingFate as Fate
from gpudiag.text import counted, printable
from gpudiag.tracing import account, observed, requests, settings
from gpudiag.tracing.effects import MASK
from gpudiag.tracing.inside.gpudiag_watch.notes import MOST_FILES
from gpudiag.tracing.inside.gpudiag_watch.scopes import ENTERED, FORGOTTEN_AT, VARIABLES, VARIABLES_OF
from gpudiag.tracing.notes import Note, Notes
from gpudiag.tracing.observed import Observed

_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "HOROVOD_LOCAL_RANK")
_ASKED_FOR = re.compile(r"shape\[(?P<shape>[\d,]{0,200})\] and type (?P<type>\w{1,20})")
_ASKED_BYTES = re.compile(r"[Oo]ut of memory (?:while )?(?:trying to allocate|allocating) (?P<bytes>\d{1,18}) bytes")
_ALLOCATING_ON = re.compile(r"on (?P<device>/job:\S{1,100}/device:GPU:\d{1,4})")
_NOT_COMPILED = re.compile(r"compile graph (?P<function>[^\[]{1,300})\[.{0,300}\] on (?P<device>XLA_\w{1,20}):")
_NO_KERNEL = re.compile(r"No registered '(?P<op>\w{1,100})' OpKernel")
_PYTHON_NAME = re.compile(r"__[a-z]{1,20}_(?P<name>.{1,300})_\d{1,12}", re.DOTALL)
_BYTES = {"double": 8, "int64": 8, "complex64": 8, "complex128": 16, "half": 2, "bfloat16": 2, "int8": 1, "uint8": 1}


def gathered(
    processes: Iterable[Notes],
    command: tuple[str, ...],
    ended: str,
    began: float,
    seconds: float,
    *,
    booked: tuple[Booked, ...] = (),
    answers: Mapping[str, str] | None = None,
) -> ProgramTrace:
    """Return what the notes say; ``began`` is in seconds since the epoch, ``answers`` are those of :mod:`.peers`."""
    found = [(notes, notes.first("process")) for notes in processes]
    known = [(notes, int(start["pid"])) for notes, start in found if start]
    family: dict[int, list[Notes]] = {}
    for notes, pid in known:
        family.setdefault(pid, []).append(notes)
    trace = ProgramTrace(
        command=tuple(map(printable, command)),
        ended=ended,
        seconds=round(seconds, 3),
        processes=_within_bound(tuple(_process(notes, began, booked, family) for notes, _ in known)),
        settings=_once(setting for notes, pid in known for setting in settings.judged(notes, pid, booked, family)),
        placed=tuple(placement for notes, pid in known for placement in _placed(notes, pid)),
        functions=tuple(function for notes, pid in known for function in _functions(notes, pid)),
        out_of_memory=tuple(allocation for notes, pid in known for allocation in _out_of_memory(notes, pid)),
        replicas=tuple(replica for notes, pid in known for replica in _replicas(notes, pid)),
        not_compiled=tuple(function for notes, pid in known for function in _not_compiled(notes, pid)),
        copies=tuple(copies_made for notes, pid in known for copies_made in _copies(notes, pid)),
        waited=tuple(wait for notes, pid in known for wait in _waited(notes, pid)),
        clusters=tuple(cluster for notes, pid in known for cluster in _clusters(notes, pid, began, answers or {})),
        booked=booked,
        scopes=tuple(
            DeviceBlock(note["device"], note["line"], pid, notes.count(note, VARIABLES))
            for notes, pid in known
            for note in notes.of("counter")
            if note["what"] == "scope" and notes.count(note, ENTERED)
        ),
    )
    uses = (use for notes, pid in known for use in account.uses(trace, Observed(notes, pid, booked)))
    return msgspec.structs.replace(trace, gpus=tuple(uses), raised=_raised(ended, [notes for notes, _ in known]))


def _raised(ended: str, processes: Iterable[Notes]) -> tuple[str, ...]:
    """Return the traceback of the exception that ended the program; none if it ended well or otherwise."""
    if not re.fullmatch(r"exit status [1-9]\d*", ended):
        return ()
    text = next((str(note["text"]) for notes in processes for note in notes.of("raised")), "")
    return tuple(printable(line) for line in text.splitlines())


def _within_bound(processes: tuple[Process, ...]) -> tuple[Process, ...]:
    """Return the processes; if they are as many as are watched at most, the first says so."""
    if len(processes) < MOST_FILES:
        return processes
    bound = f"{MOST_FILES:,} processes of Python are watched: not known is what later ones did"
    return (msgspec.structs.replace(processes[0], missing=(*processes[0].missing, bound)), *processes[1:])


def made_at(processes: Iterable[Notes]) -> float | None:
    """Return when the first process made its devices, in seconds since the epoch; None if none did."""
    return min((float(made["t"]) for notes in processes if (made := observed.made(notes))), default=None)


def _once(found: Iterable[Setting]) -> tuple[Setting, ...]:
    """Return the settings, each once: a line may run again, and a child process is given its parent's environment.

    A variable that one process never read is left out if another process read it.
    """
    every = list(found)
    read = {(setting.what, setting.value) for setting in every if not setting.line and setting.fate != Fate.NOT_REACHED}
    kept: dict[tuple[object, ...], Setting] = {}
    for setting in every:
        if setting.line or setting.fate != Fate.NOT_REACHED or (setting.what, setting.value) not in read:
            why = (setting.why, setting.process) if setting.line else ()
            kept.setdefault((setting.what, setting.value, setting.line, setting.fate, *why), setting)
    return tuple(kept.values())


def _process(notes: Notes, began: float, booked: Sequence[Booked], family: Mapping[int, Sequence[Notes]]) -> Process:
    start, made, forked = notes.first("process"), observed.made(notes), notes.first("process")
    variables = made.get("variables") or start.get("variables") or {}
    counters = list(notes.of("counter"))
    ran = sum(notes.count(note) for note in counters if note["what"] in ("op", "function", "session"))
    last = next((note["op"] for note in counters if note["slot"] == notes.last_op), "")
    rank = next((f"{name}={variables[name]}" for name in _RANKS if name in variables), "")
    task = notes.first("tensorflow").get("task")
    rank = rank or (f"TF_CONFIG: {task}" if task else "")
    missing = [f"{note['name']} is missing: not known is {note['costs']}" for note in notes.of("missing")]
    missing += [
        f"a bug in gpudiag, at {note['op']}: {note['line']} ({counted(notes.count(note), 'time')})"
        for note in counters
        if note["what"] == "fault"
    ]
    missing += [
        f"more than {note['number']} graphs of functions: the others were not looked at" for note in notes.of("enough")
    ]
    missing += [
        f"the program collects graphs itself, at {place(note['line'])}: of functions that it calls later, the placement"
        for note in notes.of("left")
    ]
    return Process(
        pid=int(start["pid"]),
        parent=int(start["parent"]),
        how=str(start["how"]),
        command=tuple(map(printable, start["command"])),
        python=str(start["python"]),
        began_s=round(float(start["t"]) - began, 3),
        tensorflow=str(notes.first("tensorflow").get("version", "")),
        forked_when=str(forked.get("stage", "")),
        used_after_fork=str(notes.first("used_after_fork").get("line", "")),
        made_s=round(float(made["t"]) - began, 3) if made else 0.0,
        not_made="" if made else str(notes.first("not_made").get("error", "")),
        initialised_at=str(made.get("line", "")),
        mask=variables.get(MASK),
        rank=rank,
        devices=tuple(_devices(notes, Observed(notes, int(start["pid"]), booked), variables.get(MASK), began)),
        operations=ran,
        last_operation=python_name(last),
        last_s=round(max(0.0, notes.last_op_at - began), 3) if notes.last_op_at else 0.0,
        seen_s=round(max(0.0, notes.last_op_at - began, float(notes.notes[-1]["t"]) - began), 3),
        errors=tuple(f"{note['error']}: {_first_line(note['message'])}" for note in notes.of("error")),
        missing=tuple(missing),
        lost=notes.lost,
        keras_backend=str(notes.first("keras").get("backend", "")),
        keras_backend_from=printable(str(notes.first("keras").get("source", ""))),
        keras_device=str(notes.first("keras_device").get("device", "")),
        started_at=next((command["line"] for command in requests.command_of(notes, family)), ""),
    )


def _first_line(text: str) -> str:
    first = re.sub(r"^\{\{function_node [^}]{0,300}\}\}\s*", "", text.strip()).partition("\n")[0]
    first = re.sub(r"\)\{\{node [^}]{0,300}\}\}", ")", first.removesuffix(" name: ").removesuffix(" name:"))
    first = re.sub(r"\{\{node ([^}]{0,300})\}\}", r"\1", first)
    return re.sub(r"\[_XlaMustCompile[^\]]{0,300}\]", "", first)[:300]


def python_name(name: str) -> str:
    """Return the name of the Python function that TensorFlow's name of a graph is made from."""
    match = _PYTHON_NAME.fullmatch(name)
    return match["name"] if match else name


def _devices(notes: Notes, seen: Observed, mask: str | None, began: float) -> Iterator[MadeDevice]:
    held: dict[str, list[tuple[float, int]]] = {}
    peaks: dict[str, int] = {}
    for note in notes.of("memory"):
        for name, used, peak in note["held"]:
            held.setdefault(name, []).append((round(note["t"] - began, 3), used))
            peaks[name] = max(peaks.get(name, 0), peak)
    gpus = _gpus(seen.made, mask)
    for name, limit in seen.devices.items():
        card = seen.cards[seen.layout[name]] if seen.cards and name in seen.layout else None
        booked = seen.machine.get(card.pci) if card else None
        yield MadeDevice(
            name=name,
            limit_bytes=limit,
            gpu=gpus.get(name, "") if booked is None else str(booked.index),
            peak_bytes=peaks.get(name, 0),
            samples=tuple(held.get(name, ())),
            pci=card.pci if card else "",
            total_bytes=card.total if card else 0,
            free_bytes=card.free if card else None,
        )


def _gpus(made: Note, mask: str | None) -> dict[str, str]:
    """Return for each GPU device which GPU of the machine it is, as far as the mask and the options say."""
    options: dict[str, Any] = made.get("options", {})
    listed = [str(index) for index, _ in enumerate(made.get("gpus", ()))]
    numbers = [entry.strip() for entry in mask.split(",")] if mask is not None else listed
    visible = str(options.get("visible_device_list") or "")
    chosen = [int(part) for part in visible.split(",") if part.strip().isdecimal()] if visible else range(len(listed))
    parts = options.get("virtual_devices") or [[] for _ in chosen]
    found: dict[str, str] = {}
    for number, limits in zip(chosen, parts, strict=False):
        for _ in limits or [0]:
            found[f"GPU:{len(found)}"] = numbers[number] if number < len(numbers) else ""
    return found


def _placed(notes: Notes, pid: int) -> Iterator[Placed]:
    for note in notes.of("counter"):
        if note["what"] == "op" and (count := notes.count(note)):
            at_line = "direct" in note
            yield Placed(
                note["op"],
                note["device"],
                count,
                note["asked"],
                note["line"],
                why=note["kernel"],
                process=pid,
                largest_bytes=notes.counters[note["slot"] + 1] if at_line else 0,
                types=note.get("types", ""),
                direct=note.get("direct", True),
            )
    inside: dict[tuple[str, ...], int] = {}
    for note in notes.of("graph"):
        for op, device, asked, kernel, line, times in note["cpu"]:
            why = kernel
            if kernel == "yes":
                why = "asked" if "GPU" in asked else "scope" if "CPU" in asked else "none"
            key = (op, device, short_device(asked), line, python_name(note["function"]), why)
            inside[key] = max(times, inside.get(key, 0))  # a graph for each shape of the arguments
    for (op, device, asked, line, function, why), times in inside.items():
        yield Placed(op, device, times, asked, line, function, why, pid)


def _functions(notes: Notes, pid: int) -> Iterator[Function]:
    traced: dict[str, dict[str, int]] = {}
    compiled: set[str] = set()
    graphs = _graphs(notes)
    for note in notes.of("counter"):
        if note["what"] == "traced":
            at = traced.setdefault(note["op"], {})
            at[note["line"]] = at.get(note["line"], 0) + notes.count(note)
            if note["kernel"] == "xla":
                compiled.add(note["op"])
    called: dict[str, dict[str, dict[str, int]]] = {name: {} for name in traced}
    for (name, line), runs_of in _calls(notes).items():
        called.setdefault(name, {})[line] = runs_of
    for name, at_lines in called.items():
        at = traced.get(name, {})
        if not at_lines:  # it was only traced
            every = {graph: 0 for graph in graphs if python_name(graph) == name}
            at_lines[max(at, key=lambda line: at[line], default="")] = every
        first = max(at_lines, key=lambda line: sum(at_lines[line].values()))
        for line, runs_of in at_lines.items():
            elsewhere = (number for other, number in at.items() if line == first and other not in at_lines)
            traced_times = at.get(line, 0) + sum(elsewhere)
            known = {"name": name, "line": line, "traced": traced_times, "compiled": name in compiled, "process": pid}
            yield _function(runs_of, graphs, **known)


def _calls(notes: Notes) -> dict[tuple[str, str], dict[str, int]]:
    """Return for each Python function, and each line that called it, how often each of its graphs ran."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for note in notes.of("counter"):
        if note["what"] in ("function", "session") and (count := notes.count(note)):
            runs_of = found.setdefault((python_name(note["op"]), note["line"]), {})
            runs_of[note["op"]] = runs_of.get(note["op"], 0) + count
    return found


def _graphs(notes: Notes) -> dict[str, list[Note]]:
    """Return for each function of TensorFlow its graphs, one for each shape of the arguments."""
    found: dict[str, list[Note]] = {}
    for note in notes.of("graph"):
        found.setdefault(note["function"], []).append(note)
    return found


def _function(runs_of: Mapping[str, int], graphs: Mapping[str, list[Note]], **known: Any) -> Function:
    """Return a function by how often each of its graphs ran, with what else is known of it."""
    mine = [note for graph in runs_of for note in graphs.get(graph, ())]
    clusters = [note["clusters"] for note in mine if note["clusters"] is not None]
    copies = [sum(_with_host(note).values()) for note in mine]
    ran: dict[str, int] = {}
    for graph, runs in runs_of.items():
        for device, number in _most(note["devices"] for note in graphs.get(graph, ())).items():
            ran[device] = ran.get(device, 0) + runs * number
    return Function(
        **known,
        runs=sum(runs_of.values()),
        devices=_most(note["devices"] for note in mine),
        copies=min(copies, default=0),
        clusters=max(clusters, default=None),
        outside={op: has_kernel for note in mine for op, has_kernel in note["outside"].items()},
        between_gpus=max((note["copies"]["between GPUs"][0] for note in mine), default=0),
        scopes={note["scope"]: tuple(note["devices"]) for note in mine if "GPU" in note["scope"]},
        types=tuple(sorted({op for note in mine for ops in note.get("types", {}).values() for op in ops})),
        cpu_variables=max((note.get("cpu_variables", 0) for note in mine), default=0),
        ran=ran,
        unknown_runs=sum(runs for graph, runs in runs_of.items() if graph not in graphs),
        has_branches=any(note.get("branches") for note in mine),
        varies=len(set(copies)) > 1 or any(note["devices"] != mine[0]["devices"] for note in mine),
    )


def _with_host(graph: Note) -> dict[str, int]:
    """Return how many tensors a graph copies to the host, and from it."""
    return {direction: graph["copies"][direction][0] for direction in ("to host", "to device")}


def _most(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for count in counts:
        for name, number in count.items():
            found[name] = max(found.get(name, 0), number)
    return found


def _copies(notes: Notes, pid: int) -> Iterator[Copies]:
    graphs = _graphs(notes)
    inside: dict[tuple[str, str, str], list[int]] = {}
    branching = {
        python_name(graph) for graph, several in graphs.items() if any(note.get("branches") for note in several)
    }
    for (name, line), runs_of in _calls(notes).items():
        for graph, runs in runs_of.items():
            several = [note["copies"] for note in graphs.get(graph, ())]
            if any(copies != several[0] for copies in several):
                continue  # which of them ran how often is not known
            for direction, numbers in several[0].items() if several else ():
                total = inside.setdefault((direction, name, line), [0, 0, 0])
                for position, number in enumerate(numbers):
                    total[position] += runs * number
    for note in notes.of("counter"):
        if note["what"] == "copy" and (count := notes.count(note)):
            size = notes.counters[note["slot"] + 1]
            yield Copies(note["op"], note["line"], count, size, direct=bool(note["kernel"]), process=pid)
    for (direction, name, line), (count, size, unsized) in inside.items():
        if count:
            yield Copies(direction, line, count, size, name, unsized, process=pid, has_branches=name in branching)


def _waited(notes: Notes, pid: int) -> Iterator[Waited]:
    for note in notes.of("counter"):
        if note["what"] == "waited":
            yield Waited(note["line"], notes.count(note), notes.counters[note["slot"] + 1] / 1e6, pid)


def _out_of_memory(notes: Notes, pid: int) -> Iterator[OutOfMemory]:
    limits: dict[str, int] = dict(observed.made(notes).get("devices", ()))
    for number, note in enumerate(notes.notes):
        if note["k"] != "error" or note["error"] != "ResourceExhaustedError":
            continue
        later = notes.notes[number + 1 : number + 3]
        memory = next((note for note in later if note["k"] == "memory"), {})
        holders = next((note for note in later if note["k"] == "holders"), {})
        message = note["message"]
        on = _ALLOCATING_ON.search(message)
        device = short_device(on["device"]) if on else ""
        used = next((held for name, held, _ in memory.get("held", ()) if name == device), 0)
        yield OutOfMemory(
            message=_first_line(message),
            line=note["line"],
            device=device,
            asked_bytes=_asked_bytes(message),
            used_bytes=used,
            limit_bytes=limits.get(device, 0),
            holders=tuple(
                Holder(holder["what"], holder["device"], holder["bytes"], holder["number"])
                for holder in holders.get("holders", ())
            ),
            process=pid,
        )


def _not_compiled(notes: Notes, pid: int) -> Iterator[NotCompiled]:
    for note in notes.of("error"):
        match = _NOT_COMPILED.search(note["message"])
        if match is not None:
            operations = tuple(dict.fromkeys(_NO_KERNEL.findall(note["message"])))
            yield NotCompiled(python_name(match["function"]), note["line"], match["device"], operations, pid)


def _asked_bytes(message: str) -> int:
    """Return how many bytes the tensor has that TensorFlow's message names; 0 if it names none."""
    match = _ASKED_FOR.search(message)
    if match is None:
        plain = _ASKED_BYTES.search(message)
        return int(plain["bytes"]) if plain else 0
    number = 1
    for length in filter(None, match["shape"].split(",")):
        number *= int(length)
    return number * _BYTES.get(match["type"], 4)


def _clusters(notes: Notes, pid: int, began: float, answers: Mapping[str, str]) -> Iterator[Cluster]:
    """Yield the clusters of a process; it has joined one if TensorFlow listed its devices after it began to."""
    for number, note in enumerate(notes.notes):
        if note["k"] == "cluster":
            yield Cluster(
                task=note["task"],
                line=note["line"],
                at_s=round(note["t"] - began, 3),
                joined=any(later["k"] == "initialised" for later in notes.notes[number:]),
                peers=tuple(
                    ClusterTask(task, address, answers.get(address))
                    for task, address in note["tasks"]
                    if task != note["task"]
                ),
                process=pid,
                address=next((address for task, address in note["tasks"] if task == note["task"]), ""),
            )


def _replicas(notes: Notes, pid: int) -> Iterator[Replicas]:
    made = tuple(name for name, _ in observed.made(notes).get("devices", ()))
    outside = tuple(dict.fromkeys(note["line"] for note in notes.of("counter") if note["what"] == "outside"))
    for note in notes.of("strategy"):
        devices = tuple(map(short_device, note["devices"]))
        same = tuple(
            (given["line"], given["called"], given["shape"])
            for given in notes.of("same")
            if given["slot"] == note["slot"]
        )
        forgotten_at = notes.count(note, FORGOTTEN_AT) / 1e6
        began = [called["t"] for called in notes.of("counter") if called["what"] == "function"]
        is_held = not forgotten_at or any(note["t"] <= at <= forgotten_at for at in began)
        of_it = notes.count(note, VARIABLES_OF)
        yield Replicas(note["what"], note["line"], devices, made, pid, notes.count(note), same, is_held, of_it, outside)
