"""gather_family: every family, as the isolation layer calls it."""

from __future__ import annotations

import os
import subprocess
import sys
import typing
from collections.abc import Sequence

import msgspec
import pytest

from gpudiag import catalogue
from gpudiag.facts import FAMILIES, gather_family, printable
from gpudiag.model.facts import Facts, Unknown
from gpudiag.model.report import Gpu, Row
from gpudiag.run import runner
from gpudiag.run.options import Options
from gpudiag.run.signals import Signals

TYPES = typing.get_type_hints(Facts)


def test_families_are_the_fields_of_facts_in_order() -> None:
    assert FAMILIES == (
        "system",
        "tensorflow",
        "driver",
        "nvml",
        "device_nodes",
        "environment",
        "container",
        "libraries",
        "cuda",
        "tried",
        "calls",
        "kernel",
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_decodes_as_its_record(family: str) -> None:
    record = msgspec.json.decode(gather_family({"family": family}), type=TYPES[family])
    assert not isinstance(record, Unknown)


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(ValueError, match="'colour'"):
        gather_family({"family": "colour"})


def test_gathering_imports_no_tensorflow_and_no_numpy() -> None:
    code = (
        "import sys; from gpudiag.facts import FAMILIES, gather_family\n"
        "for family in FAMILIES: gather_family({'family': family})\n"
        "print(sorted({'tensorflow', 'numpy', 'keras'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "[]\n"


class Silent:
    """An observer that says nothing."""

    def machine(self, facts: Facts, gpus: tuple[Gpu, ...]) -> None: ...

    def phase(self, text: str, probes: Sequence[str] | None = None) -> None: ...
    def note(self, text: str) -> None: ...

    def started(self, label: str) -> None: ...
    def finished(self, row: Row, label: str) -> None: ...
    def tick(self) -> None: ...


@pytest.mark.parametrize("isolation", ["fork", "spawn"])
def test_a_run_sees_the_callers_log_level_although_its_children_do_not(
    isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    report = runner.run(Options(catalogue.select(["host.environment"]), isolation=isolation), Silent(), Signals())
    (row,) = report.rows
    assert [finding.kind for finding in row.findings] == ["log_hidden"]


def test_undecodable_bytes_become_escapes() -> None:
    assert printable("caf\udce9") == "caf\\udce9"
    assert printable("café") == "café"
