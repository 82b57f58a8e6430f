"""`gpudiag explain` lists whatever has an explanation: by group, kind, pattern or word."""

from __future__ import annotations

from functools import cache

import pytest
from click.testing import CliRunner

from gpudiag import causes
from gpudiag.causes import messages
from gpudiag.cli import cli, describe, explainable
from gpudiag.cli.explanation import Explanation, Kind
from gpudiag.errors import UsageError
from gpudiag.expectations import keys
from gpudiag.lint import rule
from gpudiag.probes import listing

explanations = cache(describe.explanations)


def names(topic: str) -> set[str]:
    return {explanation.name for explanation in explainable.matching(explanations(), topic)}


def test_everything_that_has_a_name_is_there_once() -> None:
    known = [explanation.name for explanation in explanations()]
    expected = {*listing.names(), *causes.names(), *messages.all_of_them(), *rule.names(), "expect.accept"}
    assert sorted(known) == sorted(expected | {f"expect.{key.name}" for key in keys.KEYS})
    assert {explanation.kind for explanation in explanations()} == {kind.value for kind in Kind}
    for explanation in explanations():
        assert explanation.summary
        assert "\n" not in explanation.summary


def test_an_area_that_is_a_stage_too_lists_both() -> None:
    of_memory = names("memory")
    assert {"memory.growth", "memory_held_by_others", "pool_full"} <= of_memory
    assert not of_memory & {"placement.log", "growth_not_read"}


@pytest.mark.parametrize("topic", ["device filter", "device-filter", "Device_Filter"])
def test_a_stage_is_named_in_words_or_with_dashes(topic: str) -> None:
    assert names(topic) >= {name for name, stage in causes.names().items() if stage.value == "device filter"}


def test_a_kind_a_pattern_and_a_word_list() -> None:
    assert names("rules") == names("rule") == set(rule.names())
    assert names("expectations") == {f"expect.{key.name}" for key in keys.KEYS} | {"expect.accept"}
    assert names("placement.*") == {name for name in listing.names() if name.startswith("placement.")}
    assert {"memory.growth", "growth_not_read", "growth_differs"} <= names("growth")
    assert "program_gpu_lost" not in names("growth")
    assert names("unplugged") == set() == names("")
    about = names("compiler")
    assert "compiler_killed" in about, "a word of a name"
    assert "pinned" not in " ".join(explanation.name for explanation in explanations() if explanation.name in about)
    assert names("watchdog"), "only in summaries"


@pytest.mark.parametrize("topic", [*("memory", "CUDA-build", "rules", "messages", "*", "growth")])
@pytest.mark.parametrize("width", [40, 80, 300])
def test_a_list_fits_with_a_line_about_each(topic: str, width: int) -> None:
    matches = explainable.matching(explanations(), topic)
    assert matches
    text = explainable.table(matches, width)
    lines = text.splitlines()
    assert all(len(line) <= width for line in lines[:-1])
    for explanation in matches:
        (line,) = [line for line in lines if line.split()[:1] == [explanation.name]]
        if width == 300:
            assert line.endswith((f"  {explanation.summary}", " ..."))
        if width == 80:
            assert len(line) > len(explanation.name) + 6 or lines[lines.index(line) + 1].startswith("    ")


@pytest.mark.parametrize("width", [40, 80, 300])
def test_the_overview_has_every_group_and_fits(width: int) -> None:
    text = explainable.overview(explanations(), width)
    assert all(len(line) <= width for line in text.splitlines() if not line.startswith("To "))
    for topic in explainable.topics(explanations()):
        shown = [line for line in text.splitlines() if line.split()[:1] == [topic]]
        assert shown or topic in ("probes", "causes"), "these two have groups"
        assert explainable.matching(explanations(), topic)
    counts = [int(line.split()[1]) for line in text.splitlines() if line.startswith("  ")]
    assert sum(counts) == len(explanations())


@pytest.mark.parametrize("width", [40, 80, 200])
def test_every_explanation_is_filled(width: int) -> None:
    for explanation in explanations():
        if explanation.kind == Kind.EXPECTATION:
            continue
        prose = Explanation.text(explanation._replace(commands=""), width)
        assert [line for line in prose.splitlines() if len(line) > width and len(line.split()) > 1] == []


def test_the_command_lists_explains_and_refuses() -> None:
    def printed(*arguments: str) -> str:
        done = CliRunner().invoke(cli, ["explain", *arguments], standalone_mode=False)
        assert done.exception is None
        return done.stdout

    assert printed() == explainable.overview(explanations(), 80)
    assert printed("device", "filter") == explainable.table(explainable.matching(explanations(), "device filter"), 80)
    assert printed("memory.growth").startswith("memory.growth (level ")
    assert printed("glibc_too_old").startswith("system_library_too_old (a cause")
    refused = CliRunner().invoke(cli, ["explain", "mask_hides_al"], standalone_mode=False).exception
    assert isinstance(refused, UsageError)
    assert "Did you mean 'mask_hides_all'" in str(refused)
    assert "runtime-library" in str(CliRunner().invoke(cli, ["explain", "runtime-libary"]).exception)
