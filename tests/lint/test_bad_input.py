"""Files that cannot be read, parsed or followed: a clear line each, and nothing else is lost."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from counting import lines_run
from gpudiag.lint import check, folding, rule, sources
from gpudiag.lint.formats import render
from gpudiag.lint.program import LintedProgram
from gpudiag.lint.result import Result
from gpudiag.lint.rule import Matches
from linting import result_of, rules_in

FORMATS = ("text", "github", "json", "sarif")
BAD = "import tensorflow as tf\ntf.config.set_soft_device_placement = False\n"


def checked(*paths: Path) -> Result:
    return check.check(paths, rule.known()).result()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (BAD.encode() + b"x = (\n", "never closed"),
        (BAD.encode() + b"print 'x'\n", "Python 2"),
        (BAD.encode() + b"try:\n    pass\nexcept A, e:\n    pass\n", "Python 2"),
        (BAD.encode() + b"raise ValueError, 'x'\n", "Python 2"),
        (BAD.encode() + b"x = 10L\n", "Python 2"),
        (BAD.encode() + b"def f((a, b)): pass\n", "Python 2"),
        (BAD.encode() + b"x = 1\0\n", "not checked"),
        (BAD.encode() + b"x = " + b"-" * 5000 + b"1\n", "nested too deeply"),
        (BAD.encode() + b"".join(b" " * at + b"if x:\n" for at in range(150)) + b" " * 150 + b"x\n", "too many levels"),
        (BAD.encode() + b"x = " + b"(" * 5000 + b")" * 5000 + b"\n", "nested too deeply"),
        (BAD.encode() + b"x = 1  # " + b"-" * (9 << 20) + b"\n", "MiB long"),
        (b"# coding: nonsense\n" + BAD.encode(), "not UTF-8"),
        (BAD.encode("utf-16"), "UTF-16"),
        (BAD.encode("utf-16-le"), "UTF-16"),
        (BAD.encode("utf-16-be"), "UTF-16"),
    ],
    ids=[
        "syntax",
        "print",
        "except",
        "raise",
        "long-int",
        "tuple",
        "nul",
        "unary",
        "indented",
        "nested",
        "long",
        "coding",
        "utf-16",
        "utf-16-le",
        "utf-16-be",
    ],
)
def test_one_file_costs_only_itself(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "bad.py").write_bytes(content)
    (tmp_path / "good.py").write_text(BAD)
    result = checked(tmp_path)
    assert [said in problem.message for problem in result.problems] == [True], result.problems
    assert "good.py" in {Path(finding.file).name for finding in result.findings}
    assert result.exit_code == 1


def test_not_everything_checked_is_not_green(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import tensorflow as tf\nos.environ['CUDA_VISIBLE_DEVICES'] = (\n")
    assert checked(tmp_path).exit_code == 5


def test_bytes_that_are_not_utf_8_are_checked_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\n" + BAD.encode())
    result = checked(tmp_path)
    assert [finding.rule for finding in result.findings] == ["assigned_not_called"]
    assert "Latin-1" in result.problems[0].message


def test_fifty_megabytes_without_a_word_of_it_are_not_parsed(tmp_path: Path) -> None:
    with (tmp_path / "data.py").open("wb") as stream:
        for _ in range(50):
            stream.write(b"# nothing here\n" * (1 << 16))
    assert checked(tmp_path).exit_code == 0


@pytest.mark.parametrize("text", ["x = " + "+".join("a" * 5000), "x = " + "a" + ".b" * 5000, "x = " + "-" * 5000 + "1"])
def test_deep_expression_costs_its_statement_alone(text: str) -> None:
    result = result_of(f"import tensorflow as tf\n{text}\ntf.config.set_soft_device_placement = False\n")
    deep = [problem.message for problem in result.problems]
    assert [finding.rule for finding in result.findings] == ["assigned_not_called"] or "nested too deeply" in deep[0]
    assert result.exit_code in (1, 5)


GPU = "import tensorflow as tf\ngpu = tf.config.list_physical_devices('GPU')[0]\n"
GROWTH = "tf.config.experimental.set_memory_growth(gpu, True)\n"
SPLIT = "tf.config.set_logical_device_configuration(gpu, [])\n"


@pytest.mark.parametrize("text", [GROWTH, f"{GROWTH}{SPLIT}"])
@pytest.mark.parametrize("comment", ["", "x = 1  # gpudiag: ignore[removed_api]\n"])
def test_four_times_the_lines_take_about_four_times_the_work(text: str, comment: str) -> None:
    def cost(times: int) -> int:
        return lines_run(lambda: result_of(GPU + comment + text * times))

    cost(10)  # what is done once
    assert cost(400) < 6 * cost(100)


def test_loops_in_loops_are_followed_a_bounded_number_of_times() -> None:
    """A body that is read for each round of each loop around it costs no more in 19 loops than in 12."""

    def nested(depth: int) -> str:
        head = "".join(f"{' ' * number}for _ in range(3):\n" for number in range(depth))
        return f"{GPU}{head}{' ' * depth}{GROWTH}"

    assert rules_in(nested(19)) == rules_in(GPU + GROWTH)
    assert lines_run(lambda: rules_in(nested(19))) < 1.5 * lines_run(lambda: rules_in(nested(12)))


def test_loop_of_links_ends_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "up").symlink_to(tmp_path)
    (tmp_path / "loop.py").symlink_to(tmp_path / "loop.py")
    (tmp_path / "nowhere.py").symlink_to("missing.py")
    (tmp_path / "a.py").write_text(BAD)
    (tmp_path / "same.py").symlink_to(tmp_path / "a.py")
    result = checked(tmp_path)
    assert [Path(finding.file).name for finding in result.findings] == ["a.py"]
    assert [Path(problem.file).name for problem in result.problems] == ["loop.py", "nowhere.py"]


def test_name_that_is_not_utf_8_is_written_in_every_format(tmp_path: Path) -> None:
    (tmp_path / "caf\udce9.py").write_text(BAD)
    result = checked(tmp_path)
    for format_ in FORMATS:
        assert "caf\\udce9.py" in render(result, format_, width=80, color=False).replace("%5C", "\\").replace(
            "\\\\", "\\"
        )
        render(result, format_, width=80, color=False).encode()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_folder_that_is_shut_costs_only_itself(tmp_path: Path) -> None:
    """As a user who may not look into it; the test above shows the same where the tests are not run by root."""
    (tmp_path / "shut").mkdir(mode=0o600)
    (tmp_path / "a.py").write_text(BAD)
    for path in (tmp_path, *tmp_path.parents[:3]):
        path.chmod(0o755)
    (tmp_path / "a.py").chmod(0o644)
    known = rule.known()  # read as root: the package may lie where no other user reads
    os.seteuid(65534)
    try:
        result = check.check([tmp_path, tmp_path / "shut" / "b.py"], known).result()
    finally:
        os.seteuid(0)
    said = [f"{Path(problem.file).name}: {problem.message}" for problem in result.problems]
    assert said == ["shut: the folder cannot be read: Permission denied", "b.py: cannot be read: Permission denied"]
    assert [Path(finding.file).name for finding in result.findings] == ["a.py"]


def test_what_is_not_a_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    assert "not a regular file" in checked(tmp_path).problems[0].message


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file_and_folder_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(BAD)
    (tmp_path / "a.py").chmod(0)
    (tmp_path / "shut").mkdir(mode=0)
    assert sorted(problem.message for problem in checked(tmp_path).problems) == [
        "cannot be read: Permission denied",
        "the folder cannot be read: Permission denied",
    ]


def notebook(*cells: str, language: str = "python") -> str:
    made: list[dict[str, object]] = [
        {
            "cell_type": "code",
            "metadata": {},
            "outputs": [],
            "execution_count": None,
            "source": cell.splitlines(keepends=True),
        }
        for cell in cells
    ]
    return (
        json.dumps(
            {"cells": made, "metadata": {"kernelspec": {"language": language}}, "nbformat": 4, "nbformat_minor": 5},
            indent=1,
        )
        + "\n"
    )


def test_notebook_with_magics(tmp_path: Path) -> None:
    cells = (
        "%matplotlib inline\n!pip install tensorflow\nfiles = !ls\nls data\n",
        "%%bash\nexport CUDA_VISIBLE_DEVICES=1\n",
        "%env CUDA_VISIBLE_DEVICE=1\n",
        "!export CUDA_VISIBLE_DEVICES=0\nimport tensorflow as tf\ntf.config?\n",
        "x = (1 +\n",
        "print('%d'\n      % 3)\ntf.config.set_soft_device_placement = False\n",
    )
    (tmp_path / "a.ipynb").write_text(notebook(*cells))
    result = checked(tmp_path)
    assert [(finding.rule, finding.cell, finding.line) for finding in result.findings] == [
        ("misspelt_variable", 3, 1),
        ("variable_reaches_no_program", 4, 1),
        ("assigned_not_called", 6, 3),
    ]
    assert [(problem.cell, problem.line) for problem in result.problems] == [(5, 1)]


@pytest.mark.parametrize("text", ["", "[]", "{}", "{", '{"cells": 3}', '{"cells": [3]}', "\0"])
def test_notebook_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.ipynb").write_text(text + " tensorflow CUDA_VISIBLE_DEVICES")
    assert "not a notebook" in checked(tmp_path).problems[0].message


def test_notebook_of_another_language_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_text(notebook("tf.config <- 'CUDA_VISIBLE_DEVICES' %>% x\n", language="R"))
    assert checked(tmp_path).exit_code == 0


@pytest.mark.parametrize(
    ("line", "doubled"),
    [
        ("s = '0,'", "s = f'{s}{s}'"),
        ("s = '0,'", "s = s + s"),
        ("s = '0,'", "s = s * 2"),
        ("s = '0,'", "s = '%s0,' % (s + s)"),
        ("s = '0,'", "s = '{}{}'.format(s, s)"),
        ("s = '0,'", "s = '{0}{0}'.format(s)"),
        ("s = '0,'", "s = ','.join([s] * 2)"),
        ("s = ['0']\nt = s", "s = s + s\nt = ','.join(s)"),
        ("s = ['0']\nt = s", "s = [s, s]\nt = str(len(s))"),
    ],
)
def test_what_doubles_is_followed_as_long_as_it_is_small(line: str, doubled: str) -> None:
    """Sixty lines that double a text would take all memory, if folding went on."""
    head = f"import os, tensorflow, horovod\n{line}\n"
    tail = "os.environ['CUDA_VISIBLE_DEVICES'] = s\n"
    assert rules_in(head + f"{doubled}\n" * 60 + tail) == []
    if doubled.startswith("s = ") and "t = " not in doubled and "%" not in doubled:
        assert rules_in(head + f"{doubled}\n" * 3 + tail) == ["mask_hard_coded"]


@pytest.mark.parametrize(
    "line",
    [
        "limit(tf.config.LogicalDeviceConfiguration(memory_limit=1e999))",
        f"limit(tf.config.LogicalDeviceConfiguration(memory_limit={'9' * 400}))",
        f"limit(tf.config.LogicalDeviceConfiguration(memory_limit=0x{'f' * 6000}))",
        "for i in range(10**30):\n    tf.config.set_soft_device_placement(True)",
        f"os.environ['CUDA_VISIBLE_DEVICES'] = str(0x{'f' * 6000})",
        f"os.environ['CUDA_VISIBLE_DEVICES'] = f'{{0x{'f' * 6000}}}'",
        "os.environ['CUDA_VISIBLE_DEVICES'] = str(1e308 * 10)",
        "os.environ['CUDA_VISIBLE_DEVICES'] = ',' * 10**30",
        "os.environ['CUDA_VISIBLE_DEVICES'] = '%1000000000d' % 1",
    ],
    ids=lambda text: text[:50],
)
def test_number_that_is_too_large_is_not_known(line: str) -> None:
    result = result_of(f"import os\nimport tensorflow as tf\n{line}\n{BAD}")
    assert [finding.rule for finding in result.findings] == ["assigned_not_called"]
    assert not result.problems


def test_rule_that_fails_costs_itself_in_a_file_and_is_named(tmp_path: Path) -> None:
    def fails(program: LintedProgram) -> Matches:
        yield from ()
        raise OverflowError(f"of {program.module.name}")

    (tmp_path / "a.py").write_text(BAD)
    (tmp_path / "b.py").write_text(BAD)
    known = [
        *rule.known(),
        replace(next(candidate for candidate in rule.known() if candidate.name == "assigned_not_called"), find=fails),
    ]
    result = check.check([tmp_path], known).result()
    assert [Path(finding.file).name for finding in result.findings] == ["a.py", "b.py"]
    assert [problem.message for problem in result.problems] == [
        f"the rule assigned_not_called failed, and is not checked (OverflowError: of {name}): please report it"
        for name in "ab"
    ]


def test_line_that_cannot_be_followed_costs_itself_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a function of Python whose result folding computes, and that fails here."""

    def fails(_: object) -> None:
        raise OverflowError("too large")

    monkeypatch.setitem(folding.RESULTS, "builtins.str", fails)
    result = result_of(f"x = str(1)\n{BAD}")
    assert [finding.rule for finding in result.findings] == ["assigned_not_called"]
    assert [(problem.line, problem.message) for problem in result.problems] == [
        (1, "line 1 could not be followed, and is not checked (OverflowError: too large)")
    ]
    assert result.exit_code == 1


def test_size_of_a_file_is_asked_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "huge.py").write_bytes(BAD.encode())
    os.truncate(tmp_path / "huge.py", 65 << 20)
    source = sources.read(tmp_path / "huge.py")
    assert not source.raw
    assert [problem.message for problem in source.problems] == ["65 MiB long: files above 64 MiB are not read"]
