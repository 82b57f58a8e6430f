"""Writes ``reports/lint.md``: how often ``gpudiag lint`` is right, and how much it finds.

``--collect FOLDER...`` checks code bases and keeps what is found in ``lint_verdicts.json`` beside this script: a folder
is called ``owner__name``, and a file ``owner__name.commit`` beside it has its commit. Each finding is then looked at by
hand: its verdict there is ``true`` or ``false``, with the reason for a false one. A finding that is in the file already
keeps its verdict. ``--check`` writes nothing, and fails if the report is stale or a verdict is missing.

Nothing of the code bases is kept but the line of a finding.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpudiag.lint import check, rule

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
VERDICTS = Path(__file__).with_name("lint_verdicts.json")
REPORT = ROOT / "reports" / "lint.md"
CORPUS = ROOT / "tests" / "lint" / "corpus"
MARK = "  #! "
FIRST_TRY = {
    "first": "65 of 65",
    "second": "67 of 68",
    "third": "28 of 28, and 1 false",
    "fourth": "24 of 24, and 5 false",
    "fifth": "16 of 17, and 1 false",
    "sixth": "2 of 15, and 2 false",
    "seventh": "15 of 15",
    "eighth": "25 of 26, and 4 false",
    "ninth": "17 of 20 programs, and 0 false, of the half that was written last",
}
"""Labels that were found when the part was scored for the first time: the first by the first version of the rules, the
second, which was written after them, before anything was changed for it; the third was written from files of others,
long after the rules. Three of its labels were wrong and were corrected before it was counted: by them 26 of 28. Of the
fourth one label was at the wrong line: by it 23 of 24. Some of its snippets are of findings that had been read in the
code bases before it was written. The fifth follows habits of code bases that were added last. The sixth was scored by
the rules of before, which did not know 13 of its labels, and led to new ones; the seventh by those, before anything was
changed for it, without its last seven labels, which came later. The eighth was written beside the rules and the value
flow that find it. The ninth is spread over axes: of its first half the rules of before found 10 of 26 programs; the
second was written before it was scored by the rules that its labels name."""
RECALL = """\
Snippets of `tests/lint/corpus/`, our own, modelled on public code that each names. Their author knew what a
lint can find, so the figures say more about what is lost later than about all code that there is. The third
part was written from files that a search for GPU settings found, and was labelled by what TensorFlow does;
the fourth from code bases that were added later, some of it after their findings had been read; the fifth
follows habits of the code bases that were added last, of which 41 of 43 findings were true at first. The
sixth was written before the rules that find it, the seventh after them, by the same author; half of the
snippets of both are clean. The eighth was written after public questions, beside the value flow that finds it.
Eight labels of the first, the third, the fourth and the fifth part were withdrawn: a program that uses GPU:0 and GPU:1
by number is written for two GPUs, and one with a mask that no launcher starts is right."""
Finding = dict[str, Any]


def collect(folder: Path) -> dict[str, Any]:
    """Check a code base and return what is kept of it."""
    began = time.process_time()
    run = check.check([folder], rule.known())
    seconds = time.process_time() - began
    found = [
        {
            "rule": finding.rule,
            "file": Path(finding.file).relative_to(folder).as_posix(),
            "cell": finding.cell,
            "line": finding.line,
            "text": finding.text,
            "verdict": "",
            "why": "",
        }
        for finding in run.result().findings
    ]
    return {
        "commit": folder.with_name(f"{folder.name}.commit").read_text("utf-8").strip()[:12],
        "files": run.files,
        "seconds": round(seconds, 2),
        "not_checked": len(run.problems),
        "findings": found,
    }


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the new account of a code base with the verdicts of the old."""
    verdicts = {_key(finding): (finding["verdict"], finding["why"]) for finding in old.get("findings", [])}
    for finding in new["findings"]:
        finding["verdict"], finding["why"] = verdicts.get(_key(finding), ("", ""))
    return new


def _key(finding: Finding) -> tuple[Any, ...]:
    return tuple(finding[name] for name in ("rule", "file", "cell", "line", "text"))


def recall(part: str) -> tuple[int, int, int]:
    """Return of one part of the corpus the labels that are found, all labels, and what is found without a label."""
    found = labelled = beyond = 0
    for snippet in tomllib.loads((CORPUS / f"{part}.toml").read_text("utf-8"))["snippet"]:
        lines = snippet["code"].lstrip("\n").splitlines()
        labels = {
            (name, at) for at, line in enumerate(lines, 1) if MARK in line for name in line.split(MARK)[1].split()
        }
        text = "\n".join(line.split(MARK)[0] for line in lines) + "\n"
        got = {
            (finding.rule, finding.line)
            for finding in check.check([], rule.known(), stdin=text.encode()).result().findings
        }
        found += len(labels & got)
        labelled += len(labels)
        beyond += len(got - labels)
    return found, labelled, beyond


def _count(findings: list[Finding], verdict: str) -> int:
    return sum(finding["verdict"] == verdict for finding in findings)


def report(bases: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the report."""
    every = [finding for base in bases.values() for finding in base["findings"]]
    files, seconds = (sum(base[name] for base in bases.values()) for name in ("files", "seconds"))
    false = _count(every, "false")
    yield "# gpudiag lint: precision and recall"
    yield ""
    yield "Made by `python scripts/lint_report.py`; the verdicts, by hand, are in `scripts/lint_verdicts.json`."
    yield ""
    yield (
        f"{files} files of {len(bases)} public code bases: {len(every)} findings, {_count(every, 'true')} true, "
        f"{false} false ({100 * false / max(len(every), 1):.1f} %). {seconds:.0f} s of processor time, "
        f"{1000 * seconds / max(files, 1):.1f} s for 1,000 files, on a machine that others used at the same time."
    )
    yield ""
    yield "True means: the line does what the message says, on the machine that the rule speaks of (several GPUs,"
    yield "TensorFlow 2.18 to 2.21), though it may be meant so, as in code for TensorFlow 1."
    yield "Every line was read by a person or an agent; the code around it only where the line alone left a doubt."
    yield ""
    yield "## Code bases"
    yield ""
    yield "| code base | commit | files | not checked | findings | true | false | s |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for name, base in sorted(bases.items()):
        found: list[Finding] = base["findings"]
        numbers = (base["files"], base["not_checked"], len(found), _count(found, "true"), _count(found, "false"))
        cells = " | ".join(map(str, (*numbers, base["seconds"])))
        yield f"| {name.replace('__', '/')} | `{base['commit']}` | {cells} |"
    yield ""
    yield "## Rules"
    yield ""
    yield "| rule | findings | false |"
    yield "| --- | --- | --- |"
    for name, number in sorted(Counter(finding["rule"] for finding in every).items()):
        yield f"| {name} | {number} | {_count([finding for finding in every if finding['rule'] == name], 'false')} |"
    yield ""
    yield "## False findings"
    yield ""
    for name, base in sorted(bases.items()):
        for finding in base["findings"]:
            if finding["verdict"] == "false":
                cell = "" if finding["cell"] is None else f"cell {finding['cell']}:"
                place = f"{name.replace('__', '/')} {finding['file']}:{cell}{finding['line']}"
                yield f"- {place} {finding['rule']}: {finding['why']}"
    if not false:
        yield "None."
    yield ""
    yield "## Recall"
    yield ""
    yield from RECALL.splitlines()
    yield ""
    yield "| part | labels | found the first time | found now | found without a label |"
    yield "| --- | --- | --- | --- | --- |"
    for part, first in FIRST_TRY.items():
        hits, labelled, beyond = recall(part)
        yield f"| {part} | {labelled} | {first} | {hits} | {beyond} |"


def main() -> int:
    """Collect, or write the report, or say what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collect", nargs="+", type=Path, default=[], metavar="FOLDER", help="check code bases again")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the report is stale")
    options = parser.parse_args()
    bases = json.loads(VERDICTS.read_text("utf-8")) if VERDICTS.exists() else {}
    for folder in options.collect:
        bases[folder.name] = merged(bases.get(folder.name, {}), collect(folder))
        VERDICTS.write_text(json.dumps(bases, indent=1, ensure_ascii=False) + "\n", "utf-8")
        print(folder.name, bases[folder.name]["files"], len(bases[folder.name]["findings"]), flush=True)
    open_ = [
        f"{name}: {finding['file']}:{finding['line']}"
        for name, base in bases.items()
        for finding in base["findings"]
        if finding["verdict"] not in ("true", "false")
    ]
    text = "\n".join(report(bases)) + "\n"
    if options.check:
        open_ += [] if REPORT.read_text("utf-8") == text else [f"{REPORT.relative_to(ROOT)} is stale"]
    else:
        REPORT.write_text(text, "utf-8")
    print(*open_, sep="\n", end="\n" if open_ else "")
    return 1 if open_ else 0


if __name__ == "__main__":
    sys.exit(main())
