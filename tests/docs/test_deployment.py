"""The page "Runners and deployments": each example and each file is what it claims to be, and its commands run.

A machine of the tests has no GPU. So ``gpudiag check`` gets ``--simulate`` on its command line, where it must stand to
count for ``--require-gpus``; all else of a command, and of the scripts, runs as it is written.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from packaging.requirements import Requirement

from conftest import DEADLINE_S, Gpudiag
from gpudiag import docs
from gpudiag.pytest_plugin import settings

ROOT = Path(__file__).parents[2]
PAGE = (docs.FOLDER / "deployment.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^## (.+?)$|^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
REPORTS = ROOT / "reports"
HEALTHY = ("--simulate", "2")
UNITS = ["systemd-analyze", "verify", "--man=no"]
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
    "Kubernetes": [*shell_lines(yaml.safe_load(docs.file(["kubernetes-init-container.yaml"])))],
}
MANIFESTS = [name for name in docs.files() if name.startswith("kubernetes-")]
JOB = shell_lines(yaml.safe_load(docs.file(["kubernetes-job.yaml"])))
CHECKS = sorted({line for lines in (*LINES.values(), JOB) for line in lines if line.startswith("gpudiag check")})
DAEMON = yaml.safe_load(docs.file(["kubernetes-daemonset.yaml"]))["spec"]["template"]["spec"]


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


def test_the_action_checks_bundles_and_summarizes(gpudiag: Gpudiag) -> None:
    action = yaml.safe_load((ROOT / ".github/actions/check/action.yml").read_text())
    install, check, upload = action["runs"]["steps"]
    assert all("${{" not in step["run"] for step in (install, check)), "in the line itself an input could be a command"
    assert check["env"]["OPTIONS"] == "${{ inputs.options }}"
    python = gpudiag.folder / "python"
    python.write_text('#!/bin/sh\n[ "$1 $2" = "-m gpudiag" ] || exit 0\nshift 2; exec gpudiag "$@"\n')
    python.chmod(0o755)
    summary = gpudiag.folder / "summary.md"
    summary.write_text("# before\n")
    variables = {"PYTHON": str(python), "RUNNER_TEMP": str(gpudiag.folder), "GITHUB_STEP_SUMMARY": str(summary)}
    # Its own options are those of a line that the tests above run.
    script = f"#!/bin/bash\nset -eo pipefail\n{install['run']}\n{check['run']}"
    assert run_script(gpudiag, script, HEALTHY, OPTIONS="host.gpus", SOURCE="/nowhere", **variables) == 5
    assert summary.read_text().startswith("# before\n# gpudiag: NOT VERIFIED\n")
    assert upload["with"]["path"] == "${{ runner.temp }}/gpudiag/"
    assert {file.name for file in (gpudiag.folder / "gpudiag").iterdir()} == {"gpudiag.xml", "gpudiag.zip"}
    assert not (gpudiag.folder / "gpudiag.json").exists(), "it is not masked"
    words = shlex.split(action["inputs"]["options"]["default"])
    assert any(set(words) <= set(shlex.split(line)) for line in CHECKS)


def run_script(gpudiag: Gpudiag, script: str, machine: tuple[str, ...], *arguments: str, **variables: str) -> int:
    """Run a script in which the command ``gpudiag`` checks a simulated machine; return its exit status."""
    folder = gpudiag.folder / "bin"
    folder.mkdir(exist_ok=True)
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
    script = docs.file(["slurm-prolog.sh"]).replace("/var/log/gpudiag", str(gpudiag.folder))
    assert str(gpudiag.folder) in script
    assert run_script(gpudiag, script, ("--simulate", "3"), SLURM_JOB_GPUS="0,2", SLURM_JOB_ID="77", PATH="") == 0
    report = (gpudiag.folder / "77.prolog.json").read_text()
    assert '"CUDA_VISIBLE_DEVICES": "0,2"' in report
    assert '"verdict": "PASS"' in report


def test_the_prolog_lets_a_job_without_gpus_pass(gpudiag: Gpudiag) -> None:
    assert run_script(gpudiag, docs.file(["slurm-prolog.sh"]), ("--simulate", "no such machine")) == 0


@pytest.mark.parametrize(("machine", "started"), [(HEALTHY, True), (("--simulate", "1", "host.gpus"), False)])
def test_the_entry_point_starts_the_program_only_on_verified_gpus(
    machine: tuple[str, ...], started: bool, gpudiag: Gpudiag
) -> None:
    status = run_script(gpudiag, docs.file(["entrypoint.sh"]), machine, "touch", "started", GPUS="2")
    assert (gpudiag.folder / "started").exists() is started
    assert (status == 0) is started


@pytest.mark.parametrize("name", MANIFESTS)
@pytest.mark.parametrize("version", ["1.25.0", kubernetes_validate.latest_version()])
def test_a_manifest_fits_the_schema_of_kubernetes(name: str, version: str) -> None:
    kubernetes_validate.validate(yaml.safe_load(docs.file([name])), version, strict=True)


@pytest.mark.parametrize(
    ("machine", "ready"), [(HEALTHY, True), (("--simulate", "1", "host.gpus"), False)], ids=["PASS", "not verified"]
)
def test_a_pod_of_the_daemon_set_is_ready_only_after_a_pass(
    machine: tuple[str, ...], ready: bool, gpudiag: Gpudiag
) -> None:
    (container,) = DAEMON["containers"]
    variables = {entry["name"]: entry["value"] for entry in container["env"]}
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "state"]
    file = container["readinessProbe"]["exec"]["command"][-1]
    assert Path(file) == Path(mount["mountPath"]) / "ready"
    assert variables["STATE"] == mount["mountPath"]
    (gpudiag.folder / "ready").write_text("of the run before")
    # A sleep of its own ends the loop, as Kubernetes does, after the first check.
    (gpudiag.folder / "bin").mkdir()
    (gpudiag.folder / "bin/sleep").write_text("#!/bin/sh\nkill -TERM $PPID\n")
    (gpudiag.folder / "bin/sleep").chmod(0o755)
    script = f"#!{container['command'][0]}\n{container['args'][0]}"
    assert run_script(gpudiag, script, machine, STATE=str(gpudiag.folder), SECONDS_BETWEEN="1") == 0
    assert (gpudiag.folder / "ready").exists() is ready
    assert (gpudiag.folder / "gpudiag.prom").stat().st_size > 0


def test_the_image_is_built_of_files_that_the_page_names() -> None:
    lines = docs.file(["Containerfile"]).splitlines()
    copied = [line.split()[-2] for line in lines if line.startswith("COPY")]
    assert copied == ["entrypoint.sh"]
    assert {"Containerfile", *copied} <= set(re.findall(r"gpudiag docs (\S+) >", PAGE))


@pytest.mark.parametrize("name", [name for name in docs.files() if not name.startswith("kubernetes-")])
def test_a_file_is_accepted_by_the_program_that_knows_its_kind(name: str, gpudiag: Gpudiag) -> None:
    file = gpudiag.folder / name
    command = str(gpudiag.command()[0])
    file.write_text(docs.file([name]).replace("/opt/gpudiag/bin/gpudiag", command))
    tools = {".sh": ["shellcheck"], "": ["hadolint"], ".service": UNITS, ".timer": UNITS}
    program, *options = tools[file.suffix]
    if file.suffix == ".timer":  # it is looked at with what it starts
        (gpudiag.folder / "gpudiag.service").write_text(
            docs.file(["gpudiag.service"]).replace("/opt/gpudiag/bin/gpudiag", command)
        )
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    where = shutil.which(program, path=path)
    if program == UNITS[0] and not where:
        pytest.skip("there is no systemd here")
    assert where, program
    done = subprocess.run([where, *options, str(file)], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_page_names_each_file() -> None:
    pages = PAGE + (docs.FOLDER / "monitoring.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\(deployment/([\w.-]+)\)", pages)) == {*docs.files()}


def test_every_other_line_only_prepares() -> None:
    """A line that neither checks nor tests is one of a few; so none escapes the tests above."""
    others = {line for lines in LINES.values() for line in lines if not re.match(r"gpudiag|pytest", line)}
    for line in sorted(others):
        words = shlex.split(line)
        if "install" in words:
            assert words[-2:] == ["-r", "requirements.txt"] or Requirement(words[-1])
        else:
            assert words[0] in ("python3", "python", "echo", "cat"), line
