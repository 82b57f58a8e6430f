"""Variables in shell code: those that a program gets, and those that are set but reach no program.

:func:`assignments` reads the text of a shell. :func:`as_shell` rewrites a Dockerfile, a Makefile, an ``.env`` or a
compose file as shell code, line by line, so that line numbers stay.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

HOLE = "\x00"
"""The placeholder for an unknown part of a command."""

_TOKEN = re.compile(
    r"(?P<space>[ \t\r]+|\\\n|\#[^\n]*)"
    r"|(?P<end>\n|;;?|&&|\|\|?|&|[()])"
    r"|(?P<redirect>\d?[<>]{1,3}&?)"
    r"|(?P<word>(?:[^\s\"'\\;&|()<>]|\\[\s\S]|\"(?:[^\"\\]|\\[\s\S]){0,2000}\"|'[^']{0,2000}'|[\"'\\])+)"
)
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)\+?=(?P<value>[\s\S]*)")
_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_BEGINS = frozenset({"if", "then", "else", "elif", "while", "until", "do", "!", "{", "time", "exec", "nohup", "sudo"})
_NO_PROGRAMS = """
    echo printf cd test [ [[ true false : read sleep mkdir rm cp mv ls cat pwd date exit return set
    unset shift trap wait local readonly fi done esac for case function select in break continue
    ulimit umask alias pip pip3 conda module source . which command type grep sed awk mamba apt-get
    apt yum curl wget tar git chmod chown ln touch
"""
_NO_PROGRAM = frozenset(_NO_PROGRAMS.split())
"""Commands that read none of the variables. After ``source`` the exported variables are unknown, so nothing is
reported."""
_HEREDOC = re.compile(r"<<-?\s{0,9}['\"]?(\w{1,80})['\"]?")


@dataclass
class Assignment:
    """A variable that a shell sets."""

    name: str
    value: str | None
    """The assigned value; None if it is not known."""
    line: int
    column: int
    end: int
    exported: bool
    """True if programs that the shell starts get the variable."""
    reaches: bool = False
    """True if a program that gets the variable is started, or if the shell itself uses its value."""
    programs: int = 0
    """The programs started after the assignment in the same shell."""
    ended: bool = False
    """True if the shell that set the variable ends before the text does."""
    spaced: bool = False
    """True if there are spaces around the equals sign, so that it is not an assignment."""


def assignments(text: str) -> list[Assignment]:
    """Return the variables that a shell text sets, in order."""
    return list(_Shell(text).read())


class _Shell:
    """Reads the text of a shell from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self.text = _without_heredocs(text)
        self.found: list[Assignment] = []
        self.all_exported = False
        self.exported: set[str] = set()

    def read(self) -> Iterator[Assignment]:
        words: list[tuple[str, int]] = []
        opened: list[int] = []
        at = 0
        while at < len(self.text):
            token = _TOKEN.match(self.text, at)
            if token is None:
                at += 1
                continue
            at = token.end()
            if token.lastgroup == "word":
                words.append((token[0], token.start()))
            elif token.lastgroup == "end":
                self._command(words)
                words = []
                if token[0] == "(":
                    opened.append(len(self.found))
                elif token[0] == ")" and opened:
                    begin = opened.pop()
                    for known in self.found[begin:]:
                        known.ended = True
                        yield known
                    del self.found[begin:]
        self._command(words)
        yield from self.found

    def _command(self, words: list[tuple[str, int]]) -> None:
        """Read a simple command."""
        while words and words[0][0] in _BEGINS:
            del words[0]
        own = 0
        while own < len(words) and _ASSIGNMENT.fullmatch(words[own][0]):
            own += 1
        name = words[own][0].rpartition("/")[2] if own < len(words) else ""
        for word, _ in words:
            for known in self.found:
                known.reaches |= f"${known.name}" in word or f"${{{known.name}" in word
        if not name:
            for word, start in words:
                self._assign(word, start, exported=self.all_exported)
        elif name in ("export", "declare", "typeset", "setenv", "set", "readonly", "local"):
            self._declare(name, words[own + 1 :])
        elif len(words) > own + 1 and words[own + 1][0].startswith("=") and _NAME.match(name):
            value = words[own + 1][0][1:] or (words[own + 2][0] if len(words) > own + 2 else "")
            self.found.append(self._made(name, value, words[own][1], exported=False, spaced=True))
        elif name not in _NO_PROGRAM:
            self._program(words, own)

    def _declare(self, name: str, words: list[tuple[str, int]]) -> None:
        options = [word for word, _ in words if word.startswith(("-", "+"))]
        exports = name in ("export", "setenv") or any("x" in option for option in options if option.startswith("-"))
        if name == "set" and options:
            self.all_exported = (self.all_exported or "-a" in options) and "+a" not in options
        if name == "setenv" and len(words) == 2:
            words = [(f"{words[0][0]}={words[1][0]}", words[0][1])]
        if len(words) > 1 and words[1][0] == "=" and _NAME.match(words[0][0]):
            value = words[2][0] if len(words) > 2 else ""
            self.found.append(self._made(words[0][0], value, words[0][1], exported=False, spaced=True))
            return
        for word, start in words:
            if _ASSIGNMENT.fullmatch(word):
                self._assign(word, start, exported=exports)
            elif exports and _NAME.match(word):
                self.exported.add(word)
                for known in self.found:
                    known.exported |= known.name == word and not known.spaced

    def _program(self, words: list[tuple[str, int]], own: int) -> None:
        for known in self.found:
            known.programs += 1
            known.reaches |= known.exported
        more = own + 1 if words[own][0].rpartition("/")[2] == "env" else own
        while more < len(words) and more > own and _ASSIGNMENT.fullmatch(words[more][0]):
            more += 1
        for word, start in (*words[:own], *words[own + 1 : more]):
            self._assign(word, start, exported=True)
            self.found[-1].reaches = True
            self.found[-1].programs = 1

    def _assign(self, word: str, start: int, *, exported: bool) -> None:
        given = _ASSIGNMENT.fullmatch(word)
        if given is not None:
            name = given["name"]
            exported |= name in self.exported
            if exported:
                self.exported.add(name)
            self.found.append(self._made(name, given["value"], start, exported=exported))

    def _made(self, name: str, value: str, start: int, *, exported: bool, spaced: bool = False) -> Assignment:
        line = self.text.count("\n", 0, start) + 1
        column = start - (self.text.rfind("\n", 0, start) + 1)
        unknown = "$" in value or "`" in value or HOLE in value
        plain = None if unknown and not self._is_misspelt(value) else re.sub(r"[\"']", "", value)
        return Assignment(name, plain, line, column, column + len(name), exported, spaced=spaced)

    def _is_misspelt(self, value: str) -> bool:
        """Return whether a value is a variable that no line assigns, and one with a similar name is assigned."""
        name = re.fullmatch(r"\"?\$\{?([A-Za-z_]\w*)\}?\"?", value)
        if name is None or re.search(rf"(?<![${{\w]){name[1]}\b", self.text):
            return False
        others = [known.name for known in self.found]
        begins = any(name[1].startswith(f"{other}_") or other.startswith(f"{name[1]}_") for other in others)
        return begins or bool(difflib.get_close_matches(name[1], others, cutoff=0.8))


def _without_heredocs(text: str) -> str:
    """Return the text with its here-documents replaced by empty lines."""
    lines = []
    until = ""
    for line in text.split("\n"):
        if until:
            until = "" if line.strip() == until else until
            lines.append("")
            continue
        found = _HEREDOC.search(line)
        until = found[1] if found and "<<<" not in line else ""
        lines.append(line)
    return "\n".join(lines)


SCRIPTS = re.compile(
    r"\.(?:sh|bash|slurm|sbatch|env|[dD]ockerfile)\Z|\A(?:Dockerfile|Makefile|GNUmakefile|makefile)(?:\.\w{1,60})?\Z"
    r"|\A(?:docker-)?compose[\w.-]{0,60}\.ya?ml\Z|\A\.env[\w.-]{0,60}\Z"
)
"""Names of files that set variables, or start programs with variables."""


def as_shell(path: Path, text: str) -> str:
    """Return a script, or a file that is read like a script, as shell code."""
    name = path.name.lower()
    if "dockerfile" in name:
        return _of_lines(text, _of_dockerfile)
    if "makefile" in name:
        return _of_lines(text, _of_makefile)
    if name.endswith((".yml", ".yaml")):
        return _of_lines(text, _of_compose)
    if ".env" in name:
        return _of_lines(text, lambda line: f"export {line}" if _ASSIGNMENT.match(line) else "")
    return text


def _of_lines(text: str, write: Callable[[str], str]) -> str:
    """Return each line as a shell line; a line that ends with a backslash continues in the next."""
    out: list[str] = []
    begun: list[str] = []
    for line in text.split("\n"):
        begun.append(line)
        if line.rstrip().endswith("\\"):
            continue
        whole = " \\\n".join(part.rstrip().removesuffix("\\") for part in begun)
        out.append(write(whole) or "\n" * (len(begun) - 1))
        begun = []
    return "\n".join([*out, *begun])


_ENV_LINE = re.compile(r"[ \t]{0,20}(?:ENV|env)[ \t]+(?P<rest>[\s\S]*)")
_RUN_LINE = re.compile(r"[ \t]{0,20}(?:RUN|CMD|ENTRYPOINT)[ \t]+(?!\[)(?P<rest>[\s\S]*)")


def _of_dockerfile(line: str) -> str:
    if setting := _ENV_LINE.match(line):
        first, _, rest = setting["rest"].partition(" ")
        return f"export {setting['rest']}" if "=" in first else f"export {first}={rest.strip()!r}"
    run = _RUN_LINE.match(line)
    return f"({run['rest']})" if run else ""


def _of_makefile(line: str) -> str:
    if line.startswith("\t"):
        return f"({line.lstrip().lstrip('@-+').replace('$$', '$')})"
    setting = re.match(r"(export\s+)?([A-Za-z_]\w*)[ \t]*[:?]?=[ \t]*([^\n#]*)", line)
    return f"{setting[1] or ''}{setting[2]}={setting[3].strip()!r}" if setting else ""


_COMPOSE = re.compile(r"\s{0,80}(?:-\s{0,9})?[\"']?([A-Z][A-Z0-9_]{3,80})[\"']?(?:=|:\s{1,9})[\"']?([^\n\"'#]{0,400})")


def _of_compose(line: str) -> str:
    setting = _COMPOSE.match(line)
    return f"export {setting[1]}={setting[2].strip()!r}" if setting else ""
