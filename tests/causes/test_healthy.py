"""No false alarm: on healthy machines of many shapes no cause is named, and nothing is found above a note."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from conftest import Gpudiag
from corpus.libraries import packaged
from gpudiag.model import codec
from gpudiag.model.report import Broken, Severity
from gpudiag.report import words

pytestmark = pytest.mark.usefixtures("no_child_left")


@dataclass(frozen=True)
class Shape:
    """A healthy machine."""

    name: str
    machine: str = ""
    """What ``--simulate`` takes, or TOML where it holds a line break; "" for the machine that runs the test."""
    variables: dict[str, str] = field(default_factory=dict)
    prepare: Callable[[Gpudiag], object] = lambda _: None

    def __str__(self) -> str:
        return self.name


CONTAINER = """
files = {"/.dockerenv" = "", "/proc/1/cgroup" = "0::/docker/0123456789ab", "/dev/shm" = false}
[[gpu]]
"""

SHAPES = (
    Shape("no GPU"),
    Shape("no GPU, hidden all the same", variables={"CUDA_VISIBLE_DEVICES": "-1"}),
    Shape("one GPU", "1x16GiB"),
    Shape("two GPUs", "2x16GiB"),
    Shape("eight GPUs", "8x8GiB"),
    Shape("unequal GPUs", "1x16GiB:T4,1x80GiB:H100"),
    Shape("a MIG instance", "[[gpu]]\npreset = 'A100-40'\nmig = 2\n"),
    Shape("a GPU for one process at a time", "[[gpu]]\ncompute_mode = 'exclusive_process'\n"),
    Shape("a container that was given its GPU", CONTAINER, {"NVIDIA_VISIBLE_DEVICES": "all"}),
    Shape(
        "a pod that was given its GPU",
        CONTAINER,
        {
            "KUBERNETES_SERVICE_HOST": "10.0.0.1",
            "NVIDIA_VISIBLE_DEVICES": "GPU-0",
            "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        },
    ),
    Shape(
        "a job of Slurm",
        "2x16GiB",
        {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "1", "SLURM_STEP_GPUS": "1", "CUDA_VISIBLE_DEVICES": "1"},
    ),
    Shape(
        "a conda environment, flags for XLA, libraries of CUDA on the path",
        "1x16GiB",
        {
            "CONDA_PREFIX": "/opt/conda",
            "CONDA_DEFAULT_ENV": "tf",
            "XLA_FLAGS": "--xla_gpu_cuda_data_dir=/opt/conda --xla_dump_to=''",
            "LD_LIBRARY_PATH": "/usr/lib/x86_64-linux-gnu",
        },
    ),
    Shape("GPUs in another order", "2x16GiB", {"CUDA_VISIBLE_DEVICES": "1,0"}),
    Shape("growth forced, a quiet log", "1x16GiB", {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_CPP_MIN_LOG_LEVEL": "1"}),
    Shape(
        "NVIDIA's packages, later than what is simulated",
        "1x16GiB",
        prepare=lambda gpudiag: packaged(gpudiag, "nvidia-cudnn-cu12", "9.28.0.42", "cudnn", "libcudnn.so.9"),
    ),
)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_healthy_machine_has_no_cause(shape: Shape, gpudiag: Gpudiag) -> None:
    machine = gpudiag.simulated(shape.machine)
    shape.prepare(gpudiag)
    done = gpudiag("check", "host", "discovery", *machine, "--format", "json", flags=(), **shape.variables)
    report = codec.decode(done.stdout, done.stderr)
    assert [row for row in report.rows if isinstance(row.outcome, Broken)] == []
    assert [finding for row in report.rows for finding in row.findings if finding.severity is not Severity.NOTE] == []
    assert report.diagnosis.causes == ()
    assert report.diagnosis.folded == ()
    if shape.machine:
        assert (report.verdict.value, report.diagnosis.broken_at) == ("PASS", None)
    elif report.facts.without_gpu:
        assert words.headline(report) == "No NVIDIA GPU in this machine: nothing to fix"
