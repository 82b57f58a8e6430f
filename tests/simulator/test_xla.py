"""What asks for XLA runs without it on a simulated GPU, and that is said once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpudiag.simulator import Machine

from .on_machine import MODULES, Inside, cards, run_python

SAID = "XLA cannot run here: what asks for it (jit_compile=True, auto-clustering) runs without it"
ASK = "import json; from inside import asks_for_xla; print(json.dumps(asks_for_xla()))"


def assert_equals_the_cpu(found: dict[str, float]) -> None:
    assert sorted(found) == ["clustered", "compiled", "later", "nested", "scoped", "stateful"]
    assert {name: error for name, error in found.items() if error > 1e-5} == {}


@pytest.mark.parametrize("by_itself", [False, True])
def test_what_asks_for_xla_runs_without_it(inside: Inside, by_itself: bool) -> None:
    outcome = inside(1, "asks_for_xla", by_itself=by_itself)
    assert_equals_the_cpu(outcome.check())
    assert outcome.log.count(SAID) == 1


def test_an_operation_of_xla_alone_is_computed(inside: Inside) -> None:
    right = ["GPU:0", [5.0, 0.0, 1.0, 1.0, 0.0]]
    assert inside(1, "operations_of_xla").check() == {"eager": right, "function": right}


def test_clusters_of_every_graph_run_without_xla() -> None:
    with Machine(cards(1)) as machine:
        path = f"{Path(__file__).parent}:{MODULES}"
        ended = run_python(machine, "-c", ASK, TF_XLA_FLAGS="--tf_xla_auto_jit=2", PYTHONPATH=path)
    assert ended.returncode == 0, ended.stderr
    assert_equals_the_cpu(json.loads(ended.stdout))
    assert ended.stderr.count(SAID) == 1


@pytest.mark.slow
def test_keras_trains_without_xla_although_it_was_asked_for_it(inside: Inside) -> None:
    asked = inside(1, "train", device="GPU", jit_compile=True, deadline=120)
    plain = inside(1, "train", device="CPU", jit_compile=False, deadline=120).check()
    found = asked.check()
    assert (found["jit"], found["device"][-5:]) == (True, "GPU:0")
    assert found["losses"] == pytest.approx(plain["losses"], rel=1e-5)
    assert asked.log.count(SAID) == 1
    assert "left off" not in asked.log, "it was asked for by the program, and not by Keras"
