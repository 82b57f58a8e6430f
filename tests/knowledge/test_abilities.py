"""What TensorFlow can do on a GPU: TensorFlow has the kernels, and no probe runs what none is said to run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import gpudiag.probes
from gpudiag import catalogue
from gpudiag.knowledge.abilities import ABILITIES, Ability

KERNELS = """
import json, sys
from tensorflow.python.framework import dtypes, kernels
found = {}
for name in sys.argv[1:]:
    registered = [one for one in kernels.get_registered_kernels_for_op(name).kernel if one.device_type == "GPU"]
    found[name] = [len(registered), [
        dtypes.as_dtype(number).name
        for one in registered for constraint in one.constraint for number in constraint.allowed_values.list.type
    ]]
print(json.dumps(found))
"""


@pytest.mark.starts
def test_tensorflow_has_a_kernel_for_the_gpu() -> None:
    asked = {ability.operation for ability in ABILITIES if ability.operation}
    command = [sys.executable, "-c", KERNELS, *sorted(asked)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=120, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert [ability.what for ability in ABILITIES if ability.operation and not found[ability.operation][0]] == []
    wrong = [ability.what for ability in ABILITIES if ability.type and ability.type not in found[ability.operation][1]]
    assert wrong == []


@pytest.mark.parametrize(
    "ability", [ability for ability in ABILITIES if not ability.probe], ids=lambda ability: ability.what
)
def test_no_probe_runs_it(ability: Ability) -> None:
    sources = Path(gpudiag.probes.__path__[0]).rglob("*.py")
    running = {path.name for path in sources for word in ability.words if word in path.read_text(encoding="utf-8")}
    assert running == set()


def test_the_probes_exist() -> None:
    assert {ability.probe for ability in ABILITIES} - {entry.name for entry in catalogue.entries()} == {""}
