"""The table of ``releases_do_not_fit``: each case explains the logs that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

import settled
from gpudiag.causes.package import releases_do_not_fit
from gpudiag.causes.package.releases_do_not_fit import CASES, Explained
from gpudiag.causes.shared.asked_name import MissingName

LOGS = {log.name: log for log in settled.load()}


def name_of(number: int) -> str:
    return CASES[number].explain.__name__.removeprefix("_explain_")


@pytest.mark.parametrize(
    ("number", "log"), [(number, log) for number, case in enumerate(CASES) for log in case.logs], ids=str
)
def test_a_case_is_met_in_the_logs_that_it_names(number: int, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    met = set[int]()

    def counted(at: int) -> releases_do_not_fit.Case:
        def explain(asked: MissingName) -> Explained | None:
            met.add(at)
            return CASES[at].explain(asked)

        return CASES[at]._replace(explain=explain)

    monkeypatch.setattr(releases_do_not_fit, "CASES", tuple(map(counted, range(len(CASES)))))
    LOGS[log].diagnosis()
    assert number in met, f"{name_of(number)}: {sorted(map(name_of, met))}"


def test_the_last_case_explains_what_no_other_does() -> None:
    assert CASES[-1].explain.__name__ == "_explain_another_release"
    assert all((Path(settled.FOLDER) / f"{log}.toml").exists() for case in CASES for log in case.logs)
