"""The command: exit status, formats, comments, fixes, configuration, standard input."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpudiag.cli.lint import lint

BAD = """import os
import tensorflow as tf
os.environ['CUDA_VISIBLE_DEVICE'] = '-1'
tf.config.set_soft_device_placement = False
for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.set_memory_growth(gpu, True)
"""
FIXED = """import os
import tensorflow as tf
os.environ['CUDA_VISIBLE_DEVICES'] = '-1'
tf.config.set_soft_device_placement(False)
for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)
"""
Run = Callable[..., Result]


def _of(*required: str, **properties: object) -> dict[str, object]:
    """Return the schema of an object that has these properties, and no others."""
    return {"type": "object", "required": list(required), "properties": properties, "additionalProperties": False}


def _list(items: object, **more: object) -> dict[str, object]:
    return {"type": "array", "items": items, **more}


_TEXT = _of("text", text={"type": "string", "minLength": 1})
_FROM_1 = {"type": "integer", "minimum": 1}
_LEVEL = {"enum": ["none", "note", "warning", "error"]}
_PLACE = _of(
    "physicalLocation",
    physicalLocation=_of(
        "artifactLocation",
        artifactLocation=_of("uri", uri={"type": "string", "pattern": r"\A(?:[\w.~!$&'()*+,;=:@/-]|%[0-9A-F]{2})+\Z"}),
        region=_of("startLine", startLine=_FROM_1, startColumn=_FROM_1, endLine=_FROM_1, endColumn=_FROM_1),
    ),
)
_RULE = _of(
    "id",
    id={"type": "string"},
    shortDescription=_TEXT,
    fullDescription=_TEXT,
    helpUri={"type": "string", "pattern": "^https://"},
    defaultConfiguration=_of(level=_LEVEL),
)
_RESULT = _of(
    "message",
    "locations",  # GitHub shows none without
    ruleId={"type": "string"},
    ruleIndex={"type": "integer", "minimum": 0},
    level=_LEVEL,
    message=_TEXT,
    properties=_of("fix", fix=_list({"type": "object"}, minItems=1)),
    locations=_list(_PLACE, minItems=1),
)
_NOTIFICATION = _of("message", level=_LEVEL, message=_TEXT, locations=_list(_PLACE))
_TOOL = _of(
    "driver",
    driver=_of(
        "name",
        name={"type": "string"},
        version={"type": "string"},
        informationUri={"type": "string", "pattern": "^https://"},
        rules=_list(_RULE, uniqueItems=True),
    ),
)
SARIF = _of(
    "version",
    "runs",
    **{"$schema": {"type": "string"}},
    version={"const": "2.1.0"},
    runs=_list(
        _of(
            "tool",
            tool=_TOOL,
            columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
            results=_list(_RESULT),
            invocations=_list(
                _of(
                    "executionSuccessful",
                    executionSuccessful={"type": "boolean"},
                    toolExecutionNotifications=_list(_NOTIFICATION),
                )
            ),
        )
    ),
)
"""The part of SARIF 2.1.0 (OASIS) that is written."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text(BAD)

    def call(*arguments: str, text: str | None = None) -> Result:
        return CliRunner().invoke(lint, list(arguments), input=text, standalone_mode=False, catch_exceptions=False)

    return call


def test_text_is_place_rule_message_line_and_fix(run: Run) -> None:
    result = run()
    assert result.return_value == 1
    lines = result.stdout.splitlines()
    assert lines[0].startswith("a.py:3:12: misspelt_variable nothing reads the variable CUDA_VISIBLE_DEVICE")
    assert lines[1:3] == ["    line  os.environ['CUDA_VISIBLE_DEVICE'] = '-1'", "    fix   write CUDA_VISIBLE_DEVICES"]
    assert lines[-2] == "3 findings in 1 of 1 file; --fix writes 3"


def test_a_terminal_gets_lines_that_fit(run: Run) -> None:
    import msgspec

    from gpudiag.lint.formats import render
    from gpudiag.lint.result import Result as Found

    found = msgspec.json.decode(run("--format", "json").stdout, type=Found)
    for color in (False, True):
        text = render(found, "text", width=60, color=color, terminal=True)
        assert max(map(len, re.sub(r"\x1b\[\d*m", "", text).splitlines())) <= 60
        assert ("\x1b[33mmisspelt_variable\x1b[0m" in text) is color
    assert max(map(len, render(found, "text", width=60, color=False).splitlines())) > 60


def test_nothing_found_is_0(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(FIXED)
    result = run()
    assert (result.return_value, result.stdout) == (0, "nothing found in 1 file\n")


def test_folder_without_python_says_so(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.py").rename(tmp_path / "a.txt")
    result = run()
    assert (result.return_value, result.stdout) == (0, "nothing found in 0 files\n")
    assert "no Python file and no notebook" in result.stderr


def test_json_is_the_result(run: Run) -> None:
    report = json.loads(run("--format", "json").stdout)
    first = report["findings"][0]
    assert (first["rule"], first["line"], first["column"], first["fixable"]) == ("misspelt_variable", 3, 12, True)
    assert (report["files"], report["problems"], first["cause"]) == (1, [], "variable_misspelt")


def test_sarif_names_rule_level_and_region(run: Run) -> None:
    log = json.loads(run("--format", "sarif").stdout)
    (lint_run,) = log["runs"]
    assert [rule["id"] for rule in lint_run["tool"]["driver"]["rules"]] == sorted(
        {r["ruleId"] for r in lint_run["results"]}
    )
    for result in lint_run["results"]:
        assert lint_run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    removed = next(result for result in lint_run["results"] if result["ruleId"] == "removed_api")
    assert removed["level"] == "error"
    assert removed["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "a.py"},
        "region": {"startLine": 6, "startColumn": 5, "endLine": 6, "endColumn": 32},
    }


def test_sarif_keeps_to_the_specification(run: Run, tmp_path: Path) -> None:
    """What SARIF 2.1.0 and GitHub ask for, of the objects that are written: names, types, and numbers from 1."""
    import jsonschema

    (tmp_path / "not python.py").write_text("import tensorflow as tf\ntf.config.x = (\n")
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "source": BAD.splitlines(keepends=True)}
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4}))
    log = json.loads(run("--format", "sarif").stdout)
    jsonschema.validate(log, SARIF)
    assert len(log["runs"][0]["results"]) == 6
    for wrong in (0, "1"):
        log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] = wrong
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(log, SARIF)


def test_github_annotates_lines(run: Run) -> None:
    lines = run("--format", "github").stdout.splitlines()
    assert lines[2].startswith("::error file=a.py,line=6,endLine=6,col=5,title=removed_api::TensorFlow 2.18")


@pytest.mark.parametrize(
    ("comment", "left"),
    [
        ("# gpudiag: ignore[assigned_not_called]", 2),
        ("# gpudiag: ignore", 2),
        ("# why not: it is ours  # gpudiag:ignore[removed_api, assigned_not_called]", 2),
        ("# gpudiag: ignore[removed_api, assigned_not_called]", 2),
        ("# gpudiag: ignore[removed_api]", 3),
        ("# gpudiag: ignore-file[removed_api]", 2),
        ("# gpudiag: ignore-file", 0),
    ],
)
def test_comment_switches_rules_off(run: Run, tmp_path: Path, comment: str, left: int) -> None:
    (tmp_path / "a.py").write_text(BAD.replace("placement = False", f"placement = False  {comment}"))
    assert len(json.loads(run("--format", "json").stdout)["findings"]) == left


def test_comment_with_an_unknown_rule_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(FIXED + "x = 1  # gpudiag: ignore[removed_apis]\n")
    result = run()
    assert result.return_value == 5
    assert "a.py:7: this comment names no rule: 'removed_apis'. Did you mean 'removed_api'?" in result.stdout


def test_text_that_looks_like_a_comment_switches_nothing_off(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(BAD + "text = '# gpudiag: ignore-file'\n")
    assert run().return_value == 1


def test_fix_writes_what_is_safe_and_nothing_else(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.py").chmod(0o640)
    result = run("--fix")
    assert (result.return_value, result.stdout) == (0, "nothing found in 1 file; 3 findings fixed\n")
    assert (tmp_path / "a.py").read_text() == FIXED
    assert (tmp_path / "a.py").stat().st_mode & 0o777 == 0o640
    assert run("--fix").stdout == "nothing found in 1 file\n"


def test_fix_keeps_line_ends_encoding_and_links(run: Run, tmp_path: Path) -> None:
    head = "# coding: latin-1\r\n# caf\xe9\r\nimport tensorflow as tf\r\n"
    text = f"{head}tf.config.set_soft_device_placement = 1 # \xe9\r\n"
    (tmp_path / "b.py").write_bytes(text.encode("latin-1"))
    (tmp_path / "link.py").symlink_to("b.py")
    assert run("--fix", "link.py").return_value == 0
    assert (tmp_path / "b.py").read_bytes() == text.replace(" = 1", "(1)").encode("latin-1")
    assert (tmp_path / "link.py").is_symlink()


def test_fix_of_a_notebook_changes_one_line(run: Run, tmp_path: Path) -> None:
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "source": BAD.splitlines(keepends=True), "id": "\xe9"}
    text = json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4}, indent=1, ensure_ascii=False) + "\n"
    (tmp_path / "a.py").unlink()
    (tmp_path / "n.ipynb").write_text(text, "utf-8")
    assert run("--fix").return_value == 0
    expected = json.dumps(FIXED.splitlines(keepends=True), indent=1).splitlines()
    changed = (tmp_path / "n.ipynb").read_text("utf-8").splitlines()
    assert len(changed) == len(text.splitlines())
    assert [line.strip() for line in changed if line.strip() in expected or "placement" in line]
    assert "".join(json.loads("\n".join(changed))["cells"][0]["source"]) == FIXED


def test_diff_writes_nothing(run: Run, tmp_path: Path) -> None:
    result = run("--diff")
    assert "+tf.config.set_soft_device_placement(False)" in result.stdout
    assert result.return_value == 1
    assert (tmp_path / "a.py").read_text() == BAD


def test_standard_input(run: Run) -> None:
    result = run("-", text=BAD)
    assert result.stdout.startswith("-:3:12: misspelt_variable")


def test_configuration_file_and_variables(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.gpudiag]\nstrict = true\n[tool.gpudiag.lint]\nignore = ['removed_api']\n"
    )
    assert len(json.loads(run("--format", "json").stdout)["findings"]) == 2
    monkeypatch.setenv("GPUDIAG_LINT_SELECT", "assigned_not_called")
    assert len(json.loads(run("--format", "json").stdout)["findings"]) == 1


@pytest.mark.parametrize("text", ["[lint]\nselct = 'x'\n", "lint = 3\n", "[lint]\ngpu-memory = 'big'\n"])
def test_wrong_configuration_is_refused(run: Run, tmp_path: Path, text: str) -> None:
    from gpudiag.errors import UsageError

    (tmp_path / "gpudiag.toml").write_text(text)
    with pytest.raises(UsageError, match=r"gpudiag\.toml"):
        run()


def test_stated_memory_is_used(run: Run, tmp_path: Path) -> None:
    from gpudiag.lint import rule

    known = rule.get("memory_limits_exceed_gpu")
    assert known is not None
    (tmp_path / "a.py").write_text(known.bad)
    assert run().return_value == 0
    assert run("--gpu-memory", "8GiB").return_value == 1
    assert run("--gpu-memory", "11 GiB").return_value == 0


def gpudiag(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpudiag", *arguments], cwd=cwd, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize(
    "arguments",
    [("missing.py",), ("--select", "no_rule"), ("--fix", "--diff"), ("--format", "xml"), ("--fix", "-")],
)
def test_wrong_usage_is_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = gpudiag("lint", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr


def test_neither_tensorflow_nor_the_rest_of_gpudiag_is_imported(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(BAD)
    code = (
        "import sys; from gpudiag.cli.lint import lint; lint(['a.py'], standalone_mode=False); "
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('tensorflow', 'numpy', 'pynvml', 'psutil', 'rich') "
        "or m.startswith(('gpudiag.run', 'gpudiag.isolate', 'gpudiag.causes', 'gpudiag.probes'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_rules_are_explained(tmp_path: Path) -> None:
    done = gpudiag("explain", "sessions_differ", cwd=tmp_path)
    assert done.returncode == 0
    assert "tf.Session(config=tf.ConfigProto(" in done.stdout
    assert all(len(line) <= 120 for line in done.stdout.splitlines())
