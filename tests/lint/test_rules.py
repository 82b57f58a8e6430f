"""Each rule: its examples, its texts, its words, and the cause that it points to."""

from __future__ import annotations

import ast
import re

import pytest

from gpudiag import causes
from gpudiag.lint import rule
from linting import rules_in

EIGHT_GIB = 8 << 30
RULES = pytest.mark.parametrize("known", rule.known(), ids=lambda known: known.name)


@RULES
def test_bad_example_is_found_and_the_good_one_is_not(known: rule.Known) -> None:
    ast.parse(known.bad)
    ast.parse(known.good)
    assert known.name in rules_in(known.bad, EIGHT_GIB)
    assert known.name not in rules_in(known.good, EIGHT_GIB)


@RULES
def test_texts_are_whole(known: rule.Known) -> None:
    assert known.why
    assert not known.message.endswith(".")
    assert not re.search(r"[{}<>]", known.general)
    assert known.declared.url.startswith("https://")
    assert any(word in known.bad for word in known.declared.words), "a file with the example would not be read"


@RULES
def test_cause_is_one_of_the_catalogue_and_no_rule_has_the_name_of_one(known: rule.Known) -> None:
    assert not known.declared.cause or known.declared.cause in causes.names()
    assert known.name not in causes.names()


@RULES
def test_a_file_without_its_words_is_not_about_it(known: rule.Known) -> None:
    """The text is looked at before it is parsed: that must lose nothing."""
    assert rules_in("import tensorflow as tf\nprint(tf.__version__)\n") == []


def test_keras_reads_its_backend_when_it_is_imported() -> None:
    late = 'import os\nimport {name}\nos.environ["KERAS_BACKEND"] = "jax"\n'
    early = 'import os\nos.environ["KERAS_BACKEND"] = "jax"\nimport keras\n'
    assert rules_in(late.format(name="keras")) == rules_in(late.format(name="tensorflow.keras.layers"))
    assert rules_in(late.format(name="keras")) == ["variable_set_too_late"]
    for fine in (early, late.format(name="tensorflow"), late.format(name="tf_keras")):
        assert rules_in(fine) == []
