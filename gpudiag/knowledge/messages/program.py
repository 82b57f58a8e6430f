"""What programs, launchers and test runners print."""

from __future__ import annotations

from gpudiag.knowledge.message import Family, Worth

FAMILY = Family("the user's own program", stage="CONFIGURATION")

SLURM_HIDES = FAMILY.fault(
    "slurm_hides", "NoDevFiles", meaning="what Slurm writes into the mask of a job step without GPUs"
)
_ENTRY = r"(?:-?\d+|(?:GPU|MIG)-[\w-]+|NoDevFiles)"
MASK_PRINTED = FAMILY.add(
    Worth.SIGN,
    "mask_printed",
    pattern=r"CUDA_VISIBLE_DEVICES['\"\])]*\s*(?:=|:|,|is set to)\s*['\"]?"
    rf"(?P<value>{_ENTRY}(?:,\s*{_ENTRY})*|(?=['\"]))",
    words=("cuda_visible_devices",),
    seen="programs",
)
LOCAL_RANK = FAMILY.sign("local_rank", "local_rank", seen="Horovod")
RAY_AT_WORK = FAMILY.add(
    Worth.SIGN,
    "ray_at_work",
    pattern=r"\bray\.(?:init|remote|tune|rllib|train|util)\b|\bray::\w|[/\\]ray[/\\](?:rllib|tune|train|_private)[/\\]|"
    r"\((?:RolloutWorker|RayTrainWorker|TunerInternal|ImplicitFunc|raylet) pid=",
    words=("ray", "rolloutworker", "raytrainworker", "tunerinternal", "implicitfunc", "raylet"),
    seen="Ray",
)
XDIST_WORKER = FAMILY.add(
    Worth.SIGN, "xdist_worker", pattern=r"\[gw(?P<worker>\d+)\]", words=("gw",), seen="pytest-xdist"
)
TEST_SKIPPED = FAMILY.add(
    Worth.SIGN,
    "test_skipped",
    pattern=r"(?i)\bskipped\b(?: \[(?P<count>\d+)\])?(?:(?!skipped).){0,300}\b(?:gpus?|cuda)\b|"
    r"\b(?:gpus?|cuda)\b(?:(?!gpu|cuda)[^:]){0,300}\bskipped\b(?! \[)|"
    r"\.\.\. skipped '[^']{0,300}\b(?:gpus?|cuda)\b",
    words=("skipped",),
    seen="pytest, unittest",
)
