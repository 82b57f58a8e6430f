"""JUnit XML as Jenkins, GitLab and others read it: a suite for each area, a test case for each row.

The verdict is a separate test case. Without it, a run in which every probe was skipped and nothing was verified would
be a green suite.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from gpudiag.knowledge.codes import meanings
from gpudiag.model.report import LOAD, Broken, Interrupted, Report, Row, Skipped, Verdict
from gpudiag.report import accounts, words
from gpudiag.text import one_line, plain

SUFFIX = ".xml"


def render(report: Report, **_: object) -> str:
    """Return the report as JUnit XML that is valid by the schemas ``junit-4.xsd`` and ``junit-10.xsd`` of Jenkins."""
    root = ET.Element("testsuites", name="gpudiag")
    _suite(root, report, "verdict" if report.program is None else "program", [_verdict(report)], words.machine(report))
    for area, rows in report.areas.items():
        _suite(root, report, area, [_case(report, row) for row in rows])
    for attribute in ("tests", "failures", "errors"):
        root.set(attribute, str(sum(int(suite.get(attribute, "")) for suite in root)))
    root.set("time", _seconds(sum(float(suite.get("time", "")) for suite in root)))
    for element in root.iter():
        element.attrib = {name: plain(value) for name, value in element.attrib.items()}
        element.text = plain("\n".join(filter(None, [element.text, *_codes(element)])))
    ET.indent(root)
    return f"<?xml version='1.0' encoding='UTF-8'?>\n{ET.tostring(root, encoding='unicode')}\n"


def _codes(element: ET.Element) -> list[str]:
    """Return the meanings of codes that an element mentions without one, because people see each element alone."""
    text = "\n".join((element.get("message", ""), element.text or ""))
    return [f"{code}: {meaning}" for code, meaning in meanings(text).items()]


def _suite(
    root: ET.Element, report: Report, name: str, cases: list[ET.Element], properties: tuple[tuple[str, str], ...] = ()
) -> None:
    suite = ET.SubElement(
        root,
        "testsuite",
        name=f"gpudiag.{name}",
        tests=str(len(cases)),
        failures=str(sum(case.find("failure") is not None for case in cases)),
        errors=str(sum(case.find("error") is not None for case in cases)),
        skipped=str(sum(case.find("skipped") is not None for case in cases)),
        time=_seconds(sum(float(case.get("time", "")) for case in cases)),
        timestamp=report.started_at[:19],
    )
    known = {
        "gpudiag_version": report.gpudiag_version,
        "verdict": words.verdict(report),
        "simulated": str(report.world.simulated).lower(),
        **({"simulation": report.world.spec} if report.world.simulated else {}),
    }
    parent = ET.SubElement(suite, "properties")
    for key, value in (*known.items(), *properties):
        ET.SubElement(parent, "property", name=key, value=value)
    suite.extend(cases)


def _verdict(report: Report) -> ET.Element:
    """Return the test case of the verdict, which passes only if everything in scope was verified.

    A program's test case passes if nothing was found, or if gpudiag exits with the program's status and that is 0.
    """
    of_program = report.program is not None
    case = ET.Element("testcase", classname="gpudiag", name="program" if of_program else "verdict", time=_seconds(0))
    message = f"{words.verdict(report)}: {words.summary(report)}"
    if report.exit_code != 0:
        tag = "failure" if report.verdict is Verdict.FAIL or of_program else "error"
        causes = [
            str(line)
            for cause in report.diagnosis.causes
            for line in words.cause(cause, is_titled=words.is_titled(report, cause))
        ]
        broke = [f"{failure.part} broke: {failure.why}" for failure in report.diagnosis.failed]
        last = () if of_program else (accounts.summary(report), words.next_step(report))
        text = "\n".join(filter(None, [words.headline(report), *causes, *broke, *last]))
        ET.SubElement(case, tag, type=words.verdict(report), message=message).text = text
    elif of_program:
        ET.SubElement(case, "system-out").text = f"{message}\n{words.headline(report)}"
    elif report.verdict is not Verdict.PASS:
        ET.SubElement(case, "skipped").text = f"{message}\n{words.next_step(report)}"
    else:
        text = "\n".join(filter(None, (message, accounts.summary(report), words.next_step(report))))
        ET.SubElement(case, "system-out").text = text
    return case


def _case(report: Report, row: Row) -> ET.Element:
    name = words.label(report, row)
    case = ET.Element("testcase", classname=f"gpudiag.{row.area}", name=name, time=_seconds(row.duration_s))
    if isinstance(row.outcome, Skipped | Interrupted):
        # Text alone: junit-4.xsd gives this element no attributes.
        ET.SubElement(case, "skipped").text = words.figure(row)
        return case
    failing = [finding for finding in row.findings if finding.severity in report.limits.failing]
    if isinstance(row.outcome, Broken):
        error = ET.SubElement(case, "error", type=row.outcome.cause.value, message=words.figure(row))
        error.text = "\n".join(row.log)
    elif failing:
        failure = ET.SubElement(case, "failure", type=failing[0].kind, message=one_line(failing[0].message))
        failure.text = "\n".join([*map(words.finding, failing), "", *row.log])
    others = [words.finding(finding) for finding in row.findings if finding not in failing]
    texts = [words.figure(row), *others, words.evidence(row)]
    if row.area == LOAD:
        from gpudiag.report import load

        texts.append(load.sentence(report, row))
    ET.SubElement(case, "system-out").text = "\n".join(filter(None, texts))
    return case


def _seconds(number: float) -> str:
    """Return seconds with three decimals, as many as ``junit-10.xsd`` allows."""
    return f"{number:.3f}"
