"""No rule raises, whatever the evidence is: texts cut anywhere, facts that contradict one another, nothing at all.

What is tried is drawn by chance from a seed, so that it is the same each time: all cases of all rules crossed with one
another, their logs altered, and facts made from the types alone.
"""

from __future__ import annotations

import json
import random
import re
from typing import Any

import msgspec
import pytest
from msgspec import inspect
from msgspec.structs import replace

from examples import examples
from examples.facts import example, example_with_gpus
from gpudiag.cause import TRACE, Evidence
from gpudiag.comparison import facts
from gpudiag.model.diagnosis import Diagnosis
from gpudiag.model.facts import EnvironmentFacts, Facts, TensorflowFacts, Unknown
from gpudiag.model.report import Broken, Finding, Gpu, Judged, NoReading, Row, Severity
from gpudiag.model.visibility import gpus_in_scope
from gpudiag.run import diagnosis
from gpudiag.run.accounts import account
from reports import fix_lines

CASES = [example.evidence for several in examples().values() for example in several]
LINES = [line for evidence in CASES for line in (*evidence.lines, *(line for row in evidence.rows for line in row.log))]
KINDS = sorted({(row.probe, finding.kind) for case in CASES for row in case.rows for finding in row.findings})
FIGURES = {finding.kind: finding.figures for case in CASES for row in case.rows for finding in row.findings}
ODD = (
    "",
    "/",
    ".",
    "..",
    "{}",
    "{x}",
    "%s",
    "-1",
    "1.2.3.4.5",
    "²",
    "9" * 40,
    "nan",
    "GPU-",
    "MIG-",
    ":",
    "a b",
    "None",
)
MASKS = (*ODD, "+1", "0,0", "0,1", "(set)", "[]", "0x1", " 1", "1;2", "GPU-0", "0,GPU-x,1", "99999999999999999999")


def fails(evidence: Evidence) -> dict[str, str]:
    """Return the parts of the diagnosis that failed, and why."""
    found = diagnosis.diagnose(evidence)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Diagnosis) == found
    return {failure.part: failure.why for failure in found.failed}


def test_a_message_late_in_a_line_is_found_and_shown() -> None:
    """A structured log: what is shown of a line is cut, and is not searched again."""
    said = "ValueError: Cannot set memory growth on device when virtual devices configured"
    for text in (said, "RuntimeError: Physical devices cannot be modified after being initialized"):
        line = json.dumps({"time": 1, "labels": {"pod": "x" * 300}, "message": text})
        found = diagnosis.diagnose(Evidence(example_with_gpus(1), lines=(line,)))
        assert found.failed == ()
        (cause,) = found.causes
        assert any(text.partition(": ")[2] in line for line in cause.evidence)
    unread = 'TF_FORCE_GPU_ALLOW_GROWTH environment variable is set but could not be parsed: "yes"'
    found = diagnosis.diagnose(Evidence(example_with_gpus(1), lines=(f"{'x' * 400} {unread}",)))
    assert [(root_cause.cause_id, "'yes'" in root_cause.evidence[0]) for root_cause in found.causes] == [
        ("growth_not_read", True)
    ]


def test_tensorflow_without_metadata_is_named_without_a_version() -> None:
    rule = diagnosis.get("packages_share_a_folder")
    assert rule is not None
    case = next(case for case in examples()["packages_share_a_folder"] if case.fires)
    tensorflow = case.evidence.facts.tensorflow
    assert isinstance(tensorflow, TensorflowFacts)
    bare = replace(case.evidence.facts, tensorflow=replace(tensorflow, distributions=()))
    (cause,) = rule.causes(Evidence(bare, case.evidence.gpus, case.evidence.rows))
    assert any(
        "tensorflow[and-cuda]" in line and "==" not in line.partition("and-cuda]")[2] for line in fix_lines(cause)
    )


def crossed(chance: random.Random) -> Evidence:
    """Return evidence of which each part is another case's."""
    some = [chance.choice(CASES) for _ in range(4)]
    families: dict[str, Any] = {name: getattr(chance.choice(some[:2]).facts, name) for name in Facts.__struct_fields__}
    for name in families:
        if chance.random() < 0.08:
            families[name] = Unknown("no answer")
    environment = families["environment"]
    if chance.random() < 0.3 and isinstance(environment, EnvironmentFacts):
        name = chance.choice([*environment.variables, "CUDA_VISIBLE_DEVICES"])
        families["environment"] = EnvironmentFacts({**environment.variables, name: chance.choice(MASKS)})
    return Evidence(Facts(**families), chance.choice(some[:3]).gpus, some[2].rows, some[3].lines)


def altered(line: str, chance: random.Random) -> str:
    """Return a line with numbers, words or pieces of it changed."""
    for _ in range(chance.choice((1, 1, 2, 3))):
        start = chance.randrange(len(line) + 1)
        change = chance.randrange(5)
        if change == 0:
            line = re.sub(r"\d+", lambda found: chance.choice((found[0], *ODD)), line)
        elif change == 1:
            line = line[:start] + line[start + chance.randrange(20) :]
        elif change == 2:
            line += chance.choice(LINES)
        elif change == 3:
            line = line[start:]
        else:
            line = re.sub(r"\w+", lambda found: chance.choice((found[0],) * 20 + ODD), line)
    return line


def logged(chance: random.Random) -> Evidence:
    """Return evidence with an altered log."""
    case = chance.choice(CASES)
    log = (altered(chance.choice(case.lines or LINES), chance) for _ in range(chance.randrange(1, 6)))
    return Evidence(case.facts, case.gpus, case.rows, tuple(log))


def made(kind: inspect.Type, chance: random.Random, texts: list[str]) -> Any:
    """Return any value of a type, most often a short one."""
    match kind:
        case inspect.UnionType():
            return made(chance.choice(kind.types), chance, texts)
        case inspect.StructType():
            return kind.cls(**{field.name: made(field.type, chance, texts) for field in kind.fields})
        case inspect.VarTupleType():
            return tuple(made(kind.item_type, chance, texts) for _ in range(chance.choice((0, 0, 1, 1, 2, 3))))
        case inspect.TupleType():
            return tuple(made(item_type, chance, texts) for item_type in kind.item_types)
        case inspect.DictType():
            size = chance.choice((0, 0, 1, 2))
            return {made(kind.key_type, chance, texts): made(kind.value_type, chance, texts) for _ in range(size)}
        case inspect.StrType():
            return chance.choice(texts)
        case inspect.IntType():
            return chance.choice((0, 1, 2, -1, 16 << 30, 1 << 62))
        case inspect.FloatType():
            return chance.choice((0.0, -1.0, 1e308))
        case inspect.BoolType():
            return chance.random() < 0.5
        case inspect.EnumType(cls=members):
            return chance.choice(list(members))
        case inspect.NoneType():
            return None
        case inspect.Metadata(type=inner):
            return made(inner, chance, texts)
    raise AssertionError(f"no values are known of {kind}")


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in strings(part)]
    return [text for item in value for text in strings(item)] if isinstance(value, list) else []


TEXTS = sorted({text for case in CASES for text in strings(msgspec.to_builtins(case.facts))} | set(ODD))
FACTS = inspect.type_info(Facts)
GPUS = inspect.type_info(tuple[Gpu, ...])


def invented(chance: random.Random) -> Evidence:
    """Return evidence that no machine gave: facts of the right types, and findings that they do not bear out."""
    facts = made(FACTS, chance, TEXTS)
    rows = []
    for probe, kind in chance.sample(KINDS, 6):
        figures = {name: chance.choice((value, chance.choice(ODD), 0)) for name, value in FIGURES[kind].items()}
        found = Finding(kind, Severity.FAIL, chance.choice(LINES), figures=figures)
        rows.append(Row(probe, (), Judged((found,)), 0.0, log=(chance.choice(LINES),)))
    traces = [row for case in CASES for row in case.rows if row.probe == TRACE]
    rows.append(
        chance.choice([*traces, Row(TRACE, (), Broken(chance.choice(list(NoReading)), chance.choice(LINES)), 0.0)])
    )
    gpus = chance.choice((gpus_in_scope(facts), made(GPUS, chance, TEXTS)))
    return Evidence(facts, gpus, tuple(rows), (altered(chance.choice(LINES), chance),))


@pytest.mark.parametrize("draw", [crossed, logged, invented], ids=lambda draw: draw.__name__)
def test_no_rule_raises(draw: Any) -> None:
    chance = random.Random(20_261_121)
    failed: dict[str, str] = {}
    for _ in range(120):
        failed |= fails(draw(chance))
    assert failed == {}


def test_no_rule_raises_where_nothing_is_known() -> None:
    nothing = Facts(**dict.fromkeys(Facts.__struct_fields__, Unknown("no answer")))
    assert fails(Evidence(nothing)) == {}
    assert fails(Evidence(example(), lines=("",))) == {}


@pytest.mark.parametrize("draw", [crossed, logged, invented], ids=lambda draw: draw.__name__)
def test_neither_the_account_of_gpus_nor_a_comparison_raises(draw: Any) -> None:
    chance = random.Random(20_261_122)
    before = draw(chance)
    for _ in range(120):
        evidence = draw(chance)
        gpus = account(evidence, Diagnosis())
        assert len({(gpu.pci_bus_id, gpu.nvml) for gpu in gpus}) <= len(gpus)
        for change in facts.changes(before.facts, evidence.facts):
            assert change.old != change.new
        before = evidence
