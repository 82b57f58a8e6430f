"""The manual as a reader meets it: complete, every link and command right, readable in a terminal of 80 columns."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gpudiag import catalogue, docs
from gpudiag.cli import command
from gpudiag.docs.terminal import rendered
from gpudiag.errors import GpudiagError
from gpudiag.run import diagnosis

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "gpudiag" / "docs"
"""Of this checkout; ``docs.FOLDER`` is that of the gpudiag that is installed."""
PAGES = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "README.md", *sorted(FOLDER.rglob("*.md")))}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADER = re.compile(r"^\|.*\n(?=\| ---)", re.MULTILINE)
"""Of a table; a narrow terminal does without the names of its first columns."""
GENERATED = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)
FIRST_SCREEN = 40


def text_of(page: str) -> str:
    return PAGES[page].read_text(encoding="utf-8")


def anchors_of(path: Path) -> set[str]:
    return {section.anchor for section in docs.parse("", path.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(page: str) -> None:
    path = PAGES[page]
    targets = LINK.findall(FENCED.sub("", text_of(page)))
    for target in targets:
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.is_file(), f"{page}: {target}"
        assert file.is_relative_to(ROOT), f"{page}: {target}"
        if anchor:
            assert anchor in anchors_of(file), f"{page}: {target}"


def test_the_installed_package_has_every_page() -> None:
    pages = [path.relative_to(FOLDER) for path in FOLDER.rglob("*.md")]
    assert len(pages) > 30
    for page in pages:
        assert (docs.FOLDER / page).read_text(encoding="utf-8") == (FOLDER / page).read_text(encoding="utf-8"), page


def test_anchors_are_those_of_github() -> None:
    text = "# A `b.c` page\n\n## --lock-wait SECONDS\n\n## What's new?\n\n### memory.growth_lost\n\n## What's new?\n"
    assert [section.anchor for section in docs.parse("page", text)] == [
        "a-bc-page",
        "--lock-wait-seconds",
        "whats-new",
        "memorygrowth_lost",
        "whats-new-1",
    ]


def test_the_list_of_pages_names_each_of_them_once() -> None:
    named = re.findall(r"\| \[([\w-]+)\]\(([\w-]+)\.md\)", text_of("gpudiag/docs/README.md"))
    assert [text for text, _ in named] == [page for _, page in named]
    assert sorted(page for _, page in named) == sorted(
        page for page in docs.pages() if "/" not in page and page != docs.INDEX
    )


def test_pages_of_areas_and_stages_are_complete() -> None:
    probes = {
        section.title for page in docs.pages() if page.startswith("probes/") for section in docs.sections_of(page)[1:]
    }
    assert probes == {entry.name for entry in catalogue.entries()}
    causes = {
        section.title for page in docs.pages() if page.startswith("causes/") for section in docs.sections_of(page)[1:]
    }
    assert causes == {rule.id for rule in diagnosis.rules()}
    assert {section.title for section in docs.sections_of("causes")[1:]} >= {
        rule.stage.value for rule in diagnosis.rules()
    }
    assert {section.title for section in docs.sections_of("probes")[1:]} >= {
        entry.area for entry in catalogue.entries()
    }


def test_the_first_screen_of_the_readme_says_what_it_is_and_how_to_start() -> None:
    lines = text_of("README.md").splitlines()
    assert len(lines) <= 130
    first = "\n".join(lines[:FIRST_SCREEN])
    assert [line for line in first.splitlines() if len(line) > 80] == []
    words = ("NVIDIA", "Linux", "TensorFlow 2.18 to 2.21", "simulated GPUs", "list_physical_devices('GPU')", "page.png")
    assert [word for word in words if word not in first] == []
    commands = ("gpudiag check", "gpudiag why program.log", "gpudiag trace -- python train.py", "gpudiag lint")
    assert [command for command in commands if f"| `{command}` |" not in first] == []
    assert "  fix  " in first
    assert len(re.findall(r"^pip install .* && ", first, re.MULTILINE)) == 3


@pytest.mark.parametrize("page", docs.pages())
@pytest.mark.parametrize("width", [80, 120])
def test_every_page_fits_a_terminal_and_no_word_is_lost(page: str, width: int) -> None:
    markdown = docs.answer([page])
    shown = rendered(markdown, width, color=False)
    samples = "".join(block for _, block in FENCED.findall(markdown))
    wide = [line for line in shown.splitlines() if len(line) > width and not is_copied(line, samples)]
    assert wide == []
    words = re.findall(r"\w+", HEADER.sub("", FENCED.sub("", LINK.sub("", markdown))))
    assert set(words) <= set(re.findall(r"\w+", shown))


def is_copied(line: str, samples: str) -> bool:
    """Return whether a line is one of a sample, or a word, such as an address, that cannot be broken."""
    return len(line.split()) <= 2 or line.strip() in samples


@pytest.mark.parametrize("page", [page for page in PAGES if "/docs/causes/" not in page])
def test_written_samples_fit_80_columns_when_they_are_indented(page: str) -> None:
    blocks = [block for _, block in FENCED.findall(GENERATED.sub("", text_of(page)))]
    assert [line for block in blocks for line in block.splitlines() if len(line) > 76] == []


def test_colour_changes_no_character() -> None:
    for page in docs.pages():
        colored = rendered(docs.answer([page]), 80, color=True)
        assert "\x1b[" in colored
        without = re.sub(r"\x1b\[\d+m", "", colored)
        plain = rendered(docs.answer([page]), 80, color=False)
        assert {*re.findall(r"\w+", without)} == {*re.findall(r"\w+", plain)}


def commands_of(page: str) -> Iterator[list[str]]:
    """Yield the arguments of each command of gpudiag in blocks for a shell, and in the text if it is whole there."""
    text = GENERATED.sub("", text_of(page))
    lines = [line for kind, block in FENCED.findall(text) if kind == "sh" for line in block.splitlines()]
    lines += re.findall(r"`(gpudiag [a-z]+ [^`]+)`", FENCED.sub("", text))
    for part in re.split(r"&&|\||;|\n", "\n".join(lines).replace("\\\n", " ")):
        words = shlex.split(part, comments=True)
        if words[:1] == ["gpudiag"] and not re.search(r"\.\.\.|\b(?!REPORT)[A-Z]{4,}", part):
            yield words[1 : next((at for at, word in enumerate(words) if word in {"<", ">"}), None)]


def test_every_command_of_the_manual_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = [arguments for page in PAGES for arguments in commands_of(page)]
    assert len(commands) > 25
    monkeypatch.chdir(tmp_path)
    (tmp_path / "REPORT").touch()
    for word in {word for arguments in commands for word in arguments if re.fullmatch(r"[\w-]+\.[a-z]+", word)}:
        (tmp_path / word).touch()
    for name in ("run", "last-week"):
        (tmp_path / name).mkdir()
    for name, *arguments in commands:
        called = command(name)
        if isinstance(called, click.Group) and arguments:
            called = called.commands[arguments.pop(0)]
        try:
            called.make_context(name, arguments)
        except click.MissingParameter:
            continue  # the text names an option of the command, not a whole command
        except (click.ClickException, GpudiagError) as error:
            pytest.fail(f"gpudiag {name} {' '.join(arguments)}: {error}")
