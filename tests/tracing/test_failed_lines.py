"""Which of a program's lines in a traceback lint explains; nothing is started."""

from __future__ import annotations

from pathlib import Path

from gpudiag.tracing import failed_lines

_PROGRAM = """\
import os
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
import tensorflow as tf
def use(number):
    gpus = tf.config.list_physical_devices("GPU")
    tf.config.experimental.set_memory_growth(gpus[1], True)
use(1)
"""


def _read(file: Path, *, error: str) -> list[tuple[str, str]]:
    traceback = (
        "Traceback (most recent call last):",
        f'  File "{file}", line 7, in <module>',
        "    use(1)",
        f'  File "{file}", line 6, in use',
        "    tf.config.experimental.set_memory_growth(gpus[1], True)",
        error,
    )
    return [(found.line.rpartition("/")[2], found.rule) for found in failed_lines.read(traceback)]


def test_lint_explains_the_line_that_raised_if_it_raises_that_exception(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(_PROGRAM)
    assert _read(file, error="IndexError: list index out of range") == [("train.py:6", "index_beyond_mask")]
    assert not _read(file, error="tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM")


def test_lines_of_packages_and_of_absent_files_are_not_read(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "train.py"
    package.parent.mkdir()
    package.write_text(_PROGRAM)
    assert not _read(package, error="IndexError: list index out of range")
    assert not _read(tmp_path / "gone.py", error="IndexError: list index out of range")
