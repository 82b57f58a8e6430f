"""A status for Nagios, also if gpudiag cannot run: the line of a plugin is on standard output, the reason is not."""

from __future__ import annotations

import pytest

from conftest import Gpudiag
from gpudiag.cli import _is_plugin


@pytest.mark.parametrize("arguments", [["check", "no.such"], ["show", "absent.json"], ["show"]])
def test_a_plugin_that_cannot_run_is_unknown(arguments: list[str], gpudiag: Gpudiag) -> None:
    done = gpudiag(*arguments, "--exit-scheme", "nagios")
    assert done.returncode == 3
    assert done.stdout == "GPUDIAG UNKNOWN - there is no report; standard error says why\n"


def test_the_scheme_is_known_also_if_the_arguments_are_wrong() -> None:
    assert _is_plugin(["check", "--exit-scheme=nagios", "--nonsense"], {})
    assert _is_plugin(["check", "--exit-scheme", "gpudiag", "--exit-scheme", "nagios"], {})
    assert _is_plugin(["check"], {"GPUDIAG_EXIT_SCHEME": "nagios"})
    assert not _is_plugin(["check", "--exit-scheme", "gpudiag"], {"GPUDIAG_EXIT_SCHEME": "nagios"})
    assert not _is_plugin(["check"], {})
