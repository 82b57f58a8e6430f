"""CUDA_VISIBLE_DEVICES has an entry that is not the number or the UUID of a GPU

The CUDA driver reads the list up to the first entry that names no GPU: 0,,,1 shows GPU 0 alone. cuda:0, gpu:0 and [0]
are names of other libraries, so the list is empty, and TensorFlow runs on the CPU without a warning. The text None,
which str(args.gpu) makes of an option of argparse that was not given, and a variable that a script assigns nowhere,
hide them as well.

Bad
    import os

    os.environ["CUDA_VISIBLE_DEVICES"] = "cuda:0"
    import tensorflow as tf

Good
    import os

    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    import tensorflow as tf
"""

from __future__ import annotations

import ast
import re

from gpudiag.fix import Role, edit, edit_note
from gpudiag.lint.program import LintedProgram
from gpudiag.lint.rule import Matches, Rule, Violation
from gpudiag.lint.settings import MASK, entries, masks
from gpudiag.lint.values import Const
from gpudiag.model.report import Severity
from gpudiag.text import counted

RULE = Rule(
    message="CUDA_VISIBLE_DEVICES={value!r} {shows}: {entry!r} is not the number or the UUID of one",
    severity=Severity.FAIL,
    fix=(
        edit("os.environ['CUDA_VISIBLE_DEVICES'] = {instead}", "write the numbers alone"),
        edit("os.environ['CUDA_VISIBLE_DEVICES'] = '-1'", "if every GPU is to be hidden", role=Role.ALTERNATIVE),
    ),
    words=(MASK,),
    url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
    cause="mask_hides_all",
)
_MEANT_TO_HIDE = re.compile(
    r"\s{0,40}(?:-\d{1,9}|none|null|cpu|no\w{0,40}|void|false|off|['\"]{0,8})\s{0,40}\Z", re.IGNORECASE
)


def find(program: LintedProgram) -> Matches:
    for event in masks(program):
        value = event.value
        if not isinstance(value, Const) or not isinstance(value.value, str) or (shown := entries(value)) is None:
            continue
        text = value.value
        rest = text.split(",")[len(shown) :]
        if not rest or (shown and not "".join(rest).strip()):
            continue
        shows = f"shows {counted(len(shown), 'GPU')} alone" if shown else "hides every GPU"
        figures = {"value": text, "shows": shows, "entry": rest[0]}
        if value.assumed and text == "None":
            names = {ast.unparse(node) for node in ast.walk(event.node) if isinstance(node, ast.Attribute | ast.Name)}
            if not any(name in ast.unparse(guard) for guard in event.guards for name in names - {"os", "str"}):
                fix = edit_note("set the variable only if the option is given: None is its default")
                yield Violation(event, figures, node=event.value_node, fix=(fix,))
        elif text.startswith("$"):
            fix = edit_note(f"no line assigns {text.strip('${}')}: write the name of the variable that is assigned")
            yield Violation(event, figures, fix=(fix,))
        elif text == "," or ",,," in text:
            fix = edit_note("split the text: text.split(','), not its letters, are the GPUs")
            yield Violation(event, figures, node=event.value_node, fix=(fix,))
        elif not _MEANT_TO_HIDE.match(rest[0]):
            instead = ",".join([*shown, *re.findall(r"\d+", ",".join(rest))]) or "0"
            yield Violation(event, {**figures, "instead": repr(instead)}, node=event.value_node)
