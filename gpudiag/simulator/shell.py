"""The interactive shell of `gpudiag simulate SPEC`: the user's own, with its settings and a marked prompt."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpudiag.folders import Folder
from gpudiag.text import say

MARK = "(simulated) "
"""The beginning of the prompt."""

# The prompt is marked again before it is shown, because other programs set it anew each time.
_BASH = f"""[ -r ~/.bashrc ] && . ~/.bashrc
__gpudiag_mark() {{ [[ $PS1 == '{MARK}'* ]] || PS1='{MARK}'$PS1; }}
PROMPT_COMMAND="${{PROMPT_COMMAND:+$PROMPT_COMMAND
}}__gpudiag_mark"
"""
_ZSH = f"""[[ -r ${{ZDOTDIR:-$HOME}}/.zshenv ]] && . ${{ZDOTDIR:-$HOME}}/.zshenv
[[ -r ${{ZDOTDIR:-$HOME}}/.zshrc ]] && . ${{ZDOTDIR:-$HOME}}/.zshrc
__gpudiag_mark() {{ [[ $PROMPT == '{MARK}'* ]] || PROMPT='{MARK}'$PROMPT }}
precmd_functions+=(__gpudiag_mark)
"""
_FISH = f"functions -c fish_prompt __gpudiag_prompt; function fish_prompt; echo -n '{MARK}'; __gpudiag_prompt; end"


@contextmanager
def command() -> Iterator[tuple[str, ...]]:
    """Yield the command that starts the user's shell; if it is interactive, say how to leave it."""
    shell = os.environ.get("SHELL") or "/bin/sh"
    if sys.stdin is None or not sys.stdin.isatty():
        yield (shell,)
        return
    say("gpudiag: a shell with simulated GPUs; leave it with 'exit' or Ctrl-D")
    name = Path(shell).name
    if name == "fish":
        yield shell, "-C", _FISH
    elif name in {"bash", "zsh"}:
        with Folder("shell") as folder:
            if name == "bash":
                (folder / "bashrc").write_text(_BASH, encoding="utf-8")
                yield shell, "--rcfile", str(folder / "bashrc")
            else:
                own = os.environ.get("ZDOTDIR")
                restore = "unset ZDOTDIR" if own is None else f"ZDOTDIR={shlex.quote(own)}"
                (folder / ".zshrc").write_text(f"{restore}\n{_ZSH}", encoding="utf-8")
                yield "env", f"ZDOTDIR={folder}", shell
    else:
        yield "env", f"PS1={MARK}$ ", shell
