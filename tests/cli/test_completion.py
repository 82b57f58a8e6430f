"""Completion, as bash, zsh and fish ask for it."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Gpudiag
from gpudiag import docs
from gpudiag.cli import candidates

pytestmark = pytest.mark.starts

TAB, SHOW_LINE = b"\t", b"\x18p"
WITHIN_S = 60
BASH = r"""
set +o history; bind 'set bell-style none'; bind 'set completion-query-items 0'; bind 'set page-completions off'
eval "$(_GPUDIAG_COMPLETE=bash_source gpudiag)"
bind -x '"\C-xp": echo "<$READLINE_LINE>"'
PS1=; echo read''y
"""
ZSH = r"""
unsetopt beep zle_bracketed_paste prompt_cr prompt_sp; autoload -Uz compinit; compinit -D -u
eval "$(_GPUDIAG_COMPLETE=zsh_source gpudiag)"
show() { print -r -- "<$BUFFER>" }; zle -N show; bindkey '^Xp' show
PS1=; LISTMAX=10000; print read''y
"""
FISH = "_GPUDIAG_COMPLETE=fish_source gpudiag | source\n"
SHELLS = {"bash": (["bash", "--norc", "--noprofile", "-i"], BASH), "zsh": (["zsh", "-f", "-i"], ZSH)}


class Shell:
    """An interactive shell on a pseudo-terminal, with completion of gpudiag switched on."""

    def __init__(self, name: str, folder: Path) -> None:
        command, setup = SHELLS[name]
        self._file, child = pty.openpty()
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        environment = {**os.environ, "PATH": path, "TERM": "dumb", "HOME": str(folder), "COLUMNS": "200"}
        (folder / "setup").write_text(setup)
        self._process = subprocess.Popen(
            command, cwd=folder, stdin=child, stdout=child, stderr=child, start_new_session=True, env=environment
        )
        os.close(child)
        self._read = b""
        self._type(b"source ./setup\n")
        self._until(rb"ready")

    def completed(self, line: str) -> str:
        """Return the line as it is after a press of TAB at its end."""
        self._read = b""
        self._type(line.encode() + TAB + SHOW_LINE)
        shown = self._until(rb"<(gpudiag[^>]*)>")
        self._type(b"\x15")  # the line is removed
        return shown[1].decode()

    def _type(self, keys: bytes) -> None:
        os.write(self._file, keys)

    def _until(self, pattern: bytes) -> re.Match[bytes]:
        end = time.monotonic() + WITHIN_S
        while (found := re.search(pattern, self._read)) is None:
            assert select.select([self._file], [], [], max(0.0, end - time.monotonic()))[0], self._read.decode()
            self._read += os.read(self._file, 65536)
        return found

    def close(self) -> None:
        """End the shell."""
        self._process.kill()
        self._process.wait()
        os.close(self._file)


@pytest.fixture(params=SHELLS, scope="module")
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    folder = tmp_path_factory.mktemp("shell")
    (folder / "good-report.json").touch()
    (folder / "notes.txt").touch()
    (folder / "train-model.py").touch()
    shell = Shell(request.param, folder)
    yield shell
    shell.close()


COMPLETED = {
    "gpudiag simu": "gpudiag simulate ",
    "gpudiag check placem": "gpudiag check placement",
    "gpudiag check memory.growth_los": "gpudiag check memory.growth_lost ",
    "gpudiag check --skip memory.growth_los": "gpudiag check --skip memory.growth_lost ",
    "gpudiag list memory.growth_los": "gpudiag list memory.growth_lost ",
    "gpudiag check --log no": "gpudiag check --log notes.txt ",
    "gpudiag check --requ": "gpudiag check --require-gpus ",
    "gpudiag check --format prom": "gpudiag check --format prometheus ",
    "gpudiag check --format=prom": "gpudiag check --format=prometheus ",
    "gpudiag check --simulate 2 --fault nvml_m": "gpudiag check --simulate 2 --fault nvml_missing ",
    "gpudiag check --simulate 2 --fault library_m": "gpudiag check --simulate 2 --fault library_missing=",
    "gpudiag check --fault=library_m": "gpudiag check --fault=library_missing=",
    "gpudiag check --fault cudnn_version=": "gpudiag check --fault cudnn_version=8.9.7 ",
    "gpudiag check --simulate 2x80GiB:H1": "gpudiag check --simulate 2x80GiB:H100 ",
    "gpudiag explain mask_hides_a": "gpudiag explain mask_hides_all ",
    "gpudiag explain runtime-l": "gpudiag explain runtime-library ",
    "gpudiag explain assigned_n": "gpudiag explain assigned_not_called ",
    "gpudiag lint --select assigned_n": "gpudiag lint --select assigned_not_called ",
    "gpudiag docs deploy": "gpudiag docs deployment ",
    "gpudiag show ": "gpudiag show good-report.json ",
    "gpudiag diff go": "gpudiag diff good-report.json ",
    "gpudiag show no": "gpudiag show notes.txt ",
    "gpudiag trace -- python tra": "gpudiag trace -- python train-model.py ",
    "gpudiag trace -- python train-model.py --form": "gpudiag trace -- python train-model.py --form",
    "gpudiag trace python train-model.py --form": "gpudiag trace python train-model.py --form",
    "gpudiag trace -- python train-model.py -o no": "gpudiag trace -- python train-model.py -o notes.txt ",
    "gpudiag simulate 2 -- python train-model.py --kee": "gpudiag simulate 2 -- python train-model.py --kee",
    "gpudiag simulate 2 -- python --fault library_m": "gpudiag simulate 2 -- python --fault library_m",
    "gpudiag simulate --kee": "gpudiag simulate --keep ",
}
"""Lines, and what they are after TAB."""


@pytest.mark.parametrize("line", COMPLETED)
def test_a_shell_completes(line: str, shell: Shell) -> None:
    assert shell.completed(line) == COMPLETED[line]


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(tmp_path: Path) -> None:
    (tmp_path / "good-report.json").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "train-model.py").touch()
    lines = list(COMPLETED)
    program = FISH + "".join(f"echo '<{number}>'\ncomplete -C '{line}'\n" for number, line in enumerate(lines))
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["fish", "--no-config", "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    answers = re.split(r"<\d+>\n", done.stdout)[1:]
    for line, answer in zip(lines, answers, strict=True):
        words = [candidate.partition("\t")[0] for candidate in answer.splitlines()]
        expected = COMPLETED[line].rpartition(" ")[0] if COMPLETED[line].endswith(" ") else COMPLETED[line]
        if expected == line:
            assert words == [], line
        else:
            assert words[0] == expected.rpartition(" ")[2], line
            assert len(words) == 1 or COMPLETED[line][-1].isalpha(), line


@pytest.mark.parametrize("setup", [BASH, ZSH, FISH])
def test_the_manual_says_how_to_switch_it_on(setup: str) -> None:
    assert docs.answer(["completion"]).startswith("## Completion")
    (line,) = [line for line in setup.splitlines() if "_GPUDIAG_COMPLETE" in line]
    assert f"\n{line}\n" in docs.answer(["completion"])


@pytest.mark.parametrize(
    "line",
    [
        *("gpudiag ", "gpudiag check --f", "gpudiag check placem", "gpudiag check --fault l", "gpudiag show g"),
        *("gpudiag check --simulate 2", "gpudiag lint --select a", "gpudiag docs d", "gpudiag explain m"),
    ],
)
def test_a_completion_imports_nothing_heavy(line: str, gpudiag: Gpudiag) -> None:
    word = line.rpartition(" ")[2]
    traced = ("-X", "importtime")
    done = gpudiag(flags=traced, _GPUDIAG_COMPLETE="fish_complete", COMP_WORDS=line, COMP_CWORD=word)
    imported = {row.rpartition("|")[2].strip() for row in done.stderr.splitlines() if "|" in row}
    assert "click.shell_completion" in imported
    assert not imported & {"tensorflow", "numpy", "pynvml", "rich", "jinja2", "tabulate"}
    if not line.startswith("gpudiag explain"):  # a checkout has no index
        assert not imported & {"msgspec", "gpudiag.run.runner", "gpudiag.causes"}


def test_a_configuration_is_not_read_for_a_completion(gpudiag: Gpudiag) -> None:
    (gpudiag.folder / "gpudiag.toml").write_text("timeot = 3")
    line = "gpudiag check --lev"
    done = gpudiag(_GPUDIAG_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD="2", GPUDIAG_TIMEOT="3")
    assert (done.stdout, done.stderr) == ("plain,--level\n", "")


def test_only_what_may_be_typed_without_quotes_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a b.json", "$(c).json", "-d.json", "e.json", "f.txt"):
        Path(name).touch()
    Path("g").mkdir()
    Path("g/h.zip").touch()
    assert [word for word, _ in candidates.reports("")] == ["e.json", "g/"]
    assert [word for word, _ in candidates.reports("g/")] == ["g/h.zip"]
    assert [word for word, _ in candidates.reports(f"{tmp_path}/g/h")] == [f"{tmp_path}/g/h.zip"]
    assert [word for word, _ in candidates.reports("nowhere/")] == []
