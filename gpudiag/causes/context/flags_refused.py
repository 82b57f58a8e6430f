"""XLA_FLAGS or TF_XLA_FLAGS has a flag that XLA does not accept, so XLA aborts every program

XLA reads the variables XLA_FLAGS and TF_XLA_FLAGS when TensorFlow makes its devices, or before. A flag that this
release does not know, most often one that was removed since or that JAX's newer XLA has, a value that it cannot read,
or a file that is not there, is not a warning: the process exits with status 1 after a fatal line, which a list of all
flags may follow. A value that does not begin with -- is taken for the name of a file that holds the flags.
"""

from __future__ import annotations

import re

from gpudiag.cause import TRACE, Cause, EveryLog, LogAlone, Match, Matches, Rows, Variables
from gpudiag.fix import edit_note, export, unset
from gpudiag.knowledge.log_lines import text
from gpudiag.knowledge.messages.settings import FLAGS_REFUSED
from gpudiag.model.diagnosis import Stage

CAUSE = Cause(
    title="{variable} {what} ({refused}), so XLA aborts every program",
    fix=(unset("XLA_FLAGS"),),
    url="https://openxla.org/xla/flags_guidance",
    needs_gpu=False,
)
_TOKEN = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")
_VARIABLES = ("TF_XLA_FLAGS", "XLA_FLAGS")


def find(variables: Variables, rows: Rows, log: EveryLog, alone: LogAlone | None) -> Matches:
    right = None
    found = log.first(FLAGS_REFUSED)
    if found is None:
        return
    if found["file_in"]:
        variable, refused, what = found["file_in"], [found["file"]], "names a file that cannot be read"
    elif found["unknown_in"]:
        variable, refused = found["unknown_in"], _TOKEN.findall(found["flags"])
        what = "contains a flag that this TensorFlow does not know"
    elif garbled := found["garbled"]:  # printed by several threads at once
        inner = re.search(r"--[a-z]\w+", garbled)
        refused, what = [garbled], "contains a value that cannot be read"
        variable = "TF_XLA_FLAGS" if "--tf_" in garbled else "XLA_FLAGS"
        right = export(variable, f"{inner[0]}") if inner else None
    else:
        refused, what = [f"--{found['name']}={found['value']}"], "contains a value that cannot be read"
        holding = [name for name in _VARIABLES if refused[0] in _TOKEN.findall(variables.get(name, ""))]
        variable = holding[0] if holding else "XLA_FLAGS"
    value = variables.get(variable, "")
    tokens = _TOKEN.findall(value)
    rest = " ".join(token for token in tokens if token not in refused)
    if value and not value.startswith("--"):  # a file that holds the flags
        rest = ""
    without = export(variable, rest) if rest else unset(variable)
    ends_at_once = any(row.probe == TRACE and row.crash is not None for row in rows)
    yield Match(
        evidence=(text(found.line), *_set_here(variable, value, alone)),
        figures={"variable": variable, "what": what, "refused": " ".join(refused)},
        fix=(
            without
            if value
            else right or edit_note(f"take {' '.join(refused)} out of {variable} where the program is started"),
        ),
        about=tuple(refused),
        tried=without if value else None,
        stage=Stage.PACKAGE if ends_at_once else None,
    )


def _set_here(variable: str, value: str, alone: LogAlone | None) -> tuple[str, ...]:
    if value:
        return (f"{variable}={value}",)
    return () if alone is not None else (f"{variable} is not set here",)
