"""Writes the generated blocks of README.md and the page of all causes; ``--check`` tells whether they are fresh.

A block stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``. What the README says of the pytest plugin
outside of blocks must name options, markers and fixtures that there are.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import click

from gpudiag import catalogue, cli, codec, describe, diagnosis, pytest_plugin, report, simulator
from gpudiag.diagnosis.rule import Rule
from gpudiag.pytest_plugin import fixtures, settings, summary

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
REPORTS = ROOT / "reports"
PYTEST_SAMPLE = REPORTS / "pytest-sample.txt"
CAUSES = ROOT / "gpudiag" / "diagnosis" / "CAUSES.md"
BLOCK = re.compile(r"(<!-- generated: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def probe_table() -> str:
    """Return every probe with its needs and summary, as a Markdown table."""
    lines = ["| probe | needs | what it shows |", "| --- | --- | --- |"]
    lines += [
        f"| `{entry.name}` | {describe.needs_text(entry.probe.needs)} | {entry.summary} |"
        for entry in catalogue.entries()
    ]
    return "\n".join(lines) + "\n"


def preset_table() -> str:
    """Return every card that can be simulated by its name, as a Markdown table."""
    lines = ["| card | it is | memory | compute capability | multiprocessors |", "| --- | --- | --- | --- | --- |"]
    for name, preset in simulator.PRESETS.items():
        major, minor = preset.compute_capability
        memory = f"{preset.memory >> 20} MiB"
        lines.append(f"| `{name}` | {preset.name} | {memory} | {major}.{minor} | {preset.multiprocessors} |")
    return "\n".join(lines) + "\n"


def fault_table() -> str:
    """Return every fault that can be injected, as a Markdown table."""
    lines = ["| fault | without a value | what happens |", "| --- | --- | --- |"]
    for kind in simulator.CATALOGUE.values():
        default = f"`{kind.default}`" if kind.default else ""
        lines.append(f"| `{kind.usage}` | {default} | {kind.summary} |")
    return "\n".join(lines) + "\n"


def causes_page() -> str:
    """Return the page of every cause that the diagnosis can find, in the order of TensorFlow's way to a GPU."""
    lines = [
        "# Causes",
        "",
        "Every cause that `gpudiag check` can name, by the stage that it breaks. What stands in angle brackets is",
        "filled in from the machine; of a line that would be nothing else an example is shown. Generated.",
        "",
    ]
    stage = None
    for rule in diagnosis.rules():
        if rule.stage is not stage:
            stage = rule.stage
            lines += [f"## {stage.value}", ""]
        lines += _cause(rule)
    return "\n".join(lines).rstrip() + "\n"


def _cause(rule: Rule) -> list[str]:
    cause = re.sub(r"<\w+>", r"`\g<0>`", rule.general_cause)  # Markdown takes them for markup otherwise
    texts = [textwrap.fill(text, 100, break_on_hyphens=False) for text in (f"{cause}.", rule.explanation)]
    fix = "\n".join(["```text", *rule.general_fix, "```"])
    return [f"### {rule.id}", "", texts[0], "", texts[1], "", fix, "", f"<{rule.url}>", ""]


def sample(name: str) -> str:
    """Return a report saved under ``reports/`` as its table."""
    return _fenced(_table_of(name), "text")


def sample_of(name: str, area: str) -> str:
    """Return the header, the rows of one area and the verdict of a report saved under ``reports/``."""
    header, *blocks = _table_of(name).split("\n\n")
    columns = blocks[0].splitlines()[:2]
    (rows,) = [block for block in blocks if block.lstrip().startswith(f"{area}\n")]
    return _fenced("\n\n".join([header, "\n".join([*columns, rows]), "...", blocks[-1]]), "text")


def diagnosis_of(name: str) -> str:
    """Return the command and the diagnosis of a report saved under ``reports/``."""
    _, found, *_ = _table_of(name).split("\n\n")
    return _fenced(found, "text")


def _table_of(name: str) -> str:
    return report.render(codec.load(REPORTS / name), "table", width=80, color=False)


def check_help() -> str:
    """Return what ``gpudiag check --help`` prints."""
    context = click.Context(cli.check, info_name="gpudiag check", terminal_width=80)
    return _fenced(cli.check.get_help(context), "text")


def pytest_options() -> str:
    """Return every setting of the pytest plugin, as a Markdown table."""
    lines = ["| option | variable | ini key | what it does |", "| --- | --- | --- | --- |"]
    for one in settings.ALL:
        option = "=".join(filter(None, (one.option, one.metavar))).replace("|", "\\|")
        lines.append(f"| `{option}` | `{one.variable}` | `{one.key}` | {one.help} |")
    return "\n".join(lines) + "\n"


def pytest_sample() -> str:
    """Return what the sample project printed, which its test compares with what it prints."""
    command = "$ cd tests/samples/gpu_suite; pytest -n 4 --gpudiag --gpudiag-simulate=2x8GiB"
    return _fenced(f"{command}\n{PYTEST_SAMPLE.read_text(encoding='utf-8')}", "text")


def unknown_names(text: str) -> list[str]:
    """Return the names in ``text`` that look like those of the pytest plugin, and are not."""
    known = {name for one in settings.ALL for name in (one.option, one.variable, one.key)}
    known |= {re.split(r"[(:]", line)[0] for line in pytest_plugin.MARKERS}
    known |= {name for name in vars(fixtures) if name.startswith("gpudiag_")} | {"gpudiag_run_isolated"}
    known |= {summary.DEVICE, summary.PEAK_BYTES, summary.CPU_FALLBACKS}
    named = re.findall(r"--gpudiag[\w-]*|(?<![\w.])gpudiag_\w+|GPUDIAG_PYTEST\w*", text)
    return sorted(set(named) - known)


BLOCKS: dict[str, Callable[[], str]] = {
    "probes": probe_table,
    "sample": lambda: sample("cpu-only.json"),
    "sample-simulated": lambda: sample_of("simulated-2x16GiB.json", "memory"),
    "diagnosis-library": lambda: diagnosis_of("diagnosis-library.json"),
    "diagnosis-and-cuda": lambda: diagnosis_of("diagnosis-and-cuda.json"),
    "diagnosis-mask": lambda: diagnosis_of("diagnosis-mask.json"),
    "check-help": check_help,
    "pytest-options": pytest_options,
    "pytest-sample": pytest_sample,
    "presets": preset_table,
    "faults": fault_table,
}


def generated(text: str) -> str:
    """Return ``text`` with every block written anew."""
    return BLOCK.sub(lambda match: match[1] + BLOCKS[match["name"]]() + match[3], text)


def _fenced(text: str, language: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```\n"


def main() -> int:
    """Write the blocks, or say which are stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a block is stale")
    options = parser.parse_args()
    fresh = {README: generated(README.read_text(encoding="utf-8")), CAUSES: causes_page()}
    if unknown := unknown_names(fresh[README]):
        print(f"README.md names what the pytest plugin does not have: {', '.join(unknown)}")
        return 1
    stale = [path for path, text in fresh.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if options.check:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale: run 'python scripts/docs.py'")
        return 1 if stale else 0
    for path in stale:
        path.write_text(fresh[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
