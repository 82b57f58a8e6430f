"""Completion in shells, by click; imported only when a shell asks.

Of click's own scripts two things are missing. Bash divides words at ``=`` and ``:``, so that ``--format=js`` and
``2x80GiB:H1`` reach click in pieces. And a space is put after each word, also after ``library_missing=``, which a value
follows.
"""

from __future__ import annotations

from typing import Any

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

_PLAIN = "plain"


class _Bash(BashComplete):
    """Completes words whole that bash has divided, and gives it the last piece."""

    source_template = BashComplete.source_template.replace(
        "    return 0", "    [[ ${#COMPREPLY[@]} -eq 1 && $COMPREPLY == *= ]] && compopt -o nospace\n    return 0", 1
    )
    _before = ""
    """The part of the last word that bash leaves as it is."""

    def get_completion_args(self) -> tuple[list[str], str]:
        arguments, last = super().get_completion_args()
        if not last:
            return _joined(arguments), ""
        *whole, incomplete = _joined([*arguments, last])
        self._before = incomplete if last in "=:" else incomplete.removesuffix(last)
        if self._before.startswith("--"):  # click takes the name of the option away
            self._before = self._before.partition("=")[2]
        return whole, incomplete

    def format_completion(self, item: CompletionItem[Any]) -> str:
        return f"{item.type},{item.value.removeprefix(self._before)}"


def _joined(pieces: list[str]) -> list[str]:
    """Return the words of which bash made these pieces."""
    words: list[str] = []
    for piece in pieces:
        if words and (piece[0] in "=:" or words[-1][-1] in "=:"):
            words[-1] += piece
        else:
            words.append(piece)
    return words


class _WithOption(ShellComplete):
    """Completes ``--option=value`` as one word, which these shells replace as a whole."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        items = super().get_completions(args, incomplete)
        option, sign, _ = incomplete.partition("=")
        if sign and option.startswith("--"):
            for item in items:
                item.value = f"{option}={item.value}" if item.type == _PLAIN else item.value
        return items


class _Zsh(_WithOption, ZshComplete):
    source_template = ZshComplete.source_template.replace(
        '            if [[ "$descr" == "_" ]]; then',
        '            if [[ "$key" == *= ]]; then\n'
        "                compadd -U -S '' -V unsorted -- \"$key\"\n"
        '            elif [[ "$descr" == "_" ]]; then',
        1,
    )

    def format_completion(self, item: CompletionItem[str]) -> str:
        if not item.help or item.value.endswith("="):
            return f"{item.type}\n{item.value}\n_"
        value = item.value.replace(":", r"\:")  # click 8.1.0 leaves that out
        return f"{item.type}\n{value}\n{item.help}"


class _Fish(_WithOption, FishComplete):
    pass


for _shell in (_Bash, _Zsh, _Fish):
    add_completion_class(_shell)
