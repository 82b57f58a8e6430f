"""The corpus: what is labelled is found, at its line, and nothing else is."""

from __future__ import annotations

import pytest

from gpudiag.lint import rule
from linting import HALVES, PARTS, Snippet, found_in, snippets

ALL = [one for part in PARTS for one in snippets(part)]


@pytest.mark.parametrize("snippet", ALL, ids=lambda one: one.source[:60])
def test_finds_what_is_labelled_and_nothing_else(snippet: Snippet) -> None:
    found = {(one.rule, one.line) for one in found_in(snippet.code)}
    assert found == snippet.labels, snippet.code


def test_corpus_is_large_enough_and_labels_are_rules() -> None:
    for half in HALVES:
        assert sum(bool(one.labels) for one in snippets(half)) >= 55
    assert {name for one in ALL for name, _ in one.labels} <= set(rule.names())


def test_every_rule_has_a_label_in_the_corpus() -> None:
    without = {"memory_limits_exceed_gpu", "logical_device_without_limit"}  # one needs an option; examples have both
    assert set(rule.names()) - {name for one in ALL for name, _ in one.labels} <= without
