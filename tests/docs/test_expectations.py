"""The page "Expectations: the gate before a deployment": its commands run, in its order, and its file is one.

A machine of the tests has no GPU. So ``gpudiag check`` gets ``--simulate`` on its command line, and a few probes, which
verify a kernel on each GPU; all else of each command is as it is written.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from conftest import Gpudiag
from gpudiag import configuration, docs
from gpudiag.expectations import file
from gpudiag.expectations.keys import KEYS
from gpudiag.model import codec
from gpudiag.model.report import Verdict

PAGE = (docs.FOLDER / "expectations.md").read_text(encoding="utf-8")
SHELL = [block.strip().splitlines() for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)]
(TOML,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PROBES = ("host.gpus", "discovery.logical_devices")


def test_the_commands_of_the_page_write_a_gate_and_close_it(gpudiag: Gpudiag) -> None:
    (save, write), (check,), (gate,), (show,) = SHELL

    def run(line: str, *machine: str) -> int:
        words = shlex.split(line)
        assert words[0] == "gpudiag"
        done = gpudiag(*words[1:], *(("--simulate", *machine, *PROBES) if words[1] == "check" else ()))
        assert "Traceback" not in done.stderr
        return done.returncode

    assert [run(save, "2"), run(write)] == [0, 0]
    assert "must-pass" in (gpudiag.folder / "expected.toml").read_text()
    assert run(check, "1") == 1, "another machine"
    assert 'name="expect.gpus"' in (gpudiag.folder / "report.xml").read_text()
    assert run(show) == 1
    saved = codec.load(gpudiag.folder / "report.json")
    assert saved.verdict is Verdict.FAIL
    assert {row.name for row in saved.rows if row.status == "fail"} == {"gpus", "peer-access"}
    check_of_gate, _, program = gate.partition(" && ")
    assert (program, set(shlex.split(check_of_gate)) - {"--strict"} <= set(shlex.split(check))) == ("./deploy.sh", True)


def test_the_file_of_the_page_is_one(tmp_path: Path) -> None:
    (tmp_path / "expected.toml").write_text(TOML)
    table = configuration.expectations(tmp_path / "expected.toml", named=True)
    assert table is not None
    expected = file.read(table, "expected.toml")
    assert expected.accept[0].finding == "host.driver.call_slow"
    assert expected.gpus == 4


def test_the_page_names_every_key() -> None:
    for key in KEYS:
        assert f"| `{key.name}` |" in PAGE
