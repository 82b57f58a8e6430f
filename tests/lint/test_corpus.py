"""The corpus: what is labelled is found, at its line, and nothing else is."""

from __future__ import annotations

import pytest

from gpudiag.lint import rule
from linting import HALVES, PARTS, Snippet, found_in, snippets

ALL = [snippet for part in PARTS for snippet in snippets(part)]


@pytest.mark.parametrize("snippet", ALL, ids=lambda snippet: snippet.source[:60])
def test_finds_what_is_labelled_and_nothing_else(snippet: Snippet) -> None:
    found = {(finding.rule, finding.line) for finding in found_in(snippet.code)}
    assert found == snippet.labels, snippet.code


def test_corpus_is_large_enough_and_labels_are_rules() -> None:
    for half in HALVES:
        assert sum(bool(snippet.labels) for snippet in snippets(half)) >= 55
    assert {name for snippet in ALL for name, _ in snippet.labels} <= set(rule.names())


def test_every_rule_has_a_label_in_the_corpus() -> None:
    without = {"memory_limits_exceed_gpu", "hidden_by_import"}  # one needs an option, one files; examples have both
    assert set(rule.names()) - {name for snippet in ALL for name, _ in snippet.labels} <= without
