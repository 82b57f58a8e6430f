"""The user's settings break no probe: under each of them a healthy machine passes, and no cause is named.

Many settings together are not the same as each alone: one may hide what another does. They are few runs, though, and
``scripts/settings_sweep.py`` tries settings alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from conftest import Gpudiag
from gpudiag import catalogue
from gpudiag.knowledge.variables import ALLOCATOR, FORCE_GROWTH, OVER_MEMORY, PLUGINS, without_compiling
from gpudiag.model import codec
from gpudiag.run.plan import Task, environment_of
from settings import Setting, changed, culprits, environment, every, faults, rounds

WHOLE = 3
"""Rounds of a whole check. In the others are the few variables with more values, which what is run then reads."""
SHORT = ("host", "discovery", "placement", "libraries.cublas")
ROUNDS = rounds(every(), WHOLE)


CHECKS = [
    *(pytest.param(number, (), marks=pytest.mark.slow, id=f"{number}, whole") for number in range(WHOLE)),
    *(pytest.param(number, SHORT, id=f"{number}") for number in range(len(ROUNDS))),
]


@pytest.mark.usefixtures("no_child_left")
@pytest.mark.parametrize(("number", "select"), CHECKS)
def test_settings_break_no_probe(gpudiag: Gpudiag, tmp_path: Path, number: int, select: tuple[str, ...]) -> None:
    folder = tmp_path / "of settings"
    folder.mkdir()
    variables = environment(ROUNDS[number], folder)
    done = gpudiag("check", *select, "--simulate", "2", "--format", "json", flags=(), **variables)
    found = faults(codec.decode(done.stdout, done.stderr))
    assert found == {}, f"python scripts/settings_sweep.py --round {number + 1} finds which setting it is"


def test_each_setting_is_in_one_round() -> None:
    assert Counter(setting for each in ROUNDS for setting in each) == Counter(every())
    for each in ROUNDS:
        assert len({setting.name for setting in each}) == len(each)


def test_what_must_change_is_among_the_settings_of_no_round() -> None:
    assert {str(change.setting) for change in changed()} & {str(setting) for setting in every()} == set()


def test_what_differs_is_found_by_halving() -> None:
    settings = [Setting("A", str(value)) for value in range(9)]
    wrong = {settings[2], settings[7]}
    assert set(culprits(settings, lambda some: bool(wrong & set(some)))) == wrong

    def together(some: Sequence[Setting]) -> bool:
        return wrong <= set(some)

    assert wrong <= set(culprits(settings, together))


def test_what_may_be_otherwise_is_what_is_named() -> None:
    (change, *_) = changed()
    said = {name: f"... {words} ..." for name, words in change.must.items()}
    assert change.otherwise(said) == []
    assert change.otherwise({**said, "placement.log": "fail: ..."}) == ["placement.log: fail: ..."]
    assert len(change.otherwise({})) == len(change.must)


def test_a_plug_in_that_cannot_be_loaded_ends_the_import(gpudiag: Gpudiag, tmp_path: Path) -> None:
    (tmp_path / "plug-in.so").write_text("no library")
    plugins = {PLUGINS: str(tmp_path / "plug-in.so")}
    done = gpudiag("check", "discovery.trace", "--format", "json", flags=(), **plugins)
    (row,) = codec.decode(done.stdout, done.stderr).rows
    assert row.crash is not None
    assert "import tensorflow raised NotFoundError" in row.crash.detail


def task(probe: str) -> Task:
    return Task(probe, catalogue.get(probe), ())


def test_what_measures_memory_gets_no_variable_that_decides_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OVER_MEMORY:
        monkeypatch.setenv(name, "1")
    changes = environment_of(task("memory.fraction_above_one"))
    assert {name: changes[name] for name in OVER_MEMORY} == dict.fromkeys(OVER_MEMORY)
    assert set(OVER_MEMORY) & environment_of(task("placement.default")).keys() == set()


def test_what_it_honours_it_gets_from_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOCATOR, "cuda_malloc")
    monkeypatch.delenv(FORCE_GROWTH, raising=False)
    changes = environment_of(task("memory.fraction"))
    assert (changes[ALLOCATOR], changes[FORCE_GROWTH]) == ("cuda_malloc", None)


@pytest.mark.parametrize(
    ("flags", "left"),
    [
        ("--tf_xla_auto_jit=2", ""),
        ("--tf_xla_cpu_global_jit --tf_xla_auto_jit=fusible", "--tf_xla_cpu_global_jit "),
        ("--tf_xla_auto_jit=single-gpu(1) --tf_xla_enable_xla_devices", " "),
    ],
)
def test_flags_that_compile_whole_programs_are_taken_out(flags: str, left: str) -> None:
    assert without_compiling({"TF_XLA_FLAGS": flags}) == {"TF_XLA_FLAGS": left}


@pytest.mark.parametrize("flags", ["--tf_xla_auto_jit=all", "--tf_xla_enable_xla_devices=false", "/etc/flags", ""])
def test_flags_that_do_not_or_that_tensorflow_refuses_are_left(flags: str) -> None:
    assert without_compiling({"TF_XLA_FLAGS": flags}) == {}


def test_functions_are_not_compiled_by_default() -> None:
    assert without_compiling({"TF_FUNCTION_JIT_COMPILE_DEFAULT": "true"}) == {"TF_FUNCTION_JIT_COMPILE_DEFAULT": None}
