"""The command that merges reports: files in each format, expectations, and the exit status."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

REPORTS = Path(__file__).parents[2] / "reports"


def test_a_merge_writes_each_format_and_is_judged_by_expectations(gpudiag: Any) -> None:
    for node, report in {"n1": "healthy", "n2": "healthy", "n3": "diagnosis-mask"}.items():
        shutil.copy(REPORTS / f"{report}.json", gpudiag.folder / f"{node}.json")
    (gpudiag.folder / "good.toml").write_text('[fleet]\npass = ">=60%"\n')
    (gpudiag.folder / "strict.toml").write_text('[fleet]\npass = ">=70%"\n')
    (gpudiag.folder / "wrong.toml").write_text("[fleet]\npas = 3\n")
    nodes = [f"n{number}.json" for number in (1, 2, 3)]
    names = [f"fleet.{suffix}" for suffix in ("txt", "json", "csv", "html", "md", "prom")]
    files = [word for name in names for word in ("-o", name)]

    met = gpudiag("fleet", "merge", *nodes, "--expect", "good.toml", *files)
    assert (met.returncode, met.stdout.splitlines()[-1]) == (0, "3 nodes · 1 NOT VERIFIED · 2 PASS · exit 0"), (
        met.stderr
    )
    assert "met    pass: 66.66 % (2 of 3 nodes), expected >=60%" in met.stdout
    assert [line.rpartition(" ")[2] for line in met.stderr.splitlines()] == names
    assert "n3,,NOT VERIFIED,,mask_" in (gpudiag.folder / "fleet.csv").read_text()
    assert json.loads((gpudiag.folder / "fleet.json").read_text())["counts"] == {"NOT VERIFIED": 1, "PASS": 2}

    unmet = gpudiag("fleet", "merge", *nodes, "--expect", "strict.toml", "--format", "csv")
    assert unmet.returncode == 1
    assert unmet.stdout == (gpudiag.folder / "fleet.csv").read_text()
    wrong = gpudiag("fleet", "merge", *nodes, "--expect", "wrong.toml")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "unknown key 'pas'" in wrong.stderr
    assert json.loads(gpudiag("schema", "fleet").stdout)["$ref"] == "#/$defs/FleetReport"
