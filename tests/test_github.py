"""The files for GitHub: what GitHub's schemas say of them, and that what they run is there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import DEADLINE_S

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".github"
WORKFLOWS = sorted((FOLDER / "workflows").glob("*.yml"))
ACTIONS = sorted(FOLDER.glob("actions/*/action.yml"))
FORMS = sorted((FOLDER / "ISSUE_TEMPLATE").glob("*.yml"))
PROGRAMS = Path(sys.executable).parent


def steps(file: Path) -> Iterator[dict[str, Any]]:
    content = yaml.safe_load(file.read_text())
    for job in content["jobs"].values() if "jobs" in content else [content["runs"]]:
        yield from job["steps"]


LINES = [step["run"] for file in (*WORKFLOWS, *ACTIONS) for step in steps(file) if "run" in step]


@pytest.mark.parametrize(("schema", "files"), [("workflows", WORKFLOWS), ("actions", ACTIONS), ("issue-forms", FORMS)])
def test_the_files_fit_their_schema(schema: str, files: list[Path]) -> None:
    assert files
    command = [str(PROGRAMS / "check-jsonschema"), "--builtin-schema", f"vendor.github-{schema}", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_shell_of_every_step_is_sound() -> None:
    for line in LINES:
        done = subprocess.run(
            [str(PROGRAMS / "shellcheck"), "--shell=bash", "-"],
            input=line,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        assert "${{" not in line, "it could be a command"


def test_the_scripts_that_are_run_are_there_and_have_the_options() -> None:
    scripts = [found for line in LINES for found in re.findall(r"python (scripts/\w+\.py)(.*)", line)]
    assert len(scripts) > 1
    for script, options in scripts:
        done = subprocess.run(
            [sys.executable, script, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=True
        )
        assert set(re.findall(r"--[a-z]+", options)) <= set(re.findall(r"--[a-z-]+", done.stdout))


def test_only_what_publishes_may_write() -> None:
    """A workflow that anybody's pull request starts has no more than the right to read."""
    for file in WORKFLOWS:
        content = yaml.safe_load(file.read_text())
        assert content["permissions"] == {"contents": "read"}
        rights = {name: job["permissions"] for name, job in content["jobs"].items() if "permissions" in job}
        release = {"publish": {"id-token": "write"}, "announce": {"contents": "write"}}
        assert rights == (release if file.stem == "release" else {})
        for step in steps(file):
            if "actions/checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


def test_every_action_of_another_is_pinned() -> None:
    for file in (*WORKFLOWS, *ACTIONS):
        for step in steps(file):
            used = step.get("uses", "./")
            assert (
                used.startswith("./")
                or re.search(r"@[0-9a-f]{40}$", used)
                or used == "pypa/gh-action-pypi-publish@release/v1"
            )


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_a_form_asks_for_a_bundle(form: Path) -> None:
    assert "gpudiag bundle" in form.read_text()


def test_the_links_lead_to_files() -> None:
    for page in FOLDER.glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            assert (page.parent / target).is_file(), target
