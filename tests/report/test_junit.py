"""JUnit XML: by the schemas of Jenkins, its numbers true, and green only where something was verified."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree as ET

import msgspec
import pytest

from gpudiag.fix import note
from gpudiag.model.report import Broken, Finding, Limits, NoReading, Report, Settings, Severity, Skipped, World
from gpudiag.report import render, words
from reports import CAP_IGNORED, GPUS, MISSPELT, hostile, passed, report, row, sample

REPORTS = {
    "sample": sample(),
    "strict": sample(limits=Limits(strict=True)),
    "hostile": hostile(),
    "empty": report(),
    "no GPU": report(row("memory.growth", Skipped("no GPU"))),
}


@dataclass(frozen=True)
class Rule:
    """What a schema allows in an element."""

    required: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    children: str = ""
    """Regular expression over the names of the children, a space behind each."""
    text: bool = False


MESSAGE = Rule(optional=frozenset({"type", "message"}), text=True)
# What junit-4.xsd and junit-10.xsd of Jenkins' xUnit plugin both allow. The former gives "skipped" no attributes and
# its children of a test case this order; the latter asks for the counts of a suite.
RULES = {
    "testsuites": Rule(
        optional=frozenset({"name", "time", "tests", "failures", "disabled", "errors"}), children="(testsuite )*"
    ),
    "testsuite": Rule(
        required=frozenset({"name", "tests", "failures", "errors"}),
        optional=frozenset({"time", "disabled", "skipped", "timestamp", "hostname", "id", "package"}),
        children="(properties )?(testcase )*(system-out )?(system-err )?",
    ),
    "properties": Rule(children="(property )+"),
    "property": Rule(required=frozenset({"name", "value"})),
    "testcase": Rule(
        required=frozenset({"name"}),
        optional=frozenset({"assertions", "time", "classname", "status"}),
        children="(skipped )?(error )*(failure )*(system-out )*(system-err )*",
    ),
    "error": MESSAGE,
    "failure": MESSAGE,
    "skipped": Rule(text=True),
    "system-out": Rule(text=True),
    "system-err": Rule(text=True),
}
SECONDS = re.compile(r"\d+\.\d{1,3}")


def junit(shown: Report) -> ET.Element:
    return ET.fromstring(render(shown, "junit", width=80, color=False))


def case(root: ET.Element, name: str) -> ET.Element:
    (found,) = (case for case in root.iter("testcase") if case.get("name") == name)
    return found


def faults(element: ET.Element) -> list[str]:
    """Return what the rules forbid in the element and in all below it."""
    rule = RULES.get(element.tag)
    if rule is None:
        return [f"unknown element {element.tag}"]
    found = [f"{element.tag} lacks {name}" for name in rule.required - set(element.attrib)]
    found += [f"{element.tag} has {name}" for name in set(element.attrib) - rule.required - rule.optional]
    if not re.fullmatch(rule.children, "".join(f"{child.tag} " for child in element)):
        found.append(f"{element.tag} holds {[child.tag for child in element]}")
    if not rule.text and (element.text or "").strip():
        found.append(f"text in {element.tag}")
    if not SECONDS.fullmatch(element.get("time", "0.0")):
        found.append(f"{element.tag} has time {element.get('time')}")
    return found + [fault for child in element for fault in faults(child)]


@pytest.mark.parametrize("name", REPORTS)
def test_it_follows_the_schemas_of_jenkins(name: str) -> None:
    assert faults(junit(REPORTS[name])) == []


@pytest.mark.parametrize(
    "text",
    [
        "<testsuite name='a' tests='0' failures='0'/>",
        "<testcase name='a'><system-out/><error/></testcase>",
        "<testcase name='a'><skipped message='b'/></testcase>",
        "<testcase name='a' time='1.2345'/>",
        "<testcase name='a'>b</testcase>",
        "<property name='a'/>",
    ],
)
def test_the_rules_refuse(text: str) -> None:
    assert len(faults(ET.fromstring(text))) == 1


@pytest.mark.parametrize("name", REPORTS)
def test_its_numbers_are_true(name: str) -> None:
    root = junit(REPORTS[name])
    for parent in (root, *root.iter("testsuite")):
        cases = list(parent.iter("testcase"))
        assert parent.get("tests") == str(len(cases))
        for attribute, tag in {"failures": "failure", "errors": "error", "skipped": "skipped"}.items():
            if parent is not root or attribute != "skipped":
                assert parent.get(attribute) == str(sum(case.find(tag) is not None for case in cases))
        assert float(parent.get("time", "")) == pytest.approx(sum(float(case.get("time", "")) for case in cases))


def test_every_row_is_one_test_case_of_its_area() -> None:
    shown = sample()
    root = junit(shown)
    suites = {suite.get("name"): [case.get("name") for case in suite.iter("testcase")] for suite in root}
    assert suites.pop("gpudiag.verdict") == ["verdict"]
    assert list(suites) == [f"gpudiag.{area}" for area in shown.areas]
    assert suites["gpudiag.memory"] == [
        "memory.fraction GPU 0",
        "memory.fraction GPU 1",
        "memory.growth GPU 0",
        "memory.growth GPU 1",
    ]
    assert sum(map(len, suites.values())) == len(shown.rows)


def test_failure_error_and_skipped_are_kept_apart() -> None:
    root = junit(sample())
    failed = case(root, "memory.fraction GPU 0").find("failure")
    assert failed is not None
    assert failed.attrib == {"type": "cap_ignored", "message": CAP_IGNORED.message}
    assert words.advice(CAP_IGNORED) in (failed.text or "")
    broken = case(root, "visibility.list_invalid GPU 0-1").find("error")
    assert broken is not None
    assert broken.attrib == {"type": "signal", "message": "signal: SIGSEGV"}
    assert "*** Segmentation fault" in (broken.text or "")
    assert case(root, "logical.split_0").findtext("skipped") == "needs 4 GPUs, 2 here"
    assert [child.tag for child in case(root, "host.driver")] == ["system-out"]


def test_warnings_fail_only_where_they_count() -> None:
    gentle = case(junit(sample()), "host.environment")
    assert [child.tag for child in gentle] == ["system-out"]
    assert MISSPELT.message in (gentle.findtext("system-out") or "")
    assert words.advice(MISSPELT) in (gentle.findtext("system-out") or "")
    strict = case(junit(REPORTS["strict"]), "host.environment")
    assert [child.tag for child in strict] == ["failure", "system-out"]
    assert MISSPELT.message not in (strict.findtext("system-out") or "")
    assert "growth is forced" in (strict.findtext("system-out") or "")


VERIFIED = row("memory.growth", passed(on=GPUS), *GPUS)
SKIPPED = row("memory.growth", Skipped("no GPU"))


@pytest.mark.parametrize(
    ("shown", "children"),
    [
        (report(VERIFIED, gpus=GPUS), ["system-out"]),
        (report(SKIPPED), ["error"]),
        (report(SKIPPED, limits=Limits(allow_no_gpu=True)), ["skipped"]),
        (report(), ["error"]),
        (report(VERIFIED, gpus=GPUS, signal=2), ["error"]),
        (report(SKIPPED, limits=Limits(allow_no_gpu=True), signal=2), ["error"]),
        (report(row("host.gpus", passed("", Finding("f", Severity.FAIL, "m", (note("a"),))))), ["failure"]),
        (report(row("host.gpus", Broken(NoReading.TIMEOUT, "60 s"))), ["error"]),
    ],
)
def test_the_verdict_is_green_only_where_everything_was_verified(shown: Report, children: list[str]) -> None:
    assert [child.tag for child in case(junit(shown), "verdict")] == children


def test_properties_tell_the_verdict_and_simulation() -> None:
    def properties(shown: Report) -> list[dict[str | None, str | None]]:
        return [{entry.get("name"): entry.get("value") for entry in suite.iter("property")} for suite in junit(shown)]

    for found in properties(sample(World(simulated=True, spec="2x16GiB"))):
        assert found["simulated"] == "true"
        assert found["simulation"] == "2x16GiB"
        assert found["verdict"] == "FAIL"
        assert found["gpudiag_version"] == "0.1.0"
    assert {found["simulated"] for found in properties(sample())} == {"false"}
    assert properties(sample())[0]["GPU 1"] == "NVIDIA A100-SXM4-40GB, 40 GiB, PCI 0000:02:00.0"


def test_control_characters_and_escape_sequences_are_gone() -> None:
    text = render(hostile(), "junit", width=80, color=False)
    assert re.findall(r"[^\n\t -~\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text) == []
    assert "[31m" not in text
    broken = case(junit(hostile()), "placement.log").find("error")
    assert broken is not None
    assert "<b>&amp; ]]>" in broken.get("message", "")


def test_every_note_is_a_property() -> None:
    noted = msgspec.structs.replace(report(), notes=("one", "two"), settings=Settings("a.toml", {"level": "quick"}))
    root = ET.fromstring(render(noted, "junit", width=80, color=False))
    properties = [(entry.get("name"), entry.get("value")) for entry in root.iter("property")]
    assert [value for name, value in properties if name == "note"] == ["one", "two"]
    assert ("settings", "from a.toml: level=quick") in properties
