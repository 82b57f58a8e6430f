"""Text of other programs without what terminals obey and XML forbids."""

from __future__ import annotations

import pytest

from gpudiag.text import counted, one_line, plain


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain text", "plain text"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b(0 is cut, the rest stays", "(0 is cut, the rest stays"),
        ("\x1bMup", "up"),
        ("a\x00b\x07c\x7fd\x85e\x9bf", "abcdef"),
        ("line\r\nline\ttab\n", "line\nline\ttab\n"),
        ("a\u202eb\u2066c\u2028d", "abcd"),
        ("lone \ud800 surrogate \ufffe", "lone  surrogate "),
        ("漢字 ü € 😀 \xa0", "漢字 ü € 😀 \xa0"),
    ],
)
def test_what_stays(text: str, expected: str) -> None:
    assert plain(text) == expected


def test_on_one_line() -> None:
    assert one_line("  a\n b\tc \x1b[1m\x1b[0m d\r\n") == "a b c d"


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "GPU", "0 GPUs"),
        (1, "GPU", "1 GPU"),
        (2, "GPU", "2 GPUs"),
        (1, "process", "1 process"),
        (2, "process", "2 processes"),
    ],
)
def test_counted(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text
