"""The command line: what it refuses, what it prints, what it costs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click import Option

import gpudiag as package
from conftest import Gpudiag
from gpudiag import catalogue
from gpudiag.cli import cli, commands, describe, explanation, main
from gpudiag.cli.version import version
from gpudiag.interpreter import SAFE_PATH
from gpudiag.model import codec
from gpudiag.probe import HEADINGS
from gpudiag.probes import listing
from gpudiag.report import words
from reports import CAP_IGNORED, passed, report, row

REPORTS = Path(__file__).parents[2] / "reports"


def test_version(gpudiag: Gpudiag) -> None:
    root = Path(package.__file__).parents[1]
    state = r" \(checkout, commit [0-9a-f]+(, modified)?\)" if (root / ".git").exists() else ""
    assert re.fullmatch(rf"gpudiag, version {re.escape(package.__version__)}{state}\n", gpudiag("--version").stdout)


def test_the_version_of_a_checkout_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> str:
        names = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        return subprocess.check_output(["git", *names, *arguments], cwd=tmp_path, text=True, timeout=60)

    assert version(tmp_path) == package.__version__, "an installed package"
    git("init", "--quiet")
    assert version(tmp_path) == f"{package.__version__} (checkout)", "without a commit"
    (tmp_path / "file").touch()
    git("add", "file")
    git("commit", "--quiet", "-m", "x")
    git("tag", "-m", "x", "v9")
    commit = git("rev-parse", "--short", "HEAD").strip()
    assert version(tmp_path) == f"{package.__version__} (checkout, commit {commit})"
    (tmp_path / "file").write_text("x")
    assert version(tmp_path) == f"{package.__version__} (checkout, commit {commit}, modified)"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert version(tmp_path) == f"{package.__version__} (checkout)", "without git"


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["list"], ["explain", "placement.log"], ["schema"], ["show", "no.json"], ["check", "x"]],
)
def test_what_does_not_run_probes_imports_nothing_heavy(arguments: list[str], gpudiag: Gpudiag) -> None:
    done = gpudiag(*arguments, flags=("-X", "importtime"))
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "gpudiag.cli" in imported, "the list of imports was read"
    assert not imported & {"tensorflow", "numpy", "pynvml"}


def test_the_parent_of_a_check_imports_neither_tensorflow_nor_pynvml(gpudiag: Gpudiag) -> None:
    done = gpudiag("check", "placement.log", "host", flags=("-X", "importtime"))
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "gpudiag.run.runner" in imported
    assert not imported & {"tensorflow", "numpy", "pynvml"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["chek"], "gpudiag: error: no command is called 'chek'. Did you mean 'check' or"),
        (
            ["check", "--formt", "json"],
            "gpudiag: error: no option of 'gpudiag check' is called '--formt'. Did you mean",
        ),
        (["check", "-Z"], "gpudiag: error: no option of 'gpudiag check' is called '-Z'. See 'gpudiag check --help'."),
        (
            ["trace", "--formt", "json", "--", "python"],
            "no option of 'gpudiag trace' is called '--formt'. Did you mean",
        ),
        (["simulate", "--kep", "lab", "2"], "no option of 'gpudiag simulate' is called '--kep'. Did you mean '--keep'"),
        (["simulate", "2", "--falt=cuinit", "true"], "is called '--falt'. Did you mean '--fault'"),
        (["simulate", "2", "--fault", "cuint", "true"], "no fault is called 'cuint'. Did you mean 'cuinit'"),
        (["check", "--format", "jsn"], "'jsn' is not one of 'summary', "),
        (["diff"], "gpudiag: error: missing argument 'OLD'. See 'gpudiag diff --help'."),
        (["show"], "gpudiag: error: one report is needed: name a saved report"),
        (["check", "placement.lgo"], "Did you mean 'placement.log'"),
        (["check", "placment"], "Did you mean 'placement'"),
        (["check", "PLACEMENT"], "Did you mean 'placement'"),
        (["explain", "grwth"], "'memory.growth'"),
        (["explain", "rule"[::-1]], "See 'gpudiag explain'"),
        (["explain", "assigned_not_caled"], "Did you mean 'assigned_not_called'"),
        (["explain", "expect.diver"], "'expect.driver'"),
        (["explain", "xid_799"], "'xid_79'"),
        (["check", "--timeout", "0"], "above 0"),
        (["check", "--timeout", "-3"], "above 0"),
        (["check", "--timeout", "soon"], "'soon' is not a number of seconds"),
        (["check", "--timeout", "nan"], "'nan' is not a number of seconds"),
        (["check", "-j", "0"], "0 is not in the range"),
        (["check", "-o", "nowhere/r.json"], "nowhere"),
        (["check", "-o", "r.yaml"], ".json"),
        (["check", "-o", "."], "suffix"),
        (["check", "-o", ""], "the name of the file is empty"),
        (["check", "-o", "pipe.json"], "pipe.json: cannot be written: it is a pipe that no program reads from"),
        (["check", "--config", "pipe.json"], "pipe.json: cannot be read: it is not a regular file"),
        (["show", "pipe.json"], "pipe.json: cannot be read: it is not a regular file"),
        (["show", os.devnull], "cannot be read: it is not a regular file"),
        (["show", "absent.json"], "absent.json: cannot be read: No such file"),
        (["show", "truncated.json"], "truncated.json: not JSON, or cut short"),
        (["show", "foreign.json"], "foreign.json: JSON, but not a gpudiag report"),
        (["show", "binary.json"], "binary.json: not JSON, or cut short"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(arguments: list[str], said: str, gpudiag: Gpudiag) -> None:
    os.mkfifo(gpudiag.folder / "pipe.json")
    (gpudiag.folder / "truncated.json").write_text('{"schema_version": 1, ')
    (gpudiag.folder / "foreign.json").write_text("[1, 2]")
    (gpudiag.folder / "binary.json").write_bytes(b"\xff\xfe\x00")
    done = gpudiag(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "host facts" not in done.stderr, "nothing ran"


def test_debug_shows_the_traceback(gpudiag: Gpudiag) -> None:
    done = gpudiag("check", "placement.lgo", "--debug")
    assert "Traceback" in done.stderr
    assert "Did you mean 'placement.log'" in done.stderr


@pytest.mark.parametrize(("value", "shown"), [("1", True), ("true", True), ("0", False), ("false", False), ("", False)])
def test_the_variable_for_debug_is_read_as_every_switch_is(value: str, shown: bool, gpudiag: Gpudiag) -> None:
    done = gpudiag("check", "placement.lgo", GPUDIAG_DEBUG=value)
    assert ("Traceback" in done.stderr) is shown
    assert "Did you mean 'placement.log'" in done.stderr


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused(gpudiag: Gpudiag) -> None:
    gpudiag.folder.chmod(0o500)
    assert gpudiag("check", "-o", "r.json").returncode == 2


def test_a_file_name_need_not_be_unicode(gpudiag: Gpudiag) -> None:
    name = os.fsdecode(b"\xff.json")
    assert gpudiag("check", "host", "-o", name).returncode == 5
    assert (gpudiag.folder / name).exists()


def test_a_variable_sets_an_option_and_is_named_when_it_is_wrong(gpudiag: Gpudiag) -> None:
    done = gpudiag("check", GPUDIAG_TIMEOUT="never")
    assert done.returncode == 2
    assert "GPUDIAG_TIMEOUT" in done.stderr
    assert gpudiag("check", "host", GPUDIAG_ALLOW_NO_GPU="1", GPUDIAG_FORMAT="json").stdout.startswith("{")


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("gpudiag.toml", "timeot = 3", ["gpudiag.toml", "'timeot'", "Did you mean 'timeout'"]),
        ("gpudiag.toml", "timeout = -3", ["gpudiag.toml", "'timeout'", "above 0"]),
        ("gpudiag.toml", "timeout = true", ["gpudiag.toml", "'timeout' must be a number of seconds above 0"]),
        ("gpudiag.toml", f"timeout = 1{'0' * 400}", ["gpudiag.toml", "'timeout'", "above 0"]),
        ("gpudiag.toml", "select = 5", ["gpudiag.toml", "'select' must be a list of strings"]),
        ("gpudiag.toml", "select = [5]", ["gpudiag.toml", "'select' must be a list of strings"]),
        ("gpudiag.toml", 'select = ["placment"]', ["gpudiag.toml", "'select'", "Did you mean 'placement'"]),
        ("gpudiag.toml", "output = 5", ["gpudiag.toml", "'output' must be a list of strings"]),
        (
            "gpudiag.toml",
            'output = ["a.yaml"]',
            ["gpudiag.toml", "'output'", "a.yaml: the format of a report follows from the suffix"],
        ),
        ("gpudiag.toml", 'output = ["a\\u0000.json"]', ["gpudiag.toml", "'output'", "NUL"]),
        ("gpudiag.toml", 'output = [""]', ["gpudiag.toml", "'output'", "empty"]),
        ("gpudiag.toml", "simulate = 2", ["gpudiag.toml", "'simulate' must be a string in quotes"]),
        ("gpudiag.toml", "require-gpus = 1979-05-27", ["gpudiag.toml", "'require-gpus' must be a whole number"]),
        ("gpudiag.toml", "require-gpus = true", ["gpudiag.toml", "'require-gpus' must be a whole number"]),
        ("gpudiag.toml", "debug = true", ["gpudiag.toml", "unknown key 'debug'"]),
        ("gpudiag.toml", "[tool.gpudiag]\nstrict = true", ["gpudiag.toml", "remove the header [tool.gpudiag]"]),
        ("gpudiag.toml", 'strict = "yes"', ["gpudiag.toml", "'strict'", "true or false"]),
        ("gpudiag.toml", 'isolation = "frok"', ["gpudiag.toml", "'isolation'", "fork"]),
        ("gpudiag.toml", "jobs = 1.5", ["gpudiag.toml", "'jobs'"]),
        ("gpudiag.toml", "= 3", ["gpudiag.toml", "not TOML"]),
        ("pyproject.toml", "[tool.gpudiag]\nrequire_gpus = 1", ["pyproject.toml", "Did you mean 'require-gpus'"]),
        ("pyproject.toml", "tool = 5", ["pyproject.toml", "'tool' must be a table"]),
        ("pyproject.toml", "[tool]\ngpudiag = 5", ["pyproject.toml", "'tool.gpudiag' must be one table"]),
        ("pyproject.toml", "[tool]\ngpudiag = []", ["pyproject.toml", "'tool.gpudiag' must be one table"]),
        ("pyproject.toml", "[[tool.gpudiag]]", ["pyproject.toml", "'tool.gpudiag' must be one table"]),
        ("pyproject.toml", "[tool.gpudig]", ["pyproject.toml", "[tool.gpudig]", "Did you mean 'gpudiag'?"]),
        ("pyproject.toml", "[other", ["pyproject.toml", "not TOML", "looks for [tool.gpudiag] there", "--config FILE"]),
    ],
)
def test_a_bad_configuration_names_file_key_and_cure(
    file: str, content: str, said: list[str], gpudiag: Gpudiag
) -> None:
    (gpudiag.folder / file).write_text(content)
    done = gpudiag("check")
    assert done.returncode == 2
    for text in said:
        assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_a_nearer_file_keeps_gpudiag_from_a_malformed_one(gpudiag: Gpudiag) -> None:
    (gpudiag.folder / "pyproject.toml").write_text("[other")
    (gpudiag.folder / "gpudiag.toml").touch()
    assert gpudiag("check", "host.environment").returncode == 5


def test_a_deleted_working_directory_has_no_configuration_and_breaks_nothing(gpudiag: Gpudiag) -> None:
    gone = gpudiag.folder / "gone"
    source = f"import os; os.mkdir({str(gone)!r}); os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); "
    # With -c alone, Python 3.13.0 itself cannot import socket there.
    whole = gpudiag.interpreter("check", "host", "discovery", "--simulate", "1", flags=SAFE_PATH)
    whole[-6] = source + whole[-6]
    done = subprocess.run(whole, env=gpudiag.environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "broken" in done.stdout) == (0, False), done.stdout + done.stderr
    (gpudiag.folder / "program.py").write_text("pass\n")
    whole = gpudiag.interpreter("lint", str(gpudiag.folder / "program.py"), flags=SAFE_PATH)
    whole[-3] = source + whole[-3]
    done = subprocess.run(whole, env=gpudiag.environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "nothing found in 1 file\n"), done.stderr


def test_a_misspelt_variable_gives_a_note(gpudiag: Gpudiag) -> None:
    done = gpudiag("check", "host.environment", GPUDIAG_TIMEOT="3", GPUDIAG_SIM_TRACE="", GPUDIAG_REJUDGE="1")
    assert done.returncode == 5
    assert [line for line in done.stderr.splitlines() if "note" in line] == [
        "gpudiag: note: GPUDIAG_TIMEOT sets no option. Did you mean 'GPUDIAG_TIMEOUT'?"
    ]


def test_every_option_has_a_variable_or_acts_at_once() -> None:
    options = [
        parameter
        for command in (cli, *commands().values())
        for parameter in command.params
        if isinstance(parameter, Option)
    ]
    assert len(options) > 20
    acting = {"version", "list_faults", "list_rules", "no_catalogue"}
    acting |= {"keep", "share", "attach", "list_", "list_format", "stop"}  # what is done with one machine, by its name
    assert {option.name for option in options if not option.envvar} == acting


def test_the_nearest_configuration_counts_and_the_command_line_goes_before_it(gpudiag: Gpudiag) -> None:
    (gpudiag.folder / "pyproject.toml").write_text('[tool.gpudiag]\nselect = ["host"]\nformat = "json"\n')
    below = gpudiag.folder / "below"
    below.mkdir()
    (below / "pyproject.toml").write_text("[tool.other]\n")
    gpudiag.folder = below
    done = gpudiag("check")
    assert {row["probe"].partition(".")[0] for row in json.loads(done.stdout)["rows"]} == {"host"}
    assert gpudiag("check", "host.gpus", "--format", "table").stdout.startswith("gpudiag ")
    assert not gpudiag("check", GPUDIAG_FORMAT="markdown").stdout.startswith("{")


def test_list_has_a_line_for_each_probe_for_scripts_and_a_table_for_people(gpudiag: Gpudiag) -> None:
    for_scripts, names, rows, table = (
        gpudiag("list", "memory", "*.list_*", *format_).stdout
        for format_ in ((), ("--format", "names"), ("--format", "json"), ("--format", "table"))
    )
    chosen = describe.listed(["memory", "*.list_*"])
    assert [line.split("\t") for line in for_scripts.splitlines()] == [[*row] for row in chosen]
    assert names.split() == [row.name for row in chosen]
    assert json.loads(rows) == [row._asdict() for row in chosen]
    assert max(len(line) for line in table.splitlines()) <= 80
    assert gpudiag("list", "memory", GPUDIAG_LIST_FORMAT="names").stdout.split()[0] == "memory.allocator"


def test_the_list_is_of_the_probes_as_they_are() -> None:
    assert listing.listed() == describe.listed(), "run python scripts/docs.py"
    assert listing.listed(["memory"]) == describe.listed(["memory"])


@pytest.mark.parametrize("content", [None, "", "[]", "[[1]]", "{}", "[5]"])
def test_without_a_whole_index_the_probes_are_asked(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "index.json").write_text(content)
    assert listing.listed(["memory"], tmp_path / "index.json") is None


@pytest.mark.parametrize(
    "arguments",
    [["list"], ["explain", "memory.growth"], ["explain", "mask_hides_all"], ["explain"], ["explain", "growth"]],
)
def test_list_and_explain_import_no_probe_and_no_cause(arguments: list[str], tmp_path: Path) -> None:
    index = tmp_path / "explanations.json"
    explanation.write(describe.explanations(), index)
    program = f"""
import pathlib, sys
from gpudiag import cli
from gpudiag.cli import explanation
explanation.INDEX = pathlib.Path({str(index)!r})
cli.cli({arguments}, standalone_mode=False)
print(*sys.modules)"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    modules = done.stdout.splitlines()[-1].split()
    assert "gpudiag.cli.explain" in modules
    assert not {"gpudiag.catalogue", "gpudiag.cause", "gpudiag.model.report", "msgspec"} & set(modules)


def test_the_index_has_whatever_is_explained(tmp_path: Path) -> None:
    known = describe.explanations()
    index = tmp_path / "explanations.json"
    explanation.write(known, index)
    assert [explanation.indexed(entry.name, index) for entry in known] == known
    assert explanation.read(index) == known
    assert len({entry.name for entry in known}) == len(known)
    assert explanation.indexed("nothing", index) is None
    assert explanation.indexed(known[1].name, tmp_path / "absent.json") is None


@pytest.mark.parametrize("width", [40, 80, 200])
def test_list_and_explain_fit_the_terminal(width: int) -> None:
    shown = listing.text(describe.listed(), width)
    assert max(len(line) for line in shown.splitlines()) <= width
    area = ""
    for line in shown.splitlines():
        area = area if line.startswith(" ") else line
        assert line == area or line.startswith("    ") or f"{area}.{line.split()[0]}" in listing.names()
    for entry in catalogue.entries():
        assert f"  {entry.name.partition('.')[2]}" in shown
        text = describe.explained(entry).text(width)
        assert [line for line in text.splitlines() if len(line) > width and len(line.split()) > 1] == []
        assert {*HEADINGS} <= {*text.splitlines()}
        assert ":.0f}" not in text
        assert text.split() == describe.explained(entry).text(1000).split(), "no word is lost"


def test_filling_keeps_indentation_items_and_empty_lines() -> None:
    text = "Head\n    one two\n    three.\n    `item`: four\n        five\n\nsix\nseven"
    assert explanation.wrapped(text, 80) == "Head\n    one two three.\n    `item`: four\n        five\n\nsix seven"
    assert explanation.wrapped(text, 12).splitlines()[:4] == ["Head", "    one two", "    three.", "    `item`:"]


def test_explain_prints_the_documentation_and_the_findings(gpudiag: Gpudiag) -> None:
    entry = catalogue.get("memory.growth")
    printed = gpudiag("explain", "memory.growth").stdout
    for heading in ("What it does", "Why it matters", "What to do", "Findings"):
        assert heading in printed
    for kind in entry.kinds:
        assert kind.name in printed
        assert " ".join(kind.means.split()) in " ".join(printed.split())


def test_an_interpreter_that_strips_docstrings_explains_all_the_same(gpudiag: Gpudiag) -> None:
    plain = gpudiag("explain", "memory.growth").stdout
    saved = str(REPORTS / "cpu-only.json")
    assert gpudiag("explain", "memory.growth", "--report", saved, PYTHONOPTIMIZE="2").stdout.startswith(plain)
    assert gpudiag("list", PYTHONOPTIMIZE="2").stdout == gpudiag("list").stdout


@pytest.mark.parametrize(
    "probe",
    ["host.environment", pytest.param("placement.log", marks=pytest.mark.slow)],  # Python compiles TensorFlow anew
)
def test_an_interpreter_that_strips_docstrings_checks_all_the_same(probe: str, gpudiag: Gpudiag) -> None:
    checked = gpudiag("check", probe, "-q", "--format", "json", PYTHONOPTIMIZE="2")
    report = codec.decode(checked.stdout, checked.stderr)
    assert {row.probe: row.status for row in report.rows} == {probe: "pass"}


def test_explain_shows_what_a_saved_report_measured(gpudiag: Gpudiag) -> None:
    saved = str(REPORTS / "simulated-2x16GiB.json")
    printed = gpudiag("explain", "memory.growth", "--report", saved).stdout
    assert "SIMULATED GPUs (2x16GiB)" in printed
    assert "GPU 0: pass, 2 MiB, then 130 MiB for a tensor of 100 MiB" in printed
    assert "(400.0 MiB)" in printed
    assert "pool.kernel.pci_bus_id" in printed
    assert max(len(line) for line in printed.splitlines()) <= 80
    skipped = gpudiag("explain", "memory.growth", GPUDIAG_REPORT=str(REPORTS / "cpu-only.json")).stdout
    assert "skipped, no GPU" in skipped
    absent = gpudiag("explain", "memory.growth", "--report", "absent.json")
    assert (absent.returncode, absent.stdout) == (2, "")
    assert "absent.json" in absent.stderr


def test_explain_shows_what_was_found_in_a_saved_report() -> None:
    entry = catalogue.get("memory.fraction")
    explained = describe.explained(entry)
    printed = describe.in_report(explained, report(row(entry.name, passed("2048 MiB", CAP_IGNORED))), 100)
    assert "CPU: fail, 2048 MiB" in printed
    assert words.advice(CAP_IGNORED) in printed
    assert "holds no row" in describe.in_report(describe.explained(catalogue.get("memory.growth")), report(), 100)


def test_a_reader_that_leaves_early_causes_no_traceback(gpudiag: Gpudiag) -> None:
    with gpudiag.start("schema") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""


def test_the_module_can_be_run(tmp_path: Path) -> None:
    gpudiag = Gpudiag(tmp_path)
    gpudiag.environment["PYTHONPATH"] = os.pathsep.join(gpudiag.path)
    done = subprocess.run(
        [sys.executable, "-m", "gpudiag", "--version"],
        env=gpudiag.environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("gpudiag, version")


def test_where_python_gets_no_memory_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_memory(**_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(cli, "main", without_memory)
    monkeypatch.setattr(sys, "argv", ["gpudiag"])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr().err
    assert (ended.value.code, "bug" in told) == (3, False)
    assert "no memory is left" in told
