"""GPUs that are there and hidden: masks."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.diagnosis.rule import Evidence, Match, Rule, RuleCase
from gpudiag.hostfacts import EnvironmentFacts, example_with_gpus
from gpudiag.model import Stage
from gpudiag.scope import apply_mask

MASK = "CUDA_VISIBLE_DEVICES"


def _mask_hides_all(evidence: Evidence) -> Iterator[Match]:
    value = evidence.facts.variables.get(MASK)
    devices = evidence.facts.nvml_devices
    if value is None or not devices or apply_mask(value, devices).devices:
        return
    valid = f"0 to {len(devices) - 1}" if len(devices) > 1 else "0"
    yield Match(
        evidence=(f"{MASK}={value!r}", f"NVML reports {len(devices)} GPU(s); valid indices: {valid}"),
        figures={"value": value, "gpus": len(devices), "uuid": devices[0].uuid},
        change={MASK: None},
    )


def _masked(gpus: int, value: str) -> Evidence:
    return Evidence(example_with_gpus(gpus, environment=EnvironmentFacts({MASK: value})))


RULES = (
    Rule(
        id="mask_hides_all",
        stage=Stage.DRIVER,
        cause="CUDA_VISIBLE_DEVICES={value!r} hides every one of the {gpus} GPU(s) of this machine",
        why="""
        The CUDA driver, not TensorFlow, reads this variable, and ends the list at the first entry that names no GPU. An
        empty value, -1, an index that does not exist, a word: each leaves nothing, and cuInit then answers "no
        CUDA-capable device is detected", as if there were none. It is often left in a .env file, a notebook, a CI
        configuration, or set by a scheduler that gave the job no GPU.
        """,
        fix=("unset CUDA_VISIBLE_DEVICES", "or choose one: export CUDA_VISIBLE_DEVICES={uuid}"),
        url="https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
        find=_mask_hides_all,
        cases=(
            RuleCase("-1", _masked(2, "-1")),
            RuleCase("empty", _masked(1, "")),
            RuleCase("an index too high", _masked(2, "5")),
            RuleCase("one of two", _masked(2, "1"), fires=False),
            RuleCase("not set", Evidence(example_with_gpus(2)), fires=False),
            RuleCase(
                "no GPU to hide",
                Evidence(example_with_gpus(0, environment=EnvironmentFacts({MASK: "-1"}))),
                fires=False,
            ),
        ),
    ),
)
