"""tests were skipped because there was no GPU, but the test run passed

Marks such as skipif(not tf.config.list_physical_devices('GPU')) are right on a laptop. On a runner that is there for
its GPU they turn a broken driver or a container without one into a green run, in which no GPU test ran. Why TensorFlow
lists none is another cause, named before this one if it was found.
"""

from __future__ import annotations

from gpudiag.cause import Cause, Match, Matches, Program
from gpudiag.fix import ask, check, edit, edit_note
from gpudiag.knowledge.messages.program import TEST_SKIPPED
from gpudiag.model.diagnosis import Confidence
from gpudiag.model.facts import Facts
from gpudiag.model.report import Severity
from gpudiag.probes.discovery import trace
from gpudiag.text import counted

CAUSE = Cause(
    title="{tests} skipped because there was no GPU, but the test run passed",
    severity=Severity.WARNING,
    fix=(
        ask("gpudiag check --require-gpus 1", "run it as a step before the tests: it fails without a GPU"),
        edit_note("put this into conftest.py, for the runner that has a GPU:"),
        edit(
            "if os.environ.get('REQUIRE_GPU') and not "
            "tf.config.list_physical_devices('GPU'): pytest.exit('no GPU', returncode=1)"
        ),
        check("pytest -rs", "names each skipped test and the reason"),
    ),
    url="https://docs.pytest.org/en/stable/how-to/skipping.html",
    needs_gpu=False,
)
_GIVEN = ("SLURM_GPUS", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS")


def _gpu_expected(facts: Facts) -> str:
    """Return the sign that a GPU is expected here; "" if there is none."""
    if not facts.without_gpu:
        return "the machine has an NVIDIA GPU" if facts.nvml_devices else "whether there is a GPU is not known"
    given = facts.variables.get("NVIDIA_VISIBLE_DEVICES", "void")
    if given not in ("", "none", "void"):
        return f"NVIDIA_VISIBLE_DEVICES={given}"
    return next((f"{name}={value}" for name, value in facts.variables.items() if name.startswith(_GIVEN)), "")


def find(facts: Facts, program: Program, seen: trace.Reading) -> Matches:
    found = program.all(TEST_SKIPPED)
    expected = _gpu_expected(facts)
    if not found or not expected:
        return
    listed = seen.listed
    summary = [int(event["count"]) for event in found if event["count"]]  # of tests that -v names, too
    number = sum(summary) or len(found)
    yield Match(
        evidence=(
            *program.said(TEST_SKIPPED),
            f"{expected}, and TensorFlow lists {listed or 'none'} here",
        ),
        confidence=Confidence.LIKELY if listed else Confidence.PROVED,
        figures={"tests": f"{counted(number, 'test')} {'was' if number == 1 else 'were'}"},
    )
