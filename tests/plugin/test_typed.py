"""The types of what others import: a program that uses it passes ``mypy --strict``, and nothing of it is Any."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gpudiag
from gpudiag.model import report as model
from gpudiag.pytest_plugin import fixtures
from gpudiag.tracing import part

ROOT = Path(gpudiag.__file__).parents[1]

PROGRAM = """
from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import gpudiag

if TYPE_CHECKING:
    from gpudiag.pytest_plugin.fixtures import (
        CapturePlacement, Device, Facts, MeasureMemory, RunIsolated, Simulate, Traced,
    )


def square(number: int) -> int:
    return number * number


def train() -> list[str]:
    callbacks = [gpudiag.keras_callback("report.html")]
    with gpudiag.trace() as report:
        pass
    return [cause.cause for cause in report.causes] + [str(report), str(callbacks)]


def test_all(
    gpudiag_devices: tuple[Device, ...],
    gpudiag_facts: Facts,
    gpudiag_trace: Callable[[], AbstractContextManager[Traced]],
    gpudiag_placement: CapturePlacement,
    gpudiag_memory: MeasureMemory,
    gpudiag_run_isolated: RunIsolated,
    gpudiag_simulated: Simulate,
) -> None:
    with gpudiag_placement() as placement, gpudiag_memory("GPU:1") as memory, gpudiag_trace() as traced:
        pass
    assert placement.ops("MatMul").on("GPU:1")
    memory.assert_peak_below("2GiB")
    machine = gpudiag_simulated("2x16GiB", faults=["cuinit=100"])
    reveal_type(machine.run(square, 3))
    reveal_type(gpudiag_run_isolated(square, 3, timeout=5.0))
    reveal_type(machine.environment["PATH"])
    reveal_type(gpudiag_devices[0].capability)
    reveal_type(gpudiag_facts.variables)
    reveal_type(traced.causes[0].cause)
    reveal_type(placement.cpu_fallbacks[0].device)
"""
REVEALED = [
    "int",
    "int",
    "str",
    "tuple[int, int] | None",
    "dict[str, str]",
    "str",
    "str",
]


def mypy(program: str, folder: Path) -> str:
    """Return what ``mypy --strict`` prints of a program beside an installation with ``py.typed``."""
    file = folder / "program.py"
    file.write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(folder / "cache")]
    installed = ROOT.name == "site-packages"  # mypy finds it there, and refuses to have it named as a path
    environment = os.environ if installed else {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--follow-imports=silent", str(file)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_program_that_uses_the_public_functions_and_fixtures_is_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    assert (Path(gpudiag.__file__).parent / "py.typed").exists()
    *lines, last = mypy(PROGRAM, tmp_path).splitlines()
    assert last == "Success: no issues found in 1 source file", lines
    shown = [line.partition('Revealed type is "')[2].rstrip('"') for line in lines if "Revealed type" in line]
    assert [text.replace("builtins.", "").replace("Union[", "").replace("]?", "]") for text in shown] == REVEALED


@pytest.mark.slow
def test_a_program_that_misuses_them_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    said = mypy(PROGRAM.replace('memory.assert_peak_below("2GiB")', "memory.assert_peak_below(2.5)"), tmp_path)
    assert '"assert_peak_below" of "MemoryPeak" has incompatible type "float"' in said


def public() -> Iterator[tuple[str, Any]]:
    """Yield the functions of the package, the fixtures, and the methods of their types."""
    yield "gpudiag.trace", gpudiag.trace
    yield "gpudiag.keras_callback", gpudiag.keras_callback
    for name, value in vars(fixtures).items():
        if name.startswith("gpudiag_"):
            yield name, getattr(value, "__wrapped__", None) or value.__pytest_wrapped__.obj
    for name in fixtures.__all__:
        kind = getattr(fixtures, name, None) or getattr(part, name, None)
        if kind is None:  # a record of the model
            continue
        for method, value in vars(kind).items():
            function = value.fget if isinstance(value, property) else value
            if inspect.isfunction(function) and (not method.startswith("_") or method == "__call__"):
                yield f"{name}.{method}", function


def holds_any(kind: Any) -> bool:
    return kind is Any or any(map(holds_any, typing.get_args(kind)))


@pytest.mark.parametrize("function", [pytest.param(value, id=name) for name, value in public()])
def test_no_signature_has_any(function: Any) -> None:
    names = {**vars(part), **vars(model), **vars(fixtures), **vars(sys.modules[function.__module__])}
    missing = {"Facts": object, "Placement": object, "Traced": part.Traced}
    missing["AbstractContextManager"] = vars(fixtures)["AbstractContextManager"]
    hints = typing.get_type_hints(function, {**missing, **names})
    assert hints, "it has no annotation"
    assert not [name for name, kind in hints.items() if holds_any(kind)]
