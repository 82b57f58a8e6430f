"""Looks for the witnesses of texts of the table of messages that have none: which line of a program prints them.

    python scripts/campaigns/witnesses.py 'keras 3.15=FOLDER' 'nvidia-cuda-runtime-cu12 12.9=FOLDER' ...

A FOLDER has the sources of the release that is named, or its libraries: a checkout, an unpacked wheel. The literals of
each statement are joined, and what is between them, or a field of a format, is put in. Prints text, witness, the line
that is printed, separated by tabs: read them before they go to ``tests/knowledge/witnesses.tsv``.
TensorFlow's sources take some two minutes.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from gpudiag.knowledge import log
from gpudiag.knowledge.messages import MESSAGES
from gpudiag.text import one_line

SUFFIXES = frozenset([".c", ".cc", ".cpp", ".cu", ".cuh", ".go", ".h", ".hpp", ".java", ".py", ".pyx", ".rs", ".sh"])
LINEWISE = frozenset({".go", ".py", ".pyx", ".sh"})
"""A statement ends with its line."""
PUT_IN = ("1", "/a/b", "x", "0000:01:00.0")
LONGEST = 4000
TABLE = Path(__file__).parents[2] / "tests" / "knowledge" / "witnesses.tsv"
_COMMENT = {True: r"\#[^\n]*", False: r"//[^\n]*|/\*.*?\*/"}
_FORMAT = re.compile(r"%[-+#0]?[\d.*]*(?:ll?|z|h)?[a-zA-Z]|\$\d|%\(\w+\)[sdr]|\{[^{}\n]{0,60}\}")
_STRINGS = re.compile(rb"[\x20-\x7e\t]{6,1500}")


def _tokens(suffix: str) -> re.Pattern[str]:
    return re.compile(
        r'"""(?P<block>.*?)"""|"(?P<text>(?:[^"\\\n]|\\.)*)"|\'(?P<single>(?:[^\'\\\n]|\\.)*)\'|`(?P<tick>[^`]{1,2000})`|'
        rf"{_COMMENT[suffix in ('.py', '.pyx', '.sh')]}|(?P<end>[;{{}}])|(?P<line>\n)|(?P<open>[(\[])|(?P<shut>[)\]])|"
        r"(?P<other>\w+|[^\s<,+])",
        re.DOTALL,
    )


def printed(source: str, suffix: str) -> Iterator[tuple[int, str]]:
    """Yield the number of the line and the joined literals of each statement; ``{}`` is what varies."""
    parts: list[str] = []
    line = first = 1
    depth = 0
    between = False
    for token in _tokens(suffix).finditer(source):
        literal = next((token[name] for name in ("block", "text", "single", "tick") if token[name] is not None), None)
        depth += bool(token["open"]) - bool(token["shut"])
        if literal is not None:
            first = first if parts else line
            parts += ["{}"] if parts and between else []
            parts.append(_FORMAT.sub("{}", literal.replace("\\n", " ").replace('\\"', '"')))
            between = False
        elif (token["end"] and suffix not in LINEWISE) or (token["line"] and suffix in LINEWISE and depth <= 0):
            if parts:
                yield first, " ".join("".join(parts).split())
            parts = []
            between = False
        elif token["other"]:
            between = True
        line += token[0].count("\n")


def lines_of(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield where in the folder, and a text that is there."""
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        where = file.relative_to(folder).as_posix()
        if file.suffix in SUFFIXES:
            for number, text in printed(file.read_text("utf-8", errors="replace"), file.suffix):
                yield f"{where}:{number}", text
        elif ".so" in file.suffixes or file.suffix == ".dll":
            for found in _STRINGS.finditer(file.read_bytes()):
                yield file.name, " ".join(_FORMAT.sub("{}", found[0].decode()).split())


def wanted() -> dict[str, list[tuple[str, log._Text]]]:
    """Return the texts without a witness, each under the word of it that the fewest have."""
    known = {row.partition("\t")[0] for row in TABLE.read_text("utf-8").splitlines()}
    texts = [
        (text, log._prepared(message, 0, text)) for message in MESSAGES for text in message.texts if text not in known
    ]
    times = Counter(word for _, pattern in texts for word in pattern.words)
    table: dict[str, list[tuple[str, log._Text]]] = defaultdict(list)
    for text, pattern in texts:
        table[min(pattern.words, key=lambda word: (times[word], word))].append((text, pattern))
    return table


def main() -> None:
    """Print what is found: of each text the shortest line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", metavar="NAME=FOLDER")
    table = wanted()
    best: dict[str, tuple[str, str]] = {}
    for name, _, folder in (source.partition("=") for source in parser.parse_args().sources):
        for where, line in lines_of(Path(folder)):
            words = log._words(line)
            for text, pattern in (
                each for word in words & table.keys() for each in table[word] if each[1].words <= words
            ):
                filled = (
                    (one_line(f"{line} {{}}".replace("{}", what)) for what in PUT_IN) if len(line) < LONGEST else ()
                )
                shown = next((each for each in filled if pattern.pattern.search(each)), None)
                if shown is not None and (text not in best or len(shown) < len(best[text][1])):
                    best[text] = f"{name} {where}", shown
    for text, (witness, line) in sorted(best.items()):
        print(text, witness, line, sep="\t")
    print(f"{len(best)} of {sum(map(len, table.values()))} texts without a witness were found")


if __name__ == "__main__":
    main()
