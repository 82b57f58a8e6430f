"""The page "Monitoring": each example is what it claims to be, and its commands run.

A machine of the tests has no GPU and no folder of the node exporter. So a command gets ``--simulate``, a probe that
needs no TensorFlow, and a folder of the test; all else is as it is written.
"""

from __future__ import annotations

import configparser
import json
import re
import shlex
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from conftest import Gpudiag
from gpudiag import docs
from gpudiag.report.formats.prometheus import METRICS

PAGE = (docs.FOLDER / "monitoring.md").read_text(encoding="utf-8")
INSTALLED = "/opt/gpudiag/bin/gpudiag"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def unit(text: str) -> dict[str, dict[str, str]]:
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read_string(text.replace("\\\n", " "))
    return {name: dict(parsed[name]) for name in parsed.sections()}


SERVICE, TIMER = (unit(docs.file([name])) for name in ("gpudiag.service", "gpudiag.timer"))
(ALERTS,) = map(yaml.safe_load, blocks("yaml"))
(PROBLEM_DETECTOR,) = map(json.loads, blocks("json"))
(RULE,) = PROBLEM_DETECTOR["rules"]
COMMANDS = [
    *(block.strip() for block in blocks("sh") if "gpudiag docs" not in block),
    SERVICE["Service"]["ExecStart"],
    shlex.join([RULE["path"], *RULE["args"]]),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_runs(command: str, gpudiag: Gpudiag) -> None:
    words = [word.replace("/var/lib/node_exporter", str(gpudiag.folder)) for word in shlex.split(command)]
    assert words[0] in ("gpudiag", INSTALLED)
    done = gpudiag(*words[1:], "--simulate", "1", "host.gpus")
    plugin = "nagios" in words
    assert done.returncode == (3 if plugin else 5), "nothing was verified"
    assert done.stdout.startswith("GPUDIAG UNKNOWN - ") is (plugin or "--format=nagios" in words)
    for file in gpudiag.folder.glob("*.prom"):
        assert [*text_string_to_metric_families(file.read_text())]
    assert (str(gpudiag.folder / "gpudiag.prom") in words) is (gpudiag.folder / "gpudiag.prom").exists()


def test_the_units_belong_together() -> None:
    assert SERVICE["Service"]["Type"] == "oneshot"
    assert "Install" not in SERVICE, "the timer starts it"
    assert TIMER["Install"]["WantedBy"] == "timers.target"
    assert {int(part) for part in SERVICE["Service"]["SuccessExitStatus"].split()} == {1, 3, 5}
    deadline = re.search(r"--deadline (\d+)", SERVICE["Service"]["ExecStart"])
    assert deadline is not None
    assert int(deadline[1]) < int(SERVICE["Service"]["TimeoutStartSec"])


def test_the_alerts_ask_for_metrics_that_are_there() -> None:
    rules: list[dict[str, Any]] = [rule for group in ALERTS["groups"] for rule in group["rules"]]
    named = {name for rule in rules for name in re.findall(r"gpudiag_\w+", rule["expr"])}
    assert named <= {metric.name for metric in METRICS}
    assert all(rule.keys() >= {"alert", "expr"} for rule in rules)


def test_the_problem_detector_gets_what_it_reads() -> None:
    """Its fields: pkg/custompluginmonitor/types of kubernetes/node-problem-detector."""
    assert PROBLEM_DETECTOR["plugin"] == "custom"
    (condition,) = PROBLEM_DETECTOR["conditions"]
    assert condition.keys() == {"type", "reason", "message"}
    assert RULE.keys() == {"type", "condition", "reason", "path", "args", "timeout"}
    assert (RULE["type"], RULE["condition"]) == ("permanent", condition["type"])
    assert PROBLEM_DETECTOR["pluginConfig"]["timeout"] == RULE["timeout"], "the rule's may not be longer"
