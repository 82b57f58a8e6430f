"""Bytes that are not text, and text that terminals obey: nothing breaks of it, and nothing of it comes out."""

from __future__ import annotations

import html
import json
import os
import random
import subprocess
import unicodedata
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conftest import Gpudiag
from counting import lines_run
from gpudiag.facts import FAMILIES
from gpudiag.knowledge.variables import CONTEXT, SETTINGS
from gpudiag.model import codec
from gpudiag.model.facts import Unknown
from gpudiag.model.reading import decode_hook
from gpudiag.model.report import Report, Settings
from gpudiag.report import FORMATS, render
from gpudiag.report.masking import mask
from gpudiag.text import ascii_only, escaped, one_line, plain
from reports import report, sample

UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Categories of characters that terminals obey, or that nobody sees."""


def unseen(text: str) -> set[str]:
    return {char for char in text if unicodedata.category(char) in UNSEEN and char not in "\n\t"}


def test_every_character_that_is_not_seen_is_left_out_and_every_other_stays() -> None:
    for number in range(0x110000):
        character = chr(number)
        if unicodedata.category(character) in UNSEEN and character not in "\n\t":
            assert plain(f"a{character}b") in ("ab", "a") or character == "\x1b", hex(number)
    for shown in ("aé漢字😀 €ß\xa0", "العربية עברית हिन्दी ไทย", "`^~|<>&"):
        assert plain(shown) == shown


def test_json_keeps_the_value_of_what_it_escapes() -> None:
    for number in (*range(0x20, 0x3000), *range(0xD800), 0xFEFF, 0x1F600, *range(0xE0000, 0xE0080)):
        text = json.dumps(chr(number), ensure_ascii=False)
        assert not unseen(escaped(text))
        assert json.loads(escaped(text)) == json.loads(ascii_only(text)) == chr(number)
        assert ascii_only(text).isascii()


def words(chance: random.Random) -> str:
    """Return a text of ordinary words, escape sequences, controls and marks."""
    alphabet = (
        *("word", "other", " ", "\n", "\t", "é", "漢", "|", "<b>", "`", "@name", "#12", "http://a.b"),
        *("\x1b[31m", "\x1b]0;title\x07", "\x1b]8;;http://a\x1b\\", "\x1bP1$r\x1b\\", "\x9b31m", "\x1b", "\r", "\b"),
        *(chr(chance.choice([*range(0x20), *range(0x7F, 0xA0), *range(0x2000, 0x2070), 0xFEFF, 0xAD, 0x61C]))),
        *(chr(0xE0000 + chance.randrange(128)), "\u3164", "\u202e", "\u200b", "\u2028", "\ufe0f"),
    )
    return "".join(chance.choice(alphabet) for _ in range(chance.randrange(1, 12)))


def hostile(value: Any, chance: random.Random) -> Any:
    """Return a record with other texts in it."""
    if isinstance(value, str) and type(value) is str:
        return words(chance)
    if isinstance(value, msgspec.Struct):
        keep = {"started_at", "probe", "status"}
        names = [name for name in value.__struct_fields__ if name not in keep]
        return msgspec.structs.replace(value, **{name: hostile(getattr(value, name), chance) for name in names})
    if isinstance(value, dict):
        return {words(chance): hostile(item, chance) for item in value.values()}
    if isinstance(value, list | tuple):
        return type(value)(hostile(item, chance) for item in value)
    return value


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("format_", FORMATS)
def test_no_renderer_lets_a_hidden_character_out(format_: str, seed: int) -> None:
    chance = random.Random(seed)
    attacked: Report = hostile(sample(), chance)
    attacked = msgspec.structs.replace(attacked, settings=Settings(words(chance), {words(chance): words(chance)}))
    attacked = msgspec.structs.replace(attacked, notes=(words(chance),), lines=(words(chance),))
    for verbose in (False, True):
        text = render(attacked, format_, width=chance.choice([20, 80, 200]), color=False, verbose=verbose)
        assert unseen(text) == set()
    if format_ == "json":
        assert msgspec.json.decode(text, type=Report, dec_hook=decode_hook) == attacked


CONTROL = "\x1b]0;owned\x07\x9b31m\u202e\u200b\u2028"
EVIL = {
    "version": json.dumps({"schema_version": 99, "gpudiag_version": CONTROL}, ensure_ascii=False),
    "field": codec.encode(report()).replace('"schema_version": 2,', f'"schema_version": 2, {json.dumps(CONTROL)}: 1,'),
    "verdict": codec.encode(report()).replace('"NOT VERIFIED"', json.dumps(CONTROL)),
    "broken": f"{{{CONTROL}",
}


@pytest.mark.parametrize(
    "arguments",
    [
        *(("show", f"{name}.json") for name in EVIL),
        ("show", "version.json", "--debug"),
        ("show", f"{CONTROL}.json"),
        ("check", CONTROL),
        ("check", f"--{CONTROL}"),
        ("check", "--timeout", CONTROL),
        ("check", "--format", CONTROL),
        ("check", "-o", CONTROL),
        ("check", "-o", f"{CONTROL}/r.json"),
        ("check", "--config", f"{CONTROL}.toml"),
        ("check", "--config", "key.toml"),
        ("check", "--config", "value.toml"),
        ("check", "--config", "syntax.toml"),
        ("check", "--log", CONTROL),
        ("check", "--simulate", CONTROL),
        ("check", "--simulate", "2", "--fault", CONTROL),
        ("explain", CONTROL),
        ("list", CONTROL),
        (CONTROL,),
        ("simulate", CONTROL, "--", "true"),
        ("simulate", "1", "--", CONTROL),
    ],
)
def test_no_error_lets_a_hidden_character_out(arguments: tuple[str, ...], gpudiag: Gpudiag) -> None:
    for name, text in EVIL.items():
        (gpudiag.folder / f"{name}.json").write_text(text)
    (gpudiag.folder / "key.toml").write_text(f"{json.dumps(CONTROL)} = 1")
    (gpudiag.folder / "value.toml").write_text(f"isolation = {json.dumps(CONTROL)}")
    (gpudiag.folder / "syntax.toml").write_text(f"x = {CONTROL}")
    done = gpudiag(*arguments, flags=(), **{f"GPUDIAG_TIMEOT{CONTROL}": "1"})
    assert done.returncode not in (0, 5)
    assert unseen(done.stdout + done.stderr) == set()
    assert done.stderr
    assert "internal error" not in done.stderr


BYTES = b"\xff\xfe\xc3(\x1b]0;owned\x07"
"""Not UTF-8, and with an escape sequence."""
FOLDER = os.fsdecode(b"caf\xe9 \xff")


def run(gpudiag: Gpudiag, *arguments: str, **variables: bytes) -> tuple[int, str, str]:
    """Run gpudiag with variables that are bytes; what it prints must be UTF-8, or what ``variables`` ask for."""
    environment = {
        **{os.fsencode(name): os.fsencode(value) for name, value in gpudiag.environment.items()},
        b"TMPDIR": os.fsencode(gpudiag.temporary),
        **{os.fsencode(name): value for name, value in variables.items()},
    }
    command = gpudiag.command(*arguments)
    done = subprocess.run(command, cwd=gpudiag.folder, env=environment, capture_output=True, check=False, timeout=300)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_any_byte_in_any_variable(gpudiag: Gpudiag) -> None:
    # Not those that change what Python and the loader load: with these no interpreter starts.
    names = sorted((SETTINGS | CONTEXT) - {"LD_PRELOAD", "PYTHONHOME", "PYTHONPATH", "LD_LIBRARY_PATH"})
    variables = dict.fromkeys(
        (*names, "USER", "LOGNAME", "container", "GPUDIAG_JUNK", "NCCL_JUNK", "SLURM_JUNK"), BYTES
    )
    status, out, err = run(gpudiag, "check", "host", "--format", "json", "-o", "r.txt", "-o", "r.md", **variables)
    assert status in (1, 5), err
    saved = codec.decode(out, "stdout")
    assert [name for name in FAMILIES if isinstance(getattr(saved.facts, name), Unknown)] == []
    assert unseen(out + err) == set()
    for name in ("r.txt", "r.md"):
        assert unseen((gpudiag.folder / name).read_text()) == set()


@pytest.mark.parametrize("encoding", [{}, {"LC_ALL": b"C", "PYTHONUTF8": b"0", "PYTHONCOERCECLOCALE": b"0"}])
def test_any_byte_in_any_name(encoding: dict[str, bytes], gpudiag: Gpudiag) -> None:
    folder = gpudiag.folder / FOLDER
    folder.mkdir()
    (folder / "tmp").mkdir()
    log = os.fsdecode(b"log \xe9.txt")
    (folder / log).write_bytes(b"a line of some length: GPU \xff\x1b[31m error\n\xfe")
    gpudiag.folder, gpudiag.temporary = folder, folder / "tmp"
    out = os.fsdecode(b"r\xff.json")
    arguments = ("check", "host", "--log", log, "-o", out, "-o", "s.xml")
    status, printed, err = run(gpudiag, *arguments, HOME=BYTES, **encoding)
    assert status in (1, 5), err
    assert "internal error" not in err
    saved = codec.load(folder / out)
    assert saved.command[4] == "log \\udce9.txt"
    assert len(saved.lines) == 2
    assert unseen(printed + err + (folder / "s.xml").read_text()) == set()
    assert list(gpudiag.temporary.iterdir()) == [], "a folder was left behind"
    status, printed, err = run(gpudiag, "show", out, "--mask", **encoding)
    assert status == 0, err
    assert unseen(printed) == set()


def test_any_byte_in_the_name_of_a_machine(gpudiag: Gpudiag) -> None:
    name = os.fsdecode(b"m\xff\xe9.toml")
    gpudiag.simulated("1\n")
    (gpudiag.folder / "machine.toml").write_text("[[gpu]]\n")
    (gpudiag.folder / "machine.toml").rename(gpudiag.folder / name)
    arguments = ("check", "host.gpus", "--simulate", name, "--format", "json", "-o", "s.xml", "-o", "s.json")
    status, printed, err = run(gpudiag, *arguments)
    assert status in (0, 1, 5), err
    assert codec.load(gpudiag.folder / "s.json") == codec.decode(printed, "stdout")
    assert "m\\udcff\\udce9.toml" in (gpudiag.folder / "s.xml").read_text()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
@pytest.mark.parametrize("format_", FORMATS)
def test_standard_output_takes_any_encoding(format_: str, encoding: str, gpudiag: Gpudiag) -> None:
    shown = msgspec.structs.replace(sample(), settings=Settings("käse 漢字 😀.toml", {}))
    (gpudiag.folder / "r.json").write_text(codec.encode(shown))
    command = gpudiag.command("show", "r.json", "--format", format_)
    environment = {**gpudiag.environment, "PYTHONIOENCODING": encoding}
    done = subprocess.run(command, cwd=gpudiag.folder, env=environment, capture_output=True, check=True, timeout=60)
    text = done.stdout.decode("utf-8" if format_ in ("json", "junit", "html") else encoding)
    if format_ == "json":
        assert codec.decode(done.stdout, "stdout") == shown
    elif format_ == "junit":
        from xml.etree import ElementTree as ET

        properties = {entry.get("name"): entry.get("value") for entry in ET.fromstring(done.stdout).iter("property")}
        assert properties["settings"] == "from käse 漢字 😀.toml: none"
    elif format_ == "html":
        assert "settings from käse 漢字 😀.toml" in html.unescape(text).replace("</dt><dd>", " ")
    elif format_ in ("prometheus", "codequality"):  # they do not name the settings
        assert "memory.fraction" in text
    else:
        assert ("käse" in text) or (encoding == "ascii" and "k\\xe4se" in text)


def test_what_one_renderer_cannot_write_costs_none_of_the_others(
    gpudiag: Gpudiag, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from gpudiag.cli import delivery
    from gpudiag.cli.options import Rendering
    from gpudiag.errors import OutputError
    from gpudiag.report.formats import junit, table

    def breaks(*_: object, **__: object) -> str:
        raise KeyError("a bug")

    monkeypatch.setattr(junit, "render", breaks)
    monkeypatch.setattr(table, "render", breaks)
    files = tuple(tmp_path / name for name in ("r.xml", "r.json", "r.txt", "r.md"))
    with pytest.raises(OutputError) as said:
        delivery.deliver(sample(), Rendering("markdown", files))
    assert [file.name for file in files if file.exists()] == ["r.json", "r.md"]
    assert capsys.readouterr().out.startswith("# gpudiag")
    assert str(said.value).count("This is a bug in gpudiag") == 2
    assert str(files[0]) in str(said.value)


@pytest.mark.parametrize("text", ["@name and a@b.example", "#12 GH-7", "https://evil.example www.evil.example"])
def test_markdown_calls_nobody(text: str) -> None:
    shown = msgspec.structs.replace(report(), notes=(text,))
    markdown = render(shown, "markdown", width=80, color=False)
    for call in ("@name", "a@b", "#12", "GH-7", "https://", "www."):
        assert call not in markdown
    assert f"- note: {text}" in markdown.replace("<!-- -->", "")


def test_markdown_keeps_the_address_of_the_documentation() -> None:
    saved = codec.load(Path(__file__).parent.parent / "reports" / "diagnosis-mask.json")
    url = saved.diagnosis.causes[0].url
    assert f"see: <{url}>" in render(saved, "markdown", width=80, color=False)
    cause = msgspec.structs.replace(saved.diagnosis.causes[0], url="javascript:alert(1)")
    diagnosis = msgspec.structs.replace(saved.diagnosis, causes=(cause,))
    text = render(msgspec.structs.replace(saved, diagnosis=diagnosis), "markdown", width=80, color=False)
    assert "<javascript" not in text
    assert one_line("javascript:alert") in text


LETTERS = (
    "/a",
    "token",
    "1",
    "1x",
    "1.",
    "a-",
    "aB",
    "libcu",
    "GPU-a",
    "a@",
    "<",
    "~",
    "\x1b[",
    "\x1b]",
    "http://",
    "@a",
    "_a",
    "\n",
)
"""What regular expressions might try again and again."""


@pytest.mark.parametrize("letters", LETTERS)
def test_no_text_costs_more_than_its_length(letters: str) -> None:
    """What the patterns cost that read it, ``test_patterns.py`` shows."""

    def cost(size: int) -> int:
        text = (letters * size)[:size] + "!"
        long = msgspec.structs.replace(report(), notes=(text,), lines=(text,), command=("gpudiag", text))

        def work() -> None:
            render(mask(long), "markdown", width=80, color=False)
            render(long, "markdown", width=80, color=False)
            codec.encode(long)

        return lines_run(work)

    cost(100)  # words are read, modules imported
    assert cost(4_000) < 40 * cost(200)  # twenty times as long: a square would be 400 times as much
