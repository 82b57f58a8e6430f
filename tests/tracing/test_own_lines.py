"""What lint says of the lines at which a program ended, and of options that were never set; nothing is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpudiag.lint import rule
from gpudiag.model.program import Booked, MadeDevice, Process, ProgramTrace, Setting
from gpudiag.model.program import SettingFate as Fate
from gpudiag.tracing import own_lines

_PROGRAM = """\
import os
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
import tensorflow as tf
def use(number):
    gpus = tf.config.list_physical_devices("GPU")
    tf.config.experimental.set_memory_growth(gpus[1], True)
use(1)
"""
_INDEX_ERROR = "IndexError: list index out of range"


def _explain(file: Path, *, error: str) -> ProgramTrace:
    traceback = (
        "Traceback (most recent call last):",
        f'  File "{file}", line 7, in <module>',
        "    use(1)",
        f'  File "{file}", line 6, in use',
        "    tf.config.experimental.set_memory_growth(gpus[1], True)",
        error,
    )
    process = Process(pid=7, parent=1, how="started", command=("python",), python="3.11", began_s=0.0)
    return own_lines.explained(
        ProgramTrace(("python", str(file)), "exit status 1", 1.0, processes=(process,), raised=traceback)
    )


def _lines(file: Path, *, error: str) -> list[tuple[str, str]]:
    return [(found.line.rpartition("/")[2], found.rule) for found in _explain(file, error=error).failed_lines]


def test_lint_explains_the_line_that_raised_if_it_raises_that_exception(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(_PROGRAM)
    assert _lines(file, error=_INDEX_ERROR) == [("train.py:6", "index_beyond_mask")]
    assert not _lines(file, error="tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM")
    assert not _explain(file, error=_INDEX_ERROR).processes[0].missing


def test_lines_of_packages_and_of_absent_files_are_not_read(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "train.py"
    package.parent.mkdir()
    package.write_text(_PROGRAM)
    assert not _lines(package, error=_INDEX_ERROR)
    assert not _lines(tmp_path / "gone.py", error=_INDEX_ERROR)


def test_a_rule_that_raises_costs_neither_the_trace_nor_the_other_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "train.py"
    file.write_text(_PROGRAM)
    own = rule.get("index_beyond_mask")
    assert own is not None

    def find(_: object) -> rule.Matches:
        raise LookupError("no such thing")

    broken = replace(own, name="broken", find=find)
    monkeypatch.setattr(rule, "known", lambda: (broken, own))
    trace = _explain(file, error=_INDEX_ERROR)
    assert [found.rule for found in trace.failed_lines] == ["index_beyond_mask"]
    why = "failed, and is not checked (LookupError: no such thing): please report it"
    assert trace.processes[0].missing == (f"gpudiag lint, {file}: the rule broken {why}",)

    def known() -> tuple[rule.Known, ...]:
        raise ImportError("no such rule")

    monkeypatch.setattr(rule, "known", known)
    trace = _explain(file, error=_INDEX_ERROR)
    assert (trace.ended, trace.failed_lines) == ("exit status 1", ())
    assert trace.processes[0].missing == ("gpudiag lint failed (ImportError: no such rule): please report it",)


_NEVER = """\
import sys
import tensorflow as tf
gpus = tf.config.list_physical_devices("GPU")
if {test}:
    tf.config.experimental.set_memory_growth(gpus[0], True)
print(tf.ones([2]))
"""


def _settings(file: Path, *, test: str, taken: int = 15 << 30, set_at: str = "") -> tuple[Setting, ...]:
    """Return the settings of a program that ended well, with those that were not made."""
    file.write_text(_NEVER.format(test=test))
    device = MadeDevice("GPU:0", 14 << 30, "0")
    process = Process(7, 1, "started", ("python", str(file)), "3.11", 0.0, "2.21.0", devices=(device,))
    made = (Setting("memory_growth", "GPU:0=True", set_at, Fate.TOO_LATE, process=7),) if set_at else ()
    card = Booked(0, 16 << 30, 0, taken, ((7, taken),))
    trace = ProgramTrace(("python", str(file)), "exit status 0", 1.0, (process,), made, booked=(card,))
    return own_lines.explained(trace).settings[len(made) :]


def test_an_option_that_was_never_set_is_told_if_all_memory_was_taken(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    chosen = _settings(file, test="len(sys.argv) > 9")
    assert [(row.what, row.line, row.fate) for row in chosen] == [("memory_growth", f"{file}:5", Fate.NOT_REACHED)]
    assert chosen[0].why == "no process called it; NVML: 15,360 MiB of the 16,384 MiB of card 0 were taken"
    never = _settings(file, test="len(gpus) < 0")
    assert [row.fate for row in never] == [Fate.IGNORED]
    assert "train.py:4: len(gpus) < 0 is always false" in never[0].why
    assert not _settings(file, test="len(sys.argv) > 9", taken=1 << 30)
    assert not _settings(file, test="len(sys.argv) < 9", set_at=f"{file}:5")
