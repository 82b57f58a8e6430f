"""Flags that XLA does not understand. It ends the program for them, whatever that does.

The texts are those of TensorFlow 2.21 (``parse_flags_from_env.cc``, ``command_line_flags.cc``).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from gpudiag.diagnosis.rule import TRACE, Evidence, Match, Rule, RuleCase
from gpudiag.hostfacts import EnvironmentFacts, example_with_gpus
from gpudiag.knowledge.log import FLAGS_REFUSED
from gpudiag.log import text
from gpudiag.model import Broken, Cause, Row, Stage

_TOKEN = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")
_VARIABLES = ("TF_XLA_FLAGS", "XLA_FLAGS")


def _flags_refused(evidence: Evidence) -> Iterator[Match]:
    variables = evidence.facts.variables
    found = evidence.log.first(FLAGS_REFUSED)
    if found is None:
        return
    if found["file_in"]:
        variable, refused, what = found["file_in"], [found["file"]], "names a file that cannot be read"
    elif found["unknown_in"]:
        variable, refused = found["unknown_in"], _TOKEN.findall(found["flags"])
        what = "holds what this TensorFlow does not know"
    else:
        refused, what = [f"--{found['name']}={found['value']}"], "holds a value that cannot be read"
        holding = [name for name in _VARIABLES if refused[0] in _TOKEN.findall(variables.get(name, ""))]
        variable = holding[0] if holding else "XLA_FLAGS"
    value = variables.get(variable, "")
    tokens = _TOKEN.findall(value)
    rest = " ".join(token for token in tokens if token not in refused)
    if value and not value.startswith("--"):  # a file that holds the flags
        rest = ""
    without = f"export {variable}={shlex.quote(rest)}" if rest else f"unset {variable}"
    ends_at_once = any(row.probe == TRACE and row.crash is not None for row in evidence.rows)
    yield Match(
        evidence=(text(found.line), *([f"{variable}={value}"] if value else [f"{variable} is not set here"])),
        figures={
            "variable": variable,
            "what": what,
            "refused": " ".join(refused),
            "do": without if value else f"# take {' '.join(refused)} out of {variable} where the program is started",
        },
        change={variable: rest or None} if value else None,
        stage=Stage.PACKAGE if ends_at_once else None,
    )


_UNKNOWN = "F0000 00:00:1795272848.514328   22354 parse_flags_from_env.cc:234] Unknown flag in {}: {}"
_NO_FILE = (
    'F0000 00:00:1795273592.162429    4410 parse_flags_from_env.cc:171] Could not open file "flags.txt" to read flags '
    'for environment variable "XLA_FLAGS". (We assumed "flags.txt" was a file name because it did not start with a "--"'
)
_NO_VALUE = (
    "E0000 00:00:1795273586.548772    4342 command_line_flags.cc:63] Couldn't interpret value foo for flag "
    "xla_gpu_autotune_level."
)


def _ended(log: str, probe: str = "discovery.logical_devices", **variables: str) -> Evidence:
    row = Row(probe, (), Broken(Cause.NO_RESULT, "exited with status 1 without a result"), 0.0, log=(log,))
    return Evidence(example_with_gpus(1, environment=EnvironmentFacts(variables)), rows=(row,))


RULES = (
    Rule(
        id="flags_refused",
        stage=Stage.CONTEXT,
        cause="{variable} {what} ({refused}), and XLA ends every program for that",
        why="""
        XLA reads the variables XLA_FLAGS and TF_XLA_FLAGS when TensorFlow makes its devices, or before. A flag that
        this release does not know, most often one that was removed since or that JAX's newer XLA has, a value that
        it cannot read, or a file that is not there, is no warning: the process exits with status 1 after a fatal
        line, which a list of all flags may follow. A value that does not begin with -- is taken for the name of a file
        that holds the flags.
        """,
        fix=("{do}",),
        url="https://openxla.org/xla/flags_guidance",
        find=_flags_refused,
        needs_gpu=False,
        cases=(
            RuleCase("unknown", _ended(_UNKNOWN.format("XLA_FLAGS", "--xla_x=1"), XLA_FLAGS="--xla_x=1")),
            RuleCase(
                "one of two", _ended(_UNKNOWN.format("XLA_FLAGS", "--xla_x"), XLA_FLAGS="--xla_x --xla_dump_to=/tmp/x")
            ),
            RuleCase("in a file", _ended(_UNKNOWN.format("XLA_FLAGS", "--xla_x"), XLA_FLAGS="flags.txt")),
            RuleCase("at the import", _ended(_UNKNOWN.format("TF_XLA_FLAGS", "--tf_x"), TRACE, TF_XLA_FLAGS="--tf_x")),
            RuleCase("no such file", _ended(_NO_FILE, XLA_FLAGS="flags.txt")),
            RuleCase("a value", _ended(_NO_VALUE, XLA_FLAGS="--xla_gpu_autotune_level=foo")),
            RuleCase(
                "in the log of a program",
                Evidence(example_with_gpus(1), lines=(_UNKNOWN.format("XLA_FLAGS", "--xla_x"),)),
            ),
            RuleCase(
                "a flag that is known",
                _ended("created", XLA_FLAGS="--xla_gpu_cuda_data_dir=/usr/local/cuda"),
                fires=False,
            ),
        ),
    ),
)
