"""Fixes of files with an odd layout: the result parses, nothing else is changed, and nothing is left to fix."""

from __future__ import annotations

import ast
import difflib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpudiag.lint import check, fixes, rule

STATEMENTS = {
    "assigned": "tf.config.set_soft_device_placement = False",
    "removed": "tf.config.set_memory_growth(gpu, True)",
    "misspelt": "os.environ['CUDA_VISIBLE_DEVICE'] = '1'",
    "not_text": 'os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = True',
    "session": "tf.Session(config=tf.ConfigProto())",
}
"""What --fix changes; of some of them it depends on the layout whether it can."""
HEAD = "import os\nimport tensorflow as tf\ngpu = object()\n"
LAYOUTS: dict[str, Callable[[str], str]] = {
    "plain": lambda line: f"{HEAD}{line}\n",
    "no end of line": lambda line: f"{HEAD}{line}",
    "tabs": lambda line: f"{HEAD}def run():\n\tif gpu:\n\t\t{line}\n\treturn 1\nrun()\n",
    "one line": lambda line: f"{HEAD}if gpu: x = 1; {line}; y = 2\n",
    "semicolon": lambda line: f"{HEAD}{line};\n",
    "comment": lambda line: f"{HEAD}{line}  # caf\u00e9: why = not(\n",
    "before it": lambda line: f"{HEAD}x = '\u00e9\U0001f600'; {line}\n",
    "form feed": lambda line: f"{HEAD}\f\n{line}\n",
    "other line ends in a text": lambda line: f"{HEAD}x = 'a\u2028b\x0bc\x1cd'\n{line}\n",
    "continued": lambda line: (
        f"{HEAD}" + line.replace(" = ", " \\\n    = ").replace("(gpu, ", "(\n    gpu,\n    ") + "\n"
    ),
    "after an f-string": lambda line: HEAD + "x = f'{gpu!r:>{10}}'; " + line + "\n",
    "decorated": lambda line: f"{HEAD}@tf.function\ndef run(x):\n    return x\n{line}\n",
}
ENDS = {"lf": "\n", "crlf": "\r\n", "cr": "\r"}


def fixed(tmp_path: Path, content: bytes, name: str = "a.py") -> tuple[bytes, int]:
    """Return the content after ``--fix`` and how many findings it wrote; a second run must find nothing to write."""
    file = tmp_path / name
    file.write_bytes(content)
    counts = []
    for _ in range(2):
        done = list(fixes.fixed(check.check([file], rule.known()).found))
        counts.append(sum(len(found) for _, _, found in done))
        for source, new, _ in done:
            assert fixes.write(source, new) is None
    assert counts[1] == 0
    return file.read_bytes(), counts[0]


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_odd_layout(tmp_path: Path, layout: Callable[[str], str], end: str) -> None:
    written = 0
    for statement in STATEMENTS.values():
        text = layout(statement).replace("\n", end)
        for mark in (b"", b"\xef\xbb\xbf"):
            before = mark + text.encode()
            after, count = fixed(tmp_path, before)
            written += count
            ast.parse(after)
            # What is around the statement stays, byte for byte.
            head, tail = layout("?").replace("\n", end).encode().split(b"?", 1)
            assert after.startswith(mark + head)
            assert after.endswith(tail)
            assert (after == before) is (count == 0)
    assert written >= 4, "--fix wrote too little for this layout"


def test_notebook_of_format_3(tmp_path: Path) -> None:
    cell = {"cell_type": "code", "input": [f"{HEAD}", STATEMENTS["assigned"]], "language": "python", "outputs": []}
    book = {"metadata": {}, "nbformat": 3, "nbformat_minor": 0, "worksheets": [{"cells": [cell]}]}
    before = json.dumps(book, indent=1) + "\n"
    after, count = fixed(tmp_path, before.encode(), "a.ipynb")
    changed = [line for line in difflib.ndiff(before.splitlines(), after.decode().splitlines()) if line[0] in "-+"]
    assert count == 1
    assert "placement(False)" in after.decode()
    assert all("import" in line or "gpu" in line or "placement" in line for line in changed)


def test_cell_with_magics_is_not_called_fixable(tmp_path: Path) -> None:
    source = f"%matplotlib inline\n{HEAD}{STATEMENTS['assigned']}"
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "source": source}
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4}))
    run = check.check([tmp_path / "a.ipynb"], rule.known())
    assert [(finding.rule, finding.fixable) for finding in run.result().findings] == [("assigned_not_called", False)]
    assert not list(fixes.fixed(run.found))
