"""What every probe that measures has of its contract, shown once for all of them, on what was recorded of each."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from examples.facts import example, example_gpu
from far_side import ABSENT, Children
from gpudiag import catalogue
from gpudiag.catalogue import Entry
from gpudiag.errors import CatalogueError, Disturbed
from gpudiag.model.facts import Facts
from gpudiag.model.reading import SavedReading, upgraded_reading
from gpudiag.model.report import Gpu, Judged, Severity
from gpudiag.probe import MIB, Faults, GpuReading, MemoryUse, Needs, Probe, Reading, Scope, fail, note, warn
from gpudiag.report import words
from gpudiag.run.context import ChildContext
from provocations import table

RECORDED = Path(__file__).parents[1] / "recorded"
MACHINES = ("1x16GiB", "2x16GiB")
ENTRIES = [entry for entry in catalogue.entries() if entry.reading is not None]
ON_GPUS = [entry for entry in ENTRIES if entry.reading is not None and issubclass(entry.reading, GpuReading)]
OLDER = json.loads((RECORDED / "older.json").read_bytes())
# A probe of numbers says by which kind of its own that a number means another GPU.
ANOTHER_GPU = {"logical.index_shift": "other_number"}

# The listing is what this one judges.
NOT_LISTED = {"discovery.physical_devices": "fewer_listed"}
# They meet the second process, which these tests do not start, before they list the GPUs.
MEETS_FIRST = {"memory.allocator", "memory.shared_gpu", "visibility.list_per_process"}

ALONE = [entry for entry in ENTRIES if entry.probe.needs.gpus and entry.name not in MEETS_FIRST]

_Path = tuple[str | int, ...]


def name(entry: Entry) -> str:
    return entry.name


def facts(machine: str) -> Facts:
    return msgspec.json.decode((RECORDED / machine / "facts.json").read_bytes(), type=Facts)


def recorded(machine: str, probe: str) -> Any:
    return json.loads((RECORDED / machine / f"{probe}.json").read_bytes())


def judge(entry: Entry, reading: Any, machine: str = "2x16GiB") -> Judged:
    record = reading if isinstance(reading, Reading) else entry.decode(SavedReading(reading))
    return entry.judge(record, facts(machine))


def kinds(judged: Judged) -> set[str]:
    return {finding.kind for finding in judged.findings}


def kernels(value: Any, path: _Path = ()) -> Iterator[_Path]:
    """Yield where in a reading a kernel stands."""
    if isinstance(value, dict) and value.keys() == {"device", "pci_bus_id", "correct"}:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from kernels(item, (*path, key))


HEALTHY = [(machine, file.stem) for machine in MACHINES for file in sorted((RECORDED / machine).glob("*.*.json"))]
KERNELS = [
    (probe, path) for machine, probe in HEALTHY if machine == "2x16GiB" for path in kernels(recorded(machine, probe))
]


@pytest.mark.parametrize(("machine", "probe"), HEALTHY)
def test_what_was_recorded_is_healthy(machine: str, probe: str) -> None:
    judged = judge(catalogue.get(probe), recorded(machine, probe), machine)
    assert judged.findings == ()
    assert judged.figure
    assert judged.verified or not any(kernels(recorded(machine, probe)))


def test_every_probe_is_recorded() -> None:
    assert {probe for _, probe in HEALTHY} == {entry.name for entry in ENTRIES}


@pytest.mark.parametrize("entry", ON_GPUS, ids=name)
def test_a_gpu_that_is_not_listed_is_found_and_nothing_else(entry: Entry) -> None:
    reading = recorded("2x16GiB", entry.name)
    judged = judge(entry, {**reading, "seen": reading["seen"] - 1})
    assert (kinds(judged), judged.verified) == ({"gpu_not_seen"}, ())
    assert judged.figure == f"TensorFlow lists {reading['seen'] - 1} of {reading['seen']} GPUs"


@pytest.mark.parametrize("entry", ON_GPUS, ids=name)
def test_an_operation_that_raised_is_found_and_nothing_else(entry: Entry) -> None:
    given = recorded("2x16GiB", entry.name)["given"]
    judged = judge(entry, {"given": given, "seen": len(given), "operation_raised": "InternalError: no"})
    assert (kinds(judged), judged.verified) == ({"operation_failed"}, ())
    assert "InternalError: no" in judged.findings[0].message
    judged = judge(entry, {"given": given, "seen": len(given), "operation_raised": "it did not return", "hung": True})
    assert (kinds(judged), judged.findings[0].message) == ({"operation_hangs"}, "it did not return")
    assert {"operation_failed", "operation_hangs", "process_ended"} <= {kind.name for kind in entry.kinds}


@pytest.mark.parametrize(
    "entry",
    [candidate for candidate in ENTRIES if candidate.probe.needs.gpus and candidate.name not in MEETS_FIRST],
    ids=name,
)
def test_no_probe_passes_without_a_gpu(entry: Entry, tensorflow: Children) -> None:
    given = max(entry.probe.needs.gpus, 2 if entry.probe.scope is Scope.ALL_GPUS else 1)
    judged = entry.judge(tensorflow.measure(entry.name, *[ABSENT] * given), example())
    assert kinds(judged) == {NOT_LISTED.get(entry.name, "gpu_not_seen")}
    assert judged.verified == ()
    if entry in ON_GPUS:
        assert judged.figure == f"TensorFlow lists 0 of {given} GPUs"


@pytest.mark.parametrize(("probe", "path"), KERNELS)
@pytest.mark.parametrize(
    ("field", "value", "expected"), [("pci_bus_id", "0000:ff:00.0", "other_gpu"), ("correct", False, "wrong_result")]
)
def test_a_kernel_elsewhere_or_wrong_is_found(probe: str, path: _Path, field: str, value: Any, expected: str) -> None:
    entry, reading = catalogue.get(probe), recorded("2x16GiB", probe)
    kernel: Any = reading
    for step in path:
        kernel = kernel[step]
    others = json.dumps(reading).count('"correct": true') - 1
    kernel[field] = value
    judged = judge(entry, reading)
    expected = ANOTHER_GPU.get(probe, expected) if field == "pci_bus_id" else expected
    assert kinds(judged) == {expected}
    assert any(finding.severity is Severity.FAIL for finding in judged.findings)
    assert len(judged.verified) <= others


def as_of_today(entry: Entry, older: Any) -> Any:
    """Return the reading of a report of schema 1 as it is read; only rows with GPUs are upgraded."""
    return older if entry.probe.scope is Scope.HOST else upgraded_reading(entry.name, older)


@pytest.mark.parametrize("probe", OLDER)
def test_readings_of_older_reports_are_judged_alike(probe: str) -> None:
    entry, older = catalogue.get(probe), OLDER[probe]
    judged = judge(entry, as_of_today(entry, older["complete"]))
    assert judged.findings == ()
    assert judged.verified == judge(entry, recorded("2x16GiB", probe)).verified
    if "too_few" in older:
        judged = judge(entry, as_of_today(entry, older["too_few"]))
        assert (kinds(judged), judged.verified) == ({"gpu_not_seen"}, ())


@pytest.mark.parametrize("entry", ENTRIES, ids=name)
def test_a_reading_is_the_same_record_and_plain(entry: Entry) -> None:
    machine = next(machine for machine, probe in HEALTHY if probe == entry.name)
    plain = recorded(machine, entry.name)
    record = entry.decode(SavedReading(copy.deepcopy(plain)))
    assert json.loads(msgspec.json.encode(record)) == plain
    assert judge(entry, record, machine) == judge(entry, plain, machine)


@pytest.mark.parametrize("entry", ENTRIES, ids=name)
def test_every_kind_has_an_example(entry: Entry) -> None:
    named = [kind.name for kind in entry.kinds]
    assert len(named) == len(set(named))
    shown = {
        kind for provocation in table() if provocation.probe == entry.name for kind in provocation.kind.split(", ")
    }
    assert {name for name in named if name not in shown} <= {
        "gpu_not_seen",
        "operation_failed",
        "operation_hangs",
        "other_gpu",
        "process_ended",
        "wrong_result",
    }


class _Fault(Faults):
    full = fail("took {taken_bytes} of {count}", means="It is full.", do="free {taken_bytes}")
    slow = warn("slow", means="It is slow.", do="wait")
    known = note("known", means="It is known.", do="nothing")


def test_a_fault_is_named_by_its_attribute_and_bytes_are_rendered() -> None:
    assert [(kind.name, kind.severity.value) for kind in _Fault.kinds()] == [
        ("full", "fail"),
        ("slow", "warning"),
        ("known", "note"),
    ]
    found = _Fault.full.found(taken_bytes=300 * MIB, count=7)
    assert (found.kind, found.message, words.advice(found)) == ("full", "took 300 MiB of 7", "free 300 MiB")
    assert found.figures == {"taken_bytes": 300 * MIB, "count": 7}


class _Watching(ChildContext):
    """A context on a device whose use is known beforehand."""

    def __init__(self, *uses: MemoryUse) -> None:
        super().__init__(())
        self._uses = iter(uses)

    def memory(self, gpu: Gpu) -> MemoryUse:
        return next(self._uses)


def test_a_watch_notices_another_process() -> None:
    gpu = Gpu.of(example_gpu(), example_gpu().uuid)
    ours = _Watching(MemoryUse(500 * MIB, 400 * MIB), MemoryUse(700 * MIB, 600 * MIB))
    with ours.watch(gpu) as memory:
        assert -(memory() - memory()) == 200 * MIB
    theirs = _Watching(MemoryUse(500 * MIB, 400 * MIB), MemoryUse(700 * MIB, 400 * MIB))
    with pytest.raises(Disturbed, match="by 200 MiB"), theirs.watch(gpu) as memory:  # noqa: PT012  # at its end
        memory()
        memory()


def _module(**members: Any) -> ModuleType:
    """Return a probe of good form, but for ``members``."""
    module = ModuleType("scratch", "Text.\n\nWhat it does\n    a\nWhy it matters\n    b\nWhat to do\n    c\n")
    good = catalogue.get("placement.log").module
    names = ("__file__", "PROBE", "Fault", "Reading", "judge", "measure")
    vars(module).update({name: vars(good)[name] for name in names} | members)
    return module


class _NoFigure(GpuReading):
    pass


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"__doc__": "Text."}, "the docstring lacks What it does"),
        ({"Fault": object}, "needs a class Fault"),
        ({"Reading": object}, "needs a class Reading"),
        ({"Reading": _NoFigure}, "with a figure"),
        ({"PROBE": Probe(needs=Needs(versions="new"))}, "'new' is not a range of versions"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_probe_of_another_form_is_refused(members: dict[str, Any], said: str) -> None:
    assert catalogue._entry(_module(), "placement.scratch").kinds
    with pytest.raises(CatalogueError, match=said):
        catalogue._entry(_module(**members), "placement.scratch")


def test_a_probe_without_faults_is_refused() -> None:
    module = _module()
    del vars(module)["Fault"]
    with pytest.raises(CatalogueError, match="a probe needs Fault"):
        catalogue._entry(module, "placement.scratch")
