"""The examples of the page "Runners and deployments": each is what it claims to be, and its commands run.

A machine of the tests has no GPU. So ``gpudiag check`` gets ``--simulate`` on its command line, where it must stand to
count for ``--require-gpus``; all else of a command, and of the scripts, runs as it is written.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from conftest import DEADLINE_S, Gpudiag
from gpudiag import docs
from gpudiag.pytest_plugin import settings

PAGE = (docs.FOLDER / "deployment.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^## (.+?)$|^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
REPORTS = Path(__file__).parents[2] / "reports"
HEALTHY = ("--simulate", "2")
COMMANDS = {"run", "script", "after_script", "command"}
"""Keys of YAML whose values are lines for a shell, or the words of a command."""


def block(system: str, kind: str) -> str:
    """Return the one block of a kind below a heading."""
    found: dict[str, list[tuple[str, str]]] = {}
    heading = ""
    for title, language, text in BLOCKS:
        heading = title or heading
        found.setdefault(heading, []).append((language, text))
    (text,) = [text for language, text in found[system] if language == kind]
    return text


def shell_lines(value: Any, key: str = "") -> Iterator[str]:
    """Yield what the YAML of a runner or a pod gives to a shell, a line for each command."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from shell_lines(inner, name)
    elif key == "command" and isinstance(value, list):
        yield shlex.join(value)
    elif isinstance(value, list):
        for inner in value:
            yield from shell_lines(inner, key)
    elif key in COMMANDS:
        yield from (" ".join(line.split()) for line in str(value).replace("\\\n", " ").splitlines())


def groovy_lines(text: str) -> list[str]:
    found = re.findall(r"sh '''(.*?)'''|sh '([^']*)'", text, re.DOTALL)
    return [" ".join((long or short).replace("\\\\\n", " ").split()) for long, short in found]


LINES = {
    "GitHub Actions": [*shell_lines(yaml.safe_load(block("GitHub Actions", "yaml")))],
    "GitLab": [*shell_lines(yaml.safe_load(block("GitLab", "yaml")))],
    "Jenkins": groovy_lines(block("Jenkins", "groovy")),
    "Kubernetes": [*shell_lines(yaml.safe_load(block("Kubernetes", "yaml")))],
}
CHECKS = sorted({line for lines in LINES.values() for line in lines if line.startswith("gpudiag check")})


@pytest.mark.parametrize("system", LINES)
def test_an_example_checks_the_gpus_before_its_program(system: str) -> None:
    words = [shlex.split(line)[:2] for line in LINES[system]]
    check = words.index(["gpudiag", "check"])
    program = [at for at, line in enumerate(words) if line[0] in ("pytest", "python") and at > check]
    assert program, f"{system}: nothing follows the check"


@pytest.mark.parametrize("system", LINES)
def test_options_of_pytest_are_those_of_the_plugin(system: str) -> None:
    known = {setting.option for setting in settings.ALL}
    for line in LINES[system]:
        named = {word.partition("=")[0] for word in shlex.split(line) if word.startswith("--gpudiag")}
        assert named <= known, line
        assert "pytest" not in line or named, line


@pytest.mark.parametrize("line", CHECKS)
def test_the_gate_of_the_examples_is_green_on_a_healthy_machine(line: str, gpudiag: Gpudiag) -> None:
    done = gpudiag(*shlex.split(line)[1:], *HEALTHY)
    assert done.returncode == 0, done.stdout
    for file in re.findall(r"-o (\S+)", line):
        assert (gpudiag.folder / file).stat().st_size > 0


def test_each_system_gets_the_reports_that_it_reads() -> None:
    gitlab = yaml.safe_load(block("GitLab", "yaml"))["gpu"]
    written = {word for line in LINES["GitLab"] for word in re.findall(r"[\w.]+\.(?:xml|json)", line)}
    reports = gitlab["artifacts"]["reports"]
    assert {*reports["junit"], reports["codequality"], *gitlab["artifacts"]["paths"]} <= written
    assert "junit '*.xml'" in block("Jenkins", "groovy")


def test_the_report_of_gitlab_is_one(gpudiag: Gpudiag) -> None:
    """Its form: https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format."""
    (line,) = yaml.safe_load(block("GitLab", "yaml"))["gpu"]["after_script"]
    saved = (REPORTS / "diagnosis-library.json").read_bytes()
    (gpudiag.folder / "gpudiag.json").write_bytes(saved)
    assert run_script(gpudiag, f"#!/bin/sh\n{line}\n", ()) == 0
    issues = json.loads((gpudiag.folder / "codequality.json").read_text())
    assert len({issue["fingerprint"] for issue in issues}) == len(issues) > 2
    for issue in issues:
        assert issue.keys() >= {"description", "check_name", "fingerprint", "severity", "location"}
        assert issue["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert issue["location"]["lines"]["begin"] > 0
    assert "library_missing" in {issue["check_name"] for issue in issues}


def test_the_composite_action_checks_bundles_and_summarizes(gpudiag: Gpudiag) -> None:
    action = yaml.safe_load(block("GitHub: an action of your own", "yaml"))
    assert action["runs"]["using"] == "composite"
    check, pack, upload = action["runs"]["steps"]
    assert all("shell" in step for step in (check, pack)), "a composite action must name it"
    assert check["env"]["OPTIONS"] == "${{ inputs.options }}", "in the line itself it could be a command"
    assert "${{" not in check["run"] + pack["run"]
    lines = f"#!/bin/bash\n{check['run']}\nstatus=$?\n{pack['run']} || exit\nexit $status\n"
    summary = gpudiag.folder / "summary.md"
    summary.write_text("# before\n")
    # Its own options are those of a line that the tests above run.
    assert run_script(gpudiag, lines, HEALTHY, OPTIONS="host.gpus", GITHUB_STEP_SUMMARY=str(summary)) == 5
    assert summary.read_text().startswith("# before\n# gpudiag: NOT VERIFIED\n")
    for file in upload["with"]["path"].split():
        assert (gpudiag.folder / file).stat().st_size > 0
    words = shlex.split(action["inputs"]["options"]["default"])
    assert any(set(words) <= set(shlex.split(line)) for line in CHECKS)


def run_script(gpudiag: Gpudiag, script: str, machine: tuple[str, ...], *arguments: str, **variables: str) -> int:
    """Run a script in which the command ``gpudiag`` checks a simulated machine; return its exit status."""
    folder = gpudiag.folder / "bin"
    folder.mkdir()
    command = shlex.join(gpudiag.command())
    on_machine = f'[ "$1" != check ] || set -- "$@" {shlex.join(machine)}'
    (folder / "gpudiag").write_text(f'#!/bin/sh\n{on_machine}\nexec {command} "$@"\n')
    (folder / "gpudiag").chmod(0o755)
    (gpudiag.folder / "script").write_text(script.replace("/opt/gpudiag/bin", str(folder)))
    shell = script.splitlines()[0].removeprefix("#!")
    return subprocess.run(
        [shell, str(gpudiag.folder / "script"), *arguments],
        cwd=gpudiag.folder,
        env={**gpudiag.environment, "PATH": f"{folder}:{os.environ['PATH']}", **variables},
        timeout=DEADLINE_S,
        check=False,
    ).returncode


def test_the_prolog_checks_the_gpus_of_its_job(gpudiag: Gpudiag) -> None:
    script = block("Slurm", "bash").replace("/var/log/gpudiag", str(gpudiag.folder))
    assert str(gpudiag.folder) in script
    assert run_script(gpudiag, script, ("--simulate", "3"), SLURM_JOB_GPUS="0,2", SLURM_JOB_ID="77", PATH="") == 0
    report = (gpudiag.folder / "77.json").read_text()
    assert '"CUDA_VISIBLE_DEVICES": "0,2"' in report
    assert '"verdict": "PASS"' in report


def test_the_prolog_lets_a_job_without_gpus_pass(gpudiag: Gpudiag) -> None:
    assert run_script(gpudiag, block("Slurm", "bash"), ("--simulate", "no such machine")) == 0


@pytest.mark.parametrize(("machine", "started"), [(HEALTHY, True), (("--simulate", "1", "host.gpus"), False)])
def test_the_entry_point_starts_the_program_only_on_verified_gpus(
    machine: tuple[str, ...], started: bool, gpudiag: Gpudiag
) -> None:
    status = run_script(gpudiag, block("Docker", "bash"), machine, "touch", "started", GPUS="2")
    assert (gpudiag.folder / "started").exists() is started
    assert (status == 0) is started


def test_the_image_is_built_of_files_that_the_page_names() -> None:
    lines = block("Docker", "dockerfile").splitlines()
    instructions = {line.split()[0] for line in lines}
    assert instructions <= {"FROM", "COPY", "RUN", "ENV", "ENTRYPOINT", "CMD"}
    (copied,) = [line.split()[1:-1] for line in lines if line.startswith("COPY")]
    for file in copied:
        assert PAGE.count(file) > 1
    for line in lines:
        if line.startswith(("ENTRYPOINT", "CMD")):
            assert all(isinstance(word, str) for word in yaml.safe_load(line.partition(" ")[2]))


def test_every_other_line_only_prepares() -> None:
    """A line that neither checks nor tests is one of a few; so none escapes the tests above."""
    others = {line for lines in LINES.values() for line in lines if not re.match(r"gpudiag|pytest", line)}
    for line in sorted(others):
        words = shlex.split(line)
        if "install" in words:
            assert words[-2:] == ["-r", "requirements.txt"] or Requirement(words[-1])
        else:
            assert words[0] in ("python3", "python", "echo", "cat"), line
