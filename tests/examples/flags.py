"""Examples of causes: flags that XLA does not understand."""

from __future__ import annotations

from examples import Example
from examples.facts import example_with_gpus
from gpudiag.cause import TRACE, Evidence
from gpudiag.model.facts import EnvironmentFacts
from gpudiag.model.report import Broken, NoReading, Row

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
    row = Row(probe, (), Broken(NoReading.NO_RESULT, "exited with status 1 without a result"), 0.0, log=(log,))
    return Evidence(example_with_gpus(1, environment=EnvironmentFacts(variables)), rows=(row,))


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "flags_refused": (
        Example("unknown", _ended(_UNKNOWN.format("XLA_FLAGS", "--xla_x=1"), XLA_FLAGS="--xla_x=1")),
        Example(
            "one of two", _ended(_UNKNOWN.format("XLA_FLAGS", "--xla_x"), XLA_FLAGS="--xla_x --xla_dump_to=/tmp/x")
        ),
        Example("in a file", _ended(_UNKNOWN.format("XLA_FLAGS", "--xla_x"), XLA_FLAGS="flags.txt")),
        Example("at the import", _ended(_UNKNOWN.format("TF_XLA_FLAGS", "--tf_x"), TRACE, TF_XLA_FLAGS="--tf_x")),
        Example("no such file", _ended(_NO_FILE, XLA_FLAGS="flags.txt")),
        Example("a value", _ended(_NO_VALUE, XLA_FLAGS="--xla_gpu_autotune_level=foo")),
        Example(
            "in the log of a program",
            Evidence(example_with_gpus(1), lines=(_UNKNOWN.format("XLA_FLAGS", "--xla_x"),)),
        ),
        Example(
            "a flag that is known",
            _ended("created", XLA_FLAGS="--xla_gpu_cuda_data_dir=/usr/local/cuda"),
            fires=False,
        ),
    ),
}
