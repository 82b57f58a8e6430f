"""The shell of `gpudiag simulate SPEC`: the user's own, marked, and left as every shell is."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import DEADLINE_S, Gpudiag
from gpudiag.simulator.shell import MARK
from terminal import Session

SETTINGS = {
    "bash": (".bashrc", "export SEEN=own; PS1='own> '; PROMPT_COMMAND=\"PS1='own> '\"\n"),
    "zsh": (".zshrc", "export SEEN=own; PROMPT='own> '\n"),
    "fish": (".config/fish/config.fish", "set -x SEEN own; function fish_prompt; echo -n 'own> '; end\n"),
    "sh": (".shrc", "export SEEN=own\n"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_users_own_shell_has_a_marked_prompt(name: str, gpudiag: Gpudiag) -> None:
    shell = shutil.which(name)
    if shell is None:
        pytest.skip(f"{name} is not installed")
    file, settings = SETTINGS[name]
    (gpudiag.folder / file).parent.mkdir(parents=True, exist_ok=True)
    (gpudiag.folder / file).write_text(settings)
    # Without it fish reads all manual pages of the system at its first start, for a minute.
    (gpudiag.folder / ".local/share/fish/generated_completions").mkdir(parents=True)
    home = str(gpudiag.folder)
    session = Session(gpudiag, "simulate", "2", SHELL=shell, HOME=home, ENV=f"{home}/.shrc", TMPDIR=home)
    began = session.read(until=MARK)
    assert "gpudiag: a shell with simulated GPUs; leave it with 'exit' or Ctrl-D" in began
    assert "gpudiag: 2 simulated GPUs" in began
    session.type("echo is-$SEEN; nvidia-smi -L | wc -l\n")
    text = session.read(until="\n2\r\n")
    assert "is-own" in text
    assert MARK in session.read(until=MARK), "after a command, too"
    session.type("exit 7\n")
    session.read()
    assert session.end() == 7
    assert list(Path(home).glob("gpudiag-*")) == [], "what was made for the shell is gone"


def test_a_script_that_is_piped_in_meets_no_prompt(gpudiag: Gpudiag) -> None:
    done = subprocess.run(
        gpudiag.command("simulate", "1"),
        input="nvidia-smi -L | wc -l; exit 3",
        env={**gpudiag.environment, "SHELL": "/bin/sh"},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert (done.returncode, done.stdout) == (3, "1\n")
    assert "leave it" not in done.stderr
