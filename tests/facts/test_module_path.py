"""Who puts folders on ``sys.path``: real interpreters with real start-up files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

SCRIPT = """
import json, sys
from gpudiag.facts import module_path
found = module_path.provenance(sys.argv[1:])
print(json.dumps({folder: source.place for folder, source in found.items()}))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False, symlinks=True)
    return folder


def site_of(environment: Path) -> Path:
    return next(environment.glob("lib/python*/site-packages"))


def provenance(environment: Path, *beside: Path) -> dict[str, str]:
    own = [entry for entry in sys.path if entry and "python3" in entry and "lib-dynload" not in entry]
    gpudiag = Path(__file__).resolve().parents[2]
    # The modules of gpudiag and of its requirements come last and by PYTHONPATH, which is nobody's file.
    path = os.pathsep.join(dict.fromkeys((str(gpudiag), *own)))
    done = subprocess.run(
        [str(environment / "bin/python"), "-c", SCRIPT, *map(str, beside)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found: dict[str, str] = json.loads(done.stdout)
    return {folder: place for folder, place in found.items() if str(environment) in place}


def test_files_that_name_a_folder_and_those_that_compute_it(environment: Path, tmp_path: Path) -> None:
    site = site_of(environment)
    for name in ("plain", "inserted", "computed", "customized", "project"):
        (tmp_path / name).mkdir()
    (site / "plain.pth").write_text(f"# a comment\n{tmp_path}/plain\n")
    (site / "vendor.pth").write_text(f"import sys; sys.path.insert(0, '{tmp_path}/inserted')\n")
    (site / "odd.pth").write_text(f"import sys, os; sys.path.append(os.path.join('{tmp_path}', 'com' + 'puted'))\n")
    (site / "sitecustomize.py").write_text(f"import sys\nsys.path.append('{tmp_path}/customized')\n")
    (site / "__editable__.x.pth").write_text("import __editable___x_1_0_finder; __editable___x_1_0_finder.install()\n")
    (site / "__editable___x_1_0_finder.py").write_text(
        f"MAPPING = {{'x': '{tmp_path}/project/x'}}\ndef install(): pass\n"
    )
    assert provenance(environment, tmp_path / "project") == {
        f"{tmp_path}/plain": f"{site}/plain.pth line 2",
        f"{tmp_path}/inserted": f"{site}/vendor.pth line 1",
        f"{tmp_path}/computed": f"{site}/odd.pth",
        f"{tmp_path}/customized": f"{site}/sitecustomize.py line 2",
        f"{tmp_path}/project": f"{site}/__editable__.x.pth",
    }
