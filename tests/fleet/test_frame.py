"""A report in one line of a stream that others write to as well."""

from __future__ import annotations

import pytest
from fleets import framed, healthy, unfit

from gpudiag.model import codec
from gpudiag.model.frame import CutShortError, OtherVersionError, reports_in

LINE = framed(healthy())


@pytest.mark.parametrize("before", ["", "Welcome to node7!\n", "no newline ", "\x1b[31mred\n", "gpudiag-report \n"])
@pytest.mark.parametrize("after", ["", "logout\n", "\r\nbye"])
def test_a_report_is_found_among_what_a_login_shell_prints(before: str, after: str) -> None:
    (found,) = reports_in((before + LINE + after).encode())
    assert codec.decode(found, "a frame") == healthy()


@pytest.mark.parametrize("length", [30, 100, len(LINE) // 2, len(LINE) - 2])
def test_a_line_that_was_cut_is_no_report(length: int) -> None:
    with pytest.raises(CutShortError):
        reports_in(LINE[:length].encode())


def test_a_line_with_one_other_character_is_no_report() -> None:
    at = len(LINE) - 40
    other = "A" if LINE[at] != "A" else "B"
    with pytest.raises(CutShortError):
        reports_in((LINE[:at] + other + LINE[at + 1 :]).encode())


def test_a_frame_of_a_later_version_says_so() -> None:
    with pytest.raises(OtherVersionError, match="version 2"):
        reports_in(LINE.replace("gpudiag-report 1", "gpudiag-report 2").encode())


def test_the_same_report_twice_is_one_and_two_different_ones_are_two() -> None:
    assert len(reports_in((LINE + LINE).encode())) == 1
    assert len(reports_in((LINE + framed(unfit())).encode())) == 2
    assert reports_in((LINE + "".join(framed(unfit(cause=str(n))) for n in range(9))).encode())[2:] == []
    assert reports_in(b"nothing of the kind") == []
    assert reports_in((LINE[:100] + "\n" + LINE).encode()) == reports_in(LINE.encode())
